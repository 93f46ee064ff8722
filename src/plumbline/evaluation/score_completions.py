"""Completions from a file, judged: `plumbline score`."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plumbline.errors import DataError
from plumbline.evaluation.evaluate import evaluate_completions, evaluate_references
from plumbline.evaluation.summary import summarise_with_references
from plumbline.records import Evaluation
from plumbline.storage import read_jsonl
from plumbline.tasks import Progress, silent
from plumbline.tasks.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredFile:
    """The evaluation of a file of completions, and what is said of it."""

    evaluation: Evaluation
    summary: Mapping[str, Any]
    """`summary.summarise_with_references`, with `unknown_ids`, `coverage` (what
    `describe_coverage` gives) and `warnings`."""


def score_file(
    path: Path, task: Task, split: str | None, progress: Progress = silent
) -> ScoredFile:
    """Judge a file of completions from anywhere, on the examples of one split or of all. For
    `progress` see `evaluate_completions`.

    Raises:
        DataError: no such split; a row is malformed, an id comes twice, or none is known.
    """
    splits = list(task.splits) if split is None else [split]
    evaluation, unknown = evaluate_file(path, task, splits, progress)
    known = {example.id: example for name in splits for example in task.examples(name)}
    beside = evaluate_references(
        task, [known[row.id] for row in evaluation.rows], evaluation.split, progress
    )
    covered = describe_coverage(evaluation, task, splits)
    warnings = []
    if unknown:
        whose = f" ({elsewhere})" if (elsewhere := task.explain_foreign_ids(unknown)) else ""
        warnings.append(
            f"{len(unknown)} rows name no example of {', '.join(splits)} and were left out{whose}"
        )
    if covered["missing"]:
        counts = ", ".join(
            f"{one['answered']} of {one['of']} of {name}" for name, one in covered["splits"].items()
        )
        warnings.append(f"the mean is of the examples that were answered ({counts})")
    if covered["train_rows"]:
        warnings.append(
            f"{covered['train_rows']} answers are to rows of train, where a model that was trained "
            "on them shows "
            "memory, not skill: give --split with a held-out one"
        )
    return ScoredFile(
        evaluation=evaluation,
        summary={
            **summarise_with_references(evaluation, beside),
            "unknown_ids": len(unknown),
            "coverage": covered,
            "warnings": warnings,
        },
    )


def evaluate_file(
    path: Path, task: Task, splits: Sequence[str], progress: Progress = silent
) -> tuple[Evaluation, Set[str]]:
    """Judge a file of completions from anywhere: JSON lines of {"id", "completion"}.

    Args:
        path: the file.
        task: whose examples the ids name.
        splits: where the ids are looked up.
        progress: see `evaluate_completions`.

    Returns:
        The evaluation, and the ids that name no example of these splits.

    Raises:
        DataError: a row is malformed, an id comes twice, or none is known.
    """
    given: dict[str, str] = {}
    for number, row in read_jsonl(path):  # before any records are built for it
        identity, completion = row.get("id"), row.get("completion", row.get("text"))
        if not isinstance(identity, str) or not isinstance(completion, str):
            raise DataError(
                f'{path}:{number}: a row needs "id" and "completion", both text',
                "correct that line",
            )
        if identity in given:
            raise DataError(
                f"{path}:{number}: {identity} has an answer already",
                "give one completion for each id",
            )
        given[identity] = completion
    if not given:
        raise DataError(
            f"{path} has no rows", 'write a line of {"id", "completion"} for each answer'
        )
    known = {example.id: example for split in splits for example in task.examples(split)}
    answers = {identity: completion for identity, completion in given.items() if identity in known}
    unknown = given.keys() - known.keys()
    if not answers:
        raise DataError(
            f"none of the {len(unknown)} ids in {path} is an example of {', '.join(splits)}",
            task.explain_foreign_ids(unknown)
            or "check --data and --split: the ids come from its train, val or test file",
        )
    examples = [known[identity] for identity in answers]
    texts, named = list(answers.values()), "+".join(splits)
    evaluation = evaluate_completions(
        task, examples, texts, source=path.name, split=named, progress=progress
    )
    return evaluation, unknown


def describe_coverage(evaluation: Evaluation, task: Task, splits: Sequence[str]) -> dict[str, Any]:
    """How much of its splits a file's evaluation covers: a mean over the easy tenth is none of the
    whole.

    Args:
        evaluation: of completions from anywhere.
        task: whose examples they answer.
        splits: where the ids were looked up; of several only those that have an answer count.

    Returns:
        Plain values: `splits` (of each, how many were answered, of how many), `missing` (examples
            without an answer),
        `mean_missing_as_0` (the mean reward with those counted as 0; answers that could not be
        judged are left out), and `train_rows` (answers to rows of the split train).
    """
    ids = {split: {example.id for example in task.examples(split)} for split in splits}
    answered = {row.id for row in evaluation.rows} | {row.id for row in evaluation.unjudged}
    counted = {split: known for split, known in ids.items() if len(splits) == 1 or known & answered}
    missing = len(frozenset[str]().union(*counted.values()) - answered)
    judged = len(evaluation.rows)
    return {
        "splits": {
            name: {"answered": len(known & answered), "of": len(known)}
            for name, known in counted.items()
        },
        "missing": missing,
        "mean_missing_as_0": float(evaluation.rewards().sum()) / (judged + missing)
        if judged + missing
        else None,
        "train_rows": len(ids.get("train", set()) & answered),
    }
