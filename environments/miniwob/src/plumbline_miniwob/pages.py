"""The pages of MiniWoB++: what is known of each, and where it is: in the package `miniwob`, found
and not imported.

Importing it would import gymnasium and selenium, of which nothing is needed here.
"""

from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from plumbline.config.imports import missing_module_error
from plumbline.errors import RecipeError
from plumbline.tasks.tables import read_table


@cache
def table() -> dict[str, dict[str, str]]:
    """What `tasks.yaml` says of each page, by name."""
    found: dict[str, dict[str, str]] = read_table(Path(__file__).with_name("tasks.yaml"))
    return found


def is_reloaded(task: str) -> bool:
    """Whether a task's page is loaded again for each episode; one that `tasks.yaml` does not know
    is not."""
    return table().get(task, {}).get("reloaded") == "true"


@cache
def folder() -> Path:
    """The folder with a page for every task.

    Raises:
        RecipeError: the package is not installed, or holds no pages.
    """
    try:
        found = Path(str(distribution("miniwob").locate_file("miniwob/html/miniwob")))
    except PackageNotFoundError as error:
        lighter = (
            "`pip install --no-deps miniwob` and './environments/browser[playwright]', without "
            "selenium and gymnasium"
        )
        raise missing_module_error(
            "the miniwob task", "miniwob", RecipeError, lighter=lighter
        ) from error
    if not (found / "click-button.html").is_file():
        raise RecipeError(f"the package miniwob has no pages in {found}", "install miniwob 1.1.0")
    return found


@cache
def names() -> tuple[str, ...]:
    """The names of all tasks, in alphabetical order.

    Raises:
        RecipeError: see `folder`.
    """
    return tuple(sorted(path.stem for path in folder().glob("*.html")))


def address(task: str) -> str:
    """The address of a task's page.

    Raises:
        RecipeError: there is no such task.
    """
    if task not in names():
        raise RecipeError(f"MiniWoB++ has no task {task!r}", "see plumbline_miniwob.pages.names()")
    return (folder() / f"{task}.html").as_uri()
