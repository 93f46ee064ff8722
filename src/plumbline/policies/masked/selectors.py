"""Which hidden places a step fills in: how they are drawn, and the log-probability of that choice.

Letters in shapes: R rows, L places, n places to fill. Scores are minus infinity where a place may not be chosen.

    plackett_luce      places one after the other, each in proportion to exp(score) among those left; the ordered
                       action's probability is a product of softmaxes (Luce 1959; Plackett 1975), drawn by Gumbel-top-n
                       (Kool et al. 2019, arXiv:1903.06059)
    plackett_luce_set  the same draw, but only which places were chosen counts:
                       P(S) = int_0^1 prod_{i in S} (1 - u^(w_i / W)) du,  w = exp(score), W = sum of the others' w
                       (exponential races: S wins where its slowest beats the others' fastest)
    threshold          each place by itself with probability sigmoid((confidence - threshold) / temperature); if that
                       is none, one by softmax(confidence / temperature)
    low_confidence     what LLaDA's sampler does (Nie et al. 2025, arXiv:2502.09992): a token for every hidden place,
                       and the n most confident are kept. Tokens are independent, so the kept set and its tokens have
                       P = prod_{i in S} p_i(x_i) * prod_{j not in S} P(conf_j < least kept confidence); the gradient
                       is exact almost everywhere, but the expected reward jumps where a token's confidence crosses the
                       least kept one, and no gradient of this kind sees that

The weights have no say in `random` (a set of fixed size) and `ancestral` (each place with a fixed probability, Sahoo et
al. 2024, arXiv:2406.07524): their log-probabilities are numbers without a gradient (`scorer.free_log_prob`).
"""

import numpy as np
import torch
from torch import Tensor

NODES, POWER = 64, 8
"""Gauss-Legendre nodes of the set probability, after u = v^POWER, which flattens the integrand near 0."""


def gumbel(uniforms: Tensor) -> Tensor:
    """Standard Gumbel numbers from uniforms in [0, 1), float64."""
    return -(-uniforms.clamp_min(1e-300).log()).clamp_min(1e-300).log()


def top_places(keys: Tensor, count: int) -> Tensor:
    """The `count` places [R, count] of the largest keys [R, L], largest first, equal ones by index."""
    return keys.sort(dim=1, descending=True, stable=True).indices[:, :count]


def ordered_log_prob(scores: Tensor, order: Tensor, counts: Tensor | None = None) -> Tensor:
    """Log-probability [R] that Plackett-Luce draws the places `order` [R, n] in this order from scores [R, L].

    With `counts` [R] only so many of a row's places count; the rest is padding.
    """
    total = scores.new_zeros(len(scores))
    left = scores
    for rank in range(order.shape[1]):
        place = order[:, rank : rank + 1]
        real = torch.ones_like(place, dtype=torch.bool) if counts is None else (rank < counts).unsqueeze(1)
        # A padded row keeps one place to normalise over, so that no gradient is inf - inf.
        drawn = scores.gather(1, place) - left.logsumexp(1, keepdim=True)
        total = total + drawn.masked_fill(~real, 0.0).squeeze(1)
        left = torch.where(real, left.scatter(1, place, float("-inf")), left)
        if rank + 1 < order.shape[1]:
            left = torch.where(left.isneginf().all(1, keepdim=True), torch.zeros_like(left), left)
    return total


def set_log_prob(scores: Tensor, chosen: Tensor) -> Tensor:
    """Log-probability [R] that Plackett-Luce draws the places `chosen` [R, L] (bool) first, in any order.

    In float64; the quadrature is within 1e-10 of the sum over orders for up to some tens of places.
    """
    wide = scores.double()
    inside = wide.masked_fill(~chosen, float("-inf"))
    everything = (wide.isneginf() | chosen).all(1)  # nothing else could have been chosen
    rest = torch.where(chosen, float("-inf"), wide)
    rest = torch.where(everything.unsqueeze(1), torch.zeros_like(rest), rest).logsumexp(1)
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    v = torch.from_numpy((nodes + 1) / 2).to(wide)
    log_u = POWER * v.log()
    # log(1 - u^(w/W)) = log(-expm1(log u * w / W)), one for each node and chosen place.
    ratio = (inside - rest.unsqueeze(1)).exp().masked_fill(~chosen, 0.0)
    factors = torch.log(-torch.expm1(log_u[:, None, None] * ratio.clamp_min(1e-300)))
    product = factors.masked_fill(~chosen, 0.0).sum(-1)  # [nodes, R]
    log_weight = torch.from_numpy(weights / 2).to(wide).log() + np.log(POWER) + (POWER - 1) * v.log()
    result = torch.logsumexp(product + log_weight.unsqueeze(1), 0)
    return torch.where(everything, torch.zeros_like(result), result).to(scores.dtype)


def threshold_draw(confidence: Tensor, eligible: Tensor, law: tuple[float, float], uniforms: Tensor) -> Tensor:
    """Chosen places [R, L] (bool).

    Args:
        confidence: [R, L], in [0, 1].
        eligible: [R, L], bool.
        law: threshold and temperature.
        uniforms: [R, L + 1]: one for each place, and one for the single place where none passed.
    """
    threshold, temperature = law
    chosen = eligible & (uniforms[:, :-1] < torch.sigmoid((confidence - threshold) / temperature).double())
    none = ~chosen.any(1) & eligible.any(1)
    single = (confidence / temperature).masked_fill(~eligible, float("-inf")).softmax(1).double()
    place = torch.searchsorted(single.cumsum(1), uniforms[:, -1:] * single.sum(1, keepdim=True), right=True)
    place = place.clamp_max(confidence.shape[1] - 1)
    return torch.where(none.unsqueeze(1), torch.zeros_like(chosen).scatter(1, place, value=True), chosen)


def threshold_log_prob(confidence: Tensor, eligible: Tensor, law: tuple[float, float], chosen: Tensor) -> Tensor:
    """Log-probability [R] of the chosen places; those of all sets that are not empty sum to 1."""
    threshold, temperature = law
    margin = (confidence - threshold) / temperature
    log_in, log_out = torch.nn.functional.logsigmoid(margin), torch.nn.functional.logsigmoid(-margin)
    direct = torch.where(chosen, log_in, log_out).masked_fill(~eligible, 0.0).sum(1)
    single = (confidence / temperature).masked_fill(~eligible, float("-inf")).log_softmax(1)
    none = log_out.masked_fill(~eligible, 0.0).sum(1) + single.masked_fill(~chosen, 0.0).sum(1)
    return torch.where(chosen.sum(1) == 1, torch.logaddexp(direct, none), direct)
