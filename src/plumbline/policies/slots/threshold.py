"""ReFusion's own decoding: as many slots at once as the model is sure of. For evaluation; it has no density.

Letters in shapes: m open slots, n slots of a round, k places of a slot, H hidden size.

A round (Li et al. 2025, arXiv:2512.13586), with one threshold for slots and tokens (the paper tunes two):

    plan     one pass over the masks of the block's open slots. Chosen are the slots whose first token has more than the
             threshold's probability, or else the best one. Their masks' best tokens are their drafts.
    verify   one pass over the drafts, one behind the other. The longest prefix stays whose tokens the model gives more
             than the threshold after the tokens before them (a slot's first token always passes: the plan chose it).
             If it covers whole slots, or holds an end token, these are settled, and the next round begins.
    fill     else the chosen slots are filled side by side, blind to one another: what has not passed is masked and
             drafted again behind what has, then verified; in each such pass at least one more token of a slot stays.

An end token settles its slot; the slots behind it are dropped, those before it are still filled. What is settled is
never read again. One prompt is decoded at a time, because prompts part ways at once; copies are equal.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plumbline.policies.chunks import Chunk
from plumbline.policies.places import Places
from plumbline.policies.slots.attention import ALL, PAD, Context
from plumbline.policies.slots.grid import Grid
from plumbline.policies.slots.options import SlotSampling
from plumbline.policies.slots.sampler import Drawn, Ids
from plumbline.policies.token_law import check_drawn
from plumbline.records import Step


@torch.no_grad()
def decide(model: Any, chunk: Chunk[SlotSampling], grid: Grid, ids: Ids) -> Iterator[tuple[int, Drawn]]:
    """Fill a canvas for each prompt of a chunk, and yield it for each of its rows; see `sampler.roll_out`.

    Each settled part of a round is a step.
    """
    row = 0
    for prompt, count in zip(chunk.prompts, chunk.counts, strict=True):
        decoding = _Decoding(model, prompt, grid, chunk.sampling.threshold, ids)
        while (open_slots := decoding.open_slots()) is not None:
            decoding.round(open_slots)
            chunk.show(range(row, row + count), torch.from_numpy(decoding.canvas).expand(count, -1))
        drawn = decoding.result()
        for _ in range(count):
            yield row, drawn
            row += 1


class _Decoding:
    """One canvas while it is filled."""

    def __init__(self, model: Any, prompt: Sequence[int], grid: Grid, threshold: float, ids: Ids) -> None:
        self.grid, self.threshold, self.ids, self.start = grid, threshold, ids, len(prompt)
        self.head = model.get_output_embeddings()
        self.device = model.device
        self.canvas = np.full(grid.slots * grid.width, ids.mask, dtype=np.int64)
        self.round_of = np.full(grid.slots, -1)
        self.last = grid.slots  # slots from here on lie behind an end token
        self.steps: list[Step] = []
        self.context = Context(model, 1)
        self._read(torch.tensor(prompt), torch.arange(-self.start, 0), ALL)
        self.context.settle()

    def open_slots(self) -> NDArray[np.int64] | None:
        """The slots of this block that are still to be filled; None when there are no more."""
        filled = self.round_of >= 0
        filled[self.last :] = True
        return None if filled.all() else self.grid.open_slots(filled)

    def result(self) -> Drawn:
        """The canvas with end tokens behind its answer."""
        self.canvas[np.repeat(self.round_of < 0, self.grid.width)] = self.ids.end
        return Drawn(self.steps, self.canvas)

    def round(self, open_slots: NDArray[np.int64]) -> None:
        """Plan, verify, and fill where the verification settled nothing."""
        slots, draft = self._plan(torch.from_numpy(open_slots).to(self.device))
        after = self._read(draft.flatten(), self._places(slots).flatten(), ALL)
        passed = self._passed(after, draft)
        prefix = int(passed.flatten().long().cumprod(0).sum())
        ends = torch.isin(draft.flatten()[:prefix], torch.tensor(self.ids.stops, device=self.device)).nonzero()
        width = self.grid.width
        keep = int(ends[0]) + 1 if len(ends) else prefix // width * width
        self.context.drop(draft.numel() - keep)
        if keep:
            self._settle(slots[: -(-keep // width)], draft)
        else:
            self._fill(slots, draft, passed.long().cumprod(1).bool())

    def _plan(self, open_slots: Tensor) -> tuple[Tensor, Tensor]:
        """The chosen slots [n], ascending, and their drafts [n, k]."""
        places = self._places(open_slots)
        hidden = self._read(torch.full_like(places.flatten(), self.ids.mask), places.flatten(), ALL)
        self.context.drop(places.numel())
        hidden = hidden.view(*places.shape, -1)
        best, sure = self._best(hidden[:, 0])
        columns = (sure > self.threshold).nonzero().squeeze(1)
        if len(columns) == 0:
            columns = sure.argmax().unsqueeze(0)
        rest, _ = self._best(hidden[columns, 1:].flatten(0, 1))
        return open_slots[columns], torch.cat([best[columns].unsqueeze(1), rest.view(len(columns), -1)], 1)

    def _fill(self, slots: Tensor, tokens: Tensor, passed: Tensor) -> None:
        """Fill slots [n] side by side, from drafts [n, k] of which a prefix may have passed (bool [n, k])."""
        places = self._places(slots)
        tags = slots.unsqueeze(1).expand_as(places)
        while True:
            asking = torch.where(passed, tokens, self.ids.mask)
            hidden = self._read(asking.flatten(), places.flatten(), tags.flatten())
            self.context.drop(places.numel())
            drafted, _ = self._best(hidden)
            tokens = torch.where(passed, tokens, drafted.view_as(tokens))
            after = self._read(tokens.flatten(), places.flatten(), tags.flatten())
            one_more = torch.cat([torch.ones_like(passed[:, :1]), passed[:, :-1]], 1)
            passed = (self._passed(after, tokens) | one_more).long().cumprod(1).bool()
            stops = torch.isin(tokens, torch.tensor(self.ids.stops, device=self.device)) & passed
            passed = passed | stops.cummax(1).values  # what stands behind an end token does not matter
            if bool(passed.all()):
                break
            self.context.drop(places.numel())
        # Nothing sees what stands behind the first end token: neither its slot's rest, nor the slots after it.
        behind = stops.flatten().long().cumsum(0) - stops.flatten().long() > 0
        self.context.tags[0, -places.numel() :][behind] = PAD
        with_end = stops.any(1).nonzero().flatten()
        self._settle(slots[: int(with_end[0]) + 1] if len(with_end) else slots, tokens)

    def _settle(self, slots: Tensor, tokens: Tensor) -> None:
        """Slots [n'] are full, with the first rows of `tokens` [n, k], of which an end token may cut the last short."""
        self.context.settle()
        state, history = self.canvas.copy(), self.round_of.repeat(self.grid.width)
        placed = []
        for slot, row in zip(slots.tolist(), tokens.tolist(), strict=False):
            ends = [place for place, token in enumerate(row) if token in self.ids.stops]
            size = ends[0] + 1 if ends else len(row)
            at = slot * self.grid.width
            self.canvas[at : at + self.grid.width] = self.ids.end
            self.canvas[at : at + size] = row[:size]
            self.round_of[slot] = len(self.steps)
            self.last = min(self.last, slot + 1) if ends else self.last
            placed += list(range(at, at + size))
        positions = np.array(placed, dtype=np.int64)
        self.steps.append(
            Step(
                positions=positions,
                tokens=self.canvas[positions],
                logprobs=np.zeros(len(positions), dtype=np.float32),
                state=state,
                history=history,
            )
        )

    def _places(self, slots: Tensor) -> Tensor:
        """Places [n, k] of slots [n]."""
        return slots.unsqueeze(1) * self.grid.width + torch.arange(self.grid.width, device=self.device)

    def _read(self, tokens: Tensor, places: Tensor, tags: Tensor | int) -> Tensor:
        """Hidden states [Q, H] of tokens [Q] at places [Q] of the canvas."""
        row = tokens.to(self.device).unsqueeze(0)
        tags = torch.full_like(row, tags) if isinstance(tags, int) else tags.unsqueeze(0)
        return self.context.read(row, self.start + places.to(self.device).unsqueeze(0), tags)[0]

    def _best(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The most probable tokens [N] and their probabilities [N]."""

        def work(part: Places) -> tuple[Tensor, ...]:
            top = part.plain().float().softmax(-1).max(-1)
            return top.indices, top.values

        best, sure = self._laws(hidden).several(work)
        check_drawn(sure.tolist())
        return best, sure

    def _passed(self, after: Tensor, tokens: Tensor) -> Tensor:
        """Which of `tokens` [n, k], read with hidden states [n k, H], are probable enough after those before them."""

        def work(part: Places, wanted: Tensor) -> Tensor:
            return part.plain().float().softmax(-1).gather(1, wanted.unsqueeze(1)).squeeze(1)

        probable = torch.ones_like(tokens, dtype=torch.bool)
        if tokens.shape[1] > 1:
            before = self._laws(after.view(*tokens.shape, -1)[:, :-1].flatten(0, 1))
            probable[:, 1:] = before.each(work, tokens[:, 1:].flatten()).view(len(tokens), -1) > self.threshold
        return probable

    def _laws(self, hidden: Tensor) -> Places:
        """The laws at hidden states [N, H]."""
        return Places(self.head, self.ids.mask, hidden)
