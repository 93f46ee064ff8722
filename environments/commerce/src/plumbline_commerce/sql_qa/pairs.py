"""Which questions are asked: of all families equally many, each query once, some families in val
and test alone.

Questions and their gold queries, drawn from families (`families.yaml`) and what fills them
(`slots.yaml`).
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import numpy as np

from plumbline.records import Message
from plumbline.seeds import generator
from plumbline.tasks.tables import read_table
from plumbline_commerce.job import Pair, Shop, rows_of, split_evenly, split_sizes, too_few_error
from plumbline_commerce.options import CommerceOptions
from plumbline_commerce.sql_qa.engine import QueryResult, databases, run

Row = Mapping[str, str]
HERE = Path(__file__).parent
_PLACE = re.compile(r"<(\w+)(?:\.(\w+))?>")


@dataclass(frozen=True, slots=True)
class SqlQuestion:
    """A question, the query that answers it, and the sentence that goes with the query's result."""

    family: "Family"
    text: str
    sql: str
    rivals: tuple[str, ...]
    """Near queries that answer other questions; on some database the result of each has to
    differ."""
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

    def draw(self, rng: np.random.Generator) -> SqlQuestion:
        """One of its questions, each of its slots filled at random."""
        chosen = {name: rows[int(rng.integers(len(rows)))] for name, rows in self.slots.items()}
        ask = self.ask[int(rng.integers(len(self.ask)))]
        sql, text, sentence = (_fill(template, chosen) for template in (self.sql, ask, self.answer))
        return SqlQuestion(
            self, text, sql, tuple(_fill(rival, chosen) for rival in self.rivals), sentence
        )


def families(database: Path) -> list[Family]:
    """All families, their slots filled with what the shop has."""
    tables = {
        name: tuple(_rows(table))
        for name, table in _read_texts("slots").items()
        if isinstance(table, dict)
    }
    there = {
        name: tuple(row for row in rows if _selects(database, row)) for name, rows in tables.items()
    }
    unions = {name: table for name, table in _read_texts("slots").items() if isinstance(table, str)}
    there |= {
        name: tuple(row for part in parts.split(", ") for row in there[part])
        for name, parts in unions.items()
    }
    return [_family(name, written, there) for name, written in _read_texts("families").items()]


@cache
def _read_texts(name: str) -> dict[str, Any]:
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
    """Whether the row's predicate, if it is one that orders are cut by, holds of an order of the
    shop."""
    if "valor" not in row or "sql" not in row:
        return True
    return bool(
        list(rows_of(database, f"SELECT 1 FROM orders_enriched WHERE {row['sql']} LIMIT 1"))  # noqa: S608
    )


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


SIFTED_ON = 3
"""Databases on which the answer to a question must tell something, whatever number the reward
uses."""
FRUITLESS = 300
"""Draws in a row without a new question, after which a family has no more."""


