"""A canvas on which a schema's fixed tokens stand from the beginning, and only the values are denoised.

Letters in shapes: L places of the canvas, V vocabulary, S states of a hole, the last of which is dead, D distinct sets
of allowed tokens, Q places.

Braces, keys, colons and opening quotes are held. Between them are holes of a fixed number of places, one for each
value; a hole takes its value, the comma or brace behind it, and then spaces, which JSON allows there. Behind the last
value no spaces follow but end tokens, as in every demonstration of this family. How the fixed text is cut into tokens
is found by writing examples (`spelling`); what shares a token with some value is left to the hole.

The tokens of a hole spell a word of a regular language (`json_form`). What is allowed at a place is every token with
which the hole's other hidden places can still be filled: states that are reached from the left and from which the end
is reached to the right, whatever order the places are filled in. So any order of filling ends in a valid document. A
place with a single allowed token is filled at once, as it leaves nothing to choose.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from plumbline.policies.places import Allowed

CACHED = 4096
"""States of a hole whose allowed tokens are remembered."""
MASKS = 1024
"""Distinct sets of tokens [V] above which all that is remembered is dropped before the next call."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the hidden places of a hole may hold, given the others."""

    masks: dict[int, int]
    """The number of the set of allowed tokens, by place of the hole."""
    forced: tuple[tuple[int, int], ...]
    """Places and tokens where there is but one."""


@dataclass(slots=True, eq=False)
class Hole:
    """Places for one value, and the automaton of its tokens."""

    start: int
    end: int
    moves: NDArray[np.int16]  # [S, V]
    final: NDArray[np.bool_]  # [S]
    first: int  # the state at its first place
    reach: NDArray[np.bool_] = field(init=False)  # [S, S]: by some token
    looks: dict[tuple[int, ...], Look] = field(default_factory=dict)
    between: dict[tuple[bytes, bytes], int] = field(default_factory=dict)
    """The number of the set of tokens that lead from some states to some."""

    def __post_init__(self) -> None:
        size = len(self.moves)
        self.reach = np.zeros((size, size), dtype=np.bool_)
        for state, row in enumerate(self.moves):
            self.reach[state, row] = True
        self.reach[:, -1] = False

    def sides(self, tokens: Sequence[int], mask_id: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """States [L + 1, S] that are reached before each place, and from which the end is reached."""
        places, size = len(tokens), len(self.moves)
        reached = np.zeros((places + 1, size), dtype=np.bool_)
        ending = np.zeros((places + 1, size), dtype=np.bool_)
        reached[0, self.first], ending[-1] = True, self.final
        for place, token in enumerate(tokens):
            if token == mask_id:
                reached[place + 1] = self.reach[reached[place]].any(0)
            else:
                reached[place + 1, self.moves[reached[place], token]] = True
            reached[place + 1, -1] = False
        for place in range(places - 1, -1, -1):
            token = tokens[place]
            if token == mask_id:
                ending[place] = self.reach[:, ending[place + 1]].any(1)
            else:
                ending[place] = ending[place + 1][self.moves[:, token]]
        return reached, ending


class Scaffold:
    """The canvas of one schema and tokenizer. Make one with `spelling.open_scaffold`."""

    def __init__(self, canvas: NDArray[np.int64], holes: Sequence[Hole], mask_id: int) -> None:
        """A canvas [L] with its fixed tokens, hidden in the holes."""
        self.canvas, self.holes, self.mask_id = canvas, tuple(holes), mask_id
        self._hole_of = {place: hole for hole in holes for place in range(hole.start, hole.end)}
        self._number: dict[bytes, int] = {}
        self._masks: list[NDArray[np.bool_]] = []
        self._only: list[int | None] = []  # the token of a set of one
        self.settle(self.canvas)

    def settle(self, canvas: NDArray[np.int64]) -> None:
        """Fill, in place, what a canvas [L] leaves no choice of."""
        for hole in self.holes:
            tokens = tuple(canvas[hole.start : hole.end].tolist())
            if self.mask_id in tokens:
                for place, token in self._look(hole, tokens).forced:
                    canvas[hole.start + place] = token

    def allowed(self, canvases: Sequence[NDArray[np.int64]], places: Sequence[NDArray[np.int64]]) -> Allowed:
        """What may be drawn at some hidden places of canvases [L], each of which could be the next one filled."""
        self._forget()
        numbers = [
            self._mask_at(canvas, place)
            for canvas, wanted in zip(canvases, places, strict=True)
            for place in wanted.tolist()
        ]
        return self._table(numbers)

    def in_turn(
        self,
        canvases: Sequence[NDArray[np.int64]],
        places: Sequence[NDArray[np.int64]],
        tokens: Sequence[NDArray[np.int64]],
    ) -> Allowed:
        """What might have been drawn at places that were filled with tokens one after the other, place by place."""
        self._forget()
        numbers = []
        for canvas, filled, drawn in zip(canvases, places, tokens, strict=True):
            state = canvas.copy()
            for place, token in zip(filled.tolist(), drawn.tolist(), strict=True):
                numbers.append(self._mask_at(state, place))
                state[place] = token
        return self._table(numbers)

    def _forget(self) -> None:
        """Keep what is remembered small, however many documents are drawn."""
        if len(self._masks) > MASKS:
            self._number.clear()
            self._masks.clear()
            self._only.clear()
            for hole in self.holes:
                hole.looks.clear()
                hole.between.clear()

    def _mask_at(self, canvas: NDArray[np.int64], place: int) -> int:
        hole = self._hole_of[place]
        return self._look(hole, tuple(canvas[hole.start : hole.end].tolist())).masks[place - hole.start]

    def _table(self, numbers: Sequence[int]) -> Allowed:
        distinct, which = np.unique(np.array(numbers, dtype=np.int64), return_inverse=True)
        width = self.holes[0].moves.shape[1]
        table = np.stack([self._masks[number] for number in distinct]) if len(distinct) else np.zeros((0, width), bool)
        return Allowed(torch.from_numpy(table), torch.from_numpy(which))

    def _look(self, hole: Hole, tokens: tuple[int, ...]) -> Look:
        known = hole.looks.get(tokens)
        if known is not None:
            return known
        reached, ending = hole.sides(tokens, self.mask_id)
        masks, forced = {}, []
        for place, token in enumerate(tokens):
            if token != self.mask_id:
                continue
            key = (reached[place].tobytes(), ending[place + 1].tobytes())
            if key not in hole.between:
                hole.between[key] = self._numbered(ending[place + 1][hole.moves[reached[place]]].any(0))
            masks[place] = hole.between[key]
            if (only := self._only[masks[place]]) is not None:
                forced.append((place, only))
        if len(hole.looks) >= CACHED:
            hole.looks.clear()
        hole.looks[tokens] = look = Look(masks, tuple(forced))
        return look

    def _numbered(self, allowed: NDArray[np.bool_]) -> int:
        """The number of a set of allowed tokens [V]."""
        tokens = np.flatnonzero(allowed)
        if not len(tokens):
            raise ValueError("a canvas holds tokens that no document of its scaffold has")
        number = self._number.setdefault(allowed.tobytes(), len(self._masks))
        if number == len(self._masks):
            self._masks.append(allowed)
            self._only.append(int(tokens[0]) if len(tokens) == 1 else None)
        return number
