"""The tables of a report. The same ones are in the HTML, the Markdown and the files; every row says
its n."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from plumbline.checks.diagnosis.watch import EVENT
from plumbline.evaluation.comparison import Comparison, QuantityChange
from plumbline.evaluation.evaluate import ORACLE
from plumbline.evaluation.statistics import Interval, mean_interval
from plumbline.evaluation.summary import (
    count_rescued,
    has_both,
    reading_names,
    reward_reading,
)
from plumbline.records import Judged, clusters_of, group_by_key
from plumbline.reports.table_formats import Cell, Cells, Column, Row, Table, read_interval
from plumbline.reports.view import RunView, oracle_interval, stage_name
from plumbline.runs.evaluations import REFERENCE, EvaluationKey

SIDES = (Column("before", "Before", "interval"), Column("after", "After", "interval"))
COUNTS = (
    Column("wins", "Better", "count"),
    Column("losses", "Worse", "count"),
    Column("ties", "Equal", "count"),
)
P_HOLM = Column("p", "p (Holm)", "p")
FEWEST = 3
"""Clusters of examples, or examples, that an interval needs: two say nothing of a third."""


def all_tables(view: RunView) -> list[Table]:
    """Every table; one with nothing to say has its heading only, but `rise_table` and `breakdown_table` are
    left out then.

    Of what several tasks have in common there are two; each task's view has the others.
    """
    watched = [watch_table(view)] if view.watch_outcomes else []
    if view.tasks:
        return [tasks_table(view), *watched, timings_table(view)]
    tables = [
        stages_table(view, view.splits),
        differences_table(view),
        *changes_tables(view.compare_on_each_split()),
        parse_modes_table(view),
        curve_table(view),
        *watched,
        *([timings_table(view)] if view.whole is None else []),
    ]
    broken = [rise_table(view), breakdown_table(view, view.rises)] if view.has_breakdown else []
    return [*tables, *broken]


# -- several tasks ---------------------------------------------------------------------------------


def tasks_table(view: RunView) -> Table:
    """What the verdict compares, a row for each task; at the end the mean of the tasks' means."""
    bounds = ("floor", "ceiling", "skill")
    rows, means = [], []
    for one in view.tasks:
        if (compared := one.headline_comparison()) is None:
            rows.append(Row((one.task, *[None] * 11)))
            continue
        n, before, after, difference, p, *_ = _change_cells(compared.reward)
        means.append((before.mean, after.mean))
        summary = one.summary(EvaluationKey(compared.after, compared.split, compared.mode))
        asked = (one.task, _stages(compared), compared.split, compared.mode)
        rows.append(Row((*asked, n, *means[-1], difference, p, *map(summary.get, bounds))))
    if len(means) == len(rows):
        first, last = (sum(values) / len(means) for values in zip(*means, strict=True))
        rows.append(
            Row(("mean of the tasks' means", *[None] * 4, first, last, *[None] * 5), "reference")
        )
    caption = (
        "Mean reward by task, the last stage against the one before [each 95 %]; each task has its "
        "own rubric"
    )
    columns = (
        "task",
        "stages",
        "split",
        "mode",
        "n",
        "before",
        "after",
        "difference",
        "p",
        *bounds,
    )
    return Table.of("tasks", caption, columns, rows)


def _stages(compared: Comparison) -> str:
    return f"{stage_name(compared.before)} → {stage_name(compared.after)}"


# -- before and after ------------------------------------------------------------------------------


def stages_table(view: RunView, splits: Sequence[str]) -> Table:
    """Stages, baselines and oracle as rows: the reward under each reading, and what stands beside
    it."""
    keys = [
        key for split in splits for key in (*view.final_keys(split), *view.reference_keys(split))
    ]
    evaluations = [view.evaluations[key] for key in keys]
    named = reward_reading(evaluations)
    readings = [name for name in reading_names(evaluations) if name != named]
    several = len(splits) != 1
    columns: tuple[str | Column, ...] = (
        "source",
        *(["split"] if several else []),
        "mode",
        "n",
        Column("reward", f"Reward ({named})" if named else "Reward", "interval"),
        *(Column(name, name.capitalize(), "interval") for name in readings),
        "skill",
        Column("nonzero", "Nonzero", "share"),
        Column("truncated", "Truncated", "share"),
        Column("tokens", "Tokens", "number", 1),
        "failures",
    )
    rows = []
    for key in keys:
        summary = view.summary(key)
        is_reference = key.stage == REFERENCE
        cells: list[Cell] = [
            _source(view, key),
            *([key.split] if several else []),
            None if is_reference else key.mode,
        ]
        read = [read_interval(summary["readings"].get(name)) for name in readings]
        if key.mode == ORACLE:
            read = [one and oracle_interval(one) for one in read]
        cells += [summary["n"], view.reward(view.evaluations[key]), *read]
        cells += [
            summary.get("skill"),
            summary["nonzero_rate"],
            summary["truncated"],
            summary["mean_tokens"],
        ]
        rows.append(Row((*cells, summary["failures"]), "reference" if is_reference else ""))
    where = "by split" if several else f"on {splits[0]}"
    return Table.of(
        "results", f"Mean reward {where} [each 95 %], with floor and ceiling", columns, rows
    )


