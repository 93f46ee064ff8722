"""GSPO: one ratio, and one clip, for a whole answer.

Rule. r_i = exp(mean over the answer's terms of new - old); loss = sum over answers of w_i s_i *
-min(r A, clip(r) A), with s_i the number of terms, so that the gradient where r = 1 is that of
`grpo`.

Reason. The reward is of the sequence, and so is what is clipped: a single improbable token neither
stops nor drives the update of its answer.

Source. Zheng et al. 2025, arXiv:2507.18071. The factor s_i is ours: there each answer counts once,
which is `normaliser: grpo` here.

Assumption. All terms of an answer are scored together: some of its steps would not estimate the
mean inside the exponent without bias, so there is no `keep`.

Edge case. The mean of many terms stays near 0, so its ratio moves in thousandths: the paper clips
at 3e-4 and 4e-4, and the default of 0.2 hardly ever acts.
Each turn of an episode is a sequence of its own.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from plumbline.algorithms.algorithm import Clipped, Scores, make_trajectory_targets
from plumbline.algorithms.objective import Level, Target
from plumbline.records import Rollout


class Gspo(Clipped):
    """Group sequence policy optimisation over exact trajectories."""

    name: Literal["gspo"] = "gspo"

    @property
    def level(self) -> Level:
        """See `Clipped.level`."""
        return "sequence"

    def targets(
        self,
        policy: Scores,  # noqa: ARG002
        rollouts: Sequence[Rollout],
        rng: np.random.Generator,
    ) -> list[Target]:
        """See `Algorithm.targets`: one target holds all of a rollout, because its ratio needs all
        terms in one micro-batch."""
        return make_trajectory_targets(rollouts, None, "stratified", rng, split=False)
