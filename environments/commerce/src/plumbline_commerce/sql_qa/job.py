"""The job: one SELECT that answers a question, and a sentence for its result.

An answer is a block of SQL and then one sentence in Portuguese, in which values of the result stand as placeholders:
the column's name in braces, filled in from the first row of what the query returns.

    ```sql
    SELECT COUNT(*) AS pedidos FROM orders_enriched WHERE customer_state = 'SP'
    ```
    Foram {pedidos} pedidos em São Paulo.

A pair's reference holds

    question    text: what is asked; a number in the sentence may stand here
    sql         text: the gold query, whose result is the answer
    ordered     true or false: whether the question asks for an order of rows

The gold query returns at least a row on some database (`engine.py`), and not the same rows on all of them.
Its LIMIT and its ORDER BY decide which ties may be broken either way, whatever `ordered` says (`gold.py`).
"""

from collections.abc import Hashable, Iterable, Mapping, Set
from functools import cache, partial
from pathlib import Path
from typing import Any

from plumbline.config.imports import check_installed
from plumbline.errors import DataError, RewardError
from plumbline.records import Example, Outcome, Score
from plumbline_commerce.job import Job, read_limits
from plumbline_commerce.options import CommerceOptions
from plumbline_commerce.sql_qa import gold, rubric
from plumbline_commerce.sql_qa.controls import WAYS
from plumbline_commerce.sql_qa.engine import check_databases, databases
from plumbline_commerce.sql_qa.pairs import pairs

KINDS = {"question": str, "sql": str, "ordered": bool}


class SqlQa(Job):
    """See `Job`."""

    name, rubric, limits, ways = "sql_qa", rubric.RUBRIC, read_limits("sql_qa"), WAYS
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

    def said(self, _example: Example, completion: str) -> Set[Hashable]:
        """What its query returns on the first shop; see `Job.said`."""
        return rubric.said(completion, *self.shops(1))
