"""What all of the training did, split by split: the first stage against the last, and by stratum and kind.

Only for tasks that say what their evaluations put first (`records.Headline`), or that have splits of their own.
"""

from collections.abc import Sequence

from plumbline.evaluation.statistics import Interval
from plumbline.reports import numbers
from plumbline.reports.comparisons import Change, Comparison, holm
from plumbline.reports.tables import Column, Row, Table
from plumbline.reports.view import View, name_of

_CHANGE = (
    Column("n", "n", "count"),
    Column("before", "Before", "interval"),
    Column("after", "After", "interval"),
    Column("difference", "Difference", "change"),
)


def has_breakdown(view: View) -> bool:
    """Whether there is anything to say beside the tables that every run has."""
    return view.task_headline is not None or bool(view.further)


def rises(view: View) -> list[Comparison]:
    """The first stage against the last on every split, asked as the verdict was."""
    mode = view.headline[1] if view.headline else "greedy"
    found = [view.first_to_last(split, mode) for split in view.splits]
    return [one for one in found if isinstance(one, Comparison)]


def rise_sentences(view: View) -> list[str]:
    """By how much the reward rose on each split."""
    said = []
    for one in rises(view):
        change = one.reward
        verb = {"rise": "rose", "fall": "fell", "same": "did not change"}[change.direction]
        said.append(
            f"On {one.split} ({numbers.count(len(one.pairs))} examples) the {one.mode} reward {verb}: "
            f"{numbers.fixed(change.before.mean)} {name_of(one.before)}, {numbers.fixed(change.after.mean)} "
            f"{name_of(one.after)}, difference {numbers.interval_text(change.paired.difference, sign=True)}."
        )
    return said


def kinds(view: View, compared: Comparison) -> list[Change]:
    """The parts under the headline's prefix, before and after; their p-values are adjusted for their own number."""
    headline = view.task_headline
    if headline is None or not headline.prefix:
        return []
    return holm([part for part in compared.parts_unadjusted if part.name.startswith(headline.prefix)])


def breakdown_tables(view: View) -> list[Table]:
    """The tables `rise` and `breakdown`; none for tasks that have nothing to break down."""
    if not has_breakdown(view):
        return []
    compared = rises(view)
    return [rise_table(view, compared), breakdown_table(view, compared)]


def rise_table(view: View, compared: Sequence[Comparison]) -> Table:
    """A row for each split, reward first, then the task's own figures."""
    figures = view.task_headline.figures if view.task_headline else ()
    rows = []
    for one in compared:
        stages = f"{name_of(one.before)} → {name_of(one.after)}"
        rows.append(Row((one.split, "reward", stages, *_cells(one.reward), one.reward.p)))
        parts = {change.name: change for change in one.parts_unadjusted}
        rows += [
            Row((one.split, figure.title, stages, *_cells(parts[figure.part]), parts[figure.part].p))
            for figure in figures
            if figure.part in parts
        ]
    columns = (Column("split", "Split"), Column("figure", "Figure"), Column("stages", "Stages"), *_CHANGE)
    caption = "The first stage against the last, by split [95 % interval]"
    return Table("rise", caption, (*columns, Column("p", "p", "p")), tuple(rows))


def breakdown_table(view: View, compared: Sequence[Comparison]) -> Table:
    """A row for each split and stratum, and each split and kind."""
    headline = view.task_headline
    rows = []
    for one in compared:
        rows += [_row(one.split, headline.stratum if headline else "stratum", c.name, c) for c in one.strata]
        if headline is not None:
            rows += [
                _row(one.split, headline.breakdown, c.name.removeprefix(headline.prefix), c) for c in kinds(view, one)
            ]
    columns = (Column("split", "Split"), Column("by", "By"), Column("name", "Name"), *_CHANGE)
    caption = "The first stage against the last, by split and kind [95 % interval]"
    return Table("breakdown", caption, (*columns, Column("p", "p (Holm)", "p")), tuple(rows))


def _row(split: str, what: str, name: str, change: Change) -> Row:
    return Row((split, what, name or "(none)", *_cells(change), change.p))


def _cells(change: Change) -> tuple[int, Interval, Interval, Interval]:
    difference = change.paired.difference
    return difference.n, change.before, change.after, difference
