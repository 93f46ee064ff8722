"""The decoding loop: draw, append, drop what is finished.

Letters in shapes: P prompts, G copies, R = P * G rows, C token limit.

Every row has its own uniform numbers, drawn before the loop, so a row's tokens do not depend on which other rows
still run beside it: dropping finished rows changes the speed and not the result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plumbline.policies.autoregressive.decoders import Decoder
from plumbline.policies.autoregressive.decoders.threads import threads_for
from plumbline.policies.token_law import draw
from plumbline.records import Sampling


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """One completion: its tokens with their log-probabilities, and whether the model ended it."""

    tokens: list[int]
    logprobs: list[float]
    stopped: bool


def decode(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    copies: int,
    sampling: Sampling,
    stop_ids: Sequence[int],
    generator: torch.Generator,
    device: torch.device,
    ended: Callable[[int, list[int]], None] | None = None,
) -> list[list[Drawn]]:
    """Draw `copies` completions of each prompt.

    Args:
        decoder: the engine.
        prompts: P lists of token ids; they and `max_tokens` fit into the model's context.
        copies: G.
        sampling: the law; greedy where its temperature is 0.
        stop_ids: tokens that end a completion (the token itself is part of it).
        generator: a CPU generator; the only source of randomness.
        device: where the decoder's tensors are.
        ended: called with the row and the tokens of each completion, soon after it has ended.

    Returns:
        P lists of G completions.
    """
    num_rows, limit = len(prompts) * copies, sampling.max_tokens
    # One row more than there are completions: cells of the grid that draw nothing any more write there.
    uniforms = torch.zeros((num_rows + 1, limit), dtype=torch.float64)
    uniforms[:num_rows] = torch.rand((num_rows, limit), dtype=torch.float64, generator=generator)
    uniforms = uniforms.to(device)
    tokens_rc = torch.zeros((num_rows + 1, limit), dtype=torch.long, device=device)
    logprobs_rc = torch.zeros((num_rows + 1, limit), dtype=torch.float32, device=device)
    length = torch.full((num_rows + 1,), limit, dtype=torch.long, device=device)
    stops = torch.tensor(list(stop_ids), device=device)
    grid = torch.arange(num_rows, device=device).view(len(prompts), copies)  # which completion a cell draws
    live = torch.ones_like(grid, dtype=torch.bool)
    # Asking a GPU whether rows are finished makes it wait, so there it is asked every 16 tokens only.
    interval = 1 if device.type == "cpu" else 16
    untold = torch.ones((num_rows,), dtype=torch.bool, device=device)
    logits = decoder.begin(prompts, copies, limit).repeat_interleave(copies, 0)
    for time in range(limit):
        cells = grid.flatten()
        with threads_for(logits.numel() * 16):  # an exponential costs about as much as 16 multiplications
            tokens, logprobs = draw(logits, uniforms[cells, time], sampling)
        tokens_rc[cells, time], logprobs_rc[cells, time] = tokens, logprobs  # past its end a row's columns are unread
        stopped = live.flatten() & torch.isin(tokens, stops)
        length[cells[stopped]] = time + 1
        live &= ~stopped.view_as(live)
        if time + 1 == limit:
            break
        if (time + 1) % interval == 0:
            if ended is not None:
                _tell(ended, untold, length, tokens_rc, time + 1)
            if not bool(live.any()):
                break
            if (smaller := _smaller_grid(live)) is not None:
                keep_prompts, keep_copies, live = smaller
                tokens = tokens.view_as(grid)[keep_prompts.unsqueeze(1), keep_copies].flatten()
                grid = grid[keep_prompts.unsqueeze(1), keep_copies].masked_fill(~live, num_rows)
                decoder.keep(keep_prompts, keep_copies)
        logits = decoder.step(tokens)
    if ended is not None:
        _tell(ended, untold, length, tokens_rc, limit)
    return _collect(tokens_rc, logprobs_rc, length, stop_ids, (len(prompts), copies))


def _tell(ended: Callable[[int, list[int]], None], untold: Tensor, length: Tensor, tokens: Tensor, now: int) -> None:
    """Tell the rows that have ended by now and were not told; `untold` [R] is changed."""
    rows = (untold & (length[:-1] <= now)).nonzero().flatten()
    untold[rows] = False
    ends = length[rows].tolist()
    for row, end in zip(rows.tolist(), ends, strict=True):
        ended(row, tokens[row, :end].tolist())


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


def _collect(
    tokens: Tensor, logprobs: Tensor, length: Tensor, stop_ids: Sequence[int], shape: tuple[int, int]
) -> list[list[Drawn]]:
    """Cut every row to its length."""
    all_tokens, all_logprobs, lengths = tokens.tolist(), logprobs.tolist(), length.tolist()
    drawn = []
    for row in range(shape[0] * shape[1]):
        end = lengths[row]
        drawn.append(
            Drawn(
                tokens=all_tokens[row][:end],
                logprobs=all_logprobs[row][:end],
                stopped=all_tokens[row][end - 1] in stop_ids,
            )
        )
    return [drawn[start : start + shape[1]] for start in range(0, len(drawn), shape[1])]
