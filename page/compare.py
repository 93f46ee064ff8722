"""Does the page say what the command says? `python -m page.compare` after `make page`: logs of the tests
go to both, in a headless Chromium without a network.

Two Pythons on two processors may differ in a figure's last digits: these are counted apart.
"""

import contextlib
import functools
import http.server
import json
import math
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, Request, sync_playwright

from page import bridge

ROOT = Path(__file__).parents[1]
BUILT = ROOT / "dist" / "page"
CHROMIUM = Path("/usr/bin/chromium")
CLOSE = 1e-9
"""Relative difference of two figures below which they are close."""
ALONE = {"trainer_state.json", "logging.jsonl", "metrics.jsonl", "trainer_log.jsonl"}
SUFFIXES = {".log", ".csv"}
STARTS = 3
"""Cold starts that are timed."""

Said = tuple[int, str, str]
"""An exit status, and the texts of standard output and of standard error."""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and says nothing of it."""

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[str]:
    """The address at which a folder is served."""
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()


class Opened:
    """The page in a browser of its own, which keeps nothing of an earlier one.

    Attributes:
        seconds: until it was ready for a log, from an empty cache.
        processor_seconds: that all processes of the browser spent on it.
        asked: the address of each request that it made.
        page: for what else a test does with it.
    """

    def __init__(self, browser: Browser, address: str, width: int = 1000) -> None:
        self.context: BrowserContext = browser.new_context(viewport={"width": width, "height": 900})
        self.page: Page = self.context.new_page()
        self.asked: list[str] = []
        self.context.on("request", self._note)
        began, spent = time.perf_counter(), measure_processor(browser)
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready=true]", state="attached", timeout=120_000)
        self.seconds = time.perf_counter() - began
        self.processor_seconds = measure_processor(browser) - spent
        self.context.set_offline(True)

    def _note(self, request: Request) -> None:
        self.asked.append(request.url)

    def check(self, log: Path) -> Said:
        """Give a file or a folder to the page, as its buttons do."""
        self.page.eval_on_selector("#result", "one => delete one.dataset.status")
        self.page.set_input_files("#folder" if log.is_dir() else "#files", log)
        return self.result()

    def result(self) -> Said:
        """What the page shows, once it does."""
        self.page.wait_for_selector("#result[data-status]", timeout=120_000)
        status = int(self.page.get_attribute("#result", "data-status") or "")
        if shown := self.page.query_selector("#json"):
            return status, shown.text_content() or "", ""
        return status, "", self.page.text_content("#result") or ""


def measure_processor(browser: Browser) -> float:
    """The seconds of processors that the browser's processes have used."""
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")
    return sum(one["cpuTime"] for one in processes["processInfo"])


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium that finds no other host."""
    rules = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    flags = [*("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", rules)]
    flags += [f"--disable-{one}" for one in ("background-networking", "component-update", "sync")]
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=flags)
        try:
            yield browser
        finally:
            browser.close()


def run_command(log: Path) -> Said:
    """What `plumbline check --json` says of a log that lies alone in the working directory."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        copy = shutil.copytree if log.is_dir() else shutil.copyfile
        copy(log, log.name)
        return bridge.run(["check", log.name, "--json"])


def is_close(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal but for the last digits of figures."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-12)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_close, one, other))
    return type(one) is type(other) and one == other


def compare(command: Said, page: Said) -> str:
    """How two answers agree: `same`, `close` or `different`."""
    if command[0] != page[0] or bool(command[1]) != bool(page[1]):
        return "different"
    if not command[1]:
        return "same" if command[2].strip() == page[2].strip() else "different"
    ours, theirs = json.loads(command[1]), json.loads(page[1])
    return "same" if ours == theirs else "close" if is_close(ours, theirs) else "different"


def find_logs() -> list[Path]:
    """Logs of the tests: each file or folder, and each file of records of a folder alone."""
    tests = ROOT / "tests"
    found = [
        path for path in (tests / "doorstep" / "logs").iterdir() if path.name != "answers.yaml"
    ]
    found += [
        path
        for folder in ("doorstep/logs/*", "public_reports/*")
        for path in tests.glob(f"{folder}/*")
        if path.name in ALONE or path.suffix in SUFFIXES
    ]
    return sorted(found)


def main() -> None:
    logs, counts, took = find_logs(), dict.fromkeys(("same", "close", "different"), 0), []
    with serve(BUILT) as address, chromium() as browser:
        starts = [opened := Opened(browser, address)]
        for log in logs:
            began = time.perf_counter()
            said = opened.check(log)
            took.append(time.perf_counter() - began)
            verdict = compare(run_command(log), said)
            counts[verdict] += 1
            print(f"{verdict}: {log.relative_to(ROOT)}", flush=True)
        opened.context.close()
        for _ in range(STARTS - 1):
            starts.append(Opened(browser, address))
            starts[-1].context.close()
        hosts = {url for url in opened.asked if not url.startswith((address, "blob:", "data:"))}
    seconds = [one.seconds for one in starts]
    processor = [one.processor_seconds for one in starts]
    size = sum(path.stat().st_size for path in BUILT.iterdir()) / 1e6
    print(f"{len(logs)} logs: {counts}; other addresses asked: {len(hosts)}; {size:.1f} MB")
    print(
        f"cold start, n = {STARTS}: {min(seconds):.1f} to {max(seconds):.1f} s, "
        f"{min(processor):.1f} to {max(processor):.1f} s of processors"
    )
    print(f"a log: median {statistics.median(took):.2f} s, at most {max(took):.2f} s")


if __name__ == "__main__":
    main()
