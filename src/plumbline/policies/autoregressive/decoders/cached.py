"""Decoding through the model's own forward pass and cache: works for every causal model that
transformers loads.

Prompts are padded on the left, as in transformers' `generate`; the prompt pass is done once and its
cache repeated for the copies. Rows are copied and dropped by `reorder_cache`, which layers with a
state (convolutions, linear attention) know; a few caches of their own kind know another way. It is
used only after `probe.py` has compared it with the model's forward pass.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from plumbline.policies.autoregressive.decoders import Decoder
from plumbline.policies.pretrained.policy import pad_rows


class CachedDecoder(Decoder):
    """The general engine; see `decoders.Decoder`."""

    def __init__(self, model: Any, pad_id: int) -> None:
        self.model = model
        self.pad_id = pad_id

    @torch.no_grad()
    def begin(
        self,
        prompts: Sequence[Sequence[int]],
        copies: int,
        max_tokens: int,  # noqa: ARG002
        shared: int = 0,  # noqa: ARG002
    ) -> Tensor:
        """See `Decoder.begin`."""
        ids, mask = (
            each.long().to(self.model.device) for each in pad_rows(prompts, self.pad_id, left=True)
        )
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        output = self.model(
            ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1
        )
        self.cache = output.past_key_values
        if copies > 1:
            self._take(torch.arange(len(prompts), device=ids.device).repeat_interleave(copies))
        self.mask = mask.repeat_interleave(copies, 0)
        self.position = positions[:, -1:].repeat_interleave(copies, 0)
        self.copies = copies
        return output.logits[:, -1]

    @torch.no_grad()
    def step(self, tokens: Tensor) -> Tensor:
        """See `Decoder.step`."""
        self.position = self.position + 1
        self.mask = torch.cat([self.mask, self.mask.new_ones((len(self.mask), 1))], dim=1)
        output = self.model(
            tokens.unsqueeze(1),
            attention_mask=self.mask,
            position_ids=self.position,
            past_key_values=self.cache,
            use_cache=True,
        )
        return output.logits[:, -1]

    @torch.no_grad()
    def keep(self, prompts: Tensor, copies: Tensor) -> None:
        """See `Decoder.keep`."""
        rows = (prompts.unsqueeze(1) * self.copies + copies).flatten()
        self._take(rows)
        self.mask, self.position = self.mask[rows], self.position[rows]
        self.copies = copies.shape[1]

    def _take(self, rows: Tensor) -> None:
        """Let the cache hold these rows [R], of those that it has, in this order."""
        kinds = type(self.cache).__mro__
        if any(
            "batch_select_indices" in vars(kind) and "reorder_cache" not in vars(kind)
            for kind in kinds
        ):
            self.cache.batch_select_indices(rows)  # a kind that has changed the one way only
        else:
            self.cache.reorder_cache(rows)


def limit_time_steps(model: Any) -> None:
    """Let a state-space layer keep to its least time step when it takes one token, as it does in a
    longer pass.

    The pass of a whole sequence in transformers knows the limit (`time_step_limit`), the step of
    one token does not. Here what both begin with, the last outputs of `in_proj`, is limited, which
    changes nothing in a longer pass.
    """
    for layer in model.modules():
        least, most = getattr(layer, "time_step_limit", None) or (0.0, math.inf)
        if (
            hasattr(layer, "in_proj")
            and hasattr(layer, "dt_bias")
            and (least > 0 or most < math.inf)
        ):
            layer.in_proj.register_forward_hook(partial(_limit_steps, layer.dt_bias, least, most))


def _limit_steps(
    bias: Tensor,
    least: float,
    most: float,
    layer: Any,  # noqa: ARG001
    given: Any,  # noqa: ARG001
    projected: Tensor,
) -> Tensor:
    """Projected states [..., O] whose last ones, [..., heads], give time steps softplus(x + bias)
    within the limits."""
    before, steps = projected.split([projected.shape[-1] - len(bias), len(bias)], dim=-1)
    low = math.log(math.expm1(least)) if least > 0 else -math.inf
    high = math.log(math.expm1(most)) if most < 50 else most  # there softplus(x) is x
    return torch.cat([before, (steps + bias).clamp(low, high) - bias], dim=-1).to(projected.dtype)
