"""Examples and verifiers: what to ask, and what an answer is worth.

`TASKS` lists the tasks that come with Plumbline; `module:name` opens one of yours. An opener takes the recipe's
options, a folder that it may build its records in, and a callback for progress, and returns a `Task`.
"""

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plumbline.errors import RecipeError
from plumbline.imports import named
from plumbline.tasks.task import Task

TASKS = {
    "commerce": "plumbline.tasks.commerce.task:open_commerce",
    "forms": "plumbline.tasks.forms.task:open_forms",
    "jsonl": "plumbline.tasks.jsonl.task:open_jsonl",
}

Progress = Callable[[str, int, int], None]
"""Told (what is being built, how many are done, of how many)."""
Opener = Callable[[Mapping[str, Any], Path, Progress], Task]


def silent(what: str, done: int, total: int) -> None:
    """A progress callback for callers that show none."""


def open_task(name: str, options: Mapping[str, Any], folder: Path, progress: Progress = silent) -> Task:
    """Open a task by name.

    Args:
        name: a key of `TASKS`, or `module:opener`.
        options: the task's own options, checked by it.
        folder: where it may build records that it needs and does not find.
        progress: told about anything that takes a while.

    Raises:
        RecipeError: no such task, or an option that it does not know.
        DataError: its records are missing or malformed.
    """
    if name not in TASKS and ":" not in name:
        close = difflib.get_close_matches(name, TASKS, n=1)
        mend = f"did you mean {close[0]}?" if close else f"there are {', '.join(TASKS)}; a task of yours is module:name"
        raise RecipeError(f"there is no task named {name}", mend)
    open_it: Opener = named(TASKS.get(name, name), "task")
    return open_it(options, folder, progress)
