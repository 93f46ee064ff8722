"""What an answer is worth: above all that its query returns what the gold query returns, on every
database.

What stands before that (it is a query, it runs, it is about the right tables and columns, some
cells are right) pays little, so that a small model has a slope, and no query that merely runs is
worth much. The sentence pays only as far as its result is right.

From what a model wrote to its query and its sentence, however they are set apart.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plumbline.errors import DataError
from plumbline.records import Outcome, Score
from plumbline.tasks.text.numbers import read_number
from plumbline_commerce.job import brazilian, read_rubric
from plumbline_commerce.sql_qa.engine import QueryRefusal, QueryResult, Row, Value, run
from plumbline_commerce.sql_qa.gate import Query, read_query
from plumbline_commerce.sql_qa.gold import GoldResult, date_cuts, gold_of, matches, normalise_rows

LONGEST = 20_000
"""Characters that are looked at."""
LONGEST_SENTENCE = 400
_FENCE = re.compile(
    r"```[ \t]*((?:sql\w*\b|(?!select\b|with\b)\w+(?=[ \t]*[\r\n]))?)(.*?)(?:```|\Z)",
    re.DOTALL | re.IGNORECASE,
)
"""A block and its language: sql, or a word that has the line to itself."""
_BARE = re.compile(r"^[ \t]*(?:SELECT|WITH)\b", re.IGNORECASE | re.MULTILINE)
_ENDS = re.compile(r";|\n[ \t]*\n|\n(?=[^\n]*[{}])")
"""Of a query without a fence: its semicolon, an empty line, or a line with a brace, which no query
holds."""
_PLACEHOLDER = re.compile(r"\{([^{}\n]*)\}")
_SENTENCE_END = re.compile(r"(?<![.!?])[.!?]++(?=\s|$)|\n+")
_NUMBER = re.compile(r"\d(?:[\d.,]*\d)?")
_WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True, slots=True)
class AnswerParts:
    """The parts of an answer."""

    sql: str
    """Empty where there is none."""
    sentence: str
    fenced: bool
    """The query stands in a block of SQL that ends."""
    alone: bool
    """Nothing stands there but one query and one sentence."""


def read_answer(completion: str) -> AnswerParts:
    """Read the first query of a completion, and the first sentence behind it."""
    text = completion[:LONGEST]
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    if (block := _FENCE.search(text)) is not None:
        start, end, sql = block.start(), block.end(), block[2]
        fenced = block[1].lower() == "sql" and block[0].endswith("```") and len(block[0]) > 5
    elif (bare := _BARE.search(text)) is not None:
        start = bare.start()
        ends = _ENDS.search(text, start)
        end = ends.end() if ends else len(text)
        sql, fenced = text[start : ends.start() if ends else end], False
    else:
        return AnswerParts("", "", fenced=False, alone=False)
    sentences = [part.strip() for part in _sentences(text[end:])]
    alone = not text[:start].strip() and len(sentences) == 1
    return AnswerParts(
        sql.strip().rstrip(";").strip(), sentences[0] if sentences else "", fenced, alone
    )


def _sentences(text: str) -> list[str]:
    """Texts up to a full stop or the end of a line; a full stop within a placeholder or a number
    ends none."""
    found, start = [], 0
    for end in _SENTENCE_END.finditer(text):
        found.append(text[start : end.end()])
        start = end.end()
    found.append(text[start:])
    return [part for part in found if _WORD.search(part)]


def score_sentence(sentence: str, result: QueryResult, question: str) -> float:
    """What a sentence is worth: it says values of the result, and no number from anywhere else.

    Args:
        sentence: with placeholders.
        result: of the answer's own query.
        question: a number that stands there may be repeated.

    Returns:
        1.0 with at least one placeholder, 0.5 without any; 0.0 where there are fewer than three
        words outside of placeholders or over 400 characters, a placeholder names no column, or a
        number stands in neither question nor result.
    """
    columns = {column.strip().casefold() for column in result.columns}
    named = [name.strip().casefold() for name in _PLACEHOLDER.findall(sentence)]
    said = _PLACEHOLDER.sub(" ", sentence)
    if not result.rows or len(sentence) > LONGEST_SENTENCE or len(_WORD.findall(said)) < 3:
        return 0.0
    if not columns.issuperset(named) or "{" in said or "}" in said:
        return 0.0
    numbers = set(_NUMBER.findall(said)) - set(_NUMBER.findall(question))
    if numbers and not _all_stand_in(numbers, {value for row in result.rows for value in row}):
        return 0.0
    return 1.0 if named else 0.5


def _all_stand_in(numbers: Iterable[str], values: Set[Value]) -> bool:
    """Whether numbers as they are written stand among the values of a result, rounded as they
    are."""
    rounded: dict[int, set[float]] = {}
    for text in numbers:
        number = read_number(text)
        places = len(text.rpartition(",")[2]) if "," in text else 0
        if places not in rounded:
            rounded[places] = {
                round(value, places) for value in values if isinstance(value, int | float)
            }
        if text not in values and (number is None or number.value not in rounded[places]):
            return False
    return True


def fill_sentence(sentence: str, result: QueryResult) -> str:
    """The sentence with the values of the result's first row, as people read it."""
    first = dict(
        zip((column.strip().casefold() for column in result.columns), result.rows[0], strict=True)
    )
    return _PLACEHOLDER.sub(
        lambda found: _format_value(first.get(found[1].strip().casefold(), found[0])), sentence
    )


