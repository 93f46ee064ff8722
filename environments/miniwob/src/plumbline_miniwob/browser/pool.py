"""Episodes in warm pages of a real Chromium: what a page shows, what a plan earns there, what the
oracle does.

An episode is decided by its task, its seed and the acts (`clock.js` holds the time), so it does not
matter in which page it runs, or whether it runs again from its start. Pages are kept open by task,
as many as memory is meant to hold; the one that was not used for longest is led to another task. A
page that hangs or crashes costs the episode that did it, which is tried once more in a fresh page;
a second time is a counted failure.
"""

import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from plumbline.records import Failure
from plumbline_browser import pool
from plumbline_browser.pool import Seat, within
from plumbline_miniwob import pages
from plumbline_miniwob.browser.script import script
from plumbline_miniwob.world import ActionOutcome, Played

if TYPE_CHECKING:
    from playwright.async_api import Page, ViewportSize

T = TypeVar("T")
Json = Mapping[str, Any]
"""An action as `acts.js` takes it."""
_LOADING, _USING = 20.0, 60.0
"""Seconds that loading a page may take, and anything else with a page, such as a film."""


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """Of one episode."""

    acts: int = 100
    ms: int = 120_000
    """Of the page's own time [milliseconds]; pages end by themselves long before."""
    seconds: float = 10.0
    """Of real time: what takes longer is broken off, and never judged."""


@dataclass(frozen=True, slots=True)
class PageElement:
    """Something on the page that one can act on."""

    ref: int
    role: str
    name: str
    value: str
    states: tuple[str, ...]
    box: tuple[int, int, int, int]
    """Left, top, width, height [pixels]."""


@dataclass(frozen=True, slots=True)
class First:
    """What an episode begins with."""

    text: str
    utterance: str
    elements: tuple[PageElement, ...]


@dataclass(frozen=True, slots=True)
class OracleEpisode:
    """What the oracle did."""

    first: First
    acts: tuple[Json, ...]
    ran: Played
    why: str
    """Empty where the page has answered: why it has not, otherwise, such as that the task has no
    oracle."""


@dataclass(frozen=True, slots=True, eq=False)
class PlayedEpisode:
    """An episode that is played turn by turn. It holds no page; see `EpisodePool.act`."""

    task: str
    seed: str
    number: int = field(default_factory=count(1).__next__)
    turns: list[tuple[Json, ...]] = field(default_factory=list)


