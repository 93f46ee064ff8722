"""Pages: data in templates. A page is one file, without a script or the network (its own policy forbids both)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from plumbline.reports import numbers
from plumbline.reports.escaping import clip, html
from plumbline.storage import open_regular

if TYPE_CHECKING:
    from jinja2 import Environment

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
GENERATOR = '<meta name="generator" content="Plumbline">'
"""How a page of ours is known (`is_page`)."""
PICTURES = "; img-src data:"
"""What a page with pictures is allowed, too: those that stand in the file itself."""
MINUS = re.compile(r"(?<=[ (\[>])-(?=\d)")
RELATION = re.compile(r"\b([np]) ([=<]) (?=\d)")


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: its anchor, its heading (none for the top), and its HTML."""

    anchor: str
    heading: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart with its caption."""

    title: str
    chart: str
    narrow: str = ""
    """A second drawing for narrow screens."""
    about: str = ""
    keys: tuple[tuple[str, str, str], ...] = ()
    """Style, shape and name of the marks."""
    more: str = ""
    ending: str = ""
    """From what to what it went, at the right of the title."""


def is_page(path: Path) -> bool:
    """Whether a file is a page of ours."""
    with open_regular(path) as file:
        return GENERATOR.encode() in file.read(1000)


def page(title: str, sections: Sequence[Section]) -> str:
    """The whole file."""
    # Text of models is escaped, so that only the replays can have written this.
    policy = POLICY + (PICTURES if any('<img src="data:' in section.body for section in sections) else "")
    return render("page.html", title=title, sections=sections, policy=policy)


def section(anchor: str, heading: str, template: str = "", **values: object) -> Section:
    """A section by its template, which is called as its anchor unless another is named."""
    return Section(anchor, heading, render(f"{template or anchor}.html", **values))


def render(name: str, **values: object) -> str:
    """A template filled: HTML or SVG, safe to be put into another."""
    return Markup(_environment().get_template(f"{name}.j2").render(values))  # noqa: S704 - it escapes by itself


def read_template(name: str) -> str:
    """A template as one line: between elements that stand on lines of their own there is no space."""
    lines = files(__package__).joinpath("templates", name).read_text(encoding="utf-8").splitlines()
    return "".join(map(str.strip, lines))


@cache
def _environment() -> "Environment":
    import jinja2  # commands that make no page start without it

    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(read_template), autoescape=True, finalize=html, undefined=jinja2.StrictUndefined
    )
    made.filters |= {"c": coordinate, "typeset": typeset, "minus": minus, "clipped": clipped}
    made.globals |= {"numbers": numbers, "clip": clip, "zip": zip}
    return made


def coordinate(value: float) -> str:
    """One decimal, and none where it is 0: a tenth of a pixel is less than anybody sees."""
    return f"{value:.1f}".removesuffix(".0")


def typeset(text: str) -> str:
    """Real minus signs before numbers, and no line break inside `n = 59` (for our own sentences)."""
    return RELATION.sub("\\1\u00a0\\2\u00a0", MINUS.sub("\u2212", text))


def clipped(text: str, limit: int) -> str:
    """The beginning of a text, as far as its HTML has at most `limit` bytes."""
    return clip(text, limit)[0]


def minus(text: str) -> str:
    """A real minus sign before digits."""
    return text.replace("-", "\u2212")
