"""An evaluation as the command line asks for it: the task, the answers, what stands beside them, and the replays."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plumbline.evaluation.evaluate import ORACLE, references
from plumbline.evaluation.replays import check_replayable, replay_worst
from plumbline.evaluation.summary import detail
from plumbline.evaluation.targets import (
    Asking,
    Event,
    check_target,
    coverage,
    evaluate_file,
    evaluate_target,
    open_task_for,
    records_folder,
)
from plumbline.records import Evaluation
from plumbline.runs.replays import Replay
from plumbline.tasks import Progress, open_task
from plumbline.tasks.task import Prechecked, gold_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is evaluated, and on what."""

    target: str
    """A model, the oracle, or a control by name."""
    task: str
    """Empty is the model's own, and commerce for all else."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the task; the task itself refuses those that it does not have."""
    split: str = "val"
    data: Path | None = None
    limit: int | None = None
    """Only the first so many examples."""
    replays: int = 0
    """Failed episodes that are replayed."""
    how: Asking = field(default_factory=Asking)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The evaluation, the oracle and the controls on the same examples, and the replays."""

    evaluation: Evaluation
    references: Mapping[str, Evaluation]
    replays: tuple[Replay, ...] = ()


def evaluate_asked(asked: Asked, progress: Progress, event: Event | None = None) -> Evaluated:
    """Do what is asked; `progress` and `event` are told what happens.

    Raises:
        RecipeError: no such task, an option that it does not have, or a misspelt control.
        DataError: no such split; the model was trained on its prompts; episodes that cannot be replayed; the oracle has
            no gold answers; for it and the controls, a verifier of the user's own that does not do (see `Prechecked`).
        ModelError: there is no such model.
    """
    task = open_task_for(asked.target, asked.task, asked.options, asked.data, progress)
    if asked.replays:
        check_replayable(task, asked.replays)
    check_target(asked.target, task, asked.how)
    examples = task.examples(asked.split)[: asked.limit]
    if asked.target == ORACLE or asked.target in task.controls:
        if asked.target == ORACLE:
            for example in examples:
                gold_of(example)  # without gold answers there is no oracle to evaluate
        if isinstance(task, Prechecked):
            for message in task.precheck(0):
                if event is not None:
                    event("task", message)
        beside = references(task, examples, asked.split)
        evaluation = beside[asked.target]
    else:  # the model first: what is wrong with it should not take long to show
        evaluation = evaluate_target(asked.target, task, examples, asked.split, asked.how, progress, event)
        beside = references(task, examples, asked.split)
    replays = replay_worst(task, examples, evaluation, asked.replays) if asked.replays else ()
    return Evaluated(evaluation=evaluation, references=beside, replays=replays)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The evaluation of a file of completions, and what is said of it."""

    evaluation: Evaluation
    summary: Mapping[str, Any]
    """`summary.detail`, with `unknown_ids`, `coverage` (see `targets.coverage`) and `warnings`."""


def score_file(
    path: Path, task: str, options: Mapping[str, Any], split: str | None, data: Path | None, progress: Progress
) -> Scored:
    """Judge a file of completions from anywhere, on the examples of one split or of all.

    Raises:
        RecipeError: no such task, or an option that it does not have.
        DataError: no such split or folder of records; a row is malformed, an id comes twice, or none is known.
    """
    opened = open_task(task, options, records_folder(task, data), progress)
    splits = list(opened.splits) if split is None else [split]
    evaluation, unknown = evaluate_file(path, opened, splits)
    known = {example.id: example for name in splits for example in opened.examples(name)}
    beside = references(opened, [known[row.id] for row in evaluation.rows], evaluation.split)
    covered = coverage(evaluation, opened, splits)
    warnings = [f"{unknown} rows name no example of {', '.join(splits)} and were left out"] if unknown else []
    if covered["missing"]:
        counts = ", ".join(f"{one['answered']} of {one['of']} of {name}" for name, one in covered["splits"].items())
        warnings.append(f"the mean is of the examples that were answered ({counts})")
    if covered["train_rows"]:
        warnings.append(
            f"{covered['train_rows']} answers are to rows of train, where a model that was trained on them shows "
            "memory, not skill: give --split with a held-out one"
        )
    return Scored(
        evaluation=evaluation,
        summary={**detail(evaluation, beside), "unknown_ids": unknown, "coverage": covered, "warnings": warnings},
    )
