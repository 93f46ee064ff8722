"""Pages that hang, ask, lead away or break: the episode pays, the run does not."""

import http.server
import threading
from importlib.metadata import PackageNotFoundError

import pytest

from plumbline.errors import RecipeError
from plumbline.records import Failure
from plumbline_browser import pool as driver
from plumbline_browser.pool import PageTimeoutError
from plumbline_miniwob import pages
from plumbline_miniwob.browser.pool import EpisodeLimits, EpisodePool
from plumbline_miniwob.world import Played

PAGE = """<!DOCTYPE html><html><head><script src="{core}"></script><script>
var genProblem = function () {{ document.getElementById("query").textContent = "Press."; }};
var pressed = {{
  hang: () => {{ while (true) {{}} }},
  ask: () => {{ alert("stop"); if (confirm("sure?")) core.endEpisode(prompt("how much?", "1") * 1); }},
  open: () => {{ window.open("{server}/window"); location.hash = "x"; new Image().src = "{server}/image"; }},
  busy: () => {{ const {{ real }} = plumbline.clock, began = real(); while (real() < began + 900); }},
  break: () => {{ missing.thing(); }},
}};
window.onload = function () {{
  for (const [id, run] of Object.entries(pressed)) document.getElementById(id).onclick = run;
  core.startEpisode();
}};
</script></head><body><div id="wrap"><div id="query"></div><div id="area">
<button id="hang">hang</button><button id="ask">ask</button><button id="open">open</button>
<button id="break">break</button><button id="busy">busy</button>
<a href="{server}/away">away</a>
<form action="{server}/sent"><button>send</button></form>
</div></div></body></html>"""


def press(name, role="button"):
    return {"do": "click", "on": {"role": role, "name": name}}


@pytest.fixture(scope="module")
def asked():
    """Requests that reach a server on this machine."""
    found = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            found.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found.append(f"http://127.0.0.1:{server.server_port}")
    yield found
    server.shutdown()


@pytest.fixture(scope="module")
def small(pool):
    """A pool whose episodes may take little time."""
    found = EpisodePool(EpisodeLimits(seconds=0.7), keep=2)
    yield found
    found.close()


@pytest.fixture
def trouble(pool, small, asked, tmp_path, monkeypatch):
    """The name of a task whose page makes trouble."""
    core = (pages.folder().parent / "core" / "core.js").as_uri()
    (tmp_path / "trouble.html").write_text(PAGE.format(core=core, server=asked[0]))
    monkeypatch.setattr(pages, "address", lambda task: (tmp_path / f"{task}.html").as_uri())
    pool.forget()
    small.forget()
    return "trouble"


def test_a_dialog_is_accepted_and_noted(pool, trouble):
    (one,) = pool.run(trouble, "c-0", [[press("ask")]])
    assert (one.raw, one.notes) == (1, ("alert: stop", "confirm: sure?", "prompt: how much?"))


def test_nothing_leads_away_and_nothing_gets_out(pool, trouble, asked):
    acts = [
        press("open"),
        press("away", "link"),
        press("send"),
        press("break"),
        {"do": "wait", "ms": 1000},
    ]
    (one,) = pool.run(trouble, "c-0", [[*acts, press("ask")]])
    assert [attempt.status for attempt in one.attempts] == ["ok"] * 6
    assert one.raw == 1
    assert f"window: {asked[0]}/window" in one.notes
    assert any("missing is not" in note for note in one.notes)
    assert asked[1:] == []


def test_a_page_that_hangs_costs_its_own_episode(small, trouble, monkeypatch):
    monkeypatch.setattr(driver, "GRACE", 0.3)
    small.first(trouble, "c-0")
    right, wrong, other = small.run(
        trouble, "c-0", [[press("ask")], [press("hang")], [press("ask")]]
    )
    assert isinstance(wrong, Failure)
    assert wrong.cause == "hang"
    assert isinstance(right, Played)
    assert isinstance(other, Played)
    assert (right.raw, other.raw) == (1, 1)


def test_what_takes_too_long_in_real_time_is_a_failure_and_no_reward_of_0(small, trouble):
    (late,) = small.run(trouble, "c-0", [[press("busy"), press("ask")]])
    assert isinstance(late, Failure)
    assert "takes more than 0.7 s" in late.detail
    assert small.run(trouble, "c-0", [[press("ask")]])[0].raw == 1


def test_a_plan_that_hangs_alone_is_tried_twice(pool, trouble, monkeypatch):
    tried = []

    async def hangs(*_, **__):
        tried.append(1)
        raise PageTimeoutError("the page does not come to an end")

    monkeypatch.setattr(pool, "on_a_seat", hangs)
    (one,) = pool.run(trouble, "c-0", [[press("hang")]])
    assert isinstance(one, Failure)
    assert len(tried) == 2


def test_a_page_that_crashes_is_replaced(pool, trouble):
    async def crash(page):
        try:
            await page.goto("chrome://crash")
        except pool.broken:
            return True
        return False

    assert pool.use(trouble, crash)
    assert pool.run(trouble, "c-0", [[press("ask")]])[0].raw == 1


def test_other_work_gets_a_page_that_was_just_loaded(pool):
    pool.evaluate("enter-text", "() => { window.dirty = true; }", None)
    assert pool.use("enter-text", lambda page: page.evaluate("window.dirty ?? false")) is False
    assert pool.use("click-link", lambda page: page.evaluate("document.title")) == "Click Link Task"


def test_a_task_that_is_not_there_is_an_error(pool):
    with pytest.raises(RecipeError, match="no task 'sorcery'"):
        pool.first("sorcery", "c-0")
    with pytest.raises(RecipeError, match="no task"):
        pool.first("../core/core", "c-0")


def test_without_the_package_an_error_says_what_brings_it(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    pages.folder.cache_clear()
    monkeypatch.setattr(pages, "distribution", missing)
    with pytest.raises(RecipeError, match="needs miniwob") as told:
        pages.folder()
    assert "pip install './environments/miniwob[miniwob]'" in str(told.value)
