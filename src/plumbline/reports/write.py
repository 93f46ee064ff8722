"""A run directory in, `report.html`, `report.md` and `tables/` out: functions of the records,
always the same bytes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from plumbline.errors import to_visible_line
from plumbline.evaluation.comparison import Comparison
from plumbline.records import Example
from plumbline.reports import build_tables, page_sections, verdict
from plumbline.reports.build_tables import all_tables, watch_table
from plumbline.reports.format_numbers import format_fixed
from plumbline.reports.templating import PageSection, render_page, render_section, render_template
from plumbline.reports.verdict import Verdict, rise_sentences, run_verdict
from plumbline.reports.view import RunView, stage_name, use_stage_names
from plumbline.runs.output_guard import check_links
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run
from plumbline.storage import shorten, write_text

CALLED: Mapping[str, Any] = {
    "sections": page_sections,
    "tables": build_tables,
    "verdict": verdict,
    "stage_name": stage_name,
}
"""What the templates of a run's page call."""


def write_report(
    run: Run | RunRecord, examples: Mapping[str, Mapping[str, Example]] | None = None
) -> Path:
    """Write a run's report into its directory, finished or not.

    Args:
        run: whose records are read.
        examples: held-out examples by task and id, for the prompts and gold answers beside the
            samples; without them the report shows the oracle's answers and no prompts. The only
            task of a run has the name "".

    Returns:
        The path of the HTML file.

    Raises:
        DataError: a record cannot be read.
        StorageError: the directory cannot be written, or a link in it leads the tables out of it.
    """
    record = RunRecord(run.folder, recipe=run.recipe)
    with use_stage_names(record):
        files = _files(RunView(record, examples or {}))
    check_links(run.folder, "tables")
    # last of all: a record that cannot be read leaves no half of a report
    for name, text in files.items():
        write_text(run.folder / name, text)
    return run.folder / "report.html"


def _files(view: RunView) -> dict[str, str]:
    """The text of each file of a report."""
    said = run_verdict(view)
    files: dict[str, str] = {}
    for one in (view, *view.tasks):
        place = Path("tables") / one.task
        for table in all_tables(one):
            files |= {
                f"{place / table.name}.csv": table.to_csv(),
                f"{place / table.name}.tex": table.to_latex(),
            }
    marked = render_template(
        "report.md", view=view, said=said, **CALLED
    )  # to paste into an issue or a model card
    files |= {"report.md": marked.rstrip() + "\n", "report.html": html_report(view, said)}
    return files


def html_report(view: RunView, said: Verdict) -> str:
    """The HTML file; of several tasks with sections for each. A section with nothing to say is left
    out."""
    made = [
        _section("top", "", "first_screen", view=view, said=said),
        _section("checked", "What the checks say", "facts", pairs=page_sections.check_facts(view)),
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
            made.append(
                _section(
                    what + anchor,
                    heading + name,
                    what,
                    view=one,
                    replays=page_sections.replays(one),
                )
            )
    if view.tasks:
        made.append(_section("curves", "Curves", view=view))
    made += [
        PageSection(
            "watch", "Watch rules", watch_table(view).to_html() if view.watch_outcomes else ""
        ),
        _section("next", "What to do next", "facts", pairs=page_sections.next_facts(view)),
        _section("cost", "Time and tokens", view=view),
        _section("record", "Recipe, environment, events", view=view),
    ]
    return render_page(f"{view.run.recipe.name} · Plumbline", [one for one in made if one.body])


def _section(anchor: str, heading: str, template: str = "", **values: object) -> PageSection:
    return render_section(anchor, heading, template, **CALLED, **values)


BARS = "▁▂▃▄▅▆▇█"
MOST_BARS, MOST_CHARACTERS = 60, 60


def _curve(view: RunView) -> Text | None:
    """The reward of the RL steps as a line of bars; None where there are not two steps."""
    earned = [
        row["train/reward"]
        for row in view.metrics.get("rl", [])
        if row.get("train/reward") is not None
    ]
    if len(earned) < 2:
        return None
    parts = np.array_split(np.asarray(earned), min(MOST_BARS, len(earned)))
    low, high = min(earned), max(earned)
    bars = "".join(
        BARS[round((len(BARS) - 1) * (part.mean() - low) / (high - low or 1))] for part in parts
    )
    told = f"reward of sampled answers, {len(earned)} steps"
    return Text(f"\n{told}:  {format_fixed(earned[0])} {bars} {format_fixed(earned[-1])}")


def _answers(view: RunView) -> Table | None:
    """Held-out answers of the first evaluated stage and of the last, chosen by
    `comparison.select_examples`."""
    compared = view.compare_last(*view.headline, first=0) if view.headline else None
    if not isinstance(compared, Comparison):
        return None
    before, after = stage_name(compared.before), stage_name(compared.after)
    table = Table("gold answer", before, after, "reward", box=SIMPLE_HEAD, show_lines=True)
    for picked, _, gold, _ in page_sections.side_by_side_answers(view, compared):
        cells = [
            _cell(text) for text in (gold or "", picked.before.completion, picked.after.completion)
        ]
        table.add_row(
            *cells,
            Text(
                f"{format_fixed(picked.before.reward, 2)} → {format_fixed(picked.after.reward, 2)}"
            ),
        )
    return table


def _cell(text: str) -> Text:
    return Text(shorten(to_visible_line(text), MOST_CHARACTERS, "…"))


def run_summary(run: Run | RunRecord) -> RenderableType:
    """The end of a run: its verdict, where the report and the model are, and what to do next."""
    record = RunRecord(run.folder, recipe=run.recipe)
    view = RunView(record)
    with use_stage_names(record):
        said = run_verdict(view)
        shown = [(_curve(one), _answers(one)) for one in view.tasks or [view]]
    lines: list[RenderableType] = [Text(said.sentence, style="bold")]
    if said.reason:
        lines.append(Text(said.reason))
    for one, pictures in zip(view.tasks or [view], shown, strict=True):
        if one.has_breakdown:
            lines += [
                Text(f"{one.task}: {sentence}" if one.task else sentence)
                for sentence in rise_sentences(one)
            ]
        lines += [part for part in pictures if part is not None]
    result = run.result() or {}
    trust = " --trust-code" * any(one.name == "jsonl" for one in record.recipe.each_task.values())
    lines.append(
        Text(f"\nreport  {run.folder / 'report.html'}\nmodel   {result.get('model', '-')}\n")
    )
    if record.recipe.model.name is None:
        lines.append(
            Text(
                "A tiny model can gain in format and style, not in knowledge. With a real one:\n"
                "  plumbline run RECIPE --set model.name=DIRECTORY_OR_HUB_NAME"
            )
        )
    lines.append(
        Text(
            "Look further:\n"
            f"  plumbline eval {result.get('model', 'MODEL')} --split test{trust}\n"
            f"  plumbline runs {run.folder.parent}"
        )
    )
    return Group(*lines)
