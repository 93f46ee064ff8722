"""A causal transformers model as a bidirectional one: hidden states of the places of a canvas.

Letters in shapes: P prompts, N longest kept part of a prompt, M longest rest, R rows (canvases), L
places, Q tokens that a row reads at once (M + L), H hidden size, K key heads, D size of a head.

The mask is always given in four dimensions, so a causal model's own mask never acts. Three ways to
attend:

    full     everything sees everything, as LLaDA and Dream were trained; the prompt is encoded with every canvas
    prefix   the prompt sees the prompt, a canvas sees its prompt and itself; a prompt is then encoded once and its keys
             and values serve every step and every copy, in sampling and in scoring
    blocks   prompt and canvas are one text, cut into blocks of B tokens from its first token on; a token sees its own
             block and all before (SDAR). The prompt's whole blocks are encoded once; what is left of it stands in one
             block with the canvas's first places, sees them, and is read with every canvas
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import DynamicCache

from plumbline.policies.pretrained.policy import make_additive_mask, pad_rows

Attention = Literal["full", "prefix", "blocks"]


@dataclass(frozen=True, slots=True, eq=False)
class Prompts:
    """Distinct prompts: a part of each that is encoded once, and a rest that is read with every
    canvas."""

    kept: Tensor  # [P]: tokens of the encoded part
    rest: Tensor  # [P, M]: ids, padded on the right
    lengths: Tensor  # [P]: tokens of the rest
    keys: tuple[Tensor, ...] = ()  # a layer each: [P, K, N, D]; none where nothing is kept
    values: tuple[Tensor, ...] = ()
    last: Tensor | None = None  # [P, H]: the hidden state of the last kept token

    def rows(self, index: Tensor) -> "Prompts":
        """The prompts of rows [R], one each."""
        return Prompts(
            self.kept[index],
            self.rest[index],
            self.lengths[index],
            tuple(keys[index] for keys in self.keys),
            tuple(values[index] for values in self.values),
            None if self.last is None else self.last[index],
        )


class BlockCache(DynamicCache):
    """Lets each layer see given keys and values [R, K, N, D] in front of its own [R, K, L, D], and
    forgets its own.

    Where none are given, those of each layer are remembered. A cache of transformers grows whenever
    a layer runs. Under gradient checkpointing every layer runs a second time in the backward pass
    and would append its keys again, so this one does not grow. It drops no keys outside a sliding
    window: the mask alone says what is seen.
    """

    def __init__(self, keys: tuple[Tensor, ...] = (), values: tuple[Tensor, ...] = ()) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self.computed: dict[int, tuple[Tensor, Tensor]] = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """What transformers calls in every layer."""
        del args, kwargs
        if not self.keys:
            self.computed[layer_idx] = (key_states, value_states)
            return key_states, value_states
        keys = torch.cat([self.keys[layer_idx], key_states], dim=-2)
        return keys, torch.cat([self.values[layer_idx], value_states], dim=-2)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Places of the (padded) prompt; nothing stands before that itself."""
        del layer_idx
        return self.keys[0].shape[-2] if self.keys else 0


