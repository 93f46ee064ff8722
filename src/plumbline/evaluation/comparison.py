"""Two evaluations of the same examples, pair by pair."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from plumbline.errors import IncomparableError, PlumblineError
from plumbline.evaluation.statistics import (
    SIGNIFICANT,
    Direction,
    PairedDifference,
    detectable_difference,
    direction,
    holm,
    paired_difference,
)
from plumbline.evaluation.summary import part_means
from plumbline.records import Evaluation, Judged, clusters_of
from plumbline.runs.evaluations import EvaluationKey

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
                "evaluate both again under one version; `plumbline score` judges stored "
                "completions again",
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
    if direction(change, compared.p_value) != "fall":
        return None
    message = f"{change:+.3f} on the same {change.n} examples"
    first, second = part_means(before.rows), part_means(after.rows)
    changes = {
        name: second[name].mean - part.mean for name, part in first.items() if name in second
    }
    if changes and changes[worst := min(changes, key=changes.__getitem__)] < 0:
        message += f", most of all in {worst} ({changes[worst]:+.3f})"
    return message


# -- pairing ---------------------------------------------------------------------------------------
#
# Pairs of evaluations that are shown together: each one's difference, and how certain all of them
# are.
#
# Every comparison of a table is one question of several, so their p-values are adjusted together
# (Holm). A comparison is of two trained models on these examples: what another seed would do, it
# does not say.


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
    p: float = math.nan
    """Adjusted for all comparisons of the table."""
    detectable: float | None = None
    """The least difference that these examples show four times in five, so adjusted; None where no
    pair differs, or their clusters are too few for any."""

    @property
    def direction(self) -> Direction:
        """Whether the second is better, worse, or not shown to differ."""
        return "same" if self.paired is None else direction(self.paired.difference, self.p)


def name_of(key: EvaluationKey) -> str:
    """What a pairing calls an evaluation of a run: task, split and mode."""
    return f"{key.task} {key.split} {key.mode}".strip()


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
    pairing = Pairing(
        run=run, against=against, asked=asked, remark="; ".join(filter(None, remarks))
    )
    try:
        change = compare(replace(before, source=against), replace(after, source=run))
        remarks += [describe_trial(change.difference.n)]
        return replace(pairing, paired=change, remark="; ".join(filter(None, remarks)))
    except IncomparableError as error:
        return replace(pairing, error=error)


def adjust_pairings(pairings: Sequence[Pairing]) -> tuple[Pairing, ...]:
    """The pairings with p-values and detectable differences adjusted for how many there are."""
    tested = [one.paired for one in pairings if one.paired is not None]
    p_values = iter(holm([one.p_value for one in tested]))
    found = []
    for one in pairings:
        if one.paired is not None:
            difference = one.paired.difference
            # of flips, where all differ the same way
            least_p = 2.0 ** (1 - one.paired.scatter.units)
            can_differ = one.paired.ties < difference.n and least_p * len(tested) < SIGNIFICANT
            least = detectable_difference(difference, len(tested)) if can_differ else None
            one = replace(one, p=next(p_values), detectable=least)
        found.append(one)
    return tuple(found)


def pairing_to_dict(one: Pairing) -> dict[str, Any]:
    """A pairing as JSON values: the paired difference, or `not_comparable`."""
    if one.paired is None:
        return {"not_comparable": one.error.cause if one.error is not None else ""}
    more = {
        "p_holm": one.p,
        "detectable": one.detectable,
        "direction": one.direction,
        "remark": one.remark,
    }
    return asdict(one.paired) | more
