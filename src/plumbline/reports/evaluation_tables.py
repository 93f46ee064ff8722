"""One evaluation as tables to publish: its figures beside the controls and the oracle, by stratum, and by kind.

What they are made from is `evaluation.summary.detail`, so that the tables and the JSON cannot differ.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from plumbline.errors import RecipeError
from plumbline.evaluation.evaluate import ORACLE
from plumbline.evaluation.figures import ACCURACY, RIGHT
from plumbline.evaluation.statistics import Interval
from plumbline.reports.tables import Cell, Column, Row, Table
from plumbline.storage import write_text

Format = Literal["md", "csv", "latex"]
FORMATS: tuple[Format, ...] = ("md", "csv", "latex")
ENDINGS: Mapping[Format, str] = {"md": "md", "csv": "csv", "latex": "tex"}
Values = Mapping[str, Any]


def evaluation_tables(summary: Values) -> list[Table]:
    """The tables of an evaluation: always its figures, and a breakdown for each thing that it is broken down by.

    Args:
        summary: what `evaluation.summary.detail` gives.
    """
    return [_figures(summary), *(_breakdown(summary, what) for what in summary["by"])]


def check_format(form: str) -> None:
    """Refuse a format that there is not.

    Raises:
        RecipeError: it is none of `FORMATS`.
    """
    if form not in FORMATS:
        raise RecipeError(f"there is no table format {form!r}", f"there are {', '.join(FORMATS)}")


def render(tables: Sequence[Table], form: str) -> str:
    """The tables as one text.

    Raises:
        RecipeError: there is no such format.
    """
    check_format(form)
    if form == "md":
        return "\n".join(table.to_markdown() for table in tables)
    return "\n".join(table.to_csv() if form == "csv" else table.to_latex() for table in tables)


def write_tables(folder: Path, tables: Sequence[Table]) -> None:
    """Write every table as `<name>.md`, `.csv` and `.tex`."""
    for table in tables:
        for form in FORMATS:
            write_text(folder / f"{table.name}.{ENDINGS[form]}", render([table], form))


def _where(summary: Values) -> str:
    note = f". {summary['note']}" if summary["note"] else ""
    return f"{summary['task']}, {summary['split']}, rubric {summary['rubric']} [95 % interval]{note}"


def _figures(summary: Values) -> Table:
    """The evaluation, then the oracle and the controls from the best to the worst, on the same examples; each once."""
    titles, limits = summary["titles"], summary["limits"]
    columns = [
        Column("source", "Answers from"),
        Column("n", "n", "count"),
        *(Column(key, title, "interval") for key, title in titles.items()),
    ]
    if limits:
        columns += [Column("limit", "Limit", "number", 2), Column("holds", "Holds")]
    columns.append(Column("failures", "Failures", "count"))
    source = summary["source"]
    rows = [Row(_cells(source, summary["figures"], summary, limits.get(source), summary["failures"]))]
    references = {name: figures for name, figures in summary["references"].items() if name != source}
    order = sorted(references, key=lambda name: (name != ORACLE, -references[name]["mean_reward"]["mean"], name))
    for name in order:
        shown = "Oracle" if name == ORACLE else f"Control: {name}"
        rows.append(Row(_cells(shown, references[name], summary, limits.get(name), None), "reference"))
    return Table("figures", f"Figures, {_where(summary)}", tuple(columns), tuple(rows))


def _cells(
    source: str, figures: Values, summary: Values, limit: Values | None, failures: int | None
) -> tuple[Cell, ...]:
    cells: list[Cell] = [source, figures["mean_reward"]["n"], *(_interval(figures[key]) for key in summary["titles"])]
    if summary["limits"]:
        cells += [limit["limit"], "yes" if limit["holds"] else "no"] if limit else [None, None]
    return (*cells, failures)


def _breakdown(summary: Values, what: str) -> Table:
    values: Mapping[str, Values] = summary["by"][what]
    keys = list(next(iter(values.values())))
    titles = {ACCURACY: "Accuracy", RIGHT: "All right", **summary["titles"]}
    columns = (
        Column(what, what.capitalize()),
        Column("n", "n", "count"),
        *(Column(key, titles[key], "interval") for key in keys),
    )
    rows = tuple(
        Row((name, found[keys[0]]["n"], *(_interval(found[key]) for key in keys))) for name, found in values.items()
    )
    return Table(f"by-{what}", f"By {what}: {summary['source']}, {_where(summary)}", columns, rows)


def _interval(values: Values) -> Interval | None:
    return None if values["mean"] is None else Interval(**values)
