"""The slot policy once more, by definition: every context is written out and read by one plain
forward pass.

A context is a list of (token, position, indices that it sees). No cache, no selection code of the
package; only `by_rounds` packs, one round at a time.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plumbline.policies.slots.options import SlotSampling
from plumbline.policies.slots.packing import Grid, pack
from plumbline.policies.slots.policy import log_probs, read_distributions
from plumbline.records import Sampling, Trajectory, Transition
from tests.policies.slots.models import END, MASK


@dataclass(frozen=True)
class Token:
    id: int
    position: int
    sees: tuple[int, ...]


def logits(model, tokens, *, drawn=True):
    """Logits [T, V] of a written-out context; the mask's are minus infinity where tokens are
    drawn."""
    count = len(tokens)
    allowed = torch.zeros((count, count), dtype=torch.bool)
    for index, token in enumerate(tokens):
        allowed[index, [*token.sees, index]] = True
    bias = torch.zeros((count, count), dtype=model.dtype).masked_fill(
        ~allowed, torch.finfo(model.dtype).min
    )
    result = model(
        torch.tensor([[token.id for token in tokens]]),
        attention_mask=bias[None, None],
        position_ids=torch.tensor([[token.position for token in tokens]]),
        use_cache=False,
    ).logits[0]
    return (
        result.masked_fill(torch.arange(result.shape[1]) == MASK, float("-inf"))
        if drawn
        else result
    )


def prompt_tokens(prompt):
    return [Token(id_, index, tuple(range(index))) for index, id_ in enumerate(prompt)]


def behind(context, ids, positions, sees=None):
    """A context with tokens behind it that see `sees` (all of it by default) and one another
    causally."""
    sees = list(range(len(context))) if sees is None else list(sees)
    made = list(context)
    for id_, position in zip(ids, positions, strict=True):
        made.append(Token(id_, position, tuple(sees)))
        sees.append(len(made) - 1)
    return made


def token_logs(row, sampling):
    """Log-probabilities of one token's distribution, filters included, written plainly."""
    values = row / sampling.temperature
    if sampling.top_k:
        kept = values.topk(min(sampling.top_k, len(values))).values[-1]
        values = values.masked_fill(values < kept, float("-inf"))
    if sampling.top_p < 1:
        order = sorted(range(len(values)), key=lambda token: -float(values[token]))
        chances, total, nucleus = values.softmax(-1), 0.0, []
        for token in order:
            if total < sampling.top_p:
                nucleus.append(token)
            total += float(chances[token])
        values = values.masked_fill(
            ~torch.isin(torch.arange(len(values)), torch.tensor(nucleus)), float("-inf")
        )
    return values.log_softmax(-1)


