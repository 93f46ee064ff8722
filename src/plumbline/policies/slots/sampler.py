"""Rounds of planning and filling, for all rows of a chunk at once.

Letters in shapes: P prompts, R rows still running, L places, S slots of k places, m open slots,
n slots filled in a round, H hidden size.

A round (Li et al. 2025, arXiv:2512.13586, made stochastic):

    plan    masks at the places of all open slots are read behind what is settled. A slot's score is the log-probability
            of the best token at its first place, over `position_temperature`; n slots are chosen by Plackett-Luce
            over the scores (or evenly). Where all open slots are filled, nothing is chosen. The masks are forgotten.
    fill    a slot's first token is drawn at its first mask, each next one after the token before it. A token sees the
            prompt, the slots of earlier rounds and its own slot, never the slots beside it.

Keys and values are read once: a round costs k passes, of which the first also reads the masks of
the plan.

The end of an answer, in sampler and scorer alike:

    in a slot       behind an end token the slot is filled with end tokens, without terms;
    of the canvas   a row is done as soon as one of its slots holds an end token and no slot before that one is empty;
                    the slots still empty are then filled with end tokens, without terms. While an earlier slot is
                    empty the rounds go on, and they may fill slots behind the end.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plumbline.policies import plackett_luce
from plumbline.policies.chunks import Chunk
from plumbline.policies.sampling_distribution import check_drawn, uniforms
from plumbline.policies.slots.options import SlotSampling
from plumbline.policies.slots.packing import ALL, PAD, Grid, KeyValues, pad_prompts
from plumbline.policies.token_logprobs import TokenDistributions, draw_tokens, largest_log_prob
from plumbline.records import IntArray, Sampling, Transition

Drawn = tuple[int, IntArray, list[Transition]]
"""A row's number, its finished canvas [L], and the rounds that filled it."""


class _Decoder:
    """What both ways to decode know of the policy."""

    def __init__(self, policy: Any, grid: Grid) -> None:
        self.grid, self.device = grid, policy.device
        self.head, self.mask = policy.model.get_output_embeddings(), policy.mask_id
        self.end = policy.chat.end_of_turn
        self.stops = torch.tensor(policy.chat.stop_ids, device=self.device)

    def _distributions_at(self, hidden_nh: Tensor) -> TokenDistributions:
        """The distributions at hidden states [N, H]."""
        return TokenDistributions(self.head, self.mask, hidden_nh)


