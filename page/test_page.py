"""The built page gives the command's answer, without any other address."""

import json

import pytest

playwright = pytest.importorskip("playwright", reason="playwright is not installed")
from page import compare  # noqa: E402

LOGS = compare.ROOT / "tests" / "doorstep" / "logs"

FETCH = """new Promise((done) => {
    addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective));
    fetch("https://example.org/").catch(() => setTimeout(done, 1000, "tried"));
})"""
"""What becomes of a request to another address: the rule that forbids it."""


@pytest.fixture(scope="module")
def opened():
    if not compare.CHROMIUM.exists():
        pytest.skip("there is no Chromium")
    if not compare.BUILT.exists():
        pytest.skip("the page is not built: make page")
    with compare.serve(compare.BUILT) as address, compare.chromium() as browser:
        yield compare.Opened(browser, address, width=390)


@pytest.mark.parametrize("name", ["trl-grpo-collapse", "verl-zero.log", "wandb-history.csv"])
def test_the_page_says_what_the_command_says(opened, name):
    command, page = compare.run_command(LOGS / name), opened.check(LOGS / name)
    assert compare.compare(command, page) != "different"
    stages = json.loads(page[1])["stages"]
    shown = opened.page.locator("article.finding .check").all_text_contents()
    assert sorted(shown) == sorted(one["check"] for stage in stages for one in stage["findings"])
    assert "undefined" not in opened.page.text_content("#result")


def test_a_text_is_pasted(opened):
    log = LOGS / "trl-grpo-zero" / "trainer_state.json"
    opened.page.evaluate("delete document.getElementById('result').dataset.status")
    opened.page.click("#paste summary")
    opened.page.fill("#text", log.read_text())
    opened.page.click("#check")
    assert compare.compare(compare.run_command(log), opened.result()) != "different"


def test_what_is_no_log_is_refused_as_the_command_does(opened, tmp_path):
    (tmp_path / "none.json").write_text("{}")
    command, page = (do(tmp_path / "none.json") for do in (compare.run_command, opened.check))
    assert compare.compare(command, page) == "same"
    assert page[0] == 1


def test_the_page_fits_a_narrow_screen(opened):
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_neither_the_page_nor_python_may_ask_another_address(opened):
    (worker,) = opened.page.workers
    for place in (opened.page, worker):
        assert place.evaluate(FETCH) == "connect-src"
    assert all(url.startswith((opened.page.url, "blob:", "data:")) for url in opened.asked)


def test_two_answers_are_told_apart():
    said = [(1, json.dumps({"mean": value}), "") for value in (0.1, 0.1 + 1e-15, 0.2)]
    assert [compare.compare(said[0], one) for one in said] == ["same", "close", "different"]
