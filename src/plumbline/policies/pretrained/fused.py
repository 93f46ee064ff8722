"""Parts of a model as one function each, which keep little for the backward pass.

Letters in shapes: N rows, H inputs, O outputs, r rank.

Left to autograd, a norm keeps its input three times over. Here RMS norms and silu(gate) * up keep
their inputs alone and run in blocks of rows that stay in the cache, and a LoRA layer adds its two
gradients in place: 1,024 tokens of SmolLM2 keep 589 MB for the backward pass instead of 747, in the
same time (on a CPU the products decide). Forward they give the very bits of the modules whose place
they take, which the sampler (`autoregressive/decoders/lean.py`) has as well. Used only after they
were compared with the model's own forward pass (`fuse_if_right`, and by a causal model
`autoregressive/probe.py`).
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from plumbline.policies.autoregressive.decoders.lean import MODEL_TYPES
from plumbline.policies.pretrained.adapters import (
    ORIGINAL,
    _add,
    _spread,
    lora_layers,
    low_rank,
    randomise_adapters,
    split_halves,
)
from plumbline.policies.pretrained.numerics import AgreementCheck

MODELS = {f"transformers.models.{name}.modeling_{name}" for name in MODEL_TYPES}
"""Modules with RMS norms and MLPs that are taken over."""
SILU = {"SiLU", "SiLUActivation"}
BLOCK = 2**18
"""Elements of a block of rows: fewer make more operations, more leave the cache (2**15 to 2**19
tried, 1536 wide)."""


def fuse(model: Any) -> None:
    """Give a model's parts the forward passes of this module; a part that has more to it keeps its
    own."""
    for module, forward in _fused_modules(model):
        if not hasattr(module, ORIGINAL):
            setattr(module, ORIGINAL, module.forward)
            module.forward = partial(forward, module)


def unfuse(model: Any) -> None:
    """Give back what `fuse` replaced."""
    for module in model.modules():
        if hasattr(module, ORIGINAL):
            module.forward = getattr(module, ORIGINAL)
            delattr(module, ORIGINAL)


def fuse_if_right(model: Any, plain: Callable[[], Tensor], sequences: int) -> bool:
    """Give a model's parts the forward passes of this module where the model then gives what it
    did.

    Args:
        model: with or without adapters.
        plain: a forward pass of it, which gives logits [M, V].
        sequences: how many the M positions are of (see `AgreementCheck`).

    Returns:
        Whether they are in place; False where there are no such parts.
    """
    if not any(_fused_modules(model)):
        return False
    with randomise_adapters(model), torch.no_grad():
        trial = AgreementCheck.from_model(model, plain, sequences)
        fuse(model)
        if trial.agrees(plain()):
            return True
    unfuse(model)
    return False


def _fused_modules(model: Any) -> Iterator[tuple[Any, Callable[..., Tensor]]]:
    """The modules of a model that have a forward pass here, with that."""
    for layer in lora_layers(model):
        yield layer, _forward
    for module in model.modules():
        kind = type(module)
        if kind.__module__ not in MODELS:
            continue
        if kind.__name__.endswith("RMSNorm"):
            yield module, _norm
        elif kind.__name__.endswith("MLP") and type(module.act_fn).__name__ in SILU:
            yield module, _mlp


def _forward(layer: Any, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """A LoRA layer's outputs [..., O] for inputs [..., H], with gradient."""
    part = None if args or kwargs else low_rank(layer)
    if part is None:
        return _run_original(layer, hidden, *args, **kwargs)
    base = layer.base_layer
    plain = (
        type(base) is nn.Linear and base.weight.is_floating_point() and hidden.device.type == "cpu"
    )
    frozen = plain and not any(weight.requires_grad for weight in base.parameters())
    rows = hidden.flatten(0, -2)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
        output = base(rows)
    changed: Tensor = _LowRank.apply(output, rows, base.weight if frozen else None, *part)
    return changed.view(*hidden.shape[:-1], -1)


def _norm(module: Any, hidden: Tensor) -> Tensor:
    """RMS norm of [..., H]."""
    if hidden.device.type != "cpu" or hidden.dtype != module.weight.dtype:
        return _run_original(module, hidden)
    return _Norm.apply(hidden, module.weight, module.variance_epsilon)


def _mlp(module: Any, hidden: Tensor) -> Tensor:
    """down(silu(gate) * up) for inputs [..., H]."""
    if hidden.device.type != "cpu":
        return _run_original(module, hidden)
    return module.down_proj(_Gated.apply(module.gate_proj(hidden), module.up_proj(hidden)))


