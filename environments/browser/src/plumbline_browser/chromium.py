"""Finds and starts Chromium, such that it can reach the site under test and nothing else."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from plumbline.config.imports import missing_module_error
from plumbline.errors import PlumblineError, RecipeError
from plumbline.records import Frame

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright, ViewportSize


VARIABLE = "PLUMBLINE_CHROMIUM"
"""Environment variable with the path of the browser to use."""
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_NOWHERE = "http://127.0.0.1:9"
"""The discard port, to which browsers do not connect: the proxy of every address but the site's."""
_FLAGS = (
    *(
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-sync",
    ),
    *("--disable-component-update", "--disable-dev-shm-usage", "--disable-breakpad"),
    # Nobody looks at these pages: what serves the eye or a way back only costs time (a third of an
    # episode); so does a new frame for every document of one site (a fifth).
    *("--in-process-gpu", "--disable-site-isolation-trials"),
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
        raise missing_module_error(
            "driving a browser (any Chromium will do)", "playwright", RecipeError
        ) from error
    return playwright.async_api


async def launch(driver: "Playwright", path: str, address: str | None) -> "Browser":
    """Start a browser.

    Args:
        driver: Playwright, started.
        path: of the browser.
        address: of the site, such as `http://127.0.0.1:41733`; None for pages that are written into
            the browser.
    """
    # A proxy that refuses every connection stands before all addresses but one: it costs nothing
    # per request, as intercepting them would, and no page, script or redirect can go around it.
    outside = f"--proxy-server={_NOWHERE}"
    bypass = "--proxy-bypass-list=<-loopback>" + (
        "" if address is None else ";" + address.removeprefix("http://")
    )
    return await driver.chromium.launch(
        executable_path=path,
        headless=True,
        # as root it does not start with its sandbox
        chromium_sandbox=hasattr(os, "geteuid") and os.geteuid() != 0,
        args=[*_FLAGS, outside, bypass],
        handle_sigint=False,
        handle_sigterm=False,
        handle_sighup=False,
    )


MOST = 12
"""Pictures of one strip; what is between the first ones and the last is left out where there would
be more."""
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
        raise PlumblineError(
            f"the browser broke down while the plan was filmed: {cause}", "try it again"
        ) from error
