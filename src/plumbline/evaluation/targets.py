"""What `plumbline eval` and `plumbline compare` may be pointed at: a model, the oracle, a control, a file, a run."""

import difflib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plumbline.errors import DataError, PlumblineError, RecipeError
from plumbline.evaluation.evaluate import ORACLE, evaluate_completions, evaluate_policy, evaluate_reference
from plumbline.evaluation.statistics import Paired
from plumbline.evaluation.summary import compare
from plumbline.policies import check_model, open_policy
from plumbline.policies.memory import clear_memory_errors
from plumbline.policies.policy import slowness
from plumbline.policies.saved import saved_settings
from plumbline.recipe import ModelSection, TaskSection, differences, section
from plumbline.records import Evaluation, Example, Sampling
from plumbline.rollouts import check_prompts
from plumbline.runs.cards import Card
from plumbline.runs.evaluations import read_evaluation
from plumbline.runs.run import Run
from plumbline.storage import read_jsonl
from plumbline.tasks import NOWHERE, TASKS, Progress, open_task
from plumbline.tasks.task import Task

TASK = "commerce"
"""The task of a command that names none."""
Event = Callable[[str, str], None]
"""Told the kind and the message of something that the user should know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How a model is asked on the command line."""

    temperature: float = 0.0
    greedy: bool = False
    """Says once more that the temperature is 0, so that a command line that asks for both is refused."""
    max_tokens: int | None = None
    """None takes what the model's own run evaluated with, else 256."""
    steps: int | None = None
    """Denoising steps; None takes what the model's own run evaluated with."""
    family: str | None = None
    """None takes what the model's directory says, else autoregressive."""
    seed: int = 0
    device: str = "auto"
    dtype: str | None = None
    """None takes that of the model's own run, else auto."""
    rows_at_once: int | None = None
    """Answers drawn side by side; None leaves it to the policy."""
    chat_template: str | None = None
    allow_overlap: bool = False

    def __post_init__(self) -> None:
        """Refuse what contradicts itself, and what no model could be asked or opened with.

        Raises:
            RecipeError: says which.
        """
        if not 0 <= self.temperature < math.inf:
            raise RecipeError(f"the temperature is {self.temperature}", "give a number from 0 on, and not inf")
        section(
            ModelSection, {"name": "x", "device": self.device, "dtype": self.dtype or "auto"}, "the model's options"
        )
        if self.greedy and self.temperature > 0:
            raise RecipeError(
                f"greedy answers have the temperature 0, not {self.temperature}", "leave out --greedy or --temperature"
            )


def open_task_for(target: str, name: str, options: Mapping[str, Any], data: Path | None, progress: Progress) -> Task:
    """The task whose records fit a target: those that the model's own run held out, else the given or default ones.

    Args:
        target: a model, or the name of a reference.
        name: the task, or the name that the model's recipe gave to one of several; empty is the model's own, and
            commerce for all else.
        options: from the command line; they go over the model's.
        data: where the records are; None finds or builds them.
        progress: told about building.

    Raises:
        RecipeError: the model was trained on several tasks, and none of them is named.
    """
    card = Card.read(target)
    own = None if card is None else _own_task(card, name, target)
    if card is None or own is None:
        name = name or TASK
        return open_task(name, options, records_folder(name, data), progress)
    label, task = own
    if data is not None:
        return open_task(task.name, options, records_folder(task.name, data), progress)
    run = Path(target).resolve().parents[1]
    ours = (run / "recipe.yaml").is_file() and (run / "data").is_dir()
    folder = run / "data" / label if ours else Path("data") / f"{label or task.name}-of-{card.recipe.split()[-1]}"
    return open_task(task.name, {**task.options, **options}, folder, progress)


def _own_task(card: Card, name: str, target: str) -> tuple[str, TaskSection] | None:
    """Which of the tasks that a model was trained on is meant, and what its recipe called it; None for none of them."""
    if not card.tasks:
        return ("", TaskSection(name=card.task, options=dict(card.options))) if name in {"", card.task} else None
    if name in card.tasks:
        return name, section(TaskSection, card.tasks[name])
    meant = [label for label, one in card.tasks.items() if name in {"", one["name"]}]
    if len(meant) > 1:
        raise RecipeError(f"{target} was trained on several tasks", f"add --task with one of {', '.join(meant)}")
    return (meant[0], section(TaskSection, card.tasks[meant[0]])) if meant else None


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
            f"check --data; `plumbline data commerce --out {given}` builds records there, and without --data those of "
            "data/commerce are used",
        )
    return given


