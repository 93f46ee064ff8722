"""Two evaluations of the same examples, pair by pair: the reward, its parts, its strata, and where
the gain came from; answers read strictly and leniently; and which examples a report shows.

What counts as a change is decided here, once: the 95 % interval of the paired difference excludes 0
and the paired test gives p < 0.05. Parts and strata are many questions at a time, so their p-values
are Holm's.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from plumbline.errors import IncomparableError
from plumbline.evaluation.comparison import judged_pairs
from plumbline.evaluation.statistics import (
    TIE,
    Direction,
    Interval,
    PairedDifference,
    direction,
    mean_interval,
    paired_difference,
)
from plumbline.evaluation.statistics import holm as holm_adjusted
from plumbline.evaluation.summary import EARNED
from plumbline.records import Evaluation, Judged, clusters_of

Pair = tuple[Judged, Judged]


@dataclass(frozen=True, slots=True)
class QuantityChange:
    """One quantity of the same examples before and after; `p` is adjusted where it is one of
    several."""

    name: str
    before: Interval
    after: Interval
    paired: PairedDifference
    p: float
    is_form: bool = False
    """Whether it judges how the answer is written, not what it says."""

    @property
    def direction(self) -> Direction:
        """A rise or a fall needs both the interval and the test."""
        return direction(self.paired.difference, self.p)


@dataclass(frozen=True, slots=True)
class FormShare:
    """How much of the mean difference comes from the examples whose form parts changed, and how
    much from the rest.

    An answer that cannot be read has no content either, so content rises when form does; the rest
    shows whether it rises by itself.
    """

    changed: int
    from_changed: float
    from_rest: float
    rest: QuantityChange | None
    """The reward of the examples whose form stayed as it was; None where there are none."""


@dataclass(frozen=True)
class Comparison:
    """A stage against the one before, on one split, decoded in one way."""

    split: str
    mode: str
    before: str
    after: str
    reward: QuantityChange
    pairs: tuple[Pair, ...]
    form: tuple[str, ...]
    """Names of the parts that judge how an answer is written."""
    unjudged: int = 0
    """Examples whose answer could not be judged, before or after."""

    @cached_property
    def parts(self) -> list[QuantityChange]:
        """Every part that was computed on both sides of at least one example."""
        return adjust_p_values(self.parts_unadjusted)

    @cached_property
    def parts_unadjusted(self) -> list[QuantityChange]:
        """The same parts, each with the p-value of a question by itself."""
        names = dict.fromkeys(name for pair in self.pairs for row in pair for name in row.parts)
        changes = (_change(name, self.pairs, _part(name), name in self.form) for name in names)
        return [change for change in changes if change is not None]

    @cached_property
    def strata(self) -> list[QuantityChange]:
        """The reward by stratum, where there is more than one."""
        names = sorted({after.stratum for _, after in self.pairs})
        if len(names) < 2:
            return []
        changes = (
            _change(
                name,
                [pair for pair in self.pairs if pair[1].stratum == name],
                lambda row: row.reward,
            )
            for name in names
        )
        return adjust_p_values([change for change in changes if change is not None])

    def kinds(self, prefix: str) -> list[QuantityChange]:
        """The parts under a prefix; their p-values are adjusted for their own number. None where it
        is empty."""
        return adjust_p_values(
            [part for part in self.parts_unadjusted if prefix and part.name.startswith(prefix)]
        )

    @cached_property
    def form_share(self) -> FormShare | None:
        """Where the difference came from; None where no part pays for form."""
        names = [
            name
            for name in dict.fromkeys(n for _, after in self.pairs for n in after.parts)
            if name in self.form
        ]
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


def compare_stages(
    split: str, mode: str, before: tuple[str, Evaluation], after: tuple[str, Evaluation]
) -> Comparison | IncomparableError:
    """Compare two stages' evaluations; the error says why they must not be."""
    (first_stage, first), (second_stage, second) = before, after
    try:
        pairs = tuple(judged_pairs(first, second))
    except IncomparableError as error:
        return error
    reward = _change("reward", pairs, lambda row: row.reward)
    assert reward is not None
    unjudged = len(second.rows) + len(second.unjudged) - len(pairs)
    return Comparison(split, mode, first_stage, second_stage, reward, pairs, second.form, unjudged)


def _part(name: str) -> Callable[[Judged], float | None]:
    return lambda row: row.parts.get(name)


def _change(
    name: str, pairs: Sequence[Pair], value: Callable[[Judged], float | None], is_form: bool = False
) -> QuantityChange | None:
    values = [(value(before), value(after), after) for before, after in pairs]
    found = [(b, a, row) for b, a, row in values if b is not None and a is not None]
    if not found:
        return None
    first, second = [value for value, _, _ in found], [value for _, value, _ in found]
    clusters = clusters_of([row for *_, row in found])
    result = paired_difference(first, second, clusters)
    before, after = mean_interval(first, clusters), mean_interval(second, clusters)
    return QuantityChange(name, before, after, result, result.p_value, is_form)


