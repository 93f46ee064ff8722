"""What algorithms share: the denominators, and sums of a surrogate over units, whatever family made
the choices.

Letters in shapes: N terms (log-probabilities of single choices), U units (what a ratio is formed
of), n rollouts.

    loss = sum_u  w_u s_u * -min(r_u A_u, clip(r_u, 1 - low, 1 + high) A_u)  +  beta * KL
    r_u = exp(d_u),   d_u = (1 / s_u) * sum of (new - old) over the unit's terms

A unit is a term (`token`, size s = 1), a denoising step (`step`, s = its terms) or a rollout
(`sequence`, s = its terms, as in GSPO, Zheng et al. 2025, arXiv:2507.18071, or its length for an
ELBO, as in ESPO, arXiv:2512.03759). The exponent is a mean, because a plain sum over hundreds of
terms explodes; the factor s in front gives every level the same gradient where the ratios are 1,
and keeps a unit of many choices from counting as one of few.

The surrogate is PPO's (Schulman et al. 2017, arXiv:1707.06347, eq. 7). The weights w name the
denominator:

    dr_grpo   1 / (n * max_tokens)     a constant, so a long wrong answer is not punished less per token
    grpo      1 / (n * len_i)          each rollout counts once
    dapo      1 / sum of lengths       each token counts once

Truncated importance sampling (`rl.tis`), where the sampler's distribution is not the one that is
trained (another engine, other weights): each unit's loss is weighted by min(exp(mean of old -
sampled), cap), with `old` scored by the learner before the update and `sampled` recorded by the
sampler. Of terms it is the rule of Yao et al. 2025 ("Your efficient RL framework secretly brings
you off-policy RL training") and TRL's `token_truncate`; of steps and sequences it is a mean like
their ratio, so that weight times ratio is always the ratio to the sampler's records. The KL is
weighted, too: with the factor r in it its gradient stays that of the KL under the weights that are
trained.

The sum runs over all n rollouts of the batch, whether a micro-batch holds some of them or all, and
whether groups without signal were skipped: the gradient is the same (a test holds it), and so are
TRL's loss and gradient on its batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from plumbline.records import FloatArray, Rollout, Terms, Trajectory

if TYPE_CHECKING:
    from torch import Tensor

Normaliser = Literal["dr_grpo", "grpo", "dapo"]
Level = Literal["token", "step", "sequence"]


def weights(lengths: Sequence[int], normaliser: Normaliser, max_tokens: int) -> FloatArray:
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
    """How terms are put together into ratios: a unit's mean is the sum of weight * term over its
    terms, by size."""

    of_term: Tensor  # [N], int64: the unit of each term
    term_weight: Tensor  # [N]: what a term counts inside its unit
    size: Tensor  # [U]
    owner: Tensor  # [U], int64: the unit's rollout
    weight: Tensor  # [U]: what the unit counts in the loss

    def mean(self, values: Tensor) -> Tensor:
        """Means [U] of values [N]."""
        total = values.new_zeros(len(self.size)).index_add(
            0, self.of_term, values * self.term_weight.to(values.dtype)
        )
        return total / self.size.to(values.dtype)


def group_units(
    level: Level, owner: Tensor, step: Tensor, weight: Tensor, length: Tensor | None = None
) -> Units:
    """Group terms [N] by level.

    Args:
        level: what a ratio is formed of.
        owner: [N], the rollout of each term.
        step: [N], the step of each term, counted over the whole batch.
        weight: [N], the unbiased weight of each term. Terms of a step share it. Outside the ratio
            it counts at the levels token and step; a sequence's ratio holds it, which is unbiased
            only where it estimates the whole sequence's quantity inside (an ELBO), never for some
            of a trajectory's steps.
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
class Loss:
    """What one micro-batch contributes: the value to differentiate, and sums over its units for the
    metrics."""

    value: Tensor  # scalar
    # number of units that the clip acted on; None where nothing is clipped
    clipped: Tensor | None = None
    # number of units whose importance weight was cut; None where there is none
    capped: Tensor | None = None
    units: int = 0
    # summed estimate or closed form of the KL, where a reference was given
    kl: Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """States to score of one turn of a rollout."""

    rollout: Rollout
    """Whose turn it is: its advantage and weight are the target's."""
    trajectory: Trajectory
    """The turn with the steps to score; each step has its weight."""
    old: Tensor | None = None
    """Log-probabilities before the first update; None where the sampler's records are, or they are
    the new ones."""
    reference: Tensor | None = None
    """Log-probabilities under the reference's weights, where they are asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The terms [N] of one micro-batch under the weights being trained, and what they are compared
    with."""

    targets: Sequence[Target]  # the owners of the terms
    terms: Terms
    old: Tensor  # [N] log-probabilities under the weights that sampled
    advantage: Tensor  # [N] of each term's rollout
    weight: Tensor  # [N] of each term's rollout, from `weights`
    _: KW_ONLY
    # [N] under the reference weights, where a sampled KL is asked for
    reference: Tensor | None = None
    beta: float = 0.0  # weight of the KL
    # of importance weights between `old`, which was scored again, and the sampler's records
    cap: float | None = None


