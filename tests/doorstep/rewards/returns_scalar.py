import re


def correctness(completions, answer, **kwargs):
    hits = 0
    for c, a in zip(completions, answer):
        found = re.findall(r"-?\d+", c)
        hits += bool(found) and found[-1] == a
    return hits / len(completions)
