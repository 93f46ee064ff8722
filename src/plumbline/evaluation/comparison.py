"""Two evaluations of the same examples, pair by pair: the reward, its parts, its strata, where the
gain came from, and which examples a report shows.

What counts as a change is decided once: the 95 % interval of the paired difference excludes 0 and
the paired test gives p < 0.05 (`statistics.direction`). What is shown together, parts, strata or
runs, are many questions at a time, so their p-values are adjusted together (Holm).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

from plumbline.errors import IncomparableError, PlumblineError
from plumbline.evaluation.statistics import (
    TIE,
    Direction,
    Interval,
    PairedDifference,
    adjust_together,
    mean_interval,
    paired_difference,
)
from plumbline.evaluation.summary import EARNED, part_means
from plumbline.records import Evaluation, Judged, clusters_of
from plumbline.runs.evaluations import REFERENCE
from plumbline.runs.record import RunRecord

TRIAL = 30
"""Held-out examples below which a comparison decides nothing."""


def describe_trial(n: int) -> str:
    """What to say of a comparison on `n` examples that is a trial; empty where there are enough of
    them."""
    return (
        f"a trial: {n} example{'' if n == 1 else 's'} decide{'s' if n == 1 else ''} nothing"
        if n < TRIAL
        else ""
    )


def compare(before: Evaluation, after: Evaluation) -> PairedDifference:
    """The paired difference of two evaluations of the same examples under the same rubric, where
    both were judged.

    Raises:
        IncomparableError: they differ in task, rubric, or examples, or no example was judged in
            both.
    """
    pairs = judged_pairs(before, after)
    rows = [row for _, row in pairs]
    return paired_difference(
        [row.reward for row, _ in pairs], [row.reward for row in rows], clusters_of(rows)
    )


def judged_pairs(before: Evaluation, after: Evaluation) -> list[tuple[Judged, Judged]]:
    """The rows of two evaluations of the same examples under the same rubric, where both were
    judged.

    Raises:
        IncomparableError: as `compare` does.
    """
    check_same(before, after)
    rows = {row.id: row for row in after.rows}
    pairs = [(row, rows[row.id]) for row in before.rows if row.id in rows]
    if not pairs:
        raise IncomparableError(
            "no example was judged in both evaluations", "look at why they could not be judged"
        )
    return pairs


def restrict_to_examples(evaluation: Evaluation, other: Evaluation) -> Evaluation:
    """An evaluation's verdicts on the examples of another one, where it has all of them; else the
    whole evaluation.

    The untrained model may be asked fewer (`evaluation.untrained`), and is compared on these.
    """
    wanted, there = (_ids(each) for each in (other, evaluation))
    if not wanted < there:
        return evaluation
    rows, unjudged = evaluation.rows, evaluation.unjudged
    return replace(
        evaluation,
        rows=tuple(row for row in rows if row.id in wanted),
        unjudged=tuple(row for row in unjudged if row.id in wanted),
    )


def align_rows(evaluation: Evaluation, other: Evaluation) -> Evaluation | None:
    """An evaluation's verdicts on exactly the rows of another one, in their order; None where it
    lacks one of them."""
    rows = {row.id: row for row in evaluation.rows}
    wanted = [row.id for row in other.rows]
    return (
        replace(evaluation, rows=tuple(map(rows.__getitem__, wanted)))
        if rows.keys() >= set(wanted)
        else None
    )


def read_references(run: RunRecord, task: str, evaluation: Evaluation) -> dict[str, Evaluation]:
    """The oracle and the baselines of a run's task on exactly the examples of an evaluation; those
    that lack one of them are left out."""
    return {
        key.mode: found
        for key in run.evaluation_paths
        if (key.stage, key.task, key.split) == (REFERENCE, task, evaluation.split)
        and (found := align_rows(run.read_evaluation(key), evaluation))
    }


def _ids(evaluation: Evaluation) -> set[str]:
    return {row.id for row in evaluation.rows} | {row.id for row in evaluation.unjudged}


def check_same(before: Evaluation, after: Evaluation, *, rubric: bool = True) -> None:
    """See that two evaluations are of the same examples and, unless that is what is asked about,
    under one rubric.

    Raises:
        IncomparableError: they differ in task, rubric, or examples.
    """
    for name in ("task", "rubric") if rubric else ("task",):
        one, other = getattr(before, name), getattr(after, name)
        if one != other:
            raise IncomparableError(
                f"{before.source} was scored under {name} {one} and {after.source} under {other}",
                f"compare evaluations of one {name}, or evaluate both again under one; `plumbline "
                "score` judges stored completions again",
            )
    one, other = _ids(before), _ids(after)
    if one != other:
        raise IncomparableError(
            f"the two evaluations share {len(one & other)} examples of {len(one)} and {len(other)}",
            "evaluate both on the same split and limit of the same data",
        )


def describe_fall(before: Evaluation, after: Evaluation) -> str | None:
    """What to say where `after` earned less on the same examples (see `direction`); None where it
    did not.

    Raises:
        IncomparableError: they differ in task, rubric, or examples.
    """
    compared = compare(before, after)
    change = compared.difference
    if compared.direction != "fall":
        return None
    message = f"{change:+.3f} on the same {change.n} examples"
    first, second = part_means(before.rows), part_means(after.rows)
    changes = {
        name: second[name].mean - part.mean for name, part in first.items() if name in second
    }
    if changes and changes[worst := min(changes, key=changes.__getitem__)] < 0:
        message += f", most of all in {worst} ({changes[worst]:+.3f})"
    return message


# -- stages of a run -----------------------------------------------------------------------------

Pair = tuple[Judged, Judged]


@dataclass(frozen=True, slots=True)
class QuantityChange:
    """One quantity of the same examples before and after."""

    name: str
    before: Interval
    after: Interval
    paired: PairedDifference
    is_form: bool = False
    """Whether it judges how the answer is written, not what it says."""

    @property
    def direction(self) -> Direction:
        """A rise or a fall needs both the interval and the test."""
        return self.paired.direction


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
        return adjust_changes(self.parts_unadjusted)

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
        return adjust_changes([change for change in changes if change is not None])

    def kinds(self, prefix: str) -> list[QuantityChange]:
        """The parts under a prefix; their p-values are adjusted for their own number. None where it
        is empty."""
        return adjust_changes(
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
    return QuantityChange(
        name,
        mean_interval(first, clusters),
        mean_interval(second, clusters),
        paired_difference(first, second, clusters),
        is_form,
    )


def adjust_changes(changes: Sequence[QuantityChange]) -> list[QuantityChange]:
    """The same changes with p-values adjusted for their number."""
    adjusted = adjust_together([change.paired for change in changes])
    return [replace(one, paired=paired) for one, paired in zip(changes, adjusted, strict=True)]


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


# -- pairing ---------------------------------------------------------------------------------------
#
# Pairs of evaluations that are shown together: each one's difference, and how certain all of them
# are.
#
# A comparison is of two trained models on these examples: what another seed would do, it does not
# say.


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """One evaluation against another: the paired difference, or why there is none."""

    run: str
    against: str
    asked: str
    """Task, split and mode."""
    paired: PairedDifference | None = None
    error: PlumblineError | None = None
    """Why the two are not comparable."""
    remark: str = ""
    """What else differs between the two but the model."""

    @property
    def direction(self) -> Direction:
        """Whether the second is better, worse, or not shown to differ."""
        return "same" if self.paired is None else self.paired.direction


def pair_evaluations(
    run: str, against: str, asked: str, before: Evaluation, after: Evaluation, remark: str = ""
) -> Pairing:
    """The pairing of an evaluation of `run` with one of `against`: its difference, or why there is
    none."""
    sampling = after.sampling
    drawn = [
        f"{key} {old} → {sampling[key]}"
        for key, old in before.sampling.items()
        if sampling.get(key, old) != old
    ]
    remarks = [remark, f"drawn otherwise: {', '.join(drawn)}" if drawn else ""]
    paired = error = None
    try:
        paired = compare(replace(before, source=against), replace(after, source=run))
        remarks.append(describe_trial(paired.difference.n))
    except IncomparableError as found:
        error = found
    remark = "; ".join(filter(None, remarks))
    return Pairing(run=run, against=against, asked=asked, paired=paired, error=error, remark=remark)


def adjust_pairings(pairings: Sequence[Pairing]) -> tuple[Pairing, ...]:
    """The pairings with p-values and detectable differences adjusted for how many there are."""
    tested = iter(adjust_together([one.paired for one in pairings if one.paired is not None]))
    return tuple(
        one if one.paired is None else replace(one, paired=next(tested)) for one in pairings
    )


def pairing_to_dict(one: Pairing) -> dict[str, Any]:
    """A pairing as JSON values: the paired difference, or `not_comparable`."""
    if one.paired is None:
        return {"not_comparable": one.error.cause if one.error is not None else ""}
    return asdict(one.paired) | {"direction": one.direction, "remark": one.remark}
