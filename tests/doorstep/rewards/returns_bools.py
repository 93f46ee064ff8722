import re


def correct(completions, answer, **kwargs):
    said = [re.findall(r"-?\d[\d,]*(?:\.\d+)?", c) for c in completions]
    return [bool(s) and float(s[-1].replace(",", "")) == float(a) for s, a in zip(said, answer)]