def _run_original(module: Any, *args: Any, **kwargs: Any) -> Tensor:
    return getattr(module, ORIGINAL)(*args, **kwargs)


def _split_blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Views of the same rows of contiguous tensors [..., size], block by block; the first says how
    many rows."""
    rows = max(1, BLOCK // tensors[0].shape[-1])
    return zip(*(each.flatten(0, -2).split(rows) for each in tensors), strict=True)


class _LowRank(torch.autograd.Function):
    """base [N, O] + s B (A x), for x [N, H], A [r, H] and s B [O, r]; base is changed.

    With a weight W [O, H], which is frozen, base is W x made without gradient, and the gradient of
    x is that of both products: g W + (g s B) A, the second added in place. Beside x the backward
    pass needs A x alone. Its products take A and B as one 16-bit matrix each: there the low halves
    would change less than the rounding of the gradient that comes in.
    """

    @staticmethod
    def forward(
        ctx: Any, base: Tensor, hidden: Tensor, weight: Tensor | None, down: Tensor, up: Tensor
    ) -> Tensor:
        rank = len(down)
        low = functional.linear(hidden, split_halves(down, hidden.dtype).flatten(0, 1))
        _add(base, low, _spread(up, hidden.dtype), rank)
        ctx.mark_dirty(base)
        low = low if low.shape[1] == rank else low[:, :rank] + low[:, rank:]
        ctx.save_for_backward(hidden, low, weight, down, up)
        return base

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        hidden, low, weight, down, up = ctx.saved_tensors
        gradient = upstream[0].to(hidden.dtype)
        back = gradient @ up.to(hidden.dtype)  # [N, r]
        need_base, need_hidden, _, need_down, need_up = ctx.needs_input_grad
        flow = None
        if need_hidden and weight is None:
            flow = back @ down.to(hidden.dtype)
        elif need_hidden:
            flow = (gradient @ weight.to(hidden.dtype)).addmm_(back, down.to(hidden.dtype))
        return (
            upstream[0] if need_base else None,
            flow,
            None,
            (back.T @ hidden).to(down.dtype) if need_down else None,
            (low.T @ gradient).T.to(up.dtype) if need_up else None,
        )


class _Norm(torch.autograd.Function):
    """RMS norm (Zhang and Sennrich 2019, arXiv:1910.07467) of x [..., H] with weight w [H], rounded
    as transformers'.

    With n = x / rms and m = g w, for a gradient g, that of x is (m - n mean(n m)) / rms, and that
    of w the sum of g n.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        wide = torch.promote_types(hidden.dtype, torch.float32)
        hidden = hidden.contiguous()
        output, inverse = (
            torch.empty_like(hidden),
            hidden.new_empty((*hidden.shape[:-1], 1), dtype=wide),
        )
        for x, y, scale in _split_blocks(hidden, output, inverse):
            exact = x.to(wide)
            scale.copy_(exact.square().mean(-1, keepdim=True).add_(epsilon).rsqrt_())
            y.copy_(exact * scale).mul_(weight)
        ctx.save_for_backward(hidden, inverse, weight)
        return output

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        hidden, inverse, weight = ctx.saved_tensors
        wide, flow = weight.to(inverse.dtype), torch.empty_like(hidden)
        total = torch.zeros_like(wide) if ctx.needs_input_grad[1] else None
        for x, g, scale, back in _split_blocks(hidden, upstream[0].contiguous(), inverse, flow):
            normed = x * scale
            if total is not None:
                total += (g * normed).sum(0)
            weighed = g * wide
            share = (weighed * normed).mean(-1, keepdim=True)
            back.copy_(weighed.addcmul_(normed, share, value=-1).mul_(scale))
        return flow, None if total is None else total.to(weight.dtype), None


class _Gated(torch.autograd.Function):
    """silu(gate) * up, of [..., O] each (SwiGLU: Shazeer 2020, arXiv:2002.05202); silu is made
    again for the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        output = torch.empty_like(gate)
        for a, b, y in _split_blocks(gate, up, output):
            torch.mul(functional.silu(a), b, out=y)
        ctx.save_for_backward(gate, up)
        return output

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        to_gate, to_up = torch.empty_like(gate), torch.empty_like(up)
        for a, b, g, flow_a, flow_b in _split_blocks(
            gate, up, upstream[0].contiguous(), to_gate, to_up
        ):
            torch.mul(functional.silu(a), g, out=flow_b)
            torch.ops.aten.silu_backward.grad_input(g * b, a, grad_input=flow_a)
        return to_gate, to_up
