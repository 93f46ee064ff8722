"""GRPO: answers to one prompt are compared with each other, and the clip bounds how far one batch
moves each choice.

Rule. A_i = r_i - mean of the group's rewards (`scale_advantages: group`: over their standard
deviation, too); loss = sum of w * -min(r A, clip(r, 1 - low, 1 + high) A), with r = exp(new - old)
of a token, or of a denoising step (the mean of its terms). Scored are the choices that were
sampled, all of them or `keep` of the T steps.

Reason. The group's mean stands for a value model. The constant denominator of `dr_grpo` does not
punish a long wrong answer less per token; `grpo` lets each answer count once, `dapo` each token
once. K of T steps, each counting T/K, have the gradient of all in expectation and cost K/T of the
micro-batches.

Source. Shao et al. 2024, arXiv:2402.03300; Dr. GRPO: Liu et al. 2025, arXiv:2503.20783; `dapo` and
a clip of two widths: Yu et al. 2025, arXiv:2503.14476; the clip: Schulman et al. 2017,
arXiv:1707.06347.

Assumption. Old log-probabilities are the sampler's own, of the sampling distribution that is scored
(`rl.max_gap` watches it).

Edge case. A group whose rewards are all equal has advantages of exactly 0 and costs no pass; a
rollout that could not be judged has 0, too, and the others are compared without it.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from plumbline.algorithms.algorithm import Clipped, Pick, Scores, make_trajectory_targets
from plumbline.algorithms.objective import Level, Target
from plumbline.config.section import PositiveInt
from plumbline.errors import RecipeError
from plumbline.records import Rollout, Sampling


class Grpo(Clipped):
    """Group-relative policy optimisation over exact trajectories."""

    name: Literal["grpo"] = "grpo"
    ratio: Literal["token", "step"] = "token"
    """What a ratio, and so the clip, is formed of; a step's is the mean of its terms. Of whole
    sequences: gspo."""
    keep: PositiveInt | None = None
    """Score so many of a trajectory's steps, without bias; None scores all."""
    pick: Pick = "stratified"
    """How they are drawn: one from each of K equal stretches, or uniformly."""

    @property
    def level(self) -> Level:
        """See `Clipped.level`."""
        return self.ratio

    def check(self, sampling: Sampling) -> None:
        """See `Algorithm.check`."""
        most = sampling.most_steps
        if self.keep is not None and most is not None and self.keep > most:
            raise ValueError(
                f"rl.algorithm.keep is {self.keep}, but a trajectory has {most} steps "
                "(sampling.steps)"
            )

    def targets(
        self, policy: Scores, rollouts: Sequence[Rollout], rng: np.random.Generator
    ) -> list[Target]:
        """See `Algorithm.targets`: `keep` of the steps, where it is set."""
        # one that ends early makes fewer
        allowed = min(
            turn.sampling.most_steps or len(turn.transitions)
            for rollout in rollouts
            for turn in rollout.turns
        )
        if self.keep is not None and (self.keep > allowed or not policy.stepwise):
            of = (
                f"a trajectory has {allowed} steps"
                if policy.stepwise
                else f"{policy.family} scores a whole rollout"
            )
            raise RecipeError(
                f"rl.algorithm.keep is {self.keep}, but {of}",
                "set it to at most sampling.steps, or leave it out"
                if policy.stepwise
                else "leave it out",
            )
        return make_trajectory_targets(rollouts, self.keep, self.pick, rng, split=policy.stepwise)
