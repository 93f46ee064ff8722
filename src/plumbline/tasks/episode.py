"""An episode: what a task asks, turn by turn, and what the answers come to.

Most tasks ask once, and write nothing but `Task.judge`: their episodes are of one turn.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from plumbline.errors import PlumblineError
from plumbline.records import Example, Failure, Message, Outcome, Score

T = TypeVar("T")


class EpisodeFailed(PlumblineError):  # noqa: N818 - it says what happened
    """An episode could not be gone through, through no fault of the answer: a counted failure, never a reward."""


def named(where: str, found: T | Failure) -> T | Failure:
    """With the name of what broke down, and as a raised `EpisodeFailed` is counted, where an episode failed."""
    if isinstance(found, Failure):
        return Failure(cause=EpisodeFailed.__name__, detail=f"{where}: {found.cause} {found.detail}".strip())
    return found


def whole(found: T | Failure) -> T:
    """What an episode came to, for those who ask for one alone.

    Raises:
        EpisodeFailed: it failed.
    """
    if isinstance(found, Failure):
        raise EpisodeFailed(found.detail)
    return found


class Episode(Protocol):
    """One go at an example, told by one thread at a time. It never raises, whatever the text."""

    def ask(self) -> Sequence[Message] | None:
        """The chat that the next answer continues, the example's own before the first; None where it is over."""
        ...

    def tell(self, text: str) -> None:
        """Take the answer to what was asked."""
        ...

    def result(self) -> tuple[Outcome, Score]:
        """What the answers so far come to, from the first on: an episode may be ended before it is over."""
        ...


class OneTurn:
    """The episode of a task that asks once; see `Episode`."""

    def __init__(self, example: Example, judge: Callable[[Example, str], tuple[Outcome, Score]]) -> None:
        self.example, self.judge = example, judge
        self.found: tuple[Outcome, Score] | None = None

    def ask(self) -> Sequence[Message] | None:
        """See `Episode.ask`."""
        return self.example.messages if self.found is None else None

    def tell(self, text: str) -> None:
        """See `Episode.tell`."""
        self.found = self.judge(self.example, text)

    def result(self) -> tuple[Outcome, Score]:
        """See `Episode.result`.

        Raises:
            ValueError: nothing was told.
        """
        if self.found is None:
            raise ValueError("an episode comes to nothing before its first answer")
        return self.found
