"""Seen and held out: what all of the training did on each split, and there by stratum and by kind."""

from plumbline.reports import numbers
from plumbline.reports.breakdown_tables import (
    breakdown_table,
    has_breakdown,
    kinds,
    rise_sentences,
    rise_table,
    rises,
)
from plumbline.reports.comparisons import Change, Comparison
from plumbline.reports.dot_charts import DotRow, Mark, dot_chart
from plumbline.reports.page import Section, figure, key, paragraph
from plumbline.reports.view import View, name_of

HEADING = "Seen and held out"
LONGEST = 60
"""Rows of the breakdown that stand in the page; all of them are in its CSV."""


def breakdown(view: View) -> list[Section]:
    """The section; none for tasks that have nothing to break down."""
    if not has_breakdown(view):
        return []
    compared = rises(view)
    if not compared:
        return [Section("breakdown", HEADING, paragraph("This needs two stages that were evaluated on one split."))]
    headline = view.task_headline
    body = "".join(paragraph(said) for said in rise_sentences(view))
    if view.further:
        named = ", ".join(view.further)
        body += paragraph(f"{named}: beside train, val and test, as the task has it.", "note")
    if headline is not None and headline.note:
        body += paragraph(f"{headline.note}.", "note")
    body += rise_table(view, compared).to_html()
    # The split that is evaluated inside training is the seen one once more; it is in the tables.
    inside = view.run.recipe.evaluation.split
    side_by_side = [one for one in compared if one.split != inside] or compared
    charts = [_chart(one, one.strata, headline.stratum if headline else "stratum", "") for one in side_by_side]
    if headline is not None:
        charts += [_chart(one, kinds(view, one), headline.breakdown, headline.prefix) for one in side_by_side]
    body += f'<div class="grid2">{"".join(charts)}</div>'
    body += breakdown_table(view, side_by_side).to_html(limit=LONGEST)
    return [Section("breakdown", HEADING, body)]


def _chart(compared: Comparison, changes: list[Change], what: str, prefix: str) -> str:
    if not changes:
        return ""
    before, after = name_of(compared.before), name_of(compared.after)
    named = [(change.name.removeprefix(prefix) or "(none)", change) for change in changes]
    rows = [
        DotRow(
            name,
            (Mark(change.before, before, "c2", "hollow"), Mark(change.after, after, "c1")),
            numbers.signed(change.paired.difference.mean).replace("-", "\u2212"),
        )
        for name, change in named
    ]
    title = f"{'Accuracy' if prefix else 'Reward'} by {what} on {compared.split}"
    label = f"{title}, before and after: " + "; ".join(
        f"{name} {numbers.fixed(change.before.mean)} to {numbers.fixed(change.after.mean)}" for name, change in named
    )
    about = f"95 % intervals; the difference at the right. {key('c2', 'hollow', before)} {key('c1', 'circle', after)}"
    return figure(title, about, dot_chart(rows, label=label, x_title="accuracy" if prefix else "reward"))
