"""What a sweep came to: a table for the terminal, and over seeds a page with their rewards by step."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.table import Table as Terminal

from plumbline.evaluation.statistics import Interval
from plumbline.recipe import Recipe
from plumbline.reports import numbers
from plumbline.reports.charts import Layer, numbers_of, smoothed, wide_chart
from plumbline.reports.escaping import clip
from plumbline.reports.page import Figure, page, section
from plumbline.reports.tables import AFTER, BEFORE, DIFFERENCE, Cell, Column, N, Row, Table
from plumbline.runs.run import Run

STYLES = ("c1", "c2", "c3", "c4")
RECIPE = 16_000
"""Bytes of the recipe that are shown."""
Outcomes = Sequence[Mapping[str, Any]]


def sweep_table(rows: Outcomes) -> Terminal:
    """A sweep's outcomes, one row for each run and mode; on 80 columns only the variants' names are broken."""
    made: list[Row] = []
    for row in rows:
        if "error" in row:
            made.append(Row((row["variant"], f"failed: {row['error'].splitlines()[0]}", *[""] * 6), "red"))
        for mode, values in row.items():
            if isinstance(values, dict):
                change = f"{Interval(values['difference'], values['low'], values['high'], values['n']):+.3f}"
                cells = (row["variant"], mode, values["before"], values["after"], change, values["p_value"])
                made.append(Row((*cells, values["n"], row["kl"])))
    columns = (
        Column("variant", "variant"),
        Column("asked", "asked"),
        Column("before", "before", "number"),
        Column("after", "after", "number"),
        Column("difference", "difference [95 %]", "change"),
        Column("p", "p", "number", 4),
        Column("n", "n", "count"),
        Column("kl", "last KL", "number", 4),
    )
    split = next(row["split"] for row in rows if "split" in row)
    return Table("sweep", f"last stage against the one before, on {split}", columns, tuple(made)).to_rich()


def seeds_terminal(summed: Outcomes) -> Terminal:
    """What seeds came to together (n counts seeds) and each by itself (n counts examples)."""
    table = seeds_table(summed)
    rows = []
    for row in table.rows:
        *cells, change, n, _ = row.cells
        assert isinstance(change, Interval)
        said = f"{change:+.3f}" if numbers.known(change.low) else f"{change.mean:+.3f}"
        rows.append(Row((*cells, said, n), row.style))
    title = "over seeds: the mean of their differences, with Student's interval; below it each seed's own"
    return replace(table, caption=title, columns=table.columns[:-1], rows=tuple(rows)).to_rich()


def seeds_table(summed: Outcomes) -> Table:
    """A row for all seeds of each variant, task and mode, and below it one for each seed."""
    rows = []
    for one in summed:
        lacking = f", {len(one['failed'])} failed" if one["failed"] else ""
        for seed, own in {f"all {one['n']}{lacking}": one, **one["seeds"]}.items():
            low, high = (math.nan if own[end] is None else own[end] for end in ("low", "high"))
            change = Interval(own["difference"], low, high, own["n"])
            named: tuple[Cell, ...] = (one["variant"] or "as it is", one["asked"], str(seed))
            cells = (*named, own["before"], own["after"], change, own["n"], own.get("p_value"))
            rows.append(Row(cells, "head" if own is one else ""))
    asked = (Column("variant", "Variant"), Column("asked", "Asked"), Column("seed", "Seed"))
    columns = (*asked, BEFORE, AFTER, DIFFERENCE, N, Column("p_value", "p", "p"))
    caption = "Reward before and after the last stage; n counts seeds in the rows of all, and examples in the others"
    return Table("seeds", caption, columns, tuple(rows))


def sweep_page(
    recipe: Recipe, summed: Outcomes, runs: Sequence[tuple[str, int, Run]], failed: Outcomes, command: str
) -> str:
    """The whole page.

    Args:
        recipe: the first variant's.
        summed: what `sweep.over_seeds` gave.
        runs: label, seed and records of each run that ended well.
        failed: the rows of those that did not, with `error`.
        command: that made the sweep.
    """
    shown, left = clip(recipe.to_yaml(), RECIPE)
    more = f"\n… {left:,} more characters in the runs' recipe.yaml" if left else ""
    return page(
        f"{recipe.name} over seeds · Plumbline",
        [
            section("top", "", "sweep_top", recipe=recipe, failed=failed),
            section("results", "Over the seeds", "sweep_results", table=seeds_table(summed)),
            section("curves", "Reward by step", "sweep_curves", figures=_figures(runs)),
            section("record", "Recipe and command", "sweep_record", command=command, recipe=shown + more),
        ],
    )


def _figures(runs: Sequence[tuple[str, int, Run]]) -> list[Figure]:
    """For each variant and task a chart of the reward in training, a line a seed; of evaluations alike."""
    groups: dict[str, list[tuple[int, Run]]] = {}
    for label, seed, run in runs:
        groups.setdefault(label.removesuffix(f"seed={seed}").strip(), []).append((seed, run))
    drawn = []
    for label, members in groups.items():
        for task in members[0][1].recipe.each_task:
            inside = f"/{task}" if task else ""
            for key, what in (
                (f"train/reward{inside}", "in training; dots: single steps, lines: moving means"),
                (f"eval{inside}/mean_reward", "greedily, on held-out examples"),
            ):
                name = ", ".join(part for part in (label, task) if part)
                drawn.append(_figure(name, what, key, members))
    return [figure for figure in drawn if figure is not None]


def _figure(name: str, what: str, key: str, members: Sequence[tuple[int, Run]]) -> Figure | None:
    layers: list[Layer] = []
    ends = []
    for at, (seed, run) in enumerate(members):
        rows = [row for row in run.rows("rl") if row.get(key) is not None]
        if rows:
            steps, values = (numbers_of(row[one] for row in rows) for one in ("step", key))
            layers += smoothed(steps, values, STYLES[at % len(STYLES)], f"seed {seed}")
            ends.append(f"seed {seed} {numbers.fixed(float(values[-1]))}")
    if not layers:
        return None
    title = f"Reward{f', {name}' if name else ''}"
    label = f"{title} {what}; at the end {', '.join(ends)}"
    chart, narrow = wide_chart(layers, label)
    return Figure(title=title, about=what, chart=chart, narrow=narrow)
