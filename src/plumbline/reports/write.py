"""A run directory in, `report.html`, `report.md` and `tables/` out: functions of the records, always the same bytes."""

from collections.abc import Mapping
from pathlib import Path

from plumbline.records import Example
from plumbline.reports.build_tables import all_tables
from plumbline.reports.markdown import markdown_report
from plumbline.reports.page import page
from plumbline.reports.sections.changes import breakdown, parts
from plumbline.reports.sections.curves import curves
from plumbline.reports.sections.record import cost, record
from plumbline.reports.sections.replays import replays
from plumbline.reports.sections.results import results
from plumbline.reports.sections.samples import samples
from plumbline.reports.sections.strict import strict
from plumbline.reports.sections.top import top
from plumbline.reports.verdict import Verdict, run_verdict
from plumbline.reports.view import View
from plumbline.runs.run import Run
from plumbline.storage import write_text


def write_report(run: Run, examples: Mapping[str, Example] | None = None) -> Path:
    """Write a run's report into its directory, finished or not.

    Args:
        run: whose records are read.
        examples: held-out examples by id, for the prompts and gold answers beside the samples; without them the
            report shows the oracle's answers and no prompts.

    Returns:
        The path of the HTML file.

    Raises:
        DataError: a record cannot be read.
        StorageError: the directory cannot be written.
    """
    view = View(run, dict(examples or {}))
    said = run_verdict(view)
    tables = all_tables(view)
    files = {f"tables/{table.name}.csv": table.to_csv() for table in tables}
    files |= {f"tables/{table.name}.tex": table.to_latex() for table in tables}
    files |= {"report.md": markdown_report(view, said, tables), "report.html": html_report(view, said)}
    for name, text in files.items():  # last of all: a record that cannot be read leaves no half of a report
        write_text(run.folder / name, text)
    return run.folder / "report.html"


def html_report(view: View, said: Verdict) -> str:
    """The HTML file; the sections of a task's own figures and of replays are there where there are any."""
    sections = [
        top(view, said),
        results(view),
        curves(view),
        strict(view),
        parts(view),
        *breakdown(view),
        samples(view),
        *replays(view),
        cost(view),
        record(view),
    ]
    return page(f"{view.run.recipe.name} · Plumbline", sections)
