"""The laws, as functions that a test calls on any policy and any task.

A new model family or task is held to them the day it appears; each law has a negative control in the test suite that
must fail.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from plumbline.evaluation.evaluate import ORACLE, references
from plumbline.policies.policy import Policy, Sampler
from plumbline.records import Example, Item, Message, Request, Sampling, Score, Trajectory
from plumbline.rollouts import collect
from plumbline.tasks.precheck import HOSTILE
from plumbline.tasks.task import Itemised, Task

__all__ = ["HOSTILE", "PolicyLaws", "TaskLaws", "check_episodes", "check_policy", "check_task", "sampled"]


@dataclass(frozen=True, slots=True)
class PolicyLaws:
    """What `check_policy` measured."""

    gap: float
    """Law 1: the largest |scored - recorded| log-probability of a choice [nats]."""
    chi_square_p: float
    """Law 2: how likely draws of the declared law are to miss it by this much."""
    mass: float
    """Sum of the declared probabilities of all distinct trajectories that were drawn: at most 1 under a true law."""
    kinds: int
    """Distinct trajectories drawn."""


def sampled(
    sampler: Sampler, prompts: Sequence[Sequence[Message]], copies: int, sampling: Sampling, seed: int
) -> list[list[Trajectory]]:
    """Trajectories in the order of the prompts, `copies` of each, for tests and benchmarks."""
    requests = [
        Request((seed, prompt, copy), messages, sampling)
        for prompt, messages in enumerate(prompts)
        for copy in range(copies)
    ]
    drawn = {request.key: trajectory for request, trajectory in sampler.sample(requests)}
    return [[drawn[seed, prompt, copy] for copy in range(copies)] for prompt in range(len(prompts))]


def check_policy(
    policy: Policy, messages: Sequence[Message], sampling: Sampling, *, draws: int = 20_000, seed: int = 0
) -> PolicyLaws:
    """Measure both laws of a policy by drawing many trajectories for one prompt.

    Law 1 alone passes for a sampler that is wrong in the same way as its scorer; law 2 compares how often each
    trajectory came with the probability that the scorer gives it. Choose a prompt and limits for which the distinct
    trajectories are few (tens to hundreds), or the counts say nothing.

    Args:
        policy: any family.
        messages: the prompt.
        sampling: the law to test.
        draws: trajectories.
        seed: of the sampler.
    """
    (trajectories,) = sampled(policy, [messages], draws, sampling, seed)
    return _laws(policy, [(trajectory,) for trajectory in trajectories])


def check_episodes(
    policy: Policy, task: Task, example: Example, sampling: Sampling, *, draws: int = 20_000, seed: int = 0
) -> PolicyLaws:
    """Measure both laws over whole episodes of a task with one example; see `check_policy`.

    The probability of an episode is the product over its turns, each at the prompt that the turns before it led to.
    """
    (group,) = collect(policy, task, [example], copies=draws, sampling=sampling, key=(seed,))
    return _laws(policy, [rollout.turns for rollout in group.rollouts])


def _laws(policy: Policy, drawn: Sequence[Sequence[Trajectory]]) -> PolicyLaws:
    draws = len(drawn)
    counts = Counter(map(_key, drawn))
    one_of_each = list({_key(turns): turns for turns in drawn}.values())
    episode = np.array([number for number, turns in enumerate(one_of_each) for _ in turns])
    scored = policy.score([turn for turns in one_of_each for turn in turns])
    logprobs, owner = scored.logprobs.detach().double().cpu().numpy(), scored.owner.cpu().numpy()
    totals = np.bincount(episode[owner], weights=logprobs, minlength=len(one_of_each))
    probabilities = np.exp(totals)
    observed = np.array([counts[_key(turns)] for turns in one_of_each], dtype=np.float64)
    gap = float((scored.logprobs.detach() - scored.recorded).abs().max())
    return PolicyLaws(
        gap=gap,
        chi_square_p=_chi_square_p(observed, probabilities * draws, draws),
        mass=float(probabilities.sum()),
        kinds=len(one_of_each),
    )


def _key(turns: Sequence[Trajectory]) -> bytes:
    return b"/".join(
        b"|".join(step.positions.tobytes() + b":" + step.tokens.tobytes() for step in turn.steps) for turn in turns
    )


def _chi_square_p(observed: np.ndarray, expected: np.ndarray, draws: int) -> float:
    """Upper tail of Pearson's statistic; kinds expected fewer than 5 times are pooled, with those never drawn."""
    often = expected >= 5
    counts = np.append(observed[often], observed[~often].sum())
    means = np.append(expected[often], max(draws - expected[often].sum(), 1e-9))
    if means[-1] < 5:  # a remainder too small to be a cell of its own
        counts, means = np.append(counts[:-2], counts[-2:].sum()), np.append(means[:-2], means[-2:].sum())
    statistic = float(((counts - means) ** 2 / means).sum())
    return _upper_tail(statistic, len(counts) - 1)


def _upper_tail(statistic: float, degrees: int) -> float:
    """P(chi-square > statistic), by Wilson and Hilferty's cube root (1931); within 1e-3 for 3 degrees or more."""
    if degrees < 1:
        return 1.0
    z = ((statistic / degrees) ** (1 / 3) - (1 - 2 / (9 * degrees))) / math.sqrt(2 / (9 * degrees))
    return 0.5 * math.erfc(z / math.sqrt(2))


@dataclass(frozen=True, slots=True)
class TaskLaws:
    """What `check_task` measured on one split."""

    oracle: float | None
    """The least reward of a gold answer: 1.0; None where there are none."""
    controls: Mapping[str, float]
    """Mean reward of each control."""
    raised: tuple[str, ...]
    """Texts on which the verifier raised, or itemised more than the reward or outside of the text: none."""


def check_task(task: Task, split: str, *, hostile: Sequence[str] = HOSTILE) -> TaskLaws:
    """Measure the laws of a task on a split: the oracle, the controls, and texts that no verifier expects."""
    examples = task.examples(split)
    evaluations = references(task, examples, split)
    raised = []
    for example in (examples[0], examples[-1]):
        for text in (*hostile, *([] if example.gold is None else [example.gold])):
            try:
                _, score = task.judge(example, text)
                assert 0 <= score.total <= 1
                if isinstance(task, Itemised):
                    _check_items(task.items(text, score), text, score)
            except Exception as error:  # noqa: BLE001 - that it raised at all is what is measured
                raised.append(f"{text[:20]!r}: {type(error).__name__}: {error}")
    return TaskLaws(
        oracle=float(evaluations[ORACLE].rewards().min()) if ORACLE in evaluations else None,
        controls={name: e.mean_reward for name, e in evaluations.items() if name != ORACLE},
        raised=tuple(raised),
    )


def _check_items(items: Mapping[str, Item], text: str, score: Score) -> None:
    assert all(item.earned >= 0 for item in items.values())
    assert sum(item.earned for item in items.values()) <= score.total + 1e-9
    assert all(0 <= start <= end <= len(text) for item in items.values() for start, end in item.spans)
