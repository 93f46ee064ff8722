"""The decoding loop: draw, append, drop what is finished.

Letters in shapes: P prompts, G copies, R rows, C token limit.

Every row has its own uniform numbers, drawn before the loop by its own request's generator, so a row's tokens do not
depend on which other rows run beside it: dropping finished rows changes the speed and not the result.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plumbline.policies.autoregressive.decoders import Decoder, threads_for
from plumbline.policies.chunks import Chunk
from plumbline.policies.draws import uniforms
from plumbline.policies.policy import Constraint, LiveRequest
from plumbline.policies.token_law import check_drawn, draw
from plumbline.records import Sampling


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """One completion: its tokens with their log-probabilities, and whether the model ended it."""

    tokens: list[int]
    logprobs: list[float]
    stopped: bool


def decode(
    decoder: Decoder, chunk: Chunk[Sampling], stop_ids: Sequence[int], device: torch.device
) -> Iterator[tuple[int, Drawn]]:
    """Draw a completion for each row of a chunk, and yield it with the row's number soon after it has ended.

    What a `LiveRequest` constrains is drawn from the distribution that is left. One that is `gone` yields nothing.

    Args:
        decoder: the engine.
        chunk: its prompts and its law's `max_tokens` fit into the model's context.
        stop_ids: tokens that end a completion (the token itself is part of it).
        device: where the decoder's tensors are.

    Raises:
        ModelError: the model's logits are NaN or infinite.
    """
    sampling, num_rows, limit = chunk.sampling, len(chunk.requests), chunk.sampling.max_tokens
    # One row more than there are completions: cells of the grid that draw nothing, or nothing any more, write there.
    numbers_rc = torch.cat([uniforms(chunk.generators(), limit), torch.zeros((1, limit), dtype=torch.float64)]).to(
        device
    )
    tokens_rc = torch.zeros((num_rows + 1, limit), dtype=torch.long, device=device)
    logprobs_rc = torch.zeros((num_rows + 1, limit), dtype=torch.float32, device=device)
    length = torch.full((num_rows + 1,), limit, dtype=torch.long, device=device)
    stops = torch.tensor(list(stop_ids), device=device)
    grid = chunk.grid.to(device)  # which completion a cell draws
    live, running = grid < num_rows, num_rows
    untold = torch.ones((num_rows,), dtype=torch.bool, device=device)
    waited = {row: each for row, each in enumerate(chunk.requests) if isinstance(each, LiveRequest)}
    constraints = {row: each.constraint for row, each in waited.items() if each.constraint is not None}
    for constraint in constraints.values():
        constraint.begin()

    def ended(now: int) -> Iterator[tuple[int, Drawn]]:
        """The completions that ended by now and were not yielded before."""
        rows = (untold & (length[:-1] <= now)).nonzero().flatten()
        untold[rows] = False
        found = zip(*(each[rows].tolist() for each in (tokens_rc, logprobs_rc, length)), strict=True)
        for row, (tokens, logprobs, end) in zip(rows.tolist(), found, strict=True):
            check_drawn(logprobs[:end])
            yield row, Drawn(tokens[:end], logprobs[:end], stopped=tokens[end - 1] in stop_ids)

    # Asking a GPU whether rows are finished makes it wait, so there it is asked every 16 tokens only.
    interval = 1 if device.type == "cpu" else 16
    logits = decoder.begin(chunk.prompts, grid.shape[1], limit, chunk.shared).repeat_interleave(grid.shape[1], 0)
    for time in range(limit):
        cells = grid.flatten()
        held: dict[int, Constraint] = {}
        if constraints:
            places = zip(cells.tolist(), live.flatten().tolist(), strict=True)
            held = {at: constraints[row] for at, (row, runs) in enumerate(places) if runs and row in constraints}
        if held:
            logits = _restricted(decoder, logits, held)
        with threads_for(logits.numel() * 16):  # an exponential costs about as much as 16 multiplications
            tokens, logprobs = draw(logits, numbers_rc[cells, time], sampling)
        for cell, constraint in held.items():
            constraint.accept(int(tokens[cell]))
        tokens_rc[cells, time], logprobs_rc[cells, time] = tokens, logprobs  # past its end a row's columns are unread
        stopped = live.flatten() & torch.isin(tokens, stops)
        length[cells] = torch.where(stopped, time + 1, length[cells])  # of fixed shape, so that no GPU is waited for
        live &= ~stopped.view_as(live)
        if time + 1 == limit:
            break
        if (time + 1) % interval == 0:
            for row in [row for row, each in waited.items() if each.gone.is_set()]:
                live, untold[row] = live & (grid != row), False
            before, running = running, int(live.sum())
            if running < before:
                yield from ended(time + 1)
            if running == 0:
                return
            if (smaller := _smaller_grid(live)) is not None:
                keep_prompts, keep_copies, live = smaller
                tokens = tokens.view_as(grid)[keep_prompts.unsqueeze(1), keep_copies].flatten()
                grid = grid[keep_prompts.unsqueeze(1), keep_copies].masked_fill(~live, num_rows)
                decoder.keep(keep_prompts, keep_copies)
        logits = decoder.step(tokens)
    yield from ended(limit)


def _restricted(decoder: Decoder, logits: Tensor, held: Mapping[int, Constraint]) -> Tensor:
    """Logits [R, V] in float32, some rows restricted; of 16-bit ones those that are likeliest then are exact again."""
    logits, rows = logits.float(), list(held)
    for row, constraint in held.items():
        constraint.restrict(logits[row])
    logits[rows] = decoder.exact(logits[rows], rows)
    return logits


def _smaller_grid(live: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """The grid of what still runs, where it is small enough to be worth the copying.

    Args:
        live: bool [P, G].

    Returns:
        The prompts [P'] and columns [P', G'] to keep and which of their cells are live, or None. A prompt with fewer
        live copies than G' is filled up with finished ones, which draw on and are not read.
    """
    counts = live.sum(1)
    keep_prompts = counts.nonzero().squeeze(1)
    width = int(counts.max())
    # On a GPU a new shape costs a new graph, so only a halving is worth it; on a CPU a quarter is.
    share = 0.75 if live.device.type == "cpu" else 0.5
    if len(keep_prompts) * width > share * live.numel():
        return None
    live = live[keep_prompts]
    columns = live.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :width]
    return keep_prompts, columns, live.gather(1, columns)
