"""Plumbline: find out why an RL run does not learn, test a reward, and train small models.

The public interface; everything is loaded when it is first used, so that this import costs nothing:

    run, dry_run, evaluate, compare, load_recipe, open_task, check_task     what to do
    Task, Example, Outcome, Score                                           to write a task
    Evaluation, Recipe, RunRecord, PlumblineError                           what comes of it

`docs/your-task.md` has each of them at work.
"""

import importlib

from plumbline.version import __version__ as __version__

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself takes ten milliseconds
    from typing import Any

    from plumbline.api import check_task, dry_run, evaluate, open_task, run
    from plumbline.errors import PlumblineError
    from plumbline.evaluation.comparison import compare
    from plumbline.recipe import Recipe, load_recipe
    from plumbline.records import Evaluation, Example, Outcome, Score
    from plumbline.runs.record import RunRecord
    from plumbline.tasks.task import Task

_HOMES = {
    "Evaluation": "records",
    "Example": "records",
    "Outcome": "records",
    "PlumblineError": "errors",
    "Recipe": "recipe",
    "RunRecord": "runs.record",
    "Score": "records",
    "Task": "tasks.task",
    "check_task": "api",
    "compare": "evaluation.comparison",
    "dry_run": "api",
    "evaluate": "api",
    "load_recipe": "recipe",
    "open_task": "api",
    "run": "api",
}
"""Where each public name is defined."""

__all__ = [
    "Evaluation",
    "Example",
    "Outcome",
    "PlumblineError",
    "Recipe",
    "RunRecord",
    "Score",
    "Task",
    "check_task",
    "compare",
    "dry_run",
    "evaluate",
    "load_recipe",
    "open_task",
    "run",
]


def __getattr__(name: str) -> "Any":
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
