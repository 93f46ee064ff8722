"""Denoising: which places, which tokens, step after step; batched over requests.

Letters in shapes: R rows, L places, n places filled in a step.

Each step looks at the hidden places of the present block. The head runs only where the law needs it: at the chosen
places where the choice does not depend on the model, at all hidden places of the block otherwise.

An answer ends at its first end token. Once one stands in a finished block (of the leftmost selector: anywhere), what is
still hidden cannot change the answer: it is filled with end tokens, and no choice is made or recorded there.
"""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plumbline.policies import plackett_luce
from plumbline.policies.chunks import Chunk
from plumbline.policies.draws import uniforms
from plumbline.policies.masked import selectors
from plumbline.policies.masked.options import MaskedSampling
from plumbline.policies.masked.schedule import Slice, slices
from plumbline.policies.masked.scorer import free_log_prob, selection_log_prob
from plumbline.policies.places import Places, draw_with_confidence, largest_log_prob, log_confidence
from plumbline.policies.token_law import draw
from plumbline.records import Step

LawOf = Callable[[Tensor, Tensor, Tensor, float], Places]
"""From the numbers of rows [A], their canvases [A, L], the places to look at [A, L] (bool) and the time to the laws of
these places, row by row."""
Settled = Callable[[Tensor, Tensor, float], Places]
"""The same for rows that are settled."""


Denoised = tuple[int, NDArray[np.int64], list[Step]]
"""A row's number, its canvas [L], and the steps that filled it."""


@torch.no_grad()
def denoise(
    law_of: LawOf, chunk: Chunk[MaskedSampling], mask_id: int, stop_ids: Collection[int], end: int
) -> Iterator[Denoised]:
    """Fill a canvas for each row of a chunk from nothing, and yield it when its last block is finished.

    Args:
        law_of: the model.
        chunk: its law is greedy where its temperature is 0.
        mask_id: the token of a hidden place.
        stop_ids: tokens that end an answer.
        end: the token that blocks behind an ended answer are filled with.
    """
    sampling, own, rows = chunk.sampling, chunk.generators(), len(chunk.requests)
    places = sampling.max_tokens
    canvas = torch.full((rows, places), mask_id, dtype=torch.long)
    hidden = torch.ones((rows, places), dtype=torch.bool)
    unfinished = torch.ones((rows,), dtype=torch.bool)
    stops = torch.tensor(sorted(stop_ids), dtype=torch.long)
    steps: list[list[Step]] = [[] for _ in range(rows)]
    for piece in slices(sampling):
        eligible = hidden.clone()
        eligible[:, : piece.start] = False
        eligible[:, piece.end :] = False
        active = eligible.any(1).nonzero().flatten()
        if len(active):
            numbers = uniforms([own[row] for row in active.tolist()], 2 * places + 1)
            filling = _step(partial(law_of, active), canvas[active], eligible[active], piece, sampling, numbers)
            for index, row in enumerate(active.tolist()):
                step = filling.step(index, canvas[row], piece.time)
                steps[row].append(step)
                positions = torch.from_numpy(step.positions)
                canvas[row, positions] = torch.from_numpy(step.tokens)
                hidden[row, positions] = False
        if piece.last or sampling.selector == "leftmost":
            behind = hidden & torch.isin(canvas[:, : piece.end], stops).any(1, keepdim=True)
            canvas[behind] = end
            hidden[behind] = False
            finished = unfinished & ~hidden.any(1)
            unfinished &= ~finished
            for row in finished.nonzero().flatten().tolist():
                yield row, canvas[row].numpy().copy(), steps[row]


@dataclass(frozen=True, slots=True, eq=False)
class _Filling:
    """One step of every row, on the CPU; a row's first `counts` columns count."""

    positions: Tensor  # [R, n]
    tokens: Tensor  # [R, n]
    logprobs: Tensor  # [R, n]
    counts: Tensor  # [R]
    selection: Tensor | None  # [R]

    def step(self, row: int, canvas: Tensor, time: float) -> Step:
        """The record of a row's step, that began at `time` with `canvas` [L]."""
        count = int(self.counts[row])
        return Step(
            positions=self.positions[row, :count].numpy(),
            tokens=self.tokens[row, :count].numpy(),
            logprobs=self.logprobs[row, :count].numpy(),
            selection=None if self.selection is None else float(self.selection[row]),
            state=canvas.numpy().copy(),
            time=time,
        )


def _step(
    law_of: Settled, canvas: Tensor, eligible: Tensor, piece: Slice, sampling: MaskedSampling, uniforms: Tensor
) -> _Filling:
    places = canvas.shape[1]
    for_places, for_tokens = uniforms[:, :places], uniforms[:, places : 2 * places]
    selector = sampling.selector
    if selector == "leftmost":
        chosen = eligible & (eligible.cumsum(1) <= piece.count)
        return _fill(law_of(canvas, chosen, piece.time), chosen, for_tokens, sampling, None)
    if sampling.greedy:
        return _greedy(law_of, canvas, eligible, piece, sampling)
    if selector in {"random", "ancestral"}:
        if selector == "random":
            order = plackett_luce.choose(for_places.masked_fill(~eligible, -1.0), None, piece.count)
            chosen = torch.zeros_like(eligible).scatter(1, order, value=True)
        else:
            chosen = eligible if piece.last else eligible & (for_places < piece.share)
        selection = free_log_prob(eligible, chosen, [piece] * len(canvas), sampling)
        return _fill(law_of(canvas, chosen, piece.time), chosen, for_tokens, sampling, selection)

    laws = law_of(canvas, eligible, piece.time)
    if selector == "low_confidence":
        return _keep_most_confident(laws, eligible, piece, sampling, for_tokens)
    best = _spread(largest_log_prob(laws, sampling), eligible)
    if selector == "threshold":
        law = (sampling.threshold, sampling.position_temperature)
        confidence = best.exp()
        chosen = eligible
        if not piece.last:
            chosen = selectors.threshold_draw(confidence, eligible, law, torch.cat([for_places, uniforms[:, -1:]], 1))
        # In a block's last step everything that is left is filled, whatever the model thinks: no choice, no term.
        passed = None if piece.last else selectors.threshold_log_prob(confidence, eligible, law, chosen)
        return _fill(laws[chosen[eligible].to(laws.hidden.device)], chosen, for_tokens, sampling, passed)
    scores = best / sampling.position_temperature
    order = plackett_luce.choose(scores, for_places, piece.count)
    if selector == "plackett_luce":
        selection = plackett_luce.log_prob(scores, order)
    else:
        order = order.sort(1).values
        selection = plackett_luce.set_log_prob(scores, torch.zeros_like(eligible).scatter(1, order, value=True))
    return _fill_ordered(laws, eligible, order, for_tokens, sampling, selection)


