"""The prompt: the task and the tables, and a question."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from plumbline.records import Message
from plumbline.tasks.tables import read_table


@cache
def _written() -> dict[str, Any]:
    written: dict[str, Any] = read_table(Path(__file__).with_name("prompt.yaml"))
    return written


def schema(tables: Sequence[str] | None = None) -> str:
    """The tables that questions are about, or those named, one a line: name and columns."""
    described: dict[str, str] = _written()["tables"]
    return "\n".join(f"{name}({columns})" for name, columns in described.items() if tables is None or name in tables)


def messages(question: str, tables: Sequence[str], instructions: Literal["full", "short"]) -> list[Message]:
    """The prompt of a question.

    Args:
        question: in Portuguese.
        tables: those that its answer reads; the only ones that `short` shows.
        instructions: "full" explains the task and shows every table.
    """
    if instructions == "short":
        return [
            {"role": "system", "content": _written()["short"]},
            {"role": "user", "content": f"{schema(tables)}\nPergunta: {question}"},
        ]
    return [
        {"role": "system", "content": f"{_written()['full']}\nTabelas:\n{schema()}\n{_written()['notes']}"},
        {"role": "user", "content": question},
    ]


def gold(sql: str, sentence: str) -> str:
    """The oracle's answer."""
    return f"```sql\n{sql}\n```\n{sentence}"
