"""The same recipe with some values varied, one run after the other or side by side, and what came
of each."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from plumbline.checks.refusals import check_recipe
from plumbline.config.overrides import read_yaml
from plumbline.errors import PlumblineError, RecipeError
from plumbline.evaluation.comparison import compare
from plumbline.evaluation.statistics import mean, t_interval
from plumbline.recipe import Recipe, load_recipe, parse_recipe
from plumbline.records import group_by_key
from plumbline.reports.run_comparison import sweep_page
from plumbline.runs import output_guard
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.observers import LiveView, open_trackers
from plumbline.runs.record import STAGES, RunRecord
from plumbline.runs.run import Observer
from plumbline.storage import write_text
from plumbline.training.pipeline import run_recipe

if TYPE_CHECKING:
    from plumbline.engines.workers import Home

Observers = Callable[[Recipe, Path], Sequence[Observer]]
"""Who is told about a run, made again for each."""
DEATHS = 3
"""Processes that one run may lose."""


def list_variants(
    source: str | Path, overrides: Sequence[str], varied: Sequence[str], seeds: str | None = None
) -> dict[str, Recipe]:
    """Recipes by label, one for each combination of values; where there are seeds, they come last
    in a label.

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
        raise RecipeError(
            f"--seeds {seeds} and {set_twice[0]} both set the seed", "give --seeds alone"
        )
    given = {f"--vary {item}": item for item in varied}
    choices = []
    for said, item in (
        given if seeds is None else {**given, f"--seeds {seeds}": f"seed={seeds}"}
    ).items():
        key, found, values = item.partition("=")
        if not found or not values:
            raise RecipeError(f"{said} names no values", "write it as --vary rl.beta=0,0.01,0.1")
        chosen = [f"{key}={_override_text(value)}" for value in read_yaml(f"[{values}]", said)]
        if twice := [one for one, count in Counter(chosen).items() if count > 1]:
            raise RecipeError(f"{said} has {twice[0]} twice", "give each value once")
        choices.append(chosen)
    if not choices:
        raise RecipeError(
            "a sweep varies something",
            "add --seeds 42,123,456 or for example --vary rl.beta=0,0.01,0.1",
        )
    return {
        " ".join(chosen): load_recipe(source, [*overrides, *chosen])
        for chosen in itertools.product(*choices)
    }