def _spread(values: Tensor, eligible: Tensor) -> Tensor:
    """Values [Q] at the eligible places, row by row, as [R, L] on the CPU; minus infinity elsewhere."""
    dense = torch.full(eligible.shape, float("-inf"), dtype=torch.float32)
    dense[eligible] = values.float().cpu()
    return dense


def _fill(
    laws: Places, chosen: Tensor, uniforms: Tensor, sampling: MaskedSampling, selection: Tensor | None
) -> _Filling:
    """Draw a token for every chosen place; `laws` are theirs, row by row."""
    counts = chosen.sum(1)
    width = int(counts.max()) if len(counts) else 0
    tokens, logprobs = draw(laws.logits(), uniforms[chosen].to(laws.hidden.device), sampling)
    column = (chosen.cumsum(1) - 1)[chosen]
    row = chosen.nonzero()[:, 0]
    shape = (len(chosen), width)
    positions = torch.zeros(shape, dtype=torch.long).index_put((row, column), chosen.nonzero()[:, 1])
    return _Filling(
        positions,
        torch.zeros(shape, dtype=torch.long).index_put((row, column), tokens.cpu()),
        torch.zeros(shape).index_put((row, column), logprobs.cpu()),
        counts,
        selection,
    )


def _fill_ordered(
    laws: Places, eligible: Tensor, order: Tensor, uniforms: Tensor, sampling: MaskedSampling, selection: Tensor
) -> _Filling:
    """Draw tokens for places [R, n] in a given order."""
    index = torch.full(eligible.shape, -1, dtype=torch.long)
    index[eligible] = torch.arange(len(laws))
    picked = laws[index.gather(1, order).flatten().to(laws.hidden.device)]
    tokens, logprobs = draw(picked.logits(), uniforms.gather(1, order).flatten().to(laws.hidden.device), sampling)
    counts = torch.full((len(order),), order.shape[1])
    return _Filling(order, tokens.cpu().view_as(order), logprobs.cpu().view_as(order), counts, selection)


def _keep_most_confident(
    laws: Places, eligible: Tensor, piece: Slice, sampling: MaskedSampling, uniforms: Tensor
) -> _Filling:
    """A token for every hidden place; the most confident ones stay."""
    tokens, logprobs, sure = draw_with_confidence(laws, uniforms[eligible].to(laws.hidden.device), sampling)
    confidence = _spread(sure, eligible)
    order = plackett_luce.choose(confidence, None, piece.count).sort(1).values
    chosen = torch.zeros_like(eligible).scatter(1, order, value=True)
    drawn = torch.zeros(eligible.shape, dtype=torch.long).index_put(tuple(eligible.nonzero().T), tokens.cpu())
    told = torch.zeros(eligible.shape).index_put(tuple(eligible.nonzero().T), logprobs.cpu())
    selection = selection_log_prob(laws, eligible, chosen, order, drawn.gather(1, order), sampling)
    counts = torch.full((len(order),), order.shape[1])
    return _Filling(order, drawn.gather(1, order), told.gather(1, order), counts, selection.cpu())


def _greedy(law_of: Settled, canvas: Tensor, eligible: Tensor, piece: Slice, sampling: MaskedSampling) -> _Filling:
    """The most probable tokens at the most confident places; nothing is drawn and nothing has a probability."""
    laws = law_of(canvas, eligible, piece.time)
    tokens = laws.each(lambda part: part.plain().argmax(-1))
    confidence = _spread(log_confidence(laws, tokens), eligible)
    if sampling.selector == "threshold" and not piece.last:
        chosen = eligible & (confidence > math.log(sampling.threshold))
        best = torch.zeros_like(eligible).scatter(1, plackett_luce.choose(confidence, None, 1), value=True) & eligible
        chosen = torch.where(chosen.any(1, keepdim=True), chosen, best)
    else:
        count = piece.count
        if sampling.selector in {"ancestral", "threshold"}:
            count = int(eligible.sum(1).max()) if piece.last else round(piece.share * int(eligible.sum(1).max()))
        chosen = (
            torch.zeros_like(eligible).scatter(1, plackett_luce.choose(confidence, None, count), value=True) & eligible
        )
    picked = torch.zeros(eligible.shape, dtype=torch.long).index_put(tuple(eligible.nonzero().T), tokens.cpu())
    counts = chosen.sum(1)
    width = int(counts.max())
    order = (~chosen).to(torch.int8).sort(dim=1, stable=True).indices[:, :width]
    return _Filling(order, picked.gather(1, order), torch.zeros(order.shape), counts, None)
