"""What `plumbline eval` does: the task, the answers, what stands beside them, and the replays."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from plumbline.errors import DataError, RecipeError
from plumbline.evaluation.evaluate import ORACLE, evaluate_references
from plumbline.evaluation.models import baselines_of, check_name, evaluate_model
from plumbline.evaluation.replays import check_replayable, replay_episodes
from plumbline.policies.opening import ModelOptions
from plumbline.recipe import TaskSection, section
from plumbline.records import Evaluation, Example
from plumbline.runs.evaluations import Replay
from plumbline.runs.metadata import ModelMetadata
from plumbline.runs.run import Listener
from plumbline.tasks import Progress, open_task, task_names, variants_of
from plumbline.tasks.task import Task, gold_of


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSpec:
    """What is evaluated, and on what."""

    model: str
    """A model, the oracle, or a baseline by name."""
    task: str
    """Empty is the model's own."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the task; the task itself refuses those that it does not have."""
    split: str = "val"
    data: Path | None = None
    limit: int | None = None
    """Only the first so many examples."""
    replays: int = 0
    """Episodes that are replayed."""
    model_options: ModelOptions = field(default_factory=ModelOptions)
    recipe_sampling: Mapping[str, Any] = field(default_factory=dict)
    """How an endpoint draws where its options do not say; see `evaluate_model`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationResult:
    """The evaluation, the oracle and the baselines on the same examples, and the replays."""

    evaluation: Evaluation
    references: Mapping[str, Evaluation]
    replays: tuple[Replay, ...] = ()
    examples: Sequence[Example] = ()
    """What was asked, in order."""


def each_task(spec: EvaluationSpec) -> dict[str, EvaluationSpec]:
    """What is evaluated, task by task: a model of several tasks on each, and a task of several
    variants on each.

    Returns:
        A specification of one task each, by its name; the name is "" where only one is meant.

    Raises:
        RecipeError: an option that the task does not have.
        DataError, StorageError: its records are damaged.
    """
    metadata = ModelMetadata.read(spec.model)
    if metadata is not None and metadata.tasks and not spec.task:
        return {name: replace(spec, task=name) for name in metadata.tasks}
    if metadata is not None and _own_task(metadata, spec.task, spec.model) is not None:
        return {"": spec}
    name = spec.task or _no_task(spec.model, spec.model_options)
    variants = variants_of(name, spec.options, records_folder(name, spec.data))
    each = {label: replace(spec, task=name, options=options) for label, options in variants.items()}
    # A baseline is often of one job only.
    return {
        label: one for label, one in each.items() if spec.model in baselines_of(name, one.options)
    } or each


def run_evaluation(
    spec: EvaluationSpec, listener: Listener, check_reward: Callable[[Task], Sequence[Any]]
) -> EvaluationResult:
    """Do what the specification says; `listener` is told what happens, and what `check_reward`
    finds of a reward that the oracle and the baselines are judged by.

    Raises:
        RecipeError: no such task, an option that it does not have, or a misspelt baseline.
        DataError: no such split; the model was trained on its prompts; episodes that cannot be
            replayed; the oracle has no gold answers; what `check_reward` raises.
        ModelError: there is no such model.
    """
    task = open_task_for(spec.model, spec.task, spec.options, spec.data, listener.working)
    if spec.replays:
        check_replayable(task, spec.replays)
    check_name(spec.model, task, spec.model_options)
    examples = task.examples(spec.split)[: spec.limit]
    if spec.model == ORACLE or spec.model in task.baselines:
        if spec.model == ORACLE:
            for example in examples:
                gold_of(example)  # without gold answers there is no oracle to evaluate
        for finding in check_reward(task):
            listener.event("task", finding.summary)
        beside = evaluate_references(task, examples, spec.split, listener.working)
        evaluation = beside[spec.model]
    else:  # the model first: what is wrong with it should not take long to show
        evaluation = evaluate_model(
            spec.model,
            task,
            examples,
            spec.split,
            spec.model_options,
            listener,
            spec.recipe_sampling,
        )
        beside = evaluate_references(task, examples, spec.split, listener.working)
    replays = replay_episodes(task, examples, evaluation, spec.replays) if spec.replays else ()
    return EvaluationResult(
        evaluation=evaluation, references=beside, replays=replays, examples=examples
    )


def open_task_for(
    model: str, name: str, options: Mapping[str, Any], data: Path | None, progress: Progress
) -> Task:
    """The task whose records fit a model: those that the model's own run held out, else the given
    or default ones.

    Args:
        model: a model, or the name of a reference.
        name: the task, or the name that the model's recipe gave to one of several; empty is the
            model's own.
        options: from the command line; they go over the model's.
        data: where the records are; None finds or builds them.
        progress: told about building.

    Raises:
        RecipeError: the model was trained on several tasks, and neither one of them nor another
            task is named.
    """
    metadata = ModelMetadata.read(model)
    own = None if metadata is None else _own_task(metadata, name, model)
    if metadata is None or own is None:
        name = name or _no_task(model, ModelOptions())
        return open_task(name, options, records_folder(name, data), progress)
    label, task = own
    if data is not None:
        return open_task(task.name, options, records_folder(task.name, data), progress)
    run = Path(model).resolve().parents[1]
    ours = (run / "recipe.yaml").is_file() and (run / "data").is_dir()
    folder = (
        run / "data" / label
        if ours
        else Path("data") / f"{label or task.name}-of-{metadata.recipe.split()[-1]}"
    )
    return open_task(task.name, {**task.options, **options}, folder, progress)


def _no_task(model: str, options: ModelOptions) -> str:
    check_name(model, None, options)
    raise RecipeError(
        f"nothing says which task {model} is evaluated on",
        f"add --task with one of {', '.join(task_names())}",
    )


def _own_task(metadata: ModelMetadata, name: str, model: str) -> tuple[str, TaskSection] | None:
    """Which of the tasks that a model was trained on is meant, and what its recipe called it; None
    for none of them."""
    if not metadata.tasks:
        return (
            ("", TaskSection(name=metadata.task, options=dict(metadata.options)))
            if name in {"", metadata.task}
            else None
        )
    if name in metadata.tasks:
        return name, section(TaskSection, metadata.tasks[name])
    meant = [label for label, one in metadata.tasks.items() if name in {"", one["name"]}]
    if len(meant) > 1:
        raise RecipeError(
            f"{model} was trained on several tasks", f"add --task with one of {', '.join(meant)}"
        )
    if not meant and name not in task_names() and ":" not in name:
        raise RecipeError(
            f"there is no task named {name}, and {model} was not trained on one",
            f"add --task with one of {', '.join(metadata.tasks)}",
        )
    return (meant[0], section(TaskSection, metadata.tasks[meant[0]])) if meant else None


def records_folder(task: str, given: Path | None) -> Path:
    """Where a task's records are, or are built: the folder that the user gave, else data/TASK.

    Raises:
        DataError: the given folder is not there. A mistyped name would else get records of its own.
    """
    if given is None:
        return Path("data") / task
    if not given.exists():
        raise DataError(
            f"there is no folder {given}",
            "check --data; records are built in a folder that is there and empty (`mkdir "
            f"{given}`), and without "
            f"--data those of data/{task} are used",
        )
    return given