class RoundSampler(_Decoder):
    """The rows that still run: their canvases, their context, and the numbers that they have yet to
    use.

    Every row has its own uniform numbers, drawn before the first round, so what it becomes does not
    depend on the rows beside it.
    """

    def __init__(self, policy: Any, chunk: Chunk[SlotSampling], grid: Grid) -> None:
        super().__init__(policy, grid)
        self.chunk, self.sampling = chunk, chunk.sampling
        rows, places = len(chunk.requests), grid.slots * grid.width
        own = chunk.generators()
        self.token_uniforms = uniforms(own, places).to(self.device)
        self.plan_uniforms = uniforms(own, grid.rounds, grid.slots).to(self.device)
        self.canvas = torch.full((rows, places), self.mask, device=self.device)
        self.round_of = torch.full((rows, grid.slots), -1, device=self.device)
        lengths = torch.tensor([len(prompt) for prompt in chunk.prompts], device=self.device)
        # [R, 1]: position of the canvas's first place
        self.start = lengths[chunk.prompt_of.to(self.device)].unsqueeze(1)
        self.context = KeyValues(policy.model, len(chunk.prompts))
        # last tokens of the round before, not yet read
        self.pending: tuple[Tensor, Tensor, Tensor] | None = None
        self.live = torch.arange(rows)
        self.steps: list[list[Transition]] = [[] for _ in range(rows)]

    @torch.no_grad()
    def run(self) -> Iterator[Drawn]:
        """Draw a canvas for each row, and yield it when it is done."""
        counts = self.grid.counts()
        for number, count in enumerate(counts):
            self._fill(number, count, last=number + 1 == len(counts))
            self.chunk.show(self.live.tolist(), self.canvas)
            yield from self._finish()
            if len(self.live) == 0:
                break

    def _fill(self, number: int, count: int, *, last: bool) -> None:
        """One round: plan, draw the chosen slots' tokens place by place, and put them onto the
        canvas."""
        slots_rm = self._open()
        hidden_rmh = self._plan(slots_rm)
        columns_rn, score = self._choose(hidden_rmh, number, count)
        chosen_rn = slots_rm.gather(1, columns_rn)
        width = self.grid.width
        tokens_rnk = torch.full((*chosen_rn.shape, width), self.end, device=self.device)
        logprobs_rnk = torch.zeros(tokens_rnk.shape, device=self.device)
        drawn_rnk = torch.zeros(
            tokens_rnk.shape, dtype=torch.bool, device=self.device
        )  # by the model, not behind an end
        ended_rn = torch.zeros_like(chosen_rn, dtype=torch.bool)
        ask_rnh = hidden_rmh.gather(1, columns_rn.unsqueeze(2).expand(-1, -1, hidden_rmh.shape[2]))
        for place in range(width):
            where_rn = chosen_rn * width + place
            drawn_rnk[:, :, place] = ~ended_rn
            rows = (~ended_rn).flatten()
            uniforms = self.token_uniforms.gather(1, where_rn).flatten()[rows]
            if len(uniforms):
                new, logprob = draw_tokens(
                    self._distributions_at(ask_rnh.flatten(0, 1)[rows]), uniforms, self.sampling
                )
                tokens_rnk[:, :, place][~ended_rn], logprobs_rnk[:, :, place][~ended_rn] = (
                    new,
                    logprob,
                )
            ended_rn = ended_rn | torch.isin(tokens_rnk[:, :, place], self.stops)
            read = (tokens_rnk[:, :, place], self.start + where_rn, chosen_rn)
            if place + 1 < width:
                ask_rnh = self.context.read(*read)
            elif not last:
                self.pending = read
        where_rnk = chosen_rn.unsqueeze(2) * width + torch.arange(width, device=self.device)
        self._record(where_rnk, tokens_rnk, logprobs_rnk, drawn_rnk, score)
        self.round_of.scatter_(1, chosen_rn, number)
        self.canvas.scatter_(1, where_rnk.flatten(1), tokens_rnk.flatten(1))

    def _open(self) -> Tensor:
        """The open slots [R, m], ascending; as many in every row, because rounds are the same for
        all rows."""
        filled = (self.round_of >= 0).cpu().numpy()
        return torch.from_numpy(np.stack([self.grid.open_slots(row) for row in filled])).to(
            self.device
        )

    def _plan(self, slots_rm: Tensor) -> Tensor:
        """Hidden states [R, m, H] of the masks at the first places of `slots_rm` [R, m].

        All open slots' masks are read in order, up to the last one that is asked. The first round's
        plan depends on the prompt alone, so it is read once for all copies, with the prompt.
        """
        width, first = self.grid.width, self.pending is None
        if first:
            prompt_of = self.chunk.prompt_of.to(self.device)
            one_of_each = torch.searchsorted(
                prompt_of, torch.arange(len(self.chunk.prompts), device=self.device)
            )
            slots_rm = slots_rm[one_of_each]
        offsets = torch.arange(width, device=self.device)
        places_rt = (slots_rm.unsqueeze(2) * width + offsets).flatten(1)[
            :, : (slots_rm.shape[1] - 1) * width + 1
        ]
        masks_rt = torch.full_like(places_rt, self.mask)
        tags_rt = torch.full_like(places_rt, ALL)
        start = self.start[one_of_each] if first else self.start
        before = self.pending or pad_prompts(self.chunk.prompts, self.device)
        read = [
            torch.cat(pair, 1)
            for pair in zip(before, (masks_rt, start + places_rt, tags_rt), strict=True)
        ]
        hidden_rmh = self.context.read(*read, drop=masks_rt.shape[1])[
            :, before[0].shape[1] :: width
        ]
        if first:
            self.context.select(prompt_of)
            hidden_rmh = hidden_rmh[prompt_of]
        self.context.settle()
        return hidden_rmh

    def _choose(self, hidden_rmh: Tensor, number: int, count: int) -> tuple[Tensor, Tensor | None]:
        """Which columns [R, n] of the open slots are filled, and the log-probability [R] of that
        choice."""
        rows, open_slots = hidden_rmh.shape[:2]
        if count == open_slots:
            return torch.arange(count, device=self.device).expand(rows, -1), None
        uniforms = self.plan_uniforms[:, number, :open_slots]
        if self.sampling.selector == "random" and not self.sampling.greedy:
            columns_rn = (
                plackett_luce.choose(torch.zeros_like(uniforms), uniforms, count).sort(1).values
            )
            sizes = torch.tensor([[open_slots], [count]]).expand(-1, rows)
            return columns_rn, plackett_luce.even_log_prob(*sizes)
        sampling = Sampling() if self.sampling.greedy else self.sampling
        scores_rm = largest_log_prob(
            self._distributions_at(hidden_rmh.flatten(0, 1)), sampling
        ).view(rows, open_slots)
        if self.sampling.greedy:
            return plackett_luce.choose(scores_rm, None, count), None
        scores_rm = scores_rm / self.sampling.position_temperature
        columns_rn = plackett_luce.choose(scores_rm, uniforms, count)
        return columns_rn, plackett_luce.log_prob(scores_rm, columns_rn)

    def _record(
        self,
        where_rnk: Tensor,
        tokens_rnk: Tensor,
        logprobs_rnk: Tensor,
        drawn_rnk: Tensor,
        score: Tensor | None,
    ) -> None:
        """A `Step` for every row; the state and its history are as they were before the round."""
        places, tokens, logprobs, drawn = (
            part.cpu().numpy() for part in (where_rnk, tokens_rnk, logprobs_rnk, drawn_rnk)
        )
        choice = None if score is None else score.tolist()
        canvas = self.canvas.cpu().numpy()
        history = self.round_of.cpu().numpy().repeat(self.grid.width, axis=1)
        for row, index in enumerate(self.live.tolist()):
            self.steps[index].append(
                Transition(
                    positions=places[row][drawn[row]],
                    tokens=tokens[row][drawn[row]],
                    logprobs=logprobs[row][drawn[row]].astype(np.float32),
                    selection=None if choice is None else choice[row],
                    state=canvas[row].copy(),
                    history=history[row],
                )
            )

    def _finish(self) -> Iterator[Drawn]:
        """Take out the rows that are done, and yield them; their empty slots become end tokens."""
        full = self.round_of >= 0
        stops = torch.isin(self.canvas, self.stops)
        settled = full.long().cumprod(1).bool()  # no slot up to this one is empty
        ended = (stops.view(*full.shape, self.grid.width).any(2) & settled).any(1)
        done = ended | full.all(1)
        if not bool(done.any()):
            return
        places = full.repeat_interleave(self.grid.width, 1)
        finished = self.canvas.masked_fill(~places, self.end)[done].cpu().numpy()
        rows = self.live[done.cpu()].tolist()
        self._keep((~done).nonzero().squeeze(1))
        for index, canvas in zip(rows, finished, strict=True):
            yield index, canvas, self.steps[index]

    def _keep(self, rows: Tensor) -> None:
        """Go on with these rows only."""
        self.live = self.live[rows.cpu()]
        if len(rows) == 0:
            return
        self.token_uniforms, self.plan_uniforms = (
            self.token_uniforms[rows],
            self.plan_uniforms[rows],
        )
        self.canvas, self.round_of, self.start = (
            self.canvas[rows],
            self.round_of[rows],
            self.start[rows],
        )
        if self.pending is not None:
            ids, positions, tags = self.pending
            self.pending = ids[rows], positions[rows], tags[rows]
        self.context.select(rows)


