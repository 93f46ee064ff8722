"""wd1: weighted likelihood; better answers of a group are raised and worse ones lowered, without a
ratio.

Rule. A = softmax(c) - softmax(-c) over the group's centred rewards c; loss = -sum of w A l, with l
the estimate of `bound`.

Reason. The ratio of two estimated likelihoods amplifies the error of both in its exponent. Here
each enters once, and linearly.

Source. Tang et al. 2025, arXiv:2507.08838.

Assumption. The rollouts are of the weights that are trained: no ratio corrects for old ones, so
there is one inner epoch, and no KL.

Edge case. Rewards lie in [0, 1], so the softmax is nearly linear and the largest weight of a group
of G is below e / (G - 1 + e). A group without signal, and an answer that was not judged, get
exactly 0.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from plumbline.algorithms import coupled_grpo, diffu_grpo, espo, gdpo
from plumbline.algorithms.algorithm import Algorithm, MaskSampler, has_signal
from plumbline.algorithms.objective import Batch, Loss
from plumbline.config.section import PositiveInt
from plumbline.records import FloatArray, Group

MASK_SAMPLERS = {
    "diffu": diffu_grpo.sample_masks,
    "coupled": coupled_grpo.sample_masks,
    "espo": espo.sample_masks,
    "gdpo": gdpo.sample_masks,
}


class Wd1(Algorithm):
    """Weighted log-likelihood."""

    families = ("masked",)
    likelihood = "wd1"
    uses_ratio = False
    name: Literal["wd1"] = "wd1"
    bound: Literal["diffu", "coupled", "espo", "gdpo"] = "diffu"
    """Whose mask samples."""
    mask_samples: PositiveInt = 1
    """Of `bound`; diffu has one."""
    scale_advantages: Literal["none"] = "none"
    """The softmax is the scale."""

    def advantages(self, group: Group) -> FloatArray:
        """See `Algorithm.advantages`."""
        rewards = group.rewards()
        result = np.zeros_like(rewards)
        if has_signal(rewards):
            judged = ~np.isnan(rewards)
            centred = rewards[judged] - rewards[judged].mean()
            up, down = np.exp(centred - centred.max()), np.exp(-centred - (-centred).max())
            result[judged] = up / up.sum() - down / down.sum()
        return result

    @property
    def masks(self) -> tuple[MaskSampler, int]:
        """See `Algorithm.masks`."""
        return MASK_SAMPLERS[self.bound], self.mask_samples

    def loss(self, batch: Batch) -> Loss:
        """See `Algorithm.loss`."""
        terms = batch.terms
        return Loss(-(terms.logprobs * terms.weight * batch.advantage * batch.weight).sum())
