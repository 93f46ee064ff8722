"""What a model's own answers to training prompts offer to learn from, measured before anything is
trained.

Letters in shapes: P prompts, G answers to each.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plumbline.algorithms.algorithm import has_signal
from plumbline.algorithms.grpo import Grpo
from plumbline.errors import DataError
from plumbline.policies.forks import processor_seconds
from plumbline.policies.policy import Policy
from plumbline.recipe import Recipe, RlSection
from plumbline.records import Group, Judged, Score, rollouts_of
from plumbline.rollouts.collect import check_judged, collect
from plumbline.tasks import Progress, silent
from plumbline.tasks.task import Task
from plumbline.training.microbatches import Microbatches
from plumbline.training.optimiser import Optimiser
from plumbline.training.rl import weigh_rollouts
from plumbline.training.update import update_policy

PROMPTS, ANSWERS = 64, 8
"""P and G by default: 512 answers."""
NEARLY = 0.95
"""A reward from which an answer counts as right, where no part or reading is named."""


@dataclass(frozen=True, slots=True)
class PilotFigures:
    """What `P * G` sampled answers show. Shares and rewards lie in [0, 1]."""

    prompts: int
    answers: int
    """All that were drawn, P * G."""
    reward: float
    """Mean."""
    best: float
    """Mean over prompts of the best of G."""
    right: float
    """pass@1: the share of answers that are right."""
    right_prompts: float
    """pass@G: the share of prompts of which one answer is right."""
    mixed: float
    """Share of groups whose rewards differ."""
    spread: float
    """Of rewards within a group: the root of the mean unbiased variance."""
    parts: dict[str, float]
    """The same of each part of the reward, before its weight."""
    tokens: float
    truncated: float
    entropy: float
    """Nats a token of what was sampled."""
    duplicates: float
    """Share of answers whose text an earlier answer to the same prompt has."""
    signal: float | None
    """Signal over noise in the squared norm of one step's gradient, for an answer: times the
    answers of a step it is that step's. None where no group has a signal."""
    draw_seconds: float
    """Processor-seconds of drawing and judging an answer."""
    update_seconds: float
    """Processor-seconds of an answer's share of an update."""

    def signal_at(self, answers: int) -> float | None:
        """Signal over noise of a step with so many answers (McCandlish et al. 2018,
        arXiv:1812.06162: it grows with their number)."""
        return None if self.signal is None else self.signal * answers


def measure_answers(
    policy: Policy,
    task: Task,
    recipe: Recipe,
    *,
    prompts: int = PROMPTS,
    answers: int = ANSWERS,
    right: str | None = None,
    progress: Progress = silent,
) -> PilotFigures:
    """Draw answers to the first training prompts as the recipe samples, and one gradient of them.

    Args:
        policy: with the weights that training would begin with; they stay as they are.
        task: whose verifier judges.
        recipe: how answers are drawn; of its `rl` only what limits micro-batches is used, since
            the gradient is GRPO's in any case.
        prompts: P, at most as many as the task has.
        answers: G, two at least.
        right: a part or a reading of the score that is 1 where an answer is right; without one a
            reward of at least `NEARLY` is.
        progress: is told what is done.

    Raises:
        DataError: no training prompts, too many answers that could not be judged, or no part or
            reading of that name.
    """
    examples = task.examples("train")[:prompts]
    if not examples:
        raise DataError("there is nothing to measure on: the training split is empty")
    progress(f"drawing {len(examples) * answers} answers", 0, 1)
    began = processor_seconds()
    groups = collect(
        policy,
        task,
        examples,
        copies=answers,
        sampling=recipe.sampling,
        key=(recipe.seed, "pilot"),
    )
    check_judged(groups)
    drawn = processor_seconds() - began
    progress("their gradient", 0, 1)
    signal, updated = _measure_signal(policy, groups, recipe)
    rollouts = rollouts_of(groups)
    scores = [rollout.verdict.score for rollout in rollouts]
    flags = _fold([judge_right(score, right) for score in scores], len(groups))
    rewards = _fold([rollout.reward for rollout in rollouts], len(groups))
    logprobs = np.concatenate([turn.logprobs for rollout in rollouts for turn in rollout.turns])
    texts = [len({rollout.text for rollout in group.rollouts}) for group in groups]
    parts = dict.fromkeys(name for score in scores if score for name in score.parts)
    return PilotFigures(
        prompts=len(groups),
        answers=len(rollouts),
        reward=float(np.nanmean(rewards)),
        best=float(np.mean([np.nanmax(row) for row in rewards if not np.isnan(row).all()])),
        right=float(np.nanmean(flags)),
        right_prompts=float(np.mean(np.nan_to_num(flags).max(axis=1))),
        mixed=float(np.mean([has_signal(row) for row in rewards])),
        spread=_spread(rewards),
        parts={
            name: _spread(_fold([_part(each, name) for each in scores], len(groups)))
            for name in parts
        },
        tokens=float(np.mean([rollout.num_tokens for rollout in rollouts])),
        truncated=float(np.mean([rollout.truncated for rollout in rollouts])),
        entropy=-float(logprobs.mean(dtype=np.float64)),
        duplicates=1 - sum(texts) / len(rollouts),
        signal=signal,
        draw_seconds=drawn / len(rollouts),
        update_seconds=updated / len(rollouts),
    )


