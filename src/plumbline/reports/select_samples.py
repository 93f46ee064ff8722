"""Which held-out examples a report shows: by a rule, so that nobody picks them.

Two of the largest gains, two of the largest losses, two nearest the median change, and two failures that did not
change (the lowest rewards first). Equal candidates go by their id. Where a kind has too few, examples nearest the
median fill its place.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

from plumbline.evaluation.figures import EARNED
from plumbline.evaluation.statistics import TIE
from plumbline.records import Judged
from plumbline.reports.comparisons import Comparison, Pair

EACH, COUNT = 2, 8
RULE = (
    "Two of the largest gains, two of the largest losses, two nearest the median change and two failures that did not "
    "change; equal candidates go by id, and examples nearest the median fill up."
)


@dataclass(frozen=True, slots=True)
class Picked:
    """An example's answers before and after, and by which part of the rule it is shown."""

    before: Judged
    after: Judged
    why: str

    @property
    def gain(self) -> float:
        """What the answer earns more than before."""
        return self.after.reward - self.before.reward


def select(comparison: Comparison) -> list[Picked]:
    """The examples to show, in the order of the rule."""
    pairs = sorted(comparison.pairs, key=lambda pair: pair[1].id)
    if not pairs:
        return []
    middle = median(map(_gain, pairs))
    chosen: dict[str, Picked] = {}

    def take(candidates: Iterable[Pair], order: Callable[[Pair], float], why: str, most: int) -> None:
        ranked = sorted(candidates, key=lambda pair: round(order(pair), 9))  # stable: equal ones stay in order of id
        free = [pair for pair in ranked if pair[1].id not in chosen]
        for before, after in free[:most]:
            chosen[after.id] = Picked(before, after, why)

    def from_median(pair: Pair) -> float:
        return abs(_gain(pair) - middle)

    take((p for p in pairs if _gain(p) > TIE), lambda p: -_gain(p), "largest gain", EACH)
    take((p for p in pairs if _gain(p) < -TIE), _gain, "largest loss", EACH)
    failed = [p for p in pairs if abs(_gain(p)) <= TIE and p[1].reward < EARNED]
    lowest = sorted(failed, key=lambda p: p[1].reward)[:EACH]
    kept = {pair[1].id for pair in lowest}
    take((p for p in pairs if p[1].id not in kept), from_median, "near the median change", EACH)
    take(lowest, lambda p: p[1].reward, "unchanged failure", EACH)
    take(pairs, from_median, "near the median change", COUNT - len(chosen))
    return list(chosen.values())


def _gain(pair: Pair) -> float:
    return pair[1].reward - pair[0].reward