def everything(model, prompt, sampling: Sampling, width, counts):
    """Every trajectory under a distribution of one block, with its log-probability (a scalar with
    gradient)."""
    size = sampling.max_tokens
    start = (
        prompt_tokens(prompt),
        np.full(size, MASK),
        np.full(size // width, -1),
        (),
        torch.zeros((), dtype=model.dtype),
    )
    return [
        (trajectory(prompt, canvas, steps, sampling), total)
        for _, canvas, _, steps, total in _rounds(
            model, start, sampling, width, counts, len(prompt)
        )
    ]


def trajectory(prompt, canvas, steps, sampling):
    return Trajectory(
        prompt=np.array(prompt), transitions=steps, text="", sampling=sampling,
        finish="stop" if END in canvas else "length", answer=canvas,
    )  # fmt: skip


def _rounds(model, state, sampling, width, counts, length):
    context, canvas, filled, steps, total = state
    if all(filled >= 0) or _decided(canvas, filled, width):
        done = canvas.copy()
        done[np.repeat(filled < 0, width)] = END
        yield context, done, filled, steps, total
        return
    count, number = counts[len(steps)], len(steps)
    empty = [slot for slot in range(len(filled)) if filled[slot] < 0]
    places = [slot * width + offset for slot in empty for offset in range(width)]
    plan = logits(
        model, behind(context, [MASK] * len(places), [length + place for place in places])
    )[len(context) :]
    first = {slot: token_logs(plan[index * width], sampling) for index, slot in enumerate(empty)}
    chosen_all = count == len(empty)
    scores = {slot: first[slot].max() / sampling.position_temperature for slot in empty}
    for order in [tuple(empty)] if chosen_all else itertools.permutations(empty, count):
        if sampling.selector == "random" and list(order) != sorted(order):
            continue
        choice = None
        if not chosen_all and sampling.selector == "random":
            choice = torch.tensor(-math.log(math.comb(len(empty), count)), dtype=model.dtype)
        elif not chosen_all:
            choice = sum(
                scores[slot]
                - torch.stack(
                    [scores[other] for other in empty if other not in order[:rank]]
                ).logsumexp(0)
                for rank, slot in enumerate(order)
            )
        fills = [
            list(_fills(model, context, slot, first[slot], sampling, width, length))
            for slot in order
        ]
        for combination in itertools.product(*fills):
            new, after, round_of = list(context), canvas.copy(), filled.copy()
            positions, tokens, logs = [], [], []
            for slot, (drawn, each) in zip(order, combination, strict=True):
                whole = [*drawn, *[END] * (width - len(drawn))]
                at = [slot * width + offset for offset in range(width)]
                new = behind(new, whole, [length + place for place in at], range(len(context)))
                after[at], round_of[slot] = whole, number
                positions += at[: len(drawn)]
                tokens += drawn
                logs += each
            step = Transition(
                positions=np.array(positions), tokens=np.array(tokens),
                logprobs=np.array([float(log.detach()) for log in logs], np.float32),
                selection=None if choice is None else float(choice.detach()),
                state=canvas, history=np.repeat(filled, width),
            )  # fmt: skip
            chance = total + sum(logs) + (0 if choice is None else choice)
            yield from _rounds(
                model,
                (new, after, round_of, (*steps, step), chance),
                sampling,
                width,
                counts,
                length,
            )


def _fills(model, context, slot, first, sampling, width, length):
    """What a slot may be filled with, up to its end token, and the log-probability of each
    token."""
    unfinished = [((), (), first)]
    while unfinished:
        drawn, logs, logprobs_here = unfinished.pop()
        for token in range(len(logprobs_here)):
            if bool(logprobs_here[token].isneginf()):
                continue
            now, now_logs = (*drawn, token), (*logs, logprobs_here[token])
            if token == END or len(now) == width:
                yield list(now), list(now_logs)
                continue
            at = [length + slot * width + offset for offset in range(len(now))]
            row = logits(model, behind(context, now, at))[-1]
            unfinished.append((now, now_logs, token_logs(row, sampling)))


def _decided(canvas, filled, width):
    for slot, round_of in enumerate(filled):
        if round_of < 0:
            return False
        if END in canvas[slot * width : (slot + 1) * width]:
            return True
    return False


def by_rounds(
    model: Any, trajectories: Sequence[Trajectory], grid: Grid, mask_id: int, sampling: SlotSampling
) -> list[Tensor]:
    """Log-probabilities of each trajectory's terms by a forward pass for every round.

    Args:
        model: a causal transformers model.
        trajectories: of one prompt, or with equal prompts side by side; each pass holds one round
            of all of them.
        grid: how their canvases are cut.
        mask_id: the mask token.
        sampling: the sampling distribution that they carry.
    """
    parts: list[list[Tensor]] = [[] for _ in trajectories]
    for number in range(max(len(trajectory.transitions) for trajectory in trajectories)):
        rows = [
            row
            for row, trajectory in enumerate(trajectories)
            if number < len(trajectory.transitions)
        ]
        single = [
            replace(trajectories[row], transitions=(trajectories[row].transitions[number],))
            for row in rows
        ]
        packed = pack(single, grid, mask_id, model.device)
        terms = log_probs(packed, read_distributions(model, mask_id, packed), sampling)
        for row, part in zip(rows, terms.split([len(one.logprobs) for one in single]), strict=True):
            parts[row].append(part)
    return [torch.cat(each) for each in parts]
