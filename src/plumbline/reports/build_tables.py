"""The tables of a report. The same ones are in the HTML, the Markdown and the files; every row says its n."""

from collections.abc import Sequence
from itertools import pairwise

from plumbline.checks.diagnosis.watch import EVENT
from plumbline.evaluation.evaluate import ORACLE
from plumbline.evaluation.statistics import Interval, mean_interval
from plumbline.records import Evaluation, Judged
from plumbline.reports.comparisons import Change, Comparison
from plumbline.reports.readings import LENIENT, STRICT, reading_names, rescued, reward_reading
from plumbline.reports.tables import Cell, Column, Kind, Row, Table, recorded
from plumbline.reports.view import View, name_of
from plumbline.runs.evaluations import REFERENCE, EvaluationKey


def all_tables(view: View) -> list[Table]:
    """Every table; one with nothing to say has its heading only, but `rise` and `breakdown` are left out then.

    Of what several tasks have in common there are two; each task's view has the others.
    """
    if view.tasks:
        return [tasks(view), *([watch(view)] if view.watched else []), time(view)]
    comparisons = view.on_each_split(view.last_two)
    tables = [
        results(view, view.splits),
        differences(view, view.splits),
        parts(comparisons),
        strata(comparisons),
        parse_modes(view),
        curve(view),
        *([watch(view)] if view.watched else []),
        *([time(view)] if view.whole is None else []),
    ]
    return [*tables, rise(view), breakdown(view, view.rises)] if view.has_breakdown else tables


# -- several tasks ------------------------------------------------------------------------------------------------


def tasks(view: View) -> Table:
    """What the verdict compares, a row for each task; at the end the mean of the tasks' means."""
    columns = (
        Column("task", "Task"),
        Column("stages", "Stages"),
        Column("split", "Split"),
        Column("mode", "Asked"),
        *_change_columns("p", "number")[:5],
        Column("floor", "Floor", "number"),
        Column("ceiling", "Ceiling", "number"),
        Column("skill", "Skill", "number", 2),
    )
    rows, means = [], []
    for one in view.tasks:
        if (compared := one.headline_comparison()) is None:
            rows.append(Row((one.task, *[None] * 11)))
            continue
        n, before, after, difference, p, *_ = _change(compared.reward)
        means.append((before.mean, after.mean))
        stages = f"{name_of(compared.before)} → {name_of(compared.after)}"
        summary = one.summary(EvaluationKey(compared.after, compared.split, compared.mode))
        bounds = [summary.get(key) for key in ("floor", "ceiling", "skill")]
        rows.append(Row((one.task, stages, compared.split, compared.mode, n, *means[-1], difference, p, *bounds)))
    if len(means) == len(rows):
        first, last = (sum(values) / len(means) for values in zip(*means, strict=True))
        rows.append(Row(("mean of the tasks' means", *[None] * 4, first, last, *[None] * 5), "reference"))
    caption = "Mean reward by task, the last stage against the one before [95 % interval]; each task has its own rubric"
    return Table("tasks", caption, columns, tuple(rows))


# -- before and after --------------------------------------------------------------------------------------------


def results(view: View, splits: Sequence[str]) -> Table:
    """Stages, controls and oracle as rows: the reward under each reading, and what stands beside it."""
    keys = [key for split in splits for key in _result_keys(view, split)]
    evaluations = [view.evaluations[key] for key in keys]
    named = reward_reading(evaluations)
    readings = [name for name in reading_names(evaluations) if name != named]
    columns = (
        Column("source", "Answers from"),
        *([Column("split", "Split")] if len(splits) != 1 else []),
        Column("mode", "Asked"),
        Column("n", "n", "count"),
        Column("reward", f"Reward ({named})" if named else "Reward", "interval"),
        *(Column(name, name.capitalize(), "interval") for name in readings),
        Column("skill", "Skill", "number", 2),
        Column("nonzero", "Nonzero", "share"),
        Column("truncated", "Truncated", "share"),
        Column("tokens", "Tokens", "number", 1),
        Column("failures", "Failures", "count"),
    )
    rows = tuple(_result_row(view, key, readings, split=len(splits) != 1) for key in keys)
    where = f"on {splits[0]}" if len(splits) == 1 else "by split"
    return Table("results", f"Mean reward {where} [95 % interval], with floor and ceiling", columns, rows)


def _result_keys(view: View, split: str) -> list[EvaluationKey]:
    models = [
        key
        for stage in view.stages
        for mode in view.modes(split)
        if (key := EvaluationKey(stage, split, mode)) in view.evaluations
    ]
    return [*models, *view.reference_keys(split)]


