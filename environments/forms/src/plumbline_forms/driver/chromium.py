"""Finds and starts Chromium, such that it can reach the site under test and nothing else."""

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from plumbline.config.imports import missing
from plumbline.errors import PlumblineError, RecipeError
from plumbline.records import Failure, Frame

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Playwright, ViewportSize


# -- chromium ------------------------------------------------------------------------------------------------------

VARIABLE = "PLUMBLINE_CHROMIUM"
"""Environment variable with the path of the browser to use."""
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_NOWHERE = "http://127.0.0.1:9"
"""The discard port, to which browsers do not connect: the proxy of every address but the site's."""
_FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-breakpad",
    # Nobody looks at these pages: what serves the eye or a way back only costs time (a third of an episode); so does
    # a new frame for every document of one site (a fifth).
    "--in-process-gpu",
    "--disable-site-isolation-trials",
    "--disable-features=BackForwardCache,PaintHolding,Prerender2,RenderDocument",
)
VIEWPORT: "ViewportSize" = {"width": 320, "height": 240}
"""Of pages that nobody looks at; what is smaller is painted sooner."""
_FIX = f"install it (Debian: apt-get install chromium), or set {VARIABLE} to the browser's path"


def find_chromium() -> str:
    """The path of a Chromium or Chrome.

    Raises:
        RecipeError: there is none, or the variable names none.
    """
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise RecipeError(f"{VARIABLE} is {named}, which is no program", _FIX)
        return found
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    raise RecipeError("there is no Chromium on this machine", _FIX)


def import_playwright() -> Any:
    """Playwright's asynchronous interface.

    Raises:
        RecipeError: it is not installed.
    """
    try:
        import playwright.async_api
    except ImportError as error:
        raise missing("driving a browser (any Chromium will do)", error, RecipeError, extra="browser") from error
    return playwright.async_api


async def launch(driver: "Playwright", path: str, address: str | None) -> "Browser":
    """Start a browser.

    Args:
        driver: Playwright, started.
        path: of the browser.
        address: of the site, such as `http://127.0.0.1:41733`; None for pages that are written into the browser.
    """
    # A proxy that refuses every connection stands before all addresses but one: it costs nothing per request, as
    # intercepting them would, and no page, script or redirect can go around it.
    outside = f"--proxy-server={_NOWHERE}"
    bypass = "--proxy-bypass-list=<-loopback>" + ("" if address is None else ";" + address.removeprefix("http://"))
    return await driver.chromium.launch(
        executable_path=path,
        headless=True,
        chromium_sandbox=hasattr(os, "geteuid") and os.geteuid() != 0,  # as root it does not start with its sandbox
        args=[*_FLAGS, outside, bypass],
        handle_sigint=False,
        handle_sigterm=False,
        handle_sighup=False,
    )


# -- driven --------------------------------------------------------------------------------------------------------

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


# -- film ----------------------------------------------------------------------------------------------------------

MOST = 12
"""Pictures of one strip; what is between the first ones and the last is left out where there would be more."""
_CAPTION = 160


def frame(caption: str, image: bytes) -> Frame:
    """A picture [JPEG], with what was done in a line under it."""
    return Frame(caption=caption[:_CAPTION], image=image)


def shortened(frames: Sequence[Frame]) -> list[Frame]:
    """The first and the last pictures of a strip that would be too long."""
    if len(frames) <= MOST:
        return list(frames)
    return [*frames[: MOST // 2], *frames[-(MOST - MOST // 2) :]]


@contextmanager
def clear_breakdowns(broken: tuple[type[BaseException], ...]) -> Iterator[None]:
    """Say what happened where a browser breaks down while it is filmed.

    Raises:
        PlumblineError: one of `broken` was raised.
    """
    try:
        yield
    except broken as error:
        cause = str(error).strip().split("\n")[0][:200]
        raise PlumblineError(f"the browser broke down while the plan was filmed: {cause}", "try it again") from error
