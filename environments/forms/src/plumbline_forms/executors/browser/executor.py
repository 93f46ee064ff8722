"""The browser executors: the call that every executor has, before an engine that lives in a loop of its own."""

import atexit
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from plumbline.records import Failure
from plumbline_forms.driver.chromium import Loop, broken, find_chromium, import_playwright
from plumbline_forms.executors.browser.engine import Engine, Settings
from plumbline_forms.executors.executor import Case, Execution, Limits
from plumbline_forms.plans.actions import Plan
from plumbline_forms.site.serve import serve
from plumbline_forms.site.site import Site

if TYPE_CHECKING:
    from playwright.async_api import Page

T = TypeVar("T")
PAGES = 3
"""Pages that are open at once: while two keep two cores busy, a third waits for its server (10 % faster than two)."""
RECYCLE = 200
"""Episodes after which a context is closed and another one opened."""


class BrowserExecutor:
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
        self.name = "browser" if navigates else "in-page"
        self.at_once = pages
        self.site = site if site is not None else Site()
        self.limits = limits if limits is not None else Limits()
        self._settings = Settings(import_playwright(), find_chromium(), pages, recycle, self.limits)
        self._navigates = navigates
        self._lock = threading.Lock()
        self._loop: Loop | None = None
        self._engine: Engine | None = None
        self._served = ExitStack()

    @property
    def broken(self) -> tuple[type[BaseException], ...]:
        """What `use` raises where the browser broke down."""
        return broken(self._settings.api)

    def run(self, case: Case, plans: Sequence[Plan]) -> list[Execution | Failure]:
        """See `Executor.run`."""
        return self._call(lambda engine: engine.run(case, plans)) if plans else []

    def use(self, work: Callable[["Page", str], Coroutine[Any, Any, T]]) -> T:
        """Do something else with a page and the site's address, such as taking pictures of a plan (`film.py`).

        Raises:
            playwright.async_api.Error: the browser broke down.
        """
        return self._call(lambda engine: engine.use(work))

    def close(self) -> None:
        """See `Executor.close`."""
        with self._lock:
            loop, engine, self._loop, self._engine = self._loop, self._engine, None, None
            if loop is not None and engine is not None:
                atexit.unregister(self.close)
                loop.stop(engine.stop(), self.broken)
            self._served.close()

    def _call(self, work: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
        with self._lock:
            if self._loop is None or self._engine is None:
                self._loop = Loop("forms-browser")
                address = self._served.enter_context(serve(self.site)) if self._navigates else None
                self._engine = Engine(self.site, address, self._settings)
                atexit.register(self.close)
            loop, engine = self._loop, self._engine
        return loop.call(work(engine))
