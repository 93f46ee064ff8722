"""The clipped policy-gradient objective over recorded choices, whatever family made them.

Letters in shapes: N terms (log-probabilities of single choices), n rollouts of the batch.

    loss = sum_i  w_i * ( -min(r_i A_i, clip(r_i, 1 - low, 1 + high) A_i) + beta * r_i k_i )
    r_i = exp(new_i - old_i),   k_i = exp(ref_i - new_i) - (ref_i - new_i) - 1

The surrogate is PPO's (Schulman et al. 2017, arXiv:1707.06347, eq. 7). k is the k3 estimator of KL(new || ref)
(Schulman 2020, "Approximating KL divergence"); the factor r makes its expectation under the old policy the KL itself,
and so its gradient unbiased (as in DeepSeek-V3.2, arXiv:2512.02556). The weights w_i name the denominator:

    dr_grpo   1 / (n * max_tokens)     a constant, so a long wrong answer is not punished less per token
    grpo      1 / (n * len_i)          each rollout counts once
    dapo      1 / sum of lengths       each token counts once

The sum runs over all n rollouts of the batch, whether a pass holds some of them or all, and whether groups without
signal were skipped: the gradient is the same (a test holds it), and so are TRL's loss and gradient on its batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Normaliser = Literal["dr_grpo", "grpo", "dapo"]


def weights(
    lengths: Sequence[int], counted: Sequence[bool], normaliser: Normaliser, max_tokens: int
) -> NDArray[np.float64]:
    """The weight [n] of each term of a rollout.

    Args:
        lengths: terms of each rollout.
        counted: False for a rollout that is left out (truncated ones, where they are masked): its weight is 0.
        normaliser: which denominator.
        max_tokens: the sampling limit.
    """
    length = np.array(lengths, dtype=np.float64)
    mask = np.array(counted, dtype=np.float64)
    if normaliser == "dr_grpo":
        return mask / (len(length) * max_tokens)
    if normaliser == "grpo":
        return mask / (len(length) * np.maximum(length, 1))
    return mask / max(float((length * mask).sum()), 1.0)


@dataclass(frozen=True, slots=True)
class Losses:
    """What one pass contributes: the loss to differentiate, and sums over its terms for the metrics."""

    loss: Tensor  # scalar
    clipped: Tensor  # number of terms whose gradient the clip removed
    kl: Tensor | None  # summed k_i, where a reference was given


def clipped_surrogate(
    new: Tensor,
    old: Tensor,
    advantages: Tensor,
    weight: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    reference: Tensor | None = None,
    beta: float = 0.0,
) -> Losses:
    """The weighted sum above over [N] terms.

    Args:
        new: log-probabilities under the weights being trained, with gradient.
        old: log-probabilities recorded by the sampler.
        advantages: each term's rollout's advantage.
        weight: each term's rollout's weight, from `weights`.
        clip_low: the ratio may fall to 1 - clip_low before the gradient stops.
        clip_high: the ratio may rise to 1 + clip_high.
        reference: log-probabilities under the reference weights, where beta > 0.
        beta: weight of the KL.
    """
    ratio = (new - old).exp()
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high)
    per_term = -(ratio * advantages).minimum(bounded * advantages)
    kl = None
    if reference is not None:
        away = reference - new
        k3 = away.exp() - away - 1
        per_term = per_term + beta * ratio * k3
        kl = k3.detach().sum()
    detached = ratio.detach()
    clipped = ((detached < 1 - clip_low) & (advantages < 0)) | ((detached > 1 + clip_high) & (advantages > 0))
    return Losses(loss=(per_term * weight).sum(), clipped=clipped.sum(), kl=kl)
