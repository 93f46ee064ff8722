"""Plans on the site as it is served: the browser navigates, sends its own requests and follows the answers."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from plumbline_forms.executors.browser.steps import Course, Stretch, stretch
from plumbline_forms.executors.executor import Attempt, Case, Execution
from plumbline_forms.executors.page import PageModel, parse_page
from plumbline_forms.plans.actions import Action
from plumbline_forms.site.site import Site

if TYPE_CHECKING:
    from playwright.async_api import Page

_READ = "() => plumblineHand.read()"
_CARRY_OUT = "([steps, ms]) => plumblineHand.onThisPage(steps, ms)"
_QUIET = 0.3
"""Seconds after a received submission without a navigation: the page sent it by a script and stays."""


Watch = Callable[[int, Action, Attempt | None], Awaitable[None]]
"""Called before each action (number from 1, the action, None) and after it (with what became of it)."""


async def carry_out(
    page: "Page", site: Site, address: str, case: Case, course: Course, watch: Watch | None = None
) -> Execution:
    """Carry out a plan in an episode of its own.

    Args:
        page: of a browser that reaches the site.
        site: what is served.
        address: where.
        case: the form.
        course: what to do there, from its first action on.
        watch: for those who look on; the actions are then carried out one at a time.

    Raises:
        playwright.async_api.Error: the browser broke down, or the site does not answer.
    """
    until = time.monotonic() + course.limits.seconds
    episode = site.open(case.view)
    try:
        base = address + site.address(episode, case.view)
        await _load(page, base, until)
        model = await _read(page)
        last = None
        while rest := course.rest:
            if watch is not None:
                rest = rest[:1]
                await watch(len(course.attempts) + 1, rest[0], None)
            found = stretch(rest, model, case, course.limits, last, pauses=True)
            last = found.last
            result: dict[str, Any] = {"attempts": [], "send": False, "cut": False}
            if found.steps:
                result = await _carry_out(page, site, episode, found, until)
            course.add(found.attempts(result["attempts"], sent=result["send"]), cut=result["cut"])
            if not result["send"] and found.go is not None and not result["cut"]:
                await _load(page, base + found.go.rest, until)
            last = None if result["send"] or found.go is not None else last
            model = await _read(page)
            if watch is not None and course.attempts:
                await watch(len(course.attempts), rest[0], course.attempts[-1])
        return Execution(tuple(course.attempts), site.receipts(episode), model.text, course.cut)
    finally:
        site.close(episode)


async def _load(page: "Page", url: str, until: float) -> None:
    await page.goto(url, wait_until="domcontentloaded", timeout=_left(until))


async def _read(page: "Page") -> PageModel:
    """The page as it is now, with whatever its scripts have built."""
    html = await page.evaluate(_READ)
    return parse_page(html.encode("utf-8", "replace"))


async def _carry_out(page: "Page", site: Site, episode: str, found: Stretch, until: float) -> dict[str, Any]:
    """Carry out a stretch; where it sends the form, wait for what comes of that."""
    before = len(site.receipts(episode))
    loaded = asyncio.ensure_future(page.wait_for_event("domcontentloaded", timeout=_left(until)))
    try:
        result: dict[str, Any] = await page.evaluate(_CARRY_OUT, [found.steps, _left(until)])
        if result["send"]:
            await _arrival(loaded, site, episode, before)
        return result
    finally:
        loaded.cancel()
        await asyncio.gather(loaded, return_exceptions=True)


async def _arrival(loaded: "asyncio.Future[Any]", site: Site, episode: str, before: int) -> None:
    """Wait for the page that comes, or for a submission that leaves this one standing."""
    received = 0.0
    while not loaded.done():
        await asyncio.wait({loaded}, timeout=0.1)
        if not received and len(site.receipts(episode)) > before:
            received = time.monotonic()
        if received and time.monotonic() - received >= _QUIET:
            return
    loaded.result()


def _left(until: float) -> float:
    """Milliseconds that are left; never 0, which would mean without end."""
    return max(1.0, 1000 * (until - time.monotonic()))
