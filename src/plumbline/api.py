"""Plumbline from Python: what the commands do, as functions. `import plumbline` has these names and loads them late."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from plumbline import recipe as recipes
from plumbline import tasks
from plumbline.errors import RecipeError
from plumbline.evaluation.models import ModelOptions, check_name, evaluate_model
from plumbline.imports import consent, named, typed
from plumbline.pipeline import run_recipe
from plumbline.preflight.dry_run import DryRun
from plumbline.preflight.dry_run import dry_run as look_ahead
from plumbline.recipe import Recipe, section
from plumbline.records import Evaluation
from plumbline.refusals import check_recipe
from plumbline.remote import folder_for, is_address, join, local_model
from plumbline.runs.live import LiveView
from plumbline.runs.published import published
from plumbline.runs.run import Observer, Run, Silent
from plumbline.runs.trackers import open_trackers
from plumbline.tasks.task import Task


def run(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    overrides: Sequence[str] = (),
    out: str | Path | None = None,
    resume: bool = False,
    quiet: bool = False,
    trust_code: bool = False,
) -> Run:
    """Train and evaluate as a recipe says, and write the run and its report (`plumbline run`).

    Args:
        recipe: a file, the name of a bundled recipe, its keys as a mapping, or what `load_recipe` gave. In a mapping a
            scoring function of the task jsonl may be given itself.
        overrides: `a.b=value` each, for a file or a name.
        out: the run directory, or an address (docs/remote.md); None is NAME, after the recipe, in `run.folder`.
        resume: go on with a run that was stopped.
        quiet: show no progress on standard error.
        trust_code: run code that a recipe's file names (as `module:name`) and that `overrides` do not.

    Returns:
        The finished run: `.result()` has its figures, `.folder` its `report.html`, `.model("rl")` the model's folder.

    Raises:
        PlumblineError: what is wrong, and what to do.
    """
    view = LiveView()
    observers: list[Observer] = [] if quiet else [view]
    with ExitStack() as opened:
        opened.enter_context(consent(everything=trust_code))
        loaded, place = _loaded(recipe, overrides, out)
        folder = folder_for(place)
        if is_address(place):
            if not resume:
                check_recipe(loaded)  # before anything is written to the address
            tell = Silent() if quiet else view
            kept = published(place, resume=resume, tell=lambda message: tell.event("note", message))
            folder, keeper = opened.enter_context(kept)
            observers.append(keeper)
        elif loaded.run.trackers and not resume:
            check_recipe(loaded)  # the run does so itself, but after a tracker has written into the folder
        trackers = open_trackers(loaded, folder, lambda message: view.event("tracker", message))
        return run_recipe(loaded, folder, resume=resume, observers=[*observers, *trackers])


def dry_run(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    overrides: Sequence[str] = (),
    out: str | Path | None = None,
    resume: bool = False,
    trust_code: bool = False,
) -> DryRun:
    """What `run` would do, need and cost with these arguments, and what is wrong with it (`plumbline run --dry-run`).

    Raises:
        PlumblineError: the recipe cannot be read; all else that is wrong is in `.findings`.
    """
    with consent(everything=trust_code):
        loaded, place = _loaded(recipe, overrides, out)
        return look_ahead(loaded, folder_for(place), resume=resume)


def _loaded(
    recipe: str | Path | Mapping[str, Any] | Recipe, overrides: Sequence[str], out: str | Path | None
) -> tuple[Recipe, str]:
    """The recipe, and the run's directory or address."""
    if isinstance(recipe, Recipe | Mapping) and overrides:
        raise RecipeError("overrides are for recipes in files", "change the recipe itself")
    typed(overrides)
    if isinstance(recipe, Mapping):
        recipe = recipes.parse(_by_name(recipe))
    elif isinstance(recipe, Recipe) and ":" in recipe.model.family:
        recipe = recipes.parse(recipe.plain())  # what its family reads may have been unchecked when it was loaded
    loaded = recipe if isinstance(recipe, Recipe) else recipes.load(recipe, overrides)
    return loaded, str(out) if out is not None else join(loaded.run.folder, loaded.name)


def open_task(name: str, *, folder: str | Path | None = None, **options: Any) -> Task:
    """Open a task with its options, as a recipe's `task` does.

    Args:
        name: commerce, forms, miniwob, jsonl, or `module:opener`.
        folder: where it may build its records; None is `data/NAME`.
        options: the task's own. A scoring function of the task jsonl may be given itself.

    Raises:
        RecipeError: no such task, or an option that it does not know.
        DataError: its records are missing or malformed.
    """
    typed([name])
    place = Path(folder) if folder is not None else Path("data") / name
    return tasks.open_task(name, _by_name(options), place)


def evaluate(
    source: str | Path | Run,
    task: Task,
    *,
    split: str = "test",
    limit: int | None = None,
    trust_code: bool = False,
    **options: Any,
) -> Evaluation:
    """Evaluate a model, the oracle or a control on a fixed split (`plumbline eval`).

    Args:
        source: a model (directory, GGUF file, address, hub name), `oracle`, a control's name, or a finished run, whose
            last model is meant.
        task: what it is asked.
        split: train, val, test, or another one of the task.
        limit: only the first so many examples.
        trust_code: run code that the model's directory names (a family of models as `module:Class`).
        options: how a model is opened and asked, as `plumbline eval` has it: temperature (0, the default, is greedy
            decoding), seed (of sampled answers), max_tokens and steps (what the model's own run evaluated with),
            device, dtype, rows_at_once, family, chat_template, allow_overlap (with prompts that it was trained on),
            engine (vllm, or an endpoint's address).

    Returns:
        The judged answers; `.mean_reward` is their mean.

    Raises:
        RecipeError: the run is not finished; a misspelt control; an option that there is not, or of a wrong value.
        DataError: the model was trained on some of these prompts; no such split.
        ModelError: there is no such model.
    """
    how = section(ModelOptions, options, "evaluate", advice="help(plumbline.evaluate) names all options")
    if isinstance(source, Run):
        result = source.result()
        if result is None:
            raise RecipeError(f"the run {source.folder} is not finished", "go on with it: run(..., resume=True)")
        source = str(result["model"])
    source = local_model(str(source))
    with consent(everything=trust_code):
        typed([how.family or ""])
        check_name(source, task, how)
        return evaluate_model(source, task, task.examples(split)[:limit], split, how, Silent())


def _by_name(values: Any) -> Any:
    """Values with every function in them as `module:name`, which a recipe can keep; all of them are the user's."""
    if isinstance(values, Mapping):
        typed(f"{key}={value}" for key, value in values.items())
        return {key: _by_name(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_by_name(value) for value in values]
    return _name_of(values) if callable(values) else values


def _name_of(function: Callable[..., Any]) -> str:
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    typed([name])
    if not name.rpartition(":")[2].isidentifier() or named(name, "function") is not function:
        raise RecipeError(
            f"{name} cannot be found again by its name", "define it with def at the top of a module, script or notebook"
        )
    return name
