"""Ways to answer without understanding the question: what they earn is the floor that every figure stands on."""

from collections.abc import Sequence

from plumbline.records import Example
from plumbline.tasks.commerce.sql_qa.engine import COLUMNS
from plumbline.tasks.commerce.sql_qa.gate import Query, read_query
from plumbline.tasks.controls import blank, constant, echo, shuffled_gold


def _answers(queries: Sequence[str], sentence: str) -> list[str]:
    return [f"```sql\n{query}\n```\n{sentence}" for query in queries]


def _table(example: Example) -> str:
    """A table of the gold query."""
    query = read_query(example.reference["sql"])
    return min(query.names & COLUMNS.keys()) if isinstance(query, Query) else "orders"


def select_null(examples: Sequence[Example]) -> list[str]:
    """A query that returns nothing of anything, with a sentence."""
    return _answers(["SELECT NULL AS resultado"] * len(examples), "O resultado foi {resultado} pedidos.")


def counted(examples: Sequence[Example]) -> list[str]:
    """The gold query's own tables, counted."""
    queries = [f"SELECT COUNT(*) AS total FROM {_table(example)}" for example in examples]  # noqa: S608 - it is judged
    return _answers(queries, "O total foi de {total} pedidos.")


def everything(examples: Sequence[Example]) -> list[str]:
    """The first rows of the gold query's first table, with all their columns."""
    queries = [f"SELECT * FROM {_table(example)} LIMIT 10" for example in examples]  # noqa: S608 - it is judged
    return _answers(queries, "O resultado foi {order_id} na tabela.")


CONTROLS = {
    "blank": blank,
    "echo": echo,
    "constant": constant,
    "shuffled-gold": shuffled_gold,
    "select-null": select_null,
    "count-tables": counted,
    "select-everything": everything,
}
