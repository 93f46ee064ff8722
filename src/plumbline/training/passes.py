"""How much of a batch goes into one forward and backward pass: as much as the recipe says, or what the memory holds.

The gradient of a batch is the sum over its passes, however it was cut into them, so this decides about memory and speed
and never about a result.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from plumbline.policies.memory import Say, free, is_full, unheard

Part = TypeVar("Part")
Result = TypeVar("Result")


class Passes:
    """Does work pass by pass, and again in smaller passes where the memory was not enough.

    Args:
        clear: forgets the gradients that an unfinished piece of work left.
    """

    def __init__(self, clear: Callable[[], None]) -> None:
        self.clear = clear
        self.key = ""
        """The recipe's, for messages; empty where it has none."""
        self.say: Say = unheard
        self._limit: int | None = None
        """Tokens that were too many, halved until they were not."""

    def fitting(
        self,
        cut: Callable[[int], Sequence[Part]],
        work: Callable[[Sequence[Part]], Result],
        tokens: int,
    ) -> Result:
        """What `work` makes of the passes that `cut` makes of a batch.

        Out of memory, the gradients are cleared and all of the work is done again from its start, in passes of half as
        many tokens; so `work` draws nothing and changes no weight. What it then returns is what it would have returned
        had the recipe asked for such passes. They stay that small.

        Args:
            cut: from the most tokens of a pass to the passes.
            work: forward and backward of each of them.
            tokens: what the recipe allows.

        Raises:
            RuntimeError: torch's error of a full memory, where no pass can be made smaller.
        """
        tokens = min(tokens, self._limit or tokens)
        parts = cut(tokens)
        while True:
            try:
                return work(parts)
            except RuntimeError as error:
                smaller = self._smaller(cut, parts, tokens) if is_full(error) else None
                if smaller is None:
                    raise
                self.clear()
                free(error)
            self.say(
                "out_of_memory",
                f"passes of up to {tokens} tokens take more memory than there is; from here on they have up to "
                f"{smaller[0]}, and this step is done again with the same answers and random numbers, so no result "
                "changes" + (f". Set {self.key}: {smaller[0]} to begin with that" if self.key else ""),
            )
            tokens, parts = smaller
            self._limit = tokens

    def _smaller(
        self, cut: Callable[[int], Sequence[Part]], parts: Sequence[Part], tokens: int
    ) -> tuple[int, Sequence[Part]] | None:
        """Half of the tokens, or half of that, until the batch is cut otherwise; None where nothing is left to cut."""
        while tokens > 1:
            tokens //= 2
            if (found := cut(tokens)) != parts:
                return tokens, found
        return None
