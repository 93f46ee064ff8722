"""Runs beside one another, as tables, a page, and for a terminal: `plumbline runs`, `plumbline compare`."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from plumbline.errors import visible
from plumbline.evaluation.history import Lineage, Member, Result
from plumbline.evaluation.pairing import Pairing
from plumbline.evaluation.statistics import Interval
from plumbline.reports import numbers
from plumbline.reports.charts import DotRow, Mark, Reference, dot_chart
from plumbline.reports.page import Figure, page, section
from plumbline.reports.tables import (
    AFTER,
    BEFORE,
    CEILING,
    DIFFERENCE,
    FLOOR,
    MODE,
    REWARD,
    RUN,
    SPLIT,
    STAGE,
    TASK,
    Cell,
    Column,
    N,
    Row,
    Table,
)
from plumbline.runs.lineage import in_words
from plumbline.storage import dumps

STYLES = {"greedy": ("c1", "circle"), "sampled": ("c2", "hollow")}
SAYS = {"rise": "higher", "fall": "lower", "same": "no difference shown"}
OTHER_SEED = "another seed of the same recipe"
FEW = 3
"""Changes of a recipe that a row names; the page and the JSON have all."""
MOST = 60
"""Rows of a chart."""
NUMBER, ASKED = Column("at", "#"), Column("asked", "Asked")
P_HOLM, DETECTS = Column("p_holm", "p (Holm)", "p"), Column("detectable", "Detects", "number")


# -- tables --------------------------------------------------------------------------------------------------------


def history_tables(found: Lineage) -> list[Table]:
    """The tables that have something to say: runs, results, comparisons, changes of the recipes."""
    runs = [runs_table(found)] if found.lineage else []
    tables = [*runs, results_table(found), comparisons_table(found), changes_table(found)]
    return [table for table in tables if table.rows]


def runs_table(found: Lineage) -> Table:
    """Each run: what it began from, when, how long, how far, how it ended, and what it has otherwise than before."""
    columns = (
        RUN,
        Column("from", "Began from"),
        Column("began", "Began"),
        Column("trained", "Trained for"),
        Column("steps", "Steps"),
        Column("status", "Status"),
        Column("changed", "Otherwise than before"),
    )
    rows = tuple(Row(_run_cells(member), "head" if not member.depth else "") for member in found.members)
    return Table("runs", "Runs by lineage; times are UTC, and of training as recorded", columns, rows)


def _run_cells(member: Member) -> tuple[Cell, ...]:
    run = member.listed
    assert run is not None
    steps = [
        f"{stage} {run.steps.get(stage, 0)}" + (f" of {run.planned[stage]}" if _short_of(member, stage) else "")
        for stage in dict.fromkeys([*run.planned, *run.steps])
    ]
    status = f"{run.status}: {run.why}" if run.why else run.status
    control = ", negative control" if run.control else ""
    return (
        "↳\u00a0" * min(member.depth, 3) + member.name,
        str(member.origin) if member.origin else None,
        f"{run.started:%Y-%m-%d %H:%M}" if run.started else None,
        numbers.duration(run.seconds) if run.seconds else None,
        ", ".join(steps) or None,
        "; ".join([status + control, *member.problems]),
        f"{in_words(member.changes, FEW)} (than {member.against})" if member.against else None,
    )


def _short_of(member: Member, stage: str) -> bool:
    assert member.listed is not None
    wanted = member.listed.planned.get(stage)
    return wanted is not None and member.listed.steps.get(stage, 0) < wanted


def results_table(found: Lineage) -> Table:
    """What each run's last stage came to, by task, split and mode, between floor and ceiling."""
    rows = []
    for member in found.members:
        for one in member.results:
            asked = (member.name, one.task, one.split, one.mode, one.stage)
            rows.append((*asked, one.reward.n, one.reward, one.floor, one.ceiling, one.rubric))
    columns = (RUN, TASK, SPLIT, MODE, STAGE, N, REWARD, FLOOR, CEILING, Column("rubric", "Rubric"))
    return Table.of("results", "Mean reward after the last stage [95 % interval]", columns, rows)


