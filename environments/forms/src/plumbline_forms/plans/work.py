"""How much may be looked at to read a plan, so that every text is read in bounded time.

Work is counted and not timed, so that a verdict is the same on every machine.
"""

from typing import Any

MOST_WORK = 20_000
"""Units for one plan. Plans of oracles take under 400."""
LONGEST = 1_000
"""Characters that are looked at word by word."""


class TooMuchWorkError(Exception):
    """A plan takes more work than `MOST_WORK`."""


class Work:
    """The work on one text. A unit is one way to understand up to a hundred characters, some ten microseconds."""

    def __init__(self) -> None:
        """Nothing is done yet."""
        self.spent = 0
        self.halves: dict[tuple[str, int], Any] = {}
        """What parts of the text were read as, by their depth: they are asked for again and again."""

    def look(self, characters: int, words: int = 0) -> None:
        """Count one look at so many characters, of which so many are cut into words.

        Raises:
            TooMuchWorkError: see there.
        """
        self.spend(1 + characters // 100 + min(words, LONGEST) // 10)

    def spend(self, units: int) -> None:
        """Count units; see `look`."""
        self.spent += units
        if self.spent > MOST_WORK:
            raise TooMuchWorkError
