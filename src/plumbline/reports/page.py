"""The HTML around the sections: one file, no script, nothing from the network (its own policy forbids both)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plumbline.reports.escaping import html
from plumbline.reports.style import CSS
from plumbline.reports.svg import marker
from plumbline.storage import open_regular

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
GENERATOR = '<meta name="generator" content="Plumbline">'
"""How a page of ours is known (`is_page`)."""
PICTURES = "; img-src data:"
"""What a page with pictures is allowed, too: those that stand in the file itself."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: its anchor, its heading (none for the top), and its HTML."""

    anchor: str
    heading: str
    body: str


def is_page(path: Path) -> bool:
    """Whether a file is a page of ours."""
    with open_regular(path) as file:
        return GENERATOR.encode() in file.read(1000)


def page(title: str, sections: Sequence[Section]) -> str:
    """The whole file."""
    links = "".join(
        f'<a href="#{section.anchor}">{html(section.heading)}</a>' for section in sections if section.heading
    )
    # Text of models is escaped, so that only `sections.replays` can have written this.
    policy = POLICY + (PICTURES if any('<img src="data:' in section.body for section in sections) else "")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"{GENERATOR}\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n"
        f'<nav aria-label="Sections">{links}</nav>\n<main>\n{"".join(map(_section, sections))}</main>\n'
        "</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    heading = f"<h2>{html(section.heading)}</h2>\n" if section.heading else ""
    return f'<section id="{section.anchor}">\n{heading}{section.body}\n</section>\n'


def figure(title: str, about: str, chart: str, narrow: str = "", ending: str = "") -> str:
    """A chart with its caption.

    Args:
        title: in bold.
        about: what is drawn, as HTML.
        chart: the drawing.
        narrow: a second drawing for narrow screens.
        ending: from what to what it went, at the right of the title.
    """
    drawn = f'<div class="wide">{chart}</div><div class="narrow">{narrow}</div>' if narrow else chart
    said = f' <span class="about">{about}</span>' if about else ""
    went = f'<span class="ending">{html(typeset(ending))}</span>' if ending else ""
    return f"<figure><figcaption>{went}<b>{html(title)}</b>{said}</figcaption>{drawn}</figure>"


def paragraph(text: str, style: str = "") -> str:
    """A paragraph of plain text."""
    written = f' class="{style}"' if style else ""
    return f"<p{written}>{html(typeset(text))}</p>"


MINUS = re.compile(r"(?<=[ (\[>])-(?=\d)")
RELATION = re.compile(r"\b([np]) ([=<]) (?=\d)")


def typeset(text: str) -> str:
    """Real minus signs before numbers, and no line break inside `n = 59` (for our own sentences)."""
    return RELATION.sub("\\1\u00a0\\2\u00a0", MINUS.sub("\u2212", text))


def key(style: str, shape: str, text: str) -> str:
    """What a mark stands for, in a caption: the mark itself, drawn, so that no font decides how it looks."""
    drawn = marker(6.0, 6.0, shape, style)
    return f'<span class="key"><svg viewBox="0 0 12 12" aria-hidden="true">{drawn}</svg>{html(text)}</span>'


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Names and values."""
    return '<dl class="facts">' + "".join(f"<dt>{html(k)}</dt><dd>{html(v)}</dd>" for k, v in pairs) + "</dl>"


def folded(summary: str, text: str) -> str:
    """Long text behind a line that opens it."""
    return f"<details><summary>{html(summary)}</summary><pre>\n{html(text)}</pre></details>"
