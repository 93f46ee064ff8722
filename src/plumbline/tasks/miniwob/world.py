"""What the task asks of the pages: to be solved by their oracles, and to have plans carried out."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from plumbline.records import Failure, Frame
from plumbline.tasks.miniwob.actions import Act
from plumbline.tasks.miniwob.grammar import Element, Page


@dataclass(frozen=True, slots=True)
class Solved:
    """An episode as it begins, and how its oracle goes through it."""

    utterance: str
    text: str
    """What the page shows at first."""
    page: Page
    acts: tuple[Mapping[str, Any], ...]
    """The oracle's actions as JSON, for the first page's numbers."""
    why: str
    """Why these earn no full reward; empty where they do."""
    turns: tuple[Mapping[str, Any], ...] | None
    """The same, one action a turn: the text of the page before it (page) and the action (act) with the numbers of that
    text. None where an action cannot be told so, or nobody asked."""


@dataclass(frozen=True, slots=True)
class Played:
    """What became of an episode's actions: facts, no judgement."""

    raw: float
    """The page's own reward, in [-1, 1]; 0 before it has answered."""
    answered: bool
    """Whether the page has ended the episode."""
    reason: str
    attempts: tuple[tuple[str, str], ...]
    """Status and reason of each action that was carried out, in order; the status of those that went well is ok."""
    text: str
    """What the page shows then."""
    notes: tuple[str, ...] = ()
    """What else happened: dialogs, errors in the page."""
    cut: bool = False
    """Whether a limit on acts or on the page's time ended it."""


Turns = Callable[[Sequence[Act]], Played | Failure]
"""An episode turn by turn: takes the actions of the next one, whose numbers are those of the page as it was shown last,
and gives how the episode stands then, with the attempts of all turns."""


class World(Protocol):
    """The pages in a browser. Safe to call from several threads; a page that breaks gives a `Failure`."""

    at_once: int
    """Calls that gain from running beside one another."""

    def solve(self, task: str, seeds: Sequence[str], *, turns: bool) -> list[Solved | Failure]:
        """Each episode as it begins, with its oracle's plan, and that turn by turn where it is asked for."""
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


_ELEMENT = re.compile(r"\[(\d{1,5})\] (\w+)(?: '((?:[^'\n]|'(?=\w))*)')?")


def page_in(text: str) -> Page:
    """The elements that a page text shows, as far as they can be told from it: their names, for who writes by name."""
    found = _ELEMENT.finditer(text)
    return Page(tuple(Element(int(one.group(1)), one.group(2), one.group(3) or "") for one in found))


def page_of(elements: Sequence[Sequence[str]]) -> Page:
    """The elements of a page from their roles and names, in order."""
    return Page(tuple(Element(number, role, name) for number, (role, name) in enumerate(elements, 1)))
