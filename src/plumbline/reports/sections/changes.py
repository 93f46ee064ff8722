"""What changed, and where: the parts and strata of the last two stages; then what all of the training did."""

from collections.abc import Sequence

from plumbline.reports import build_tables, numbers
from plumbline.reports.comparisons import Change, Comparison
from plumbline.reports.dot_charts import DotRow, Mark, dot_chart
from plumbline.reports.page import Section, figure, key, paragraph
from plumbline.reports.tables import minus
from plumbline.reports.verdict import rise_sentences
from plumbline.reports.view import View, name_of

PARTS, BREAKDOWN = "Parts and strata", "Seen and held out"
MOST = 16
"""Parts and strata that are drawn."""
LONGEST = 60
"""Rows of the breakdown that stand in the page; all of them are in its CSV."""


def parts(view: View) -> Section:
    """A chart and a table each, and how much of the difference comes with a change of form."""
    compared = view.headline_comparison()
    if compared is None:
        return Section("parts", PARTS, paragraph("This needs two stages that were evaluated on the same split."))
    changes, strata = compared.parts, compared.strata
    body = paragraph(
        f"{name_of(compared.before)} against {name_of(compared.after)} on {compared.split}, {compared.mode} answers. "
        "Only examples where a part was computed on both sides count; p-values are adjusted for their number (Holm)."
    )
    body += paragraph(said) if (said := form_sentence(compared)) else ""
    charts = [_chart(compared, changes, "Reward by part"), _chart(compared, strata, "Reward by stratum")]
    body += f'<div class="grid2">{"".join(charts)}</div>'
    body += build_tables.parts([compared], split=False).to_html() if changes else paragraph("No part was recorded.")
    one = paragraph("There is only one stratum.", "note")
    return Section("parts", PARTS, body + (build_tables.strata([compared], split=False).to_html() if strata else one))


def form_sentence(compared: Comparison) -> str:
    """Where the mean difference comes from; empty where no part pays for form."""
    share = compared.form_share
    if share is None:
        return ""
    total, rest = compared.reward.paired.difference, len(compared.pairs) - share.changed
    return (
        f"Of the mean difference of {numbers.signed(total.mean)}, {numbers.signed(share.from_changed)} comes from the "
        f"{numbers.count(share.changed)} answers whose format parts changed and {numbers.signed(share.from_rest)} from "
        f"the {numbers.count(rest)} whose format stayed as it was."
    )


def breakdown(view: View) -> list[Section]:
    """The first stage against the last on each split, by stratum and by kind.

    None for tasks that say nothing of what their evaluations put first (`records.Headline`) and have no splits of
    their own.
    """
    if not view.has_breakdown:
        return []
    if not view.rises:
        none = paragraph("This needs two stages that were evaluated on one split.")
        return [Section("breakdown", BREAKDOWN, none)]
    headline = view.task_headline
    body = "".join(map(paragraph, rise_sentences(view)))
    if view.further:
        body += paragraph(f"{', '.join(view.further)}: beside train, val and test, as the task has it.", "note")
    if headline is not None and headline.note:
        body += paragraph(f"{headline.note}.", "note")
    body += build_tables.rise(view).to_html()
    # The split that is evaluated inside training is the seen one once more; it is in the tables.
    inside = view.run.recipe.evaluation.split
    side_by_side = [one for one in view.rises if one.split != inside] or view.rises
    by = headline.stratum if headline else "stratum"
    charts = [_chart(one, one.strata, f"Reward by {by} on {one.split}", "reward") for one in side_by_side]
    if headline is not None:
        title, prefix = f"Accuracy by {headline.breakdown}", headline.prefix
        charts += [
            _chart(one, one.kinds(prefix), f"{title} on {one.split}", "accuracy", prefix) for one in side_by_side
        ]
    body += f'<div class="grid2">{"".join(charts)}</div>'
    body += build_tables.breakdown(view, side_by_side).to_html(limit=LONGEST)
    return [Section("breakdown", BREAKDOWN, body)]


def _chart(compared: Comparison, changes: Sequence[Change], title: str, x_title: str = "mean", prefix: str = "") -> str:
    """Before and after as dots; of the last two stages' only the first `MOST`. `prefix` is taken from the names."""
    if not changes:
        return ""
    most = MOST if x_title == "mean" else len(changes)
    before, after = name_of(compared.before), name_of(compared.after)
    named = [(change.name.removeprefix(prefix) or "(none)", change) for change in changes[:most]]
    rows = [
        DotRow(
            name,
            (Mark(change.before, before, "c2", "hollow"), Mark(change.after, after, "c1")),
            minus(numbers.signed(change.paired.difference.mean)),
        )
        for name, change in named
    ]
    label = f"{title}, before and after: " + "; ".join(
        f"{name} {numbers.fixed(change.before.mean)} to {numbers.fixed(change.after.mean)}" for name, change in named
    )
    about = f"95 % intervals; the difference at the right. {key('c2', 'hollow', before)} {key('c1', 'circle', after)}"
    if len(changes) > most:
        about += f" The first {most} of {len(changes)}."
    return figure(title, about, dot_chart(rows, label=label, x_title=x_title))
