"""One table, five ways: HTML to read, Markdown to paste, CSV to compute with, LaTeX to publish, and
a terminal.

A column knows what its cells are, so that every form shows them in its own way: an interval is one
cell for people and three columns in the CSV, where nothing is rounded.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table as Terminal
from rich.text import Text

from plumbline.errors import make_visible, to_visible_line
from plumbline.evaluation.statistics import Interval
from plumbline.reports import templating
from plumbline.reports.format_numbers import (
    DASH,
    format_count,
    format_fixed,
    format_interval,
    format_p,
    format_percent,
    is_finite,
)

Kind = Literal["text", "count", "number", "share", "interval", "change", "p"]
MINUS = re.compile(r"-(?=\d)")
Cell = str | int | float | Interval | None
Cells = tuple[Cell, ...]
TERMINAL = {"head": "bold", "reference": "dim"}
"""How rows that are set apart look in a terminal."""


@dataclass(frozen=True, slots=True)
class Column:
    """A heading for people, a key for the CSV, and what the cells are."""

    key: str
    title: str
    kind: Kind = "text"
    digits: int = 3

    @property
    def is_interval(self) -> bool:
        """Whether a cell is a mean with its interval."""
        return self.kind in {"interval", "change"}

    def text(self, cell: Cell) -> str:
        """A cell as people read it, unescaped."""
        if isinstance(cell, Interval):
            return format_interval(cell, sign=self.kind == "change")
        if cell is None:
            return DASH
        if isinstance(cell, str):
            return cell
        if self.kind == "count":
            return format_count(int(cell))
        if self.kind == "share":
            return format_percent(cell)
        return format_p(cell) if self.kind == "p" else format_fixed(cell, self.digits)

    def latex(self, cell: Cell) -> str:
        """A cell of a LaTeX table."""
        text = templating.escape_latex(self.text(cell))
        if self.kind == "text":
            return text
        return "--" if text == DASH else MINUS.sub("$-$", text)

    def exact(self, cell: Cell) -> tuple[str | int | float, ...]:
        """The cells of a CSV file: numbers in full, and nothing where nothing was computed."""
        if isinstance(cell, Interval):
            return tuple(one if is_finite(one) else "" for one in (cell.mean, cell.low, cell.high))
        if isinstance(cell, str):
            return (templating.escape_csv(cell),)
        return (cell,) if is_finite(cell) else ("",) * (3 if self.is_interval else 1)


COMMON = {
    column.key: column
    for column in (
        Column("mode", "Asked"),
        Column("n", "n", "count"),
        Column("reward", "Reward", "interval"),
        *(
            Column(key, key.capitalize(), "number")
            for key in ("before", "after", "floor", "ceiling")
        ),
        Column("difference", "Difference", "change"),
        Column("p", "p", "p"),
        Column("p_holm", "p (Holm)", "p"),
        Column("skill", "Skill", "number", 2),
        Column("share", "Share", "share"),
        Column("source", "Answers from"),
        Column("failures", "Failures", "count"),
    )
}
"""Columns of several tables, which name them by their keys."""


@dataclass(frozen=True, slots=True)
class Row:
    """Cells in the order of the columns; `style` sets a row apart (`reference`, `head`)."""

    cells: Cells
    style: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under typed columns.

    Example:
        Table("parts", "Reward by part", (Column("part", "Part"), N), (Row(("parse", 59)),))
    """

    name: str
    """Of its files: tables/<name>.csv and .tex."""
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    @classmethod
    def of(
        cls,
        name: str,
        caption: str,
        columns: Iterable[str | Column],
        rows: Iterable[Row | Iterable[Cell]],
    ) -> "Table":
        """A table whose columns may be keys, of `COMMON` or else of texts, and whose rows may be
        cells alone."""
        made = tuple(map(_column, columns))
        return cls(
            name, caption, made, tuple(r if isinstance(r, Row) else Row(tuple(r)) for r in rows)
        )

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row.cells) == len(self.columns), (
                f"table {self.name}: {row.cells} under {len(self.columns)}"
            )

    def to_html(self, limit: int = 60) -> str:
        """A table of at most `limit` rows, which a phone shows as blocks; columns that say nothing
        are left out."""
        return templating.render_template("table", table=self, limit=limit)

    def to_markdown(self) -> str:
        """A table of GitHub's Markdown, its caption above in bold."""
        rows = [
            [templating.escape_markdown(column.title) for column in self.columns],
            ["---" if column.kind == "text" else "--:" for column in self.columns],
            *(
                [templating.escape_markdown(column.text(cell)) for column, cell in self._pairs(row)]
                for row in self.rows
            ),
        ]
        lines = [f"| {' | '.join(row)} |" for row in rows]
        return f"**{templating.escape_markdown(self.caption)}**\n\n" + "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """Every number in full; an interval is three columns: its mean under the key, `_low` and
        `_high`."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        endings = {True: ("", "_low", "_high"), False: ("",)}
        writer.writerow(
            column.key + ending for column in self.columns for ending in endings[column.is_interval]
        )
        writer.writerows(
            [value for column, cell in self._pairs(row) for value in column.exact(cell)]
            for row in self.rows
        )
        return file.getvalue()

    def to_latex(self) -> str:
        """A booktabs tabular, to be put into a table environment of yours."""
        layout = "".join("l" if column.kind == "text" else "r" for column in self.columns)
        head = " & ".join(templating.escape_latex(column.title) for column in self.columns)
        lines = [
            f"% {to_visible_line(self.caption)}",
            r"% needs \usepackage{booktabs}",
            rf"\begin{{tabular}}{{{layout}}}",
            r"\toprule",
            rf"{head} \\",
            r"\midrule",
        ]
        for index, row in enumerate(self.rows):
            if index and row.style == "reference" != self.rows[index - 1].style:
                lines.append(r"\midrule")
            lines.append(
                rf"{' & '.join(column.latex(cell) for column, cell in self._pairs(row))} \\"
            )
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])

    def to_rich(self, *, only_first: bool = False) -> Terminal:
        """For a terminal; where it is narrow, texts are broken (or those of the first column), and
        numbers are not."""
        title = Text(make_visible(self.caption)) if self.caption else None
        shown = Terminal(title=title, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for index, column in enumerate(self.columns):
            text = column.kind == "text"
            whole = not text or (only_first and index > 0)
            shown.add_column(
                Text(column.title),
                justify="left" if text else "right",
                no_wrap=whole,
                overflow="fold",
            )
        for row in self.rows:
            cells = (Text(make_visible(column.text(cell))) for column, cell in self._pairs(row))
            shown.add_row(*cells, style=TERMINAL.get(row.style, row.style))
        return shown

    def _pairs(self, row: Row) -> list[tuple[Column, Cell]]:
        return list(zip(self.columns, row.cells, strict=True))


def _column(column: str | Column) -> Column:
    if isinstance(column, Column):
        return column
    return COMMON.get(column) or Column(column, column.replace("_", " ").capitalize())


def read_interval(values: Mapping[str, Any] | None) -> Interval | None:
    """An interval as `evaluation.summary` writes it; None where it was not computed."""
    return None if values is None or values["mean"] is None else Interval(**values)
