"""The pages of the pool, in the loop that the browser belongs to."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from plumbline_forms.driver.chromium import Driven, Hung, failure, within
from plumbline_miniwob import pages
from plumbline_miniwob.browser.script import script

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Dialog, Page, ViewportSize

T = TypeVar("T")
VIEWPORT: "ViewportSize" = {"width": 500, "height": 320}
"""The task's area of 160 x 210 with what may stick out of it; where a calendar or a menu opens depends on this."""
_GRACE = 5.0
"""Seconds beyond the episodes' own limits after which a page counts as hung."""
_STARTING = 60.0
"""Seconds that starting the browser and opening an empty page may take."""
_LOADING = 20.0
"""Seconds that loading a page may take."""
_USING = 60.0
"""Seconds that anything else with a page may take, such as a film."""


@dataclass(slots=True, eq=False)
class Seat:
    """A page that is open."""

    context: "BrowserContext"
    page: "Page"
    task: str = ""
    used: int = 0
    episode: int | None = None
    """The episode of several turns that it is in the middle of."""


class Engine:
    """The browser and its seats. Every method runs in one loop."""

    def __init__(self, api: Any, path: str, keep: int, at_once: int, recycle: int, seconds: float) -> None:
        """Nothing is started yet; see `Pool` for what these are."""
        self.driven = Driven(api, path)
        self.keep, self.recycle, self.seconds = max(keep, at_once), recycle, seconds
        self.free: list[Seat] = []  # the one that was used last comes last
        self.open = 0
        self.working = asyncio.Semaphore(at_once)

    async def group(self, task: str, work: str, argument: Any, episodes: int) -> Any:
        """The result of a script in a page of a task; None where the page broke down."""
        try:
            return await self._on_a_seat(task, lambda page: page.evaluate(work, argument), episodes, None)
        except self.driven.broken:
            return None

    async def one(self, task: str, work: str, argument: Any, episode: int | None) -> Any:
        """The same for a single episode; one that breaks its page down twice is a `Failure`."""
        for attempt in (1, 2):
            try:
                return await self._on_a_seat(task, lambda page: page.evaluate(work, argument), 1, episode)
            except self.driven.broken as error:
                if attempt == 2:
                    return failure(error)
        raise AssertionError("unreachable")

    async def use(self, task: str, work: Callable[["Page"], Coroutine[Any, Any, T]]) -> T:
        """Do something with a page as it is when it was just loaded; it is closed afterwards."""
        address = pages.address(task)
        async with self.working:
            seat = await self._seat(task, None)
            try:
                await within(_LOADING, seat.page.goto(address, wait_until="load"))
                return await within(_USING, work(seat.page))
            finally:
                await self._discard(seat)

    async def _on_a_seat(
        self, task: str, work: Callable[["Page"], Coroutine[Any, Any, T]], episodes: int, episode: int | None
    ) -> T:
        address = pages.address(task)
        async with self.working:
            seat = await self._seat(task, episode)
            try:
                if seat.task != task or (pages.is_reloaded(task) and (episode is None or seat.episode != episode)):
                    seat.task, seat.episode = task, None
                    await within(_LOADING, seat.page.goto(address, wait_until="load"))
                result = await within(episodes * self.seconds + _GRACE, work(seat.page))
            except BaseException:
                await self._discard(seat)
                raise
            seat.used += episodes
            seat.episode = episode if episode is not None and _goes_on(result) else None
            if seat.used >= self.recycle:
                await self._discard(seat)
            else:
                self.free.append(seat)
            return result

    async def _seat(self, task: str, episode: int | None) -> Seat:
        """See `_take`; a browser that gives no page in time is ended, and the next call starts another one."""
        try:
            return await within(_STARTING, self._take(task, episode))
        except Hung:
            await self.driven.end()
            raise

    async def _take(self, task: str, episode: int | None) -> Seat:
        """The page of this episode, or of this task, or a new one, or the one that was not used for longest."""
        browser = await self.driven.browser(self._gone)
        fits = [seat for seat in self.free if seat.task == task]
        mine = [seat for seat in fits if episode is not None and seat.episode == episode]
        idle = [seat for seat in fits if seat.episode is None]
        if not (mine or idle) and self.open < self.keep:
            return await self._open(browser)
        seat = (mine or idle or fits or self.free)[-1 if mine or idle else 0]
        self.free.remove(seat)
        return seat

    async def _open(self, browser: "Browser") -> Seat:
        self.open += 1
        try:
            context = await browser.new_context(
                accept_downloads=False, service_workers="block", locale="en-US", timezone_id="UTC", viewport=VIEWPORT
            )
            await context.add_init_script(script())
            page = await context.new_page()
        except BaseException:
            self.open -= 1
            raise
        page.on("dialog", _accept)
        return Seat(context, page)

    def _gone(self) -> None:
        self.open -= len(self.free)
        self.free.clear()

    async def _discard(self, seat: Seat) -> None:
        self.open -= 1
        await self.driven.discard(seat.context)

    async def forget(self) -> None:
        """Let the pages that nobody works on be loaded anew before their next use."""
        for seat in self.free:
            seat.task, seat.episode = "", None

    async def stop(self) -> None:
        """End the browser and its driver."""
        self._gone()
        await self.driven.end()


def _goes_on(found: Any) -> bool:
    """Whether an episode of several turns may have another one."""
    return not (found["answered"] or found["cut"])


async def _accept(dialog: "Dialog") -> None:
    await dialog.accept()
