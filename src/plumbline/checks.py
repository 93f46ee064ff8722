"""What a run refuses before anything is built or trained: of its recipe, its task, its records and its verifier."""

from collections.abc import Mapping, Sequence

from plumbline.errors import DataError, RecipeError, RunError
from plumbline.evaluation.replays import check_replayable
from plumbline.policies import check_model
from plumbline.recipe import Recipe
from plumbline.records import Example
from plumbline.runs.run import Run
from plumbline.tasks import NOWHERE, TASKS, find_opener, open_task
from plumbline.tasks.task import Prechecked, Task, itemised

Splits = Mapping[str, Sequence[Example]]
COMMON = frozenset({"train", "val", "test"})
"""The splits that every task has."""


def check_recipe(recipe: Recipe) -> None:
    """Refuse what can be known of a recipe's task and model before anything is built or written for them.

    Raises:
        RecipeError: no such task, family or option; a split that the task does not have, or that is trained on.
        ModelError: no model at `model.name`; a package or the device is missing.
        DataError: no records where the options say.
    """
    find_opener(recipe.task.name)
    if recipe.task.name in TASKS:  # to open one of ours builds nothing
        task = open_task(recipe.task.name, recipe.task.options, NOWHERE)
        check_task(recipe, task)
        if isinstance(task, Prechecked):  # its records are files of the user's, and to read them builds nothing, too
            check_gold(recipe, task.examples("train"))
    check_model(recipe.model, recipe.model.name)


def check_task(recipe: Recipe, task: Task) -> None:
    """Refuse what a recipe wants of its task in vain.

    Raises:
        RecipeError: replays, items or a split that the task does not have; a split that is trained on.
    """
    if recipe.evaluation.replays:
        check_replayable(task, recipe.evaluation.replays)
    if recipe.rl is not None and recipe.rl.credit == "items":
        itemised(task)
    named = [("evaluation.final", split) for split in recipe.evaluation.final]
    for key, split in [*named, ("evaluation.split", recipe.evaluation.split)]:
        advice = f"the task {task.name} has {', '.join(one for one in task.splits if one != 'train')} for that"
        if split == "train":
            raise RecipeError(f"{key} names train, which the run trains on", advice)
        if split not in task.splits:
            raise RecipeError(f"{key} names {split!r}, and there is no such split", advice)


def check_gold(recipe: Recipe, train: Sequence[Example]) -> None:
    """Refuse supervised training, that of a tiny model included, where there are no answers to show.

    Raises:
        RecipeError: some example has no gold answer.
    """
    lacking = sum(example.gold is None for example in train)
    if lacking and (recipe.sft is not None or recipe.model.name is None):
        what = "sft" if recipe.sft is not None else "model.tiny, which is pretrained on them,"
        raise RecipeError(
            f"{what} needs gold answers, and {lacking} of {len(train)} training examples have none",
            "leave out sft and name a model (model.name); or give gold answers (task jsonl: task.options.gold)",
        )


def final_splits(recipe: Recipe, task: Task) -> list[str]:
    """What every stage is evaluated on after its end: the recipe's splits, then the further ones of the task."""
    further = [split for split in task.splits if split not in COMMON] if recipe.evaluation.further else []
    return list(dict.fromkeys([*recipe.evaluation.final, *further]))


def check_disjoint(train: Sequence[Example], held_out: Splits) -> None:
    """Refuse to evaluate on prompts that are trained on.

    Raises:
        DataError: names the split and an example.
    """
    seen = {example.fingerprint() for example in train}
    for split, examples in held_out.items():
        shared = [example.id for example in examples if example.fingerprint() in seen]
        if shared:
            raise DataError(
                f"{len(shared)} of {len(examples)} prompts of {split} are also in train, for example {shared[0]}",
                "build the splits anew, disjoint",
            )


def try_verifier(run: Run, task: Task, held_out: Splits, finals: Sequence[str]) -> None:
    """Try a verifier of the user's own; and refuse to go on under another one than the run was begun with.

    Raises:
        DataError: see `Prechecked.precheck`.
        RunError: the scores of a resumed run would be of two rubrics.
    """
    before = {evaluation.rubric for evaluation in run.evaluations().values()}
    if before - {task.rubric}:
        raise RunError(
            f"{run.folder} was begun under rubric {min(before)}, and the task's is now {task.rubric}: what decides a "
            "score was changed",
            "undo that change, or begin a new run with --out",
        )
    if isinstance(task, Prechecked):
        told = [event["message"] for event in run.files["events"].rows()]
        for message in task.precheck(_verdicts(run.recipe, held_out, finals)):
            if message not in told:
                run.event("task", message)


def _verdicts(recipe: Recipe, held_out: Splits, finals: Sequence[str]) -> int:
    """How many answers a run will have judged."""
    stages = 1 + (recipe.sft is not None) + (recipe.rl is not None)
    modes = 1 + recipe.evaluation.sampled  # greedily, and as in training
    total = stages * modes * sum(len(held_out[split]) for split in finals)
    if recipe.rl is not None:
        total += recipe.rl.steps * recipe.rl.prompts_per_step * recipe.rl.group_size
        if recipe.evaluation.every:
            inside = len(held_out[recipe.evaluation.split][: recipe.evaluation.limit])
            total += modes * inside * (1 + recipe.rl.steps // recipe.evaluation.every)
    return total