def adjust_p_values(changes: Sequence[QuantityChange]) -> list[QuantityChange]:
    """The same changes with p-values adjusted for their number (`statistics.holm`)."""
    adjusted = holm_adjusted([change.p for change in changes])
    return [replace(change, p=p) for change, p in zip(changes, adjusted, strict=True)]


# -- strict and lenient readings -------------------------------------------------------------------

STRICT, LENIENT, EXACT = "strict", "lenient", "exact"


@dataclass(frozen=True, slots=True)
class RescuedAnswers:
    """Answers that strict parsing scores as 0 although they earn something, and those whose content
    is right."""

    n: int
    earning: int
    right: int | None
    """None where the parts are those of the strict reading, which say nothing about these
    answers."""


def reading_names(evaluations: Iterable[Evaluation]) -> list[str]:
    """Every reading, strict first, lenient second."""
    names = {name for evaluation in evaluations for row in evaluation.rows for name in row.readings}
    return [*(n for n in (STRICT, LENIENT) if n in names), *sorted(names - {STRICT, LENIENT})]


def reward_reading(evaluations: Iterable[Evaluation]) -> str | None:
    """The reading that the reward is, on every judged answer; None where it is none of them."""
    rows = [row for evaluation in evaluations for row in evaluation.rows if row.readings]
    names = {name for row in rows for name in row.readings}
    same = [
        n for n in names if all(abs(row.readings.get(n, -1.0) - row.reward) < TIE for row in rows)
    ]
    return next((n for n in (LENIENT, STRICT, *sorted(names)) if n in same), None)


def has_both(evaluation: Evaluation) -> bool:
    """Whether answers were read both ways."""
    return any(STRICT in row.readings and LENIENT in row.readings for row in evaluation.rows)


def count_rescued(rows: Iterable[Judged], form: Sequence[str]) -> RescuedAnswers:
    """Count the answers that only the lenient reading pays; `form` names the parts that are not
    content."""
    both = [row for row in rows if STRICT in row.readings and LENIENT in row.readings]
    paid = [row for row in both if row.readings[STRICT] <= TIE < row.readings[LENIENT]]
    is_known = all(abs(row.reward - row.readings[LENIENT]) < TIE for row in paid)
    return RescuedAnswers(
        len(both), len(paid), sum(is_right(row, form) for row in paid) if is_known else None
    )


def is_right(row: Judged, form: Sequence[str]) -> bool:
    """Whether an answer's content is right; what it loses by its form (a code fence, say) does not
    matter.

    A part named `exact` decides, where there is one: it may allow a number to be a little off.
    """
    content = {
        name: value for name, value in row.parts.items() if value is not None and name not in form
    }
    if EXACT in content:
        return content[EXACT] >= EARNED
    return (
        min(content.values()) >= EARNED
        if content
        else row.readings.get(LENIENT, row.reward) >= EARNED
    )


# -- which examples are shown ----------------------------------------------------------------------

EACH, COUNT = 2, 10
RULE = (
    "Two of the largest gains, two of the largest losses, two nearest the median change and two "
    "failures that did not "
    "change; equal candidates go by id, and examples nearest the median fill up."
)


@dataclass(frozen=True, slots=True)
class PickedExample:
    """An example's answers before and after, and by which part of the rule it is shown."""

    before: Judged
    after: Judged
    why: str

    @property
    def gain(self) -> float:
        """What the answer earns more than before."""
        return self.after.reward - self.before.reward


def select_examples(comparison: Comparison) -> list[PickedExample]:
    """The examples to show, by a rule, so that nobody picks them; in the order of the rule."""
    pairs = [
        PickedExample(*pair, "") for pair in sorted(comparison.pairs, key=lambda pair: pair[1].id)
    ]
    if not pairs:
        return []
    middle = median(pair.gain for pair in pairs)
    chosen: dict[str, PickedExample] = {}

    def take(
        candidates: Iterable[PickedExample],
        order: Callable[[PickedExample], float],
        why: str,
        most: int,
    ) -> None:
        # stable: equal ones stay in order of id
        ranked = sorted(candidates, key=lambda pair: round(order(pair), 9))
        free = [pair for pair in ranked if pair.after.id not in chosen]
        chosen.update((pair.after.id, replace(pair, why=why)) for pair in free[:most])

    def from_median(pair: PickedExample) -> float:
        return abs(pair.gain - middle)

    take((p for p in pairs if p.gain > TIE), lambda p: -p.gain, "largest gain", EACH)
    take((p for p in pairs if p.gain < -TIE), lambda p: p.gain, "largest loss", EACH)
    failed = [p for p in pairs if abs(p.gain) <= TIE and p.after.reward < EARNED]
    lowest = sorted(failed, key=lambda p: p.after.reward)[:EACH]
    kept = {p.after.id for p in lowest}
    take((p for p in pairs if p.after.id not in kept), from_median, "near the median change", EACH)
    take(lowest, lambda p: p.after.reward, "unchanged failure", EACH)
    take(pairs, from_median, "near the median change", COUNT - len(chosen))
    return list(chosen.values())
