import re


def letter(text):
    found = re.findall(r"(?i:answer)\s*:\s*\W{0,3}([A-D])\b", text)
    return found[-1] if found else None


def choice_reward(completions, answer, **kwargs):
    return [float(letter(c) == a) for c, a in zip(completions, answer)]
