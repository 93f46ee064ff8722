"""What a browser can do to a run: nothing. Crashes, hangs, silent sites, dialogs and requests to
elsewhere."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from environments.forms.tests.small import small_form
from plumbline.errors import RecipeError
from plumbline.records import Failure
from plumbline_browser.chromium import VARIABLE, find_chromium
from plumbline_browser.plans.actions import Plan, Submit, Type
from plumbline_forms.executors.browser import BrowserExecutor
from plumbline_forms.executors.executor import Execution, FormCase
from plumbline_forms.site.page import FormView
from plumbline_forms.site.site import Response, Site

PLAN = Plan((Type("Name", "Ada"), Submit()))


def case():
    return FormCase(FormView(small_form()))


def children(marker):
    """Processes below this one whose command line holds the marker."""
    parents, commands = {}, {}
    for folder in Path("/proc").iterdir():
        try:
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
            )
            commands[int(folder.name)] = (folder / "cmdline").read_text()
        except (OSError, ValueError, IndexError):
            continue

    def below(pid):
        while pid in parents:
            pid = parents[pid]
            if pid == os.getpid():
                return True
        return False

    return [pid for pid, command in commands.items() if marker in command and below(pid)]


def kill(marker):
    """Kill them; how many there were."""
    victims = children(marker)
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    return len(victims)


def test_whatever_dies_the_next_plan_finds_it_alive():
    executor = BrowserExecutor(navigates=False, seconds=5)
    try:
        assert isinstance(executor.run(case(), [PLAN])[0], Execution)
        for marker in ("--type=renderer", "--proxy-server", "playwright"):
            assert kill(marker), marker
            results = [executor.run(case(), [PLAN])[0] for _ in range(2)]
            assert [len(result.receipts) for result in results] == [1, 1], (marker, results)
    finally:
        executor.close()


class Deadly(Site):
    """Kills what shows its page, once, when it is asked for it."""

    armed = False

    def handle(self, method, path, content_type="", body=b""):
        if self.armed:
            self.armed = False
            kill("--type=renderer")
        return super().handle(method, path, content_type, body)


def test_a_browser_that_dies_under_a_plan_is_tried_once_more():
    executor = BrowserExecutor(Deadly(), 5)
    try:
        executor.run(case(), [PLAN])
        executor.site.armed = True
        (result,) = executor.run(case(), [PLAN])
        assert not executor.site.armed
        assert isinstance(result, Execution)
        assert len(result.receipts) == 1
    finally:
        executor.close()


class Mute(Site):
    """Answers nothing until it is over."""

    def __init__(self):
        super().__init__()
        self.over = threading.Event()

    def handle(self, method, path, content_type="", body=b""):
        self.over.wait(60)
        return super().handle(method, path, content_type, body)


def test_a_site_that_stops_answering_is_a_counted_failure():
    executor = BrowserExecutor(Mute(), 0.5)
    try:
        (result,) = executor.run(case(), [PLAN])
        assert isinstance(result, Failure)
        assert result.cause == "timeout"
        assert executor.site.open_episodes == 0
    finally:
        executor.site.over.set()
        executor.close()


class Hostile(Site):
    """Adds a script to every page."""

    script = b""

    def handle(self, method, path, content_type="", body=b""):
        answer = super().handle(method, path, content_type, body)
        headers = {"content-type": "text/html; charset=utf-8", **answer.headers}
        headers.pop("content-security-policy", None)
        return Response(answer.status, answer.body.replace(b"</body>", self.script), headers)


@pytest.fixture(scope="module")
def visit():
    """What becomes of a plan on a page with this script."""
    executor = BrowserExecutor(Hostile())

    def carried_out(script, seconds=3.0):
        executor.seconds, executor.site.script = (
            seconds,
            f"<script>{script}</script></body>".encode(),
        )
        return executor.run(case(), [PLAN])[0]

    yield carried_out
    executor.close()


def test_an_endless_script_is_a_counted_failure(visit):
    result = visit("setTimeout(() => { for (;;) {} }, 0)", seconds=0.5)
    assert isinstance(result, Failure)
    assert result.cause in {"timeout", "hang"}


def test_dialogs_and_windows_are_noted_and_do_no_harm(visit):
    result = visit("alert('hello'); window.open('about:blank')")
    assert len(result.receipts) == 1
    assert any("dialog: hello" in note for note in result.notes), result.notes


def test_a_form_that_a_script_sends_leaves_its_page_standing(visit):
    send = "fetch(form.action, {method: 'POST', body: new URLSearchParams(new FormData(form))})"
    result = visit(
        f"onsubmit = event => {{ const form = event.target; event.preventDefault(); {send} }}"
    )
    assert len(result.receipts) == 1


def test_nothing_but_the_site_can_be_reached(visit):
    heard = []

    class Other(Site):
        def handle(self, method, path, content_type="", body=b""):
            heard.append(path)
            return super().handle(method, path, content_type, body)

    from plumbline_forms.site.serve import serve

    with serve(Other()) as other:
        # Another port of this machine, by its number and by its name, and the world.
        targets = [
            other + "/health",
            other.replace("127.0.0.1", "localhost") + "/health",
            "http://192.0.2.1/",
        ]
        script = "".join(
            f"fetch('{target}', {{mode: 'no-cors'}}).catch(() => 0);" for target in targets
        )
        script += f"new Image().src = '{other}/image';"
        result = visit(script)
    assert len(result.receipts) == 1
    assert heard == []
    assert sum("not let out" in note for note in result.notes) >= 3, result.notes


def test_without_a_browser_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setenv(VARIABLE, "/no/such/browser")
    with pytest.raises(RecipeError, match=f"{VARIABLE} is /no/such/browser"):
        find_chromium()
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RecipeError, match="no Chromium"):
        BrowserExecutor()


def test_contexts_are_recycled_and_closing_leaves_no_process():
    others = set(children("--proxy-server"))
    executor = BrowserExecutor(navigates=False, recycle=2)
    for _ in range(5):
        assert len(executor.run(case(), [PLAN])[0].receipts) == 1
    assert set(children("--proxy-server")) > others
    executor.close()
    executor.close()
    until = time.monotonic() + 60
    while set(children("--proxy-server")) - others and time.monotonic() < until:
        time.sleep(0.05)
    assert not set(children("--proxy-server")) - others