def pairs(shop: Shop) -> dict[str, list[Pair]]:
    """The pairs of each split; no two share a query or a question, and about half of val and test
    are of new families.

    Raises:
        DataError: the shop gives fewer different questions.
    """
    options, seed = shop.options, shop.options.seed
    count = options.count("sql_qa")
    sizes = split_sizes(count)
    new = {split: size // 2 for split, size in sizes.items()}
    paths = databases(shop.folder / "sql_qa", SIFTED_ON)
    there = families(shop.database)
    outside = [family for family in there if family.held_out]
    inside = [family for family in there if not family.held_out]
    kept_out = choose_questions(outside, sum(new.values()), seed, paths)
    seen = choose_questions(inside, count - sum(new.values()), seed, paths)
    dealt = _deal_questions(kept_out, {"val": new["val"]}, seed, "new")
    asked = _deal_questions(
        seen, {split: size - new[split] for split, size in sizes.items()}, seed, "seen"
    )
    asked["val"] += dealt["val"]
    asked["test"] += dealt["train"]
    return {
        split: [
            _pair(questions[at], options)
            for at in generator(seed, "sql_qa", split).permutation(len(questions))
        ]
        for split, questions in asked.items()
    }


def choose_questions(
    asked: Sequence[Family], count: int, seed: int, paths: Sequence[Path]
) -> list[SqlQuestion]:
    """So many questions of different queries, of each family as many as it has, up to its share.

    Raises:
        DataError: the families have fewer.
    """
    chosen: list[SqlQuestion] = []
    drawing = {family.name: sift_questions(family, seed, paths) for family in asked}
    for family in cycle(asked):
        if len(chosen) == count:
            return chosen
        if not drawing:
            raise too_few_error(count, f"the shop's records give {len(chosen)} different questions")
        if family.name in drawing:
            question = next(drawing[family.name], None)
            if question is None:
                del drawing[family.name]
            else:
                chosen.append(question)
    return chosen


def sift_questions(family: Family, seed: int, paths: Sequence[Path]) -> Iterator[SqlQuestion]:
    """A family's questions that tell something on some databases, in a seeded order, until it has
    no more."""
    rng = generator(seed, "sql_qa", family.name)
    seen: set[str] = set()
    fruitless = 0
    while fruitless < FRUITLESS:
        question = family.draw(rng)
        fruitless += 1
        if question.sql not in seen and _tells(question, paths):
            fruitless = 0
            yield question
        seen.add(question.sql)


def _tells(question: SqlQuestion, paths: Sequence[Path]) -> bool:
    """Whether a query's results are none of them empty, not all the same, and not those of a
    rival."""
    results = [run(path, question.sql) for path in paths]
    rows = [result.rows for result in results if isinstance(result, QueryResult)]
    full = [
        found
        for found in rows
        if any(value for row in found for value in row if not isinstance(value, str))
    ]
    if len(full) < len(paths) or len(set(rows)) == 1:
        return False
    return all([run(path, rival) for path in paths] != results for rival in question.rivals)


def _deal_questions(
    questions: Sequence[SqlQuestion], sizes: dict[str, int], seed: int, which: str
) -> dict[str, list[SqlQuestion]]:
    kinds = [question.family.name for question in questions]
    dealt = split_evenly(sizes, kinds, generator(seed, "sql_qa", "split", which))
    return {split: [questions[at] for at in members] for split, members in dealt.items()}


def _pair(question: SqlQuestion, options: CommerceOptions) -> Pair:
    family = question.family
    return Pair(
        id=f"sql_qa-{hashlib.sha256(question.sql.encode()).hexdigest()[:16]}",
        prompt=messages(question.text, family.tables, options.instructions),
        gold=f"```sql\n{question.sql}\n```\n{question.sentence}",
        reference={"question": question.text, "sql": question.sql, "ordered": family.ordered},
        about={"family": family.name, "difficulty": family.difficulty},
    )


def schema(tables: Sequence[str] | None = None) -> str:
    """The tables that questions are about, or those named, one a line: name and columns."""
    described: dict[str, str] = _read_texts("prompt")["tables"]
    return "\n".join(
        f"{name}({columns})"
        for name, columns in described.items()
        if tables is None or name in tables
    )


def messages(
    question: str, tables: Sequence[str], instructions: Literal["full", "short"]
) -> list[Message]:
    """The prompt of a question.

    Args:
        question: in Portuguese.
        tables: those that its answer reads; the only ones that `short` shows.
        instructions: "full" explains the task and shows every table.
    """
    if instructions == "short":
        return [
            {"role": "system", "content": _read_texts("prompt")["short"]},
            {"role": "user", "content": f"{schema(tables)}\nPergunta: {question}"},
        ]
    return [
        {
            "role": "system",
            "content": f"{_read_texts('prompt')['full']}\nTabelas:\n{schema()}\n{_read_texts('prompt')['notes']}",
        },
        {"role": "user", "content": question},
    ]
