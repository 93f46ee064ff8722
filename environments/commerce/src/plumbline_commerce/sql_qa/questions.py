"""Questions and their gold queries, drawn from families (`families.yaml`) and what fills them (`slots.yaml`)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.tasks.tables import read_table
from plumbline_commerce.job import rows_of

Row = Mapping[str, str]
HERE = Path(__file__).parent
_PLACE = re.compile(r"<(\w+)(?:\.(\w+))?>")


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the query that answers it, and the sentence that goes with the query's result."""

    family: "Family"
    text: str
    sql: str
    rivals: tuple[str, ...]
    """Near queries that answer other questions; on some database the result of each has to differ."""
    sentence: str
    """With names of the result's columns in braces."""


@dataclass(frozen=True, slots=True)
class Family:
    """Questions of one shape."""

    name: str
    difficulty: str
    """easy, medium or hard"""
    held_out: bool
    """In val and test only."""
    ordered: bool
    """Whether its questions ask for an order of rows."""
    tables: tuple[str, ...]
    """Those that its gold query reads."""
    slots: Mapping[str, tuple[Row, ...]]
    sql: str
    rivals: tuple[str, ...]
    ask: tuple[str, ...]
    """The same question in other words."""
    answer: str

    def draw(self, rng: np.random.Generator) -> Question:
        """One of its questions, each of its slots filled at random."""
        chosen = {name: rows[int(rng.integers(len(rows)))] for name, rows in self.slots.items()}
        ask = self.ask[int(rng.integers(len(self.ask)))]
        sql, text, sentence = (_fill(template, chosen) for template in (self.sql, ask, self.answer))
        return Question(self, text, sql, tuple(_fill(rival, chosen) for rival in self.rivals), sentence)


def families(database: Path) -> list[Family]:
    """All families, their slots filled with what the shop has."""
    tables = {name: tuple(_rows(table)) for name, table in _written("slots").items() if isinstance(table, dict)}
    there = {name: tuple(row for row in rows if _selects(database, row)) for name, rows in tables.items()}
    unions = {name: table for name, table in _written("slots").items() if isinstance(table, str)}
    there |= {name: tuple(row for part in parts.split(", ") for row in there[part]) for name, parts in unions.items()}
    return [_family(name, written, there) for name, written in _written("families").items()]


@cache
def _written(name: str) -> dict[str, Any]:
    table: dict[str, Any] = read_table(HERE / f"{name}.yaml")
    return table


def _rows(table: Mapping[str, str]) -> Iterator[Row]:
    """The rows of a table, with its texts as further columns."""
    names = table["columns"].split(" | ")
    for line in table["rows"].splitlines():
        row = dict(zip(names, line.split(" | "), strict=True))
        for name, template in table.items():
            if name not in ("columns", "rows"):
                row[name] = _PLACE.sub(lambda place, row=row: row[place[1]], template)  # type: ignore[misc]
        yield row


def _selects(database: Path, row: Row) -> bool:
    """Whether the row's predicate, if it is one that orders are cut by, holds of an order of the shop."""
    if "valor" not in row or "sql" not in row:
        return True
    return bool(list(rows_of(database, f"SELECT 1 FROM orders_enriched WHERE {row['sql']} LIMIT 1")))  # noqa: S608 - ours


def _family(name: str, written: Mapping[str, str], tables: Mapping[str, tuple[Row, ...]]) -> Family:
    slots = {}
    for slot in written["slots"].split(", "):
        called, _, table = slot.partition("=")
        slots[called] = tables[table or called]
    return Family(
        name=name,
        difficulty=written["difficulty"],
        held_out=written.get("held_out") == "true",
        ordered=written.get("ordered") == "true",
        tables=tuple(written["tables"].split(", ")),
        slots=slots,
        sql=written["sql"],
        rivals=tuple(written.get("rivals", "").splitlines()),
        ask=tuple(written["ask"].splitlines()),
        answer=written["answer"],
    )


def _fill(template: str, chosen: Mapping[str, Row]) -> str:
    """A template with its places filled; what fills one may have places of its own."""
    while (filled := _PLACE.sub(lambda place: chosen[place[1]][place[2]], template)) != template:
        template = filled
    return template
