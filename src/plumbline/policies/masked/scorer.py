"""The log-probability of recorded denoising steps, from the laws of their places.

Letters in shapes: S steps (rows), L places, n filled places, Q looked-at places.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from plumbline.policies.masked import selectors
from plumbline.policies.masked.schedule import Slice
from plumbline.policies.places import (
    Places,
    largest_log_prob,
    log_less_confident,
    plain_confidence,
)
from plumbline.records import Sampling

FREE = frozenset({"random", "ancestral"})
"""Selectors in whose choices the model has no say: their log-probability is a number without gradient."""


def free_log_prob(eligible: Tensor, chosen: Tensor, pieces: Sequence[Slice], sampling: Sampling) -> Tensor:
    """Log-probability [S] of a choice of places that does not depend on the model.

    random: one of the sets of its size, -log C(m, n). ancestral: each of m places by itself, so
    q^n (1 - q)^(m - n) with the step's share q.

    Args:
        eligible: [S, L] bool.
        chosen: [S, L] bool.
        pieces: the step of each row.
        sampling: the law.
    """
    m, n = eligible.sum(1).double(), chosen.sum(1).double()
    if sampling.selector == "random":
        return -(torch.lgamma(m + 1) - torch.lgamma(n + 1) - torch.lgamma(m - n + 1)).float()
    share = torch.tensor([1.0 if piece.last else piece.share for piece in pieces], dtype=torch.float64)
    left = torch.where(share < 1, (m - n) * torch.log1p(-share), torch.zeros_like(share))
    return (n * share.log() + left).float()


def selection_log_prob(
    laws: Places, eligible: Tensor, chosen: Tensor, order: Tensor, tokens: Tensor, sampling: Sampling
) -> Tensor:
    """Log-probability [S] of the choice of places, for the selectors in which the model has a say.

    Rows may fill different numbers of places: only those of `chosen` count.

    Args:
        laws: of the eligible places, row by row.
        eligible: [S, L] bool: what could have been filled.
        chosen: [S, L] bool: what was.
        order: [S, n] the filled places in the order drawn (padded with any place where rows differ in length and the
            selector does not look at the order).
        tokens: [S, n] what they were filled with.
        sampling: the law.
    """
    device = laws.hidden.device
    eligible, chosen, order, tokens = (value.to(device) for value in (eligible, chosen, order, tokens))
    if sampling.selector == "low_confidence":
        return _low_confidence(laws, eligible, chosen, order, tokens, sampling)
    best = largest_log_prob(laws, sampling)
    dense = best.new_full(eligible.shape, float("-inf"))
    dense = dense.index_put(tuple(eligible.nonzero().T), best)
    if sampling.selector == "threshold":
        # exp of minus infinity at places that are not eligible has a gradient of 0 * inf; they are masked out anyway.
        confidence = dense.masked_fill(~eligible, 0.0).exp()
        law = (sampling.threshold, sampling.position_temperature)
        return selectors.threshold_log_prob(confidence, eligible, law, chosen)
    scores = dense / sampling.position_temperature
    if sampling.selector == "plackett_luce":
        return selectors.ordered_log_prob(scores, order, chosen.sum(1))
    return selectors.set_log_prob(scores, chosen)


def _low_confidence(
    laws: Places, eligible: Tensor, chosen: Tensor, order: Tensor, tokens: Tensor, sampling: Sampling
) -> Tensor:
    """That every other hidden place drew something less confident than the least confident kept token."""
    index = torch.full(eligible.shape, -1, dtype=torch.long, device=eligible.device)
    index[eligible] = torch.arange(len(laws), device=eligible.device)
    with torch.no_grad():
        kept = plain_confidence(laws[index.gather(1, order).flatten()], tokens.flatten()).view_as(order)
        least = kept.amin(1, keepdim=True)
        # Of equally confident places the first are kept, so one behind the last kept of them may be as confident.
        edge = torch.where(kept == least, order, torch.full_like(order, -1)).amax(1, keepdim=True)
    others = eligible & ~chosen
    row, place = others.nonzero().T
    below = log_less_confident(laws[index[others]], sampling, least[row].squeeze(1), place > edge[row].squeeze(1))
    return below.new_zeros(len(eligible)).index_add(0, row, below)
