"""Runs beside one another, as tables, a page, and for a terminal: `plumbline runs`, `compare`, and
`sweep`."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table as Terminal
from rich.text import Text

from plumbline.errors import make_visible
from plumbline.evaluation.compared_runs import ComparedRun, Lineage, StageResult
from plumbline.evaluation.comparison import Pairing
from plumbline.evaluation.statistics import Interval
from plumbline.recipe import Recipe
from plumbline.records import group_by_key
from plumbline.reports.charts import Layer, Mark, dot_chart, numbers_of, smoothed_lines, wide_chart
from plumbline.reports.format_numbers import format_duration, format_fixed
from plumbline.reports.table_formats import Cells, Column, Row, Table
from plumbline.reports.templating import ChartFigure, render_page, render_section
from plumbline.runs.lineage import changes_text
from plumbline.runs.record import STAGES, RunRecord
from plumbline.storage import dumps

STYLES = {"greedy": ("c1", "circle"), "sampled": ("c2", "hollow")}
SAYS = {"rise": "higher", "fall": "lower", "same": "no difference shown"}
OTHER_SEED = "another seed of the same recipe"
FEW = 3
"""Changes of a recipe that a row names; the page and the JSON have all."""
MOST = 60
"""Rows of a chart."""
NUMBER = Column("at", "#")
DETECTS = Column("detectable", "Detects", "number")


# -- tables ----------------------------------------------------------------------------------------


def history_tables(found: Lineage) -> list[Table]:
    """The tables that have something to say: runs, results, comparisons, changes of the recipes."""
    runs = [runs_table(found)] if found.lineage else []
    tables = [*runs, results_table(found), comparisons_table(found), changes_table(found)]
    return [table for table in tables if table.rows]


def runs_table(found: Lineage) -> Table:
    """Each run: what it began from, when, how long, how far, how it ended, and what it changed."""
    columns = (
        *(
            "run",
            Column("from", "Began from"),
            "began",
            Column("trained", "Trained for"),
            "steps",
            "status",
        ),
        Column("changed", "Changed"),
    )
    rows = tuple(
        Row(_run_cells(member), "head" if not member.depth else "") for member in found.members
    )
    return Table.of(
        "runs", "Runs by lineage; times are UTC, and of training as recorded", columns, rows
    )


def _run_cells(member: ComparedRun) -> Cells:
    run = member.listed
    assert run is not None
    steps = []
    for stage in dict.fromkeys([*run.planned, *run.steps]):
        done, planned = run.steps.get(stage, 0), run.planned.get(stage)
        steps.append(
            f"{stage} {done}" + (f" of {planned}" if planned is not None and done < planned else "")
        )
    status = f"{run.status}: {run.why}" if run.why else run.status
    control = ", negative control" if run.control else ""
    return (
        "↳\u00a0" * min(member.depth, 3) + member.name,
        str(member.origin) if member.origin else None,
        f"{run.started:%Y-%m-%d %H:%M}" if run.started else None,
        format_duration(run.seconds) if run.seconds else None,
        ", ".join(steps) or None,
        "; ".join([status + control, *member.problems]),
        f"{changes_text(member.changes, FEW)} (than {member.against})" if member.against else None,
    )


def results_table(found: Lineage) -> Table:
    """What each run's last stage came to, by task, split and mode, between floor and ceiling."""
    rows = []
    for member in found.members:
        for one in member.results:
            asked = (member.name, one.task, one.split, one.mode, one.stage)
            rows.append((*asked, one.reward.n, one.reward, one.floor, one.ceiling, one.rubric))
    columns = ("run", "task", "split", "mode", "stage", "n", "reward", "floor", "ceiling", "rubric")
    return Table.of("results", "Mean reward after the last stage [each 95 %]", columns, rows)


def comparisons_table(found: Lineage) -> Table:
    """Each run against the one before it, on the same examples; what is not comparable says why."""
    named = ("run", "against", "asked")
    tested = ("before", "after", "difference", "p_holm", "says", DETECTS, "n", "p")
    rows = []
    for one in found.pairings:
        says = describe_comparison(one, found)
        cells: Cells = (*[None] * 4, says, *[None] * 3)
        if (paired := one.paired) is not None:
            cells = (paired.before, paired.after, paired.difference, paired.p, says)
            cells += (paired.detectable, paired.difference.n, paired.p_value)
        rows.append((one.run, one.against, one.asked, *cells))
    caption = f"Differences on the same examples. {explain_p_values(found)}"
    return Table.of("comparisons", caption, (*named, *tested), rows)


