"""The pool of warm pages, in the loop that the browser belongs to.

A crash or a hang costs the episode that it hit, which is tried once more on a fresh page; a second one is a counted
failure. Contexts are closed and opened anew after some hundreds of episodes, because browsers keep memory for as long
as a context lives.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from plumbline.records import Failure
from plumbline_forms.driver.chromium import VIEWPORT, Driven, failure, within
from plumbline_forms.executors.browser import in_page, served
from plumbline_forms.executors.browser.steps import Course, hand
from plumbline_forms.executors.executor import Case, Execution, Limits
from plumbline_forms.plans.actions import Plan
from plumbline_forms.site.site import Site

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Dialog, Download, Page, Request

T = TypeVar("T")
_GRACE = 5.0
"""Seconds beyond a plan's own limit after which its page counts as hung."""
_CLOSING = 5.0
_NOTES = 20
"""Notes that are kept of one episode."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What an engine is started with."""

    api: Any
    """The module playwright.async_api."""
    path: str
    """Of the browser."""
    pages: int
    """Open at once."""
    recycle: int
    """Episodes that a context lives for."""
    limits: Limits


@dataclass(slots=True, eq=False)
class Seat:
    """A page to work on, and what happened on it."""

    context: "BrowserContext"
    page: "Page"
    used: int = 0
    notes: list[str] = field(default_factory=list)


class Engine:
    """The driver, the browser and its seats. Every method runs in one loop."""

    def __init__(self, site: Site, address: str | None, settings: Settings) -> None:
        """Nothing is started yet.

        Args:
            site: where the forms are.
            address: where it is served; None writes pages into one that is open (`in_page.py`).
            settings: see there.
        """
        self.site, self.address, self.settings = site, address, settings
        self.driven = Driven(settings.api, settings.path, address)
        self.broken = self.driven.broken
        self.free: list[Seat] = []
        self.seats = asyncio.Semaphore(settings.pages)

    async def run(self, case: Case, plans: Sequence[Plan]) -> list[Execution | Failure]:
        """See `Executor.run`."""
        if self.address is not None:
            return list(await asyncio.gather(*(self._one(case, plan) for plan in plans)))
        try:
            return list(await self._group(case, plans))
        except self.broken:
            # Which of them it was is not known: each gets a page to itself.
            return [await self._one(case, plan) for plan in plans]

    async def _one(self, case: Case, plan: Plan) -> Execution | Failure:
        for attempt in (1, 2):
            try:
                return (await self._group(case, [plan]))[0]
            except self.broken as error:
                if attempt == 2:
                    return failure(error)
        raise AssertionError("unreachable")

    async def _group(self, case: Case, plans: Sequence[Plan]) -> list[Execution]:
        async def work(seat: Seat) -> list[Execution]:
            seat.notes.clear()
            if self.address is None:
                return await in_page.carry_out(seat.page, self.site, case, plans, self.settings.limits)
            found = []
            for plan in plans:
                seat.notes.clear()
                course = Course(plan, self.settings.limits)
                done = await served.carry_out(seat.page, self.site, self.address, case, course)
                found.append(replace(done, notes=tuple(seat.notes[:_NOTES])))
            return found

        return await self._on_a_seat(work, len(plans))

    async def use(self, work: Callable[["Page", str], Coroutine[Any, Any, T]]) -> T:
        """Do something with a page and the site's address."""
        return await self._on_a_seat(lambda seat: work(seat.page, self.address or ""), 1)

    async def _on_a_seat(self, work: Callable[[Seat], Coroutine[Any, Any, T]], episodes: int) -> T:
        """Do something on a page; the page is kept if it went well."""
        async with self.seats:
            seat = self.free.pop() if self.free else await self._open()
            try:
                result = await within(episodes * self.settings.limits.seconds + _GRACE, work(seat))
            except BaseException:
                await self.driven.discard(seat.context)
                raise
            seat.used += episodes
            if seat.used >= self.settings.recycle:
                await self.driven.discard(seat.context)
            else:
                self.free.append(seat)
            return result

    async def _open(self) -> Seat:
        browser = await self.driven.browser(self.free.clear)
        context = await browser.new_context(
            accept_downloads=False, service_workers="block", locale="en-US", viewport=VIEWPORT
        )
        await context.add_init_script(f"window.plumblineHand = {hand()};")
        page = await context.new_page()
        seat = Seat(context, page)
        page.on("dialog", lambda dialog: _accept(seat, dialog))
        page.on("download", lambda download: _cancel(seat, download))
        page.on("requestfailed", lambda request: _failed(seat, request))
        context.on("page", lambda other: _shut(seat, other))
        if self.address is None:
            await page.goto("about:blank")
        return seat

    async def stop(self) -> None:
        """End the browser and its driver."""
        self.free.clear()
        await self.driven.end()


async def _accept(seat: Seat, dialog: "Dialog") -> None:
    seat.notes.append(f"dialog: {dialog.message[:200]}")
    await dialog.accept()


async def _cancel(seat: Seat, download: "Download") -> None:
    seat.notes.append(f"download: {download.suggested_filename[:100]}")
    await download.cancel()


def _failed(seat: Seat, request: "Request") -> None:
    seat.notes.append(f"not let out: {request.url[:200]} ({request.failure})")


async def _shut(seat: Seat, other: "Page") -> None:
    if other is not seat.page:
        seat.notes.append(f"window: {other.url[:200]}")
        await other.close()
