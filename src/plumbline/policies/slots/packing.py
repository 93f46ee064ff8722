"""A group of trajectories in one sequence: their prompt once, then each one's rounds, kept apart by a mask.

Letters in shapes: T packed tokens, N drawn tokens (terms), B choices of slots, m open slots, n slots chosen.

One round of one trajectory is laid out as

    masks     the places of its open slots, up to the last one whose first place is asked. Each sees the prompt, the
              slots of earlier rounds and the masks before it; nothing else ever sees a mask.
    slots     the tokens of the slots that it filled. Each sees the prompt, the slots of earlier rounds, and what comes
              before it in its own slot.

That is what the sampler's keys and values hold, so one forward pass gives every log-probability of the trajectory
exactly (Li et al. 2025, arXiv:2512.13586, is causal, which makes this possible). A trajectory that holds only some of
its rounds is laid out without the masks of the others; the slots that they filled stay, as context.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plumbline.policies.pretrained.inputs import padded
from plumbline.policies.slots.grid import Grid
from plumbline.records import Step, Trajectory

MASKS = -1
"""The slot number of a mask."""
PASS_COST = 2e7
"""What starting one more pass costs, per layer, in operations: about a millisecond of one core."""


@dataclass(slots=True)
class Branch:
    """One trajectory's part of a pack; indices count from the part's first token."""

    mask_id: int
    ids: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)  # MASKS for a mask
    predictors: list[int] = field(default_factory=list)  # of each term: where it is predicted
    targets: list[int] = field(default_factory=list)
    step: list[int] = field(default_factory=list)  # of each term, counted in the trajectory
    choices: list[tuple[int, list[int], list[int]]] = field(default_factory=list)
    """Step, queries [m] and chosen columns [n] of each choice in which the model had a say."""

    def add(self, ids: Sequence[int], places: Sequence[int], number: int, slot: int) -> int:
        """Lay out tokens; the index of the first."""
        start = len(self.ids)
        self.ids += ids
        self.places += places
        self.rounds += [number] * len(ids)
        self.slots += [slot] * len(ids)
        return start


def branch(trajectory: Trajectory, grid: Grid, mask_id: int) -> Branch:
    """Lay out a trajectory, or those of its rounds that it holds.

    Raises:
        ValueError: it holds no rounds of a slot policy, or not in the order in which they were drawn.
    """
    held = {_round(step): (index, step) for index, step in enumerate(trajectory.steps)}
    numbers = list(held)
    if not numbers or numbers != sorted(numbers) or len(numbers) < len(trajectory.steps):
        raise ValueError("a trajectory holds its rounds once each, in the order in which they were drawn")
    _, final = held[numbers[-1]]
    assert final.state is not None
    assert final.history is not None
    state, width = final.state, grid.width
    round_of = final.history[::width]
    laid = Branch(mask_id)
    for number in range(numbers[-1] + 1):
        filled = np.flatnonzero(round_of == number)
        if number not in held:
            for slot in filled.tolist():
                at = range(slot * width, (slot + 1) * width)
                laid.add(state[at.start : at.stop].tolist(), at, number, slot)
            continue
        empty = (round_of < 0) | (round_of >= number)
        # The last slots' last tokens predict nothing, and no later round sees them.
        whole = state if number < numbers[-1] else None
        _lay_out(laid, held[number], number, grid, grid.open_slots(~empty), whole)
    return laid


def _lay_out(
    laid: Branch,
    held: tuple[int, Step],
    number: int,
    grid: Grid,
    open_slots: NDArray[np.int64],
    whole: NDArray[np.int64] | None,
) -> None:
    """One round's masks and slots, and where each of its terms is predicted."""
    index, step = held
    width = grid.width
    chosen = step.positions[step.positions % width == 0] // width  # every slot's first token is drawn
    columns = np.searchsorted(open_slots, chosen)
    assert np.array_equal(open_slots[columns], chosen)
    asked = len(open_slots) if step.selection is not None else int(columns.max()) + 1
    places = (open_slots[:asked, None] * width + np.arange(width)).ravel()[: (asked - 1) * width + 1].tolist()
    masks = laid.add([laid.mask_id] * len(places), places, number, MASKS)
    if step.selection is not None:
        queries = [masks + column * width for column in range(asked)]
        laid.choices.append((index, queries, columns.tolist()))
    for slot, column in zip(chosen.tolist(), columns.tolist(), strict=True):
        mine = step.positions // width == slot
        drawn = step.tokens[mine].tolist()
        tokens = drawn[:-1] if whole is None else whole[slot * width : (slot + 1) * width].tolist()
        at = laid.add(tokens, range(slot * width, slot * width + len(tokens)), number, slot)
        laid.predictors += [masks + column * width, *range(at, at + len(drawn) - 1)]
        laid.targets += drawn
        laid.step += [index] * len(drawn)


