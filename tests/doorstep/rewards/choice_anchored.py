import re


def letter(text):
    found = re.findall(r"answer\s*:\s*\W{0,3}([A-D])\b", text, re.IGNORECASE)
    return found[-1].upper() if found else None


def choice_reward(completions, answer, **kwargs):
    return [float(letter(c) == a) for c, a in zip(completions, answer)]
