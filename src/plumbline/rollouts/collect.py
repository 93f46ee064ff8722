"""Sampler times task gives judged groups. Training and evaluation both use this and nothing else.

Two places that sample drift apart (10 denoising steps in one against 64 in the other, greedy
against sampled), so both call `collect`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from plumbline.errors import DataError
from plumbline.policies.policy import Engine, Policy, Sampler
from plumbline.records import (
    Example,
    Group,
    Key,
    Request,
    Rollout,
    Sampling,
    Trajectory,
    rollouts_of,
)
from plumbline.rollouts.reward_workers import RewardWorkers, check_failures
from plumbline.tasks.task import Task


def collect(
    sampler: Sampler,
    task: Task,
    examples: Sequence[Example],
    *,
    copies: int,
    sampling: Sampling,
    key: Key,
) -> list[Group]:
    """Go through `copies` episodes of each example, and judge each answer as soon as it is
    finished.

    Args:
        sampler: draws.
        task: judges.
        examples: one may come several times (an epoch that ends within a step); its copies are then
            numbered on.
        copies: of each, G.
        sampling: its sampling distribution.
        key: what each request's key begins with; the example's id, the copy's number and the turn
            follow.

    Returns:
        One group an example, in the order of the examples.
    """
    return collect_parts(
        sampler, [TaskPart("", task, examples, key)], copies=copies, sampling=sampling
    )


@dataclass(frozen=True, slots=True, eq=False)
class TaskPart:
    """What is collected of one task: see `collect`."""

    name: str
    """What the recipe calls the task; empty for the only one."""
    task: Task
    examples: Sequence[Example]
    key: Key


def hand_over(policy: Policy, version: int, engine: Engine | None) -> None:
    """Let the policy's present weights draw what follows as this version: its own sampler, and the
    engine."""
    policy.publish(version)
    if engine is not None:
        engine.take(policy, version)


def check_judged(groups: Sequence[Group]) -> None:
    """Stop where too many answers to one of the tasks could not be judged.

    Raises:
        TrainingStopped: see `check_failures`.
    """
    for task in dict.fromkeys(group.task for group in groups):
        rollouts = rollouts_of(group for group in groups if group.task == task)
        check_failures(
            [str(one.verdict.failure) for one in rollouts if one.verdict.failure is not None],
            len(rollouts),
        )


def collect_parts(
    sampler: Sampler, parts: Sequence[TaskPart], *, copies: int, sampling: Sampling
) -> list[Group]:
    """`collect` for several tasks, whose requests are drawn together: on a GPU a call takes about
    as long as its longest answer, so the tasks' calls one after the other would take the sum of
    theirs.

    All episodes that are not over are asked together, turn by turn. One whose next prompt does not
    fit into the context ends there, with what its answers came to so far (`Rollout.cut`).

    Returns:
        The groups of all parts, in their order.
    """
    with ExitStack() as stack:
        running = [
            (
                part,
                stack.enter_context(RewardWorkers(part.task, part.examples)),
                list(_attempts(part, copies)),
            )
            for part in parts
        ]
        owner = {
            attempt.key: (workers, attempt)
            for _, workers, attempts in running
            for attempt in attempts
        }
        requests = [
            Request((*attempt.key, 0), part.examples[attempt.prompt].messages, sampling)
            for part, _, attempts in running
            for attempt in attempts
        ]
        turn = 0
        while requests:
            for request, trajectory in sampler.sample(requests):
                workers, attempt = owner[request.key[:-1]]
                attempt.turns.append(trajectory)
                workers.submit(attempt.prompt, attempt.copy, trajectory.text)
            turn, requests = turn + 1, []
            for part, workers, attempts in running:
                if turn < part.task.turns:
                    asked = workers.next_prompts()
                    for attempt in attempts:
                        if (messages := asked.get((attempt.prompt, attempt.copy))) is None:
                            continue
                        if sampler.prompt_length(messages) + sampling.max_tokens > sampler.context:
                            attempt.cut = True
                        else:
                            attempt.asked.append(messages[-1]["content"])
                            requests.append(Request((*attempt.key, turn), messages, sampling))
    return [
        group
        for part, workers, attempts in running
        for group in _groups(part, workers, attempts, copies)
    ]


@dataclass(slots=True, eq=False)
class _Attempt:
    """An episode that goes on."""

    prompt: int
    """The place of its example."""
    copy: int
    key: Key
    """Of its requests; the turn follows."""
    turns: list[Trajectory] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    cut: bool = False


def _attempts(part: TaskPart, copies: int) -> Iterator[_Attempt]:
    seen: Counter[str] = Counter()
    for prompt, example in enumerate(part.examples):
        for copy in range(copies):
            yield _Attempt(prompt, copy, (*part.key, example.id, seen[example.id] + copy))
        seen[example.id] += copies


def _groups(
    part: TaskPart, workers: RewardWorkers, attempts: Sequence[_Attempt], copies: int
) -> Iterator[Group]:
    """One group an example, once all is judged."""
    rollouts = [
        Rollout(
            turns=tuple(attempt.turns),
            verdict=workers.result(attempt.prompt, attempt.copy),
            asked=tuple(attempt.asked),
            cut=attempt.cut,
        )
        for attempt in attempts
    ]
    for prompt, example in enumerate(part.examples):
        group = tuple(rollouts[prompt * copies : (prompt + 1) * copies])
        yield Group(example=example, rollouts=group, task=part.name)


def check_prompts(sampler: Sampler, examples: Sequence[Example], sampling: Sampling) -> None:
    """Fail before anything is trained where a prompt and its answer would not fit into the model's
    context.

    Raises:
        DataError: names the longest such example, and how many there are.
    """
    lengths = [sampler.prompt_length(example.messages) for example in examples]
    too_long = [
        index
        for index, length in enumerate(lengths)
        if length + sampling.max_tokens > sampler.context
    ]
    if too_long:
        worst = max(too_long, key=lengths.__getitem__)
        raise DataError(
            f"{len(too_long)} of {len(examples)} prompts do not fit: {examples[worst].id} has "
            f"{lengths[worst]} tokens, "
            f"and with an answer of up to {sampling.max_tokens} exceeds the context of "
            f"{sampler.context}",
            "lower sampling.max_tokens, shorten the prompts, or use a model with a longer context",
        )
