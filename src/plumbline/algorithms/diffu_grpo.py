"""diffu-GRPO: one mask sample that hides the whole answer, each token by itself.

Rule. log p of each token given the prompt alone, everything else hidden; ratio, clip and weights
are those of tokens, as in `grpo`.

Reason. It is the cheapest estimate there is: one forward pass an answer, like an autoregressive
model's.

Source. d1: Zhao et al. 2025, arXiv:2504.12216. Its random masking of the prompt, a regulariser for
many inner epochs, is left out.

Assumption. Tokens are nearly independent given the prompt. They are not, so this is no bound of the
sampler's distribution; it is kept as a baseline.

Edge case. What makes the answer hang together cannot be learnt: no token sees another.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from plumbline.algorithms.algorithm import Clipped, MaskSample, MaskSampler


def sample_masks(length: int, mask_samples: int, rng: np.random.Generator) -> Iterator[MaskSample]:  # noqa: ARG001 - nothing is drawn
    """Everything hidden, once."""
    yield np.ones(length, dtype=bool), 1.0


class DiffuGrpo(Clipped):
    """GRPO with the one-step estimate of each token."""

    families = ("masked",)
    likelihood = "diffu"
    name: Literal["diffu_grpo"] = "diffu_grpo"

    @property
    def masks(self) -> tuple[MaskSampler, int]:
        """See `Algorithm.masks`."""
        return sample_masks, 1
