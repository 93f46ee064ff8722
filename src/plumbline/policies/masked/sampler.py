"""Denoising: which places, which tokens, step after step; batched over requests.

Letters in shapes: R rows, L places, n places filled in a step.

Each step looks at the hidden places of the present block. The head runs only where the sampling
distribution needs it: at the chosen places where the choice does not depend on the model, at all
hidden places of the block otherwise.

An answer ends at its first end token. Once one stands in a finished block (of the leftmost
selector: anywhere), what is still hidden cannot change the answer: it is filled with end tokens,
and no choice is made or recorded there.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from plumbline.policies import plackett_luce
from plumbline.policies.chunks import Chunk
from plumbline.policies.masked.options import MaskedSampling
from plumbline.policies.masked.scorer import (
    FREE,
    Slice,
    free_log_prob,
    selection_log_prob,
    threshold_draw,
    threshold_log_prob,
)
from plumbline.policies.sampling_distribution import check_drawn, draw, uniforms
from plumbline.policies.token_logprobs import (
    TokenDistributions,
    draw_with_confidence,
    largest_log_prob,
    log_confidence,
)
from plumbline.records import IntArray, Transition

# -- filling ---------------------------------------------------------------------------------------
#
# One denoising step of several rows, as the samplers of this family make it.
#
# Letters in shapes: R rows, L places, n places filled in a step, Q places looked at.

Settled = Callable[[Tensor, Tensor, float], TokenDistributions]
"""From canvases [R, L], the places to look at [R, L] (bool) and the time to the distributions of
these places, row by row."""


@dataclass(frozen=True, slots=True, eq=False)
class Filling:
    """One step of every row, on the CPU."""

    order: Tensor  # [R, n]: the filled places, of which a row's first `counts` count
    counts: Tensor  # [R]
    tokens: Tensor  # [R, L]
    logprobs: Tensor  # [R, L]
    selection: Tensor | None  # [R]

    def step(self, row: int, canvas: Tensor, time: float) -> Transition:
        """The record of a row's step, that began at `time` with `canvas` [L]."""
        positions = self.order[row, : int(self.counts[row])]
        return Transition(
            positions=positions.numpy(),
            tokens=self.tokens[row, positions].numpy(),
            logprobs=self.logprobs[row, positions].numpy(),
            selection=None if self.selection is None else float(self.selection[row]),
            state=canvas.numpy().copy(),
            time=time,
        )


def spread(values: Tensor, at_rl: Tensor, fill: float = float("-inf")) -> Tensor:
    """Values [Q] at some places, row by row, as [R, L] on the CPU, in float32 or whole; `fill`
    elsewhere."""
    values = values.float().cpu() if values.is_floating_point() else values.cpu()
    return torch.full(at_rl.shape, fill, dtype=values.dtype).masked_scatter(at_rl, values)


def _mark_chosen(order_rn: Tensor, eligible_rl: Tensor) -> Tensor:
    """Chosen places [R, n] as bool [R, L]."""
    return torch.zeros_like(eligible_rl).scatter(1, order_rn, value=True)


def _ascending(chosen_rl: Tensor) -> tuple[Tensor, Tensor]:
    """Chosen places [R, L] (bool) as [R, n], ascending, and how many each row has [R]."""
    counts = chosen_rl.sum(1)
    width = int(counts.max()) if len(counts) else 0
    return (~chosen_rl).to(torch.int8).sort(dim=1, stable=True).indices[:, :width], counts


ReadDistributions = Callable[[Tensor, Tensor, Tensor, float], TokenDistributions]
"""From the numbers of rows [A], their canvases [A, L], the places to look at [A, L] (bool) and the
time to the distributions of these places, row by row."""
Denoised = tuple[int, IntArray, list[Transition]]
"""A row's number, its canvas [L], and the steps that filled it."""