def _source(view: RunView, key: EvaluationKey) -> str:
    if key.stage != REFERENCE:
        return stage_name(key.stage)
    if key.mode == ORACLE:
        return "Oracle (ceiling)"
    baselines = [k for k in view.reference_keys(key.split) if k.mode != ORACLE]
    return f"Baseline: {key.mode} (floor)" if key == baselines[-1] else f"Baseline: {key.mode}"


def differences_table(view: RunView) -> Table:
    """Each stage against the one before, and the last against the first, pair by pair."""
    rows: list[tuple[Cells, QuantityChange | None]] = []
    for split in view.splits:
        for mode in view.modes(split):
            stages = view.evaluated_stages(split, mode)
            whole = [(stages[0], stages[-1])] if len(stages) > 2 else []
            for before, after in (*pairwise(stages), *whole):
                result = view.compare(split, mode, before, after)
                name = f"{stage_name(before)} → {stage_name(after)}"
                if isinstance(result, Comparison):
                    rows.append(((name, split, mode), result.reward))
                elif result is not None:
                    rows.append(((f"{name}: not comparable, {result.cause}", split, mode), None))
    caption = "Paired differences of the same examples [each 95 %]"
    return _changes_table("differences", caption, ("stages", "split", "mode", "n"), rows, "p")


# -- parts, strata and kinds -----------------------------------------------------------------------


def changes_tables(comparisons: Sequence[Comparison], *, split: bool = True) -> list[Table]:
    """The parts of the reward before and after, and the reward by stratum; `split` names the split
    in each row."""
    compared = sorted({f"{_stages(one)}, {one.mode}" for one in comparisons})
    about = f", {' and '.join(compared)} [each 95 %; none of under {FEWEST} clusters]"
    tables = []
    for name, title, changed in (
        ("parts", "part", [(one, one.parts) for one in comparisons]),
        ("strata", "stratum", [(one, one.strata) for one in comparisons]),
    ):
        rows = [
            ((each.name or "(none)", *([one.split] if split else [])), each)
            for one, changes in changed
            for each in changes
        ]
        caption = f"Reward by {title}{about if rows else ''}"
        first = (title, *(["split"] if split else []))
        tables.append(_changes_table(name, caption, (*first, "n"), rows))
    return tables


def _changes_table(
    name: str,
    caption: str,
    first: Sequence[str],
    changes: Sequence[tuple[Cells, QuantityChange | None]],
    p: str | Column = P_HOLM,
) -> Table:
    rows = [(*named, *(_change_cells(each) if each else [None] * 8)) for named, each in changes]
    return Table.of(name, caption, (*first, *SIDES, "difference", p, *COUNTS), rows)


def rise_table(view: RunView) -> Table:
    """The first stage against the last: a row for each split, reward first, then the task's own
    figures."""
    figures = view.task_headline.figures if view.task_headline else ()
    rows: list[tuple[Cells, QuantityChange | None]] = []
    for one in view.rises:
        changes = {change.name: change for change in one.parts_unadjusted}
        named = [("reward", one.reward)]
        named += [
            (figure.title, changes[figure.part]) for figure in figures if figure.part in changes
        ]
        rows += [((one.split, name, _stages(one)), change) for name, change in named]
    caption = "The first stage against the last, by split [each 95 %]"
    return _changes_table("rise", caption, ("split", "figure", "stages", "n"), rows, "p")


def breakdown_table(view: RunView, compared: Sequence[Comparison]) -> Table:
    """A row for each split and stratum, and each split and kind."""
    headline = view.task_headline
    by = headline.stratum if headline else "stratum"
    rows: list[tuple[Cells, QuantityChange | None]] = []
    for one in compared:
        rows += [((one.split, by, each.name or "(none)"), each) for each in one.strata]
        if headline is not None:
            rows += [
                ((one.split, headline.breakdown, each.name.removeprefix(headline.prefix)), each)
                for each in one.kinds(headline.prefix)
            ]
    caption = "The first stage against the last, by split and kind [each 95 %]"
    return _changes_table("breakdown", caption, ("split", "by", "name", "n"), rows)