OfUnit = Callable[["Tensor", "Tensor", "Tensor"], "tuple[Tensor, Tensor]"]
"""From the new log-probabilities, ratios and advantages of units [U] to their losses [U], and
whether the clip acted on them [U] (bool)."""


def clipped_surrogate(
    batch: Batch, clip_low: float, clip_high: float, grouping: Units | None = None
) -> Loss:
    """The weighted sum above.

    Args:
        batch: the micro-batch.
        clip_low: the ratio may fall to 1 - clip_low before the gradient stops.
        clip_high: the ratio may rise to 1 + clip_high.
        grouping: from `group_units`; None takes each term by itself.
    """

    def clipped(new: Tensor, ratio: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG001
        bounded, detached = ratio.clamp(1 - clip_low, 1 + clip_high), ratio.detach()
        stopped = ((detached < 1 - clip_low) & (advantages < 0)) | (
            (detached > 1 + clip_high) & (advantages > 0)
        )
        return -(ratio * advantages).minimum(bounded * advantages), stopped

    return sum_over_units(clipped, batch, grouping)


def sum_over_units(of_unit: OfUnit, batch: Batch, grouping: Units | None = None) -> Loss:
    """A weighted sum over units of what `of_unit` makes of each, and the KL to a reference.

    The KL is estimated from the sampled terms: at the level of tokens by r * k3 with
    k3 = exp(ref - new) - (ref - new) - 1 (Schulman 2020, "Approximating KL divergence"; the factor
    r makes its gradient unbiased, as in DeepSeek-V3.2, arXiv:2512.02556), at the other levels by k2
    = (new - ref)^2 / 2, whose gradient is that of the KL on-policy.

    Args:
        of_unit: the surrogate of single units.
        batch: and `grouping`, see `clipped_surrogate`.
    """
    import torch

    new, old, reference = batch.terms.logprobs, batch.old, batch.reference
    advantages, weight = batch.advantage, batch.weight
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
    if batch.cap is not None:
        sampled = batch.terms.recorded
        importance = (old - (sampled if grouping is None else grouping.mean(sampled))).exp()
        capped = (importance > batch.cap).sum()
        weight = weight * importance.clamp(max=batch.cap)
    ratio = (new - old).exp()
    per_unit, clipped = of_unit(new, ratio, advantages)
    kl = None
    if reference is not None:
        away = reference - new
        estimate = away.exp() - away - 1 if grouping is None else away.square() / 2
        per_unit = per_unit + batch.beta * (
            ratio * estimate if grouping is None else size * estimate
        )
        # A unit of n terms whose mean is m has the sum n m, so k2 of its sum is n^2 times that of
        # its mean.
        kl = (estimate.detach() * (1 if grouping is None else size.square())).sum()
    value = (per_unit * size * weight).sum()
    return Loss(value=value, clipped=clipped.sum(), capped=capped, units=len(ratio), kl=kl)
