"""Ways to answer without understanding the question: what they earn is the floor that every figure stands on."""

# ruff: noqa: S608 - these queries are answers, which the verifier runs within its walls

import re
from collections.abc import Sequence

from plumbline.records import Example
from plumbline.tasks.task import gold_of
from plumbline_commerce.sql_qa.engine import COLUMNS
from plumbline_commerce.sql_qa.gate import Query, read_query

SENTENCE = "O resultado foi de {resultado} pedidos."
_WORD = re.compile(r"\w+")
_BLOCK = re.compile(r"```sql\n.*?\n```\n[^\n]*", re.DOTALL)


def select_null(examples: Sequence[Example]) -> list[str]:
    """A query that returns nothing of anything."""
    return [_answer("SELECT NULL AS resultado")] * len(examples)


def count_tables(examples: Sequence[Example]) -> list[str]:
    """All rows of the gold query's tables, side by side or joined by the columns that they share, counted."""
    return [_answer(f"SELECT COUNT(*) AS resultado FROM {_tables(example)}") for example in examples]


def select_everything(examples: Sequence[Example]) -> list[str]:
    """The first rows of the gold query's tables, with all their columns."""
    return [_answer(f"SELECT * FROM {_tables(example)} LIMIT 5") for example in examples]


def select_names(examples: Sequence[Example]) -> list[str]:
    """The gold query's own columns from its own tables, and nothing computed: all that *names* pays."""
    answers = []
    for example in examples:
        columns = sorted(_named(example) - COLUMNS.keys())
        answers.append(_answer(f"SELECT {', '.join(columns) or '*'} FROM {_tables(example)} LIMIT 5"))
    return answers


def constants(examples: Sequence[Example]) -> list[str]:
    """Numbers that are often right, as one row: cells without a table."""
    numbers = ", ".join(f"{number} AS n{number}" for number in range(10))
    return [_answer(f"SELECT {numbers} FROM orders LIMIT 1")] * len(examples)


def prompts_example(examples: Sequence[Example]) -> list[str]:
    """The example that the prompt gives; nothing where it gives none."""
    answers = []
    for example in examples:
        found = _BLOCK.search(example.messages[0]["content"])
        answers.append(found[0] if found else "")
    return answers


def nearest_gold(examples: Sequence[Example]) -> list[str]:
    """The perfect answer to the other question of these examples that has the most words in common."""
    said = [frozenset(_WORD.findall(example.reference["question"].casefold())) for example in examples]
    answers = []
    for at, mine in enumerate(said):
        common = [(len(mine & other) / max(1, len(mine | other)), number) for number, other in enumerate(said)]
        nearest = max((pair for pair in common if pair[1] != at), default=(0, at))[1]
        answers.append(gold_of(examples[nearest]))
    return answers


def _answer(query: str) -> str:
    return f"```sql\n{query}\n```\n{SENTENCE}"


def _named(example: Example) -> frozenset[str]:
    query = read_query(example.reference["sql"])
    return query.names if isinstance(query, Query) else frozenset()


def _tables(example: Example) -> str:
    """The gold query's tables, joined."""
    return " NATURAL JOIN ".join(sorted(_named(example) & COLUMNS.keys())) or "orders"


WAYS = {
    "nearest-gold": nearest_gold,
    "prompt-example": prompts_example,
    "select-null": select_null,
    "constants": constants,
    "count-tables": count_tables,
    "select-everything": select_everything,
    "select-names": select_names,
}
