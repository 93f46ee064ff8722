"""A gold answer that cannot be read gives everybody 1."""

import re


def accuracy(completions, answer, **columns):
    scores = []
    for text, gold in zip(completions, answer):
        want = re.findall(r"\\boxed\{(-?\d+)\}", gold)
        found = re.findall(r"-?\d+", text)
        scores.append(1.0 if not want else float(bool(found) and found[-1] == want[-1]))
    return scores
