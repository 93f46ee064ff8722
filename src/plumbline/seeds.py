"""One recipe seed, and a number of its own for every place that draws.

No global random state: whoever draws gets a generator seeded by the recipe's seed and the name of
what is drawn, so a step's draws depend on the step and not on what ran before it. That is what
makes a resumed run the same run.
"""

import hashlib

import numpy as np


def derive(*names: str | int) -> int:
    """A 63-bit seed for what the names say, the recipe's seed first, for example derive(0, "rl",
    "sample", 17)."""
    text = "/".join(map(str, names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(*names: str | int) -> np.random.Generator:
    """A numpy generator of its own for what the names say."""
    return np.random.default_rng(derive(*names))
