"""The report as Markdown, to paste into an issue or a model card: the verdict, the tables, the samples."""

from plumbline.reports import numbers
from plumbline.reports.build_tables import all_tables
from plumbline.reports.comparisons import RULE, Picked, select
from plumbline.reports.escaping import clip, markdown, markdown_block
from plumbline.reports.sections import (
    CHECKED,
    COMMANDS,
    CONTROL,
    NEXT,
    RECIPE,
    Facts,
    alarms,
    check_facts,
    environment,
    events,
    form_sentence,
    golds_of,
    identity,
    next_facts,
    progress,
    prompt_of,
    reading_sentence,
    tokens,
    warning_lines,
)
from plumbline.reports.tables import Table
from plumbline.reports.verdict import Verdict, rise_sentences
from plumbline.reports.view import View, name_of

LONGEST = 2000


def markdown_report(view: View, said: Verdict) -> str:
    """The whole file; every text in it that a model or a person wrote is escaped."""
    recipe = view.run.recipe
    blocks = [f"# {markdown(recipe.name)}", markdown(recipe.description)]
    blocks.append(f"> **Not finished.** {markdown(progress(view))}" if not view.finished else "")
    blocks += [f"**{markdown(said.sentence)}**", markdown(said.reason)]
    blocks.append(f"> {markdown(CONTROL)}" if view.negative_control else "")
    blocks += [f"- {markdown(line)}" for line in (*alarms(view), *warning_lines(view))]
    for one in (view, *view.tasks):
        blocks += [f"# Task: {markdown(one.task)}"] if one.task else []
        blocks += [block for table in all_tables(one) for block in _table(one, table)]
        blocks += _samples(one)
    blocks += [f"## {CHECKED}", *_facts(said_checks)] if (said_checks := check_facts(view)) else []
    blocks += [f"## {NEXT}", *_facts(said_next)] if (said_next := next_facts(view)) else []
    blocks += [
        "## Time and tokens",
        *(_facts(tokens(view)) if view.timings else ["No timings have been recorded yet."]),
    ]
    blocks += ["## Recipe", *_facts(identity(view)), markdown_block(clip(recipe.to_yaml(), RECIPE)[0])]
    blocks += ["## Environment", *(_facts(environment(view)) or ["No environment has been recorded."])]
    blocks += ["## Events", *(_facts(events(view)) or ["None."])]
    blocks += ["## Make it again", markdown_block(COMMANDS)]
    return "\n\n".join(block.rstrip() for block in blocks if block) + "\n"


HEADINGS = {
    "tasks": "By task",
    "results": "Before and after",
    "parse-modes": "Strict against lenient",
    "parts": "Parts and strata",
    "curve": "During training",
    "rise": "Seen and held out",
    "watch": "Watch rules",
}


def _table(view: View, table: Table) -> list[str]:
    heading = f"## {HEADINGS[table.name]}" if table.name in HEADINGS else ""
    said: list[str] = []
    if table.name == "parse-modes":
        said = [markdown(reading_sentence(stage, evaluation)) for stage, evaluation in view.headline_evaluations]
    if table.name == "parts":
        said = [markdown(form_sentence(view.headline_comparison()))]
    if table.name == "rise":
        said = [markdown(line) for line in rise_sentences(view)]
    if table.name == "time":
        return [table.to_markdown()] if table.rows else []
    return [heading, *said, table.to_markdown() if table.rows else f"No {table.name} to show yet."]


def _facts(pairs: Facts) -> list[str]:
    return ["\n".join(f"- **{markdown(name)}**: {markdown(value)}" for name, value in pairs)] if pairs else []


def _samples(view: View) -> list[str]:
    compared = view.headline_comparison()
    if compared is None:
        return []
    golds = golds_of(view, compared.split)
    blocks = ["## Samples side by side", markdown(RULE)]
    for picked in select(compared):
        blocks += _sample(view, picked, golds.get(picked.after.id), name_of(compared.before), name_of(compared.after))
    return blocks


def _sample(view: View, picked: Picked, gold: str | None, before: str, after: str) -> list[str]:
    prompt = prompt_of(view, picked.after.id)
    title = f"### {markdown(picked.after.id)}"
    why = f"{picked.why}: {numbers.fixed(picked.before.reward)} to {numbers.fixed(picked.after.reward)}"
    blocks = [title, f"{markdown(picked.after.stratum)} {markdown(why)}".strip()]
    blocks += ["Prompt:", _block(prompt)] if prompt else []
    blocks += ["Gold:", _block(gold)] if gold is not None else []
    for name, row in ((before, picked.before), (after, picked.after)):
        parts = ", ".join(f"{part} {value:.2f}" for part, value in row.parts.items() if value is not None)
        blocks += [f"{name}, reward {numbers.fixed(row.reward)}, read as {markdown(row.how)}. {markdown(parts)}"]
        blocks += [_block(row.completion)]
    return blocks


def _block(text: str) -> str:
    shown, left = clip(text, LONGEST)
    return markdown_block(shown + (f"\n… {left:,} more characters" if left else ""))
