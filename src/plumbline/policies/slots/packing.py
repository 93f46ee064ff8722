"""A group of trajectories in one sequence: their prompt once, then each one's rounds, kept apart by
a mask.

Letters in shapes: T packed tokens, N drawn tokens (terms), B choices of slots, m open slots, n
slots chosen.

One round of one trajectory is laid out as

    masks     the places of its open slots, up to the last one whose first place is asked. Each sees the prompt, the
              slots of earlier rounds and the masks before it; nothing else ever sees a mask.
    slots     the tokens of the slots that it filled. Each sees the prompt, the slots of earlier rounds, and what comes
              before it in its own slot.

That is what the sampler's keys and values hold, so one forward pass gives every log-probability of
the trajectory exactly (Li et al. 2025, arXiv:2512.13586, is causal, which makes this possible). A
trajectory that holds only some of its rounds is laid out without the masks of the others; the slots
that they filled stay, as context.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plumbline.errors import RecipeError
from plumbline.policies.pretrained.policy import make_additive_mask, pad_rows
from plumbline.policies.slots.options import SlotSampling
from plumbline.records import BoolArray, IntArray, Trajectory, Transition

# -- grid ------------------------------------------------------------------------------------------
#
# How a canvas is cut into slots and blocks, and how many slots each round fills: nothing here
# depends on weights.
#
# Letters in shapes: L places of the canvas, S slots of it, k tokens of a slot (L = S k).


@dataclass(frozen=True, slots=True)
class Grid:
    """S slots of k places; blocks of slots are filled one after the other, each in an equal share
    of the rounds."""

    slots: int
    width: int
    """k."""
    blocks: int
    rounds: int
    even: bool = False
    """Whether each round's slots are chosen evenly, as a set in which the model has no say."""

    @classmethod
    def of(cls, sampling: SlotSampling, width: int) -> "Grid":
        """The grid of a sampling distribution on a model with slots of `width` tokens.

        Raises:
            RecipeError: the canvas is no whole number of slots, or the blocks or the rounds do not
                come out even.
        """
        slots = count_slots(sampling.max_tokens, width, "sampling.max_tokens")
        if slots % sampling.blocks:
            raise RecipeError(
                f"{slots} slots cannot be cut into {sampling.blocks} equal blocks",
                "set sampling.blocks to a divisor of sampling.max_tokens / model.slot",
            )
        # it goes on until every slot is full, however many rounds that takes
        if sampling.selector == "threshold":
            return cls(slots, width, sampling.blocks, slots)
        if sampling.steps is None:
            raise RecipeError(
                "a slot policy fills its slots in a given number of rounds, and sampling.steps is "
                "not set",
                f"set sampling.steps, from 1 (all slots at once) to {slots} (one slot a round)",
            )
        if sampling.steps % sampling.blocks or not sampling.blocks <= sampling.steps <= slots:
            raise RecipeError(
                f"{sampling.steps} rounds do not fit {slots} slots in {sampling.blocks} blocks",
                f"set sampling.steps to a multiple of sampling.blocks, at most {slots}",
            )
        return cls(slots, width, sampling.blocks, sampling.steps, sampling.selector == "random")

    def counts(self) -> list[int]:
        """Slots that each round fills: as even as whole numbers allow, and the same in every
        block."""
        slots, rounds = self.slots // self.blocks, self.rounds // self.blocks
        return [
            slots * (index + 1) // rounds - slots * index // rounds for index in range(rounds)
        ] * self.blocks

    def open_slots(self, filled: BoolArray) -> IntArray:
        """The empty slots, ascending, of the first block that has one; `filled` is bool [S]."""
        empty = np.flatnonzero(~filled)
        size = self.slots // self.blocks
        return empty[empty // size == empty[0] // size]


def count_slots(places: int, width: int, name: str) -> int:
    """S of a canvas of so many places.

    Raises:
        RecipeError: the places are no whole number of slots; `name` is the setting that says so.
    """
    if places % width:
        raise RecipeError(
            f"{name} is {places}, which is no whole number of slots of {width} tokens",
            f"set it to a multiple of {width} (model.slot)",
        )
    return places // width


ALL, PAD = -1, -2
"""Tags of tokens that see everything before them (the prompt, masks), and of tokens that nothing
sees."""


# -- attention -------------------------------------------------------------------------------------
#
# The only two ways in which this family runs its model, both with an explicit mask and explicit
# positions.
#
# Letters in shapes: R rows, Q tokens read at once, C cached tokens, T packed tokens, H hidden size.
#
# The mask is never left to transformers: positions out of order without a mask are taken there for
# several packed documents, and the attention is cut silently (a test shows that the present version
# still does it).


def read_packed(model: Any, ids: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
    """Hidden states [B, T, H] of `ids` [B, T] at `positions` [B, T] under a bool mask [B or 1, 1,
    T, T]."""
    return model.get_decoder()(
        ids,
        attention_mask=make_additive_mask(mask, model.dtype),
        position_ids=positions,
        use_cache=False,
    ).last_hidden_state


class KeyValues:
    """The keys and values that rows have read so far, and which of them a new token may see.

    Each token has a tag. A token tagged `ALL` sees everything before it. A token tagged with its
    slot sees what is settled (the prompt and the slots of earlier rounds) and what came before it
    in its own slot: slots that are filled side by side never see one another.
    """

    def __init__(self, model: Any, rows: int) -> None:
        from transformers import DynamicCache

        self.model = model
        self.cache = DynamicCache()
        self.tags = torch.zeros((rows, 0), dtype=torch.long, device=model.device)
        self.settled = 0

    def read(self, ids: Tensor, positions: Tensor, tags: Tensor, *, drop: int = 0) -> Tensor:
        """Hidden states [R, Q, H] of new tokens, which are kept except for the last `drop`.

        Args:
            ids: [R, Q].
            positions: [R or 1, Q].
            tags: [R, Q], `ALL`, `PAD` or a slot's number.
            drop: the last so many are forgotten again (masks are asked, not remembered).
        """
        before, new = self.tags.shape[1], ids.shape[1]
        self.tags = torch.cat([self.tags, tags], 1)
        column = torch.arange(before + new, device=ids.device)
        sees = (
            (tags == ALL).unsqueeze(2)
            | (tags.unsqueeze(2) == self.tags.unsqueeze(1))
            | (column < self.settled)
        )
        sees &= (self.tags != PAD).unsqueeze(1) & (column <= column[before:].unsqueeze(1))
        hidden: Tensor = self.model.get_decoder()(
            ids,
            attention_mask=make_additive_mask(sees.unsqueeze(1), self.model.dtype),
            position_ids=positions.expand_as(ids),
            past_key_values=self.cache,
            use_cache=True,
        ).last_hidden_state
        self.drop(drop)
        return hidden

    def drop(self, count: int) -> None:
        """Forget the last `count` tokens."""
        if count:
            self.cache.crop(-count)
            self.tags = self.tags[:, :-count]

    def settle(self) -> None:
        """A round is over: everything read so far is seen by all that follows."""
        self.settled = self.tags.shape[1]

    def select(self, rows: Tensor) -> None:
        """Go on with these rows [R'], of which one may come several times."""
        self.cache.batch_select_indices(rows)
        self.tags = self.tags[rows]


def pad_prompts(
    prompts: Sequence[Sequence[int]], device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, positions and tags [P, longest] of prompts padded on the left, where nothing sees the
    padding."""
    ids, there = (each.to(device) for each in pad_rows(prompts, left=True))
    return ids, (there.cumsum(1) - 1).clamp(min=0), torch.where(there, ALL, PAD)


MASKS = -1
"""The slot number of a mask."""
PASS_COST = 2e7
"""What starting one more pass costs, per layer, in operations: about a millisecond of one core."""


class _Layout:
    """A pack as it is laid out, prompt by prompt and trajectory by trajectory."""

    def __init__(self, grid: Grid, mask_id: int) -> None:
        self.grid, self.mask_id = grid, mask_id
        self.ids: list[int] = []
        self.positions: list[int] = []
        self.attributes: list[tuple[int, int, int, int]] = []
        """Prompt, branch (0 for a prompt's tokens), round, and slot (MASKS for a mask)."""
        self.predictors: list[int] = []  # of each term: where it is predicted
        self.targets: list[int] = []
        self.step: list[int] = []  # of each term, counted over the pack
        self.choices: list[tuple[int, list[int], list[int]]] = []
        """Step, queries [m] and chosen columns [n] of each choice; nothing is asked of an even
        one."""
        self.prompts = self.branches = self.steps = 0
        self.start = 0  # the position of the canvas's first place

    def add_prompt(self, prompt: list[int]) -> None:
        """A prompt, behind which trajectories are added."""
        self.prompts, self.start = self.prompts + 1, len(prompt)
        self.ids += prompt
        self.positions += range(len(prompt))
        self.attributes += [(self.prompts, 0, 0, 0)] * len(prompt)

    def add(self, trajectory: Trajectory) -> None:
        """A trajectory, or those of its rounds that it holds.

        Raises:
            ValueError: it holds no rounds of a slot policy, or not in the order in which they were
                drawn.
        """
        held = {
            _round(step): (index, step)
            for index, step in enumerate(trajectory.transitions, self.steps)
        }
        numbers = list(held)
        if not numbers or numbers != sorted(numbers) or len(numbers) < len(trajectory.transitions):
            raise ValueError(
                "a trajectory holds its rounds once each, in the order in which they were drawn"
            )
        final = trajectory.transitions[-1]
        assert final.state is not None
        assert final.history is not None
        state, width = final.state, self.grid.width
        round_of = final.history[::width]
        self.branches += 1
        for number in range(numbers[-1] + 1):
            if number in held:
                empty = (round_of < 0) | (round_of >= number)
                # The last slots' last tokens predict nothing, and no later round sees them.
                whole = state if number < numbers[-1] else None
                self._add_round(*held[number], number, self.grid.open_slots(~empty), whole)
            else:
                for slot in np.flatnonzero(round_of == number).tolist():
                    at = range(slot * width, (slot + 1) * width)
                    self._add_tokens(state[at.start : at.stop].tolist(), at, number, slot)
        self.steps += len(trajectory.transitions)

    def _add_tokens(self, ids: Sequence[int], places: Sequence[int], number: int, slot: int) -> int:
        """Tokens at places of the canvas; the index of the first."""
        start = len(self.ids)
        self.ids += ids
        self.positions += [self.start + place for place in places]
        self.attributes += [(self.prompts, self.branches, number, slot)] * len(ids)
        return start

    def _add_round(
        self,
        index: int,
        step: Transition,
        number: int,
        open_slots: IntArray,
        whole: IntArray | None,
    ) -> None:
        """One round's masks and slots, and where each of its terms is predicted."""
        width = self.grid.width
        # every slot's first token is drawn
        chosen = step.positions[step.positions % width == 0] // width
        columns = np.searchsorted(open_slots, chosen)
        assert np.array_equal(open_slots[columns], chosen)
        asked = (
            len(open_slots)
            if step.selection is not None and not self.grid.even
            else int(columns.max()) + 1
        )
        places = (
            (open_slots[:asked, None] * width + np.arange(width))
            .ravel()[: (asked - 1) * width + 1]
            .tolist()
        )
        masks = self._add_tokens([self.mask_id] * len(places), places, number, MASKS)
        if step.selection is not None:
            queries = [
                0 if self.grid.even else masks + column * width for column in range(len(open_slots))
            ]
            self.choices.append((index, queries, columns.tolist()))
        for slot, column in zip(chosen.tolist(), columns.tolist(), strict=True):
            drawn = step.tokens[step.positions // width == slot].tolist()
            tokens = (
                drawn[:-1] if whole is None else whole[slot * width : (slot + 1) * width].tolist()
            )
            at = self._add_tokens(
                tokens, range(slot * width, slot * width + len(tokens)), number, slot
            )
            self.predictors += [masks + column * width, *range(at, at + len(drawn) - 1)]
            self.targets += drawn
            self.step += [index] * len(drawn)


def packed_length(trajectory: Trajectory, grid: Grid, mask_id: int) -> int:
    """Tokens that a trajectory adds to its prompt in a pack."""
    laid = _Layout(grid, mask_id)
    laid.add(trajectory)
    return len(laid.ids)


def _round(step: Transition) -> int:
    if step.history is None or step.state is None:
        raise ValueError(
            "a slot policy scores rounds that a slot policy drew: this step has no history"
        )
    return int(step.history.max()) + 1


@dataclass(frozen=True, slots=True, eq=False)
class SlotPack:
    """Tensors of one packed forward pass."""

    ids: Tensor  # [1, T]
    positions: Tensor  # [1, T]
    mask: Tensor  # [1, 1, T, T], bool: may attend
    predictors: Tensor  # [N]: the packed token whose hidden state predicts each term
    targets: Tensor  # [N]
    # [B, m]: the masks that were asked in a choice; 0 where there is none, and of an even one
    queries: Tensor
    there: Tensor  # [B, m], bool
    chosen: Tensor  # [B, n]: columns of `queries`, in order; -1 behind the end
    # [N + B]: the step of each term, counted over the pack; tokens first, then choices
    step: Tensor
    order: Tensor  # [N + B]: tokens and choices in the order of `Trajectory.logprobs`
    num_steps: int


def pack(
    trajectories: Sequence[Trajectory], grid: Grid, mask_id: int, device: torch.device
) -> SlotPack:
    """Lay trajectories out behind one copy of each distinct prompt (equal prompts must stand side
    by side)."""
    laid = _Layout(grid, mask_id)
    for prompt, group in groupby(trajectories, key=lambda trajectory: trajectory.prompt.tolist()):
        laid.add_prompt(prompt)
        for trajectory in group:
            laid.add(trajectory)
    step = torch.tensor(laid.step + [step for step, _, _ in laid.choices])
    kind = torch.tensor([0] * len(laid.step) + [1] * len(laid.choices))
    queries, there = pad_rows([queries for _, queries, _ in laid.choices])
    return SlotPack(
        ids=torch.tensor([laid.ids], device=device),
        positions=torch.tensor([laid.positions], device=device),
        mask=_visible_tokens(torch.tensor(laid.attributes, device=device))[None, None],
        predictors=torch.tensor(laid.predictors, device=device),
        targets=torch.tensor(laid.targets, device=device),
        queries=queries.to(device),
        there=there.to(device),
        chosen=pad_rows([chosen for _, _, chosen in laid.choices], -1)[0].to(device),
        step=step.to(device),
        order=(step * 2 + kind).argsort(stable=True).to(device),
        num_steps=laid.steps,
    )


def _visible_tokens(attributes: Tensor) -> Tensor:
    """Which packed token may see which, bool [T, T], from (prompt, branch, round, slot) [T, 4]."""
    prompt, branch_of, number, slot = (column.contiguous() for column in attributes.unbind(1))
    settled = (slot != MASKS) & (number < number.unsqueeze(1))
    beside = (number == number.unsqueeze(1)) & (slot == slot.unsqueeze(1))
    mine = (branch_of == branch_of.unsqueeze(1)) & (settled | beside)
    return ((prompt == prompt.unsqueeze(1)) & ((branch_of == 0) | mine)).tril_()
