"""Log-probabilities from hidden states, without ever holding [N, V] logits at once.

Letters in shapes: N scored tokens, H hidden size, V vocabulary.

For a vocabulary of 152k, the logits of 16 completions of 256 tokens take 2.5 GB in float32, several times over in a
plain backward pass. Here the head is applied to a slice of the rows at a time, and the slice's logits are computed
again in the backward pass. With p = softmax(restrict(hW^T)) the gradient of log p(y) with respect to the logits is
(onehot(y) - p) / temperature, the softmax gradient; outside the support of the filters it is 0 because p is.
"""

from typing import Any

import torch
from torch import Tensor

from plumbline.policies.token_law import log_prob, restrict
from plumbline.records import Sampling

LOGITS_AT_ONCE = {"cuda": 2**25, "cpu": 2**22}
"""Logits that one slice may hold: 128 MiB in float32 on a GPU; on a CPU 16 MiB, which the allocator gives back to the
next slice instead of asking the system for new pages each time."""


def rows_at_once(weight: Tensor) -> int:
    """How many hidden states a head [V, H] is applied to at once."""
    return max(1, LOGITS_AT_ONCE.get(weight.device.type, 2**25) // weight.shape[0])


def head_log_prob(hidden: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor, sampling: Sampling) -> Tensor:
    """Log-probability [N] of `tokens` [N] given hidden states [N, H] and a linear head [V, H].

    Equals `token_law.log_prob(hidden @ weight.T + bias, tokens, sampling)` in value and gradient (a test holds it).
    """
    rows = rows_at_once(weight)
    if not torch.is_grad_enabled():
        return torch.cat(
            [
                log_prob(_logits(hidden[start : start + rows], weight, bias), tokens[start : start + rows], sampling)
                for start in range(0, len(tokens), rows)
            ]
            or [hidden.new_zeros(0, dtype=torch.float32)]
        )
    result: Tensor = _HeadLogProb.apply(hidden, weight, bias, tokens, sampling)
    return result


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.nn.functional.linear(hidden, weight, bias)


class _HeadLogProb(torch.autograd.Function):
    """Forward and backward in slices of rows; a single slice keeps its probabilities, several recompute theirs."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor, sampling: Sampling
    ) -> Tensor:
        rows = rows_at_once(weight)
        restricted = None
        chosen, log_totals = [], []
        for start in range(0, len(tokens), rows):
            part = tokens[start : start + rows]
            restricted = restrict(_logits(hidden[start : start + rows], weight, bias), sampling, keep=part)
            chosen.append(restricted.gather(-1, part.unsqueeze(-1)).squeeze(-1))
            log_totals.append(restricted.logsumexp(-1))
        log_total = torch.cat(log_totals) if log_totals else hidden.new_zeros(0, dtype=torch.float32)
        result = torch.cat(chosen) - log_total if chosen else log_total
        single = restricted if len(tokens) <= rows else None
        ctx.save_for_backward(hidden, weight, bias, tokens, log_total, single)
        ctx.sampling, ctx.rows = sampling, rows
        return result

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, tokens, log_total, single = ctx.saved_tensors
        (gradient,) = upstream
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.empty_like(hidden) if need_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if need_weight else None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if need_bias and bias is not None else None
        for start in range(0, len(tokens), ctx.rows):
            at = slice(start, start + ctx.rows)
            part = tokens[at]
            if single is None:
                logits = restrict(_logits(hidden[at], weight, bias), ctx.sampling, keep=part)
            else:
                logits = single
            # (onehot - p) * upstream / temperature, built in place of the probabilities.
            scale = gradient[at].unsqueeze(-1) / ctx.sampling.temperature
            flow = (logits - log_total[at].unsqueeze(-1)).exp_().mul_(-scale)
            flow.scatter_add_(-1, part.unsqueeze(-1), scale.to(flow.dtype))
            flow_16 = flow.to(hidden.dtype)
            if grad_hidden is not None:
                grad_hidden[at] = flow_16 @ weight
            if grad_weight is not None:
                grad_weight += flow_16.T @ hidden[at]
            if grad_bias is not None:
                grad_bias += flow.sum(0)
        return (
            grad_hidden,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None else grad_bias.to(weight.dtype),
            None,
            None,
        )
