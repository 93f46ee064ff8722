# ruff: noqa: N999 - the word that its users type
"""Tries oracles: `python -m plumbline.tasks.miniwob.browser.try TASK... --seeds 20`.

Each runs live; the plan that it comes to is then carried out in a fresh episode of the same seed. Prints both rewards.
"""

import argparse
import asyncio
import json
import sys
from typing import Any

from plumbline.tasks.browser.chromium import find_chromium, import_playwright, launch
from plumbline.tasks.miniwob import pages
from plumbline.tasks.miniwob.browser.script import script

MOST = 100


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def _tries(args: argparse.Namespace) -> int:
    wrong = 0
    async with import_playwright().async_playwright() as driver:
        browser = await launch(driver, find_chromium(), None)
        context = await browser.new_context(
            viewport={"width": 500, "height": 320}, locale="en-US", timezone_id="UTC", service_workers="block"
        )
        await context.add_init_script(script())
        for task in args.tasks or pages.names():
            good = 0
            page = await context.new_page()
            page.on("pageerror", lambda error: _say(f"  error in the page: {error}"))
            page.on("console", lambda said: _say(f"  console: {said.text}") if args.console else None)
            await page.goto(pages.address(task))
            for number in range(args.first, args.first + args.seeds):
                good += await _one(page, task, f"{args.split}-{number}", args)
            await page.close()
            _say(f"{task}: {good} of {args.seeds}")
            wrong += good < args.seeds
        await browser.close()
    return wrong


async def _one(page: Any, task: str, seed: str, args: argparse.Namespace) -> bool:
    if args.text:
        first = await page.evaluate("seed => plumbline.episodes.first(seed)", seed)
        _say(f"--- {task} {seed}\n{first['utterance']}\n{first['text']}")
        if args.text == "only":
            return True
    found = await page.evaluate("([task, seed, most]) => plumbline.episodes.gold(task, seed, most)", [task, seed, MOST])
    acts = found["acts"]
    again = await page.evaluate("([seed, acts, most]) => plumbline.episodes.run(seed, acts, most)", [seed, acts, MOST])
    good = bool(found["raw"] == 1 and again["raw"] == 1)
    if not good or args.plan:
        _say(f"  {seed}: live {found['raw']} ({found['why'] or found['reason']}), again {again['raw']}")
        for place, act in enumerate(acts):
            told = again["attempts"][place] if place < len(again["attempts"]) else ["not reached", ""]
            _say(f"    {json.dumps(act)} -> {' '.join(told)}")
    if not good:
        _say(f"    notes: {found['notes']} {again['notes']}\n    page at the end:")
        _say("\n".join(f"      {line}" for line in again["text"].split("\n")))
    return good


def main() -> int:
    """Try the oracles of the tasks that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", help="all where none is named")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first seed")
    parser.add_argument("--split", default="try")
    parser.add_argument("--plan", action="store_true", help="print plans that are right, too")
    parser.add_argument("--text", choices=["also", "only"], help="print the page text of every seed")
    parser.add_argument("--console", action="store_true", help="print what pages write to the console")
    return min(1, asyncio.run(_tries(parser.parse_args())))


if __name__ == "__main__":
    sys.exit(main())
