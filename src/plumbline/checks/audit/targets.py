"""What the word after `plumbline audit` names: a task, the tasks of a recipe, or a reward function with rows."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plumbline.config.imports import dotted, named
from plumbline.errors import RecipeError
from plumbline.evaluation.command import records_folder
from plumbline.recipe import load, names, task_section
from plumbline.tasks import Progress, open_task, silent, task_names, variants_of
from plumbline.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Target:
    """A task that is to be opened."""

    name: str
    options: Mapping[str, Any]
    folder: Path

    def open(self, progress: Progress = silent) -> Task:
        """See `plumbline.tasks.open_task`."""
        return open_task(self.name, self.options, self.folder, progress)


def targets(name: str, options: Mapping[str, Any], rows: Path | None, data: Path | None) -> dict[str, Target]:
    """What is meant, task by task; a single one has the name "".

    Args:
        name: a task (one with variants stands for each), a recipe (for all its tasks, or RECIPE:NAME for one), or,
            with rows, a reward function as `module:function`, or several with commas between.
        options: of the task, over a recipe's.
        rows: a file of JSON lines, for a reward function.
        data: where the records are, else data/TASK.

    Raises:
        RecipeError: there is no such thing, or an option that it does not have.
        DataError, StorageError: records that cannot be read.
    """
    name = dotted(name)
    if rows is not None:
        scored = {"train": str(rows), "score": name.split(",") if "," in name else name}
        return {"": Target("jsonl", {**scored, **options}, Path("data") / "jsonl")}
    path, _, one = name.partition(":")
    if path not in task_names() and (Path(path).suffix in {".yaml", ".yml"} or path in names()):
        sections = {one: task_section(name, ())} if one and Path(path).suffix else load(path).each_task
        if one and one not in sections:
            raise RecipeError(f"the recipe {path} has no task {one}", f"it has {', '.join(filter(None, sections))}")
        wanted = {one: sections[one]} if one else sections
        return {
            label: Target(task.name, {**task.options, **options}, records_folder(task.name, data))
            for label, task in wanted.items()
        }
    if one and name not in task_names():
        _refuse_functions(name)
    folder = records_folder(name, data)
    return {label: Target(name, one_of, folder) for label, one_of in variants_of(name, options, folder).items()}


def _refuse_functions(name: str) -> None:
    """A scoring function opens no task, though its parameters may be as many as an opener's.

    Raises:
        RecipeError: it is one.
    """
    try:
        parameters = inspect.signature(named(name, "task")).parameters
    except (TypeError, ValueError):
        return  # which is said where it is opened
    if {"completion", "completions", "solution_str"} & parameters.keys():
        raise RecipeError(f"{name} is a scoring function, and no task", "add --rows with a file of JSON lines")
