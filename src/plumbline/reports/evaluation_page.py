"""One evaluation as an HTML file of its own: its tables and, where episodes were replayed, their pictures."""

from collections.abc import Mapping, Sequence
from typing import Any

from plumbline.evaluation.replays import RULE
from plumbline.reports.evaluation_tables import evaluation_tables
from plumbline.reports.filmstrip import filmstrips
from plumbline.reports.page import Section, page, paragraph
from plumbline.runs.replays import Replay


def evaluation_page(summary: Mapping[str, Any], replays: Sequence[Replay] = ()) -> str:
    """The HTML file.

    Args:
        summary: what `evaluation.summary.detail` gives.
        replays: failed episodes (`evaluation.replays`).
    """
    tables = evaluation_tables(summary)
    title = f"{summary['source']} on {summary['task']} {summary['split']}"
    sections = [Section("figures", title, tables[0].to_html())]
    sections += [
        Section(table.name, table.name.replace("by-", "By "), table.to_html(limit=200)) for table in tables[1:]
    ]
    if replays:
        sections.append(Section("replays", "Failed episodes, replayed", paragraph(RULE) + filmstrips(replays)))
    return page(f"{title} · Plumbline", sections)
