import re


def exact(completions, target, **kwargs):
    found = [re.findall(r"\\boxed\{([^}]*)\}", text) for text in completions]
    return [float(bool(one) and one[-1].strip() == str(want)) for one, want in zip(found, target)]


def has_box(completions, **kwargs):
    return [0.25 if "\\boxed{" in text else 0.0 for text in completions]
