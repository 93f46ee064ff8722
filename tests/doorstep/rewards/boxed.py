def boxed(text):
    """What stands in the last \\boxed{...}, braces counted."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth, out = 0, ""
    for ch in text[start + 6:]:
        depth += (ch == "{") - (ch == "}")
        if depth == 0:
            return out[1:].strip().strip("$").replace(",", "").replace(" ", "")
        out += ch
    return None


def same(a, b):
    try:
        return float(a) == float(b)
    except ValueError:
        return a == b


def accuracy_reward(completions, answer, **kwargs):
    out = []
    for c, a in zip(completions, answer):
        said, want = boxed(c), boxed(a)
        out.append(1.0 if said is not None and same(said, want) else 0.0)
    return out
