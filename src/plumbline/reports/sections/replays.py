"""Episodes, replayed: what each got wrong, and its pictures side by side, inside the file."""

import base64
from collections.abc import Sequence

from plumbline.evaluation.figures import EARNED
from plumbline.evaluation.replays import RULE
from plumbline.records import Frame, Mistake
from plumbline.reports import numbers
from plumbline.reports.escaping import clip, html
from plumbline.reports.page import Section, paragraph
from plumbline.reports.tables import Column, Row, Table
from plumbline.reports.view import View, name_of
from plumbline.runs.evaluations import Replay

HEADING = "Episodes, replayed"
MOST_FRAMES, MOST_MISTAKES, LONGEST = 24, 30, 300


def replays(view: View) -> list[Section]:
    """The section; none where nothing was replayed."""
    body = ""
    for key, found in view.replays.items():
        body += paragraph(f"{name_of(key.stage)} on {key.split}, {key.mode} answers. {RULE}")
        body += filmstrips(found) or paragraph("No answer failed, and one replay shows a failed one.", "note")
    return [Section("replays", HEADING, body)] if body else []


def filmstrips(replays: Sequence[Replay]) -> str:
    """Every episode with its strip."""
    return "".join(_episode(replay) for replay in replays)


def _episode(replay: Replay) -> str:
    stratum = f" · {html(clip(replay.stratum, LONGEST)[0])}" if replay.stratum else ""
    nothing = "Nothing is wrong." if replay.reward >= EARNED else "No mistake was named."
    wrong = _mistakes(replay.mistakes) if replay.mistakes else paragraph(nothing, "note")
    return (
        f'<article class="sample"><h3>{html(clip(replay.id, LONGEST)[0])}{stratum}</h3>'
        f'<p class="why">reward {numbers.fixed(replay.reward)}</p>{wrong}{_strip(replay)}</article>'
    )


def _mistakes(mistakes: Sequence[Mistake]) -> str:
    rows = tuple(Row(tuple(clip(cell, LONGEST)[0] for cell in (m.what, m.expected, m.received))) for m in mistakes)
    columns = (Column("what", "What"), Column("expected", "Expected"), Column("received", "Received"))
    left = len(rows) - MOST_MISTAKES
    more = paragraph(f"And {left} more.", "note") if left > 0 else ""
    return Table("mistakes", "What is wrong", columns, rows[:MOST_MISTAKES]).to_html() + more


def _strip(replay: Replay) -> str:
    if not replay.frames:
        return paragraph(f"There are no pictures: {clip(replay.problem, 1000)[0]}.".replace("..", "."), "note")
    shown, left = replay.frames[:MOST_FRAMES], len(replay.frames) - MOST_FRAMES
    more = paragraph(f"And {left} more pictures, in the folder of replays.", "note") if left > 0 else ""
    pictures = "".join(_picture(number, frame) for number, frame in enumerate(shown, 1))
    return f'<div class="strip" tabindex="0" role="region" aria-label="Pictures">{pictures}</div>{more}'


def _picture(number: int, frame: Frame) -> str:
    caption = html(clip(frame.caption, LONGEST)[0])
    data = base64.b64encode(frame.image).decode()
    return (
        f'<figure><img src="data:image/jpeg;base64,{data}" alt="Picture {number}: {caption}">'
        f"<figcaption>{number}. {caption}</figcaption></figure>"
    )
