"""Which slots a round fills: an ordered draw without replacement by Plackett and Luce, or an even one.

Letters in shapes: B choices, m open slots, n slots chosen of them.

With scores s, the probability of choosing o_1, ..., o_n in this order is

    prod_r  exp(s_{o_r}) / sum of exp(s_j) over the slots j not chosen before r

(Plackett 1975, Luce 1959). Adding independent Gumbel noise to the scores and taking the n largest, in order, draws
from it (Yellott 1977; Kool et al. 2019, arXiv:1903.06059).
"""

import torch
from torch import Tensor


def choose(scores: Tensor, uniforms: Tensor | None, count: int) -> Tensor:
    """The slots [B, n] chosen of [B, m], in order.

    Args:
        scores: [B, m]; all equal for an even choice.
        uniforms: [B, m] in [0, 1), float64; None takes the largest scores, the first of equal ones.
        count: n.
    """
    keys = scores.double()
    if uniforms is not None:
        keys = keys - (-uniforms.clamp(min=2.0**-1000).log()).log()
    return keys.argsort(dim=1, descending=True, stable=True)[:, :count]


def log_prob(scores: Tensor, chosen: Tensor, there: Tensor | None = None) -> Tensor:
    """Log-probability [B] of choosing `chosen` in this order.

    Args:
        scores: [B, m], anything finite where there is no slot.
        chosen: [B, n], int64, -1 behind the end of a shorter choice.
        there: bool [B, m], which columns are open slots; None for all.
    """
    logs = _logs(scores, chosen, there)
    picked = logs.gather(2, chosen.clamp(min=0).unsqueeze(2)).squeeze(2)
    return picked.masked_fill(chosen < 0, 0.0).sum(1)


def divergence(scores: Tensor, other: Tensor, chosen: Tensor, there: Tensor | None = None) -> Tensor:
    """KL [B] from the law of `scores` to that of `other`: of each pick in turn, given the picks made before it.

    Its mean over choices drawn from the first law is the KL of the whole ordered choice (the chain rule).
    """
    logs, others = _logs(scores, chosen, there), _logs(other, chosen, there)
    impossible = logs.isneginf()
    each = logs.exp() * (logs - others).masked_fill(impossible, 0.0)
    return each.masked_fill((chosen < 0).unsqueeze(2), 0.0).sum((1, 2))


def _logs(scores: Tensor, chosen: Tensor, there: Tensor | None) -> Tensor:
    """Log-probabilities [B, n, m] of the next pick, given the picks before it; minus infinity for what is gone."""
    slots = torch.arange(scores.shape[1], device=scores.device)
    picked = (chosen.unsqueeze(2) == slots).to(torch.int8)  # [B, n, m]
    gone = (picked.cumsum(1) - picked) > 0
    if there is not None:
        gone = gone | ~there.unsqueeze(1)
    gone = gone & (chosen >= 0).unsqueeze(2)  # rows behind the end are not read, and must not be all minus infinity
    return scores.unsqueeze(1).masked_fill(gone, float("-inf")).log_softmax(-1)