def _format_value(value: Value) -> str:
    if isinstance(value, float):
        return brazilian(value, 2)
    return "nenhum" if value is None else str(value)


RUBRIC = read_rubric("sql_qa", 1)


def judge(
    reference: Mapping[str, Any], completion: str, paths: Sequence[Path]
) -> tuple[Outcome, Score]:
    """Read a completion, run its query on every database, and score it.

    Raises:
        DataError: the gold query of the reference gives no result, or no row on any database.
    """
    answer = read_answer(completion)
    golds = [gold_of(path, reference["sql"]) for path in paths]
    if not any(gold.rows for gold in golds):
        raise DataError(
            f"the gold query {reference['sql']} returns no row anywhere",
            "ask for what some shop has",
        )
    values: dict[str, float | None] = dict.fromkeys(RUBRIC.names, 0.0)
    values["fenced"], values["alone"] = float(answer.fenced), float(answer.alone)
    how = "strict" if answer.fenced and answer.alone else "lenient" if answer.sql else "none"
    query = read_query(answer.sql) if answer.sql else QueryRefusal("syntax", "no query")
    if isinstance(query, QueryRefusal):
        return Outcome(how=how, facts=_facts(query)), RUBRIC.score(values)
    values["parses"] = 1.0
    values["names"] = _f1(Counter(query.names), Counter(golds[0].names))
    results = _run(query, paths)
    if isinstance(results, QueryRefusal):
        return Outcome(how=how, facts=_facts(results)), RUBRIC.score(values)
    values["runs"] = float(bool(query.names))
    values |= _score_results(query, results, golds, ordered=reference["ordered"])
    if values["result"]:
        values["names"] = 1.0
    shown = next((result for result in results if result.rows), results[0])
    values["sentence"] = (values["cells"] or 0.0) * score_sentence(
        answer.sentence, shown, reference["question"]
    )
    return Outcome(how=how, facts=_sentence_facts(answer, shown)), RUBRIC.score(values)


def canonicalise_answer(completion: str, path: Path) -> frozenset[tuple[Row, ...]]:
    """What an answer says: what its query returns, rows and columns in one order; empty where that
    is nothing."""
    answer = read_answer(completion)
    query = read_query(answer.sql) if answer.sql else None
    result = run(path, query.sql) if isinstance(query, Query) else None
    if not (isinstance(query, Query) and isinstance(result, QueryResult)) or all(
        value is None for row in result.rows for value in row
    ):
        return frozenset()
    rows = (
        tuple(sorted(row, key=repr))
        for row in _rounded(normalise_rows(result.rows, date_cuts(query, result.columns)))
    )
    return frozenset([tuple(sorted(rows, key=repr))])


def _run(query: Query, paths: Sequence[Path]) -> list[QueryResult] | QueryRefusal:
    results = []
    for path in paths:
        result = run(path, query.sql)
        if isinstance(result, QueryRefusal):
            return result
        results.append(result)
    return results


def _score_results(
    query: Query, results: Sequence[QueryResult], golds: Sequence[GoldResult], *, ordered: bool
) -> dict[str, float]:
    """How right the results are."""
    right, cells, cuts = True, 0.0, date_cuts(query, results[0].columns)
    for result, gold in zip(results, golds, strict=True):
        same_width = len(result.columns) == len(gold.result.columns)
        here = same_width and matches(result.rows, gold.ties, ordered=ordered, cuts=gold.cuts)
        right = right and here
        rows = result.rows if here else normalise_rows(result.rows, cuts)
        cells += 1.0 if here else _f1(_cells(rows), _cells(gold.rows))
    return {"result": float(right), "cells": cells / len(golds)}


def _cells(rows: Iterable[Row]) -> Counter[Value]:
    """How often each value stands in a result, numbers to two decimals."""
    return Counter(value for row in _rounded(rows) for value in row)


def _rounded(rows: Iterable[Row]) -> Iterator[Row]:
    return (
        tuple(round(value, 2) if isinstance(value, float) else value for value in row)
        for row in rows
    )


def _f1(mine: Counter[Any], theirs: Counter[Any]) -> float:
    whole = mine.total() + theirs.total()
    return 2 * (mine & theirs).total() / whole if whole else 0.0


def _facts(refusal: QueryRefusal) -> dict[str, str]:
    return {"refused": refusal.cause, "because": refusal.detail}


def _sentence_facts(answer: AnswerParts, result: QueryResult) -> dict[str, str]:
    return (
        {"said": fill_sentence(answer.sentence, result)} if answer.sentence and result.rows else {}
    )
