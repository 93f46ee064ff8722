import re


def correctness(completions, answer, **kwargs):
    scores = []
    for completion, wanted in zip(completions, answer):
        match = re.search(r"-?\d+", completion)
        scores.append(1.0 if match and match.group() == wanted else 0.0)
    return scores