def check_target(target: str, task: Task, asking: Asking) -> None:
    """Refuse a target that is not there, before records are built for it and before a hub is asked.

    Raises:
        RecipeError: it looks like a misspelt reference, or is a control of another task.
        ModelError, DataError: no model can be opened there (see `check_model`).
    """
    if target == ORACLE or target in task.controls:
        return
    if "/" not in target and not Path(target).exists():
        close = difflib.get_close_matches(target.casefold(), (ORACLE, *task.controls), n=1, cutoff=0.75)
        models = "a model is a directory, a GGUF file, or a hub name such as org/model"
        if close:
            raise RecipeError(f"there is no model and no control named {target}", f"did you mean {close[0]}? {models}")
        for other in TASKS:
            if other != task.name and target in _controls_of(other):
                raise RecipeError(
                    f"{target} is a control of the task {other}, and the task is {task.name}",
                    f"add --task {other}, or give one of {', '.join((ORACLE, *task.controls))}; {models}",
                )
    check_model(_as_trained(target, asking)[0], target)


def _controls_of(task: str) -> Collection[str]:
    try:
        return open_task(task, {}, NOWHERE).controls
    except PlumblineError:  # what it needs is not installed
        return ()


def evaluate_target(
    target: str,
    task: Task,
    examples: Sequence[Example],
    split: str,
    asking: Asking,
    progress: Progress,
    event: Event | None = None,
) -> Evaluation:
    """Evaluate the oracle or a control by name, else a model; `event` is told what makes the model slow.

    Raises:
        DataError: the model was trained on some of these prompts.
        ModelError: there is no such model.
        DeviceMemoryError: the device's memory is not enough for it, or for so many answers at once.
    """
    if target == ORACLE or target in task.controls:
        return evaluate_reference(task, examples, source=target, split=split)
    _check_unseen(target, examples, asking)
    opened, sampling = _as_trained(target, asking)
    policy = open_policy(opened, target)
    if event is not None and (message := slowness(policy)):
        event("slow", message)
    check_prompts(policy, examples, sampling)
    with clear_memory_errors("draw fewer answers at once with --rows-at-once, or use --device cpu"):
        return evaluate_policy(
            policy,
            task,
            examples,
            source=target,
            split=split,
            sampling=sampling,
            seed=asking.seed,
            progress=lambda done, total: progress(f"evaluating {split}", done, total),
        )


def _as_trained(target: str, asking: Asking) -> tuple[ModelSection, Sampling]:
    """How to open a model and how to ask it: as its own run did, but for what the command line says."""
    card = Card.read(target)
    asked = {
        "family": asking.family,
        "device": asking.device,
        "dtype": asking.dtype,
        "rows_at_once": asking.rows_at_once,
        "chat_template": asking.chat_template,
    }
    saved = {**(card.model if card is not None else {}), **saved_settings(target)}
    if "lora" not in saved:  # merged, or never quantised: 4 bits are for the base of an adapter
        saved.pop("quantize", None)
    given = {key: value for key, value in asked.items() if value is not None}
    opened = section(ModelSection, {**saved, **given, "name": target}, "the model's options")
    law = {**card.sampling} if card is not None else {}
    limits = {"temperature": asking.temperature, "max_tokens": asking.max_tokens, "steps": asking.steps}
    if asking.temperature == 0:
        limits |= {"top_k": 0, "top_p": 1.0}
    try:
        return opened, Sampling(**{**law, **{key: value for key, value in limits.items() if value is not None}})
    except ValueError as error:  # more blocks than --max-tokens has tokens
        raise RecipeError(
            f"{target} cannot be asked like this: {error}", "leave out --max-tokens or --steps"
        ) from error


def _check_unseen(target: str, examples: Sequence[Example], asking: Asking) -> None:
    card = Card.read(target)
    seen = [example.id for example in examples if card is not None and example.fingerprint() in card.trained_on]
    if seen and not asking.allow_overlap:
        raise DataError(
            f"{target} was trained on {len(seen)} of these {len(examples)} prompts, for example {seen[0]}",
            "evaluate on a split that it has not seen, or add --allow-overlap to measure memory",
        )


