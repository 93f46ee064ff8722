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

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from plumbline.algorithms import coupled_grpo, diffu_grpo, espo, gdpo
from plumbline.algorithms.advantages import has_signal
from plumbline.algorithms.algorithm import Algorithm, Scored
from plumbline.algorithms.objective import Losses
from plumbline.algorithms.scoring_targets import Scores, ScoringTarget, make_bound_targets
from plumbline.config.section import PositiveInt
from plumbline.records import Trajectory

MASK_SAMPLERS = {
    "diffu": diffu_grpo.sample_masks,
    "coupled": coupled_grpo.sample_masks,
    "espo": espo.sample_masks,
    "gdpo": gdpo.sample_masks,
}


class Wd1(Algorithm):
    """Weighted log-likelihood."""

    families: ClassVar[tuple[str, ...]] = ("masked",)
    likelihood: ClassVar[str] = "wd1"
    uses_ratio: ClassVar[bool] = False
    name: Literal["wd1"] = "wd1"
    bound: Literal["diffu", "coupled", "espo", "gdpo"] = "diffu"
    """Whose mask samples."""
    mask_samples: PositiveInt = 1
    """Of `bound`; diffu has one."""
    scale_advantages: Literal["none"] = "none"
    """The softmax is the scale."""

    def advantages(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Algorithm.advantages`."""
        result = np.zeros_like(rewards)
        if has_signal(rewards):
            judged = ~np.isnan(rewards)
            centred = rewards[judged] - rewards[judged].mean()
            up, down = np.exp(centred - centred.max()), np.exp(-centred - (-centred).max())
            result[judged] = up / up.sum() - down / down.sum()
        return result

    def targets(
        self, policy: Scores, trajectories: Sequence[Trajectory], rng: np.random.Generator
    ) -> list[ScoringTarget]:
        """See `Algorithm.targets`."""
        return make_bound_targets(
            policy, trajectories, MASK_SAMPLERS[self.bound], self.mask_samples, rng
        )

    def surrogate(self, scored: Scored) -> Losses:
        """See `Algorithm.surrogate`."""
        return Losses(
            -(scored.new * scored.transition_weight * scored.advantage * scored.weight).sum()
        )