def _result_row(view: View, key: EvaluationKey, readings: Sequence[str], *, split: bool) -> Row:
    summary = view.summary(key)
    is_reference = key.stage == REFERENCE
    cells: list[Cell] = [_source(view, key)]
    cells += [key.split] if split else []
    cells += [
        None if is_reference else key.mode,
        summary["n"],
        view.reward(view.evaluations[key]),
        *(recorded(summary["readings"].get(name)) for name in readings),
        summary.get("skill"),
        summary["nonzero_rate"],
        summary["truncated"],
        summary["mean_tokens"],
        summary["failures"],
    ]
    return Row(tuple(cells), "reference" if is_reference else "")


def _source(view: View, key: EvaluationKey) -> str:
    if key.stage != REFERENCE:
        return name_of(key.stage)
    if key.mode == ORACLE:
        return "Oracle (ceiling)"
    controls = [k for k in view.reference_keys(key.split) if k.mode != ORACLE]
    return f"Control: {key.mode} (floor)" if key == controls[-1] else f"Control: {key.mode}"


def differences(view: View, splits: Sequence[str]) -> Table:
    """Each stage against the one before, and the last against the first, pair by pair."""
    rows = []
    for split in splits:
        for mode in view.modes(split):
            stages = view.evaluated(split, mode)
            pairs = list(pairwise(stages))
            if len(stages) > 2:
                pairs.append((stages[0], stages[-1]))
            for before, after in pairs:
                result = view.compare(split, mode, before, after)
                name = f"{name_of(before)} → {name_of(after)}"
                if isinstance(result, Comparison):
                    cells = _change(result.reward)
                    rows.append(Row((name, split, mode, cells[0], cells[1].mean, cells[2].mean, *cells[3:])))
                elif result is not None:
                    rows.append(Row((f"{name}: not comparable, {result.cause}", split, mode, *[None] * 8)))
    first_columns = (Column("stages", "Stages"), Column("split", "Split"), Column("mode", "Asked"))
    columns = (*first_columns, *_change_columns("p", "number"))
    return Table("differences", "Paired differences of the same examples [95 % interval]", columns, tuple(rows))


# -- parts, strata and kinds -------------------------------------------------------------------------------------


def parts(comparisons: Sequence[Comparison], *, split: bool = True) -> Table:
    """The parts of the reward before and after; `split` names the split in each row."""
    return _changes("Part", [(one, one.parts) for one in comparisons], split)


def strata(comparisons: Sequence[Comparison], *, split: bool = True) -> Table:
    """The reward before and after by stratum; `split` names the split in each row."""
    return _changes("Stratum", [(one, one.strata) for one in comparisons], split)


def _changes(title: str, changed: Sequence[tuple[Comparison, Sequence[Change]]], split: bool) -> Table:
    caption = f"Reward by {title.lower()}"
    if compared := sorted({f"{name_of(one.before)} → {name_of(one.after)}, {one.mode}" for one, _ in changed}):
        caption += f", {' and '.join(compared)} [95 % interval]"
    columns = (
        Column(title.lower(), title),
        *([Column("split", "Split")] if split else []),
        *_change_columns("p (Holm)"),
    )
    rows = tuple(
        Row((change.name or "(none)", *([one.split] if split else []), *_change(change)))
        for one, changes in changed
        for change in changes
    )
    return Table({"Part": "parts", "Stratum": "strata"}[title], caption, columns, rows)


def rise(view: View) -> Table:
    """The first stage against the last: a row for each split, reward first, then the task's own figures."""
    figures = view.task_headline.figures if view.task_headline else ()
    rows = []
    for one in view.rises:
        stages = f"{name_of(one.before)} → {name_of(one.after)}"
        changes = {change.name: change for change in one.parts_unadjusted}
        named = [("reward", one.reward)]
        named += [(figure.title, changes[figure.part]) for figure in figures if figure.part in changes]
        rows += [Row((one.split, name, stages, *_change(change)[:5])) for name, change in named]
    columns = (Column("split", "Split"), Column("figure", "Figure"), Column("stages", "Stages"))
    caption = "The first stage against the last, by split [95 % interval]"
    return Table("rise", caption, (*columns, *_change_columns("p")[:5]), tuple(rows))


def breakdown(view: View, compared: Sequence[Comparison]) -> Table:
    """A row for each split and stratum, and each split and kind."""
    headline = view.task_headline
    rows = []
    for one in compared:
        named = [(headline.stratum if headline else "stratum", change.name, change) for change in one.strata]
        if headline is not None:
            kinds = one.kinds(headline.prefix)
            named += [(headline.breakdown, change.name.removeprefix(headline.prefix), change) for change in kinds]
        rows += [Row((one.split, what, name or "(none)", *_change(change)[:5])) for what, name, change in named]
    columns = (Column("split", "Split"), Column("by", "By"), Column("name", "Name"), *_change_columns("p (Holm)")[:5])
    return Table(
        "breakdown", "The first stage against the last, by split and kind [95 % interval]", columns, tuple(rows)
    )


