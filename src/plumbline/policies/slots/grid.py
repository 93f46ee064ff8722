"""How a canvas is cut into slots and blocks, and how many slots each round fills: nothing here depends on weights.

Letters in shapes: L places of the canvas, S slots of it, k tokens of a slot (L = S k).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import RecipeError
from plumbline.policies.slots.options import SlotSampling


@dataclass(frozen=True, slots=True)
class Grid:
    """S slots of k places; blocks of slots are filled one after the other, each in an equal share of the rounds."""

    slots: int
    width: int
    """k."""
    blocks: int
    rounds: int

    @classmethod
    def of(cls, sampling: SlotSampling, width: int) -> "Grid":
        """The grid of a law on a model with slots of `width` tokens.

        Raises:
            RecipeError: the canvas is no whole number of slots, or the blocks or the rounds do not come out
                even.
        """
        slots = count_slots(sampling.max_tokens, width, "sampling.max_tokens")
        if slots % sampling.blocks:
            raise RecipeError(
                f"{slots} slots cannot be cut into {sampling.blocks} equal blocks",
                "set sampling.blocks to a divisor of sampling.max_tokens / model.slot",
            )
        if sampling.selector == "threshold":  # it goes on until every slot is full, however many rounds that takes
            return cls(slots, width, sampling.blocks, slots)
        if sampling.steps is None:
            raise RecipeError(
                "a slot policy fills its slots in a given number of rounds, and sampling.steps is not set",
                f"set sampling.steps, from 1 (all slots at once) to {slots} (one slot a round)",
            )
        if sampling.steps % sampling.blocks or not sampling.blocks <= sampling.steps <= slots:
            raise RecipeError(
                f"{sampling.steps} rounds do not fit {slots} slots in {sampling.blocks} blocks",
                f"set sampling.steps to a multiple of sampling.blocks, at most {slots}",
            )
        return cls(slots, width, sampling.blocks, sampling.steps)

    def counts(self) -> list[int]:
        """Slots that each round fills: as even as whole numbers allow, and the same in every block."""
        slots, rounds = self.slots // self.blocks, self.rounds // self.blocks
        return [slots * (index + 1) // rounds - slots * index // rounds for index in range(rounds)] * self.blocks

    def open_slots(self, filled: NDArray[np.bool_]) -> NDArray[np.int64]:
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
