"""The elements of an array, and what its commas mean.

A comma separates: `[4,5]` is two numbers. Only where the array separates by `;`, or where a comma without a blank
behind it cannot separate (`R$ 10,50`, `12,5%`, `4,05`), it is a decimal comma; and where neither is clear the array is
left out.
"""

import re
from typing import Any

from plumbline.tasks.text.json_leaves import MISSING
from plumbline.tasks.text.numbers import read_number


class Elements:
    """Collects the elements of one array, and how its commas stood."""

    __slots__ = ("items", "joined", "semicolons", "spaced", "spans", "wrapped")

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.spans: list[tuple[int, int]] = []
        self.semicolons: list[int] = []
        """How many elements stood before each semicolon."""
        self.spaced: dict[int, None] = {}
        """How many elements stood before each comma with a blank behind it."""
        self.joined: set[int] = set()
        """How many elements stood before each place where the comma is missing."""
        self.wrapped = False
        """Whether it holds one array only, and either of their brackets is wrong."""

    def add(self, value: Any, start: int, end: int) -> None:
        """Add an element and its place in the text."""
        self.items.append(value)
        self.spans.append((start, end))

    def separate(self, char: str, *, spaced: bool) -> None:
        """Note a comma or semicolon, and whether a blank stands behind it."""
        if char in ";；":
            self.semicolons.append(len(self.items))
        elif spaced:
            self.spaced[len(self.items)] = None

    def value(self, text: str, repairs: set[str], *, integer: bool) -> Any:
        """The array; MISSING where nobody can tell its elements apart.

        Args:
            text: the whole text.
            repairs: the names of the repairs are added here.
            integer: whether its elements are whole numbers by the schema.
        """
        if self.wrapped:
            return MISSING
        if self.semicolons:
            repairs.add("separator")
            return self._grouped(self.semicolons, text, repairs, integer=integer)
        doubt = self._doubt(text) if len(self.items) > 1 else ""
        if not doubt:
            return self.items
        if doubt == "mixed":
            return MISSING
        ends = list(self.spaced)
        if doubt == "zero" and not ends:
            # No number begins with 05 or 000: each belongs to the one before. In [4,05,3,5] the rest has two readings.
            ends = list(range(2, len(self.items), 2))
            if len(self.items) % 2 or not all(
                _LEADING_ZERO(text, self.spans[i][0]) for i in range(1, len(self.items), 2)
            ):
                return MISSING
        return self._grouped(ends, text, repairs, integer=integer)

    def _doubt(self, text: str) -> str:
        """Why a comma without a blank behind it may be a decimal comma; "" if none is.

        "unit" in `12,5%` and `R$ 10,50`, "zero" in `4,05`, and "mixed" where something else than a comma separates, too
        (`4,5 3,5`, `4,5 | 3,5`).
        """
        for i in range(1, len(self.items)):
            if i in self.spaced or i in self.joined or not _is_number(self.items[i - 1]):
                continue
            left, right = text[slice(*self.spans[i - 1])], text[slice(*self.spans[i])]
            if not _is_number(self.items[i]):
                if _BEGINS_WITH_DIGIT(right) and _WHOLE(left):
                    return "mixed"
                continue
            if self.joined and _WHOLE(left) and _WHOLE(right):
                return "mixed"
            if right[-1] == "%" != left[-1] or (_MARKED(left) and not _MARKED(right)):
                return "unit"
            if _LEADING_ZERO(right) and _WHOLE(left):
                return "zero"
        return ""

    def _grouped(self, ends: list[int], text: str, repairs: set[str], *, integer: bool) -> Any:
        """The array with what stands between these separators read as one number, commas included."""
        whole: list[Any] = []
        for begin, end in zip([0, *ends], [*ends, len(self.items)], strict=True):
            if end - begin > 1 and all(map(_is_number, self.items[begin:end])):
                written = text[self.spans[begin][0] : self.spans[end - 1][1]]
                number = read_number(written, integer=integer)
                if number is None or (not integer and _ONE_GROUP(written)):
                    return MISSING  # rows of a table, perhaps; or 105,000, which is 105 or 105000
                repairs.update(number.repairs)
                whole.append(number.value)
            else:
                whole += self.items[begin:end]
        return whole


_BEGINS_WITH_DIGIT = re.compile(r"\d").match
_LEADING_ZERO = re.compile(r"0\d").match
_ONE_GROUP = re.compile(r"[-+−]?[1-9]\d{0,2},\d{3}\Z").match
_WHOLE = re.compile(r"[-+−]?(?:0|[1-9]\d*|[1-9]\d{0,2}(?:\.\d{3})+)\Z").match
_MARKED = re.compile(r"[-+−]?[ \t]*[^-+−.\d]").match


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
