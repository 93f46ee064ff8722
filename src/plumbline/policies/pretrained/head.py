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


def head_log_prob(
    hidden_nh: Tensor, weight_vh: Tensor, bias: Tensor | None, tokens: Tensor, sampling: Sampling
) -> Tensor:
    """Log-probability [N] of `tokens` [N] given hidden states [N, H] and a linear head [V, H].

    Equals `token_law.log_prob(hidden @ weight.T + bias, tokens, sampling)` in value and gradient (a test holds it).
    """
    rows = rows_at_once(weight_vh)
    if not torch.is_grad_enabled():
        return torch.cat(
            [
                log_prob(
                    _logits(hidden_nh[start : start + rows], weight_vh, bias), tokens[start : start + rows], sampling
                )
                for start in range(0, len(tokens), rows)
            ]
            or [hidden_nh.new_zeros(0, dtype=torch.float32)]
        )
    result: Tensor = _HeadLogProb.apply(hidden_nh, weight_vh, bias, tokens, sampling)
    return result


def _logits(hidden_nh: Tensor, weight_vh: Tensor, bias: Tensor | None) -> Tensor:
    return torch.nn.functional.linear(hidden_nh, weight_vh, bias)


class _HeadLogProb(torch.autograd.Function):
    """Forward and backward in slices of rows; a single slice keeps its probabilities, several recompute theirs."""

    @staticmethod
    def forward(
        ctx: Any, hidden_nh: Tensor, weight_vh: Tensor, bias: Tensor | None, tokens: Tensor, sampling: Sampling
    ) -> Tensor:
        rows = rows_at_once(weight_vh)
        restricted_nv = None
        chosen, log_totals = [], []
        for start in range(0, len(tokens), rows):
            part = tokens[start : start + rows]
            restricted_nv = restrict(_logits(hidden_nh[start : start + rows], weight_vh, bias), sampling, keep=part)
            chosen.append(restricted_nv.gather(-1, part.unsqueeze(-1)).squeeze(-1))
            log_totals.append(restricted_nv.logsumexp(-1))
        log_total = torch.cat(log_totals) if log_totals else hidden_nh.new_zeros(0, dtype=torch.float32)
        result = torch.cat(chosen) - log_total if chosen else log_total
        single_nv = restricted_nv if len(tokens) <= rows else None
        ctx.save_for_backward(hidden_nh, weight_vh, bias, tokens, log_total, single_nv)
        ctx.sampling, ctx.rows = sampling, rows
        return result

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        hidden_nh, weight_vh, bias, tokens, log_total, single_nv = ctx.saved_tensors
        (gradient,) = upstream
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        grad_hidden_nh = torch.empty_like(hidden_nh) if need_hidden else None
        grad_weight_vh = torch.zeros_like(weight_vh, dtype=torch.float32) if need_weight else None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if need_bias and bias is not None else None
        for start in range(0, len(tokens), ctx.rows):
            at = slice(start, start + ctx.rows)
            part = tokens[at]
            if single_nv is None:
                logits_nv = restrict(_logits(hidden_nh[at], weight_vh, bias), ctx.sampling, keep=part)
            else:
                logits_nv = single_nv
            # (onehot - p) * upstream / temperature, built in place of the probabilities.
            scale = gradient[at].unsqueeze(-1) / ctx.sampling.temperature
            flow_nv = (logits_nv - log_total[at].unsqueeze(-1)).exp_().mul_(-scale)
            flow_nv.scatter_add_(-1, part.unsqueeze(-1), scale.to(flow_nv.dtype))
            flow_16_nv = flow_nv.to(hidden_nh.dtype)
            if grad_hidden_nh is not None:
                grad_hidden_nh[at] = flow_16_nv @ weight_vh
            if grad_weight_vh is not None:
                grad_weight_vh += flow_16_nv.T @ hidden_nh[at]
            if grad_bias is not None:
                grad_bias += flow_nv.sum(0)
        return (
            grad_hidden_nh,
            None if grad_weight_vh is None else grad_weight_vh.to(weight_vh.dtype),
            None if grad_bias is None else grad_bias.to(weight_vh.dtype),
            None,
            None,
        )
