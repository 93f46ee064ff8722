"""The next recipe as a file: what it extends, and the keys that change, each with its because."""

import os
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from plumbline.checks.diagnosis.decide import Decision
from plumbline.errors import RecipeError, RunError
from plumbline.recipe import Recipe, differences, load
from plumbline.recipe.handoff import Change
from plumbline.runs.run import Run
from plumbline.storage import begins_with, write_text

WIDTH = 110
HEAD = "# Written by `plumbline decide`: "


def next_recipe(decision: Decision, run: Run, path: Path) -> list[tuple[str, Any, Any]]:
    """Write the recipe that a decision leads to; it extends the recipe of the run.

    Args:
        decision: with a branch taken.
        run: the first that was decided on.
        path: a new file, or one that was written by this function.

    Returns:
        What differs from the run's recipe: key, old and new value.

    Raises:
        RunError: nothing was decided, the branch changes nothing, or the file is somebody else's.
        RecipeError: with these changes it is no recipe.
        StorageError: it cannot be written.
    """
    if not decision.decided:
        raise RunError("the evidence does not decide, so there is no next recipe", decision.says)
    if not decision.changes:
        raise RunError(f"scenario {decision.scenario} changes no key, so there is no next recipe", decision.says)
    if path.suffix not in {".yaml", ".yml"}:
        raise RunError(f"{path} is no name for a recipe", "end it in .yaml")
    if path.exists() and not (path.is_file() and begins_with(path, HEAD)):
        raise RunError(f"{path} is there already, and `plumbline decide` did not write it", "give another --out")
    base = os.path.relpath((run.folder / "recipe.yaml").resolve(), path.parent.resolve())
    beside = path.with_name(f".{path.stem}.tmp.yaml")
    write_text(beside, as_text(decision, run.recipe, base))
    try:
        found = [row for row in differences(run.recipe, load(beside)) if row[0].partition(".")[0] not in UNSAID]
        if not found:
            raise RunError(
                f"the recipe of {run.folder} has all of {', '.join(decision.changes)} already",
                "nothing is left to change; give the branch other changes",
            )
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return found


UNSAID = frozenset({"name", "description", "decide"})
"""What every next recipe has of its own."""


def as_text(decision: Decision, recipe: Recipe, base: str) -> str:
    """The file's text.

    Args:
        decision: with a branch taken.
        recipe: of the run.
        base: the recipe that is extended, as the file says it.
    """
    lines = [f"{HEAD}scenario {decision.scenario} of {', '.join(decision.runs)}."]
    lines += _comment([decision.says, *decision.because, *decision.noise], "")
    lines += _entry("extends", base, 0)
    lines += _entry("name", f"{recipe.name}-{decision.scenario}".lower(), 0)
    lines += _entry("description", f"{recipe.name}, scenario {decision.scenario}: what was decided from its run.", 0)
    lines += _nested(decision.changes)
    if not any(key.partition(".")[0] == "decide" for key in decision.changes):
        lines += ["# The tree that led here asks about the run before.", "decide: null"]
    return "\n".join(lines) + "\n"


def _nested(changes: Mapping[str, Change], depth: int = 0) -> Iterator[str]:
    """Keys under their sections, in the order in which they come first."""
    sections: dict[str, dict[str, Change]] = {}
    for key, change in changes.items():
        first, _, rest = key.partition(".")
        sections.setdefault(first, {})[rest] = change
    for first, inner in sections.items():
        if "" in inner and len(inner) > 1:
            raise RecipeError(f"a branch changes {first} as a whole and a key in it", "give one of the two")
        if "" in inner:
            yield from _comment([inner[""].because], "  " * depth)
            yield from _entry(first, inner[""].to, depth)
        else:
            yield f"{'  ' * depth}{_flow(first)}:"
            yield from _nested(inner, depth + 1)


def _entry(key: str, value: Any, depth: int) -> list[str]:
    """A key with its value, in a line."""
    return [f"{'  ' * depth}{_flow(key)}: {_flow(value)}"]


def _flow(value: Any) -> str:
    """A value as YAML without a line break; in a list, because alone it may end in a mark of its own."""
    text = yaml.safe_dump([value], default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6)
    return text.strip()[1:-1]


def _comment(texts: list[str], indent: str) -> list[str]:
    mark = f"{indent}# "
    wrapped = [textwrap.wrap(text, WIDTH, initial_indent=mark, subsequent_indent=mark) for text in texts]
    return [line for lines in wrapped for line in lines]
