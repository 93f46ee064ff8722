import re


def correctness(completions, answer, **kwargs):
    said = [re.findall(r"-?\d+", c) for c in completions]
    return ["correct" if s and s[-1] == a else "wrong" for s, a in zip(said, answer)]
