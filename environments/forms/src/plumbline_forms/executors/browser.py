"""The browser executors: the call that every executor has, on a pool of warm pages of a Chromium.

The one that navigates (`browser`) meets the site as it is served: the browser sends its own
requests and follows the answers. The other (`in-page`) writes pages into one that is open, and
requests go to the site by a function call: the browser does what only it can do (parse, run the
page's script, edit, check, collect the entries) in one call for a whole group of plans. What a
navigation would cost, most of an episode, is not paid. The encoding of the request is ours there; a
test holds both to the same submissions.
"""

import asyncio
import mimetypes
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

from plumbline.records import Failure
from plumbline_browser import hand
from plumbline_browser.plans.actions import Action, Plan
from plumbline_browser.pool import GRACE, BrowserPool, Seat, within
from plumbline_forms.executors import operations as does
from plumbline_forms.executors.direct import FormEntry, Tab, stub
from plumbline_forms.executors.executor import SECONDS, STEPS, Attempt, Execution, FormCase
from plumbline_forms.executors.operations import Operation, form_ahead, resolve
from plumbline_forms.executors.page import Control, FormOwner, PageModel, parse_page
from plumbline_forms.site.serve import serve
from plumbline_forms.site.site import Site
from plumbline_forms.values import typed

if TYPE_CHECKING:
    from playwright.async_api import Browser, Download, Page

T = TypeVar("T")

# -- a plan's actions as the steps that `form.js` carries out --------------------------------------


class PlanRun:
    """A plan under way."""

    def __init__(self, plan: Plan) -> None:
        actions = plan.carried_out()
        self.actions, self.is_long = actions[:STEPS], len(actions) > STEPS
        self.attempts: list[Attempt] = []
        self.cut = False

    @property
    def rest(self) -> Sequence[Action]:
        """The actions that are still to be carried out."""
        return () if self.cut else self.actions[len(self.attempts) :]

    def add(self, attempts: Sequence[Attempt], *, cut: bool) -> None:
        """Note what became of the next actions, and whether the time was up after them."""
        self.attempts += attempts
        self.cut = cut or (self.is_long and not self.rest)


Step = dict[str, Any]
"""As `form.js` reads it."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Actions that can be carried out on one page in one call, and how the page is left after
    them."""

    settled: tuple[Attempt | None, ...]
    """One for each action: how it ended without the page, or None where a step tells."""
    steps: tuple[Step, ...]
    go: does.Go | None
    """Where the last action loads a page again; it counts among the settled ones."""
    last: Control | None = None
    """The control that the plan named last."""

    def attempts(self, told: Sequence[Sequence[str]], *, sent: bool) -> list[Attempt]:
        """What became of the actions so far, in order.

        Args:
            told: status and reason of the steps that were carried out.
            sent: whether the next step sends the form, which ends the stretch there.
        """
        found: list[Attempt] = []
        rest = iter(told)
        for one in self.settled:
            if one is not None:
                found.append(one)
            elif (step := next(rest, None)) is not None:
                found.append(Attempt(*step))  # type: ignore[arg-type]  # the hand knows these three words alone
            else:
                # What follows a sent form was settled for a page that is gone; it is looked at on
                # the next one.
                return [*found, Attempt("ok")] if sent else found
        return found


def stretch(
    actions: Sequence[Action],
    model: PageModel,
    case: FormCase,
    last: Control | None = None,
    *,
    pauses: bool = False,
) -> Stretch:
    """The steps of the actions that lie on this page: up to the first that loads a page, or ends
    the plan.

    Args:
        actions: the rest of a plan.
        model: of the page that is open.
        case: the form.
        last: the control that the plan named last.
        pauses: whether a button that may change the page ends the stretch.
    """
    settled: list[Attempt | None] = []
    steps: list[Step] = []
    for place, action in enumerate(actions):
        near = form_ahead(actions[place:], model, last)
        found = resolve(action, model, case.view.form.path, case.files, near)
        if isinstance(found, does.Go):
            return Stretch((*settled, Attempt("ok")), tuple(steps), found)
        if isinstance(found, Attempt):
            settled.append(found)
            continue
        settled.append(None)
        steps.append(step_of(found, model))
        last = getattr(found, "control", last)
        if pauses and isinstance(found, does.Push):
            break
    return Stretch(tuple(settled), tuple(steps), None, last)


def step_of(operation: Operation, model: PageModel) -> Step:
    """An operation as the hand reads it; a reason that it gives calls controls what the direct
    executor calls them."""
    called = [one.called for one in model.controls]
    match operation:
        case does.Send(button):
            return {
                "op": "send",
                "button": button.index if button is not None else None,
                "called": called,
            }
        case does.Return():
            return {"op": "return", "called": called}
        case does.Go():
            raise AssertionError("loading a page is no step on it")
    control = operation.control
    at = {"op": type(operation).__name__.lower(), "index": control.index, "called": control.called}
    match operation:
        case does.Enter(_, text, clear):
            # Length is the browser's business; what a date or a number means on this page is the
            # law of typing.
            entered = typed(control.kind, text, model.language)
            return {**at, "text": entered.value, "clear": clear, "refused": entered.refused}
        case does.Choose(_, place, on):
            return {**at, "place": place, "on": on}
        case does.Tick(_, on):
            return {**at, "on": on}
        case does.Put(_, name):
            kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
            return {
                **at,
                "name": name,
                "type": kind,
                "content": stub(name).decode("utf-8", "replace"),
            }
    return at


