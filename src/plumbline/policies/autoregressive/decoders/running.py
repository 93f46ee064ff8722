"""The lean decoder's layers over rows that come and go: each row's keys and values in one block of its own.

Letters in shapes: P prompts, R rows, K key-value heads, Q query heads for each of those, D head size, L longest
prompt, C positions that a block has, S positions that a step reads, V vocabulary, H hidden size.

`decoders.lean` draws a group: its rows begin together, and a prompt is held once for all its copies. Here rows begin
and end one by one, so a row is a block [K, C, D] of keys and one of values, filled up to the row's own length; a step
reads as far as the longest row and hides what stands behind a row's end. A row that ends gives its place to the last.
Keys are held as [K, D, C]: with 16 bits on a CPU the product with a query takes a third of the time of [K, C, D].

On a GPU steps are launched one by one, without graphs: blocks grow, and rows change at almost every step.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from plumbline.policies.autoregressive.decoders import threads_for
from plumbline.policies.autoregressive.decoders.graphs import bucket
from plumbline.policies.autoregressive.decoders.lean import LeanDecoder
from plumbline.policies.pretrained.inputs import LANES, by_onednn, padded, round_up

GROWTH = 128
"""Positions by which blocks grow: all are copied then, which costs about as much as a step."""


class Reading:
    """Prompts that are read together, so many tokens at a time that those who wait for a step do not wait long."""

    def __init__(self, lean: LeanDecoder, prompts: Sequence[Sequence[int]], tokens: int) -> None:
        """Take prompts, and about how many tokens of all of them one pass reads."""
        self.lean = lean
        ids, there = padded(prompts, rounded=by_onednn(lean.model))
        self.ids, self.lengths = ids.to(lean.model.device), there.sum(1)  # [P, L]; [P], on the CPU
        self.piece = max(LANES, tokens // len(prompts) // LANES * LANES)
        self.at = 0
        self.hidden: list[Tensor] = [torch.empty(0)] * len(prompts)
        self.cache: Any = None

    @torch.no_grad()
    def advance(self) -> bool:
        """Read a piece; True when that was the last."""
        piece = self.ids[:, self.at : self.at + self.piece]
        output = self.lean.read(piece, self.cache)
        self.cache = output.past_key_values
        for row, place in enumerate((self.lengths - 1 - self.at).tolist()):
            if 0 <= place < piece.shape[1]:
                self.hidden[row] = output.last_hidden_state[row, place]
        self.at += piece.shape[1]
        return self.at == self.ids.shape[1]


class RunningDecoder:
    """Rows that come (`append`), are given a token each (`step`), and go (`drop`)."""

    def __init__(self, model: Any) -> None:
        """Take a model that the lean decoder fits.

        Raises:
            ValueError: it does not.
        """
        self.lean = lean = LeanDecoder(model)
        self.rounded = by_onednn(model)
        self.lengths: list[int] = []  # positions of each row that its block holds
        shape = (len(lean.layers), 0, lean.kv_heads)
        self.keys = torch.zeros((*shape, lean.head_size, 0), dtype=model.dtype, device=model.device)
        self.values = torch.zeros((*shape, 0, lean.head_size), dtype=model.dtype, device=model.device)
        self.rope = lean.rotary(1)

    @torch.no_grad()
    def append(self, read: Reading, prompts: Sequence[int]) -> None:
        """A row more for each number of a prompt that was read to its end."""
        first, lengths = len(self.lengths), read.lengths.tolist()
        wanted = [*self.lengths, *(lengths[prompt] for prompt in prompts)]
        self._fit(len(wanted), max(wanted))
        for index, layer in enumerate(read.cache.layers):
            for row, prompt in enumerate(prompts, first):
                length = lengths[prompt]
                self.keys[index, row, :, :, :length] = layer.keys[prompt, :, :length].transpose(-1, -2)
                self.values[index, row, :, :length] = layer.values[prompt, :, :length]
        self.lengths = wanted

    @torch.no_grad()
    def drop(self, row: int) -> None:
        """Let a row go; the last one takes its number."""
        length = self.lengths.pop()
        if row < len(self.lengths):
            last = len(self.lengths)
            self.keys[:, row, ..., :length] = self.keys[:, last, ..., :length]
            self.values[:, row, :, :length] = self.values[:, last, :, :length]
            self.lengths[row] = length

    def _fit(self, rows: int, length: int) -> None:
        """See that blocks for so many rows of so many positions are there, and not many more."""
        rows, length = bucket(rows), round_up(length, GROWTH)
        held = self.keys.shape[1], self.keys.shape[4]
        if rows <= held[0] and length <= held[1] and 4 * rows * length > held[0] * held[1]:
            return
        layers, _, heads, size, _ = self.keys.shape
        count, longest = len(self.lengths), min(max(self.lengths, default=0), length)
        keys = self.keys.new_zeros((layers, rows, heads, size, length))
        keys[:, :count, ..., :longest] = self.keys[:, :count, ..., :longest]
        values = self.values.new_zeros((layers, rows, heads, length, size))
        values[:, :count, :, :longest] = self.values[:, :count, :, :longest]
        self.keys, self.values, self.rope = keys, values, self.lean.rotary(length)  # all, or none where memory is short

    @torch.no_grad()
    def step(self, tokens: Tensor) -> Tensor:
        """Append `tokens` [R]; the hidden states [R, H] behind them, for `logits_of`."""
        longest = max(self.lengths) + 1
        self._fit(len(self.lengths), longest)
        span = min(round_up(longest, LANES) if self.rounded else longest, self.values.shape[3])
        config = self.lean.model.config
        with threads_for(len(tokens) * config.hidden_size * config.intermediate_size):  # of the largest product
            hidden = self._forward(tokens, span)
        self.lengths = [length + 1 for length in self.lengths]
        return hidden

    def _forward(self, tokens: Tensor, span: int) -> Tensor:
        lean, count, device = self.lean, len(tokens), tokens.device
        lengths = torch.tensor(self.lengths, device=device)
        rope = self.rope[lengths].unbind(1)  # [R, D] each
        cos, sin = rope[0][:, None, None, None], rope[1][:, None, None, None]
        hides = torch.arange(span, device=device) > lengths.unsqueeze(1)
        bias = torch.zeros(hides.shape, dtype=self.keys.dtype, device=device).masked_fill_(hides, float("-inf"))
        bias = bias[:, None, None]  # [R, 1, 1, S]
        rows = torch.arange(count, device=device)

        def attend(index: int, normed: Tensor) -> Tensor:
            query, key, value = (each.squeeze(1) for each in lean.states(index, normed, (cos, sin), (count, 1)))
            keys, values = self.keys[index], self.values[index]
            keys[rows, :, :, lengths] = key.squeeze(2)
            values[rows, :, lengths] = value.squeeze(2)
            scores = query @ keys[:count, ..., :span]  # [R, K, Q, S]
            weights = scores.add_(bias).softmax(-1)  # summed in float32
            mixed = weights @ values[:count, :, :span]
            return lean.projections[index]["out"](mixed.view(count, -1))[0]

        return lean.through(tokens, attend)