# -- threshold -------------------------------------------------------------------------------------
#
# ReFusion's own decoding: as many slots at once as the model is sure of. For evaluation; it has no
# density.
#
# Letters in shapes: m open slots, n slots of a round, k places of a slot, H hidden size.
#
# A round (Li et al. 2025, arXiv:2512.13586), with one threshold for slots and tokens (the paper
# tunes two):
#
#   plan     one pass over the masks of the block's open slots. Chosen are the slots whose first token has more than the
#            threshold's probability, or else the best one. Their masks' best tokens are their drafts.
#   verify   one pass over the drafts, one behind the other. The longest prefix stays whose tokens the model gives more
#            than the threshold after the tokens before them (a slot's first token always passes: the plan chose it).
#            If it covers whole slots, or holds an end token, these are settled, and the next round begins.
#   fill     else the chosen slots are filled side by side, blind to one another: what has not passed is masked and
#            drafted again behind what has, then verified; in each such pass at least one more token of a slot stays.
#
# An end token settles its slot; the slots behind it are dropped, those before it are still filled.
# What is settled is never read again. One prompt is decoded at a time, because prompts part ways at
# once; copies are equal.


@torch.no_grad()
def decode_by_threshold(policy: Any, chunk: Chunk[SlotSampling], grid: Grid) -> Iterator[Drawn]:
    """Fill a canvas for each prompt of a chunk, and yield it for each of its rows; see
    `RoundSampler`.

    Each settled part of a round is a step.
    """
    row = 0
    for prompt, count in zip(chunk.prompts, chunk.counts, strict=True):
        decoding = _Decoding(policy, prompt, grid, chunk.sampling.threshold)
        while (open_slots := decoding.open_slots()) is not None:
            decoding.round(open_slots)
            chunk.show(range(row, row + count), torch.from_numpy(decoding.canvas).expand(count, -1))
        decoding.canvas[np.repeat(decoding.round_of < 0, grid.width)] = decoding.end
        for _ in range(count):
            yield row, decoding.canvas, decoding.steps
            row += 1