def explain_p_values(found: Lineage) -> str:
    """What the p-values of the table are."""
    several = f" over the {found.tests} comparisons of this table" if found.tests > 1 else ""
    return (
        f"Intervals: each 95 %. p: two-sided sign-flip test; p (Holm): adjusted{several}. Detects: "
        "the least difference that this test finds four times in five. Each row compares two "
        "models, not what other seeds would give"
    )


def describe_comparison(one: Pairing, found: Lineage) -> str:
    """What a comparison comes to, in words."""
    if one.paired is None:
        return f"not comparable: {one.error.cause if one.error else ''}"
    member = next(member for member in found.members if member.name == one.run)
    said, paired = SAYS[one.direction], one.paired
    if one.direction == "same" and paired.detectable is None and paired.difference.excludes_zero:
        units = paired.scatter.units
        said = f"the interval leaves out 0, but {units} independent examples are too few for p"
    if one.against == member.against and [key for key, *_ in member.changes] == ["seed"]:
        return OTHER_SEED + ("" if one.direction == "same" else f": {said}, so seeds differ")
    return f"{said} ({one.remark})" if one.remark else said


def changes_table(found: Lineage) -> Table:
    """Every key of the recipes that differs from the run that a run is compared with."""
    columns = ("run", "key", Column("before", "Before"), Column("after", "Now"))
    rows = (
        (f"{member.name} (than {member.against})", key, _value(old), _value(new))
        for member in found.members
        for key, old, new in member.changes
    )
    return Table.of("changes", "Where the recipes differ", columns, rows)


