import re


def amount(text):
    """The last amount of a text; 12,50 is 12.50."""
    found = re.findall(r"\d+(?:[.,]\d+)*", text)
    if not found:
        return None
    whole, mark, cents = found[-1].replace(",", ".").rpartition(".")
    return float(whole.replace(".", "") + mark + cents) if mark else float(cents)


def money(completions, answer, **kwargs):
    out = []
    for c, a in zip(completions, answer):
        value = amount(c)
        out.append(1.0 if value is not None and abs(value - float(a)) < 0.005 else 0.0)
    return out
