"""Examples and verifiers: what to ask, and what an answer is worth.

`TASKS` lists the tasks that come with Plumbline; `module:name` opens one of yours. An opener takes the recipe's
options, a folder that it may build its records in, and a callback for progress, and returns a `Task`. It should build
nothing yet: the first `examples` do, so that what is wrong with a command is said before anything is made.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plumbline.config.imports import named
from plumbline.errors import RecipeError
from plumbline.tasks.task import Task

TASKS = {
    "commerce": "plumbline_commerce.task:open_commerce",
    "forms": "plumbline_forms.task:open_forms",
    "jsonl": "plumbline.tasks.jsonl.task:open_jsonl",
    "miniwob": "plumbline_miniwob.task:open_miniwob",
}

VARIANTS = {"commerce": "plumbline_commerce.build:each_job"}
"""Tasks whose name alone stands for several: a function of (options, folder of the records) that gives the options of
each, by name; of one, by ""."""

Progress = Callable[[str, int, int], None]
"""Told (what is being built, how many are done, of how many)."""
Opener = Callable[[Mapping[str, Any], Path, Progress], Task]
NOWHERE = Path("no-records")
"""For a task that is opened for what it says about itself: nothing is there, and nothing is written there."""
PARTS = ("name", "splits", "rubric", "form", "examples", "judge", "demonstration", "controls")
"""What every task has (see `Task`)."""


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
    task = find_opener(name)(options, folder, progress)
    if lacking := [part for part in PARTS if not hasattr(task, part)]:
        raise RecipeError(
            f"{name} opened no task, but a {type(task).__name__} without {', '.join(lacking)}",
            "return what plumbline.tasks.task.Task asks for; plumbline.api.check_task checks it",
        )
    return task


def variants_of(name: str, options: Mapping[str, Any], folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """The options of each task that a name stands for: of commerce each job that the records have, where none is named.

    Args:
        name: see `open_task`, like `options`.
        options: of the task.
        folder: of its records, which need not be there.

    Returns:
        Options by name; one task has the name "".

    Raises:
        RecipeError: an option that the task does not know.
        DataError, StorageError: records that cannot be read.
    """
    return named(VARIANTS[name], "task")(options, folder) if name in VARIANTS else {"": options}


def find_opener(name: str) -> Opener:
    """What opens a task: a key of `TASKS`, or `module:opener`. Nothing is opened yet.

    Raises:
        RecipeError: there is no such task, or what is named takes no (options, folder, progress).
    """
    if name not in TASKS and (not name.partition(":")[2] or _is_recipe(name)):
        raise _no_task(name)
    opener: Opener = named(TASKS.get(name, name), "task")
    try:
        inspect.signature(opener).bind({}, Path(), silent)
    except (TypeError, ValueError) as error:  # ValueError: a builtin that does not say what it takes
        raise RecipeError(
            f"{name} opens no task: it cannot be called with (options, folder, progress)",
            "name a function or a class that takes these three and returns a task",
        ) from error
    return opener


def _is_recipe(name: str) -> bool:
    from plumbline.recipe import names  # here, because what reads JSON alone should not wait for it

    return name.partition(":")[0] in names()


def _no_task(name: str) -> RecipeError:
    from plumbline.recipe import find, names, tasks_in

    (close,) = difflib.get_close_matches(name.partition(":")[0], [*TASKS, *names()], n=1) or [""]
    if not close:
        fix = f"there are {', '.join(TASKS)}; a task of yours is module:name"
    elif close in TASKS:
        fix = f"did you mean {close}?"
    else:
        files = " or ".join(tasks_in(str(find(close))))
        fix = f"did you mean the recipe {close}? A recipe's task is named by the file: {files}"
    return RecipeError(f"there is no task named {name}", fix)
