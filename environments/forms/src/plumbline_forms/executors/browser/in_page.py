"""Plans without navigation: pages are written into one that is open, and requests go to the site by a function call.

The browser does what only it can do (parse, run the page's script, edit, check, collect the entries) in one call for a
whole group of plans. What a navigation would cost, most of an episode, is not paid. The encoding of the request is
ours here, and the browser's own in `served.py`; a test holds them to the same submissions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plumbline_forms.executors.browser.steps import Course, Stretch, stretch
from plumbline_forms.executors.direct import Entry, encode, target_of
from plumbline_forms.executors.executor import Case, Execution, Limits
from plumbline_forms.executors.page import FormOwner, parse_page
from plumbline_forms.plans.actions import Plan
from plumbline_forms.site.site import Response, Site

if TYPE_CHECKING:
    from playwright.async_api import Page

_REDIRECTS = 5
_GROUP = "([pages, jobs, ms]) => jobs.map(([page, steps]) => plumblineHand.onNewPage(pages[page], steps, ms))"


@dataclass(slots=True)
class _Visit:
    """A plan on its way through the pages of its own episode."""

    course: Course
    episode: str
    base: str
    path: str
    html: bytes = b""

    def show(self, site: Site, path: str, response: Response) -> None:
        """Follow redirects to a page."""
        for _ in range(_REDIRECTS):
            if response.status != 303:
                break
            path = response.headers["location"]
            response = site.handle("GET", path)
        self.path, self.html = path, response.body


async def carry_out(page: "Page", site: Site, case: Case, plans: Sequence[Plan], limits: Limits) -> list[Execution]:
    """Carry out plans, each in an episode of its own.

    Raises:
        playwright.async_api.Error: the browser broke down.
    """
    visits: list[_Visit] = []
    try:
        for plan in plans:
            episode = site.open(case.view)
            base = site.address(episode, case.view)
            visits.append(_Visit(Course(plan, limits), episode, base, base))
            visits[-1].show(site, base, site.handle("GET", base))
        while waiting := [(visit, there) for visit in visits if (there := _next(visit, site, case))]:
            await _round(page, site, waiting, limits)
        return [
            Execution(
                tuple(visit.course.attempts),
                site.receipts(visit.episode),
                parse_page(visit.html).text,
                visit.course.cut,
            )
            for visit in visits
        ]
    finally:
        for visit in visits:
            site.close(visit.episode)


def _next(visit: _Visit, site: Site, case: Case) -> Stretch | None:
    """The next stretch that needs a browser; those before it that need none are settled here."""
    while rest := visit.course.rest:
        part = stretch(rest, parse_page(visit.html), case, visit.course.limits)
        if part.steps:
            return part
        _go_on(visit, part, site)
    return None


def _go_on(visit: _Visit, part: Stretch, site: Site) -> None:
    visit.course.add(part.attempts((), sent=False), cut=False)
    if part.go is not None:
        visit.show(site, visit.base + part.go.rest, site.handle("GET", visit.base + part.go.rest))


def _submit(visit: _Visit, site: Site, result: dict[str, Any]) -> None:
    """The request for what the browser collected."""
    how = FormOwner.of(result["how"])
    path = target_of(how, visit.path)
    assert path is not None  # the hand refuses other addresses
    if how.method == "get":
        visit.show(site, path, site.handle("GET", path))
        return
    entries = [Entry(name, value, is_file) for name, value, is_file in result["entries"]]
    kind, body = encode(entries, how.enctype)
    path = site.receiver(path, visit.path)
    visit.show(site, path, site.handle("POST", path, kind, body))


async def _round(page: "Page", site: Site, waiting: Sequence[tuple[_Visit, Stretch]], limits: Limits) -> None:
    """One call to the browser for the next stretch of every plan."""
    pages: dict[bytes, int] = {}
    jobs: list[Any] = [[pages.setdefault(visit.html, len(pages)), part.steps] for visit, part in waiting]
    texts = [html.decode("utf-8", "replace") for html in pages]
    results = await page.evaluate(_GROUP, [texts, jobs, 1000 * limits.seconds])
    for (visit, part), result in zip(waiting, results, strict=True):
        attempts = part.attempts(result["attempts"], sent=result["send"])
        visit.course.add(attempts, cut=result["cut"])
        if result["send"]:
            _submit(visit, site, result)
        elif part.go is not None and not result["cut"]:
            visit.show(site, visit.base + part.go.rest, site.handle("GET", visit.base + part.go.rest))
