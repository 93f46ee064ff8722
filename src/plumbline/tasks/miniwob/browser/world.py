"""Stand-in until pool.py: one page a task, one call at a time."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from plumbline.records import Failure, Frame
from plumbline.tasks.browser.chromium import find_chromium, import_playwright, launch
from plumbline.tasks.miniwob import pages
from plumbline.tasks.miniwob.actions import to_json
from plumbline.tasks.miniwob.browser.script import script
from plumbline.tasks.miniwob.grammar import Element, Page
from plumbline.tasks.miniwob.world import Played, Solved, Stretches

MOST = 100


def _page(elements: Any) -> Page:
    return Page(tuple(Element(one["ref"], one["role"], one["name"]) for one in elements))


class BrowserWorld:
    def __init__(self) -> None:
        self.at_once = 1
        pages.folder()
        self._api, self._path = import_playwright(), find_chromium()
        self._lock = threading.Lock()
        self._loop = None
        self._open: dict[str, Any] = {}
        self._context = None

    async def _seat(self, task: str) -> Any:
        if self._context is None:
            self._driver = await self._api.async_playwright().start()
            browser = await launch(self._driver, self._path, None)
            self._context = await browser.new_context(
                viewport={"width": 500, "height": 320}, locale="en-US", timezone_id="UTC"
            )
            await self._context.add_init_script(script())
        if task not in self._open:
            if len(self._open) > 8:
                await self._open.pop(next(iter(self._open))).close()
            page = await self._context.new_page()
            await page.goto(pages.address(task))
            self._open[task] = page
        return self._open[task]

    def _call(self, work: Any) -> Any:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, daemon=True).start()
            return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, 60), self._loop).result()

    async def _evaluate(self, task: str, code: str, given: Any) -> Any:
        try:
            page = await self._seat(task)
            return await asyncio.wait_for(page.evaluate(code, given), 20)
        except Exception as error:
            self._open.pop(task, None)
            return Failure(cause=type(error).__name__, detail=str(error)[:300])

    def solve(self, task: str, seeds: Sequence[str]) -> list[Solved | Failure]:
        found = []
        for seed in seeds:
            one = self._call(
                self._evaluate(
                    task, "([task, seed, most]) => plumbline.turns.solve(task, seed, most)", [task, seed, MOST]
                )
            )
            if isinstance(one, Failure):
                found.append(one)
                continue
            first = one["first"]
            found.append(
                Solved(
                    first["utterance"],
                    first["text"],
                    _page(first["elements"]),
                    tuple(one["acts"]),
                    one["why"],
                    one["turns"] and tuple(one["turns"]),
                )
            )
        return found

    def play(self, task: str, seed: str, plans: Sequence[Stretches]) -> list[Played | Failure]:
        given = [[[to_json(act) for act in acts] for acts in plan] for plan in plans]
        found = self._call(
            self._evaluate(
                task, "([seed, plans, most]) => plumbline.turns.group(seed, plans, most)", [seed, given, MOST]
            )
        )
        if isinstance(found, Failure):
            return [found] * len(plans)
        return [
            Played(
                one["raw"],
                one["answered"],
                one["reason"],
                tuple((a, b) for a, b in one["attempts"]),
                tuple(one["texts"]),
                tuple(map(_page, one["elements"])),
                tuple(one["notes"]),
                one["cut"],
            )
            for one in found
        ]

    def film(self, task: str, seed: str, plan: Stretches) -> list[Frame]:
        return []
