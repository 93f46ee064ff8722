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
from plumbline.evaluation.statistics import mean, t_interval
from plumbline.overrides import read_yaml
from plumbline.pipeline import run_recipe
from plumbline.recipe import Recipe, load
from plumbline.reports.sweep_page import sweep_page
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.live import LiveView
from plumbline.runs.run import STAGES, Observer, Run, is_run
from plumbline.runs.trackers import open_trackers
from plumbline.storage import write_text

Observers = Callable[[Recipe, Path], Sequence[Observer]]
"""Who is told about a run, made anew for each."""


def variants(
    source: str | Path, overrides: Sequence[str], varied: Sequence[str], seeds: str | None = None
) -> dict[str, Recipe]:
    """Recipes by label, one for each combination of values; where there are seeds, they come last in a label.

    Args:
        source: a recipe's path or name.
        overrides: `a.b=value`, for all of them.
        varied: `a.b=value,value,...` each.
        seeds: `42,123,456`.

    Raises:
        RecipeError: nothing is varied, the seed is set elsewhere, too, or a recipe is not valid.
    """
    set_twice = [one for one in [*overrides, *varied] if one.partition("=")[0].strip() == "seed"]
    if seeds is not None and set_twice:
        raise RecipeError(f"--seeds {seeds} and {set_twice[0]} both set the seed", "give --seeds alone")
    given = {f"--vary {item}": item for item in varied}
    choices = []
    for said, item in (given if seeds is None else {**given, f"--seeds {seeds}": f"seed={seeds}"}).items():
        key, found, values = item.partition("=")
        if not found or not values:
            raise RecipeError(f"{said} names no values", "write it as --vary rl.beta=0,0.01,0.1")
        chosen = [f"{key}={_plain(value)}" for value in read_yaml(f"[{values}]", said)]
        if twice := [one for one, count in Counter(chosen).items() if count > 1]:
            raise RecipeError(f"{said} has {twice[0]} twice", "give each value once")
        choices.append(chosen)
    if not choices:
        raise RecipeError("a sweep varies something", "add --seeds 42,123,456 or for example --vary rl.beta=0,0.01,0.1")
    return {" ".join(chosen): load(source, [*overrides, *chosen]) for chosen in itertools.product(*choices)}


def _plain(value: Any) -> str:
    """A value as YAML on one line."""
    return str(yaml.safe_dump(value, default_flow_style=True, width=10_000)).removesuffix("...\n").strip()


def run_sweep(
    recipes: Mapping[str, Recipe], folder: Path, *, resume: bool, observers: Observers
) -> list[dict[str, Any]]:
    """Run them all, each in a folder of its own, and sum up. One that fails does not stop the others.

    Returns:
        One row for each: label, seed, folder, and for each task and mode of decoding the reward before and after on
        the last split of `evaluation.final`, with the paired difference; the last KL where one was computed. Of one
        that failed, the error instead.

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
        row: dict[str, Any] = {"variant": label, "seed": recipe.seed, "folder": str(place)}
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


def over_seeds(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What several seeds of the same values came to together, for each task and mode of decoding.

    Args:
        rows: of `run_sweep`, of recipes that `variants` made with seeds.

    Returns:
        A row for each variant (the label without its seed), task and mode: the means over the seeds before and after,
        the mean of their differences with Student's interval over the seeds (null for a single one), each seed's own
        row by its number, and the seeds that failed.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["variant"].removesuffix(f"seed={row['seed']}").strip(), []).append(row)
    found = []
    for label, members in groups.items():
        failed = [row["seed"] for row in members if "error" in row]
        for mode in dict.fromkeys(key for row in members for key, value in row.items() if isinstance(value, dict)):
            seeds = {row["seed"]: row[mode] for row in members if mode in row}
            changed = t_interval([one["difference"] for one in seeds.values()])
            found.append(
                {
                    "variant": label,
                    "asked": mode,
                    "before": mean([one["before"] for one in seeds.values()]),
                    "after": mean([one["after"] for one in seeds.values()]),
                    "difference": changed.mean,
                    "low": changed.low if changed.n > 1 else None,
                    "high": changed.high if changed.n > 1 else None,
                    "n": changed.n,
                    "seeds": seeds,
                    "failed": failed,
                }
            )
    return found


def write_page(recipes: Mapping[str, Recipe], folder: Path, rows: Sequence[Mapping[str, Any]], command: str) -> Path:
    """Write the report of a sweep over seeds into its folder, as one HTML file; its path.

    Args:
        recipes: that were run, as `variants` gave them.
        folder: of the sweep.
        rows: what `run_sweep` returned.
        command: that made it.
    """
    runs = [(row["variant"], row["seed"], Run.read(Path(row["folder"]))) for row in rows if "error" not in row]
    first = next(iter(recipes.values()))
    path = folder / "report.html"
    write_text(path, sweep_page(first, over_seeds(rows), runs, [row for row in rows if "error" in row], command))
    return path


def shown_live(recipe: Recipe, folder: Path) -> Sequence[Observer]:
    """The terminal's view of a run, and the recipe's trackers."""
    view = LiveView()
    view.event("note", f"run {folder}")
    return [view, *open_trackers(recipe, folder, lambda message: view.event("tracker", message))]


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
    modes = dict.fromkeys(key.mode for key in sorted(found, key=str) if key.stage == stages[-1] and key.step is None)
    for task, mode in itertools.product(run.recipe.each_task, modes):
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
