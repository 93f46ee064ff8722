"""What an algorithm is: how groups become advantages, which likelihood is scored, and what the loss
is.

Letters in shapes: G rollouts of a group, n rollouts of a minibatch, N terms of a micro-batch.

An algorithm is a frozen object whose fields are its options, and the loop asks it four things:
`advantages` with `weights`, `targets`, `prepare` and `loss`. It sees rewards, recorded trajectories
and log-probabilities; which family drew them it learns only where it needs more of a policy than
scores (`Scores.mask_positions`). torch is imported where losses are computed and not at the top of
a file, because commands that need no model read recipes.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import numpy as np
from pydantic import Field

from plumbline.algorithms.objective import (
    Batch,
    Level,
    Loss,
    Normaliser,
    Target,
    Units,
    clipped_surrogate,
    group_units,
    weights,
)
from plumbline.config.section import PositiveInt, Section
from plumbline.records import (
    BoolArray,
    FloatArray,
    Group,
    Rollout,
    Sampling,
    Trajectory,
    Transition,
)

if TYPE_CHECKING:
    from torch import Tensor

# -- advantages ------------------------------------------------------------------------------------
#
# How much better than its siblings a rollout was.
#
# The advantage is the reward minus the group's mean (Liu et al. 2025, "Understanding R1-Zero-Like
# Training", Dr. GRPO, arXiv:2503.20783): dividing by the group's standard deviation, as GRPO first
# did (Shao et al. 2024, arXiv:2402.03300), gives easy and hard prompts more weight than the ones in
# between, so it is an option and not the default.

Scale = Literal["none", "group"]
TOLERANCE = 1e-6
"""Rewards closer than this are equal: the standard deviation of eight equal float32 rewards is not
0 but 1e-8."""


def has_signal(rewards: FloatArray) -> bool:
    """Whether the judged rewards [G] (NaN: not judged) differ, so that the group says anything at
    all."""
    judged = rewards[~np.isnan(rewards)]
    return bool(len(judged) > 1 and judged.max() - judged.min() > TOLERANCE)


def centre_rewards(rewards: FloatArray, scale: Scale = "none") -> FloatArray:
    """Advantages [G] of the rewards of one group.

    They sum to 0 over the judged rollouts. A group without signal, and a rollout that could not be
    judged (NaN), get exactly 0: an answer that nobody judged is neither good nor bad.

    Args:
        rewards: [G], NaN where a rollout could not be judged.
        scale: "group" divides by the standard deviation (with Bessel's correction, as TRL does).
    """
    if not has_signal(rewards):
        return np.zeros_like(rewards)
    centred = rewards - np.nanmean(rewards)
    if scale == "group":
        centred = centred / (np.nanstd(rewards, ddof=1) + 1e-4)
    return np.nan_to_num(centred)


# -- targets: a trajectory -------------------------------------------------------------------------
#
# The exact log-probability of a trajectory, from all of its steps or an unbiased estimate from K of
# them.
#
# The surrogate is a sum over steps, so scoring K of T steps with weights whose expectation is 1
# gives its gradient without bias: an even draw of K steps weighs each T/K, and one step from each
# of K equal stretches weighs each by its stretch's length, with less variance. A ratio of whole
# sequences is no such sum, and refuses K < T.
#
# This is not what Flow-GRPO (Liu et al. 2025, arXiv:2505.05470) calls denoising reduction, which is
# sampling training rollouts in fewer steps than evaluations have: `sampling.steps` against
# `evaluation.steps`.

Pick = Literal["stratified", "uniform"]


class Scores(Protocol):
    """What an algorithm asks of the policy that will score its targets."""

    family: str
    stepwise: bool
    """Whether each step is scored by a forward pass of its own; False: one pass scores a whole
    trajectory."""

    def mask_positions(self, trajectory: Trajectory, hidden: BoolArray) -> Transition:
        """A step that fills in the `hidden` positions [L] of the answer's canvas from the others.

        Its state is the canvas with these positions masked; its tokens are the answer's own; its
        recorded log-probabilities are not a number, because nobody sampled them.

        Raises:
            RecipeError: the policy cannot mask positions.
        """
        ...


def make_trajectory_targets(
    rollouts: Sequence[Rollout],
    keep: int | None,
    pick: Pick,
    rng: np.random.Generator,
    *,
    split: bool,
) -> list[Target]:
    """Targets of every turn.

    A trajectory that ended in fewer than K steps, though its sampling distribution allows K, is
    scored whole.

    Args:
        rollouts: what was sampled.
        keep: K; None scores all steps.
        pick: how K steps are drawn.
        rng: draws them.
        split: a target for each step (a policy that scores each in a forward pass of its own can
            then put any of them into a micro-batch); else one target holds all.

    Raises:
        ValueError: K exceeds the steps that a trajectory's sampling distribution allows.
    """
    targets = []
    for rollout, turn in _turns(rollouts):
        steps = turn.transitions
        if keep is not None and not len(steps) < keep <= (turn.sampling.most_steps or 0):
            steps = tuple(_draw_transitions(steps, keep, pick, rng))
        for part in ([step] for step in steps) if split else [steps]:
            targets.append(Target(rollout, replace(turn, transitions=tuple(part))))
    return targets


def _turns(rollouts: Sequence[Rollout]) -> Iterator[tuple[Rollout, Trajectory]]:
    return ((rollout, turn) for rollout in rollouts for turn in rollout.turns)


def _draw_transitions(
    steps: Sequence[Transition], keep: int, pick: Pick, rng: np.random.Generator
) -> Iterator[Transition]:
    total = len(steps)
    if keep > total:
        raise ValueError(f"cannot score {keep} of {total} steps")
    if pick == "uniform":
        for index in sorted(rng.choice(total, size=keep, replace=False)):
            yield replace(steps[index], weight=total / keep)
        return
    edges = [round(total * part / keep) for part in range(keep + 1)]
    for start, end in itertools.pairwise(edges):
        yield replace(steps[int(rng.integers(start, end))], weight=float(end - start))


# -- targets: a bound ------------------------------------------------------------------------------
#
# Bounds on an answer's log-likelihood, from a few samples of masked positions.
#
# Letters: L positions of the canvas, S a set of hidden positions, H = |S|.
#
# A masked model that fills in positions in random order has log p(y) >= E_S [ weight * sum_{i in S}
# log p(y_i | rest) ]. What differs between the algorithms is how S is drawn and what it counts:
# each has its `sample_masks`.
#
# None is the log-probability of the trajectory that was sampled, so a report says that they are not
# exact. Tokens are scored at temperature 1, as published: the bound is one of the model, not of the
# sampler's distribution.

MaskSample = tuple[BoolArray, float]
"""A hidden set [L], and what it counts."""
MaskSampler = Callable[[int, int, np.random.Generator], Iterable[MaskSample]]
"""From L, the number of samples, and who draws them."""


def make_bound_targets(
    policy: Scores,
    rollouts: Sequence[Rollout],
    sample_masks: MaskSampler,
    mask_samples: int,
    rng: np.random.Generator,
) -> list[Target]:
    """One target for each turn, that holds all of its mask samples.

    A sample that hides nothing says nothing and is left out, and so is a turn all of whose samples
    do.

    Args:
        policy: hides positions.
        rollouts: what was sampled.
        sample_masks: of the algorithm.
        mask_samples: Monte Carlo samples or quadrature nodes.
        rng: draws the sets.

    Raises:
        RecipeError: the policy cannot mask positions.
    """
    targets = []
    for rollout, turn in _turns(rollouts):
        length = turn.sampling.max_tokens
        seen = [
            (hidden, weight)
            for hidden, weight in sample_masks(length, mask_samples, rng)
            if hidden.any()
        ]
        if not seen:
            continue
        steps = tuple(
            replace(policy.mask_positions(turn, hidden), weight=weight) for hidden, weight in seen
        )
        plain = type(turn.sampling)(max_tokens=length)
        targets.append(Target(rollout, replace(turn, transitions=steps, sampling=plain)))
    return targets


# -- the base --------------------------------------------------------------------------------------


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
    uses_reference: ClassVar[bool] = False
    """Whether `prepare` needs log-probabilities under the weights that the stage began with."""
    own_metrics: ClassVar[tuple[str, ...]] = ()
    """Names of what `prepare` measures."""
    needs_teacher: ClassVar[bool] = False
    """Whether it learns from `rl.teacher` alone."""

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

    def advantages(self, group: Group) -> FloatArray:
        """Advantages [G] of the rollouts of a group; one that was not judged gets 0."""
        return centre_rewards(group.rewards(), self.scale_advantages)

    def shuffle(
        self, advantages: Sequence[FloatArray], rng: np.random.Generator
    ) -> list[FloatArray]:
        """Advantages [G] of each group, shuffled over all rollouts of the batch: a control that
        cannot learn."""
        flat = rng.permutation(np.concatenate(list(advantages)))
        return list(np.split(flat, np.cumsum([len(group) for group in advantages])[:-1]))

    def weights(self, lengths: Sequence[int], max_tokens: int) -> FloatArray:
        """The weight [n] of each term of a rollout (see `objective.weights`).

        Where the algorithm `selects_subset`, an answer that was not selected has the length 0.
        """
        return weights(lengths, self.normaliser, max_tokens)

    @property
    def masks(self) -> tuple[MaskSampler, int] | None:
        """Who hides positions, and in how many samples, where the finished answer is scored with
        some positions masked in place of the trajectory."""
        return None

    def targets(
        self, policy: Scores, rollouts: Sequence[Rollout], rng: np.random.Generator
    ) -> list[Target]:
        """What is scored of the rollouts: by default all steps of each turn, each by itself where
        the policy can do that; or what `masks` hide.

        Raises:
            RecipeError: the policy cannot be scored like that.
        """
        if self.masks is not None:
            return make_bound_targets(policy, rollouts, *self.masks, rng)
        return make_trajectory_targets(rollouts, None, "stratified", rng, split=policy.stepwise)

    def prepare(
        self,
        targets: Sequence[Target],
        score: Callable[[], Sequence[Tensor]],  # noqa: ARG002
    ) -> tuple[Sequence[Target], Mapping[str, float]]:
        """What an optimiser step is made of that no micro-batch has whole; by default nothing.

        Args:
            targets: of a minibatch, with the reference's log-probabilities where it
                `uses_reference`.
            score: gives the log-probabilities of each target under the present weights.

        Returns:
            The targets, and metrics; its `train/loss` stands for the sum over micro-batches.
        """
        return targets, {}

    @abstractmethod
    def loss(self, batch: Batch) -> Loss:
        """The loss of one micro-batch. The sum over micro-batches is the minibatch's, however it
        was cut into them."""


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

    def loss(self, batch: Batch) -> Loss:
        """See `Algorithm.loss`."""
        grouping = group_terms(batch, self.level, exact=self.exact)
        return clipped_surrogate(batch, self.clip_low, self.clip_high, grouping)


class BoundAlgorithm(Clipped):
    """One that scores the finished answer with some positions masked, in place of the
    trajectory."""

    families = ("masked",)
    sample_masks: ClassVar[MaskSampler]
    mask_samples: PositiveInt = 1
    """Mask samples, or pairs of them."""

    @property
    def masks(self) -> tuple[MaskSampler, int]:
        """See `Algorithm.masks`."""
        return type(self).sample_masks, self.mask_samples


def group_terms(batch: Batch, level: Level, *, exact: bool) -> Units | None:
    """How terms form ratios; None where each stands alone and counts once.

    A sequence's size is its number of terms, or for a bound (not `exact`) its length.
    """
    import torch

    terms = batch.terms
    if level == "token" and bool((terms.weight == 1).all()):
        return None
    length = None
    if not exact:
        length = torch.tensor(
            [target.trajectory.sampling.max_tokens for target in batch.targets],
            device=terms.owner.device,
        )
    return group_units(level, terms.owner, terms.transition, terms.weight, length)
