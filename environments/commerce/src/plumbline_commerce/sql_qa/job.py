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

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from functools import lru_cache
from pathlib import Path
from typing import Any

from plumbline.config.imports import check_installed
from plumbline.errors import DataError, RewardError
from plumbline.records import Example
from plumbline_commerce.job import Job, Verdict
from plumbline_commerce.options import CommerceOptions
from plumbline_commerce.sql_qa import gold, rubric
from plumbline_commerce.sql_qa.controls import CONTROLS, LIMITS
from plumbline_commerce.sql_qa.engine import check_databases, databases
from plumbline_commerce.sql_qa.pairs import pairs

KINDS = {"question": str, "sql": str, "ordered": bool}


def check(reference: Mapping[str, Any]) -> None:
    """See `Job.check`."""
    for key, kind in KINDS.items():
        if not isinstance(reference.get(key), kind):
            raise ValueError(  # noqa: TRY004 - a row of somebody's file, not an argument
                f"the reference's {key} is {reference.get(key)!r}; it should be "
                + ("true or false" if kind is bool else "a text")
            )


def verdict(options: CommerceOptions, folder: Path) -> Verdict:
    """See `Job.verdict`.

    Raises:
        ModelError: sqlglot is not installed.
    """
    check_installed("the job sql_qa", ("sqlglot",))
    shops = lru_cache(maxsize=1)(lambda: databases(folder / "sql_qa", options.databases))
    return lambda example, completion: rubric.judge(example.reference, completion, shops())


def check_gold(options: CommerceOptions, folder: Path, examples: Sequence[Example]) -> None:
    """See `Job.check_gold`."""
    shops = databases(folder / "sql_qa", options.databases)
    for example in examples:
        try:
            gold.check_gold(example.reference["sql"], shops)
        except DataError as error:
            raise RewardError(f"{example.id}: {error.cause}", error.fix) from error


def said(folder: Path) -> Callable[[Example, str], Set[Hashable]]:
    """See `Job.said`: what its query returns on the first shop."""
    shops = lru_cache(maxsize=1)(lambda: databases(folder / "sql_qa", 1))
    return lambda _example, completion: rubric.said(completion, *shops())


JOB = Job(
    name="sql_qa",
    rubric=rubric.RUBRIC,
    controls=CONTROLS,
    limits=LIMITS,
    pairs=pairs,
    check=check,
    verdict=verdict,
    check_gold=check_gold,
    check_files=lambda options, folder: check_databases(folder / "sql_qa", options.databases),
    identity=lambda options: f":{options.databases}",
    said=said,
)