# -- in a page that is open ------------------------------------------------------------------------

_GROUP = (
    "([pages, jobs, ms]) => jobs.map(([page, steps]) => plumbline.form.onNewPage(pages[page], "
    "steps, ms))"
)


async def in_page(
    page: "Page", site: Site, case: FormCase, plans: Sequence[Plan], seconds: float
) -> list[Execution]:
    """Carry out plans, each in an episode of its own.

    Raises:
        playwright.async_api.Error: the browser broke down.
    """
    visits = [(Tab(site, case), PlanRun(plan)) for plan in plans]
    try:
        for tab, _ in visits:
            tab.load(tab.base)
        while waiting := [(*visit, part) for visit in visits if (part := _next(*visit, case))]:
            # One call to the browser for the next stretch of every plan.
            pages: dict[bytes, int] = {}
            jobs: list[Any] = [
                [pages.setdefault(tab.html, len(pages)), part.steps] for tab, _, part in waiting
            ]
            texts = [html.decode("utf-8", "replace") for html in pages]
            results = await page.evaluate(_GROUP, [texts, jobs, 1000 * seconds])
            for visit, result in zip(waiting, results, strict=True):
                _go_on(*visit, result)
        return [
            Execution(
                tuple(course.attempts),
                site.receipts(tab.episode),
                parse_page(tab.html).text,
                course.cut,
            )
            for tab, course in visits
        ]
    finally:
        for tab, _ in visits:
            site.close(tab.episode)


def _next(tab: Tab, course: PlanRun, case: FormCase) -> Stretch | None:
    """The next stretch that needs a browser; those before it that need none are settled here."""
    while rest := course.rest:
        part = stretch(rest, parse_page(tab.html), case)
        if part.steps:
            return part
        _go_on(tab, course, part, {"attempts": (), "send": False, "cut": False})
    return None


def _go_on(tab: Tab, course: PlanRun, part: Stretch, result: Mapping[str, Any]) -> None:
    """Note what became of a stretch, and send what the browser collected or load the page that
    comes next."""
    course.add(part.attempts(result["attempts"], sent=result["send"]), cut=result["cut"])
    if result["send"]:
        is_sent = tab.send(
            FormOwner.of(result["how"]), [FormEntry(*one) for one in result["entries"]]
        )
        assert is_sent  # the hand refuses other addresses
    elif part.go is not None and not result["cut"]:
        tab.load(tab.base + part.go.rest)


# -- on the site as it is served -------------------------------------------------------------------

_CARRY_OUT = "([steps, ms]) => plumbline.form.onThisPage(steps, ms)"
_QUIET = 0.3
"""Seconds after a received submission without a navigation: the page sent it by a script and
stays."""


Watch = Callable[[int, Action, Attempt | None], Awaitable[None]]
"""Called before each action (number from 1, the action, None) and after it (with what became of
it)."""


async def on_the_site(
    page: "Page",
    site: Site,
    address: str,
    case: FormCase,
    course: PlanRun,
    seconds: float,
    watch: Watch | None = None,
) -> Execution:
    """Carry out a plan in an episode of its own.

    Args:
        page: of a browser that reaches the site.
        site: what is served.
        address: where.
        case: the form.
        course: what to do there, from its first action on.
        seconds: that it may take.
        watch: for those who look on; the actions are then carried out one at a time.

    Raises:
        playwright.async_api.Error: the browser broke down, or the site does not answer.
    """
    until = time.monotonic() + seconds
    episode = site.open(case.view)

    async def load(url: str) -> None:
        await page.goto(url, wait_until="domcontentloaded", timeout=_left(until))

    async def read() -> PageModel:  # with whatever its scripts have built
        html = await page.evaluate("() => plumbline.form.read()")
        return parse_page(html.encode("utf-8", "replace"))

    try:
        base = address + site.address(episode, case.view)
        await load(base)
        model = await read()
        last = None
        while rest := course.rest:
            if watch is not None:
                rest = rest[:1]
                await watch(len(course.attempts) + 1, rest[0], None)
            found = stretch(rest, model, case, last, pauses=True)
            last = found.last
            result: dict[str, Any] = {"attempts": [], "send": False, "cut": False}
            if found.steps:
                result = await _carry_out(page, site, episode, found, until)
            course.add(found.attempts(result["attempts"], sent=result["send"]), cut=result["cut"])
            if not result["send"] and found.go is not None and not result["cut"]:
                await load(base + found.go.rest)
            last = None if result["send"] or found.go is not None else last
            model = await read()
            if watch is not None and course.attempts:
                await watch(len(course.attempts), rest[0], course.attempts[-1])
        return Execution(tuple(course.attempts), site.receipts(episode), model.text, course.cut)
    finally:
        site.close(episode)


