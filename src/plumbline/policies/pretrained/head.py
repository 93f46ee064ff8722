"""Log-probabilities from hidden states, without ever holding [N, V] logits at once.

Letters in shapes: N scored tokens, H hidden size, V vocabulary, K likeliest tokens.

For a vocabulary of 152k, the logits of 16 completions of 256 tokens take 2.5 GB in float32, several times over in a
plain backward pass. Here the head is applied to a slice of the rows at a time. With p = softmax(restrict(hW^T)) the
gradient of log p(y) with respect to the logits is (onehot(y) - p) / temperature, the softmax gradient; outside the
support of the filters it is 0 because p is. The difference is taken in float32 and then rounded: where p(y) is near 1,
what 16 bits leave of p says nothing of 1 - p. What comes from behind only scales a row of it, so the gradient of the
hidden states, (onehot(y) - p) W / temperature, is taken in the forward pass, while the slice's probabilities are at
hand: one pass of the head a token. Only where the head itself is trained does the backward pass compute them again.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from plumbline.policies.token_law import restrict
from plumbline.records import Sampling

LOGITS_AT_ONCE = {"cuda": 2**25, "cpu": 2**23}
"""Logits that one slice may hold: 128 MiB in float32 on a GPU; on a CPU 16 MiB in 16 bits, which the allocator gives
back to the next slice instead of asking the system for new pages each time."""
CACHED = 2**18
"""Logits that a CPU turns into probabilities at once: they stay in its cache from one operation to the next."""
LIKELIEST = 8
"""Logits of each row that are computed in float32: those that decide its probabilities."""


def rows_at_once(weight: Tensor) -> int:
    """How many hidden states a head [V, H] is applied to at once."""
    return max(1, LOGITS_AT_ONCE.get(weight.device.type, 2**25) // weight.shape[0])


def head_log_prob(
    hidden_nh: Tensor, weight_vh: Tensor, bias: Tensor | None, tokens: Tensor, sampling: Sampling
) -> Tensor:
    """Log-probability [N] of `tokens` [N] given hidden states [N, H] and a linear head [V, H].

    Equals `token_law.log_prob(hidden @ weight.T + bias, tokens, sampling)` in value and gradient (a test holds it), to
    the bit alike with and without gradient.
    """
    result: Tensor = _HeadLogProb.apply(hidden_nh, weight_vh, bias, tokens, sampling)
    return result


def _slices(count: int, rows: int) -> Iterator[slice]:
    return (slice(start, min(start + rows, count)) for start in range(0, count, rows))


class _HeadLogProb(torch.autograd.Function):
    """Forward and backward in slices of rows; an only slice keeps its probabilities for a head that is trained."""

    @staticmethod
    def forward(
        ctx: Any, hidden_nh: Tensor, weight_vh: Tensor, bias: Tensor | None, tokens: Tensor, sampling: Sampling
    ) -> Tensor:
        need_hidden, *need_head = ctx.needs_input_grad[:3]
        result = hidden_nh.new_empty(len(tokens), dtype=torch.promote_types(hidden_nh.dtype, torch.float32))
        flow_nh = torch.empty_like(hidden_nh) if need_hidden else None  # d log p / d hidden
        single_nv = None
        for at in _slices(len(tokens), rows := rows_at_once(weight_vh)):
            result[at], flow_nv = _flow(hidden_nh[at], weight_vh, bias, tokens[at], sampling)
            if flow_nh is not None:
                flow_nh[at] = flow_nv @ weight_vh / sampling.temperature
            single_nv = flow_nv if len(tokens) <= rows else None
        kept = (hidden_nh, weight_vh, bias, tokens, single_nv) if any(need_head) else ()
        ctx.save_for_backward(flow_nh, *kept)
        ctx.sampling = sampling
        return result

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        flow_nh, *kept = ctx.saved_tensors
        (gradient,) = upstream
        grad_hidden_nh = None if flow_nh is None else (flow_nh * gradient.unsqueeze(-1)).to(flow_nh.dtype)
        if not kept:
            return grad_hidden_nh, None, None, None, None
        hidden_nh, weight_vh, bias, tokens, single_nv = kept
        grad_weight_vh = torch.zeros_like(weight_vh, dtype=torch.float32)
        grad_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        for at in _slices(len(tokens), rows_at_once(weight_vh)):
            flow_nv = single_nv
            if flow_nv is None:
                flow_nv = _flow(hidden_nh[at], weight_vh, bias, tokens[at], ctx.sampling)[1]
            flow_nv = flow_nv * (gradient[at].unsqueeze(-1) / ctx.sampling.temperature)
            grad_weight_vh += flow_nv.to(hidden_nh.dtype).T @ hidden_nh[at]
            if grad_bias is not None:
                grad_bias += flow_nv.sum(0)
        grad_bias = None if grad_bias is None else grad_bias.to(weight_vh.dtype)
        return grad_hidden_nh, grad_weight_vh.to(weight_vh.dtype), grad_bias, None, None


def _flow(
    hidden_nh: Tensor, weight_vh: Tensor, bias: Tensor | None, tokens: Tensor, sampling: Sampling
) -> tuple[Tensor, Tensor]:
    """Log-probabilities [N] of `tokens` in float32, and onehot - p [N, V] in the head's dtype."""
    logits_nv = functional.linear(hidden_nh, weight_vh, bias)
    rows = len(tokens) if logits_nv.device.type != "cpu" else max(1, CACHED // logits_nv.shape[1])
    logprobs = []
    for at in _slices(len(tokens), rows):
        part = tokens[at].unsqueeze(-1)
        exact_nv = exact(logits_nv[at], hidden_nh[at], weight_vh, bias)
        restricted_nv = restrict(exact_nv, sampling, keep=tokens[at])
        chosen, largest = restricted_nv.gather(-1, part), restricted_nv.amax(-1, keepdim=True)
        law_nv = restricted_nv.sub_(largest).exp_()
        total = law_nv.sum(-1, keepdim=True)
        logprobs.append((chosen - largest - total.log()).squeeze(-1))
        flow_nv = law_nv.div_(-total).scatter_add_(-1, part, torch.ones_like(chosen))
        logits_nv[at] = flow_nv
    return torch.cat(logprobs), logits_nv


def logits_of(head: Any, hidden_nh: Tensor) -> Tensor:
    """Logits [N, V] by a model's head, as the scorer has them: `exact` where the head is a linear layer."""
    logits_nv: Tensor = head(hidden_nh)
    return exact(logits_nv, hidden_nh, head.weight, head.bias) if type(head) is nn.Linear else logits_nv


def exact(logits_nv: Tensor, hidden_nh: Tensor, weight_vh: Tensor, bias: Tensor | None) -> Tensor:
    """Logits [N, V] in float32, of 16-bit ones the K likeliest computed again.

    A 16-bit product rounds a logit of 20 by up to 0.06 nats; the errors of the others average out in their sum. On a
    CPU a whole product in float32 would take four times as long.
    """
    if logits_nv.dtype not in (torch.float16, torch.bfloat16):
        return logits_nv
    at_nk = logits_nv.topk(min(LIKELIEST, logits_nv.shape[1]), dim=-1).indices
    exact_nk = (weight_vh[at_nk].float() @ hidden_nh.float().unsqueeze(-1)).squeeze(-1)
    if bias is not None:
        exact_nk += bias[at_nk].float()
    return logits_nv.float().scatter_(-1, at_nk, exact_nk)
