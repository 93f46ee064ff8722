"""How commands say what came out: results on standard output, progress on standard error."""

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

from plumbline.errors import break_lines, escape_hidden, make_visible

if TYPE_CHECKING:
    from plumbline.runs.observers import LiveView


def print_json(value: object) -> None:
    """Print one JSON object."""
    from plumbline.storage import dumps

    print(escape_hidden(dumps(value)))


def print_tables(*renderables: Any, wrap: bool = True) -> None:
    """Print tables and texts; without `wrap`, and of a text that says `no_wrap`, paths stay in one
    piece, to be copied.

    A wrapped line keeps the indent that it begins with. For another program no text is.
    """
    from rich.text import Text

    from plumbline.runs.observers import Terminal

    console = Terminal()
    for renderable in renderables:
        is_text = isinstance(renderable, Text)
        if not wrap or not is_text or renderable.no_wrap or not console.is_terminal:
            console.print(renderable, soft_wrap=not wrap or is_text)
            continue
        for line in renderable.split():
            indent = len(line) - len(line.plain.lstrip())
            for piece in line[indent:].wrap(console, max(console.width - indent, 20)):
                piece.pad_left(indent)
                console.print(piece)


def print_text(text: str, *, wrap: bool = True) -> None:
    """Print lines; without `wrap` as they are, in a terminal, too."""
    shown = make_visible(text)
    print(break_lines(shown, sys.stdout) if wrap else shown, end="")


def print_to_stderr(text: str) -> None:
    """Print a line to standard error."""
    print(break_lines(make_visible(text), sys.stderr), file=sys.stderr, flush=True)


def print_result(value: object, text: str, as_json: bool) -> None:
    """Print a result as text or as JSON."""
    print_json(value) if as_json else print_tables(text, wrap=False)


def show_progress() -> "closing[LiveView]":
    """The view of what takes a while, closed before a result is printed."""
    from plumbline.runs.observers import LiveView

    return closing(LiveView())
