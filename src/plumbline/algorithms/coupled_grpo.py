"""coupled-GRPO: every token is looked at twice, once hidden with a part of the answer and once with
all of it.

Rule. A set (each place with probability t, t uniform in 0.2..0.8), its complement, and everything
hidden: a token counts 1/t or 1/(1 - t) where it is hidden in part, and 1 where all is hidden, and
the two are averaged. Each look has its own ratio and clip, those of tokens.

Reason. The set and its complement see every token exactly once, so no token is left to chance,
which a single random set would do; the full look is that of `diffu_grpo`.

Source. Gong et al. 2025, DiffuCoder, arXiv:2506.20639.

Assumption. As in `diffu_grpo`, less so: a token sees the others that are not hidden.

Edge case. On a canvas of few places the set or its complement may be empty, and is then left out.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np

from plumbline.algorithms.algorithm import Bounded
from plumbline.algorithms.views import Look, Looks


def looks(length: int, draws: int, rng: np.random.Generator) -> Iterator[Look]:
    """Everything, a set and its complement: three looks a draw."""
    for _ in range(draws):
        share = rng.uniform(0.2, 0.8)
        hidden = rng.random(length) < share
        yield np.ones(length, dtype=bool), 0.5 / draws
        yield hidden, 0.5 / share / draws
        yield ~hidden, 0.5 / (1 - share) / draws


class CoupledGrpo(Bounded):
    """GRPO with coupled looks at each token."""

    likelihood: ClassVar[str] = "coupled"
    name: Literal["coupled_grpo"] = "coupled_grpo"
    looks: ClassVar[Looks] = staticmethod(looks)
