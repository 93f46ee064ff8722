"""A pool of warm pages of a Chromium, in a loop on a thread of its own, for callers on any thread.

A crash or a hang costs the episode that it hit, which is tried once more on a fresh page; a second
one is a counted failure. Contexts are closed and opened again after some hundreds of episodes,
because browsers keep memory for as long as a context lives. The browser is started when it is first
needed, and again where it or its driver died.
"""

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from plumbline.errors import PlumblineError
from plumbline.records import Failure
from plumbline_browser.chromium import VIEWPORT, find_chromium, import_playwright, launch

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Dialog, Page, Playwright, ViewportSize

T = TypeVar("T")
GRACE = 5.0
"""Seconds beyond the episodes' own limits after which a page counts as hung."""
_STARTING, _CLOSING, _STOPPING = 60.0, 5.0, 15.0
"""Seconds that opening an empty page (with the browser, if need be), closing one thing and closing
all may take."""


class PageTimeoutError(PlumblineError):
    """A page did not come to an end, or the driver is gone."""


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of work on a page.

    Raises:
        PageTimeoutError: it takes longer, or the driver is gone.
    """
    try:
        return await asyncio.wait_for(work, seconds)
    except TimeoutError as error:
        raise PageTimeoutError(f"the page did not come to an end within {seconds:.0f} s") from error
    except Exception as error:
        if type(error) is Exception:  # Playwright's way of saying that its driver is gone
            raise PageTimeoutError(str(error)) from error
        raise


@dataclass(slots=True, eq=False)
class Seat:
    """A page that is open, and what happened on it."""

    context: "BrowserContext"
    page: "Page"
    used: int = 0
    """Episodes so far."""
    task: str = ""
    """What is loaded in it; "" where any work may have it."""
    episode: int | None = None
    """The episode of several turns that it is in the middle of."""
    notes: list[str] = field(default_factory=list)


class BrowserPool:
    """Safe to call from several threads; holds a browser from its first work until it is closed."""

    viewport: "ViewportSize" = VIEWPORT
    context_options: dict[str, Any] = {}  # noqa: RUF012
    """Of new contexts, beside those that all have."""
    script = ""
    """What every page runs before its own scripts."""

    def __init__(self, name: str, *, keep: int, at_once: int, recycle: int) -> None:
        """Look for a browser.

        Args:
            name: of the thread.
            keep: pages that stay open, at least `at_once`.
            at_once: pages that work at the same time.
            recycle: episodes after which a page is closed and another one opened.

        Raises:
            RecipeError: Playwright or a Chromium is missing.
        """
        self.name, self.keep, self.at_once, self.recycle = (
            name,
            max(keep, at_once),
            at_once,
            recycle,
        )
        self.api, self.path = import_playwright(), find_chromium()
        self.broken: tuple[type[BaseException], ...] = (self.api.Error, PageTimeoutError, OSError)
        """What is raised where the browser, its driver or a page broke down."""
        self.address: str | None = None
        """What the browser may reach; see `chromium.launch`."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> None:
        """Before the loop is started: nothing is open yet."""
        self.free: list[Seat] = []  # the one that was used last comes last
        self.open = 0
        self._working, self._launching = asyncio.Semaphore(self.at_once), asyncio.Lock()
        self._driver: Playwright | None = None
        self._browser: Browser | None = None

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work that is done in the loop: Playwright belongs to the loop that started
        it."""
        with self._lock:
            if self._loop is None:
                self.begin()
                self._loop = asyncio.new_event_loop()
                # Where a driver dies, Playwright leaves futures behind that nobody waits for; the
                # callers were told.
                self._loop.set_exception_handler(lambda *_: None)
                threading.Thread(target=self._loop.run_forever, name=self.name, daemon=True).start()
                atexit.register(self.close)
            loop = self._loop
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    def close(self) -> None:
        """End the browser; the next work would start another one. One that cannot be closed is left
        to the system."""
        with self._lock:
            loop, self._loop = self._loop, None
            if loop is None:
                return
            atexit.unregister(self.close)
            closing = asyncio.run_coroutine_threadsafe(self.end(), loop)
            try:
                closing.result(_STOPPING)
            except self.broken:
                closing.cancel()
            loop.call_soon_threadsafe(loop.stop)

    # -- in the loop -------------------------------------------------------------------------------

    async def twice(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T | Failure:
        """The result of work for a single episode; one that breaks its page down twice is a
        `Failure`."""
        try:
            with suppress(*self.broken):
                return await work()
            return await work()
        except self.broken as error:
            cause = "timeout" if type(error).__name__ == "TimeoutError" else "browser"
            cause = "hang" if isinstance(error, PageTimeoutError) else cause
            return Failure(cause=cause, detail=str(error).strip().split("\n")[0][:300])

    async def on_a_seat(
        self,
        work: Callable[[Seat], Coroutine[Any, Any, T]],
        episodes: int = 1,
        *,
        task: str = "",
        episode: int | None = None,
        keeps: bool = True,
    ) -> T:
        """Do something on a page, which is kept if it went well and `keeps` says so."""
        async with self._working:
            try:
                seat = await within(_STARTING, self._take(task, episode))
            except PageTimeoutError:
                # a browser that gives no page in time is ended, and the next call starts another
                # one
                await self.end()
                raise
            try:
                result = await work(seat)
            except BaseException:
                await self._discard(seat)
                raise
            seat.used += episodes
            if keeps and seat.used < self.recycle:
                self.free.append(seat)
            else:
                await self._discard(seat)
            return result

    async def _take(self, task: str, episode: int | None) -> Seat:
        """The page of this episode, or of this task, or a new one, or the one that was not used for
        longest."""
        browser = await self.browser()
        fits = [seat for seat in self.free if seat.task == task]
        mine = [seat for seat in fits if episode is not None and seat.episode == episode]
        idle = [seat for seat in fits if seat.episode is None]
        if not (mine or idle) and self.open < self.keep:
            self.open += 1
            try:
                return await self.new_seat(browser)
            except BaseException:
                self.open -= 1
                raise
        seat = (mine or idle or fits or self.free)[-1 if mine or idle else 0]
        self.free.remove(seat)
        return seat

    async def new_seat(self, browser: "Browser") -> Seat:
        """A page in a context of its own, which answers dialogs."""
        context = await browser.new_context(
            accept_downloads=False,
            service_workers="block",
            locale="en-US",
            viewport=self.viewport,
            **self.context_options,
        )
        await context.add_init_script(self.script)
        seat = Seat(context, await context.new_page())

        async def accept(dialog: "Dialog") -> None:
            seat.notes.append(f"dialog: {dialog.message[:200]}")
            await dialog.accept()

        seat.page.on("dialog", accept)
        return seat

    async def _discard(self, seat: Seat) -> None:
        """Close a page; a browser that cannot even do that is ended."""
        self.open -= 1
        try:
            await asyncio.wait_for(seat.context.close(), _CLOSING)
        except self.broken:
            if seat.context.browser is self._browser:  # and not one that was started since
                await self.end()

    async def browser(self) -> "Browser":
        """The browser, started again where it is gone."""
        async with self._launching:
            if self._browser is None or not self._browser.is_connected():
                await self.end()
                self._driver = await self.api.async_playwright().start()
                self._browser = await launch(self._driver, self.path, self.address)
            return self._browser

    async def end(self) -> None:
        """End the browser and its driver."""
        self.open -= len(self.free)
        self.free.clear()
        browser, driver, self._browser, self._driver = self._browser, self._driver, None, None
        for close in (browser.close if browser else None, driver.stop if driver else None):
            if close is not None:
                with suppress(*self.broken):  # it is being replaced because it does not answer
                    await asyncio.wait_for(close(), _CLOSING)
