"""What an algorithm is: how groups become credit, which likelihood is scored, and what the surrogate is.

Letters in shapes: G rollouts of a group, K items of a reward, n rollouts of a step, N terms of a pass.

An algorithm is a frozen object whose fields are its options, and the loop asks it three things: `advantages` with
`weights`, `views`, and `surrogate`. It sees rewards, recorded trajectories and log-probabilities; which family drew
them it learns only where it needs more of a policy than scores (`Hides`). torch is imported where losses are computed
and not at the top of a file, because commands that need no model read recipes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from plumbline.algorithms.views import Looks, Scores, View, bound_views, trajectory_views
from plumbline.config.section import PositiveInt, Section
from plumbline.records import Sampling, Trajectory

# -- advantages ------------------------------------------------------------------------------------------------------
#
# Credit within a group: how much better than its siblings a rollout was.
#
# Letters in shapes: G rollouts of one group.
#
# The advantage is the reward minus the group's mean (Liu et al. 2025, "Understanding R1-Zero-Like Training", Dr. GRPO,
# arXiv:2503.20783): dividing by the group's standard deviation, as GRPO first did (Shao et al. 2024,
# arXiv:2402.03300), gives easy and hard prompts more weight than the ones in between, so it is an option and not the
# default.

Scale = Literal["none", "group"]
TOLERANCE = 1e-6
"""Rewards closer than this are equal: the standard deviation of eight equal float32 rewards is not 0 but 1e-8."""


def has_signal(rewards: NDArray[np.float64]) -> bool:
    """Whether the judged rewards [G] (NaN: not judged) differ, so that the group says anything at all."""
    judged = rewards[~np.isnan(rewards)]
    return bool(len(judged) > 1 and judged.max() - judged.min() > TOLERANCE)


def advantages(rewards: NDArray[np.float64], scale: Scale = "none") -> NDArray[np.float64]:
    """Advantages [G] of one group.

    They sum to 0 over the judged rollouts. A group without signal, and a rollout that could not be judged (NaN), get
    exactly 0: an answer that nobody judged is neither good nor bad.

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


def shuffled(groups: Sequence[NDArray[np.float64]], rng: np.random.Generator) -> list[NDArray[np.float64]]:
    """Advantages [G], shuffled over all rollouts of the batch: a control that cannot learn."""
    flat = rng.permutation(np.concatenate(list(groups)))
    return list(np.split(flat, np.cumsum([len(group) for group in groups])[:-1]))


if TYPE_CHECKING:
    from torch import Tensor

# -- objective -------------------------------------------------------------------------------------------------------
#
# What algorithms share: the denominators, and sums of a surrogate over units, whatever family made the choices.
#
# Letters in shapes: N terms (log-probabilities of single choices), U units (what a ratio is formed of), n rollouts.
#
#     loss = sum_u  w_u s_u * -min(r_u A_u, clip(r_u, 1 - low, 1 + high) A_u)  +  beta * KL
#     r_u = exp(d_u),   d_u = (1 / s_u) * sum of (new - old) over the unit's terms
#
# A unit is a term (`token`, size s = 1), a denoising step (`step`, s = its terms) or a rollout (`sequence`, s = its
# terms, as in GSPO, Zheng et al. 2025, arXiv:2507.18071, or its length for an ELBO, as in ESPO, arXiv:2512.03759). The
# exponent is a mean, because a plain sum over hundreds of terms explodes; the factor s in front gives every level the
# same gradient where the ratios are 1, and keeps a unit of many choices from counting as one of few.
#
# The surrogate is PPO's (Schulman et al. 2017, arXiv:1707.06347, eq. 7). The weights w name the denominator:
#
#     dr_grpo   1 / (n * max_tokens)     a constant, so a long wrong answer is not punished less per token
#     grpo      1 / (n * len_i)          each rollout counts once
#     dapo      1 / sum of lengths       each token counts once
#
# Truncated importance sampling (`rl.tis`), where the sampler's law is not the one that is trained (another engine,
# other weights): each unit's loss is weighted by min(exp(mean of old - sampled), cap), with `old` scored by the
# learner before the update and `sampled` recorded by the sampler. Of terms it is the rule of Yao et al. 2025 ("Your
# efficient RL framework secretly brings you off-policy RL training") and TRL's `token_truncate`; of steps and
# sequences it is a mean like their ratio, so that weight times ratio is always the ratio to the sampler's records. The
# KL is weighted, too: with the factor r in it its gradient stays that of the KL under the weights that are trained.
#
# The sum runs over all n rollouts of the batch, whether a pass holds some of them or all, and whether groups without
# signal were skipped: the gradient is the same (a test holds it), and so are TRL's loss and gradient on its batches.

Normaliser = Literal["dr_grpo", "grpo", "dapo"]
Level = Literal["token", "step", "sequence"]


