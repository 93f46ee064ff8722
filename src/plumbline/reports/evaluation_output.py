"""One evaluation to keep and to publish: its tables, a page of its own, and where a command writes them.

The figures beside the controls and the oracle, by stratum, and by kind. What they are made from is
`evaluation.summary.detail`, so that the tables and the JSON cannot differ.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import RenderableType

from plumbline.errors import RecipeError
from plumbline.evaluation.command import EvaluationResult
from plumbline.evaluation.evaluate import ORACLE
from plumbline.evaluation.figures import ACCURACY, RIGHT
from plumbline.evaluation.replays import RULE
from plumbline.evaluation.summary import detail
from plumbline.reports.page import Section, is_page, page
from plumbline.reports.sections import replayed
from plumbline.reports.tables import Cell, Column, N, Row, Table, recorded
from plumbline.reports.terminal import detail_tables, tasks_tables
from plumbline.runs import claims
from plumbline.runs.evaluations import is_evaluation, write_evaluation
from plumbline.runs.replays import Replay
from plumbline.storage import dumps, write_text

Format = Literal["md", "csv", "latex"]
FORMATS: tuple[Format, ...] = ("md", "csv", "latex")
ENDINGS: Mapping[Format, str] = {"md": "md", "csv": "csv", "latex": "tex"}
Values = Mapping[str, Any]
TABLES = "tables"
"""What the mark in a folder of tables says (see `plumbline.runs.claims`)."""


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
        N,
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
    cells: list[Cell] = [source, figures["mean_reward"]["n"], *(recorded(figures[key]) for key in summary["titles"])]
    if summary["limits"]:
        cells += [limit["limit"], "yes" if limit["holds"] else "no"] if limit else [None, None]
    return (*cells, failures)


def _breakdown(summary: Values, what: str) -> Table:
    values: Mapping[str, Values] = summary["by"][what]
    keys = list(next(iter(values.values())))
    titles = {ACCURACY: "Accuracy", RIGHT: "All right", **summary["titles"]}
    floors: Mapping[str, float] = summary["floors"] if values.keys() <= summary["floors"].keys() else {}
    columns = (
        Column(what, what.capitalize()),
        N,
        *(Column(key, titles[key], "interval") for key in keys),
        *((Column("floor", "Best control", "number", 3),) if floors else ()),
    )
    rows = tuple(
        Row((name, found[keys[0]]["n"], *(recorded(found[key]) for key in keys), *([floors[name]] if floors else [])))
        for name, found in values.items()
    )
    return Table(f"by-{what}", f"By {what}: {summary['source']}, {_where(summary)}", columns, rows)


def evaluation_page(summary: Values, replays: Sequence[Replay] = ()) -> str:
    """The HTML file.

    Args:
        summary: what `evaluation.summary.detail` gives.
        replays: failed episodes (`evaluation.replays`).
    """
    tables = evaluation_tables(summary)
    title = f"{summary['source']} on {summary['task']} {summary['split']}"
    sections = [Section("figures", title, tables[0].to_html())]
    sections += [
        Section(table.name, table.name.replace("by-", "By "), table.to_html(limit=200)) for table in tables[1:]
    ]
    if replays:
        sections.append(replayed({RULE: replays}))
    return page(f"{title} · Plumbline", sections)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What is wanted of an evaluation; refused before anything is evaluated if it cannot be had."""

    evaluation: Path | None = None
    """A JSON file with every answer."""
    table: str | None = None
    """Print the tables in this format (md, csv, latex) instead of a summary."""
    tables: Path | None = None
    """A folder for the tables in all formats."""
    report: Path | None = None
    """An HTML file, with the replays."""
    replays: int = 0
    as_json: bool = False
    """Print one JSON object."""

    def __post_init__(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            RecipeError: two things to print, a format that there is not, or replays that would be shown nowhere.
            StorageError: a place holds what is not ours.
        """
        if self.table is not None:
            check_format(self.table)
            if self.as_json:
                raise RecipeError("--json and --table both decide what is printed", "give one, or --tables FOLDER")
        if self.replays and self.report is None:
            raise RecipeError("replays are shown in a page, and none is asked for", "add --report FILE.html")
        if self.evaluation is not None:
            claims.check_file(self.evaluation, "evaluation", is_evaluation)
        if self.tables is not None:
            claims.check(self.tables, TABLES)
        if self.report is not None:
            claims.check_file(self.report, "page", is_page)

    def check(self, tasks: Collection[str]) -> None:
        """Refuse files of several tasks in one: each evaluation is one task's.

        Raises:
            RecipeError: a file is asked for, and several tasks are evaluated.
        """
        if len(tasks) > 1 and (self.evaluation or self.tables or self.report):
            raise RecipeError(
                f"--out, --tables and --report are of one task, and {', '.join(tasks)} would be evaluated",
                "name one: --set task.options.job=NAME, or of a model that was trained on several --task NAME",
            )


def write_outputs(outputs: Outputs, evaluated: Mapping[str, EvaluationResult]) -> str | RenderableType:
    """Write the files, and give what is printed: text as it is, or tables for a terminal.

    Args:
        outputs: what is asked for; files of one task only (see `Outputs.check`).
        evaluated: by task; a single one has the name "".
    """
    outputs.check(evaluated)
    summaries = {name: detail(one.evaluation, one.references) for name, one in evaluated.items()}
    tables = {name: evaluation_tables(summary) for name, summary in summaries.items()}
    for name, one in evaluated.items():
        if outputs.evaluation is not None:
            write_evaluation(outputs.evaluation, one.evaluation)
        if outputs.tables is not None:
            claims.claim(outputs.tables, TABLES)
            write_tables(outputs.tables, tables[name])
        if outputs.report is not None:
            write_text(outputs.report, evaluation_page(summaries[name], one.replays))
    single = set(evaluated) == {""}
    if outputs.as_json:
        return dumps(summaries[""] if single else {"tasks": summaries}) + "\n"
    if outputs.table is not None:
        return "\n".join(render(of_one, outputs.table) for of_one in tables.values())
    return detail_tables(summaries[""]) if single else tasks_tables(summaries)