def _measure_signal(
    policy: Policy, groups: Sequence[Group], recipe: Recipe
) -> tuple[float | None, float]:
    """Signal over noise of one answer, and the processor-seconds of an update with all."""
    section = recipe.rl or RlSection(steps=1)
    algorithm = Grpo()
    still = section.optimiser.model_copy(update={"learning_rate": 0.0, "weight_decay": 0.0})
    section = section.model_copy(
        update={
            "algorithm": algorithm,
            "minibatch": None,
            "inner_epochs": 1,
            "optimiser": still,
            "beta": 0.0,
            "teacher": None,
        }
    )
    optimiser = Optimiser(policy.trainable(), still, 1)
    began = processor_seconds()
    report = update_policy(
        policy,
        optimiser,
        weigh_rollouts(groups, algorithm),
        recipe.model_copy(update={"rl": section}),
        0,
        Microbatches(optimiser, policy),
    )
    spent = processor_seconds() - began
    if report.gradient is None or report.gradient.noise <= 0:
        return None, spent
    answers = len(rollouts_of(groups))
    return report.gradient.signal / report.gradient.noise / answers, spent


def judge_right(judged: Score | Judged | None, name: str | None) -> float:
    """Whether an answer is right: 1 or 0; NaN where that is not known, as of one that could not be
    judged.

    Args:
        judged: the answer's score, or its row in an evaluation.
        name: the part or the reading that is 1 where it is; without one the reward is `NEARLY` or
            more.

    Raises:
        DataError: the reward has no part or reading of that name.
    """
    if judged is None:
        return math.nan
    if name is None:
        total = judged.total if isinstance(judged, Score) else judged.reward
        return float(total >= NEARLY)
    named = {**judged.parts, **judged.readings}
    if name not in named:
        raise DataError(
            f"the reward has no part or reading {name}", f"it has {', '.join(named) or 'none'}"
        )
    value = named[name]
    return math.nan if value is None else float(value == 1)


def _part(score: Score | None, name: str) -> float:
    value = None if score is None else score.parts.get(name)
    return math.nan if value is None else value


def _fold(values: Sequence[float], groups: int) -> NDArray[np.float64]:
    """By prompt [P, G]."""
    return np.array(values, dtype=np.float64).reshape(groups, -1)


def _spread(values: NDArray[np.float64]) -> float:
    """The root of the mean over rows of the unbiased variance; 0 where no row has two values."""
    known = [row[~np.isnan(row)] for row in values]
    variances = [np.var(row, ddof=1) for row in known if len(row) > 1]
    return float(np.sqrt(np.mean(variances))) if variances else 0.0
