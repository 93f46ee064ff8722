"""The job: one SELECT that answers a question, and a sentence for its result.

An answer is a block of SQL and then one sentence in Portuguese, in which values of the result stand
as placeholders: the column's name in braces, filled in from the first row of what the query
returns.

    ```sql
    SELECT COUNT(*) AS pedidos FROM orders_enriched WHERE customer_state = 'SP'
    ```
    Foram {pedidos} pedidos em São Paulo.

A pair's reference holds

    question    text: what is asked; a number in the sentence may stand here
    sql         text: the gold query, whose result is the answer
    ordered     true or false: whether the question asks for an order of rows

The gold query returns at least a row on some database (`engine.py`), and not the same rows on all
of them. Its LIMIT and its ORDER BY decide which ties may be broken either way, whatever `ordered`
says (`gold.py`).

The baselines are ways to answer without understanding the question: what they earn is the floor
under every figure.
"""

# ruff: noqa: S608 - the baselines' queries are answers, which the verifier runs within its walls

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from functools import cache, partial
from pathlib import Path
from typing import Any

from plumbline.config.imports import check_installed
from plumbline.errors import DataError, RewardError
from plumbline.records import Example, Outcome, Score
from plumbline.tasks.task import gold_of
from plumbline_commerce.job import Job, read_limits
from plumbline_commerce.options import CommerceOptions
from plumbline_commerce.sql_qa import gold, rubric
from plumbline_commerce.sql_qa.engine import COLUMNS, check_databases, databases
from plumbline_commerce.sql_qa.gate import Query, read_query
from plumbline_commerce.sql_qa.pairs import pairs

SENTENCE = "O resultado foi de {resultado} pedidos."
_WORD = re.compile(r"\w+")
_BLOCK = re.compile(r"```sql\n.*?\n```\n[^\n]*", re.DOTALL)


def select_null(examples: Sequence[Example]) -> list[str]:
    """A query that returns nothing of anything."""
    return [_answer("SELECT NULL AS resultado")] * len(examples)


def count_tables(examples: Sequence[Example]) -> list[str]:
    """All rows of the gold query's tables, side by side or joined by the columns that they share,
    counted."""
    return [
        _answer(f"SELECT COUNT(*) AS resultado FROM {_tables(example)}") for example in examples
    ]


def select_everything(examples: Sequence[Example]) -> list[str]:
    """The first rows of the gold query's tables, with all their columns."""
    return [_answer(f"SELECT * FROM {_tables(example)} LIMIT 5") for example in examples]


def select_names(examples: Sequence[Example]) -> list[str]:
    """The gold query's own columns from its own tables, and nothing computed: all that *names*
    pays."""
    answers = []
    for example in examples:
        columns = sorted(_named_columns(example) - COLUMNS.keys())
        answers.append(
            _answer(f"SELECT {', '.join(columns) or '*'} FROM {_tables(example)} LIMIT 5")
        )
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
    """The perfect answer to the other question of these examples that has the most words in
    common."""
    said = [
        frozenset(_WORD.findall(example.reference["question"].casefold())) for example in examples
    ]
    answers = []
    for at, mine in enumerate(said):
        common = [
            (len(mine & other) / max(1, len(mine | other)), number)
            for number, other in enumerate(said)
        ]
        nearest = max((pair for pair in common if pair[1] != at), default=(0, at))[1]
        answers.append(gold_of(examples[nearest]))
    return answers


def _answer(query: str) -> str:
    return f"```sql\n{query}\n```\n{SENTENCE}"


def _named_columns(example: Example) -> frozenset[str]:
    query = read_query(example.reference["sql"])
    return query.names if isinstance(query, Query) else frozenset()


def _tables(example: Example) -> str:
    """The gold query's tables, joined."""
    return " NATURAL JOIN ".join(sorted(_named_columns(example) & COLUMNS.keys())) or "orders"


WAYS = {
    "nearest-gold": nearest_gold,
    "prompt-example": prompts_example,
    "select-null": select_null,
    "constants": constants,
    "count-tables": count_tables,
    "select-everything": select_everything,
    "select-names": select_names,
}


KINDS = {"question": str, "sql": str, "ordered": bool}


class SqlQa(Job):
    """See `Job`."""

    name, rubric, limits, ways = "sql_qa", rubric.RUBRIC, read_limits("sql_qa"), WAYS
    cluster = "family"
    pairs = staticmethod(pairs)

    def __init__(self, options: CommerceOptions, folder: Path) -> None:
        """See `Job`.

        Raises:
            ModelError: sqlglot is not installed.
        """
        check_installed("the job sql_qa", ("sqlglot",))
        super().__init__(options, folder)
        self.shops = cache(partial(databases, folder / "sql_qa"))

    @property
    def identity(self) -> str:
        """On how many shops a query must be right."""
        return f":{self.options.databases}"

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """See `Job.judge`."""
        return rubric.judge(example.reference, completion, self.shops(self.options.databases))

    @staticmethod
    def check(reference: Mapping[str, Any]) -> None:
        """See `Job.check`."""
        for key, kind in KINDS.items():
            if not isinstance(reference.get(key), kind):
                raise ValueError(  # noqa: TRY004 - a row of somebody's file, not an argument
                    f"the reference's {key} is {reference.get(key)!r}; it should be "
                    + ("true or false" if kind is bool else "a text")
                )

    def check_files(self) -> None:
        """See `Job.check_files`."""
        check_databases(self.folder / "sql_qa", self.options.databases)

    def check_gold(self, examples: Iterable[Example]) -> None:
        """See `Job.check_gold`."""
        for example in examples:
            try:
                gold.check_gold(example.reference["sql"], self.shops(self.options.databases))
            except DataError as error:
                raise RewardError(f"{example.id}: {error.cause}", error.fix) from error

    def canonicalise_answer(self, _example: Example, completion: str) -> Set[Hashable]:
        """What its query returns on the first shop; see `Job.canonicalise_answer`."""
        return rubric.canonicalise_answer(completion, *self.shops(1))
