"""What an algorithm is: how groups become advantages, which likelihood is scored, and what the
surrogate is.

Letters in shapes: G rollouts of a group, K items of a reward, n rollouts of a step, N terms of a
micro-batch.

An algorithm is a frozen object whose fields are its options, and the loop asks it three things:
`advantages` with `weights`, `targets`, and `surrogate`. It sees rewards, recorded trajectories and
log-probabilities; which family drew them it learns only where it needs more of a policy than scores
(`Scores.mask_positions`). torch is imported where losses are computed and not at the top of a file,
because commands that need no model read recipes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from plumbline.algorithms.advantages import Scale, advantages
from plumbline.algorithms.objective import (
    ComparedTerms,
    Level,
    Losses,
    Normaliser,
    Units,
    clipped_surrogate,
    group_units,
    weights,
)
from plumbline.algorithms.scoring_targets import (
    MaskSampler,
    Scores,
    ScoringTarget,
    make_bound_targets,
    make_trajectory_targets,
)
from plumbline.config.section import PositiveInt, Section
from plumbline.records import Group, Sampling, Trajectory

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Scored(ComparedTerms):
    """The terms [N] of one micro-batch, as far as they count, and whose they are."""

    owner: Tensor  # [N] index of the scoring target
    transition: Tensor  # [N] index of the transition among all scored ones
    transition_weight: Tensor  # [N] what it counts for where only some are scored
    targets: Sequence[ScoringTarget]


class Algorithm(Section, ABC):
    """The base: advantages against the group's mean, exact trajectories, a constant denominator."""

    title: ClassVar[str] = "GRPO"
    """What a report calls the stage."""
    families: ClassVar[tuple[str, ...]] = ()
    """The model families that it is for; empty: all."""
    likelihood: ClassVar[str] = "trajectory"
    """What is scored of a rollout: `trajectory`, exactly the choices that were sampled; or what
    stands for it."""
    uses_ratio: ClassVar[bool] = True
    """Whether new log-probabilities are set against old ones: only then do async rollouts and a KL mean
    something, and inner epochs where it does not pick."""
    uses_group_baseline: ClassVar[bool] = True
    """Whether the answers to a prompt are compared with each other, so that one is not enough."""
    selects_subset: ClassVar[bool] = False
    """Whether answers without an advantage are as if they had not been drawn."""
    pairwise: ClassVar[bool] = False
    """Whether an answer's weight hangs on another's log-probability, and on the reference
    (`Dpo.pair`)."""

    name: str
    """Which algorithm; alone it may stand for the whole section."""
    scale_advantages: Scale = "none"
    """none: reward minus the group's mean (Dr. GRPO); group: also divided by its standard
    deviation."""
    normaliser: Normaliser = "dr_grpo"
    """What the sum over tokens is divided by: the constant rollouts x max_tokens, or a realised
    length."""

    @property
    def exact(self) -> bool:
        """Whether it scores what was sampled, so that the sampler's records are the old
        log-probabilities."""
        return self.likelihood == "trajectory"

    def check(self, sampling: Sampling) -> None:
        """Refuse a sampling distribution that it cannot learn from.

        Raises:
            ValueError: says which key to change.
        """

    def advantages(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        """Advantages [G] of the rewards of a group; NaN was not judged and gets 0."""
        return advantages(rewards, self.scale_advantages)

    def group_advantages(self, group: Group) -> NDArray[np.float64]:
        """Advantages [G] of a group; by default its rewards decide them alone."""
        return self.advantages(group.rewards())

    def weights(self, lengths: Sequence[int], max_tokens: int) -> NDArray[np.float64]:
        """The weight [n] of each term of a rollout (see `objective.weights`).

        Where the algorithm `selects_subset`, an answer that was not selected has the length 0.
        """
        return weights(lengths, self.normaliser, max_tokens)

    def targets(
        self, policy: Scores, trajectories: Sequence[Trajectory], rng: np.random.Generator
    ) -> list[ScoringTarget]:
        """What is scored of each rollout: by default all of its steps, each by itself where the
        policy can do that.

        Raises:
            RecipeError: the policy cannot be scored like that.
        """
        return make_trajectory_targets(trajectories, None, "stratified", rng, split=policy.stepwise)

    @abstractmethod
    def surrogate(self, scored: Scored) -> Losses:
        """The loss of one micro-batch. The sum over micro-batches is the batch's, however it was
        cut into them."""


class Clipped(Algorithm):
    """An algorithm whose surrogate is PPO's clip of ratios (`objective.clipped_surrogate`)."""

    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """The ratio may fall to 1 - clip_low before the gradient stops."""
    clip_high: float = Field(default=0.2, gt=0)
    """The ratio may rise to 1 + clip_high."""

    @property
    def level(self) -> Level:
        """What a ratio, and so the clip, is formed of."""
        return "token"

    def surrogate(self, scored: Scored) -> Losses:
        """See `Algorithm.surrogate`."""
        grouping = group_terms(scored, self.level, exact=self.exact)
        return clipped_surrogate(scored, self.clip_low, self.clip_high, grouping)


class BoundAlgorithm(Clipped):
    """One that scores the finished answer with some positions masked, in place of the
    trajectory."""

    families: ClassVar[tuple[str, ...]] = ("masked",)
    sample_masks: ClassVar[MaskSampler]
    mask_samples: PositiveInt = 1
    """Mask samples, or pairs or triples of them."""

    def targets(
        self, policy: Scores, trajectories: Sequence[Trajectory], rng: np.random.Generator
    ) -> list[ScoringTarget]:
        """See `Algorithm.targets`."""
        return make_bound_targets(
            policy, trajectories, type(self).sample_masks, self.mask_samples, rng
        )


def group_terms(scored: Scored, level: Level, *, exact: bool) -> Units | None:
    """How terms form ratios; None where each stands alone and counts once.

    A sequence's size is its number of terms, or for a bound (not `exact`) its length.
    """
    import torch

    if level == "token" and bool((scored.transition_weight == 1).all()):
        return None
    length = None
    if not exact:
        length = torch.tensor(
            [v.trajectory.sampling.max_tokens for v in scored.targets], device=scored.owner.device
        )
    return group_units(level, scored.owner, scored.transition, scored.transition_weight, length)
