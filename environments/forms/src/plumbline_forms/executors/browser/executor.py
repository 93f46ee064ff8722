"""The browser executors: the call that every executor has, on a pool of warm pages."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, TypeVar

from plumbline.records import Failure
from plumbline_forms.driver.pool import GRACE, Pool, Seat, within
from plumbline_forms.executors.browser import in_page, served
from plumbline_forms.executors.browser.steps import Course
from plumbline_forms.executors.executor import Case, Execution, Limits
from plumbline_forms.plans.actions import Plan
from plumbline_forms.site.serve import serve
from plumbline_forms.site.site import Site

if TYPE_CHECKING:
    from playwright.async_api import Browser, Download, Page

T = TypeVar("T")
PAGES = 3
"""Pages that are open at once: while two keep two cores busy, a third waits for its server (10 % faster than two)."""
RECYCLE = 200
"""Episodes after which a context is closed and another one opened."""
_NOTES = 20
"""Notes that are kept of one episode."""


class BrowserExecutor(Pool):
    """See `executor.Executor`. Safe to call from several threads; holds a browser until it is closed."""

    def __init__(
        self,
        site: Site | None = None,
        limits: Limits | None = None,
        *,
        navigates: bool = True,
        pages: int = PAGES,
        recycle: int = RECYCLE,
    ) -> None:
        """Look for a browser; it is started with the first plan.

        Args:
            site: where the forms are.
            limits: of every plan.
            navigates: whether pages are served and requests sent by the browser, or pages are written into one
                (`in_page.py`).
            pages: open at once.
            recycle: episodes that a context lives for.

        Raises:
            RecipeError: Playwright or a Chromium is missing.
        """
        super().__init__("browser" if navigates else "in-page", keep=pages, at_once=pages, recycle=recycle)
        hand = (files(__package__) / "hand.js").read_text(encoding="utf-8")
        self.script = f"window.plumblineHand = {hand};"
        self.site = site if site is not None else Site()
        self.limits = limits if limits is not None else Limits()
        self._navigates, self._served = navigates, ExitStack()

    def begin(self) -> None:
        """See `Pool.begin`."""
        super().begin()
        self.address = self._served.enter_context(serve(self.site)) if self._navigates else None

    def close(self) -> None:
        """See `Executor.close`."""
        super().close()
        self._served.close()

    def run(self, case: Case, plans: Sequence[Plan]) -> list[Execution | Failure]:
        """See `Executor.run`."""
        return self.call(self._run(case, plans)) if plans else []

    def use(self, work: Callable[["Page", str], Coroutine[None, None, T]]) -> T:
        """Do something else with a page and the site's address, such as taking pictures of a plan (`pictures.py`).

        Raises:
            playwright.async_api.Error: the browser broke down.
        """
        return self.call(self._on_a_page(lambda seat: work(seat.page, self.address or ""), 1))

    async def _run(self, case: Case, plans: Sequence[Plan]) -> list[Execution | Failure]:
        async def alone(plan: Plan) -> Execution | Failure:
            return await self.twice(lambda: self._on_a_page(lambda seat: self._served_plan(seat, case, plan), 1))

        async def together(some: Sequence[Plan]) -> list[Execution]:
            return await self._on_a_page(
                lambda seat: in_page.carry_out(seat.page, self.site, case, some, self.limits), len(some)
            )

        if self.address is not None:
            return list(await asyncio.gather(*map(alone, plans)))
        try:
            return list(await together(plans))
        except self.broken:
            # Which of them it was is not known: each gets a page to itself.
            found = [await self.twice(lambda plan=plan: together([plan])) for plan in plans]  # type: ignore[misc]
            return [one if isinstance(one, Failure) else one[0] for one in found]

    async def _served_plan(self, seat: Seat, case: Case, plan: Plan) -> Execution:
        seat.notes.clear()
        done = await served.carry_out(seat.page, self.site, self.address or "", case, Course(plan, self.limits))
        return replace(done, notes=tuple(seat.notes[:_NOTES]))

    async def _on_a_page(self, work: Callable[[Seat], Coroutine[None, None, T]], plans: int) -> T:
        return await self.on_a_seat(lambda seat: within(plans * self.limits.seconds + GRACE, work(seat)), plans)

    async def new_seat(self, browser: "Browser") -> Seat:
        """See `Pool.new_seat`; nothing is downloaded, and no other window stays open."""
        seat = await super().new_seat(browser)

        async def cancel(download: "Download") -> None:
            seat.notes.append(f"download: {download.suggested_filename[:100]}")
            await download.cancel()

        async def shut(other: "Page") -> None:
            if other is not seat.page:
                seat.notes.append(f"window: {other.url[:200]}")
                await other.close()

        seat.page.on("download", cancel)
        seat.page.on("requestfailed", lambda one: seat.notes.append(f"not let out: {one.url[:200]} ({one.failure})"))
        seat.context.on("page", shut)
        if self.address is None:
            await seat.page.goto("about:blank")
        return seat
