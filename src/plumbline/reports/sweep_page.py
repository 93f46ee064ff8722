"""The report of a sweep over seeds: what the seeds came to together and each by itself, and their rewards by step."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from plumbline.evaluation.statistics import Interval
from plumbline.recipe import Recipe
from plumbline.reports import numbers
from plumbline.reports.charts import NARROW, UNIT, WIDE, Layer, line_chart, smoothed
from plumbline.reports.escaping import clip, html
from plumbline.reports.page import Section, figure, folded, page, paragraph
from plumbline.reports.scales import numbers_of
from plumbline.reports.tables import Column, Row, Table
from plumbline.runs.run import Run

STYLES = ("c1", "c2", "c3", "c4")
RECIPE, LONGEST, MOST = 16_000, 400, 40
"""Bytes of the recipe and of an error that are shown, and figures of a page."""
ABOUT = (
    "Each seed's difference is that of the last stage to the one before on the same examples, with its 95 % interval "
    "over examples (bootstrap). The rows of all seeds have the mean of the seeds' differences with Student's 95 % "
    "interval: of the mean that more seeds would have, where seeds scatter normally. Of few seeds it is wide."
)


def sweep_page(
    recipe: Recipe,
    summed: Sequence[Mapping[str, Any]],
    runs: Sequence[tuple[str, int, Run]],
    failed: Sequence[Mapping[str, Any]],
    command: str,
) -> str:
    """The whole page.

    Args:
        recipe: the first variant's.
        summed: what `sweep.over_seeds` gave.
        runs: label, seed and records of each run that ended well.
        failed: the rows of those that did not, with `error`.
        command: that made the sweep.
    """
    problems = "".join(paragraph(f"{row['variant']} failed: {clip(row['error'], LONGEST)[0]}") for row in failed)
    return page(
        f"{recipe.name} over seeds · Plumbline",
        [
            Section("top", "", f"<h1>{html(recipe.name)} over seeds</h1>{paragraph(recipe.description)}{problems}"),
            Section("results", "Over the seeds", paragraph(ABOUT) + seeds_table(summed).to_html(limit=400)),
            Section("curves", "Reward by step", _figures(runs)),
            Section("record", "Recipe and command", _record(recipe, command)),
        ],
    )


def seeds_table(summed: Sequence[Mapping[str, Any]]) -> Table:
    """A row for all seeds of each variant, task and mode, and below it one for each seed."""
    columns = (
        Column("variant", "Variant"),
        Column("asked", "Asked"),
        Column("seed", "Seed"),
        Column("before", "Before", "number"),
        Column("after", "After", "number"),
        Column("difference", "Difference", "change"),
        Column("n", "n", "count"),
        Column("p_value", "p", "p"),
    )
    rows = []
    for one in summed:
        n = one["n"]
        named = (one["variant"] or "as it is", one["asked"])
        low, high = (math.nan if one[end] is None else one[end] for end in ("low", "high"))
        change = Interval(one["difference"], low, high, n)
        lacking = f", {len(one['failed'])} failed" if one["failed"] else ""
        rows.append(Row((*named, f"all {n}{lacking}", one["before"], one["after"], change, n, None), "head"))
        for seed, own in one["seeds"].items():
            change = Interval(own["difference"], own["low"], own["high"], own["n"])
            rows.append(Row((*named, str(seed), own["before"], own["after"], change, own["n"], own["p_value"])))
    caption = "Reward before and after the last stage; n counts seeds in the rows of all, and examples in the others"
    return Table("seeds", caption, columns, tuple(rows))


def _figures(runs: Sequence[tuple[str, int, Run]]) -> str:
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
    shown = [one for one in drawn if one]
    left = len(shown) - MOST
    more = paragraph(f"{left} more figures are in the runs' own reports.", "note") if left > 0 else ""
    return "".join(shown[:MOST]) + more or paragraph("No step of RL was recorded.")


def _figure(name: str, what: str, key: str, members: Sequence[tuple[int, Run]]) -> str:
    layers: list[Layer] = []
    ends = []
    for at, (seed, run) in enumerate(members):
        rows = [row for row in run.rows("rl") if row.get(key) is not None]
        if rows:
            steps, values = (numbers_of(row[one] for row in rows) for one in ("step", key))
            layers += smoothed(steps, values, STYLES[at % len(STYLES)], f"seed {seed}")
            ends.append(f"seed {seed} {numbers.fixed(float(values[-1]))}")
    if not layers:
        return ""
    title = f"Reward{f', {name}' if name else ''}"
    label = f"{title} {what}; at the end {', '.join(ends)}"
    chart, narrow = (line_chart(layers, label=label, size=size, y_range=UNIT) for size in (WIDE, NARROW))
    return figure(title, html(what), chart, narrow)


def _record(recipe: Recipe, command: str) -> str:
    shown, left = clip(recipe.to_yaml(), RECIPE)
    more = f"\n… {left:,} more characters in the runs' recipe.yaml" if left else ""
    said = paragraph("The recipe of the first variant; each run's own stands in its folder, with its report.", "note")
    return f"<pre>{html(command)}</pre>{said}{folded('The whole recipe', shown + more)}"