def comparisons_table(found: Lineage) -> Table:
    """Each run against the one before it, on the same examples; what is not comparable says why."""
    named = (RUN, Column("against", "Against"), ASKED)
    tested = (BEFORE, AFTER, DIFFERENCE, P_HOLM, Column("says", "Says"), DETECTS, N, Column("p", "p", "p"))
    rows = (_pairing_cells(one, found) for one in found.pairings)
    caption = f"Differences on the same examples. {about(found)}"
    return Table.of("comparisons", caption, (*named, *tested), rows)


def about(found: Lineage) -> str:
    """What the p-values of the table are."""
    several = f" over the {found.tests} comparisons of this table" if found.tests > 1 else ""
    return (
        f"p: two-sided sign-flip test; p (Holm): adjusted{several}. Detects: the least difference that is found four "
        "times in five. Each row compares two trained models, not what other seeds would give"
    )


def _pairing_cells(one: Pairing, found: Lineage) -> tuple[Cell, ...]:
    named = (one.run, one.against, one.asked)
    if one.paired is None:
        return (*named, *[None] * 4, says(one, found), *[None] * 3)
    paired = one.paired
    tested = (paired.before, paired.after, paired.difference, one.p, says(one, found))
    return (*named, *tested, one.detectable, paired.difference.n, paired.p_value)


def says(one: Pairing, found: Lineage) -> str:
    """What a comparison comes to, in words."""
    if one.paired is None:
        return f"not comparable: {one.error.cause if one.error else ''}"
    member = next(member for member in found.members if member.name == one.run)
    said = SAYS[one.direction]
    if one.against == member.against and [key for key, *_ in member.changes] == ["seed"]:
        return OTHER_SEED + ("" if one.direction == "same" else f": {said}, so seeds differ")
    return f"{said} ({one.remark})" if one.remark else said


def changes_table(found: Lineage) -> Table:
    """Every key of the recipes that differs from the run that a run is compared with."""
    columns = (RUN, Column("key", "Key"), Column("before", "Before"), Column("after", "Now"))
    rows = (
        (f"{member.name} (than {member.against})", key, _value(old), _value(new))
        for member in found.members
        for key, old, new in member.changes
    )
    return Table.of("changes", "What the recipes have otherwise", columns, rows)


