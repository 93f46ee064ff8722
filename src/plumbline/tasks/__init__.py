"""Examples and verifiers: what to ask, and what an answer is worth.

A name is `jsonl`, or what an installed package declares as an entry point of the group
`plumbline.tasks`; `module:name` opens one of yours. An opener takes the recipe's options, a folder
that it may build its records in, and a callback for progress, and returns a `Task`. It should build
nothing yet: the first `examples` do, so that what is wrong with a command is said before anything
is made. It may have three attributes: `variants`, a function of (options, folder) where its name
alone stands for several tasks, `served`, options for a task that is opened for somebody who asks a
server, and `part`, the option that `NAME:PART` sets (`reasoning_gym:basic_arithmetic`).
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plumbline.config.imports import import_named, import_own, load_entry_point, plugins
from plumbline.errors import RecipeError
from plumbline.tasks.task import PARTS, Task, as_task

JSONL = "jsonl"
"""The task of a user's own rows and scoring function; every other task is an installed
package's."""

Progress = Callable[[str, int, int], None]
"""Told (what is being built, how many are done, of how many)."""
Opener = Callable[[Mapping[str, Any], Path, Progress], Task]
NOWHERE = Path("no-records")
"""For a task that is opened for what it says about itself: nothing is there, and nothing is written
there."""


def task_names() -> list[str]:
    """Tasks that have a name: `jsonl`, and those of installed packages."""
    return sorted({JSONL, *plugins("plumbline.tasks")})


def silent(what: str, done: int, total: int) -> None:
    """A progress callback for callers that show none."""


def open_task(
    name: str, options: Mapping[str, Any], folder: Path, progress: Progress = silent
) -> Task:
    """Open a task by name.

    Args:
        name: see `task_names`, or `module:opener`.
        options: the task's own options, checked by it.
        folder: where it may build records that it needs and does not find.
        progress: told about anything that takes a while.

    Raises:
        RecipeError: no such task, or an option that it does not know.
        DataError: its records are missing or malformed.
    """
    task = find_opener(name)(options, folder, progress)
    own = {
        part: getattr(type(task), part, None) is not vars(Task).get(part, task) for part in PARTS
    }
    if lacking := [part for part in PARTS if not (own[part] and hasattr(task, part))]:
        raise RecipeError(
            f"{name} opened no task, but a {type(task).__name__} without {', '.join(lacking)}",
            "return what plumbline.tasks.task.Task asks for; plumbline.api.check_task checks it",
        )
    return as_task(task)


def variants_of(
    name: str, options: Mapping[str, Any], folder: Path
) -> Mapping[str, Mapping[str, Any]]:
    """The options of each task that a name stands for, such as each of several jobs.

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
    variants = getattr(find_opener(name), "variants", None) if name in task_names() else None
    return {"": options} if variants is None else variants(options, folder)


def find_opener(name: str) -> Opener:
    """What opens a task: one of `task_names`, or `module:opener`. Nothing is opened yet.

    Raises:
        RecipeError: there is no such task, or what is named takes no (options, folder, progress).
    """
    if (whole := _with_part(name)) is not None:
        return whole
    installed = {} if name == JSONL or ":" in name else plugins("plumbline.tasks")
    if name != JSONL and name not in installed and (not name.partition(":")[2] or _is_recipe(name)):
        raise _no_task(name)
    opener: Opener
    if name in installed:
        opener = load_entry_point(installed[name], "task")
    elif name == JSONL:
        opener = import_own("plumbline.tasks.jsonl.task:open_jsonl", "task")
    else:
        opener = import_named(name, "task")
    try:
        inspect.signature(opener).bind({}, Path(), silent)
    # ValueError: a builtin that does not say what it takes
    except (TypeError, ValueError) as error:
        raise RecipeError(
            f"{name} opens no task: it cannot be called with (options, folder, progress)",
            "name a function or a class that takes these three and returns a task",
        ) from error
    return opener


def _with_part(name: str) -> Opener | None:
    """What opens `NAME:PART`, where NAME is an installed task that has parts; else None."""
    task, _, part = name.partition(":")
    if not part or (entry := plugins("plumbline.tasks").get(task)) is None:
        return None
    opener = load_entry_point(entry, "task")
    option = getattr(opener, "part", None)
    if option is None:
        return None

    def opened(options: Mapping[str, Any], folder: Path, progress: Progress) -> Task:
        found: Task = opener({option: part, **options}, folder, progress)
        return found

    return opened


def _is_recipe(name: str) -> bool:
    from plumbline.recipe import (
        list_recipe_names,  # here, because what reads JSON alone should not wait for it
    )

    return name.partition(":")[0] in list_recipe_names()


def _no_task(name: str) -> RecipeError:
    from plumbline.recipe import find_recipe, list_recipe_names, list_task_names

    tasks = task_names()
    (close,) = difflib.get_close_matches(
        name.partition(":")[0], [*tasks, *list_recipe_names()], n=1
    ) or [""]
    if not close:
        fix = (
            f"there are {', '.join(tasks)}; a task of yours is module:name; `pip install "
            "./environments/*` in a clone of Plumbline brings its environments"
        )
    elif close in tasks:
        fix = f"did you mean {close}?"
    else:
        files = " or ".join(list_task_names(str(find_recipe(close))))
        fix = f"did you mean the recipe {close}? A recipe's task is named by the file: {files}"
    return RecipeError(f"there is no task named {name}", fix)
