"""Failed episodes, replayed: what they got wrong, and pictures of what happened."""

from plumbline.evaluation.replays import RULE
from plumbline.reports.filmstrip import filmstrips
from plumbline.reports.page import Section, paragraph
from plumbline.reports.view import View, name_of


def replays(view: View) -> list[Section]:
    """The section; none where nothing was replayed."""
    body = ""
    for key, found in view.replays.items():
        body += paragraph(f"{name_of(key.stage)} on {key.split}, {key.mode} answers. {RULE}")
        body += filmstrips(found) or paragraph("No answer failed, so there is nothing to replay.", "note")
    return [Section("replays", "Failed episodes, replayed", body)] if body else []
