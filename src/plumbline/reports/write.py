"""A run directory in, `report.html`, `report.md` and `tables/` out: functions of the records,
always the same bytes."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from plumbline.errors import make_visible, to_visible_line
from plumbline.evaluation.comparison import Comparison
from plumbline.records import Example
from plumbline.reports import build_tables, page_sections, verdict
from plumbline.reports.build_tables import all_tables, watch_table
from plumbline.reports.format_numbers import format_fixed
from plumbline.reports.samples_page import samples_page
from plumbline.reports.templating import PageSection, render_page, render_section, render_template
from plumbline.reports.verdict import Verdict, rise_sentences, run_verdict
from plumbline.reports.view import EXAMPLES, RunView, stage_name, use_stage_names
from plumbline.runs.observers import sparkline
from plumbline.runs.output_guard import check_links
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run
from plumbline.storage import write_jsonl, write_text

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
            samples; they stay in the run. Without any the report shows the oracle's answers and no
            prompts. The only task of a run has the name "".

    Returns:
        The path of the HTML file.

    Raises:
        DataError: a record cannot be read.
        StorageError: the directory cannot be written, or a link in it leads the tables out of it.
    """
    record = RunRecord(run.folder, recipe=run.recipe)
    if examples is not None:
        write_jsonl(run.folder / EXAMPLES, _texts(examples))
    with use_stage_names(record):
        files = _files(RunView(record))
    check_links(run.folder, "tables")
    # last of all: a record that cannot be read leaves no half of a report
    for name, text in files.items():
        write_text(run.folder / name, text)
    return run.folder / "report.html"


def _texts(examples: Mapping[str, Mapping[str, Example]]) -> Iterator[dict[str, str | None]]:
    """The last user message and the gold answer of each example."""
    for task, found in examples.items():
        for one in found.values():
            prompt = next((m["content"] for m in reversed(one.messages) if m["role"] == "user"), "")
            yield {"task": task, "id": one.id, "prompt": make_visible(prompt), "gold": one.gold}


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
    files |= {"samples.html": samples_page(view), "report.md": marked.rstrip() + "\n"}
    return files | {"report.html": html_report(view, said)}


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
            "strict": "How answers were read",
            "parts": "Parts and strata",
            "breakdown": "Seen and held out",
            "samples": "Samples side by side" if one.headline_comparison() else "Samples",
            "replays": "Episodes, replayed",
        }
        anchor, name = (f"-{one.task}", f": {one.task}") if one.task else ("", "")
        made += [
            _section(what + anchor, heading + name, what, view=one)
            for what, heading in headings.items()
        ]
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


MOST_BARS, MOST_CHARACTERS, MOST_ANSWERS = 60, 160, 6


def _curve(view: RunView) -> Text | None:
    """The reward of the RL steps as a line of bars from the floor to the ceiling; None where there
    are not two steps."""
    earned = [
        row["train/reward"]
        for row in view.metrics.get("rl", [])
        if row.get("train/reward") is not None
    ]
    if len(earned) < 2:
        return None
    parts = np.array_split(np.asarray(earned), min(MOST_BARS, len(earned)))
    low, high = view.levels.get("floor"), view.levels.get("oracle")
    values = [float(part.mean()) for part in parts]
    least, most = min([*values, low.mean if low else 0.0]), high.mean if high else 1.0
    bars = sparkline(values, least, most)
    return Text(
        f"\nreward of sampled answers, {len(earned)} steps; bars from {format_fixed(least, 2)} to "
        f"{format_fixed(most, 2)}:\n{bars}"
    )


def _answers(view: RunView) -> Table | None:
    """Held-out answers of the first evaluated stage and of the last, chosen by
    `comparison.select_examples`."""
    compared = view.compare_last(*view.headline, first=0) if view.headline else None
    if not isinstance(compared, Comparison):
        return None
    several = page_sections.accepts_several(view, compared)
    table = Table.grid("", "", padding=(0, 2))
    shown = page_sections.side_by_side_answers(view, compared)[:MOST_ANSWERS]
    for picked, prompt, gold, _ in shown:
        rows = [("prompt", prompt), ("gold, one of many" if several else "gold", gold)]
        for stage, row in ((compared.before, picked.before), (compared.after, picked.after)):
            rows.append((f"{stage_name(stage)} {format_fixed(row.reward, 2)}", row.completion))
        for name, text in rows:
            if text:
                table.add_row(name, _cell(text))
        table.add_row()
    return table


def _cell(text: str) -> Text:
    """A text on one line; of a long one both ends."""
    line = to_visible_line(text)
    half = MOST_CHARACTERS // 2
    return Text(line if len(line) <= MOST_CHARACTERS else f"{line[:half]} … {line[-half:]}")


def run_summary(run: Run | RunRecord) -> Group:
    """The end of a run: some answers, and last its verdict, what the checks and the recipe's tree
    say in a line each, and where the report and the model are. Paths are in lines that do not wrap.
    """
    record = RunRecord(run.folder, recipe=run.recipe)
    view = RunView(record)
    lines: list[RenderableType] = []
    with use_stage_names(record):
        said = run_verdict(view)
        for one in view.tasks or [view]:
            lines += [part for part in (_answers(one), _curve(one)) if part is not None]
        lines += [Text(f"\n{said.sentence}", style="bold"), Text(said.reason)]
        lines += [
            Text(f"{one.task}: {sentence}" if one.task else sentence)
            for one in view.tasks or [view]
            if one.has_breakdown
            for sentence in rise_sentences(one)
        ]
        found = "\n".join(f"{name}: {text}" for name, text in page_sections.count_facts(view))
    result = record.result() or {}
    facts = Table.grid("", "", padding=(0, 2))
    facts.add_row("checks", Text(found))
    if view.decision:
        facts.add_row("next", Text(f"{view.decision.scenario}. {view.decision.says}"))
    lines += [Text(), facts]
    if record.recipe.model.name is None:
        lines.append(Text("A tiny model can gain in format and style, not in knowledge."))
    model = result.get("model", "-")
    paths = (
        f"report  {run.folder / 'report.html'}\nmodel   {model}\n"
        f"more    plumbline check {run.folder}\n"
        f"        plumbline eval {model} --split test{record.recipe.trust_flag}"
    )
    return Group(*lines, Text(paths, no_wrap=True))
