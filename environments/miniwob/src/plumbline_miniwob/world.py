"""What the task asks of the pages: to be solved by their oracles, and to have plans carried out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from plumbline.records import Failure, Frame
from plumbline_miniwob.actions import Act
from plumbline_miniwob.grammar import PageText, TextElement


@dataclass(frozen=True, slots=True)
class Solved:
    """An episode as it begins, and how its oracle goes through it."""

    utterance: str
    text: str
    """What the page shows at first."""
    page: PageText
    acts: tuple[Mapping[str, Any], ...]
    """The oracle's actions as JSON, for the first page's numbers."""
    why: str
    """Why these earn no full reward; empty where they do."""
    turns: tuple[Mapping[str, Any], ...] | None
    """The same, one action a turn: the text of the page before it (page) and the action (act) with
    the numbers of that text. None where an action cannot be told so, or nobody asked."""


class ActionOutcome(NamedTuple):
    """What became of an action."""

    status: str
    """ok, not found, ambiguous or refused."""
    reason: str


@dataclass(frozen=True, slots=True)
class Played:
    """What became of an episode's actions: facts, no judgement."""

    raw: float
    """The page's own reward, in [-1, 1], without its part for time; 0 before it has answered."""
    answered: bool
    """Whether the page has ended the episode."""
    reason: str
    """The page's own for its reward, where it gives one."""
    attempts: tuple[ActionOutcome, ...]
    """One for each action up to the page's answer, or a limit."""
    text: str
    """What the page shows then; empty where nobody asked."""
    notes: tuple[str, ...] = ()
    """What else happened: dialogs, windows that were not opened, errors of the page's scripts."""
    cut: bool = False
    """Whether a limit on acts or on the page's time ended it."""
    ms: float = 0
    """Of the page's time that have passed."""
    elements: tuple[tuple[str, str], ...] = ()
    """Roles and names of what the text numbers, where an episode is played turn by turn."""


Turns = Callable[[Sequence[Act]], Played | Failure]
"""An episode turn by turn: takes the actions of the next one, whose numbers are those of the page
as it was shown last, and gives how the episode stands then, with the attempts of all turns."""


class World(Protocol):
    """The pages in a browser. Safe to call from several threads; a page that breaks gives a
    `Failure`."""

    at_once: int
    """Calls that gain from running beside one another."""

    def solve(self, task: str, seeds: Sequence[str], *, turns: bool) -> list[Solved | Failure]:
        """Each episode as it begins, with its oracle's plan, and that turn by turn where it is
        asked for."""
        ...

    def play(self, task: str, seed: str, plans: Sequence[Sequence[Act]]) -> list[Played | Failure]:
        """Carry out each plan in an episode of its own, all of the same seed."""
        ...

    def begin(self, task: str, seed: str) -> Turns:
        """Begin an episode that is played turn by turn."""
        ...

    def film(self, task: str, seed: str, stretches: Sequence[Sequence[Act]]) -> list[Frame]:
        """Pictures of an episode: as it begins, and after each action of its turns.

        Raises:
            PlumblineError: the browser broke down.
        """
        ...


def page_of(elements: Sequence[Sequence[str]]) -> PageText:
    """The elements of a page from their roles and names, in order."""
    return PageText(
        tuple(TextElement(number, role, name) for number, (role, name) in enumerate(elements, 1))
    )
