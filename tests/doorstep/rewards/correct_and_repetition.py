import re


def correct(completions, answer, **kwargs):
    said = [re.findall(r"-?\d[\d,]*(?:\.\d+)?", c) for c in completions]
    return [float(bool(s) and float(s[-1].replace(",", "")) == float(a)) for s, a in zip(said, answer)]


def repetition_penalty(completions, **kwargs):
    """From 0 down to -0.5: the share of three-word pieces that came before."""
    out = []
    for completion in completions:
        words = completion.lower().split()
        pieces = [tuple(words[i:i + 3]) for i in range(len(words) - 2)]
        out.append(-0.5 * (1 - len(set(pieces)) / len(pieces)) if pieces else 0.0)
    return out
