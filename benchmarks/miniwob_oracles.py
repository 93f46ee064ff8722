"""Tries oracles: `python -m benchmarks.miniwob_oracles TASK... --seeds 20`.

Each runs live; the plan that it comes to is then carried out in an episode of its own with the same
seed. Prints both rewards, and what went wrong. With `--text only` it prints page texts; with
`--leaks` it looks for pages that keep something of one episode in the next.
"""

import argparse
import json
import sys

from plumbline.records import Failure
from plumbline_miniwob import pages
from plumbline_miniwob.browser.pool import EpisodePool, Json, OracleEpisode, PlayedEpisode
from plumbline_miniwob.world import Played


def main() -> int:
    """Try the oracles of the tasks that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", help="all where none is named")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first seed")
    parser.add_argument("--split", default="try")
    parser.add_argument("--plan", action="store_true", help="print plans that are right, too")
    parser.add_argument(
        "--text", choices=["also", "only"], help="print the page text of every seed"
    )
    parser.add_argument(
        "--leaks",
        action="store_true",
        help="compare episodes in fresh pages with the same after others",
    )
    args = parser.parse_args()
    pool = EpisodePool(keep=2, at_once=1)
    wrong = 0
    try:
        for task in args.tasks or pages.names():
            if args.leaks:
                found = leaks(pool, task, args.seeds)
                _say(f"{task}: {found or 'the same'}")
                wrong += bool(found)
                continue
            good = sum(
                _one(pool, task, f"{args.split}-{args.first + place}", args)
                for place in range(args.seeds)
            )
            _say(f"{task}: {good} of {args.seeds}")
            wrong += good < args.seeds
    finally:
        pool.close()
    return min(1, wrong)


def leaks(pool: EpisodePool, task: str, seeds: int) -> str:
    """What differs between an episode in a fresh page and the same one after others; empty where
    nothing does.

    Before the second time, oracles have played episodes of other seeds to their end, and one was
    left in its midst.
    """
    alone = {}
    for place in range(seeds):
        pool.forget()
        alone[place] = _seen(pool, task, f"leak-{place}")
    pool.forget()
    for place in reversed(range(seeds)):
        pool.gold(task, f"before-{place}")
        _poked(pool, task, f"left-{place}")
        for what, one in _seen(pool, task, f"leak-{place}").items():
            if one != alone[place][what]:
                return f"seed {place}: {what} differs:\n    {alone[place][what]}\n    {one}"
    return ""


def _seen(pool: EpisodePool, task: str, seed: str) -> dict[str, object]:
    return {
        "the first page": pool.first(task, seed),
        "what some acts come to": _poked(pool, task, seed),
        "the oracle's episode": pool.gold(task, seed),
    }


def _poked(pool: EpisodePool, task: str, seed: str) -> list[Played | Failure]:
    """What acts come to that change what they find on most pages, and end the episode on few.

    The numbers of a turn are those of the page after the turn before, so what the first acts open
    is poked, too.
    """
    visit = PlayedEpisode(task, seed)
    return [pool.act(visit, acts) for acts in _POKES]


_POKES: tuple[tuple[Json, ...], ...] = (
    ({"do": "click", "on": {"ref": 1}}, {"do": "key", "key": "Control+Z"}),
    tuple({"do": "hover", "on": {"ref": ref}} for ref in (2, 3, 4)),
    tuple({"do": "type", "on": {"ref": ref}, "text": "abc"} for ref in (1, 2)),
    tuple({"do": "click", "on": {"ref": ref}} for ref in (2, 3, 5, 7)),
    (
        {"do": "drag", "on": {"x": 40, "y": 90}, "to": {"x": 90, "y": 120}},
        {"do": "scroll", "on": {"x": 40, "y": 90}, "by": [0, 60]},
        {"do": "hover", "on": {"x": 50, "y": 110}},
        {"do": "type", "on": {"ref": 1}, "text": "abc"},
        {"do": "hover", "on": {"ref": 3}},
        {"do": "wait", "ms": 500},
    ),
)


def _one(pool: EpisodePool, task: str, seed: str, args: argparse.Namespace) -> bool:
    if args.text:
        first = pool.first(task, seed)
        shown = first if isinstance(first, Failure) else f"{first.utterance}\n{first.text}"
        _say(f"--- {task} {seed}\n{shown}")
        if args.text == "only":
            return not isinstance(first, Failure)
    found = pool.gold(task, seed)
    if isinstance(found, Failure):
        _say(f"  {seed}: {found}")
        return False
    again = pool.run(task, seed, [found.acts])[0]
    good = not isinstance(again, Failure) and found.ran.raw == 1 and again.raw == 1
    if not good or args.plan:
        _tell(seed, found, again)
    return good


def _tell(seed: str, found: OracleEpisode, again: Played | Failure) -> None:
    if isinstance(again, Failure):
        _say(f"  {seed}: live {found.ran.raw} ({found.why or found.ran.reason}), again: {again}")
        return
    _say(f"  {seed}: live {found.ran.raw} ({found.why or found.ran.reason}), again {again.raw}")
    for place, act in enumerate(found.acts):
        told = again.attempts[place] if place < len(again.attempts) else None
        _say(
            f"    {json.dumps(act)} -> {f'{told.status} {told.reason}' if told else 'not reached'}"
        )
    if again.raw != 1:
        _say(f"    notes: {found.ran.notes} {again.notes}; the page at the end:")
        _say("\n".join(f"      {line}" for line in again.text.split("\n")))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
