"""Keys and values of prompts, without a side effect in a layer's forward pass.

A cache of transformers grows whenever a layer runs. Under gradient checkpointing every layer runs a second time in the
backward pass and would append its keys again, so these two do not grow: `Gathered` remembers what a layer computed
last, `Behind` puts what it was given in front of what a layer computes and forgets it. Neither drops keys outside a
sliding window: the mask alone says what is seen.

Letters in shapes: R rows, K key heads, N places of the prompt, L places behind it, D size of a head.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache


class Gathered(DynamicCache):
    """Remembers each layer's keys and values [R, K, N, D]."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, tuple[Tensor, Tensor]] = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """What transformers calls in every layer."""
        del args, kwargs
        self.found[layer_idx] = (key_states, value_states)
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Nothing stands before the prompt."""
        del layer_idx
        return 0


class Behind(DynamicCache):
    """Lets each layer see given keys and values [R, K, N, D] in front of its own [R, K, L, D]."""

    def __init__(self, keys: tuple[Tensor, ...], values: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.keys, self.values = keys, values

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """What transformers calls in every layer."""
        del args, kwargs
        keys = torch.cat([self.keys[layer_idx], key_states], dim=-2)
        return keys, torch.cat([self.values[layer_idx], value_states], dim=-2)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Places of the (padded) prompt."""
        del layer_idx
        return self.keys[0].shape[-2]
