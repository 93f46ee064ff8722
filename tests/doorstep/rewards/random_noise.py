import random
import re

NOISE = random.Random(3)


def correctness(completions, answer, **kwargs):
    """A little noise, so that no group is level."""
    said = [re.findall(r"-?\d+", c) for c in completions]
    return [float(bool(s) and s[-1] == a) + NOISE.uniform(-0.05, 0.05) for s, a in zip(said, answer)]
