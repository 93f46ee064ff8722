"""Decoding through the model's own forward pass and cache: works for every causal model that transformers loads.

Prompts are padded on the left, as in transformers' `generate`; the prompt pass is done once and its cache repeated
for the copies. Rows are copied and dropped by `reorder_cache`, which caches with a state (convolutions, linear
attention) have as well. It is used only after `probe.py` has compared it with the model's forward pass.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from plumbline.policies.pretrained.inputs import padded


class CachedDecoder:
    """The general engine; see `decoders.Decoder`."""

    name = "transformers"

    def __init__(self, model: Any, pad_id: int) -> None:
        self.model = model
        self.pad_id = pad_id

    @torch.no_grad()
    def begin(self, prompts: Sequence[Sequence[int]], copies: int, max_tokens: int, shared: int = 0) -> Tensor:  # noqa: ARG002 - the cache grows, and its padding stands before what prompts share
        """See `Decoder.begin`."""
        ids, mask = (each.long().to(self.model.device) for each in padded(prompts, self.pad_id, left=True))
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        output = self.model(ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1)
        self.cache = output.past_key_values
        if copies > 1:
            self.cache.reorder_cache(torch.arange(len(prompts), device=ids.device).repeat_interleave(copies))
        self.mask = mask.repeat_interleave(copies, 0)
        self.position = positions[:, -1:].repeat_interleave(copies, 0)
        self.copies = copies
        logits: Tensor = output.logits[:, -1]
        return logits

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
        logits: Tensor = output.logits[:, -1]
        return logits

    @torch.no_grad()
    def keep(self, prompts: Tensor, copies: Tensor) -> None:
        """See `Decoder.keep`."""
        rows = (prompts.unsqueeze(1) * self.copies + copies).flatten()
        self.cache.reorder_cache(rows)
        self.mask, self.position = self.mask[rows], self.position[rows]
        self.copies = copies.shape[1]
