"""Choosing some of several places or slots: a draw without replacement by Plackett and Luce.

Letters in shapes: R choices (rows), L places, n chosen places. Scores are minus infinity where
nothing may be chosen.

With scores s, the probability of choosing o_1, ..., o_n in this order is

    prod_r  exp(s_{o_r}) / sum of exp(s_j) over the places j not chosen before r

(Plackett 1975, Luce 1959). Adding independent Gumbel noise to the scores and taking the n largest,
in order, draws from it (Yellott 1977; Kool et al. 2019, arXiv:1903.06059). That a set S is chosen,
in whatever order, has

    P(S) = int_0^1 prod_{i in S} (1 - u^(w_i / W)) du,  w = exp(s), W = sum of the others' w

(exponential races: S wins where its slowest beats the others' fastest).
"""

import math

import torch
from torch import Tensor

EARLIEST = -37.0
"""Where the integral of the set probability begins in log time: what is left of it is below
1e-16."""


def choose(scores_rl: Tensor, uniforms_rl: Tensor | None, count: int) -> Tensor:
    """The `count` places [R, n] that are chosen, in order.

    Args:
        scores_rl: [R, L]; all equal for an even choice.
        uniforms_rl: [R, L] in [0, 1), float64; None takes the largest scores, the first of equal
            ones.
        count: n.
    """
    keys_rl = scores_rl.double()
    if uniforms_rl is not None:
        keys_rl = keys_rl - (-uniforms_rl.clamp(min=2.0**-1000).log()).log()
    return keys_rl.argsort(dim=1, descending=True, stable=True)[:, :count]


def log_prob(scores_rl: Tensor, order_rn: Tensor) -> Tensor:
    """Log-probability [R] of choosing `order_rn` [R, n] in this order; -1 behind the end of a
    shorter choice."""
    logs_rnl = _logs(scores_rl, order_rn)
    picked_rn = logs_rnl.gather(2, order_rn.clamp(min=0).unsqueeze(2)).squeeze(2)
    return picked_rn.masked_fill(order_rn < 0, 0.0).sum(1)


def even_log_prob(eligible: Tensor, chosen: Tensor) -> Tensor:
    """Log-probability [R] of one set of so many `chosen` of so many `eligible` places: -log C(m,
    n), in float64."""
    m, n = eligible.double(), chosen.double()
    return -(torch.lgamma(m + 1) - torch.lgamma(n + 1) - torch.lgamma(m - n + 1))


def divergence(scores_rl: Tensor, other_rl: Tensor, order_rn: Tensor) -> Tensor:
    """KL [R] from the distribution of some scores to that of others: of each pick in turn, given
    the picks made before it.

    Its mean over choices drawn from the first distribution is the KL of the whole ordered choice
    (the chain rule).
    """
    logs_rnl, others_rnl = _logs(scores_rl, order_rn), _logs(other_rl, order_rn)
    each_rnl = logs_rnl.exp() * (logs_rnl - others_rnl).masked_fill(logs_rnl.isneginf(), 0.0)
    return each_rnl.masked_fill((order_rn < 0).unsqueeze(2), 0.0).sum((1, 2))


def _logs(scores_rl: Tensor, order_rn: Tensor) -> Tensor:
    """Log-probabilities [R, n, L] of the next pick, given the picks before it; minus infinity for
    what is gone."""
    places = torch.arange(scores_rl.shape[1], device=scores_rl.device)
    picked_rnl = (order_rn.unsqueeze(2) == places).to(torch.int8)
    gone_rnl = (picked_rnl.cumsum(1) - picked_rnl) > 0
    # what stands behind the end must not be all minus infinity
    gone_rnl = gone_rnl & (order_rn >= 0).unsqueeze(2)
    return scores_rl.unsqueeze(1).masked_fill(gone_rnl, float("-inf")).log_softmax(-1)


def set_log_prob(scores_rl: Tensor, chosen_rl: Tensor) -> Tensor:
    """Log-probability [R] that Plackett-Luce draws the places `chosen_rl` [R, L] (bool) first, in
    any order.

    With w = exp(score), W = sum of the others' w, r = w / W and u = exp(-e^x) the integral of the
    module is

        P(S) = int e^(x - e^x) prod_{i in S} (1 - exp(-r_i e^x)) dx

    over all x: an entire function that falls off on both sides whatever the scores, so the
    trapezoid rule converges exponentially (Trefethen and Weideman 2014). Its error with steps of h
    is about exp(-2 pi y / h) cos(y)^-n at the best y, below 1e-11 for the h taken here. In u itself
    the integrand has an edge at 1 where the chosen places lead by far, and no fixed set of Gauss
    nodes finds it: log P and its gradient would come out as 0.

    In float64; a test holds value and gradient to the sum over orders.
    """
    wide_rl = scores_rl.double()
    most = max(1, int(chosen_rl.sum(1).max()))
    place_rn = (~chosen_rl).to(torch.int8).sort(dim=1, stable=True).indices[:, :most]
    counted_rn = chosen_rl.gather(1, place_rn)
    everything = (wide_rl.isneginf() | chosen_rl).all(1)  # nothing else could have been chosen
    rest = torch.where(chosen_rl, float("-inf"), wide_rl)
    rest = torch.where(everything.unsqueeze(1), torch.zeros_like(rest), rest).logsumexp(1)
    log_ratio_rn = (wide_rl.gather(1, place_rn) - rest.unsqueeze(1)).masked_fill(~counted_rn, 0.0)
    width = min(0.2, 0.7 / math.sqrt(most))
    x = torch.arange(
        EARLIEST, math.log(2 * most + 60), width, dtype=torch.float64, device=wide_rl.device
    )[:, None, None]
    # exp of what would overflow is the same to the last digit; below, the factor is its argument.
    factors_xrn = torch.log(-torch.expm1(-(log_ratio_rn + x).clamp(-690.0, 690.0).exp()))
    product_xr = factors_xrn.masked_fill(~counted_rn, 0.0).sum(-1)  # x: nodes
    result = torch.logsumexp(product_xr + (x - x.exp()).squeeze(-1) + math.log(width), 0)
    return torch.where(everything, torch.zeros_like(result), result).to(scores_rl.dtype)