def _override_text(value: Any) -> str:
    """A value as YAML on one line."""
    return (
        str(yaml.safe_dump(value, default_flow_style=True, width=10_000))
        .removesuffix("...\n")
        .strip()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """That runs are Ray tasks, so many at once, on the cluster at an address."""

    at_once: int
    address: str | None = None
    """HOST:PORT or auto; None is that of RAY_ADDRESS, else a local cluster."""
    told: Callable[[str], None] = print
    """Hears of each run that begins and that ends."""


def run_sweep(
    recipes: Mapping[str, Recipe],
    folder: Path,
    *,
    resume: bool,
    observers: Observers,
    spread: SideBySide | None = None,
) -> list[dict[str, Any]]:
    """Run them all, each in a folder of its own, and sum up. One that fails does not stop the
    others.

    Args:
        recipes: by label.
        folder: for all of them; on a cluster its machines must share it.
        resume: go on with what is there.
        observers: of each run, where they run one after the other in this process.
        spread: how they run side by side; None runs them one after the other.

    Returns:
        One row for each: label, seed, folder, and for each task and mode of decoding the reward
            before and after on
        the last split of `evaluation.final`, with the paired difference; the last KL where one was
        computed. Of one that failed, the error instead.

    Raises:
        StorageError: the folder holds what is not ours.
        PlumblineError: none of them ended well; the first error.
    """
    output_guard.check_folder(folder, "sweep")
    if not resume:
        _check_some(recipes.values())
    places = {label: folder / label.replace(" ", "+").replace("/", "_") for label in recipes}
    failures: dict[str, PlumblineError] = {}
    if spread is not None:
        failures = _run_side_by_side(recipes, places, spread, resume=resume)
    else:
        output_guard.claim_folder(folder, "sweep")
        for label, recipe in recipes.items():
            place = places[label]
            try:
                run_recipe(
                    recipe,
                    place,
                    resume=resume and place.exists(),
                    observers=observers(recipe, place),
                )
            except PlumblineError as error:
                failures[label] = error
    if len(failures) == len(recipes):
        raise next(iter(failures.values()))
    rows: list[dict[str, Any]] = []
    for label, recipe in recipes.items():
        row: dict[str, Any] = {"variant": label, "seed": recipe.seed, "folder": str(places[label])}
        failed = failures.get(label)
        rows.append(
            {**row, "error": str(failed)}
            if failed is not None
            else row | _outcome(RunRecord.read(places[label]))
        )
    return rows


def _run_side_by_side(
    recipes: Mapping[str, Recipe], places: Mapping[str, Path], spread: SideBySide, *, resume: bool
) -> dict[str, PlumblineError]:
    """Run them as Ray tasks; the errors of those that failed. One whose process dies is gone on
    with in another.

    Raises:
        ModelError: Ray is not installed.
        EngineError: no cluster answers, or its head is gone.
    """
    from plumbline.engines.workers import LOOK, check_head, connect_cluster, process_home

    waiting, failures = list(recipes), dict[str, PlumblineError]()
    deaths: Counter[str] = Counter()
    import torch

    each = max(
        one.scale.verdicts + one.scale.samplers + one.scale.learners for one in recipes.values()
    )
    with connect_cluster(spread.address, spread.at_once * each, "a sweep side by side"):
        output_guard.claim_folder(next(iter(places.values())).parent, "sweep")
        import ray
        from ray.exceptions import RayError

        going: dict[Any, str] = {}
        while waiting or going:
            while waiting and len(going) < spread.at_once:
                label = waiting.pop(0)
                recipe, place = recipes[label], places[label].absolute()
                gpus = int(_on_gpu(recipe.model.device, ray.cluster_resources()))
                task = ray.remote(_run_there).options(num_cpus=1, num_gpus=gpus, max_retries=0)
                go_on = (resume or deaths[label] > 0) and place.exists()
                threads = torch.get_num_threads()  # Ray gives a process one
                going[
                    task.remote(recipe.to_yaml(), place, process_home(), threads, resume=go_on)
                ] = label
                spread.told(f"{label}: begun, in {places[label]}")
            while not (over := ray.wait(list(going), timeout=LOOK)[0]):
                check_head()
            (ended,) = over
            label = going.pop(ended)
            try:
                failed = ray.get(ended)
            except RayError as error:
                deaths[label] += 1
                if deaths[label] <= DEATHS:
                    spread.told(f"{label}: its process died, and another continues it")
                    waiting.insert(0, label)
                    continue
                failed = (
                    str(error).strip().splitlines()[-1],
                    f"its process died {DEATHS + 1} times; see {places[label]}",
                )
            if failed is not None:
                failures[label] = PlumblineError(*failed)
            left = len(waiting) + len(going)
            spread.told(
                f"{label}: {'ended' if failed is None else f'failed: {failed[0]}'}, {left} left"
            )
    return failures


def _on_gpu(device: str, has: Mapping[str, float]) -> bool:
    """Whether a run takes a GPU of what the cluster has: Ray hides them from a task that asks for
    none."""
    return device.startswith("cuda") or (device == "auto" and has.get("GPU", 0) > 0)


def _run_there(
    recipe: str, place: Path, home: "Home", threads: int, *, resume: bool
) -> tuple[str, str] | None:
    """In a process of the cluster: the run, or cause and remedy of its error."""
    import torch

    from plumbline.engines.workers import adopt_home

    torch.set_num_threads(threads)
    adopt_home(home)
    try:
        run_recipe(parse_recipe(read_yaml(recipe, "the recipe")), place, resume=resume)
    except PlumblineError as error:
        return error.cause, error.fix
    return None


def summarise_seeds(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What several seeds of the same values came to together, for each task and mode of decoding.

    Args:
        rows: of `run_sweep`, of recipes that `list_variants` made with seeds.

    Returns:
        A row for each variant (the label without its seed), task and mode: the means over the seeds
        before and after, the mean of their differences with Student's interval over the seeds (null
        for a single one), each seed's own row by its number, and the seeds that failed.
    """
    groups = group_by_key(
        (row["variant"].removesuffix(f"seed={row['seed']}").strip(), row) for row in rows
    )
    found = []
    for label, members in groups.items():
        failed = [row["seed"] for row in members if "error" in row]
        for mode in dict.fromkeys(
            key for row in members for key, value in row.items() if isinstance(value, dict)
        ):
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


def write_page(
    recipes: Mapping[str, Recipe], folder: Path, rows: Sequence[Mapping[str, Any]], command: str
) -> Path:
    """Write the report of a sweep over seeds into its folder, as one HTML file; its path.

    Args:
        recipes: that were run, as `list_variants` gave them.
        folder: of the sweep.
        rows: what `run_sweep` returned.
        command: that made it.
    """
    runs = [
        (row["variant"], row["seed"], RunRecord.read(Path(row["folder"])))
        for row in rows
        if "error" not in row
    ]
    first = next(iter(recipes.values()))
    path = folder / "report.html"
    write_text(
        path,
        sweep_page(
            first, summarise_seeds(rows), runs, [row for row in rows if "error" in row], command
        ),
    )
    return path


def open_observers(recipe: Recipe, folder: Path) -> Sequence[Observer]:
    """The terminal's view of a run, and the recipe's trackers."""
    view = LiveView()
    view.event("note", f"run {folder}")
    return [view, *open_trackers(recipe, folder, lambda message: view.event("tracker", message))]


def _check_some(recipes: Iterable[Recipe]) -> None:
    """Raise the first error where none of the recipes can begin; where one can, the others' errors
    are rows."""
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


def _outcome(run: RunRecord) -> dict[str, Any]:
    found = run.evaluations()
    stages = [stage for stage in STAGES if any(k.stage == stage and k.step is None for k in found)]
    split = run.recipe.evaluation.final[-1]
    outcome: dict[str, Any] = {"split": split}
    modes = dict.fromkeys(
        key.mode for key in sorted(found, key=str) if key.stage == stages[-1] and key.step is None
    )
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
