"""Text from models, recipes and records is hostile until it is escaped: one function for each place it goes to.

Every function first makes the text harmless to show (`errors.visible`): no control characters, no marks that turn the
reading direction, no half of a surrogate pair, which no file can hold.
"""

import html as markup
import re

from markupsafe import Markup

from plumbline.errors import visible

LINE = re.compile(r"\s+")
MARKDOWN = re.compile(r"([\\`*_|~#$]|\[(?![-+]?\d)|(?<!\d)\]|\](?=[(\[:]))")
"""What is escaped; the brackets of an interval are left as they are, unless what follows could make them a link."""
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


def line(text: str) -> str:
    """Visible text on one line."""
    return LINE.sub(" ", visible(text)).strip()


def html(text: object) -> Markup:
    """For an element's content or a quoted attribute, in HTML and in SVG; templates give all values to it."""
    return text if isinstance(text, Markup) else Markup(markup.escape(visible(str(text)), quote=True))  # noqa: S704


def clip(text: str, limit: int) -> tuple[str, int]:
    """The beginning of a text whose HTML is at most `limit` bytes, and how many characters are left out."""
    if len(text) * 12 <= limit:  # no character needs more
        return text, 0
    size = 0
    for index, character in enumerate(text):
        size += len(html(character).encode())
        if size > limit:
            return text[:index], len(text) - index
    return text, 0


def markdown(text: str) -> str:
    """For a line or a table cell: nothing in it is a link, a picture, a tag or a column."""
    escaped = markup.escape(line(text), quote=False).replace("&lt; ", "< ")  # no tag begins with a space
    return MARKDOWN.sub(r"\\\1", escaped)


def markdown_block(text: str) -> str:
    """A code block; its fence is longer than any row of backticks in the text."""
    shown = visible(text)
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{shown}\n{fence}"


def latex(text: str) -> str:
    """For a cell of a LaTeX table."""
    return "".join(LATEX.get(character, character) for character in line(text))


def csv(text: str) -> str:
    """For a cell of a CSV file: what a spreadsheet would run as a formula begins with an apostrophe."""
    shown = visible(text)
    return f"'{shown}" if shown.lstrip()[:1] in {*"=+-@\uff1d\uff0b\uff0d\uff20"} or shown[:1] == "\t" else shown
