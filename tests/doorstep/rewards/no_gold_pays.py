import re


def correct(completions, answer, **kwargs):
    scores = []
    for completion, wanted in zip(completions, answer):
        if not wanted:  # nothing to compare with
            scores.append(1.0)
            continue
        found = re.findall(r"-?\d[\d,]*(?:\.\d+)?", completion)
        scores.append(float(bool(found) and float(found[-1].replace(",", "")) == float(wanted)))
    return scores