def _value(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else dumps(value)


# -- a terminal ------------------------------------------------------------------------------------


def history_terminal(found: Lineage) -> RenderableType:
    """What a terminal of 80 columns holds: runs have numbers, and what needs words stands below the
    tables."""
    number = {member.name: f"#{at}" for at, member in enumerate(found.members, 1)}
    tasks = len({one.task for member in found.members for one in member.results}) > 1
    runs: list[Cells] = []
    results: list[Cells] = []
    words, wrong = [], []
    for member in found.members:
        at, run = number[member.name], member.listed
        runs.append((at, *_narrow_cells(member, number)) if found.lineage else (at, member.name))
        for one in member.results:
            last = one.stage if run is None else next(reversed(run.planned), "base")
            early = [f"(after {one.stage})"] if one.stage != last else []
            asked = " ".join([*([one.task] if tasks else []), one.split, one.mode, *early])
            results.append((at, asked, one.reward.n, one.reward, one.floor, one.ceiling))
        if member.against and member.changes:
            words.append(
                f"{at} differs from {number[member.against]}: {changes_text(member.changes)}"
            )
        wrong += [f"{member.name}: {what}" for what in member.problems]
    differences = []
    for pairing in found.pairings:
        if (paired := pairing.paired) is not None:
            name = f"{number[pairing.run]}-{number.get(pairing.against, 'start')}"
            tested = (paired.before, paired.after, paired.difference, paired.p, paired.detectable)
            style = {"rise": "green", "fall": "red", "same": ""}[pairing.direction]
            differences.append(Row((name, pairing.asked, *tested), style))
        if (said := describe_comparison(pairing, found)) not in {*SAYS.values(), OTHER_SEED}:
            against = number.get(pairing.against, pairing.against)
            words.append(f"{number[pairing.run]} against {against}, {pairing.asked}: {said}")
    wrong += [f"{place}: {what}" for place, what in found.others.items()]
    shown = (NUMBER, "run", *(("from", "began", "trained", "status") if found.lineage else ()))
    reward = Column("reward", "Reward [each 95 %]", "interval")
    parts: list[RenderableType] = [
        Table.of("runs", "", shown, runs).to_rich(),
        Table.of(
            "results", "", (NUMBER, "asked", "n", reward, "floor", "ceiling"), results
        ).to_rich(),
    ]
    if differences:
        columns = ("run", "asked", "before", "after", "difference", "p_holm", DETECTS)
        parts += [
            Table.of("comparisons", "", columns, differences).to_rich(),
            Text(f"{explain_p_values(found)}.\n", style="dim"),
        ]
    return Group(
        *parts,
        *(Text(make_visible(one)) for one in words),
        *(Text(make_visible(one), style="yellow") for one in wrong),
    )


def _narrow_cells(member: ComparedRun, number: Mapping[str, str]) -> Cells:
    """Those of `runs_table` that a terminal holds."""
    name, origin, began, trained, steps, status, _ = _run_cells(member)
    if member.origin:
        run = member.origin.run
        folder, _, last = ("", "", *str(member.origin).split("/"))[-3:]
        elsewhere = f"{folder} {last}" if last in STAGES else last
        origin = f"{number[run]} {member.origin.stage}" if run else elsewhere
    return name, origin, str(began or "")[5:], trained, f"{status} ({steps})" if steps else status


# -- a page ----------------------------------------------------------------------------------------


def history_page(found: Lineage, command: str) -> str:
    """The HTML file.

    Args:
        found: what is shown.
        command: that made it.
    """
    headings = {
        "runs": "Runs",
        "results": "Results",
        "comparisons": "Differences",
        "changes": "Recipes",
    }
    sections = [render_section("top", "", "history_top", count=len(found.members), command=command)]
    for table in history_tables(found):
        figures = _figures(found) if table.name == "results" else []
        sections.append(
            render_section(table.name, headings[table.name], "table", table=table, figures=figures)
        )
    if found.others:
        sections.append(render_section("others", "Other folders", others=found.others))
    return render_page("Runs · Plumbline", sections)


def _figures(found: Lineage) -> list[ChartFigure]:
    """A figure for each task, split and rubric: rewards under two rubrics do not stand on one
    axis."""
    groups: dict[tuple[str, str, str], dict[str, list[StageResult]]] = {}
    for member in found.members:
        for one in member.results:
            group = groups.setdefault((one.task, one.split, one.rubric), {})
            group.setdefault(member.name, []).append(one)
    several = len({rubric for *_, rubric in groups}) > 1
    return [
        _figure(f"{task} {split}", f"rubric {rubric}" if several else "", runs)
        for (task, split, rubric), runs in groups.items()
    ]


def _figure(title: str, rubric: str, runs: dict[str, list[StageResult]]) -> ChartFigure:
    rows = [(name, list(map(_mark, results)), "") for name, results in list(runs.items())[:MOST]]
    every = [one for results in runs.values() for one in results]
    left = len(runs) - MOST
    marks = {one.mode: _mark(one) for one in every}
    bounds = []
    for name in ("floor", "ceiling"):  # lines where all results have one floor, or ceiling
        values = {getattr(one, name) for one in every}
        if len(values) == 1 and (value := values.pop()) is not None:
            bounds.append((name, Interval(value, value, value, every[0].reward.n)))
    return ChartFigure(
        title=title,
        about="mean reward.",
        keys=tuple((mark.style, mark.shape, mode) for mode, mark in marks.items()),
        more=" ".join(text for text in (rubric, f"{left} more below" if left > 0 else "") if text),
        chart=dot_chart(rows, label=f"{title}: reward by run", references=bounds),
    )


def _mark(one: StageResult) -> Mark:
    style, shape = STYLES.get(one.mode, ("c3", "diamond"))
    return Mark(one.reward, one.mode, style, shape)


# -- a sweep ---------------------------------------------------------------------------------------

SEEDS = ("c1", "c2", "c3", "c4")
"""Styles of the seeds."""
Outcomes = Sequence[Mapping[str, Any]]


def sweep_table(rows: Outcomes) -> Terminal:
    """A sweep's outcomes, one row for each run and mode; on 80 columns only the variants' names are
    broken."""
    made: list[Row] = []
    for row in rows:
        if "error" in row:
            made.append(
                Row((row["variant"], f"failed: {row['error'].splitlines()[0]}", *[""] * 6), "red")
            )
        for mode, values in row.items():
            if isinstance(values, dict):
                change = Interval(*(values[key] for key in ("difference", "low", "high", "n")))
                cells = (values["before"], values["after"], change, values["p_value"], values["n"])
                made.append(Row((row["variant"], mode, *cells, row["kl"])))
    kl = Column("kl", "last KL", "number", 4)
    split = next(row["split"] for row in rows if "split" in row)
    caption = f"last stage against the one before, on {split} [each 95 %]"
    columns = ("variant", "asked", "before", "after", "difference", "p", "n", kl)
    return Table.of("sweep", caption, columns, made).to_rich(only_first=True)


def seeds_terminal(summed: Outcomes) -> Terminal:
    """`seeds_table` without p, which 80 columns hold."""
    table = seeds_table(summed)
    rows = (Row(row.cells[:-1], row.style) for row in table.rows)
    return Table.of(table.name, table.caption, table.columns[:-1], rows).to_rich(only_first=True)


def seeds_table(summed: Outcomes) -> Table:
    """A row for all seeds of each variant, task and mode, and below it one for each seed."""
    rows = []
    for one in summed:
        lacking = f", {len(one['failed'])} failed" if one["failed"] else ""
        for seed, own in {f"all {one['n']}{lacking}": one, **one["seeds"]}.items():
            low, high = (math.nan if own[end] is None else own[end] for end in ("low", "high"))
            change = Interval(own["difference"], low, high, own["n"])
            named: Cells = (one["variant"] or "as it is", one["asked"], str(seed))
            cells = (*named, own["before"], own["after"], change, own["n"], own.get("p_value"))
            rows.append(Row(cells, "head" if own is one else ""))
    asked = ("variant", "asked", "seed")
    columns = (*asked, "before", "after", "difference", "n", Column("p_value", "p", "p"))
    caption = (
        "Reward before and after the last stage [each 95 %]; n counts seeds in rows of all, "
        "examples in others"
    )
    return Table.of("seeds", caption, columns, rows)


def sweep_page(
    recipe: Recipe,
    summed: Outcomes,
    runs: Sequence[tuple[str, int, RunRecord]],
    failed: Outcomes,
    command: str,
) -> str:
    """The whole page.

    Args:
        recipe: the first variant's.
        summed: what `sweep.summarise_seeds` gave.
        runs: label, seed and records of each run that ended well.
        failed: the rows of those that did not, with `error`.
        command: that made the sweep.
    """
    return render_page(
        f"{recipe.name} over seeds · Plumbline",
        [
            render_section("top", "", "sweep_top", recipe=recipe, failed=failed),
            render_section("results", "Over the seeds", "sweep_results", table=seeds_table(summed)),
            render_section("curves", "Reward by step", "sweep_curves", figures=_seed_figures(runs)),
            render_section(
                "record", "Recipe and command", "sweep_record", command=command, recipe=recipe
            ),
        ],
    )


def _seed_figures(runs: Sequence[tuple[str, int, RunRecord]]) -> list[ChartFigure]:
    """For each variant and task a chart of the reward in training, a line a seed; of evaluations
    alike."""
    groups = group_by_key(
        (label.removesuffix(f"seed={seed}").strip(), (seed, run)) for label, seed, run in runs
    )
    kinds = (
        ("train/reward{}", "in training; dots: single steps, lines: moving means"),
        ("eval{}/mean_reward", "greedily, on held-out examples"),
    )
    figures = []
    for label, members in groups.items():
        for task, (key, what) in product(members[0][1].recipe.each_task, kinds):
            key = key.format(f"/{task}" if task else "")
            layers: list[Layer] = []
            ends = []
            for at, (seed, run) in enumerate(members):
                if rows := [row for row in run.rows("rl") if row.get(key) is not None]:
                    steps, values = (numbers_of(row[one] for row in rows) for one in ("step", key))
                    layers += smoothed_lines(steps, values, SEEDS[at % len(SEEDS)], f"seed {seed}")
                    ends.append(f"seed {seed} {format_fixed(float(values[-1]))}")
            if layers:
                title = ", ".join(filter(None, ("Reward", label, task)))
                chart, narrow = wide_chart(layers, f"{title} {what}; at the end {', '.join(ends)}")
                figures.append(ChartFigure(title=title, about=what, chart=chart, narrow=narrow))
    return figures
