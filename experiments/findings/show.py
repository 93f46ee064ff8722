"""A finding's rows as a Markdown table and as a figure, drawn by the code of the reports."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from plumbline.evaluation.statistics import Interval, t_interval
from plumbline.reports.charts import Mark, Points, Size, dot_chart, line_chart
from plumbline.reports.templating import render_template

STYLES, SHAPES = ("c1", "c2", "c3", "c4"), ("circle", "diamond", "hollow")
CURVES = Size(560, 260, 120)
KEYS = ("\u25cf", "\u25c6", "\u25cb")


def interval(values: Any) -> Interval:
    """Of one value a seed: their mean with Student's interval; of a mapping: the interval that was
    computed."""
    if isinstance(values, Mapping):
        return Interval(**values)
    return t_interval(values)


def table(found: Mapping[str, Any]) -> str:
    """A row an arm, a pair of columns a measure: the mean over seeds, and the paired difference to
    the reference."""
    rows, reference = found["rows"], found.get("reference")
    measures = list(dict.fromkeys(name for row in rows.values() for name in row))
    head = [f"{name} | change" if reference else name for name in measures]
    lines = [
        f"| arm | {' | '.join(head)} |",
        "|---" * (1 + len(measures) * (2 if reference else 1)) + "|",
    ]
    for arm, row in rows.items():
        cells = []
        for name in measures:
            values = row.get(name)
            cells.append("-" if values is None else said(interval(values)))
            if reference:
                cells.append(
                    ""
                    if arm == reference or values is None
                    else f"{change(values, rows[reference][name]):+.3f}"
                )
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    return "\n".join(lines)


def said(one: Interval) -> str:
    return f"{one:.3f}" if abs(one.mean) >= 0.01 or one.mean == 0 else f"{one:.1e}"


def change(values: list[float], reference: list[float]) -> Interval:
    """Seed by seed, because arms of one seed have the same start and the same prompts."""
    return t_interval(np.array(values) - np.array(reference))


def figure(found: Mapping[str, Any]) -> str:
    """A whole SVG file."""
    label = f"{found['title']}: {found['said']}"
    if "curves" in found:
        layers = [
            Points(
                one["steps"],
                [t_interval(seeds) for seeds in zip(*one["values"], strict=True)],
                STYLES[at % 4],
                arm,
            )
            for at, (arm, one) in enumerate(found["curves"].items())
        ]
        return standing(line_chart(layers, label=label, size=CURVES))
    return standing(dots(found, label))


def dots(found: Mapping[str, Any], label: str) -> str:
    """Rows of marks: where there is a reference the changes against it, else the values
    themselves."""
    rows, shown, reference = found["rows"], found["shown"][:3], found.get("reference")
    marks = {}
    for arm, row in rows.items():
        if arm != reference:
            taken = {
                name: change(row[name], rows[reference][name]) if reference else interval(row[name])
                for name in shown
                if name in row
            }
            marks[arm] = tuple(
                Mark(one, name, STYLES[at], SHAPES[at])
                for at, (name, one) in enumerate(taken.items())
            )
    ends = [
        end
        for row in marks.values()
        for one in row
        for end in (one.interval.low, one.interval.high)
    ]
    low, high = min(0.0, *ends), max(0.0, *ends)
    air = 0.04 * (high - low) or 1.0
    key = "   ".join(f"{mark} {name}" for name, mark in zip(shown, KEYS, strict=False))
    key = key.replace("groups without signal", "no signal").replace(" before GRPO", " before")
    if reference:
        return dot_chart(
            [(arm, row, "") for arm, row in marks.items()],
            label=label,
            references=[(f"{reference}: change", Interval(0.0, 0.0, 0.0, 1))],
            x_range=(low - air, high + air),
            x_title=key,
        )
    return dot_chart(
        [(arm, row, "") for arm, row in marks.items()],
        label=label,
        x_range=(0.0, high + air),
        x_title=key,
    )


def standing(drawing: str) -> str:
    """A drawing as a file of its own: with the style sheet of the reports, which gives it its
    colours."""
    width, height = map(int, drawing.partition('viewBox="0 0 ')[2].partition('"')[0].split())
    wider = 30  # on both sides, for what is written across an edge
    box = f'viewBox="{-wider} 0 {width + 2 * wider} {height}"'
    css = render_template("style.css")
    colours = css.partition("*{")[0] + "".join(re.findall(r"svg [^{}]*{[^{}]*}", css))
    style = f"<style>{colours}text{{font-family:sans-serif}}</style>"
    back = (
        f'<rect x="{-wider}" width="{width + 2 * wider}" height="{height}" '
        'style="fill:var(--page)"/>'
    )
    rest = drawing.removeprefix("<svg ").partition('" ')[2]
    attributes, _, content = rest.partition(">")
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} {attributes}>{style}{back}{content}\n'