def _value(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else dumps(value)


# -- a terminal ----------------------------------------------------------------------------------------------------


def history_terminal(found: Lineage) -> RenderableType:
    """What a terminal of 80 columns holds: runs have numbers, and what needs words stands below the tables."""
    number = {member.name: f"#{at}" for at, member in enumerate(found.members, 1)}
    tested = [one for one in found.pairings if one.paired is not None]
    parts: list[RenderableType] = [
        _narrow_runs(found, number).to_rich(),
        _narrow_results(found, number).to_rich(),
    ]
    if tested:
        parts += [_narrow_comparisons(found, tested, number).to_rich(), Text(f"{about(found)}.\n", style="dim")]
    words = [
        f"{number[member.name]} has otherwise than {number[member.against]}: {in_words(member.changes)}"
        for member in found.members
        if member.against and member.changes
    ]
    for one in found.pairings:
        if (said := says(one, found)) not in {*SAYS.values(), OTHER_SEED}:
            words.append(f"{number[one.run]} against {number.get(one.against, one.against)}, {one.asked}: {said}")
    wrong = [f"{member.name}: {what}" for member in found.members for what in member.problems]
    wrong += [f"{place}: {what}" for place, what in found.others.items()]
    return Group(*parts, *(Text(visible(one)) for one in words), *(Text(visible(one), style="yellow") for one in wrong))


def _narrow_runs(found: Lineage, number: Mapping[str, str]) -> Table:
    """Those of `runs_table`; of runs and evaluations that are compared by name, their names."""
    if not found.lineage:
        return Table.of("runs", "", (NUMBER, RUN), ((number[one.name], one.name) for one in found.members))
    rows = []
    for member in found.members:
        name, origin, began, trained, steps, status, _ = _run_cells(member)
        if member.origin:
            run = member.origin.run
            origin = f"{number[run]} {member.origin.stage}" if run else str(member.origin).rpartition("/")[2]
        said = f"{status} ({steps})" if steps else status
        rows.append((number[member.name], name, origin, str(began or "")[5:], trained, said))
    named = (Column("from", "From"), Column("began", "Began"), Column("long", "Trained"), Column("status", "Status"))
    return Table.of("runs", "", (NUMBER, RUN, *named), rows)


def _narrow_results(found: Lineage, number: Mapping[str, str]) -> Table:
    tasks = len({one.task for member in found.members for one in member.results}) > 1
    rows = []
    for member in found.members:
        for one in member.results:
            early = [f"(after {one.stage})"] if one.stage != _last_stage(member) else []
            asked = " ".join([*([one.task] if tasks else []), one.split, one.mode, *early])
            rows.append((number[member.name], asked, one.reward.n, one.reward, one.floor, one.ceiling))
    reward = Column("reward", "Reward [95 %]", "interval")
    return Table.of("results", "", (NUMBER, ASKED, N, reward, FLOOR, CEILING), rows)


def _last_stage(member: Member) -> str | None:
    """The stage that a run ends with; of a single evaluation, its own."""
    if member.listed is None:
        return member.results[0].stage if member.results else None
    return next(reversed(member.listed.planned), "base")


def _narrow_comparisons(found: Lineage, tested: Sequence[Pairing], number: Mapping[str, str]) -> Table:
    rows = []
    for one in tested:
        _, _, asked, before, after, difference, p, _, least, _, _ = _pairing_cells(one, found)
        start = number.get(one.against, "start")
        style = {"rise": "green", "fall": "red", "same": ""}[one.direction]
        rows.append(Row((f"{number[one.run]}-{start}", asked, before, after, difference, p, least), style))
    columns = (RUN, ASKED, BEFORE, AFTER, DIFFERENCE, P_HOLM, DETECTS)
    return Table("comparisons", "", columns, tuple(rows))


# -- a page --------------------------------------------------------------------------------------------------------


def history_page(found: Lineage, command: str) -> str:
    """The HTML file.

    Args:
        found: what is shown.
        command: that made it.
    """
    headings = {"runs": "Runs", "results": "Results", "comparisons": "Differences", "changes": "Recipes"}
    sections = [section("top", "", "history_top", count=len(found.members), command=command)]
    for table in history_tables(found):
        figures = _figures(found) if table.name == "results" else []
        sections.append(section(table.name, headings[table.name], "table", table=table, figures=figures))
    if found.others:
        sections.append(section("others", "Other folders", others=found.others))
    return page("Runs · Plumbline", sections)


def _figures(found: Lineage) -> list[Figure]:
    """A figure for each task, split and rubric: rewards under two rubrics do not stand on one axis."""
    groups: dict[tuple[str, str, str], dict[str, list[Result]]] = {}
    for member in found.members:
        for one in member.results:
            group = groups.setdefault((one.task, one.split, one.rubric), {})
            group.setdefault(member.name, []).append(one)
    several = len({rubric for *_, rubric in groups}) > 1
    return [
        _figure(f"{task} {split}", f"rubric {rubric}" if several else "", runs)
        for (task, split, rubric), runs in groups.items()
    ]


def _figure(title: str, rubric: str, runs: dict[str, list[Result]]) -> Figure:
    rows = [DotRow(_tail(name), tuple(map(_mark, results))) for name, results in list(runs.items())[:MOST]]
    every = [one for results in runs.values() for one in results]
    label = f"{title}: reward by run; " + ", ".join(
        f"{name} {numbers.fixed(one.reward.mean)} {one.mode}" for name, results in runs.items() for one in results
    )
    left = len(runs) - MOST
    marks = {one.mode: _mark(one) for one in every}
    bounds = [_reference(every, "floor"), _reference(every, "ceiling")]
    return Figure(
        title=title,
        about="mean reward [95 %]",
        keys=tuple((mark.style, mark.shape, mode) for mode, mark in marks.items()),
        more=" ".join(text for text in (rubric, f"{left} more below" if left > 0 else "") if text),
        chart=dot_chart(rows, label=label, references=[one for one in bounds if one is not None]),
    )


def _tail(name: str) -> str:
    """The end of a name says more than its beginning: seeds and versions stand there."""
    return name if len(name) <= 22 else f"…{name[-21:]}"


def _mark(one: Result) -> Mark:
    style, shape = STYLES.get(one.mode, ("c3", "diamond"))
    return Mark(one.reward, one.mode, style, shape)


def _reference(results: Sequence[Result], name: str) -> Reference | None:
    """A line where all results have one floor, or ceiling; None where they differ."""
    values = {getattr(one, name) for one in results}
    if len(values) != 1 or (value := values.pop()) is None:
        return None
    return Reference(Interval(value, value, value, results[0].reward.n), name)
