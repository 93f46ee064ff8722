"""Seeded draws, all made from uniform numbers of one PCG64 stream.

Only uniform draws come from numpy, because their stream is stable between versions; everything else
(normal, weighted, whole numbers) is derived from them here. Drawing them in blocks makes a single
draw cheap.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from statistics import NormalDist
from typing import Any, Generic, TypeVar

import numpy as np

from plumbline.seeds import derive
from plumbline.tasks.tables import read_table

T = TypeVar("T")
BLOCK = 1024
_STANDARD = NormalDist()


def split_list(text: str, separator: str = ", ") -> tuple[str, ...]:
    """The entries of a list written as one string."""
    return tuple(text.split(separator))


class Weighted(Generic[T]):
    """Things to draw from, each with a weight (any positive scale)."""

    def __init__(self, pairs: Iterable[tuple[T, float]]) -> None:
        listed = list(pairs)
        self.things = [thing for thing, _ in listed]
        self.cumulative = list(accumulate(weight for _, weight in listed))
        if not listed or self.cumulative[-1] <= 0:
            raise ValueError("nothing to draw from: the weights must have a positive sum")

    def at(self, uniform: float) -> T:
        """The thing at a place in [0, 1)."""
        place = bisect_right(self.cumulative, uniform * self.cumulative[-1])
        return self.things[min(place, len(self.things) - 1)]


def _numbers(written: Any) -> Any:
    """A table of `shares.yaml` with its numbers; keys of digits are whole numbers, and `no_topic`
    is the empty one."""
    if isinstance(written, str):
        return float(written)
    keys = {key: int(key) if key.lstrip("-").isdigit() else key for key in written} | {
        "no_topic": ""
    }
    return {keys[key]: _numbers(value) for key, value in written.items()}


SHARES: dict[str, Any] = _numbers(read_table(Path(__file__).with_name("shares.yaml")))


def shares(name: str) -> Weighted[str]:
    """What a table of `shares.yaml` lets draw."""
    return Weighted(SHARES[name].items())


def shares_by(name: str) -> dict[Any, Weighted[str]]:
    """What the parts of a table of `shares.yaml` let draw, by what they are of."""
    return {key: Weighted(table.items()) for key, table in SHARES[name].items()}


class Dice:
    """A stream of draws of its own for what the names say; equal seeds and names give equal draws.

    Args:
        seed: the database's seed.
        names: what is drawn, for example "people".
    """

    def __init__(self, seed: int, *names: str | int) -> None:
        self._generator = np.random.Generator(
            np.random.PCG64(derive(seed, "commerce-database", *names))
        )
        self._block: list[float] = []
        self._identifiers: list[str] = []

    def random(self) -> float:
        """A uniform number in [0, 1)."""
        if not self._block:
            self._block = self._generator.random(BLOCK).tolist()
        return self._block.pop()

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random() < probability

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + int(self.random() * (high - low + 1))

    def pick(self, things: Sequence[T]) -> T:
        """One of several, all equally likely."""
        return things[int(self.random() * len(things))]

    def weighted(self, things: Weighted[T]) -> T:
        """One of several by weight."""
        return things.at(self.random())

    def normal(self, mean: float = 0.0, deviation: float = 1.0) -> float:
        """A normal number."""
        return mean + deviation * _STANDARD.inv_cdf(min(max(self.random(), 1e-12), 1 - 1e-12))

    def lognormal(self, median: float, sigma: float) -> float:
        """A positive number with this median; `sigma` is the deviation of its logarithm."""
        return median * math.exp(self.normal(0.0, sigma))

    def identifier(self) -> str:
        """32 hexadecimal digits, as Olist writes its ids."""
        if not self._identifiers:
            digits = self._generator.bytes(16 * BLOCK).hex()
            self._identifiers = [digits[place : place + 32] for place in range(0, 32 * BLOCK, 32)]
        return self._identifiers.pop()

    def shuffled(self, things: Sequence[T]) -> list[T]:
        """The same things in a drawn order."""
        rest = list(things)
        for last in range(len(rest) - 1, 0, -1):
            other = self.between(0, last)
            rest[last], rest[other] = rest[other], rest[last]
        return rest
