"""Where an evaluation on the command line goes: files that are asked for, and what is printed."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType

from plumbline import claims
from plumbline.errors import RecipeError
from plumbline.evaluation.asked import Evaluated
from plumbline.evaluation.summary import detail
from plumbline.reports.evaluation_page import evaluation_page
from plumbline.reports.evaluation_tables import check_format, evaluation_tables, render, write_tables
from plumbline.reports.page import is_page
from plumbline.reports.terminal import detail_tables
from plumbline.runs.evaluations import is_evaluation, write_evaluation
from plumbline.storage import dumps, write_text

TABLES = "tables"
"""What the mark in the folder says (see `plumbline.claims`)."""


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


def write_outputs(outputs: Outputs, evaluated: Evaluated) -> str | RenderableType:
    """Write the files, and give what is printed: text as it is, or tables for a terminal."""
    summary = detail(evaluated.evaluation, evaluated.references)
    tables = evaluation_tables(summary)
    if outputs.evaluation is not None:
        write_evaluation(outputs.evaluation, evaluated.evaluation)
    if outputs.tables is not None:
        claims.claim(outputs.tables, TABLES)
        write_tables(outputs.tables, tables)
    if outputs.report is not None:
        write_text(outputs.report, evaluation_page(summary, evaluated.replays))
    if outputs.as_json:
        return dumps(summary) + "\n"
    return detail_tables(summary) if outputs.table is None else render(tables, outputs.table)
