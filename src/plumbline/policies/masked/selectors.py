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

`leftmost` fills the first hidden places of the block, which is no choice: its steps have no term for it, and with a
step for each place an answer is written as an autoregressive model writes it (`plumbline.algorithms.just_grpo`).

The weights have no say in `random` (a set of fixed size) and `ancestral` (each place with a fixed probability, Sahoo et
al. 2024, arXiv:2406.07524): their log-probabilities are numbers without a gradient (`scorer.free_log_prob`).
"""

import math

import torch
from torch import Tensor

FREE = frozenset({"random", "ancestral", "leftmost"})
"""Selectors in whose choices the model has no say: their log-probability is a number without gradient, or none."""
EARLIEST = -37.0
"""Where the integral of the set probability begins in log time: what is left of it is below 1e-16."""


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

    With r = w / W and u = exp(-e^x) the integral above is

        P(S) = int e^(x - e^x) prod_{i in S} (1 - exp(-r_i e^x)) dx

    over all x: an entire function that falls off on both sides whatever the scores, so the trapezoid rule converges
    exponentially (Trefethen and Weideman 2014). Its error with steps of h is about exp(-2 pi y / h) cos(y)^-n at the
    best y, below 1e-11 for the h taken here. In u itself the integrand has an edge at 1 where the chosen places lead
    by far, and no fixed set of Gauss nodes finds it: log P and its gradient would come out as 0.

    In float64; a test holds value and gradient to the sum over orders.
    """
    wide = scores.double()
    most = max(1, int(chosen.sum(1).max()))
    place = (~chosen).to(torch.int8).sort(dim=1, stable=True).indices[:, :most]
    counted = chosen.gather(1, place)  # [R, n]
    everything = (wide.isneginf() | chosen).all(1)  # nothing else could have been chosen
    rest = torch.where(chosen, float("-inf"), wide)
    rest = torch.where(everything.unsqueeze(1), torch.zeros_like(rest), rest).logsumexp(1)
    log_ratio = (wide.gather(1, place) - rest.unsqueeze(1)).masked_fill(~counted, 0.0)
    width = min(0.2, 0.7 / math.sqrt(most))
    x = torch.arange(EARLIEST, math.log(2 * most + 60), width, dtype=torch.float64, device=wide.device)[:, None, None]
    # exp of what would overflow is the same to the last digit; below, the factor is its argument.
    factors = torch.log(-torch.expm1(-(log_ratio + x).clamp(-690.0, 690.0).exp()))
    product = factors.masked_fill(~counted, 0.0).sum(-1)  # [nodes, R]
    result = torch.logsumexp(product + (x - x.exp()).squeeze(-1) + math.log(width), 0)
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
