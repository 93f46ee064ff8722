"""From what a model wrote to its query and its sentence, however they are set apart."""

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass

from plumbline.tasks.text.numbers import read_number
from plumbline_commerce.sql_qa.engine import Result, Value

LONGEST = 20_000
"""Characters that are looked at."""
LONGEST_SENTENCE = 400
_FENCE = re.compile(
    r"```[ \t]*((?:sql\w*\b|(?!select\b|with\b)\w+(?=[ \t]*[\r\n]))?)(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE
)
"""A block and its language: sql, or a word that has the line to itself."""
_BARE = re.compile(r"^[ \t]*(?:SELECT|WITH)\b", re.IGNORECASE | re.MULTILINE)
_ENDS = re.compile(r";|\n[ \t]*\n|\n(?=[^\n]*[{}])")
"""Of a query without a fence: its semicolon, an empty line, or a line with a brace, which no query holds."""
_PLACEHOLDER = re.compile(r"\{([^{}\n]*)\}")
_SENTENCE_END = re.compile(r"(?<![.!?])[.!?]++(?=\s|$)|\n+")
_NUMBER = re.compile(r"\d(?:[\d.,]*\d)?")
_WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True, slots=True)
class Answer:
    """The parts of an answer."""

    sql: str
    """Empty where there is none."""
    sentence: str
    fenced: bool
    """The query stands in a block of SQL that ends."""
    alone: bool
    """Nothing stands there but one query and one sentence."""


def read_answer(completion: str) -> Answer:
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
        return Answer("", "", fenced=False, alone=False)
    sentences = [part.strip() for part in _sentences(text[end:])]
    alone = not text[:start].strip() and len(sentences) == 1
    return Answer(sql.strip().rstrip(";").strip(), sentences[0] if sentences else "", fenced, alone)


def _sentences(text: str) -> list[str]:
    """Texts up to a full stop or the end of a line; a full stop within a placeholder or a number ends none."""
    found, start = [], 0
    for end in _SENTENCE_END.finditer(text):
        found.append(text[start : end.end()])
        start = end.end()
    found.append(text[start:])
    return [part for part in found if _WORD.search(part)]


def worth(sentence: str, result: Result, question: str) -> float:
    """What a sentence is worth: it says values of the result, and no number from anywhere else.

    Args:
        sentence: with placeholders.
        result: of the answer's own query.
        question: a number that stands there may be repeated.

    Returns:
        1.0 with at least one placeholder, 0.5 without any; 0.0 where there are fewer than three words outside of
        placeholders or over 400 characters, a placeholder names no column, or a number stands in neither question nor
        result.
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
    """Whether numbers as they are written stand among the values of a result, rounded as they are."""
    rounded: dict[int, set[float]] = {}
    for text in numbers:
        number = read_number(text)
        places = len(text.rpartition(",")[2]) if "," in text else 0
        if places not in rounded:
            rounded[places] = {round(value, places) for value in values if isinstance(value, int | float)}
        if text not in values and (number is None or number.value not in rounded[places]):
            return False
    return True


def filled(sentence: str, result: Result) -> str:
    """The sentence with the values of the result's first row, as people read it."""
    first = dict(zip((column.strip().casefold() for column in result.columns), result.rows[0], strict=True))
    return _PLACEHOLDER.sub(lambda found: _shown(first.get(found[1].strip().casefold(), found[0])), sentence)


def _shown(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))
    return "nenhum" if value is None else str(value)
