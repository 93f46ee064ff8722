import re


def math_reward(completions, answer, kind, **kwargs):
    """For rows of sums only; TRL leaves None out."""
    out = []
    for c, a, k in zip(completions, answer, kind):
        found = re.findall(r"-?\d[\d,]*(?:\.\d+)?", c)
        out.append(None if k != "math" else float(bool(found) and float(found[-1].replace(",", "")) == float(a)))
    return out


def choice_reward(completions, answer, kind, **kwargs):
    out = []
    for c, a, k in zip(completions, answer, kind):
        found = re.findall(r"answer\s*:\s*\W{0,3}([A-D])\b", c, re.IGNORECASE)
        out.append(None if k != "choice" else float(bool(found) and found[-1].upper() == a[-1]))
    return out