async def _carry_out(
    page: "Page", site: Site, episode: str, found: Stretch, until: float
) -> dict[str, Any]:
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


# -- executor --------------------------------------------------------------------------------------

PAGES = 3
"""Pages that are open at once: while two keep two cores busy, a third waits for its server (10 %
faster than two)."""
RECYCLE = 200
"""Episodes after which a context is closed and another one opened."""
_NOTES = 20
"""Notes that are kept of one episode."""


class BrowserExecutor(BrowserPool):
    """See `executor.Executor`. Safe to call from several threads; holds a browser until it is
    closed."""

    def __init__(
        self,
        site: Site | None = None,
        seconds: float = SECONDS,
        *,
        navigates: bool = True,
        pages: int = PAGES,
        recycle: int = RECYCLE,
    ) -> None:
        """Look for a browser; it is started with the first plan.

        Args:
            site: where the forms are.
            seconds: of every plan.
            navigates: whether pages are served and requests sent by the browser, or pages are
                written into one (see the module).
            pages: open at once.
            recycle: episodes that a context lives for.

        Raises:
            RecipeError: Playwright or a Chromium is missing.
        """
        super().__init__(
            "browser" if navigates else "in-page", keep=pages, at_once=pages, recycle=recycle
        )
        self.script = "\n".join(
            one.read_text(encoding="utf-8") for one in (*hand.PARTS, files(__package__) / "form.js")
        )
        self.site = site if site is not None else Site()
        self.seconds = seconds
        self._navigates, self._served = navigates, ExitStack()

    def begin(self) -> None:
        """See `BrowserPool.begin`."""
        super().begin()
        self.address = self._served.enter_context(serve(self.site)) if self._navigates else None

    def close(self) -> None:
        """See `Executor.close`."""
        super().close()
        self._served.close()

    def run(self, case: FormCase, plans: Sequence[Plan]) -> list[Execution | Failure]:
        """See `Executor.run`."""
        return self.call(self._run(case, plans)) if plans else []

    def use(self, work: Callable[["Page", str], Coroutine[None, None, T]]) -> T:
        """Do something else with a page and the site's address, such as taking pictures of a plan
        (`pictures.py`).

        Raises:
            playwright.async_api.Error: the browser broke down.
        """
        return self.call(self._on_a_page(lambda seat: work(seat.page, self.address or ""), 1))

    async def _run(self, case: FormCase, plans: Sequence[Plan]) -> list[Execution | Failure]:
        async def alone(plan: Plan) -> Execution | Failure:
            return await self.twice(
                lambda: self._on_a_page(lambda seat: self._served_plan(seat, case, plan), 1)
            )

        async def together(some: Sequence[Plan]) -> list[Execution]:
            return await self._on_a_page(
                lambda seat: in_page(seat.page, self.site, case, some, self.seconds), len(some)
            )

        if self.address is not None:
            return list(await asyncio.gather(*map(alone, plans)))
        try:
            return list(await together(plans))
        except self.broken:
            # Which of them it was is not known: each gets a page to itself.
            found = [await self.twice(lambda plan=plan: together([plan])) for plan in plans]  # type: ignore[misc]
            return [one if isinstance(one, Failure) else one[0] for one in found]

    async def _served_plan(self, seat: Seat, case: FormCase, plan: Plan) -> Execution:
        seat.notes.clear()
        done = await on_the_site(
            seat.page, self.site, self.address or "", case, PlanRun(plan), self.seconds
        )
        return replace(done, notes=tuple(seat.notes[:_NOTES]))

    async def _on_a_page(self, work: Callable[[Seat], Coroutine[None, None, T]], plans: int) -> T:
        return await self.on_a_seat(
            lambda seat: within(plans * self.seconds + GRACE, work(seat)), plans
        )

    async def new_seat(self, browser: "Browser") -> Seat:
        """See `BrowserPool.new_seat`; nothing is downloaded, and no other window stays open."""
        seat = await super().new_seat(browser)

        async def cancel(download: "Download") -> None:
            seat.notes.append(f"download: {download.suggested_filename[:100]}")
            await download.cancel()

        async def shut(other: "Page") -> None:
            if other is not seat.page:
                seat.notes.append(f"window: {other.url[:200]}")
                await other.close()

        seat.page.on("download", cancel)
        seat.page.on(
            "requestfailed",
            lambda one: seat.notes.append(f"not let out: {one.url[:200]} ({one.failure})"),
        )
        seat.context.on("page", shut)
        if self.address is None:
            await seat.page.goto("about:blank")
        return seat
