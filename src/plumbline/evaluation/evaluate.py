"""Evaluations of models, of completions from elsewhere, of the oracle and of the baselines.

Only a model needs torch; judging completions, the oracle and the baselines runs on a laptop in a
second.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from plumbline.errors import DataError
from plumbline.policies.policy import Sampler
from plumbline.records import (
    Evaluation,
    Example,
    Group,
    Judged,
    Key,
    Rollout,
    Sampling,
    Unjudged,
    Verdict,
)
from plumbline.rollouts.collect import collect
from plumbline.rollouts.reward_workers import RewardWorkers, check_failures
from plumbline.runs.evaluations import PartialEvaluation
from plumbline.tasks import Progress, silent
from plumbline.tasks.task import Task, gold_of

ORACLE = "oracle"
AT_ONCE = 64
"""Examples that are sampled together, after which `progress` is told; no answer depends on it."""
SECONDS_BETWEEN = 1.0
"""Between two words about verdicts that take their time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Under which a policy is evaluated, as the evaluation then says."""

    source: str
    """What the policy is called."""
    split: str
    """Where the examples are from."""
    sampling: Sampling
    seed: int


def evaluate_policy(
    policy: Sampler,
    task: Task,
    examples: Sequence[Example],
    under: Conditions,
    progress: Callable[[int, int], None] | None = None,
    begun: PartialEvaluation | None = None,
) -> Evaluation:
    """One episode of the policy with each example; `progress` is told how many of how
    many are judged.

    What is drawn for an example depends on the seed and its id, and not on the others: the answers
    to the first five are the first five answers to all. So what `begun` has is not asked again; it
    is given what follows, part by part.

    Raises:
        DataError: what was begun is not of these examples.
        TrainingStopped: too many could not be judged (see `check_failures`).
    """
    rows = [] if begun is None else begun.rows()
    if [row.id for row in rows] != [example.id for example in examples[: len(rows)]]:
        raise DataError(
            "the evaluation was begun with other examples",
            "delete evaluations/*.part.jsonl of the run",
        )
    if progress is not None:
        progress(len(rows), len(examples))
    for start in range(len(rows), len(examples), AT_ONCE):
        part = examples[start : start + AT_ONCE]
        key: Key = (under.seed, "evaluate")
        groups = collect(policy, task, part, copies=1, sampling=under.sampling, key=key)
        found = [_row_of_group(group) for group in groups]
        rows += found
        if begun is not None:
            begun.add(found)
        if progress is not None:
            progress(len(rows), len(examples))
    return _evaluation(task, under.source, under.split, rows, asdict(under.sampling), under.seed)


def evaluate_completions(
    task: Task,
    examples: Sequence[Example],
    completions: Sequence[str],
    *,
    source: str,
    split: str,
    progress: Progress = silent,
) -> Evaluation:
    """Completions from anywhere, one for each example in the same order; each is its episode's
    first and last answer. `progress` is told where verdicts take their time.

    Raises:
        DataError: there are not as many as examples.
        TrainingStopped: too many could not be judged (see `check_failures`).
    """
    if len(examples) != len(completions):
        raise DataError(f"{len(completions)} completions for {len(examples)} examples")
    with RewardWorkers(task, examples) as workers:
        for index, text in enumerate(completions):
            workers.submit(index, 0, text)
        what, total, waited = f"{source} on {split}", len(completions), False
        while left := workers.pending(SECONDS_BETWEEN):
            progress(what, total - left, total)
            waited = True
        if waited:
            progress(what, total, total)
    rows = [
        _row(example, text, workers.result(index, 0))
        for index, (example, text) in enumerate(zip(examples, completions, strict=True))
    ]
    return _evaluation(task, source, split, rows, {}, 0)


def evaluate_reference(
    task: Task, examples: Sequence[Example], *, source: str, split: str, progress: Progress = silent
) -> Evaluation:
    """The oracle, or a baseline by name; for `progress` see `evaluate_completions`.

    Raises:
        DataError: the task has no baseline of that name; the oracle is asked for what has no gold
            answer.
    """
    if source == ORACLE:
        answers = list(map(gold_of, examples))
    elif source in task.baselines:
        answers = task.baselines[source](examples)
    else:
        raise DataError(
            f"task {task.name} has no baseline {source!r}",
            f"it has {', '.join((ORACLE, *task.baselines))}",
        )
    return evaluate_completions(
        task, examples, answers, source=source, split=split, progress=progress
    )


def evaluate_references(
    task: Task, examples: Sequence[Example], split: str, progress: Progress = silent
) -> dict[str, Evaluation]:
    """All of `references_of`. For `progress` see `evaluate_completions`."""
    return {
        name: evaluate_reference(task, examples, source=name, split=split, progress=progress)
        for name in references_of(task, examples)
    }


def references_of(task: Task, examples: Sequence[Example]) -> tuple[str, ...]:
    """Names of the oracle and of every baseline: the ceiling and the floor that stand beside each
    evaluation.

    Examples without gold answers have no oracle, and so no ceiling.
    """
    return (
        *([ORACLE] if all(example.gold is not None for example in examples) else []),
        *task.baselines,
    )


def _row_of_group(group: Group) -> Judged | Unjudged:
    """The row of a group's only answer."""
    (rollout,) = group.rollouts
    return _row(group.example, rollout.text, rollout.verdict, rollout)


def _row(
    example: Example, completion: str, verdict: Verdict, rollout: Rollout | None = None
) -> Judged | Unjudged:
    """A row; the rollout where a policy of ours wrote the completion."""
    outcome, score, failure = verdict
    if score is None:
        return Unjudged(
            id=example.id, stratum=example.stratum, completion=completion, failure=str(failure)
        )
    return Judged(
        id=example.id,
        stratum=example.stratum,
        completion=completion,
        reward=score.total,
        parts=dict(score.parts),
        readings=dict(score.readings),
        how=outcome.how,
        cluster=example.cluster,
        truncated=None if rollout is None else rollout.truncated,
        tokens=None if rollout is None else rollout.num_tokens,
        turns=tuple(turn.text for turn in rollout.turns)
        if rollout is not None and rollout.asked
        else (),
        asked=() if rollout is None else rollout.asked,
        cut=rollout is not None and rollout.cut,
    )


def _evaluation(
    task: Task,
    source: str,
    split: str,
    rows: Sequence[Judged | Unjudged],
    sampling: Mapping[str, Any],
    seed: int,
) -> Evaluation:
    unjudged = tuple(row for row in rows if isinstance(row, Unjudged))
    check_failures([row.failure for row in unjudged], len(rows))
    return Evaluation(
        source=source,
        task=task.name,
        split=split,
        rubric=task.rubric,
        sampling=sampling,
        seed=seed,
        rows=tuple(row for row in rows if isinstance(row, Judged)),
        unjudged=unjudged,
        form=tuple(task.form),
        headline=task.headline,
    )
