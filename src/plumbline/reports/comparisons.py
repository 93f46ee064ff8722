"""Two evaluations of the same examples, pair by pair: the reward, its parts, its strata, and where the gain came from.

What counts as a change is decided here, once: the 95 % interval of the paired difference excludes 0 and the paired
test gives p < 0.05. Parts and strata are many questions at a time, so their p-values are Holm's.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from plumbline.errors import IncomparableError
from plumbline.evaluation.comparison import compare
from plumbline.evaluation.statistics import Direction, Interval, Paired, detectable, direction, mean_interval, paired
from plumbline.evaluation.statistics import holm as holm_adjusted
from plumbline.records import Evaluation, Judged

Pair = tuple[Judged, Judged]


@dataclass(frozen=True, slots=True)
class Change:
    """One quantity of the same examples before and after; `p` is adjusted where it is one of several."""

    name: str
    before: Interval
    after: Interval
    paired: Paired
    p: float
    is_form: bool = False
    """Whether it judges how the answer is written, not what it says."""

    @property
    def direction(self) -> Direction:
        """A rise or a fall needs both the interval and the test."""
        return direction(self.paired.difference, self.p)

    @property
    def detectable(self) -> float:
        """The least difference that this many examples show four times in five."""
        return detectable(self.paired.difference)


@dataclass(frozen=True, slots=True)
class FormShare:
    """How much of the mean difference comes from the examples whose form parts changed, and how much from the rest.

    An answer that cannot be read has no content either, so content rises when form does; the rest shows whether it
    rises by itself.
    """

    changed: int
    from_changed: float
    from_rest: float
    rest: Change | None
    """The reward of the examples whose form stayed as it was; None where there are none."""


@dataclass(frozen=True)
class Comparison:
    """A stage against the one before, on one split, decoded in one way."""

    split: str
    mode: str
    before: str
    after: str
    reward: Change
    pairs: tuple[Pair, ...]
    form: tuple[str, ...]
    """Names of the parts that judge how an answer is written."""
    unjudged: int = 0
    """Examples whose answer could not be judged, before or after."""

    @cached_property
    def parts(self) -> list[Change]:
        """Every part that was computed on both sides of at least one example."""
        return holm(self.parts_unadjusted)

    @cached_property
    def parts_unadjusted(self) -> list[Change]:
        """The same parts, each with the p-value of a question by itself."""
        names = dict.fromkeys(name for pair in self.pairs for row in pair for name in row.parts)
        changes = (_change(name, self.pairs, _part(name), name in self.form) for name in names)
        return [change for change in changes if change is not None]

    @cached_property
    def strata(self) -> list[Change]:
        """The reward by stratum, where there is more than one."""
        names = sorted({after.stratum for _, after in self.pairs})
        if len(names) < 2:
            return []
        changes = (
            _change(name, [pair for pair in self.pairs if pair[1].stratum == name], lambda row: row.reward)
            for name in names
        )
        return holm([change for change in changes if change is not None])

    def kinds(self, prefix: str) -> list[Change]:
        """The parts under a prefix; their p-values are adjusted for their own number. None where it is empty."""
        return holm([part for part in self.parts_unadjusted if prefix and part.name.startswith(prefix)])

    @cached_property
    def form_share(self) -> FormShare | None:
        """Where the difference came from; None where no part pays for form."""
        names = [name for name in dict.fromkeys(n for _, after in self.pairs for n in after.parts) if name in self.form]
        if not names or not self.pairs:
            return None
        rest = [
            (before, after)
            for before, after in self.pairs
            if all((before.parts.get(n) or 0.0) == (after.parts.get(n) or 0.0) for n in names)
        ]
        n = len(self.pairs)
        from_rest = math.fsum(after.reward - before.reward for before, after in rest) / n
        return FormShare(
            changed=n - len(rest),
            from_changed=self.reward.paired.difference.mean - from_rest,
            from_rest=from_rest,
            rest=_change("reward", rest, lambda row: row.reward),
        )


def comparison(
    split: str, mode: str, before: tuple[str, Evaluation], after: tuple[str, Evaluation]
) -> Comparison | IncomparableError:
    """Compare two stages' evaluations; the error says why they must not be."""
    (first_stage, first), (second_stage, second) = before, after
    try:
        result = compare(first, second)
    except IncomparableError as error:
        return error
    rows = {row.id: row for row in second.rows}
    pairs = tuple((row, rows[row.id]) for row in first.rows if row.id in rows)
    reward = Change(
        name="reward",
        before=mean_interval([row.reward for row, _ in pairs]),
        after=mean_interval([row.reward for _, row in pairs]),
        paired=result,
        p=result.p_value,
    )
    unjudged = len(second.rows) + len(second.unjudged) - len(pairs)
    return Comparison(split, mode, first_stage, second_stage, reward, pairs, second.form, unjudged)


def _part(name: str) -> Callable[[Judged], float | None]:
    return lambda row: row.parts.get(name)


def _change(
    name: str, pairs: Sequence[Pair], value: Callable[[Judged], float | None], is_form: bool = False
) -> Change | None:
    values = [(value(before), value(after)) for before, after in pairs]
    both = np.array([(b, a) for b, a in values if b is not None and a is not None], dtype=np.float64)
    if not len(both):
        return None
    result = paired(both[:, 0], both[:, 1])
    return Change(name, mean_interval(both[:, 0]), mean_interval(both[:, 1]), result, result.p_value, is_form)


def holm(changes: Sequence[Change]) -> list[Change]:
    """The same changes with p-values adjusted for their number (`statistics.holm`)."""
    adjusted = holm_adjusted([change.p for change in changes])
    return [replace(change, p=p) for change, p in zip(changes, adjusted, strict=True)]
