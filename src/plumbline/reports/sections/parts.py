"""The parts of the reward before and after, and the reward by stratum."""

from plumbline.reports import build_tables, numbers
from plumbline.reports.comparisons import Change, Comparison
from plumbline.reports.dot_charts import DotRow, Mark, dot_chart
from plumbline.reports.page import Section, figure, key, paragraph
from plumbline.reports.view import View, name_of

MOST = 16


def parts(view: View) -> Section:
    """A chart and a table each, and how much of the difference comes with a change of form."""
    heading = "Parts and strata"
    compared = view.headline_comparison()
    if compared is None:
        return Section("parts", heading, paragraph("This needs two stages that were evaluated on the same split."))
    changes, strata = compared.parts, compared.strata
    body = paragraph(
        f"{name_of(compared.before)} against {name_of(compared.after)} on {compared.split}, {compared.mode} answers. "
        "Only examples where a part was computed on both sides count; p-values are adjusted for their number (Holm)."
    )
    body += _form(compared)
    charts = [_chart(compared, changes, "Reward by part"), _chart(compared, strata, "Reward by stratum")]
    body += f'<div class="grid2">{"".join(charts)}</div>'
    body += build_tables.parts([compared], split=False).to_html() if changes else paragraph("No part was recorded.")
    body += (
        build_tables.strata([compared], split=False).to_html()
        if strata
        else paragraph("There is only one stratum.", "note")
    )
    return Section("parts", heading, body)


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


def _form(compared: Comparison) -> str:
    said = form_sentence(compared)
    return paragraph(said) if said else ""


def _chart(compared: Comparison, changes: list[Change], title: str) -> str:
    if not changes:
        return ""
    before, after = name_of(compared.before), name_of(compared.after)
    rows = [
        DotRow(
            change.name or "(none)",
            (Mark(change.before, before, "c2", "hollow"), Mark(change.after, after, "c1")),
            numbers.signed(change.paired.difference.mean).replace("-", "\u2212"),
        )
        for change in changes[:MOST]
    ]
    label = f"{title}, before and after: " + "; ".join(
        f"{change.name} {numbers.fixed(change.before.mean)} to {numbers.fixed(change.after.mean)}"
        for change in changes[:MOST]
    )
    about = f"95 % intervals; the difference at the right. {key('c2', 'hollow', before)} {key('c1', 'circle', after)}"
    if len(changes) > MOST:
        about += f" The first {MOST} of {len(changes)}."
    return figure(title, about, dot_chart(rows, label=label, x_title="mean"))
