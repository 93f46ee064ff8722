"""What a run refuses before anything is built or trained: of its recipe, its task, its records and
its verifier."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from plumbline.checks.audit.trial import check_reward
from plumbline.checks.diagnosis.live import validate_check_names
from plumbline.config.imports import check_installed, note_addresses
from plumbline.errors import DataError, ModelError, PlumblineError, RecipeError, RunError
from plumbline.evaluation.models import check_unseen
from plumbline.evaluation.replays import check_replayable
from plumbline.policies.downloads.get import ENTRIES
from plumbline.policies.opening import check_model, check_source
from plumbline.recipe import Recipe, list_recipe_names
from plumbline.records import Example
from plumbline.runs.remote import is_address
from plumbline.runs.run import Run
from plumbline.tasks import JSONL, NOWHERE, find_opener, open_task, task_names
from plumbline.tasks.task import Task
from plumbline.tasks.task_data import TaskData

COMMON = frozenset({"train", "val", "test"})
"""The splits that every task has."""


def check_recipe(recipe: Recipe) -> None:
    """Refuse what can be known of a recipe's task and model before anything is built or written for
    them.

    The run is about to begin, so what lies at addresses in its recipe is asked for.

    Raises:
        RecipeError: no such task, family or option; a split that the task does not have, or that is
            trained on.
        ModelError: no model at `model.name`; a package or the device is missing.
        DataError: no records where the options say.
        EngineError: the engine that it names cannot draw for it.
    """
    note_addresses([str(recipe.to_dict())])
    for problem in find_problems(recipe):
        raise problem


def find_problems(recipe: Recipe) -> Iterator[PlumblineError]:
    """Everything that `check_recipe` refuses, as far as one thing that is wrong does not hide
    another."""
    yield from catch_error(validate_check_names, recipe.checks)
    if recipe.scale.needs_ray:
        yield from catch_error(check_installed, "scale", ["ray"])
    if "adamw8bit" in {
        stage.optimiser.name for stage in (recipe.sft, recipe.rl) if stage is not None
    }:
        yield from catch_error(check_installed, "optimiser.name: adamw8bit", ["bitsandbytes"])
    opened = []
    for name, one in recipe.each_task.items():
        try:
            find_opener(one.name)
            if one.name not in task_names():
                continue
            # to open one of ours builds nothing
            opened.append(task := open_task(one.name, one.options, NOWHERE))
        except RecipeError as error:  # of several tasks it says which one it is about
            yield type(error)(f"tasks.{name}: {error.cause}", error.fix) if name else error
        except PlumblineError as error:
            yield error
        else:
            yield from catch_error(check_task, recipe, task)
            # its records are the user's files, and to read them builds nothing, too
            if one.name == JSONL:
                yield from catch_error(
                    lambda task: check_gold(recipe, task.examples("train")), task
                )
    if len(opened) == len(recipe.each_task):
        yield from catch_error(check_replay_support, recipe, opened)
    teacher = (
        recipe.rl.teacher.model if recipe.rl is not None and recipe.rl.teacher is not None else None
    )
    asked = [(recipe.model.name, catch_error(check_model, recipe.model, recipe.model.name))]
    asked += (
        []
        if teacher is None or is_address(teacher)
        else [(teacher, catch_error(check_source, teacher))]
    )
    for source, found in asked:
        for problem in found:
            made = _find_maker(source or "") if isinstance(problem, ModelError) else None
            yield ModelError(problem.cause, made) if made else problem
    yield from catch_error(check_budgets, recipe)
    if recipe.engine is not None:
        from plumbline.engines.vllm import check_engine

        yield from catch_error(check_engine, recipe.engine, recipe.model.family)


def catch_error(check: Callable[..., None], *about: Any) -> Iterator[PlumblineError]:
    """The error of a check, if it has one."""
    try:
        check(*about)
    except PlumblineError as error:
        yield error


def _find_maker(model: str) -> str | None:
    """The command that makes the model which is lacking at a path, where it is in the catalogue or
    a recipe's own."""
    folder, name, *inside = *Path(model).parts, "", ""
    if folder == "models" and not any(inside) and name in {entry.name for entry in ENTRIES}:
        return None if Path(model).exists() else f"fetch it first: `plumbline get {name}`"
    if (
        folder == "runs"
        and any(inside)
        and name in list_recipe_names()
        and not Path(model).exists()
    ):
        begun = " --resume" if Path(folder, name).exists() else ""
        return f"it comes of another recipe, to be run first: `plumbline run {name}{begun}`"
    return None


def check_budgets(recipe: Recipe) -> None:
    """Refuse a budget of this process's seconds where other processes do some of the work.

    Raises:
        RecipeError: names the key.
    """
    elsewhere = "engine" if recipe.engine is not None else "scale" if recipe.scale.needs_ray else ""
    for name, section in (("sft", recipe.sft), ("rl", recipe.rl)):
        if elsewhere and section is not None and section.seconds is not None:
            raise RecipeError(
                f"{name}.seconds counts the seconds of this process, and {elsewhere} has others "
                "work for it",
                f"leave out {elsewhere} or {name}.seconds",
            )


def check_task(recipe: Recipe, task: Task) -> None:
    """Refuse splits that a task does not have, and to evaluate on one that is trained on.

    Raises:
        RecipeError: says which.
    """
    named = [("evaluation.final", split) for split in recipe.evaluation.final]
    for key, split in [*named, ("evaluation.split", recipe.evaluation.split)]:
        advice = (
            f"the task {task.name} has {', '.join(one for one in task.splits if one != 'train')} "
            "for that"
        )
        if split == "train":
            raise RecipeError(f"{key} names train, which the run trains on", advice)
        if split not in task.splits:
            raise RecipeError(f"{key} names {split!r}, and there is no such split", advice)