def weights(lengths: Sequence[int], normaliser: Normaliser, max_tokens: int) -> NDArray[np.float64]:
    """The weight [n] of each term of a rollout.

    Args:
        lengths: terms of each rollout.
        normaliser: which denominator.
        max_tokens: the sampling limit.
    """
    length = np.array(lengths, dtype=np.float64)
    if normaliser == "dr_grpo":
        return np.full(len(length), 1 / (len(length) * max_tokens))
    if normaliser == "grpo":
        return 1 / (len(length) * np.maximum(length, 1))
    return np.full(len(length), 1 / max(float(length.sum()), 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """How terms are put together into ratios: a unit's mean is the sum of weight * term over its terms, by size."""

    of_term: Tensor  # [N], int64: the unit of each term
    term_weight: Tensor  # [N]: what a term counts inside its unit
    size: Tensor  # [U]
    owner: Tensor  # [U], int64: the unit's rollout
    weight: Tensor  # [U]: what the unit counts in the loss

    def mean(self, values: Tensor) -> Tensor:
        """Means [U] of values [N]."""
        total = values.new_zeros(len(self.size)).index_add(0, self.of_term, values * self.term_weight.to(values.dtype))
        return total / self.size.to(values.dtype)


def units(level: Level, owner: Tensor, step: Tensor, weight: Tensor, length: Tensor | None = None) -> Units:
    """Group terms [N] by level.

    Args:
        level: what a ratio is formed of.
        owner: [N], the rollout of each term.
        step: [N], the step of each term, counted over the whole batch.
        weight: [N], the unbiased weight of each term. Terms of a step share it. Outside the ratio it counts at the
            levels token and step; a sequence's ratio holds it, which is unbiased only where it estimates the whole
            sequence's quantity inside (an ELBO), never for some of a trajectory's steps.
        length: [rollouts] the size of each sequence; None takes its number of terms.
    """
    import torch

    ones = torch.ones_like(weight)
    if level == "token":
        return Units(torch.arange(len(owner), device=owner.device), ones, ones, owner, weight)
    kinds, of_term = torch.unique(step if level == "step" else owner, return_inverse=True)
    counts = ones.new_zeros(len(kinds)).index_add(0, of_term, ones)
    first = torch.full((len(kinds),), len(owner), dtype=torch.long, device=owner.device)
    first = first.scatter_reduce(0, of_term, torch.arange(len(owner), device=owner.device), "amin")
    if level == "step":
        return Units(of_term, ones, counts, owner[first], weight[first])
    size = counts if length is None else length[owner[first]].to(counts.dtype)
    return Units(of_term, weight, size, owner[first], torch.ones_like(size))


@dataclass(frozen=True, slots=True)
class Losses:
    """What one pass contributes: the loss to differentiate, and sums over its units for the metrics."""

    loss: Tensor  # scalar
    clipped: Tensor | None = None  # number of units that the clip acted on; None where nothing is clipped
    capped: Tensor | None = None  # number of units whose importance weight was cut; None where there is none
    units: int = 0
    kl: Tensor | None = None  # summed estimate or closed form of the KL, where a reference was given


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """The terms [N] of one pass under the weights being trained, and what they are compared with."""

    new: Tensor  # [N] log-probabilities under the weights being trained, with gradient
    old: Tensor  # [N] under the weights that sampled
    advantage: Tensor  # [N] of each term's rollout
    weight: Tensor  # [N] of each term's rollout, from `weights`
    _: KW_ONLY
    reference: Tensor | None = None  # [N] under the reference weights, where a sampled KL is asked for
    beta: float = 0.0  # weight of the KL
    sampled: Tensor | None = None  # [N] as the sampler recorded them, where `old` was scored anew and `cap` is set
    cap: float = math.inf  # of the importance weights between the two


OfUnit = Callable[["Tensor", "Tensor", "Tensor"], "tuple[Tensor, Tensor]"]
"""From the new log-probabilities, ratios and advantages of units [U] to their losses [U], and whether the clip acted on
them [U] (bool)."""


def clipped_surrogate(terms: Compared, clip_low: float, clip_high: float, grouping: Units | None = None) -> Losses:
    """The weighted sum above.

    Args:
        terms: of the pass.
        clip_low: the ratio may fall to 1 - clip_low before the gradient stops.
        clip_high: the ratio may rise to 1 + clip_high.
        grouping: from `units`; None takes each term by itself.
    """

    def clipped(new: Tensor, ratio: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG001
        bounded, detached = ratio.clamp(1 - clip_low, 1 + clip_high), ratio.detach()
        stopped = ((detached < 1 - clip_low) & (advantages < 0)) | ((detached > 1 + clip_high) & (advantages > 0))
        return -(ratio * advantages).minimum(bounded * advantages), stopped

    return over_units(clipped, terms, grouping)


def over_units(of_unit: OfUnit, terms: Compared, grouping: Units | None = None) -> Losses:
    """A weighted sum over units of what `of_unit` makes of each, and the KL to a reference.

    The KL is estimated from the sampled terms: at the level of tokens by r * k3 with
    k3 = exp(ref - new) - (ref - new) - 1 (Schulman 2020, "Approximating KL divergence"; the factor r makes its
    gradient unbiased, as in DeepSeek-V3.2, arXiv:2512.02556), at the other levels by k2 = (new - ref)^2 / 2, whose
    gradient is that of the KL on-policy.

    Args:
        of_unit: the surrogate of single units.
        terms: and `grouping`, see `clipped_surrogate`.
    """
    import torch

    new, old, reference = terms.new, terms.old, terms.reference
    advantages, weight = terms.advantage, terms.weight
    size = torch.ones_like(new)
    if grouping is not None:
        first = torch.zeros_like(grouping.owner).scatter_(
            0, grouping.of_term, torch.arange(len(new), device=new.device)
        )
        advantages, weight = advantages[first], weight[first] * grouping.weight.to(weight.dtype)
        size = grouping.size.to(new.dtype)
        new, old = grouping.mean(new), grouping.mean(old)
        reference = None if reference is None else grouping.mean(reference)
    capped = None
    if terms.sampled is not None:
        importance = (old - (terms.sampled if grouping is None else grouping.mean(terms.sampled))).exp()
        capped = (importance > terms.cap).sum()
        weight = weight * importance.clamp(max=terms.cap)
    ratio = (new - old).exp()
    per_unit, clipped = of_unit(new, ratio, advantages)
    kl = None
    if reference is not None:
        away = reference - new
        estimate = away.exp() - away - 1 if grouping is None else away.square() / 2
        per_unit = per_unit + terms.beta * (ratio * estimate if grouping is None else size * estimate)
        # A unit of n terms whose mean is m has the sum n m, so k2 of its sum is n^2 times that of its mean.
        kl = (estimate.detach() * (1 if grouping is None else size.square())).sum()
    loss = (per_unit * size * weight).sum()
    return Losses(loss=loss, clipped=clipped.sum(), capped=capped, units=len(ratio), kl=kl)


if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Scored(Compared):
    """The terms [N] of one pass, as far as they count, and whose they are."""

    owner: Tensor  # [N] index of the view
    step: Tensor  # [N] index of the step among all scored ones
    step_weight: Tensor  # [N] what the step counts for where only some are scored
    views: Sequence[View]


class Algorithm(Section, ABC):
    """The base: advantages against the group's mean, exact trajectories, a constant denominator."""

    families: ClassVar[tuple[str, ...]] = ()
    """The model families that it is for; empty: all."""
    likelihood: ClassVar[str] = "trajectory"
    """What is scored of a rollout: `trajectory`, exactly the choices that were sampled; or what stands for it."""
    has_ratio: ClassVar[bool] = True
    """Whether new log-probabilities are set against old ones: only then do inner epochs and a KL mean something."""

    name: str
    scale_advantages: Scale = "none"
    """none: reward minus the group's mean (Dr. GRPO); group: also divided by its standard deviation."""
    normaliser: Normaliser = "dr_grpo"
    """What the sum over tokens is divided by: the constant rollouts x max_tokens, or a realised length."""

    @property
    def exact(self) -> bool:
        """Whether it scores what was sampled, so that the sampler's records are the old log-probabilities."""
        return self.likelihood == "trajectory"

    def check(self, sampling: Sampling) -> None:
        """Refuse a sampling law that it cannot learn from.

        Raises:
            ValueError: says which key to change.
        """

    def advantages(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        """Advantages [G] of the rewards of a group; NaN was not judged and gets 0."""
        return advantages(rewards, self.scale_advantages)

    def weights(self, lengths: Sequence[int], max_tokens: int) -> NDArray[np.float64]:
        """The weight [n] of each term of a rollout (see `objective.weights`)."""
        return weights(lengths, self.normaliser, max_tokens)

    def views(self, policy: Scores, trajectories: Sequence[Trajectory], rng: np.random.Generator) -> list[View]:
        """What is scored of each rollout: by default all of its steps, each by itself where the policy can do that.

        Raises:
            RecipeError: the policy cannot be scored like that.
        """
        return trajectory_views(trajectories, None, "stratified", rng, split=policy.stepwise)

    @abstractmethod
    def surrogate(self, scored: Scored) -> Losses:
        """The loss of one pass. The sum over passes is the batch's, however it was cut into them."""


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
        grouping = grouped(scored, self.level, exact=self.exact)
        return clipped_surrogate(scored, self.clip_low, self.clip_high, grouping)


class Bounded(Clipped):
    """One that scores looks at the finished answer with places hidden, in place of the trajectory."""

    families: ClassVar[tuple[str, ...]] = ("masked",)
    looks: ClassVar[Looks]
    draws: PositiveInt = 1
    """How many looks, or pairs or triples of them."""

    def views(self, policy: Scores, trajectories: Sequence[Trajectory], rng: np.random.Generator) -> list[View]:
        """See `Algorithm.views`."""
        return bound_views(policy, trajectories, type(self).looks, self.draws, rng)


def grouped(scored: Scored, level: Level, *, exact: bool) -> Units | None:
    """How terms form ratios; None where each stands alone and counts once.

    A sequence's size is its number of terms, or for a bound (not `exact`) its length.
    """
    import torch

    if level == "token" and bool((scored.step_weight == 1).all()):
        return None
    length = None
    if not exact:
        length = torch.tensor([v.trajectory.sampling.max_tokens for v in scored.views], device=scored.owner.device)
    return units(level, scored.owner, scored.step, scored.step_weight, length)