def _change_cells(
    change: QuantityChange,
) -> tuple[int, Interval, Interval, Interval, float, int, int, int]:
    """The cells under n, before, after, difference, p, and the counts."""
    pairs, units = change.paired, change.paired.scatter.units
    before, after, difference = (
        known_interval(one, units) for one in (change.before, change.after, pairs.difference)
    )
    p = pairs.p if units >= FEWEST else math.nan
    counts = (pairs.wins, pairs.losses, pairs.ties)
    return (pairs.difference.n, before, after, difference, p, *counts)


def known_interval(interval: Interval, units: int) -> Interval:
    """A mean's interval; of fewer clusters than say anything of others the mean alone."""
    return interval if units >= FEWEST else replace(interval, low=math.nan, high=math.nan)


# -- parse modes -----------------------------------------------------------------------------------


def parse_modes_table(view: RunView) -> Table:
    """How answers had to be read, and what each reading pays for them, before and after; no rows
    where all were read alike."""
    evaluations = [view.evaluations[key] for key in view.headline_keys]
    both, names = any(map(has_both, evaluations)), reading_names(evaluations)
    lost_columns = (
        Column("lost", "Lost strictly", "count"),
        Column("right", "of them right", "count"),
    )
    columns = (
        Column("how", "Read as"),
        "stage",
        Column("n", "Answers", "count"),
        "share",
        *(Column(name, f"{name.capitalize()} reward", "interval") for name in names),
        *(lost_columns if both else ()),
    )
    if not both and len({row.how for one in evaluations for row in one.rows}) < 2:
        evaluations = []
    rows = []
    for key, evaluation in zip(view.headline_keys, evaluations, strict=False):
        by_mode = group_by_key((row.how, row) for row in evaluation.rows)
        order = sorted(by_mode, key=lambda how: (-len(by_mode[how]), how))
        modes: list[tuple[str, Sequence[Judged]]] = [
            (how or "(none)", by_mode[how]) for how in order
        ]
        n = len(evaluation.rows)
        for how, judged in (*modes, ("all answers", evaluation.rows)):
            counted = count_rescued(judged, evaluation.form)
            lost = (counted.earning, counted.right) if counted.n else (None, None)
            cells = (
                how,
                stage_name(key.stage),
                len(judged),
                len(judged) / n if n else None,
                *(_reading(judged, name) for name in names),
                *(lost if both else ()),
            )
            rows.append(Row(cells, "reference" if judged is evaluation.rows else ""))
    where = f" ({view.headline[1]}, {view.headline[0]})" if view.headline else ""
    return Table.of("parse-modes", f"Answers by their reading{where}", columns, rows)


def _reading(rows: Sequence[Judged], name: str) -> Interval | None:
    having = [row for row in rows if name in row.readings]
    if not having:
        return None
    found = mean_interval([row.readings[name] for row in having], clusters_of(having))
    return known_interval(found, len({row.cluster or row.id for row in having}))


# -- over time -------------------------------------------------------------------------------------


def curve_table(view: RunView) -> Table:
    """Every evaluation during training."""
    rows = (
        (step, split, mode, len(evaluation.rows), view.reward(evaluation))
        for (split, mode), points in view.training_evaluations().items()
        for step, evaluation in points
    )
    columns = (Column("step", "Step", "count"), "split", "mode", "n", "reward")
    return Table.of("curve", "Evaluations during RL [each 95 %]", columns, rows)


def watch_table(view: RunView) -> Table:
    """The recipe's watch rules, with what each did while the run trained, and what the records say
    of it now."""
    done = group_by_key(
        (str(event.get("rule")), f"{event.get('action')} at step {event.get('step')}")
        for event in view.run.events
        if event["kind"] == EVENT
    )
    rows = []
    for one in view.watch_outcomes:
        live = ", ".join(done.get(one.rule, [])) or "nothing"
        fired = ", ".join(f"{each.action} at step {each.step}" for each in one.fired) or "nothing"
        rows.append(
            (one.rule, one.expected, one.stop_if or "-", one.warn_if or "-", live, fired, one.now)
        )
    caption = "Noise: a bound was passed, but not by more than the interval is wide"
    told = (
        Column("live", "While it trained"),
        Column("records", "By the records"),
        Column("now", "At the last step"),
    )
    return Table.of("watch", caption, ("rule", "expected", "stop_if", "warn_if", *told), rows)


def timings_table(view: RunView) -> Table:
    """Recorded seconds by stage and kind of work."""
    total = sum(view.seconds.values())
    rows = (
        (work, stage_name(stage), seconds, seconds / total if total else None)
        for (stage, work), seconds in view.seconds.items()
    )
    columns = ("work", "stage", Column("seconds", "Seconds", "number", 1), "share")
    return Table.of("time", "Recorded seconds of training", columns, rows)