def check_replay_support(recipe: Recipe, tasks: Sequence[Task]) -> None:
    """Refuse what a recipe wants and none of its tasks has: episodes that can be replayed.

    Raises:
        RecipeError, DataError: says what is lacking.
    """
    if recipe.evaluation.replays and not any(task.replayable for task in tasks):
        check_replayable(tasks[0], recipe.evaluation.replays)


def check_gold(recipe: Recipe, train: Sequence[Example]) -> None:
    """Refuse supervised training, that of a tiny model included, where there are no answers to
    show.

    Raises:
        RecipeError: some example has no gold answer.
    """
    lacking = sum(example.gold is None for example in train)
    if lacking and (recipe.sft is not None or recipe.model.name is None):
        what = "sft" if recipe.sft is not None else "model.tiny, which is pretrained on them,"
        raise RecipeError(
            f"{what} needs gold answers, and {lacking} of {len(train)} training examples have none",
            "leave out sft and name a model (model.name); or give gold answers (task jsonl: "
            "task.options.gold)",
        )


def final_splits(recipe: Recipe, task: Task) -> list[str]:
    """What every stage is evaluated on after its end: the recipe's splits, then the further ones of
    the task."""
    further = (
        [split for split in task.splits if split not in COMMON] if recipe.evaluation.further else []
    )
    return list(dict.fromkeys([*recipe.evaluation.final, *further]))


def check_disjoint(tasks_data: Sequence[TaskData]) -> None:
    """Refuse to evaluate on prompts that are trained on, be it for another task.

    Raises:
        DataError: names the split and an example.
    """
    seen = {example.fingerprint() for one in tasks_data for example in one.train}
    for split, examples in _held_out_splits(tasks_data):
        shared = [example.id for example in examples if example.fingerprint() in seen]
        if shared:
            raise DataError(
                f"{len(shared)} of {len(examples)} prompts of {split} are also in train, for "
                f"example {shared[0]}",
                "build the splits again, disjoint",
            )


def select_pretraining_examples(
    run: Run, name: str, examples: Sequence[Example], tasks_data: Sequence[TaskData]
) -> list[Example]:
    """What a tiny model may be pretrained on: records of its own, less those whose prompts some
    task holds out.

    Records of another seed can ask the same where a form has few fields. How many were left out is
    an event of the run.

    Args:
        run: is told.
        name: of the task, for the event.
        examples: of the task, with the options of the pretraining.
        tasks_data: what the run holds out.

    Raises:
        DataError: none are left.
    """
    held_out = {
        example.fingerprint() for _, split in _held_out_splits(tasks_data) for example in split
    }
    kept = [example for example in examples if example.fingerprint() not in held_out]
    left_out = len(examples) - len(kept)
    what = (
        f"prompts{name and f' of {name}'} for the tiny model's pretraining are held out in this run"
    )
    if not kept:
        raise DataError(
            f"all {len(examples)} {what}",
            "draw others: give model.tiny.task_options another seed, or options that ask for more "
            "different things",
        )
    if left_out:
        run.event("left_out", f"{left_out} of {len(examples)} {what}, and were left out of it")
    return kept


def check_start_model(model: str, tasks_data: Sequence[TaskData]) -> None:
    """Refuse to begin from a model that was trained on what the run evaluates on.

    Raises:
        DataError: names the split and an example.
    """
    for split, examples in _held_out_splits(tasks_data):
        check_unseen(
            model,
            examples,
            f"the {len(examples)} prompts of {split}",
            "begin from a model without them",
        )


def _held_out_splits(tasks_data: Sequence[TaskData]) -> list[tuple[str, Sequence[Example]]]:
    """Every split that is held out, with its name, of every task."""
    return [named for one in tasks_data for named in one.held_out.items()]


def try_verifier(run: Run, task_data: TaskData) -> None:
    """Try a verifier of the user's own; and refuse to go on under another one than the run was
    begun with.

    Raises:
        DataError: see `check_reward`.
        RunError: the scores of a resumed run would be of two rubrics.
    """
    task = task_data.task
    before = {
        evaluation.rubric
        for key, evaluation in run.evaluations().items()
        if key.task == task_data.name
    }
    if before - {task.rubric}:
        raise RunError(
            f"{run.folder} was begun under rubric {min(before)}, and the task's is now "
            f"{task.rubric}: what decides a "
            "score was changed",
            "undo that change, or begin a new run with --out",
        )
    # greedily, and as in training
    recipe, rl, modes = run.recipe, run.recipe.rl, 1 + run.recipe.evaluation.sampled
    stages = 1 + (recipe.sft is not None) + (rl is not None)
    verdicts = stages * modes * sum(len(task_data.held_out[split]) for split in task_data.finals)
    if rl is not None:  # at most: of several tasks each has a share of training
        verdicts += rl.steps * rl.prompts_per_step * rl.group_size
        if recipe.evaluation.every:
            inside = len(task_data.held_out[recipe.evaluation.split][: recipe.evaluation.limit])
            verdicts += modes * inside * (1 + rl.steps // recipe.evaluation.every)
    told = [event["message"] for event in run.files["events"].rows()]
    for finding in check_reward(task, verdicts):
        if finding.summary not in told:
            run.event("task", finding.summary)