class EpisodePool(pool.BrowserPool):
    """Safe to call from several threads; holds a browser from its first episode until it is
    closed."""

    # The task's area of 160 x 210 with what may stick out of it; where a calendar or a menu opens
    # depends on this.
    viewport: "ViewportSize" = {"width": 500, "height": 320}  # noqa: RUF012
    context_options: dict[str, Any] = {"timezone_id": "UTC"}  # noqa: RUF012

    def __init__(
        self,
        limits: EpisodeLimits | None = None,
        *,
        keep: int = 32,
        at_once: int = 2,
        recycle: int = 2000,
    ) -> None:
        """Look for a browser and the pages.

        Args:
            limits: of every episode.
            keep: pages that stay open [about 65 MB each].
            at_once: pages that work at the same time.
            recycle: episodes after which a page is closed and another one opened.

        Raises:
            RecipeError: Playwright, a Chromium or the pages are missing.
        """
        pages.folder()
        super().__init__("miniwob-browser", keep=keep, at_once=at_once, recycle=recycle)
        self.limits, self.script = limits if limits is not None else EpisodeLimits(), script()

    def first(self, task: str, seed: str) -> First | Failure:
        """What an episode begins with.

        Raises:
            RecipeError: there is no such task.
        """
        found = self._one(task, "seed => plumbline.episodes.first(seed)", seed)
        return found if isinstance(found, Failure) else _first(found)

    def gold(self, task: str, seed: str) -> OracleEpisode | Failure:
        """Let the oracle play an episode.

        Raises:
            RecipeError: there is no such task.
        """
        work = "([task, seed, limits]) => plumbline.episodes.gold(task, seed, limits)"
        found = self._one(task, work, [task, seed, asdict(self.limits)])
        return (
            found
            if isinstance(found, Failure)
            else OracleEpisode(
                _first(found["first"]), tuple(found["acts"]), _played(found), found["why"]
            )
        )

    def run(
        self, task: str, seed: str, plans: Sequence[Sequence[Json]], *, shows: bool = True
    ) -> list[Played | Failure]:
        """Carry out each plan in an episode of its own, all in one call to one page; one result for
        each, in order.

        Args:
            task: of the page.
            seed: of every episode.
            plans: one for each episode.
            shows: whether results have the text of the page as it is then; it takes time, and
                judging needs none.

        Raises:
            RecipeError: there is no such task.
        """
        work = (
            "([seed, plans, limits, shows]) => plumbline.episodes.group(seed, plans, limits, shows)"
        )
        limits = asdict(self.limits)
        cut = [list(plan[: self.limits.acts + 1]) for plan in plans]
        if len(cut) > 1 and not pages.is_reloaded(task):
            with suppress(*self.broken):
                found = self.call(self._evaluate(task, work, [seed, cut, limits, shows], len(cut)))
                return [_played(one) for one in found]
            # A page broke down, and which plan did that is not known: each gets a page to itself.
        alone = [self._one(task, work, [seed, [plan], limits, shows]) for plan in cut]
        return [one if isinstance(one, Failure) else _played(one[0]) for one in alone]

    def act(self, visit: PlayedEpisode, acts: Sequence[Json]) -> Played | Failure:
        """Play a turn, whose numbers of elements are those of the latest page text; how the episode
        stands after it.

        No page waits for a turn: where the page of the turns before is still as they left it, it
        goes on from there, otherwise another one plays them again.
        """
        visit.turns.append(tuple(acts[: self.limits.acts + 1]))
        work = "([key, seed, turns, limits]) => plumbline.episodes.turns(key, seed, turns, limits)"
        argument = [
            visit.number,
            visit.seed,
            [list(turn) for turn in visit.turns],
            asdict(self.limits),
        ]
        found = self._one(visit.task, work, argument, episode=visit.number)
        return found if isinstance(found, Failure) else _played(found)

    def evaluate(self, task: str, work: str, argument: Any) -> Any:
        """The result of a script in a page of a task, or a `Failure`.

        Raises:
            RecipeError: there is no such task.
        """
        return self._one(task, work, argument)

    def use(self, task: str, work: Callable[["Page"], Coroutine[Any, Any, T]]) -> T:
        """Do something else with a page of a task, such as taking pictures; the page is not used
        again.

        Raises:
            playwright.async_api.Error: the browser broke down.
        """
        return self.call(self._use(task, work))

    def forget(self) -> None:
        """Let every page be loaded again before its next episode."""
        self.call(self._forget())

    def _one(self, task: str, work: str, argument: Any, episode: int | None = None) -> Any:
        return self.call(self.twice(lambda: self._evaluate(task, work, argument, 1, episode)))

    # -- in the loop -------------------------------------------------------------------------------

    async def _use(self, task: str, work: Callable[["Page"], Coroutine[Any, Any, T]]) -> T:
        address = pages.address(task)

        async def loaded(seat: Seat) -> T:
            await within(_LOADING, seat.page.goto(address, wait_until="load"))
            return await within(_USING, work(seat.page))

        return await self.on_a_seat(loaded, task=task, keeps=False)

    async def _evaluate(
        self, task: str, work: str, argument: Any, episodes: int, episode: int | None = None
    ) -> Any:
        """The result of a script in a page of a task."""
        address = pages.address(task)

        async def evaluated(seat: Seat) -> Any:
            if seat.task != task or (
                pages.is_reloaded(task) and (episode is None or seat.episode != episode)
            ):
                seat.task, seat.episode = task, None
                await within(_LOADING, seat.page.goto(address, wait_until="load"))
            result = await within(
                episodes * self.limits.seconds + pool.GRACE, seat.page.evaluate(work, argument)
            )
            goes_on = episode is not None and not (result["answered"] or result["cut"])
            seat.episode = episode if goes_on else None
            return result

        return await self.on_a_seat(evaluated, episodes, task=task, episode=episode)

    async def _forget(self) -> None:
        for seat in self.free:
            seat.task, seat.episode = "", None


def _first(found: Json) -> First:
    elements = tuple(
        PageElement(
            one["ref"],
            one["role"],
            one["name"],
            one["value"],
            tuple(one["states"]),
            tuple(one["box"]),
        )
        for one in found["elements"]
    )
    return First(found["text"], found["utterance"], elements)


def _played(found: Json) -> Played:
    raw = (
        found["raw"] if isinstance(found["raw"], int | float) and math.isfinite(found["raw"]) else 0
    )
    return Played(
        raw=float(raw),
        answered=found["answered"],
        reason=found["reason"],
        attempts=tuple(ActionOutcome(*one) for one in found["attempts"]),
        text=found["text"],
        notes=tuple(found["notes"]),
        cut=found["cut"],
        ms=found["ms"],
        elements=tuple((role, name) for role, name in found.get("elements", ())),
    )
