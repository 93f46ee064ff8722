"""A causal transformers model as a bidirectional one: hidden states of the places of a canvas.

Letters in shapes: P prompts, N longest prompt, R rows (canvases), L places, H hidden size, K key heads, D size of a
head.

The mask is always given in four dimensions, so a causal model's own mask never acts. Two ways to attend:

    full     everything sees everything, as LLaDA and Dream were trained; the prompt is encoded with every canvas
    prefix   the prompt sees the prompt, a canvas sees its prompt and itself; a prompt is then encoded once and its keys
             and values serve every step and every copy, in sampling and in scoring
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import DynamicCache

from plumbline.policies.pretrained.inputs import additive, padded

Attention = Literal["full", "prefix"]


@dataclass(frozen=True, slots=True, eq=False)
class Prompts:
    """Distinct prompts, padded on the right, and under prefix attention what their encoding left behind."""

    ids: Tensor  # [P, N]
    lengths: Tensor  # [P]
    keys: tuple[Tensor, ...] = ()  # a layer each: [P, K, N, D]
    values: tuple[Tensor, ...] = ()
    last: Tensor | None = None  # [P, H]: the hidden state of each prompt's last token

    def rows(self, index: Tensor) -> "Prompts":
        """The prompts of rows [R], one each."""
        return Prompts(
            self.ids[index],
            self.lengths[index],
            tuple(keys[index] for keys in self.keys),
            tuple(values[index] for values in self.values),
            None if self.last is None else self.last[index],
        )


class Gathered(DynamicCache):
    """Remembers each layer's keys and values [R, K, N, D].

    A cache of transformers grows whenever a layer runs. Under gradient checkpointing every layer runs a second time in
    the backward pass and would append its keys again, so this one and `Behind` do not grow. Neither drops keys outside
    a sliding window: the mask alone says what is seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.computed: dict[int, tuple[Tensor, Tensor]] = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """What transformers calls in every layer."""
        del args, kwargs
        self.computed[layer_idx] = (key_states, value_states)
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Nothing stands before the prompt."""
        del layer_idx
        return 0


class Behind(DynamicCache):
    """Lets each layer see given keys and values [R, K, N, D] in front of its own [R, K, L, D], and forgets its own."""

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


class Network:
    """Hidden states of canvases under one of the two attentions."""

    def __init__(self, model: Any, attention: Attention, *, shifted: bool) -> None:
        """Wrap a model; `shifted` says that place i is predicted at place i - 1 (Dream)."""
        self.model, self.attention, self.shifted = model, attention, shifted

    def encode(self, prompts: Sequence[Sequence[int]], model: Any = None) -> Prompts:
        """Pad prompts, and under prefix attention run them through the model once."""
        model = model or self.model
        device = model.device
        ids, seen = (each.to(device) for each in padded(prompts))
        lengths = seen.sum(1)
        if self.attention == "full":
            return Prompts(ids, lengths)
        gathered = Gathered()
        mask = _seen_by_all(seen, ids.shape[1], model.dtype)
        states = model.get_decoder()(ids, attention_mask=mask, past_key_values=gathered, use_cache=True)
        last = states.last_hidden_state[torch.arange(len(prompts), device=device), lengths - 1]
        layers = [gathered.computed[layer] for layer in sorted(gathered.computed)]
        return Prompts(ids, lengths, tuple(keys for keys, _ in layers), tuple(values for _, values in layers), last)

    def hidden(self, prompts: Prompts, canvas: Tensor, model: Any = None) -> Tensor:
        """Hidden states [R, L, H] that predict the places of canvases [R, L], each behind its row's prompt."""
        model = model or self.model
        return self._full(prompts, canvas, model) if self.attention == "full" else self._prefix(prompts, canvas, model)

    def _full(self, prompts: Prompts, canvas: Tensor, model: Any) -> Tensor:
        rows, places = canvas.shape
        width = prompts.ids.shape[1] + places
        ids = torch.zeros((rows, width), dtype=torch.long, device=canvas.device)
        ids[:, : prompts.ids.shape[1]] = prompts.ids
        at = prompts.lengths.unsqueeze(1) + torch.arange(places, device=canvas.device)  # [R, L]
        ids = ids.scatter(1, at, canvas)
        seen = torch.arange(width, device=canvas.device) < (prompts.lengths + places).unsqueeze(1)
        mask = _seen_by_all(seen, width, model.dtype)
        states = model.get_decoder()(ids, attention_mask=mask, use_cache=False).last_hidden_state
        if self.shifted:
            at = at - 1
        result: Tensor = states.gather(1, at.unsqueeze(-1).expand(-1, -1, states.shape[-1]))
        return result

    def _prefix(self, prompts: Prompts, canvas: Tensor, model: Any) -> Tensor:
        places, width = canvas.shape[1], prompts.ids.shape[1]
        seen = torch.ones((len(canvas), width + places), dtype=torch.bool, device=canvas.device)
        seen[:, :width] = torch.arange(width, device=canvas.device) < prompts.lengths.unsqueeze(1)
        positions = prompts.lengths.unsqueeze(1) + torch.arange(places, device=canvas.device)
        states = model.get_decoder()(
            canvas,
            attention_mask=_seen_by_all(seen, places, model.dtype),
            position_ids=positions,
            past_key_values=Behind(prompts.keys, prompts.values),
            use_cache=True,
        ).last_hidden_state
        if self.shifted:
            assert prompts.last is not None
            states = torch.cat([prompts.last.unsqueeze(1), states[:, :-1]], dim=1)
        result: Tensor = states
        return result


def _seen_by_all(seen: Tensor, queries: int, dtype: torch.dtype) -> Tensor:
    """An additive mask [R, 1, queries, keys] from which keys may be seen [R, keys]."""
    return additive(seen[:, None, None], dtype).expand(-1, -1, queries, -1)
