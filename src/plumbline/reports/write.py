"""A run directory in, `report.html`, `report.md` and `tables/` out: functions of the records, always the same bytes."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from plumbline.records import Example
from plumbline.reports import sections
from plumbline.reports.build_tables import all_tables, watch
from plumbline.reports.page import PageSection, page, render, section
from plumbline.reports.verdict import Verdict, rise_sentences, run_verdict
from plumbline.reports.view import RunView, naming
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
    with naming(run):
        files = _files(RunView(run, examples or {}))
    check_links(run.folder, "tables")
    for name, text in files.items():  # last of all: a record that cannot be read leaves no half of a report
        write_text(run.folder / name, text)
    return run.folder / "report.html"


def _files(view: RunView) -> dict[str, str]:
    """The text of each file of a report."""
    said = run_verdict(view)
    files: dict[str, str] = {}
    for one in (view, *view.tasks):
        place = Path("tables") / one.task
        for table in all_tables(one):
            files |= {f"{place / table.name}.csv": table.to_csv(), f"{place / table.name}.tex": table.to_latex()}
    marked = render("report.md", view=view, said=said)  # to paste into an issue or a model card
    files |= {"report.md": marked.rstrip() + "\n", "report.html": html_report(view, said)}
    return files


def html_report(view: RunView, said: Verdict) -> str:
    """The HTML file; of several tasks with sections for each. A section with nothing to say is left out."""
    made = [
        section("top", "", view=view, said=said),
        section("checked", "What the checks say", "facts", pairs=sections.check_facts(view)),
    ]
    for one in view.tasks or [view]:
        headings = {
            "results": "Before and after",
            "curves": "Curves",
            "strict": "Strict against lenient",
            "parts": "Parts and strata",
            "breakdown": "Seen and held out",
            "samples": "Samples side by side" if one.headline_comparison() else "Samples",
            "replays": "Episodes, replayed",
        }
        anchor, name = (f"-{one.task}", f": {one.task}") if one.task else ("", "")
        for what, heading in headings.items():
            made.append(section(what + anchor, heading + name, what, view=one, replays=sections.replays(one)))
    if view.tasks:
        made.append(section("curves", "Curves", view=view))
    made += [
        PageSection("watch", "Watch rules", watch(view).to_html() if view.watched else ""),
        section("next", "What to do next", "facts", pairs=sections.next_facts(view)),
        section("cost", "Time and tokens", view=view),
        section("record", "Recipe, environment, events", view=view),
    ]
    return page(f"{view.run.recipe.name} · Plumbline", [one for one in made if one.body])


def run_summary(run: Run) -> RenderableType:
    """The end of a run: its verdict, where the report and the model are, and what to do next."""
    view = RunView(run)
    with naming(run):
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
