"""Pages: data in templates. A page is one file, without a script or the network (its own policy
forbids both)."""

import base64
import hashlib
import html as markup
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from plumbline.config.imports import import_needed
from plumbline.errors import make_visible, to_visible_line
from plumbline.evaluation import comparison
from plumbline.evaluation.statistics import skill
from plumbline.reports import format_numbers
from plumbline.storage import dumps, open_regular

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup
else:
    try:
        from markupsafe import Markup
    # it comes with jinja2, which pages need (`_environment` says so) and tables do not
    except ModuleNotFoundError:
        Markup = str

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
GENERATOR = '<meta name="generator" content="Plumbline">'
"""How a page of ours is known (`is_page`)."""
RECIPE = 16_000
"""Characters of a recipe that are shown."""
PICTURES = "; img-src data:"
"""What a page with pictures is allowed, too: those that stand in the file itself."""
MINUS = re.compile(r"(?<=[ (\[>])-(?=\d)")
RELATION = re.compile(r"\b([np]) ([=<]) (?=\d)")


@dataclass(frozen=True, slots=True)
class PageSection:
    """A part of the page: its anchor, its heading (none for the top), and its HTML."""

    anchor: str
    heading: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartFigure:
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


def render_page(title: str, sections: Sequence[PageSection], data: object = None) -> str:
    """The whole file; with `data`, which is JSON, our script may read it and nothing else runs."""
    # Text of models is escaped, so that only the replays can have written this.
    policy = POLICY + (
        PICTURES if any('<img src="data:' in section.body for section in sections) else ""
    )
    script = "" if data is None else read_template("samples.js")
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
    return render_template(
        "page.html",
        title=title,
        sections=sections,
        policy=policy,
        script=script,
        # in a script nothing is escaped, so no element can begin in it
        data=dumps(data).replace("<", "\\u003c"),
    )


def render_section(anchor: str, heading: str, template: str = "", **values: object) -> PageSection:
    """A section by its template, which is called as its anchor unless another is named."""
    return PageSection(anchor, heading, render_template(f"{template or anchor}.html", **values))


def render_template(name: str, **values: object) -> str:
    """A template filled: HTML or SVG, safe to be put into another."""
    return Markup(_environment().get_template(f"{name}.j2").render(values))


def read_template(name: str) -> str:
    """A template. One of HTML is a single line: between elements that stand on lines of their own
    there is no space."""
    text = files(__package__).joinpath("templates", name).read_text(encoding="utf-8")
    return text if name.endswith(".md.j2") else "".join(map(str.strip, text.splitlines()))


@cache
def _environment() -> "Environment":
    import_needed("jinja2", "a report")  # commands that make no page start without it
    import jinja2

    @jinja2.pass_context
    def escaped(context: jinja2.runtime.Context, value: object) -> Markup:
        if isinstance(value, Markup):
            return value
        return (
            Markup(escape_markdown(str(value)))
            if str(context.name).endswith(".md.j2")
            else escape_html(value)
        )

    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(read_template),
        autoescape=True,
        finalize=escaped,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "c": format_coordinate,
        "typeset": typeset,
        "minus": typeset_minus,
        "clipped": clip_html,
        "ends": clip_middle,
        "code": render_code,
        "names": break_names,
    }
    made.filters["base64"] = lambda data: base64.b64encode(data).decode()
    made.globals |= {
        "numbers": format_numbers,
        "comparison": comparison,
        "skill": skill,
        "zip": zip,
        "RECIPE": RECIPE,
    }
    return made


def format_coordinate(value: float) -> str:
    """One decimal, and none where it is 0: a tenth of a pixel is less than anybody sees."""
    return f"{value:.1f}".removesuffix(".0")


def typeset(text: str) -> str:
    """Real minus signs before numbers, and no line break inside `n = 59` and `95 %` (for our own
    sentences)."""
    text = MINUS.sub("\u2212", text).replace(" %", "\u00a0%")
    return RELATION.sub("\\1\u00a0\\2\u00a0", text)


def render_code(text: str, limit: int = 10**9) -> str:
    """A code block of Markdown, of a text that is longer than `limit` both ends."""
    return Markup(fence_markdown(clip_middle(text, limit)))


def typeset_minus(text: str) -> str:
    """A real minus sign before digits."""
    return text.replace("-", "\u2212")


# -- escaping --------------------------------------------------------------------------------------
# Text from models, recipes and records is hostile until it is escaped: one function for each place
# it goes to. Every one makes it harmless to show (`errors.make_visible`): no control characters, no
# marks that turn the reading direction, no half of a surrogate pair, which no file can hold.

MARKDOWN = re.compile(r"([\\`*_|~#$]|\[(?![-+]?\d)|(?<!\d)\]|\](?=[(\[:]))")
"""What is escaped; the brackets of an interval are left as they are, unless what follows could make
them a link."""
LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "[": "{[}",  # at the start of a row it would be read as an option of the row before
    "]": "{]}",
    "*": "{*}",
    "\u2192": r"$\to$",
}


def escape_html(text: object) -> Markup:
    """For an element's content or a quoted attribute, in HTML and in SVG."""
    return Markup(markup.escape(make_visible(str(text)), quote=True))


def break_names(text: object) -> Markup:
    """The same where names and paths may break behind `_` and `/`."""
    return Markup(re.sub("[_/]", r"\g<0><wbr>", str(escape_html(text))))


def clip_html(text: str, limit: int) -> str:
    """The beginning of a text whose HTML is at most `limit` bytes."""
    if len(text) * 12 <= limit:  # no character needs more
        return text
    size = 0
    for index, character in enumerate(text):
        size += len(escape_html(character).encode())
        if size > limit:
            return text[:index]
    return text


def clip_middle(text: str, limit: int) -> str:
    """Both ends of a text whose HTML is over `limit` bytes, and how many characters lie between
    them."""
    if clip_html(text, limit) == text:
        return text
    first, last = clip_html(text, limit // 2), clip_html(text[::-1], limit // 2)[::-1]
    return f"{first}\n… {len(text) - len(first) - len(last):,} more characters …\n{last}"


def escape_markdown(text: str) -> str:
    """For a line or a table cell: nothing in it is a link, a picture, a tag or a column."""
    # no tag begins with a space
    escaped = markup.escape(to_visible_line(text), quote=False).replace("&lt; ", "< ")
    return MARKDOWN.sub(r"\\\1", escaped)


def fence_markdown(text: str) -> str:
    """A code block; its fence is longer than any row of backticks in the text."""
    shown = make_visible(text)
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{shown}\n{fence}"


def escape_latex(text: str) -> str:
    """For a cell of a LaTeX table."""
    return "".join(LATEX.get(character, character) for character in to_visible_line(text))


def escape_csv(text: str) -> str:
    """For a cell of a CSV file: what a spreadsheet would run as a formula begins with an
    apostrophe."""
    shown = make_visible(text)
    return (
        f"'{shown}"
        if shown.lstrip()[:1] in {*"=+-@\uff1d\uff0b\uff0d\uff20"} or shown[:1] == "\t"
        else shown
    )