def _round(step: Step) -> int:
    if step.history is None or step.state is None:
        raise ValueError("a slot policy scores rounds that a slot policy drew: this step has no history")
    return int(step.history.max()) + 1


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """Tensors of one packed forward pass."""

    ids: Tensor  # [1, T]
    positions: Tensor  # [1, T]
    mask: Tensor  # [1, 1, T, T], bool: may attend
    predictors: Tensor  # [N]: the packed token whose hidden state predicts each term
    targets: Tensor  # [N]
    queries: Tensor  # [B, m]: the masks that were asked in a choice; 0 where there is none
    there: Tensor  # [B, m], bool
    chosen: Tensor  # [B, n]: columns of `queries`, in order; -1 behind the end
    step: Tensor  # [N + B]: the step of each term, counted over the pack; tokens first, then choices
    order: Tensor  # [N + B]: tokens and choices in the order of `Trajectory.logprobs`
    num_steps: int


def pack(trajectories: Sequence[Trajectory], grid: Grid, mask_id: int, device: torch.device) -> Pack:
    """Lay trajectories out behind one copy of each distinct prompt (equal prompts must stand side by side)."""
    ids: list[int] = []
    positions: list[int] = []
    attributes: list[tuple[int, int, int, int]] = []  # prompt, branch (0 for a prompt's tokens), round, slot
    predictors: list[int] = []
    targets: list[int] = []
    token_step: list[int] = []
    choices: list[tuple[int, list[int], list[int]]] = []
    previous: bytes | None = None
    number = length = steps = 0
    for index, trajectory in enumerate(trajectories):
        key = trajectory.prompt.tobytes()
        if key != previous:
            previous, number, length = key, number + 1, len(trajectory.prompt)
            ids += trajectory.prompt.tolist()
            positions += range(length)
            attributes += [(number, 0, 0, 0)] * length
        laid = branch(trajectory, grid, mask_id)
        start = len(ids)
        ids += laid.ids
        positions += [length + place for place in laid.places]
        attributes += [(number, index + 1, *at) for at in zip(laid.rounds, laid.slots, strict=True)]
        predictors += [start + at for at in laid.predictors]
        targets += laid.targets
        token_step += [steps + step for step in laid.step]
        choices += [(steps + step, [start + at for at in queries], chosen) for step, queries, chosen in laid.choices]
        steps += len(trajectory.steps)
    step = torch.tensor(token_step + [step for step, _, _ in choices])
    kind = torch.tensor([0] * len(token_step) + [1] * len(choices))
    queries, there = padded([queries for _, queries, _ in choices])
    return Pack(
        ids=torch.tensor([ids], device=device),
        positions=torch.tensor([positions], device=device),
        mask=_visible(torch.tensor(attributes, device=device))[None, None],
        predictors=torch.tensor(predictors, device=device),
        targets=torch.tensor(targets, device=device),
        queries=queries.to(device),
        there=there.to(device),
        chosen=padded([chosen for _, _, chosen in choices], -1)[0].to(device),
        step=step.to(device),
        order=(step * 2 + kind).argsort(stable=True).to(device),
        num_steps=steps,
    )


def _visible(attributes: Tensor) -> Tensor:
    """Which packed token may see which, bool [T, T], from (prompt, branch, round, slot) [T, 4]."""
    prompt, branch_of, number, slot = (column.contiguous() for column in attributes.unbind(1))
    settled = (slot != MASKS) & (number < number.unsqueeze(1))
    beside = (number == number.unsqueeze(1)) & (slot == slot.unsqueeze(1))
    mine = (branch_of == branch_of.unsqueeze(1)) & (settled | beside)
    return ((prompt == prompt.unsqueeze(1)) & ((branch_of == 0) | mine)).tril_()
