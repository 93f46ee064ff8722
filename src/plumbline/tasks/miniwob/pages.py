"""Where the pages of MiniWoB++ are: in the package `miniwob`, which is found and not imported.

Importing it would import gymnasium and selenium, of which nothing is needed here.
"""

from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from plumbline.errors import RecipeError
from plumbline.imports import missing

RELOADED: frozenset[str] = frozenset(
    ("drag-cube", "scroll-text", "scroll-text-2", "search-engine", "stock-market", "use-colorwheel", "use-colorwheel-2")
)
"""Tasks whose pages keep something of an episode that the next one would show; they are loaded anew for each. Found by
`python -m plumbline.tasks.miniwob.browser.try --leaks`."""


@cache
def folder() -> Path:
    """The folder with a page for every task.

    Raises:
        RecipeError: the package is not installed, or holds no pages.
    """
    try:
        found = Path(str(distribution("miniwob").locate_file("miniwob/html/miniwob")))
    except PackageNotFoundError as error:
        raise missing("the miniwob task", "miniwob", RecipeError, extra="miniwob") from error
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
        raise RecipeError(f"MiniWoB++ has no task {task!r}", "see plumbline.tasks.miniwob.pages.names()")
    return (folder() / f"{task}.html").as_uri()
