"""One table, four ways: HTML to read, Markdown to paste, CSV to compute with, LaTeX to publish.

A column knows what its cells are, so that every form shows them in its own way: an interval is one cell for people
and three columns in the CSV, where nothing is rounded.
"""

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from plumbline.evaluation.statistics import Interval
from plumbline.reports import escaping, numbers

Kind = Literal["text", "count", "number", "share", "interval", "change", "p"]
LONG = 40
"""Characters of a row's name from which it may take several lines."""
MINUS = re.compile(r"-(?=\d)")
Cell = str | int | float | Interval | None


@dataclass(frozen=True, slots=True)
class Column:
    """A heading for people, a key for the CSV, and what the cells are."""

    key: str
    title: str
    kind: Kind = "text"
    digits: int = 3


@dataclass(frozen=True, slots=True)
class Row:
    """Cells in the order of the columns; `style` sets a row apart (`reference`, `head`)."""

    cells: tuple[Cell, ...]
    style: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under typed columns.

    Example:
        Table("parts", "Reward by part", (Column("part", "Part"), Column("n", "n", "count")), (Row(("parse", 59)),))
    """

    name: str
    """Of its files: tables/<name>.csv and .tex."""
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row.cells) == len(self.columns), f"table {self.name}: {row.cells} under {len(self.columns)}"

    def to_html(self, limit: int = 60) -> str:
        """A table in a box of its own that scrolls sideways on a phone; at most `limit` rows."""
        caption = escaping.html(self.caption)
        head = "".join(f'<th scope="col"{_numeric(c)}>{escaping.html(c.title)}</th>' for c in self.columns)
        body = "".join(self._html_row(row) for row in self.rows[:limit])
        left = len(self.rows) - limit
        note = f'<p class="note">{left} more rows are in {self.name}.csv.</p>' if left > 0 else ""
        return (
            f'<p class="caption">{caption}</p><div class="scroll" tabindex="0" role="region" aria-label="{caption}">'
            f'<table aria-label="{caption}">'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}"
        )

    def _html_row(self, row: Row) -> str:
        cells = []
        for index, (column, cell) in enumerate(zip(self.columns, row.cells, strict=True)):
            content = _html_cell(column, cell)
            long = ' class="long"' if len(content) > LONG else ""
            cells.append(
                f'<th scope="row"{long}>{content}</th>' if not index else f"<td{_numeric(column)}>{content}</td>"
            )
        style = f' class="{row.style}"' if row.style else ""
        return f"<tr{style}>{''.join(cells)}</tr>"

    def to_markdown(self) -> str:
        """A table of GitHub's Markdown, its caption above in bold."""
        rows = [
            [escaping.markdown(column.title) for column in self.columns],
            ["---" if column.kind == "text" else "--:" for column in self.columns],
            *([self._cell(column, cell, escaping.markdown) for column, cell in self._pairs(row)] for row in self.rows),
        ]
        lines = [f"| {' | '.join(row)} |" for row in rows]
        return f"**{escaping.markdown(self.caption)}**\n\n" + "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """Every number in full; an interval is three columns: its mean under the key, `_low` and `_high`."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            name
            for column in self.columns
            for name in (
                (column.key, f"{column.key}_low", f"{column.key}_high") if _is_interval(column) else (column.key,)
            )
        )
        for row in self.rows:
            writer.writerow(value for column, cell in self._pairs(row) for value in _csv_values(column, cell))
        return file.getvalue()

    def to_latex(self) -> str:
        """A booktabs tabular, to be put into a table environment of yours."""
        layout = "".join("l" if column.kind == "text" else "r" for column in self.columns)
        head = " & ".join(escaping.latex(column.title) for column in self.columns)
        lines = [
            f"% {escaping.line(self.caption)}",
            r"% needs \usepackage{booktabs}",
            rf"\begin{{tabular}}{{{layout}}}",
            r"\toprule",
            rf"{head} \\",
            r"\midrule",
        ]
        for index, row in enumerate(self.rows):
            if index and row.style == "reference" != self.rows[index - 1].style:
                lines.append(r"\midrule")
            cells = [self._cell(column, cell, escaping.latex, latex=True) for column, cell in self._pairs(row)]
            lines.append(rf"{' & '.join(cells)} \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])

    def _pairs(self, row: Row) -> list[tuple[Column, Cell]]:
        return list(zip(self.columns, row.cells, strict=True))

    @staticmethod
    def _cell(column: Column, cell: Cell, escape: Callable[[str], str], *, latex: bool = False) -> str:
        text = escape(cell_text(column, cell))
        if not latex or column.kind == "text":
            return text
        return "--" if text == numbers.DASH else MINUS.sub("$-$", text)


def recorded(values: Mapping[str, Any] | None) -> Interval | None:
    """An interval as `evaluation.summary` writes it; None where it was not computed."""
    return None if values is None or values["mean"] is None else Interval(**values)


def cell_text(column: Column, cell: Cell) -> str:
    """A cell as people read it, unescaped."""
    if isinstance(cell, Interval):
        return numbers.interval_text(cell, sign=column.kind == "change")
    if cell is None:
        return numbers.DASH
    if isinstance(cell, str):
        return cell
    if column.kind == "count":
        return numbers.count(int(cell))
    if column.kind == "share":
        return numbers.share(cell)
    if column.kind == "p":
        return numbers.p_value(cell)
    return numbers.fixed(cell, column.digits)


def _numeric(column: Column) -> str:
    return "" if column.kind == "text" else ' class="num"'


def _is_interval(column: Column) -> bool:
    return column.kind in {"interval", "change"}


def _html_cell(column: Column, cell: Cell) -> str:
    if isinstance(cell, Interval) and numbers.known(cell.mean):
        mean = numbers.signed(cell.mean) if column.kind == "change" else numbers.fixed(cell.mean)
        return f'<b>{minus(mean)}</b> <span class="ci">{minus(numbers.bounds(cell))}</span>'
    text = escaping.html(cell_text(column, cell))
    return text if column.kind == "text" else minus(text)


def minus(text: str) -> str:
    """A real minus sign before digits."""
    return text.replace("-", "\u2212")


def _csv_values(column: Column, cell: Cell) -> Sequence[str | int | float]:
    if _is_interval(column):
        if not isinstance(cell, Interval) or not numbers.known(cell.mean):
            return "", "", ""
        return cell.mean, cell.low, cell.high
    if isinstance(cell, str):
        return (escaping.csv(cell),)
    if cell is None or isinstance(cell, Interval) or not numbers.known(cell):
        return ("",)
    return (cell,)