def evaluate_file(path: Path, task: Task, splits: Sequence[str]) -> tuple[Evaluation, int]:
    """Judge a file of completions from anywhere: JSON lines of {"id", "completion"}.

    Args:
        path: the file.
        task: whose examples the ids name.
        splits: where the ids are looked up.

    Returns:
        The evaluation, and how many rows named no example of these splits.

    Raises:
        DataError: a row is malformed, an id comes twice, or none is known.
    """
    given: dict[str, str] = {}
    for number, row in read_jsonl(path):  # before any records are built for it
        identity, completion = row.get("id"), row.get("completion", row.get("text"))
        if not isinstance(identity, str) or not isinstance(completion, str):
            raise DataError(f'{path}:{number}: a row needs "id" and "completion", both text', "correct that line")
        if identity in given:
            raise DataError(f"{path}:{number}: {identity} has an answer already", "give one completion for each id")
        given[identity] = completion
    if not given:
        raise DataError(f"{path} has no rows", 'write a line of {"id", "completion"} for each answer')
    known = {example.id: example for split in splits for example in task.examples(split)}
    answers = {identity: completion for identity, completion in given.items() if identity in known}
    unknown = len(given) - len(answers)
    if not answers:
        raise DataError(
            f"none of the {unknown} ids in {path} is an example of {', '.join(splits)}",
            "check --data and --split: the ids come from its train, val or test file",
        )
    examples = [known[identity] for identity in answers]
    evaluation = evaluate_completions(task, examples, list(answers.values()), source=path.name, split="+".join(splits))
    return evaluation, unknown


def coverage(evaluation: Evaluation, task: Task, splits: Sequence[str]) -> dict[str, Any]:
    """How much of its splits a file's evaluation covers: a mean over the easy tenth is none of the whole.

    Args:
        evaluation: of completions from anywhere.
        task: whose examples they answer.
        splits: where the ids were looked up; of several only those that have an answer count.

    Returns:
        Plain values: `splits` (of each, how many were answered, of how many), `missing` (examples without an answer),
        `mean_missing_as_0` (the mean reward with those counted as 0; answers that could not be judged are left out),
        and `train_rows` (answers to rows of the split train).
    """
    ids = {split: {example.id for example in task.examples(split)} for split in splits}
    answered = {row.id for row in evaluation.rows} | {row.id for row in evaluation.unjudged}
    counted = {split: known for split, known in ids.items() if len(splits) == 1 or known & answered}
    missing = len(frozenset[str]().union(*counted.values()) - answered)
    judged = len(evaluation.rows)
    return {
        "splits": {name: {"answered": len(known & answered), "of": len(known)} for name, known in counted.items()},
        "missing": missing,
        "mean_missing_as_0": float(evaluation.rewards().sum()) / (judged + missing) if judged + missing else None,
        "train_rows": len(ids.get("train", set()) & answered),
    }


def find_evaluations(target: Path) -> dict[str, Evaluation]:
    """What `plumbline compare` may compare: a file's evaluation, or the last stage's of a run, by split and mode.

    Raises:
        DataError: neither a file nor a run with evaluations.
    """
    if target.is_file():
        return {"": read_evaluation(target)}
    finals = {key: evaluation for key, evaluation in Run.read(target).evaluations().items() if key.step is None}
    for stage in ("rl", "sft", "base"):
        found = {f"{key.task} {key.split} {key.mode}".strip(): finals[key] for key in finals if key.stage == stage}
        if found:
            return found
    raise DataError(f"{target} has no evaluation yet", "let the run finish a stage")


def compare_targets(first: Path, second: Path) -> tuple[dict[str, Paired], list[tuple[str, Any, Any]]]:
    """Every comparison that two targets allow, and what differs between their recipes where both are runs.

    Raises:
        DataError: a target is neither a run nor an evaluation, or they have no split and mode in common.
        IncomparableError: another rubric, or other examples.
    """
    before, after = find_evaluations(first), find_evaluations(second)
    if "" in before or "" in after:
        before, after = _single(before, after), _single(after, before)
    shared = [name for name in before if name in after]
    if not shared:
        raise DataError(f"{first} and {second} have no split and mode in common", "evaluate both on the same split")
    changes: list[tuple[str, Any, Any]] = []
    if first.is_dir() and second.is_dir():
        changes = list(differences(Run.read(first).recipe, Run.read(second).recipe))
    return {name or "evaluation": compare(before[name], after[name]) for name in shared}, changes


def _single(found: dict[str, Evaluation], other: dict[str, Evaluation]) -> dict[str, Evaluation]:
    """A run beside a single evaluation: the run's evaluation of that split and mode."""
    if "" in found:
        return found
    one = other[""]
    mode = "sampled" if one.sampling.get("temperature") else "greedy"
    name = f"{one.split} {mode}"
    meant = [
        found[key]
        for key in found
        if key.endswith(name) and (found[key].task, found[key].split) == (one.task, one.split)
    ]
    if len(meant) > 1:  # tasks of one kind with other options: that which has the same examples
        ids = {row.id for row in one.rows}
        meant = [evaluation for evaluation in meant if ids == {row.id for row in evaluation.rows}]
    return {"": meant[0]} if meant else {}
