"""coupled-GRPO: every token is looked at twice, once hidden with a part of the answer and once with
all of it.

Rule. A set (each place with probability t, t uniform in 0.2..0.8), its complement, and everything
hidden: a token counts 1/t or 1/(1 - t) where it is hidden in part, and 1 where all is hidden, and
the two are averaged. Each mask sample has its own ratio and clip, those of tokens.

Reason. The set and its complement see every token exactly once, so no token is left to chance,
which a single random set would do; the full mask is that of `diffu_grpo`.

Source. Gong et al. 2025, DiffuCoder, arXiv:2506.20639.

Assumption. As in `diffu_grpo`, less so: a token sees the others that are not hidden.

Edge case. On a canvas of few places the set or its complement may be empty, and is then left out.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np

from plumbline.algorithms.algorithm import BoundAlgorithm, MaskSample, MaskSampler


def sample_masks(length: int, mask_samples: int, rng: np.random.Generator) -> Iterator[MaskSample]:
    """Everything, a set and its complement: three mask samples a draw."""
    for _ in range(mask_samples):
        share = rng.uniform(0.2, 0.8)
        hidden = rng.random(length) < share
        yield np.ones(length, dtype=bool), 0.5 / mask_samples
        yield hidden, 0.5 / share / mask_samples
        yield ~hidden, 0.5 / (1 - share) / mask_samples


class CoupledGrpo(BoundAlgorithm):
    """GRPO with coupled mask samples at each token."""

    likelihood = "coupled"
    name: Literal["coupled_grpo"] = "coupled_grpo"
    sample_masks: ClassVar[MaskSampler] = staticmethod(sample_masks)