def _change_columns(p: str, sides: Kind = "interval") -> tuple[Column, ...]:
    """The columns of a paired difference; `p` heads its p-value, and `sides` is how before and after are shown."""
    return (
        Column("n", "n", "count"),
        Column("before", "Before", sides),
        Column("after", "After", sides),
        Column("difference", "Difference", "change"),
        Column("p", p, "p"),
        Column("wins", "Better", "count"),
        Column("losses", "Worse", "count"),
        Column("ties", "Equal", "count"),
    )


def _change(change: Change) -> tuple[int, Interval, Interval, Interval, float, int, int, int]:
    """The cells under `_change_columns`."""
    pairs = change.paired
    shown = (pairs.difference.n, change.before, change.after, pairs.difference, change.p)
    return (*shown, pairs.wins, pairs.losses, pairs.ties)


# -- parse modes -------------------------------------------------------------------------------------------------


def parse_modes(view: View) -> Table:
    """How answers had to be read, and what strict and lenient reading pay for them, before and after."""
    columns = (
        Column("how", "Read as"),
        Column("stage", "Stage"),
        Column("n", "Answers", "count"),
        Column("share", "Share", "share"),
        Column(STRICT, "Strict reward", "interval"),
        Column(LENIENT, "Lenient reward", "interval"),
        Column("lost", "Lost strictly", "count"),
        Column("right", "of them right", "count"),
    )
    rows = [row for name, evaluation in view.headline_evaluations for row in _mode_rows(name, evaluation)]
    where = f" ({view.headline[1]}, {view.headline[0]})" if view.headline else ""
    return Table("parse-modes", f"How answers were read{where}", columns, tuple(rows))


def _mode_rows(stage: str, evaluation: Evaluation) -> list[Row]:
    by_mode: dict[str, list[Judged]] = {}
    for row in evaluation.rows:
        by_mode.setdefault(row.how, []).append(row)
    order = sorted(by_mode, key=lambda how: (-len(by_mode[how]), how))
    return [
        *(_mode_row(how or "(none)", stage, by_mode[how], evaluation) for how in order),
        _mode_row("all answers", stage, evaluation.rows, evaluation, "reference"),
    ]


def _mode_row(how: str, stage: str, rows: Sequence[Judged], evaluation: Evaluation, style: str = "") -> Row:
    counted, n = rescued(rows, evaluation.form), len(evaluation.rows)
    return Row(
        (
            how,
            name_of(stage),
            len(rows),
            len(rows) / n if n else None,
            *(_reading(rows, name) for name in (STRICT, LENIENT)),
            counted.earning if counted.n else None,
            counted.right if counted.n else None,
        ),
        style,
    )


def _reading(rows: Sequence[Judged], name: str) -> Interval | None:
    values = [row.readings[name] for row in rows if name in row.readings]
    return mean_interval(values) if values else None


# -- over time ---------------------------------------------------------------------------------------------------


def curve(view: View) -> Table:
    """Every evaluation during training."""
    columns = (
        Column("step", "Step", "count"),
        Column("split", "Split"),
        Column("mode", "Asked"),
        Column("n", "n", "count"),
        Column("reward", "Reward", "interval"),
    )
    rows = tuple(
        Row((step, split, mode, len(evaluation.rows), view.reward(evaluation)))
        for (split, mode), points in view.inside().items()
        for step, evaluation in points
    )
    return Table("curve", "Evaluations during RL [95 % interval]", columns, rows)


def watch(view: View) -> Table:
    """The recipe's watch rules, with what each did while the run trained, and what the records say of it now."""
    columns = (
        Column("rule", "Rule"),
        Column("expected", "Expected"),
        Column("stop_if", "Stop if"),
        Column("warn_if", "Warn if"),
        Column("live", "While it trained"),
        Column("records", "By the records"),
        Column("now", "At the last step"),
    )
    done: dict[str, list[str]] = {}
    for event in view.events:
        if event["kind"] == EVENT:
            done.setdefault(str(event.get("rule")), []).append(f"{event.get('action')} at step {event.get('step')}")
    rows = tuple(
        Row(
            (
                one.rule,
                one.expected,
                one.stop_if or "-",
                one.warn_if or "-",
                ", ".join(done.get(one.rule, [])) or "nothing",
                ", ".join(f"{each.action} at step {each.step}" for each in one.fired) or "nothing",
                one.now,
            )
        )
        for one in view.watched
    )
    caption = "Watch rules; noise: a bound was passed, but not by more than the interval is wide"
    return Table("watch", caption, columns, rows)


def time(view: View) -> Table:
    """Recorded seconds by stage and kind of work."""
    total = sum(view.seconds.values())
    columns = (
        Column("work", "Work"),
        Column("stage", "Stage"),
        Column("seconds", "Seconds", "number", 1),
        Column("share", "Share", "share"),
    )
    rows = tuple(
        Row((work, name_of(stage), seconds, seconds / total if total else None))
        for (stage, work), seconds in view.seconds.items()
    )
    return Table("time", "Recorded seconds of training", columns, rows)