@torch.no_grad()
def denoise(
    read_distributions: ReadDistributions,
    chunk: Chunk[MaskedSampling],
    pieces: Sequence[Slice],
    mask_id: int,
    ends: Sequence[int],
) -> Iterator[Denoised]:
    """Fill a canvas for each row of a chunk from nothing, and yield it when its last block is
    finished.

    Args:
        read_distributions: the model.
        chunk: its sampling distribution is greedy where its temperature is 0.
        pieces: the sampling distribution's steps.
        mask_id: the token of a hidden place.
        ends: tokens that end an answer; what is behind an ended one is filled with the first.
    """
    sampling, own, rows = chunk.sampling, chunk.generators(), len(chunk.requests)
    places = sampling.max_tokens
    canvas_rl = torch.full((rows, places), mask_id, dtype=torch.long)
    hidden_rl = canvas_rl == mask_id
    unfinished = torch.ones((rows,), dtype=torch.bool)
    stops = torch.tensor(ends, dtype=torch.long)
    steps: list[list[Transition]] = [[] for _ in range(rows)]
    for piece in pieces:
        eligible_rl = hidden_rl.clone()
        eligible_rl[:, : piece.start] = False
        eligible_rl[:, piece.end :] = False
        active = eligible_rl.any(1).nonzero().flatten()
        if len(active):
            numbers_ru = uniforms([own[row] for row in active.tolist()], 2 * places + 1)
            look, canvas_al, eligible_al = (
                partial(read_distributions, active),
                canvas_rl[active],
                eligible_rl[active],
            )
            filling = _step(look, canvas_al, eligible_al, piece, sampling, numbers_ru)
            for index, row in enumerate(active.tolist()):
                step = filling.step(index, canvas_rl[row], piece.time)
                steps[row].append(step)
                positions = torch.from_numpy(step.positions)
                canvas_rl[row, positions] = torch.from_numpy(step.tokens)
                hidden_rl[row] = canvas_rl[row] == mask_id
            chunk.show(active.tolist(), canvas_rl[active])
        if piece.last or sampling.selector == "leftmost":
            behind_rl = hidden_rl & torch.isin(canvas_rl[:, : piece.end], stops).any(
                1, keepdim=True
            )
            canvas_rl[behind_rl] = ends[0]
            hidden_rl[behind_rl] = False
            finished = unfinished & ~hidden_rl.any(1)
            unfinished &= ~finished
            for row in finished.nonzero().flatten().tolist():
                yield row, canvas_rl[row].numpy().copy(), steps[row]


def _step(
    read_distributions: Settled,
    canvas_rl: Tensor,
    eligible_rl: Tensor,
    piece: Slice,
    sampling: MaskedSampling,
    uniforms_ru: Tensor,
) -> Filling:
    places = canvas_rl.shape[1]
    for_places_rl, for_tokens_rl = uniforms_ru[:, :places], uniforms_ru[:, places : 2 * places]
    selector = sampling.selector
    if sampling.greedy and selector != "leftmost":
        return _greedy(read_distributions, canvas_rl, eligible_rl, piece, sampling)
    if selector in FREE:
        selection = None
        if selector == "leftmost":
            chosen_rl = eligible_rl & (eligible_rl.cumsum(1) <= piece.count)
        elif selector == "random":
            order_rn = plackett_luce.choose(
                for_places_rl.masked_fill(~eligible_rl, -1.0), None, piece.count
            )
            chosen_rl = _mark_chosen(order_rn, eligible_rl)
        else:
            chosen_rl = eligible_rl if piece.last else eligible_rl & (for_places_rl < piece.share)
        if selector != "leftmost":
            selection = free_log_prob(eligible_rl, chosen_rl, [piece] * len(canvas_rl), sampling)
        return _fill(
            read_distributions(canvas_rl, chosen_rl, piece.time),
            chosen_rl,
            for_tokens_rl,
            sampling,
            selection,
        )

    distributions = read_distributions(canvas_rl, eligible_rl, piece.time)
    if selector == "low_confidence":
        return _keep_most_confident(distributions, eligible_rl, piece, sampling, for_tokens_rl)
    best_rl = spread(largest_log_prob(distributions, sampling), eligible_rl)
    if selector == "threshold":
        threshold_and_temperature = (sampling.threshold, sampling.position_temperature)
        confidence_rl = best_rl.exp()
        chosen_rl = eligible_rl
        if not piece.last:
            chosen_rl = threshold_draw(
                confidence_rl,
                eligible_rl,
                threshold_and_temperature,
                torch.cat([for_places_rl, uniforms_ru[:, -1:]], 1),
            )
        # In a block's last step everything that is left is filled, whatever the model thinks: no
        # choice, no term.
        passed = (
            None
            if piece.last
            else threshold_log_prob(
                confidence_rl, eligible_rl, threshold_and_temperature, chosen_rl
            )
        )
        return _fill(
            distributions[chosen_rl[eligible_rl].to(distributions.hidden.device)],
            chosen_rl,
            for_tokens_rl,
            sampling,
            passed,
        )
    scores_rl = best_rl / sampling.position_temperature
    order_rn = plackett_luce.choose(scores_rl, for_places_rl, piece.count)
    if selector == "plackett_luce":
        selection = plackett_luce.log_prob(scores_rl, order_rn)
    else:
        order_rn = order_rn.sort(1).values
        selection = plackett_luce.set_log_prob(scores_rl, _mark_chosen(order_rn, eligible_rl))
    device, index_rl = (
        distributions.hidden.device,
        spread(torch.arange(len(distributions)), eligible_rl, -1),
    )
    picked = distributions[index_rl.gather(1, order_rn).flatten().to(device)]
    drawn = draw(picked.logits(), for_tokens_rl.gather(1, order_rn).flatten().to(device), sampling)
    tokens_rn, logprobs_rn = (part.cpu().view_as(order_rn) for part in drawn)
    tokens_rl = order_rn.new_zeros(eligible_rl.shape).scatter(1, order_rn, tokens_rn)
    logprobs_rl = torch.zeros(eligible_rl.shape).scatter(1, order_rn, logprobs_rn)
    counts = torch.full((len(order_rn),), order_rn.shape[1])
    return Filling(order_rn, counts, tokens_rl, logprobs_rl, selection)


