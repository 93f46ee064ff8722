"""Causal attention on a CPU, written out as matrix products with a backward pass of their own.

Letters in shapes: K key-value heads, Q query heads of each, R rows, C places of a row, D size of a head, P places of
the prompt before a row, S own keys of a row (C, and those of a cache before them).

The rows of a product are the query heads that share a key (Ainslie et al. 2023, arXiv:2305.13245). The causal square is
cut into bands of queries, each with the keys that it sees. What is kept for the backward pass is the softmax of each
band, from which the gradients follow (Vaswani et al. 2017, arXiv:1706.03762, differentiated): with A the softmax of
s q k^T and o = A v, dv = A^T do, dA = do v^T, dS = A * (dA - rowsum(A * dA)), dq = s dS k and dk = s dS^T q. Left to
autograd, every band's keys are cut out again in the backward pass, with a gradient of full size for each.
"""

from typing import Any

import torch
from torch import Tensor

BAND = 128
"""Queries that are multiplied together: fewer make more products, more multiply what is masked."""


def attend(
    query: Tensor, key: Tensor, value: Tensor, first: tuple[Tensor, Tensor, Tensor] | None, scale: float
) -> Tensor:
    """Attention [K, Q, R, C, D] of rows to what stands before them, and to their prompts, under one softmax.

    In the very products of `decoders.lean`, rounded where it rounds: of 16 bits both then give the same to the bit
    (without AMX), and a scorer that rounds elsewhere is 0.04 nats a token off after thirty layers.

    Args:
        query: [K, Q, R, C, D].
        key: [K, R, S, D]; the last C are those of the queries, which see no later one.
        value: like `key`.
        first: keys and values [K, R, P, D] of each row's prompt, and which of them are there, bool [R, P].
        scale: of the products.
    """
    *prompt, there = first or (None,)
    result: Tensor = _Bands.apply(scale, there, query, key, value, *prompt)
    return result


class _Bands(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scale: float, there: Tensor | None, query: Tensor, *states: Tensor) -> Tensor:
        key, value, *prompt = states
        kept = any(ctx.needs_input_grad)
        rows = (query * scale).transpose(1, 2)  # [K, R, Q, C, D]
        keys = torch.cat([prompt[0], key], dim=2) if prompt else key  # [K, R, P + S, D]
        width = keys.shape[2] - key.shape[2]
        hidden = None if there is None or bool(there.all()) else ~there[:, None, None]  # [R, 1, 1, P]
        parts, laws = [], []
        for start, end, seen in _bands(query.shape[3], key.shape[2]):
            band = rows[..., start:end, :]
            scores = band.flatten(2, 3) @ keys[:, :, : width + seen].mT
            each = scores.view(*band.shape[:-1], width + seen)
            each[..., width + seen - (end - start) :].masked_fill_(_later(end - start), float("-inf"))
            if hidden is not None:
                each[..., :width].masked_fill_(hidden, float("-inf"))
            law = scores.softmax(-1)  # [K, R, Q x band, P + seen], summed in float32
            mixed = law[..., width:] @ value[:, :, :seen]
            if prompt:
                mixed = law[..., :width] @ prompt[1] + mixed
            parts.append(mixed.view(band.shape))
            laws += [law] if kept else []
        if kept:
            values = torch.cat([prompt[1], value], dim=2) if prompt else value
            ctx.save_for_backward(rows, keys, values, *laws)
            ctx.scale, ctx.width, ctx.behind = scale, width, bool(prompt)
        return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=3)).transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        rows, keys, values, *laws = ctx.saved_tensors
        width = ctx.width
        flow = upstream[0].transpose(1, 2)  # [K, R, Q, C, D]
        # Summed over bands in float32 at least, and turned round, so that what a product transposes is the small side.
        exact = torch.promote_types(keys.dtype, torch.float32)
        flow_k, flow_v = (torch.zeros_like(each.mT, dtype=exact).contiguous() for each in (keys, values))
        flow_q = torch.empty_like(rows, memory_format=torch.contiguous_format)
        bands = _bands(rows.shape[3], keys.shape[2] - width)
        for (start, end, seen), law in zip(bands, laws, strict=True):
            band = flow[..., start:end, :].flatten(2, 3)  # [K, R, Q x band, D]
            flow_law = band @ values[:, :, : width + seen].mT
            flow_s = torch._softmax_backward_data(flow_law, law, -1, law.dtype)  # noqa: SLF001
            flow_q[..., start:end, :] = (flow_s @ keys[:, :, : width + seen]).view_as(flow_q[..., start:end, :])
            flow_k[..., : width + seen] += rows[..., start:end, :].flatten(2, 3).mT @ flow_s
            flow_v[..., : width + seen] += band.mT @ law
        flow_k, flow_v = (each.mT.to(keys.dtype) for each in (flow_k, flow_v))
        before = (flow_k[:, :, :width], flow_v[:, :, :width]) if ctx.behind else ()
        own = flow_q.mul_(ctx.scale).transpose(1, 2), flow_k[:, :, width:], flow_v[:, :, width:]
        return None, None, *own, *before


def _bands(places: int, seen: int) -> list[tuple[int, int, int]]:
    """Of each band its first place, its end, and how many own keys it sees."""
    ends = [(start, min(start + BAND, places)) for start in range(0, places, BAND)]
    return [(start, end, seen - places + end) for start, end in ends]


def _later(places: int) -> Tensor:
    """What the places of a band do not see of their own keys: bool [C, C]."""
    return torch.ones((places, places), dtype=torch.bool).triu(1)
