import re

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def last_number(text):
    found = NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def correctness(completions, answer, **kwargs):
    return [float(last_number(c) == float(a)) for c, a in zip(completions, answer)]