class Network:
    """Hidden states of canvases under one of the three attentions."""

    def __init__(
        self, model: Any, attention: Attention, *, shifted: bool, block: int | None = None
    ) -> None:
        """Wrap a model; `shifted` says that place i is predicted at place i - 1 (Dream), `block` is
        B."""
        self.model, self.attention, self.shifted = model, attention, shifted
        self.block = block if attention == "blocks" else None

    def encode(self, prompts: Sequence[Sequence[int]], model: Any = None) -> Prompts:
        """Cut prompts into what is kept and the rest, and run what is kept through the model
        once."""
        model = model or self.model
        device = model.device
        cuts = [self._cacheable_length(len(prompt)) for prompt in prompts]
        halves = [[prompt[cut:] for prompt, cut in zip(prompts, cuts, strict=True)]]
        halves += [[prompt[:cut] for prompt, cut in zip(prompts, cuts, strict=True)]]
        (rest, there), (ids, seen) = (
            (each.to(device) for each in pad_rows(half)) for half in halves
        )
        kept, lengths = torch.tensor(cuts, device=device), there.sum(1)
        if not any(cuts):
            return Prompts(kept, rest, lengths)
        gathered = BlockCache()
        sees = seen[:, None, None]
        if self.block is not None:
            sees = sees & self._sees_earlier(
                torch.arange(ids.shape[1], device=device).unsqueeze(0)
            ).unsqueeze(1)
        mask = make_additive_mask(sees, model.dtype).expand(-1, -1, ids.shape[1], -1)
        states = model.get_decoder()(
            ids, attention_mask=mask, past_key_values=gathered, use_cache=True
        )
        last = states.last_hidden_state[
            torch.arange(len(prompts), device=device), (kept - 1).clamp_min(0)
        ]
        layers = [gathered.computed[layer] for layer in sorted(gathered.computed)]
        keys, values = tuple(key for key, _ in layers), tuple(value for _, value in layers)
        return Prompts(kept, rest, lengths, keys, values, last)

    def _cacheable_length(self, length: int) -> int:
        """Tokens of a prompt that see nothing of the canvas."""
        if self.block is not None:
            return length // self.block * self.block
        return length if self.attention == "prefix" else 0

    def _sees_earlier(self, positions: Tensor) -> Tensor:
        """[R, Q, Q] bool: which of the tokens at these positions [R, Q] stand in a token's own
        block or before it."""
        assert self.block is not None
        number = positions // self.block
        return number.unsqueeze(1) <= number.unsqueeze(2)

    def hidden(self, prompts: Prompts, canvas: Tensor, model: Any = None) -> Tensor:
        """Hidden states [R, L, H] that predict the places of canvases [R, L], each behind its row's
        prompt."""
        return self._read(prompts, canvas, None, model or self.model)

    def training_hidden(self, prompts: Prompts, canvas: Tensor, clean: Tensor) -> Tensor:
        """The same, each block of the canvas behind the finished blocks before it, which `clean`
        [R, L] holds.

        Without blocks it is `hidden`. With blocks a row is read twice side by side, finished and
        unfinished, as in training (Arriola et al. 2025, arXiv:2503.09573): an unfinished block sees
        itself and the finished ones before.
        """
        return self._read(prompts, canvas, None if self.block is None else clean, self.model)

    def _read(self, prompts: Prompts, canvas: Tensor, clean: Tensor | None, model: Any) -> Tensor:
        """Hidden states [R, L, H] of canvases, behind the finished ones `clean` where such are
        given."""
        places, device = canvas.shape[1], canvas.device
        index = torch.arange(prompts.rest.shape[1] + places, device=device)
        at = prompts.lengths.unsqueeze(1) + index[:places]
        positions = prompts.kept.unsqueeze(1) + index
        own = index < (prompts.lengths + places).unsqueeze(1)  # [R, Q]
        width = prompts.keys[0].shape[-2] if prompts.keys else 0
        past = torch.arange(width, device=device) < prompts.kept.unsqueeze(1)  # [R, N]
        sees = torch.cat([past, own], dim=1).unsqueeze(1)  # [R, 1, keys]
        ids = self._append_canvas(prompts, canvas, at)
        if self.block is not None:
            earlier = self._sees_earlier(positions)
            sees = sees & torch.cat([past.unsqueeze(1).expand(-1, len(index), -1), earlier], dim=2)
            if clean is not None:
                # Queries and keys: the finished copy, then the unfinished one, which sees itself in
                # its own block only.
                same = earlier & earlier.transpose(1, 2)
                before = torch.cat(
                    [
                        past.unsqueeze(1).expand_as(sees[..., :width]),
                        own.unsqueeze(1) & ~same & earlier,
                    ],
                    2,
                )
                upper = torch.cat([sees, torch.zeros_like(earlier)], dim=2)
                sees = torch.cat(
                    [upper, torch.cat([before, own.unsqueeze(1) & same], dim=2)], dim=1
                )
                ids = torch.cat([self._append_canvas(prompts, clean, at), ids], dim=1)
                positions, at = positions.repeat(1, 2), at + len(index)
        mask = make_additive_mask(sees.unsqueeze(1), model.dtype).expand(-1, -1, ids.shape[1], -1)
        cache = BlockCache(prompts.keys, prompts.values) if prompts.keys else None
        states = model.get_decoder()(
            ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=cache is not None,
        ).last_hidden_state
        if not self.shifted:
            return states.gather(1, at.unsqueeze(-1).expand(-1, -1, states.shape[-1]))
        before_it = (at - 1).clamp_min(0).unsqueeze(-1).expand(-1, -1, states.shape[-1])
        result = states.gather(1, before_it)
        if prompts.last is not None:
            alone = (prompts.lengths == 0)[:, None, None] & (index[:places] == 0)[None, :, None]
            result = torch.where(alone, prompts.last.unsqueeze(1), result)
        return result

    def _append_canvas(self, prompts: Prompts, canvas: Tensor, at: Tensor) -> Tensor:
        """Ids [R, Q]: what is left of each prompt, and at the places `at` [R, L] behind it the
        canvas."""
        ids = torch.zeros(
            (len(canvas), prompts.rest.shape[1] + canvas.shape[1]),
            dtype=torch.long,
            device=canvas.device,
        )
        ids[:, : prompts.rest.shape[1]] = prompts.rest
        return ids.scatter(1, at, canvas)
