"""A working directory with a file of rows and a module of scoring functions, as a user has them."""

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from plumbline.tasks import open_task
from plumbline.tasks.task import Task

NUMBERS = itertools.count()


class Workplace:
    """The user's folder; modules have names that no other test's have, because Python keeps what it
    imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.module = f"scoring_{next(NUMBERS)}"

    def rows(self, rows: list[Any], name: str = "rows.jsonl") -> str:
        (self.folder / name).write_text(
            "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
        )
        return name

    def functions(self, source: str) -> None:
        (self.folder / f"{self.module}.py").write_text(source, encoding="utf-8")

    def options(self, score: str | list[str] = "score", **options: Any) -> dict[str, Any]:
        names = [f"{self.module}:{name}" for name in ([score] if isinstance(score, str) else score)]
        values = {
            "train": "rows.jsonl",
            "score": names[0] if isinstance(score, str) else names,
            **options,
        }
        return {key: value for key, value in values.items() if value is not None}

    def open(self, score: str | list[str] = "score", **options: Any) -> Task:
        return open_task("jsonl", self.options(score, **options), Path("nowhere"))


def sums(count: int = 40) -> list[dict[str, Any]]:
    return [
        {"prompt": f"{n} + {n + 1} = ?", "answer": str(2 * n + 1), "kind": "odd"}
        for n in range(count)
    ]


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    place = Workplace(tmp_path)
    place.rows(sums())
    place.functions(
        "def score(completion, answer):\n    return float(completion.strip() == answer)\n"
    )
    return place
