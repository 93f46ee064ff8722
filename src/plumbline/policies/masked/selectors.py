"""Which hidden places a step fills in: how they are drawn, and the log-probability of that choice.

Letters in shapes: R rows, L places, n places to fill. Scores are minus infinity where a place may not be chosen.

    plackett_luce      places one after the other, each in proportion to exp(score) among those left
    plackett_luce_set  the same draw, but only which places were chosen counts (see `plumbline.policies.plackett_luce`)
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

import torch
from torch import Tensor

FREE = frozenset({"random", "ancestral", "leftmost"})
"""Selectors in whose choices the model has no say: their log-probability is a number without gradient, or none."""


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
