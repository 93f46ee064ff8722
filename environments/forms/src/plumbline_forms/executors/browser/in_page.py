"""Plans without navigation: pages are written into one that is open, and requests go to the site by a function call.

The browser does what only it can do (parse, run the page's script, edit, check, collect the entries) in one call for a
whole group of plans. What a navigation would cost, most of an episode, is not paid. The encoding of the request is
ours here, and the browser's own in `served.py`; a test holds them to the same submissions.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plumbline_forms.executors.browser.steps import Course, Stretch, stretch
from plumbline_forms.executors.direct import Entry, Tab
from plumbline_forms.executors.executor import Case, Execution, Limits
from plumbline_forms.executors.page import FormOwner, parse_page
from plumbline_forms.plans.actions import Plan
from plumbline_forms.site.site import Site

if TYPE_CHECKING:
    from playwright.async_api import Page

_GROUP = "([pages, jobs, ms]) => jobs.map(([page, steps]) => plumblineHand.onNewPage(pages[page], steps, ms))"


async def carry_out(page: "Page", site: Site, case: Case, plans: Sequence[Plan], limits: Limits) -> list[Execution]:
    """Carry out plans, each in an episode of its own.

    Raises:
        playwright.async_api.Error: the browser broke down.
    """
    visits = [(Tab(site, case), Course(plan, limits)) for plan in plans]
    try:
        for tab, _ in visits:
            tab.load(tab.base)
        while waiting := [(*visit, part) for visit in visits if (part := _next(*visit, case))]:
            # One call to the browser for the next stretch of every plan.
            pages: dict[bytes, int] = {}
            jobs: list[Any] = [[pages.setdefault(tab.html, len(pages)), part.steps] for tab, _, part in waiting]
            texts = [html.decode("utf-8", "replace") for html in pages]
            results = await page.evaluate(_GROUP, [texts, jobs, 1000 * limits.seconds])
            for visit, result in zip(waiting, results, strict=True):
                _go_on(*visit, result)
        return [
            Execution(tuple(course.attempts), site.receipts(tab.episode), parse_page(tab.html).text, course.cut)
            for tab, course in visits
        ]
    finally:
        for tab, _ in visits:
            site.close(tab.episode)


def _next(tab: Tab, course: Course, case: Case) -> Stretch | None:
    """The next stretch that needs a browser; those before it that need none are settled here."""
    while rest := course.rest:
        part = stretch(rest, parse_page(tab.html), case, course.limits)
        if part.steps:
            return part
        _go_on(tab, course, part, {"attempts": (), "send": False, "cut": False})
    return None


def _go_on(tab: Tab, course: Course, part: Stretch, result: Mapping[str, Any]) -> None:
    """Note what became of a stretch, and send what the browser collected or load the page that comes next."""
    course.add(part.attempts(result["attempts"], sent=result["send"]), cut=result["cut"])
    if result["send"]:
        is_sent = tab.send(FormOwner.of(result["how"]), [Entry(*one) for one in result["entries"]])
        assert is_sent  # the hand refuses other addresses
    elif part.go is not None and not result["cut"]:
        tab.load(tab.base + part.go.rest)
