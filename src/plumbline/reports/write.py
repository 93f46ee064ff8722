"""A run directory in, `report.html`, `report.md` and `tables/` out: functions of the records, always the same bytes."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from plumbline.records import Example
from plumbline.reports import sections
from plumbline.reports.build_tables import all_tables
from plumbline.reports.page import Section, page
from plumbline.reports.verdict import Verdict, rise_sentences, run_verdict
from plumbline.reports.view import View
from plumbline.runs.claims import check_links
from plumbline.runs.run import Run
from plumbline.storage import write_text


def write_report(run: Run, examples: Mapping[str, Mapping[str, Example]] | None = None) -> Path:
    """Write a run's report into its directory, finished or not.

    Args:
        run: whose records are read.
        examples: held-out examples by task and id, for the prompts and gold answers beside the samples; without them
            the report shows the oracle's answers and no prompts. The only task of a run has the name "".

    Returns:
        The path of the HTML file.

    Raises:
        DataError: a record cannot be read.
        StorageError: the directory cannot be written, or a link in it leads the tables out of it.
    """
    view = View(run, examples or {})
    said = run_verdict(view)
    files: dict[str, str] = {}
    for one in (view, *view.tasks):
        place = Path("tables") / one.task
        for table in all_tables(one):
            files |= {f"{place / table.name}.csv": table.to_csv(), f"{place / table.name}.tex": table.to_latex()}
    files |= {"report.md": sections.markdown_report(view, said), "report.html": html_report(view, said)}
    check_links(run.folder, "tables")
    for name, text in files.items():  # last of all: a record that cannot be read leaves no half of a report
        write_text(run.folder / name, text)
    return run.folder / "report.html"


def html_report(view: View, said: Verdict) -> str:
    """The HTML file; of several tasks with sections for each."""
    body = [
        replace(section, anchor=f"{section.anchor}-{one.task}", heading=f"{section.heading}: {one.task}")
        for one in view.tasks
        for section in _of_task(one)
    ]
    body = [*body, sections.curves(view)] if view.tasks else _of_task(view)
    said_of_run = [*sections.checked(view), *sections.handoff(view), sections.cost(view), sections.record(view)]
    return page(f"{view.run.recipe.name} · Plumbline", [sections.top(view, said), *body, *said_of_run])


def _of_task(view: View) -> list[Section]:
    """What is said of one task; its own figures and replays are there where there are any."""
    compared = [sections.results(view), sections.curves(view), sections.strict(view), sections.parts(view)]
    return [*compared, *sections.breakdown(view), sections.samples(view), *sections.replays(view)]


def run_summary(run: Run) -> RenderableType:
    """The end of a run: its verdict, where the report and the model are, and what to do next."""
    view = View(run)
    said = run_verdict(view)
    lines = [Text(said.sentence, style="bold")]
    if said.reason:
        lines.append(Text(said.reason))
    for one in view.tasks or [view]:
        if one.has_breakdown:
            lines += [Text(f"{one.task}: {sentence}" if one.task else sentence) for sentence in rise_sentences(one)]
    result = run.result() or {}
    lines.append(Text(f"\nreport  {run.folder / 'report.html'}\nmodel   {result.get('model', '-')}\n"))
    if run.recipe.model.name is None:
        lines.append(
            Text(
                "A tiny model can gain in format and style, not in knowledge. With a real one:\n"
                "  plumbline run RECIPE --set model.name=DIRECTORY_OR_HUB_NAME"
            )
        )
    lines.append(
        Text(
            "Look further:\n"
            f"  plumbline eval {result.get('model', 'MODEL')} --split test\n"
            f"  plumbline runs {run.folder.parent}"
        )
    )
    return Group(*lines)
