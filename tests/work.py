"""How much work a call is, in units of a fixed piece of work that is measured beside it.

A limit in seconds fails on a slow or busy machine and says little on a fast one; a limit in units
asks only whether a call costs many times what an ordinary one does.
"""

import re
import sys
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
TRIES = 3
"""The least of so many counts: what else the machine does can only add."""
_WORDS = re.compile(r"(?P<quote>'[^']*')|(?P<number>\d+(?:\.\d+)?)|(?P<word>\w+)|(?P<sign>\S)")
_TEXT = "Type 'Ana Maria' into the name field, then click [12] and wait 3.5 seconds.\n" * 1000


def work(call: Callable[[], object], tries: int = TRIES) -> float:
    """Processor time of a call over that of cutting and counting 17,000 words (some 10 ms of one
    core)."""
    return min(_seconds(call) for _ in range(tries)) / min(_seconds(_unit) for _ in range(TRIES))


def most_work(call: Callable[[T], object], given: Iterable[T]) -> float:
    """The `work` of the costliest of many calls."""
    costs = [(_seconds(lambda: call(one)), one) for one in given]  # noqa: B023  # called at once
    costliest = max(costs, key=lambda cost: cost[0])[1]
    return work(lambda: call(costliest))


def calls(call: Callable[[], object]) -> int:
    """How many functions a call calls, those of C among them: the same on every machine."""
    count = 0

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


def _seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def _unit() -> int:
    counts: dict[str, int] = {}
    for match in _WORDS.finditer(_TEXT):
        key = f"{match.lastgroup} {match[0].casefold()}"
        counts[key] = counts.get(key, 0) + 1
    return len(counts)