def _fill(
    distributions: TokenDistributions,
    chosen_rl: Tensor,
    uniforms_rl: Tensor,
    sampling: MaskedSampling,
    selection: Tensor | None,
) -> Filling:
    """Draw a token for every chosen place; `distributions` are theirs, row by row."""
    tokens, logprobs = draw(
        distributions.logits(), uniforms_rl[chosen_rl].to(distributions.hidden.device), sampling
    )
    return Filling(
        *_ascending(chosen_rl), spread(tokens, chosen_rl, 0), spread(logprobs, chosen_rl), selection
    )


def _keep_most_confident(
    distributions: TokenDistributions,
    eligible_rl: Tensor,
    piece: Slice,
    sampling: MaskedSampling,
    uniforms_rl: Tensor,
) -> Filling:
    """A token for every hidden place; the most confident ones stay."""
    tokens, logprobs, sure = draw_with_confidence(
        distributions, uniforms_rl[eligible_rl].to(distributions.hidden.device), sampling
    )
    chosen_rl = _mark_chosen(
        plackett_luce.choose(spread(sure, eligible_rl), None, piece.count), eligible_rl
    )
    order_rn, counts = _ascending(chosen_rl)
    tokens_rl = spread(tokens, eligible_rl, 0)
    selection = selection_log_prob(
        distributions, eligible_rl, chosen_rl, order_rn, tokens_rl.gather(1, order_rn), sampling
    )
    return Filling(order_rn, counts, tokens_rl, spread(logprobs, eligible_rl), selection.cpu())


def _greedy(
    read_distributions: Settled,
    canvas_rl: Tensor,
    eligible_rl: Tensor,
    piece: Slice,
    sampling: MaskedSampling,
) -> Filling:
    """The most probable tokens at the most confident places; nothing is drawn and nothing has a
    probability."""
    distributions = read_distributions(canvas_rl, eligible_rl, piece.time)
    tokens = distributions.map_slices(lambda part: part.raw_logits().argmax(-1))
    confidence = log_confidence(distributions, tokens)
    check_drawn(confidence.tolist())
    confidence_rl = spread(confidence, eligible_rl)
    count, sure_rl = piece.count, torch.zeros_like(eligible_rl)
    if sampling.selector in {"ancestral", "threshold"}:
        left = int(eligible_rl.sum(1).max())
        count = left if piece.last else round(piece.share * left)
    if sampling.selector == "threshold" and not piece.last:
        count, sure_rl = 1, eligible_rl & (confidence_rl > math.log(sampling.threshold))
    best_rl = (
        _mark_chosen(plackett_luce.choose(confidence_rl, None, count), eligible_rl) & eligible_rl
    )
    chosen_rl = torch.where(sure_rl.any(1, keepdim=True), sure_rl, best_rl)
    return Filling(
        *_ascending(chosen_rl), spread(tokens, eligible_rl, 0), torch.zeros(eligible_rl.shape), None
    )
