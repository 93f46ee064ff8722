"""An evaluation as the command line asks for it: the task, the answers, what stands beside them, and the replays."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plumbline.evaluation.evaluate import ORACLE, references
from plumbline.evaluation.replays import check_replayable, replay_worst
from plumbline.evaluation.targets import Asking, Event, evaluate_target, open_task_for
from plumbline.records import Evaluation
from plumbline.runs.replays import Replay
from plumbline.tasks import Progress
from plumbline.tasks.task import Prechecked


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is evaluated, and on what."""

    target: str
    """A model, the oracle, or a control by name."""
    task: str
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
        RecipeError: no such task, or an option that it does not have.
        DataError: no such split; the model was trained on its prompts; episodes that cannot be replayed; for the oracle
            and controls, a verifier of the user's own that does not do (`Prechecked.precheck`).
        ModelError: there is no such model.
    """
    task = open_task_for(asked.target, asked.task, asked.options, asked.data, progress)
    if asked.replays:
        check_replayable(task, asked.replays)
    examples = task.examples(asked.split)[: asked.limit]
    if asked.target == ORACLE or asked.target in task.controls:
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
