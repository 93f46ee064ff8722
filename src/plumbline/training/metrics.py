"""What a step of RL is recorded as: its metrics, and a row for each of its rollouts."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from plumbline.algorithms.advantages import has_signal
from plumbline.recipe import RlSection
from plumbline.records import Group
from plumbline.training.ahead import Drawn
from plumbline.training.credit import Credit
from plumbline.training.update import Update


def step_metrics(
    drawn: Drawn, update: Update, section: RlSection, step: int, tasks: Collection[str]
) -> dict[str, float | int | None]:
    """The metrics of one step, under the names that the field uses (docs/metrics.md says what each means)."""
    groups = drawn.groups
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    logprobs = np.concatenate([turn.logprobs for rollout in rollouts for turn in rollout.turns])
    return {
        **_rewards(groups, tasks),
        "train/reward_std": _mean([spread for group in groups if (spread := _spread(group)) is not None]),
        "train/frac_reward_zero_std": _mean([not has_signal(group.rewards()) for group in groups]),
        "train/completion_length": _mean([rollout.num_tokens for rollout in rollouts]),
        "train/turns": _mean([len(rollout.turns) for rollout in rollouts]),
        "train/frac_cut": _mean([rollout.cut for rollout in rollouts]),
        "train/frac_truncated": _mean([rollout.truncated for rollout in rollouts]),
        "train/frac_strict": _mean([rollout.outcome.how == "strict" for rollout in rollouts]),
        "train/frac_failed": _mean([rollout.failure is not None for rollout in rollouts]),
        "train/entropy": float(-logprobs.mean(dtype=np.float64)),
        "train/loss": update.loss,
        "train/grad_norm": update.grad_norm,
        "train/grad_signal": None if update.gradient is None else update.gradient.signal,
        "train/grad_noise": None if update.gradient is None else update.gradient.noise,
        "train/clip_fraction": update.clip_fraction,
        "train/kl": update.kl,
        "train/tis_capped": update.capped,
        "train/scored_terms": update.terms,
        "train/staleness": _mean([step - turn.version for rollout in rollouts for turn in rollout.turns]),
        "train/sampler_scorer_gap": update.gap if drawn.gap is None else drawn.gap,
        "train/tis_gap": update.gap if section.lag or section.tis is not None else None,
    }


def sample_rows(groups: Sequence[Group], credits_: Sequence[Credit], step: int) -> list[dict[str, Any]]:
    """Every rollout of the step as a plain row."""
    rollouts = [(group, rollout) for group in groups for rollout in group.rollouts]
    return [
        {
            "step": step,
            **({"task": group.task} if group.task else {}),
            "id": group.example.id,
            "text": rollout.text,
            **({"turns": [turn.text for turn in rollout.turns], "asked": rollout.asked} if rollout.asked else {}),
            "reward": rollout.score.total if rollout.score else None,
            "parts": dict(rollout.score.parts) if rollout.score else {},
            "readings": dict(rollout.score.readings) if rollout.score else {},
            "how": rollout.outcome.how,
            "advantage": credited.advantage,
            "tokens": rollout.num_tokens,
            "finish": rollout.turns[-1].finish,
            "failure": rollout.failure.cause if rollout.failure else "",
        }
        for (group, rollout), credited in zip(rollouts, credits_, strict=True)
    ]


def _rewards(groups: Sequence[Group], tasks: Collection[str]) -> dict[str, float | None]:
    """The step's mean reward, its parts and its readings; of several tasks by task, and the mean of their means.

    Scores of two tasks are of two rubrics, so no mean runs over the rollouts of both. A task without a rollout that was
    judged has no mean, and then there is none over the tasks either.
    """
    values: dict[str, float | None] = {}
    for task in tasks:
        rollouts = [rollout for group in groups if group.task == task for rollout in group.rollouts]
        judged = [rollout.score for rollout in rollouts if rollout.score is not None]
        inside = f"/{task}" if task else ""
        values[f"train/reward{inside}"] = _mean([score.total for score in judged])
        for name in judged[0].parts if judged else ():
            parts = [part for score in judged if (part := score.parts.get(name)) is not None]
            values[f"train/reward{inside}/{name}"] = _mean(parts)
        for name in judged[0].readings if judged else ():
            values[f"train/reading{inside}/{name}"] = _mean([score.readings[name] for score in judged])
    if len(tasks) > 1:
        means = [mean for task in tasks if (mean := values[f"train/reward/{task}"]) is not None]
        values["train/reward"] = _mean(means) if len(means) == len(tasks) else None
    return values


def _spread(group: Group) -> float | None:
    """The standard deviation of a group's rewards; None where none could be judged."""
    rewards = group.rewards()
    return None if np.isnan(rewards).all() else float(np.nanstd(rewards))


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
