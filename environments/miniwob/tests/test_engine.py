"""Which page an episode gets, and what becomes of a browser that gives none."""

import asyncio
from types import SimpleNamespace

import pytest

from plumbline.records import Failure
from plumbline_browser import pool as driver
from plumbline_browser.pool import Seat
from plumbline_miniwob import pages
from plumbline_miniwob.browser.pool import EpisodeLimits, EpisodePool


class Page:
    """Says which page it is, and whether the episode ends with this turn."""

    def __init__(self, number):
        self.number = number

    async def goto(self, address, **_):
        return None

    async def evaluate(self, work, ends):
        return {"page": self.number, "answered": ends, "cut": False}


@pytest.fixture
def engine(monkeypatch):
    """A pool without a browser."""
    monkeypatch.setattr(pages, "address", lambda task: f"file:///{task}.html")
    monkeypatch.setattr(pages, "folder", lambda: None)
    monkeypatch.setattr(driver, "find_chromium", lambda: "")
    monkeypatch.setattr(driver, "import_playwright", lambda: SimpleNamespace(Error=RuntimeError))
    found = EpisodePool(EpisodeLimits(seconds=1), keep=3, at_once=1, recycle=100)
    found.begin()

    async def browser():
        return None

    async def opened(_):
        return Seat(None, Page(found.open))

    monkeypatch.setattr(found, "browser", browser)
    monkeypatch.setattr(found, "new_seat", opened)
    return found


def turn(engine, episode, ends=False):
    return asyncio.run(engine._evaluate("enter-text", "", ends, 1, episode))["page"]


def test_copies_that_go_on_turn_by_turn_have_a_page_each_while_there_are_pages(engine):
    assert [turn(engine, episode) for episode in (1, 2, 1, 2)] == [1, 2, 1, 2]
    # from the copy that has waited for longest
    assert [turn(engine, episode) for episode in (3, 4)] == [3, 1]


def test_the_page_of_an_episode_that_has_ended_is_free_for_the_next_one(engine):
    assert turn(engine, 1) == 1
    assert turn(engine, 1, ends=True) == 1
    assert turn(engine, 2) == 1


def test_a_browser_that_gives_no_page_is_ended_and_the_episode_is_a_failure(engine, monkeypatch):
    ended = []

    async def never():
        await asyncio.sleep(30)

    async def end():
        ended.append(True)

    monkeypatch.setattr(driver, "_STARTING", 0.05)
    monkeypatch.setattr(engine, "browser", never)
    monkeypatch.setattr(engine, "end", end)
    found = asyncio.run(
        asyncio.wait_for(engine.twice(lambda: engine._evaluate("enter-text", "", False, 1)), 60)
    )
    assert isinstance(found, Failure)
    assert (found.cause, ended) == ("hang", [True, True])
