import re


def closeness(completions, answer, **kwargs):
    out = []
    for c, a in zip(completions, answer):
        found = re.findall(r"\d+", c)
        out.append(1 / (1 + abs(int(found[-1][:9]) - int(a))) if found else 0.0)
    return out
