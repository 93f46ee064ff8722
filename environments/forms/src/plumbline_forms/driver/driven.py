"""A driver and its browser, in a loop on a thread of their own, for callers on any thread."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from plumbline.errors import PlumblineError
from plumbline.records import Failure
from plumbline_forms.driver.chromium import launch

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Playwright

T = TypeVar("T")
_CLOSING = 5.0
"""Seconds that closing one thing may take."""
_STOPPING = 15.0
"""Seconds that closing all may take."""


class Hung(PlumblineError):  # noqa: N818 - it says what happened
    """A page did not come to an end, or the driver is gone."""


def broken(api: Any) -> tuple[type[BaseException], ...]:
    """What is raised where a browser, its driver or a page broke down."""
    return (api.Error, Hung, OSError)


def failure(error: BaseException) -> Failure:
    """An episode that a breakdown cost, as it is counted."""
    cause = "timeout" if type(error).__name__ == "TimeoutError" else "browser"
    return Failure(cause="hang" if isinstance(error, Hung) else cause, detail=str(error).strip().split("\n")[0][:300])


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of work on a page.

    Raises:
        Hung: it takes longer, or the driver is gone.
    """
    try:
        return await asyncio.wait_for(work, seconds)
    except TimeoutError as error:
        raise Hung(f"the page did not come to an end within {seconds:.0f} s") from error
    except Exception as error:
        if type(error) is Exception:  # Playwright's way of saying that its driver is gone
            raise Hung(str(error)) from error
        raise


class Driven:
    """A browser that is started when it is first needed, and anew where it or its driver died; all in one loop."""

    def __init__(self, api: Any, path: str, address: str | None = None) -> None:
        """Nothing is started yet.

        Args:
            api: the module playwright.async_api.
            path: of the browser.
            address: that it may reach; see `chromium.launch`.
        """
        self.api, self.path, self.address = api, path, address
        self.broken = broken(api)
        self._driver: Playwright | None = None
        self._browser: Browser | None = None
        self._starting = asyncio.Lock()

    async def browser(self, gone: Callable[[], None]) -> "Browser":
        """The browser; `gone` is called before another one is started."""
        async with self._starting:
            if self._browser is None or not self._browser.is_connected():
                gone()
                await self.end()
                self._driver = await self.api.async_playwright().start()
                self._browser = await launch(self._driver, self.path, self.address)
            return self._browser

    async def discard(self, context: "BrowserContext") -> None:
        """Close a context; a browser that cannot even do that is ended."""
        try:
            await asyncio.wait_for(context.close(), _CLOSING)
        except self.broken:
            if context.browser is self._browser:  # and not one that was started since
                await self.end()

    async def end(self) -> None:
        """End the browser and its driver."""
        browser, driver, self._browser, self._driver = self._browser, self._driver, None, None
        for close in (browser.close if browser else None, driver.stop if driver else None):
            if close is not None:
                try:
                    await asyncio.wait_for(close(), _CLOSING)
                except self.broken:  # it is being replaced because it does not answer
                    continue


class Loop:
    """A loop on a thread of its own: Playwright belongs to the loop that started it; callers have none, or others."""

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        # Where a driver dies, Playwright leaves futures behind that nobody waits for; the callers were told.
        self._loop.set_exception_handler(lambda *_: None)
        threading.Thread(target=self._loop.run_forever, name=name, daemon=True).start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work that is done there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self, last: Coroutine[Any, Any, None], broken: tuple[type[BaseException], ...]) -> None:
        """End the loop after some last work; a browser that cannot be closed is left to the system."""
        closing = asyncio.run_coroutine_threadsafe(last, self._loop)
        try:
            closing.result(_STOPPING)
        except broken:
            closing.cancel()
        self._loop.call_soon_threadsafe(self._loop.stop)
