"""The log-probability of recorded denoising steps, from the laws of their places.

Letters in shapes: S steps (rows), L places, n filled places, Q looked-at places.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from plumbline.policies import places as at_places
from plumbline.policies import plackett_luce
from plumbline.policies.masked import selectors
from plumbline.policies.masked.options import MaskedSampling
from plumbline.policies.masked.recorded import Recorded
from plumbline.policies.masked.schedule import Slice
from plumbline.policies.masked.selectors import FREE
from plumbline.policies.places import (
    Places,
    largest_log_prob,
    log_confidence,
    log_less_confident,
)


def log_probs(recorded: Recorded, laws: Places, sampling: MaskedSampling) -> Tensor:
    """Log-probabilities of recorded steps in the order of `Trajectory.logprobs`.

    Args:
        recorded: the steps.
        laws: of their looked-at places, row by row.
        sampling: their law.
    """
    device = laws.hidden.device
    filled = laws[recorded.filled.to(device)]
    tokens = at_places.token_log_prob(filled, recorded.tokens.to(device), sampling)
    if not bool(recorded.selected.any()):
        return tokens
    if sampling.selector in FREE:
        chosen = free_log_prob(recorded.eligible, recorded.chosen, recorded.pieces, sampling).to(device)
    else:
        chosen = selection_log_prob(
            laws, recorded.eligible, recorded.chosen, recorded.order, recorded.order_tokens, sampling
        )
    return torch.cat([tokens, chosen[recorded.selected.to(device)]])[recorded.layout.to(device)]


def free_log_prob(eligible_sl: Tensor, chosen_sl: Tensor, pieces: Sequence[Slice], sampling: MaskedSampling) -> Tensor:
    """Log-probability [S] of a choice of places that does not depend on the model.

    random: one of the sets of its size, -log C(m, n). ancestral: each of m places by itself, so
    q^n (1 - q)^(m - n) with the step's share q.

    Args:
        eligible_sl: [S, L] bool.
        chosen_sl: [S, L] bool.
        pieces: the step of each row.
        sampling: the law.
    """
    m, n = eligible_sl.sum(1).double(), chosen_sl.sum(1).double()
    if sampling.selector == "random":
        return -(torch.lgamma(m + 1) - torch.lgamma(n + 1) - torch.lgamma(m - n + 1)).float()
    share = torch.tensor([1.0 if piece.last else piece.share for piece in pieces], dtype=torch.float64)
    left = torch.where(share < 1, (m - n) * torch.log1p(-share), torch.zeros_like(share))
    return (n * share.log() + left).float()


def selection_log_prob(
    laws: Places, eligible_sl: Tensor, chosen_sl: Tensor, order_sn: Tensor, tokens_sn: Tensor, sampling: MaskedSampling
) -> Tensor:
    """Log-probability [S] of the choice of places, for the selectors in which the model has a say.

    Rows may fill different numbers of places: only those of `chosen_sl` count.

    Args:
        laws: of the eligible places, row by row.
        eligible_sl: [S, L] bool: what could have been filled.
        chosen_sl: [S, L] bool: what was.
        order_sn: [S, n] the filled places in the order drawn (padded with any place where rows differ in length and the
            selector does not look at the order).
        tokens_sn: [S, n] what they were filled with.
        sampling: the law.
    """
    device = laws.hidden.device
    eligible_sl, chosen_sl, order_sn, tokens_sn = (
        value.to(device) for value in (eligible_sl, chosen_sl, order_sn, tokens_sn)
    )
    if sampling.selector == "low_confidence":
        return _low_confidence(laws, eligible_sl, chosen_sl, order_sn, tokens_sn, sampling)
    best = largest_log_prob(laws, sampling)
    dense_sl = best.new_full(eligible_sl.shape, float("-inf"))
    dense_sl = dense_sl.index_put(tuple(eligible_sl.nonzero().T), best)
    if sampling.selector == "threshold":
        # exp of minus infinity at places that are not eligible has a gradient of 0 * inf; they are masked out anyway.
        confidence_sl = dense_sl.masked_fill(~eligible_sl, 0.0).exp()
        law = (sampling.threshold, sampling.position_temperature)
        return selectors.threshold_log_prob(confidence_sl, eligible_sl, law, chosen_sl)
    scores_sl = dense_sl / sampling.position_temperature
    if sampling.selector == "plackett_luce":
        return plackett_luce.log_prob(scores_sl, _ended(order_sn, chosen_sl))
    return plackett_luce.set_log_prob(scores_sl, chosen_sl)


def _low_confidence(
    laws: Places, eligible_sl: Tensor, chosen_sl: Tensor, order_sn: Tensor, tokens_sn: Tensor, sampling: MaskedSampling
) -> Tensor:
    """That every other hidden place drew something less confident than the least confident kept token."""
    index_sl = torch.full(eligible_sl.shape, -1, dtype=torch.long, device=eligible_sl.device)
    index_sl[eligible_sl] = torch.arange(len(laws), device=eligible_sl.device)
    with torch.no_grad():
        kept_sn = log_confidence(laws[index_sl.gather(1, order_sn).flatten()], tokens_sn.flatten()).view_as(order_sn)
        least_s1 = kept_sn.amin(1, keepdim=True)
        # Of equally confident places the first are kept, so one behind the last kept of them may be as confident.
        edge_s1 = torch.where(kept_sn == least_s1, order_sn, torch.full_like(order_sn, -1)).amax(1, keepdim=True)
    others_sl = eligible_sl & ~chosen_sl
    row, place = others_sl.nonzero().T
    below = log_less_confident(
        laws[index_sl[others_sl]], sampling, least_s1[row].squeeze(1), place > edge_s1[row].squeeze(1)
    )
    return below.new_zeros(len(eligible_sl)).index_add(0, row, below)


def step_divergence(recorded: Recorded, laws: Places, other: Places, sampling: MaskedSampling) -> Tensor:
    """KL [S] of each step to the reference, whose laws of the same places are `other`.

    It is that of the filled places' tokens and of an ordered Plackett-Luce choice; the choices of the other selectors
    are left out.
    """
    device = laws.hidden.device
    filled = recorded.filled.to(device)
    kl = at_places.divergence(laws[filled], other[filled], sampling)
    total = kl.new_zeros(len(recorded.states)).index_add(0, recorded.step_of.to(device), kl)
    if sampling.selector != "plackett_luce":
        return total
    return total + _order_divergence(recorded, laws, other, sampling)


def _order_divergence(recorded: Recorded, laws: Places, other: Places, sampling: MaskedSampling) -> Tensor:
    """KL [S] of the draws of places, one categorical after the other along the order that was drawn."""
    device = laws.hidden.device
    at = tuple(recorded.eligible.nonzero().T.to(device))
    shape, order_sn = recorded.eligible.shape, recorded.order.to(device)

    def scores_of(of: Places) -> Tensor:
        best = largest_log_prob(of, sampling) / sampling.position_temperature
        return best.new_full(shape, float("-inf")).index_put(at, best)

    mine_sl = scores_of(laws)
    with torch.no_grad():
        theirs_sl = scores_of(other)
    return plackett_luce.divergence(mine_sl, theirs_sl, _ended(order_sn, recorded.chosen.to(device)))


def _ended(order_sn: Tensor, chosen_sl: Tensor) -> Tensor:
    """Filled places [S, n] with -1 behind the last of those that were chosen [S, L]."""
    behind_sn = torch.arange(order_sn.shape[1], device=order_sn.device) >= chosen_sl.sum(1, keepdim=True)
    return order_sn.masked_fill(behind_sn, -1)