class _Decoding(_Decoder):
    """One canvas while it is filled."""

    def __init__(self, policy: Any, prompt: Sequence[int], grid: Grid, threshold: float) -> None:
        super().__init__(policy, grid)
        self.threshold, self.start = threshold, len(prompt)
        self.canvas = np.full(grid.slots * grid.width, self.mask, dtype=np.int64)
        self.round_of = np.full(grid.slots, -1)
        self.last = grid.slots  # slots from here on lie behind an end token
        self.steps: list[Transition] = []
        self.context = KeyValues(policy.model, 1)
        self._read(torch.tensor(prompt), torch.arange(-self.start, 0), ALL)
        self.context.settle()

    def open_slots(self) -> IntArray | None:
        """The slots of this block that are still to be filled; None when there are no more."""
        filled = self.round_of >= 0
        filled[self.last :] = True
        return None if filled.all() else self.grid.open_slots(filled)

    def round(self, open_slots: IntArray) -> None:
        """Plan, verify, and fill where the verification settled nothing."""
        slots, draft = self._plan(torch.from_numpy(open_slots).to(self.device))
        after = self._read(draft.flatten(), self._places(slots).flatten(), ALL)
        passed = self._passes_threshold(after, draft)
        prefix = int(passed.flatten().long().cumprod(0).sum())
        ends = torch.isin(draft.flatten()[:prefix], self.stops).nonzero()
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
        hidden = self._read(torch.full_like(places.flatten(), self.mask), places.flatten(), ALL)
        self.context.drop(places.numel())
        hidden = hidden.view(*places.shape, -1)
        best, sure = self._best_tokens(hidden[:, 0])
        columns = (sure > self.threshold).nonzero().squeeze(1)
        if len(columns) == 0:
            columns = sure.argmax().unsqueeze(0)
        rest, _ = self._best_tokens(hidden[columns, 1:].flatten(0, 1))
        return open_slots[columns], torch.cat(
            [best[columns].unsqueeze(1), rest.view(len(columns), -1)], 1
        )

    def _fill(self, slots: Tensor, tokens: Tensor, passed: Tensor) -> None:
        """Fill slots [n] side by side, from drafts [n, k] of which a prefix may have passed (bool
        [n, k])."""
        places = self._places(slots)
        tags = slots.unsqueeze(1).expand_as(places)
        while True:
            asking = torch.where(passed, tokens, self.mask)
            hidden = self._read(asking.flatten(), places.flatten(), tags.flatten())
            self.context.drop(places.numel())
            drafted, _ = self._best_tokens(hidden)
            tokens = torch.where(passed, tokens, drafted.view_as(tokens))
            after = self._read(tokens.flatten(), places.flatten(), tags.flatten())
            one_more = torch.cat([torch.ones_like(passed[:, :1]), passed[:, :-1]], 1)
            passed = (self._passes_threshold(after, tokens) | one_more).long().cumprod(1).bool()
            stops = torch.isin(tokens, self.stops) & passed
            # what stands behind an end token does not matter
            passed = passed | stops.cummax(1).values
            if bool(passed.all()):
                break
            self.context.drop(places.numel())
        # Nothing sees what stands behind the first end token: neither its slot's rest, nor the
        # slots after it.
        behind = stops.flatten().long().cumsum(0) - stops.flatten().long() > 0
        self.context.tags[0, -places.numel() :][behind] = PAD
        with_end = stops.any(1).nonzero().flatten()
        self._settle(slots[: int(with_end[0]) + 1] if len(with_end) else slots, tokens)

    def _settle(self, slots: Tensor, tokens: Tensor) -> None:
        """Slots [n'] are full, with the first rows of `tokens` [n, k], of which an end token may
        cut the last short."""
        self.context.settle()
        state, history = self.canvas.copy(), self.round_of.repeat(self.grid.width)
        placed, stops = [], self.stops.tolist()
        for slot, row in zip(slots.tolist(), tokens.tolist(), strict=False):
            ends = [place for place, token in enumerate(row) if token in stops]
            size = ends[0] + 1 if ends else len(row)
            at = slot * self.grid.width
            self.canvas[at : at + self.grid.width] = self.end
            self.canvas[at : at + size] = row[:size]
            self.round_of[slot] = len(self.steps)
            self.last = min(self.last, slot + 1) if ends else self.last
            placed += list(range(at, at + size))
        positions = np.array(placed, dtype=np.int64)
        self.steps.append(
            Transition(
                positions=positions,
                tokens=self.canvas[positions],
                logprobs=np.zeros(len(positions), dtype=np.float32),
                state=state,
                history=history,
            )
        )

    def _places(self, slots: Tensor) -> Tensor:
        """Places [n, k] of slots [n]."""
        return slots.unsqueeze(1) * self.grid.width + torch.arange(
            self.grid.width, device=self.device
        )

    def _read(self, tokens: Tensor, places: Tensor, tags: Tensor | int) -> Tensor:
        """Hidden states [Q, H] of tokens [Q] at places [Q] of the canvas."""
        row = tokens.to(self.device).unsqueeze(0)
        tags = torch.full_like(row, tags) if isinstance(tags, int) else tags.unsqueeze(0)
        return self.context.read(row, self.start + places.to(self.device).unsqueeze(0), tags)[0]

    def _best_tokens(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The most probable tokens [N] and their probabilities [N]."""

        def work(part: TokenDistributions) -> tuple[Tensor, ...]:
            top = part.raw_logits().float().softmax(-1).max(-1)
            return top.indices, top.values

        best, sure = self._distributions_at(hidden).map_slices_jointly(work)
        check_drawn(sure.tolist())
        return best, sure

    def _passes_threshold(self, after: Tensor, tokens: Tensor) -> Tensor:
        """Which of `tokens` [n, k], read with hidden states [n k, H], are probable enough after
        those before them."""

        def work(part: TokenDistributions, wanted: Tensor) -> Tensor:
            return part.raw_logits().float().softmax(-1).gather(1, wanted.unsqueeze(1)).squeeze(1)

        probable = torch.ones_like(tokens, dtype=torch.bool)
        if tokens.shape[1] > 1:
            before = self._distributions_at(after.view(*tokens.shape, -1)[:, :-1].flatten(0, 1))
            probable[:, 1:] = (
                before.map_slices(work, tokens[:, 1:].flatten()).view(len(tokens), -1)
                > self.threshold
            )
        return probable
