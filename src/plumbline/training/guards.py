"""What stops a run, or is said aloud, because going on would make the result false.

Each guard stands for a run that somebody lost. Those that need history keep it in the stage's memory, which a resumed
run takes up again.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from plumbline.algorithms.advantages import has_signal
from plumbline.errors import TrainingStopped
from plumbline.recipe import RlSection
from plumbline.records import Group, Sampling
from plumbline.training.noise import SignalNoise

SOLVED = 0.999
"""A reward above this is everything that can be earned."""
LOOK = 20
"""Steps between looks at whether they go anywhere."""
DIRECTION = 1.0
"""The t-value from which on there is a sign of a direction."""
ENOUGH = 200
"""Rollouts after which a part that was always 0 is called dead."""


ENGINES = "go on with model.decoder: transformers, then with model.scoring: rows (--resume), to find which disagrees; "


def check_finite(value: float, what: str, step: int, rate: str) -> None:
    """Stop before the weights are updated with what is no number.

    Args:
        value: the loss or the norm of the gradient.
        what: which.
        step: in which step.
        rate: the recipe's key of the stage's learning rate.

    Raises:
        TrainingStopped: it is infinite or NaN.
    """
    if not math.isfinite(value):
        raise TrainingStopped(
            f"the {what} is {value} at step {step}; the weights were not updated",
            f"lower {rate}, then --resume: it holds from the last checkpoint on; if that does not help and the weights "
            "have 16 bits, begin a new run with model.dtype: float32",
        )


def check_signal(groups: Sequence[Group], patience: int, memory: dict[str, Any]) -> None:
    """Stop where no group has said anything for `patience` steps: such a run ends with success and learns nothing.

    Steps in which every answer earned everything do not count: there a solved task is quiet.

    Raises:
        TrainingStopped: see above.
    """
    rewards = [group.rewards() for group in groups]
    silent = not any(map(has_signal, rewards)) and not all(np.nanmin(r) > SOLVED for r in rewards)
    memory["steps_without_signal"] = memory.get("steps_without_signal", 0) + 1 if silent else 0
    if memory["steps_without_signal"] >= patience:
        raise TrainingStopped(
            f"for {patience} steps in a row every group's rewards were equal, so nothing can be learnt",
            "look at samples.jsonl: if all rewards are 0, begin a new run from a better SFT model, or pay parts of the "
            "answer; else begin one with a larger rl.group_size or sampling.temperature. To wait longer in this one, "
            "raise rl.patience, then --resume",
        )


def check_gap(gap: float, limit: float, sampling: Sampling, family: str) -> None:
    """Stop where sampler and scorer are two laws, which makes every gradient wrong.

    Args:
        gap: mean nats a choice.
        limit: how much is taken for rounding.
        sampling: the law that was asked for.
        family: of the policy.

    Raises:
        TrainingStopped: the mean gap exceeds `limit` nats, or is not a number.
    """
    if not gap <= limit:
        raise TrainingStopped(
            f"the scorer's log-probabilities differ from the sampler's by {gap:.3f} nats a choice (temperature "
            f"{sampling.temperature}, top_k {sampling.top_k}, top_p {sampling.top_p}); the limit is {limit}",
            (ENGINES if family == "autoregressive" else "")
            + "with 16-bit weights a gap below 0.05 is rounding: raise rl.max_gap, then --resume, or begin a new run "
            "with model.dtype: float32",
        )


def dead_parts(groups: Sequence[Group], memory: dict[str, Any]) -> Iterator[str]:
    """Name, once each, the parts of the reward that have been 0 in every one of at least `ENOUGH` rollouts."""
    seen: dict[str, int] = memory.setdefault("part_counts", {})
    alive: list[str] = memory.setdefault("parts_alive", [])
    said: list[str] = memory.setdefault("parts_dead", [])
    for group in groups:
        for rollout in group.rollouts:
            for part, value in (rollout.score.parts if rollout.score else {}).items():
                name = f"{group.task}/{part}" if group.task else part
                if value is not None:
                    seen[name] = seen.get(name, 0) + 1
                    if value > 0 and name not in alive:
                        alive.append(name)
    for name, count in seen.items():
        if count >= ENOUGH and name not in alive and name not in said:
            said.append(name)
            yield f"the part {name!r} of the reward was 0 in all of {count} rollouts: its weight is dead"


def mostly_noise(
    reward: float | None, gradient: SignalNoise | None, rate: float, memory: dict[str, Any]
) -> Iterator[str]:
    """Say, every `LOOK` steps, where at two looks in a row neither the gradients nor the rewards so far point anywhere.

    Two t-values are looked at: of the mean of the gradient's signal, whose estimate is unbiased and falls around 0
    where there is none, and of the slope of a straight line through the steps' mean rewards (prompts differ from step
    to step, so single values say nothing). With true advantages one of them rises above `DIRECTION` as evidence
    gathers, though not always within `LOOK` steps; dealt at random, neither does in seven of ten looks (0.84 squared).
    AdamW moves every weight by about the rate whatever the gradient's size, so steps without a direction are a random
    walk that unlearns what SFT taught.
    """
    if reward is None or gradient is None:
        return
    rewards: list[float] = memory.setdefault("step_rewards", [])
    signals: list[float] = memory.setdefault("step_signals", [])
    noises: list[float] = memory.setdefault("step_noises", [])
    rewards.append(reward)
    signals.append(gradient.signal)
    noises.append(gradient.noise)
    count = len(rewards)
    if count % LOOK:
        return
    signal, trend = _t_of_mean(signals), _t_of_slope(rewards)
    aimless = memory["aimless_looks"] = memory.get("aimless_looks", 0) + 1 if max(signal, trend) < DIRECTION else 0
    if aimless > 1:
        ratio = sum(signals) / sum(noises) if sum(noises) > 0 else 0.0
        yield (
            f"after {count} steps nothing points anywhere: the gradient's signal is {ratio:.2f} of its noise "
            f"(t = {signal:.1f}), the rewards' trend has t = {trend:.1f}; at a rate of {rate:.1e} the weights then "
            "move mostly by noise. Take more answers a step (rl.prompts_per_step), or start from a shorter SFT, which "
            "leaves more to choose; controls.shuffle_advantages: true shows what noise alone does at this rate"
        )


def _t_of_mean(values: Sequence[float]) -> float:
    array = np.asarray(values)
    spread = array.std(ddof=1)
    return float(array.mean() / (spread / len(array) ** 0.5)) if spread > 0 else 0.0


def _t_of_slope(values: Sequence[float]) -> float:
    """Student's t of the least-squares slope of values over their places (any textbook of regression)."""
    array = np.asarray(values) - np.mean(values)
    place = np.arange(len(array)) - (len(array) - 1) / 2
    slope = place @ array / (place @ place)
    left = array - slope * place
    error = (left @ left / (len(array) - 2) / (place @ place)) ** 0.5
    if error == 0:
        return float(np.sign(slope)) * np.inf if slope else 0.0
    return float(slope / error)


def adapted_beta(section: RlSection, memory: Mapping[str, Any]) -> float:
    """The weight of the KL in this step: the recipe's, or what adapting has made of it."""
    return float(memory.get("beta", section.beta)) if section.kl_target is not None else section.beta


def adapt_beta(section: RlSection, kl: float | None, memory: dict[str, Any]) -> None:
    """Double beta where the KL left its target by more than half upwards, halve it downwards (Schulman et al. 2017,
    arXiv:1707.06347, section 4).
    """
    if section.kl_target is None or kl is None:
        return
    beta = adapted_beta(section, memory)
    if kl > 1.5 * section.kl_target:
        beta *= 2
    elif kl < section.kl_target / 1.5:
        beta /= 2
    memory["beta"] = min(max(beta, 1e-6), 1e3)
