"""Objectives without a ratio: plain weighted likelihood, for estimates that are only bounds.

Letters in shapes: N terms, G rewards of a group.

    wd1   Tang et al. 2025, arXiv:2507.08838: raise the likelihood of rollouts by softmax(A), lower it by softmax(-A).
    spg   Wang et al. 2025, arXiv:2510.09541: raise a lower bound where the advantage is positive, lower an upper
          bound where it is negative, because lowering a lower bound need not lower the likelihood.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plumbline.algorithms.advantages import has_signal

ORDER = 1.5
"""The exponent b of spg's upper bound (1 makes it the log of a mean; larger is tighter where draws differ)."""
MIX = 0.5
"""Share of the upper bound in spg's mixture with the lower one; the rest keeps the variance down."""


def wd1_advantages(rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """softmax(A) - softmax(-A) over a group's centred rewards [G]; 0 for a group without signal or an unjudged one."""
    if not has_signal(rewards):
        return np.zeros_like(rewards)
    judged = ~np.isnan(rewards)
    centred = rewards[judged] - rewards[judged].mean()
    up, down = np.exp(centred - centred.max()), np.exp(-centred - (-centred).max())
    result = np.zeros_like(rewards)
    result[judged] = up / up.sum() - down / down.sum()
    return result


def weighted_likelihood(logprobs: Tensor, term_weight: Tensor, advantages: Tensor, weight: Tensor) -> Tensor:
    """-sum A w l, a scalar.

    Args:
        logprobs: [N], with gradient.
        term_weight: [N], the unbiased weight of each term.
        advantages: [N], each term's rollout's.
        weight: [N], each term's rollout's, from `objective.weights`.
    """
    return -(logprobs * term_weight * advantages * weight).sum()


def sandwiched(logprobs: Tensor, term_weight: Tensor, place: Tensor, advantages: Tensor, weight: Tensor) -> Tensor:
    """spg's loss, a scalar: the lower bound for A >= 0, a mixture of upper and lower bound for A < 0.

    The upper bound is, for each place of the answer, log(mean over draws of w p^b) / b (a draw in which the place was
    not hidden adds 0), summed over places.

    Args:
        logprobs: [N], of single tokens in single draws, with gradient.
        term_weight: [N], the weight of the draw that a term belongs to (draw weights sum to 1 over a hidden token's
            chances of being seen).
        place: [N], int64: equal for terms of the same token of the same rollout.
        advantages: [N], equal within a rollout.
        weight: [N], equal within a rollout.
    """
    lower = -(logprobs * term_weight * advantages * weight)
    kinds, of_term = torch.unique(place, return_inverse=True)
    # log(sum w p^b) of each place, stably: shifted by the place's largest exponent.
    exponent = term_weight.log().to(logprobs.dtype) + ORDER * logprobs
    largest = logprobs.new_full((len(kinds),), -torch.inf)
    largest = largest.scatter_reduce(0, of_term, exponent.detach(), "amax")
    total = torch.zeros_like(largest).index_add(0, of_term, (exponent - largest[of_term]).exp())
    upper = (total.log() + largest) / ORDER
    first = torch.zeros_like(kinds).scatter_(0, of_term, torch.arange(len(place), device=place.device))
    raising = -(upper * advantages[first] * weight[first])
    negative = advantages < 0
    mixed = torch.where(negative, (1 - MIX) * lower, lower).sum()
    return mixed + MIX * torch.where(negative[first], raising, torch.zeros_like(raising)).sum()
