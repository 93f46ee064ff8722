"""The same recipe with some values varied, one run after the other, and what came of each."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from plumbline import claims
from plumbline.checks import check_recipe
from plumbline.errors import PlumblineError, RecipeError
from plumbline.evaluation.comparison import compare
from plumbline.overrides import read_yaml
from plumbline.pipeline import run_recipe
from plumbline.recipe import Recipe, load
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.run import STAGES, Observer, Run, is_run

Observers = Callable[[Recipe, Path], Sequence[Observer]]
"""Who is told about a run, made anew for each."""


def variants(source: str | Path, overrides: Sequence[str], varied: Sequence[str]) -> dict[str, Recipe]:
    """Recipes by label, one for each combination of values.

    Args:
        source: a recipe's path or name.
        overrides: `a.b=value`, for all of them.
        varied: `a.b=value,value,...` each.

    Raises:
        RecipeError: nothing is varied, or a recipe is not valid.
    """
    choices = []
    for item in varied:
        key, found, values = item.partition("=")
        if not found or not values:
            raise RecipeError(f"--vary {item} names no values", "write it as --vary rl.beta=0,0.01,0.1")
        chosen = [f"{key}={_plain(value)}" for value in read_yaml(f"[{values}]", f"--vary {item}")]
        if twice := [one for one, count in Counter(chosen).items() if count > 1]:
            raise RecipeError(f"--vary {item} has {twice[0]} twice", "give each value once")
        choices.append(chosen)
    if not choices:
        raise RecipeError("a sweep varies something", "add for example --vary rl.beta=0,0.01,0.1")
    return {" ".join(chosen): load(source, [*overrides, *chosen]) for chosen in itertools.product(*choices)}


def _plain(value: Any) -> str:
    """A value as YAML on one line."""
    return str(yaml.safe_dump(value, default_flow_style=True, width=10_000)).removesuffix("...\n").strip()


def run_sweep(
    recipes: Mapping[str, Recipe], folder: Path, *, resume: bool, observers: Observers
) -> list[dict[str, Any]]:
    """Run them all, each in a folder of its own, and sum up. One that fails does not stop the others.

    Returns:
        One row for each: label, folder, and for each task and mode of decoding the reward before and after on the last
        split of `evaluation.final`, with the paired difference; the last KL where one was computed. Of one that failed,
        the error instead.

    Raises:
        StorageError: the folder holds what is not ours.
        PlumblineError: none of them ended well; the first error.
    """
    claims.check(folder, "sweep", _holds_runs)
    if not resume:
        _check_some(recipes.values())
    claims.claim(folder, "sweep", _holds_runs)
    rows: list[dict[str, Any]] = []
    failures: list[PlumblineError] = []
    for label, recipe in recipes.items():
        place = folder / label.replace(" ", "+").replace("/", "_")
        row: dict[str, Any] = {"variant": label, "folder": str(place)}
        try:
            run = run_recipe(recipe, place, resume=resume and place.exists(), observers=observers(recipe, place))
        except PlumblineError as error:
            failures.append(error)
            row["error"] = str(error)
        else:
            row |= _outcome(run)
        rows.append(row)
    if len(failures) == len(rows):
        raise failures[0]
    return rows


def _holds_runs(folder: Path) -> bool:
    """Whether a folder without our mark is a sweep of a version that left none."""
    return all(is_run(place) for place in folder.iterdir())


def _check_some(recipes: Iterable[Recipe]) -> None:
    """Raise the first error where none of the recipes can begin; where one can, the others' errors are rows."""
    first: PlumblineError | None = None
    for recipe in recipes:
        try:
            check_recipe(recipe)
        except PlumblineError as error:
            first = first or error
        else:
            return
    if first is not None:
        raise first


def _outcome(run: Run) -> dict[str, Any]:
    found = run.evaluations()
    stages = [stage for stage in STAGES if any(k.stage == stage and k.step is None for k in found)]
    split = run.recipe.evaluation.final[-1]
    outcome: dict[str, Any] = {"split": split}
    for task, mode in itertools.product(run.recipe.each_task, ("greedy", "sampled")):
        keys = [EvaluationKey(stage, split, mode, task=task) for stage in stages[-2:]]
        if len(keys) == 2 and all(key in found for key in keys):
            before, after = (found[key] for key in keys)
            paired = compare(before, after)
            outcome[f"{task} {mode}".strip()] = {
                "before": paired.before,
                "after": paired.after,
                "difference": paired.difference.mean,
                "low": paired.difference.low,
                "high": paired.difference.high,
                "p_value": paired.p_value,
                "n": paired.difference.n,
            }
    kls = [row["train/kl"] for row in run.rows("rl") if row.get("train/kl") is not None]
    outcome["kl"] = kls[-1] if kls else None
    return outcome
