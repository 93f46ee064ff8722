"""RL over recorded trajectories: collect, credit, score, step. Nothing here knows the family or the algorithm.

Letters in shapes: P prompts of a step, G rollouts of each, N terms (log-probabilities of single choices).

What it does not do: no value model, no reward model, no KL unless asked, and unless `rl.lag` says so no sampling
with weights that are older than this step.
Groups without signal cost neither a forward nor a backward pass; the denominator counts them all the same.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from plumbline.algorithms.advantages import has_signal
from plumbline.errors import DataError
from plumbline.judging import check_failures
from plumbline.policies.policy import Policy, Sampler
from plumbline.recipe import ControlsSection, RlSection, RunSection
from plumbline.records import Group, Key, Sampling
from plumbline.rollouts import collect
from plumbline.runs.changes import RATES
from plumbline.runs.run import Run
from plumbline.seeds import generator
from plumbline.tasks.source import Source
from plumbline.tasks.task import Itemised, turns_of
from plumbline.training import guards
from plumbline.training.ahead import drawing
from plumbline.training.credit import NO_CONTROLS, Credit, credit, locate_items
from plumbline.training.noise import smoothed_ratio
from plumbline.training.optimiser import Optimiser
from plumbline.training.stage import Stage
from plumbline.training.update import Update, update_policy

STAGE = "rl"
Evaluator = Callable[[int], Mapping[str, float]]
"""Evaluates the policy after so many steps and returns metrics to log."""


def train_rl(
    policy: Policy,
    source: Source,
    section: RlSection,
    sampling: Sampling,
    run: Run,
    options: RunSection,
    *,
    seed: int,
    evaluate: Evaluator | None = None,
    evaluate_every: int = 0,
    controls: ControlsSection = NO_CONTROLS,
) -> None:
    """Train a policy with verified rewards for the section's steps.

    Raises:
        DataError: a task has no examples, or a prompt exceeds the context.
        RecipeError: credit by items, where no task has any or the policy cannot tell where they stand.
        TrainingStopped: going on would make the result false (see `guards`).
    """
    if not all(source.examples.values()):
        raise DataError("there is nothing to train on: the training split is empty")
    items = None
    if section.credit == "items":
        itemising = {name: task for name, task in source.tasks.items() if isinstance(task, Itemised)} or source.tasks
        items = {name: locate_items(task, policy) for name, task in itemising.items()}
    turns = max(turns_of(task) for task in source.tasks.values())
    optimiser = Optimiser(policy.trainable(), section.optimiser, section.steps, RATES[STAGE])
    progress = Stage(run, STAGE, optimiser, options)

    def draw(sampler: Sampler, step: int) -> list[Group]:
        return _collect(sampler, source, section, sampling, step, seed)

    with drawing(policy, draw, section, progress) as drawn:
        if section.beta > 0:
            policy.keep_reference()  # before the stage resumes: the weights that this stage began with
        for step in progress.steps():
            if step == 0 and evaluate is not None:
                run.metrics(STAGE, 0, evaluate(0))
            began = time.perf_counter()
            found = drawn(step)
            groups = found.groups
            sampled = time.perf_counter()
            credits_ = credit(groups, section, generator(seed, STAGE, "shuffle", step), items, controls, turns)
            beta = guards.adapted_beta(section, progress.memory)
            looks = generator(seed, STAGE, "likelihood", step)
            update = update_policy(policy, optimiser, credits_, section, step, beta, looks, controls)
            policy.publish(step + 1)
            guards.adapt_beta(section, update.kl, progress.memory)
            guards.check_signal(groups, section.patience, progress.memory)
            updated = time.perf_counter()
            for message in guards.dead_parts(groups, progress.memory):
                run.event("dead_part", message)
            for row in _samples(groups, credits_, step + 1):
                run.sample(row)
            rate = optimiser.learning_rate(step)
            values = _metrics(groups, update, source.tasks) | {
                "train/staleness": _mean([step - turn.version for c in credits_ for turn in c.turns]),
                "train/sampler_scorer_gap": update.gap if found.gap is None else found.gap,
                "train/tis_gap": update.gap if section.lag or section.tis is not None else None,
                "train/grad_snr": smoothed_ratio(update.gradient, progress.memory),
                "train/learning_rate": rate,
                "train/epoch": (step + 1) * section.prompts_per_step / source.size,
                **source.epochs(section.prompts_per_step, step + 1, STAGE, seed),
            }
            for message in guards.mostly_noise(values["train/reward"], update.gradient, rate, progress.memory):
                run.event("mostly_noise", message)
            if section.kl_target is not None:
                values["train/beta"] = beta
            done = step + 1
            if evaluate is not None and evaluate_every and (done % evaluate_every == 0 or done == section.steps):
                values |= evaluate(done)
            run.metrics(STAGE, step + 1, values)
            ended = time.perf_counter()
            run.timings(
                STAGE,
                step + 1,
                {"time/rollouts": sampled - began, "time/update": updated - sampled, "time/rest": ended - updated},
            )


def _collect(
    sampler: Sampler, source: Source, section: RlSection, sampling: Sampling, step: int, seed: int
) -> list[Group]:
    """The judged groups of a step, task by task.

    Raises:
        TrainingStopped: too many answers to one of the tasks could not be judged.
    """
    batch = source.draw(section.prompts_per_step, step, STAGE, seed)
    groups: list[Group] = []
    for name, task in source.tasks.items():
        examples = [example for owner, example in batch if owner == name]
        if examples:
            key: Key = (seed, STAGE, "sample", step, *([name] if name else []))
            found = collect(sampler, task, examples, copies=section.group_size, sampling=sampling, key=key)
            failed = [str(one.failure) for group in found for one in group.rollouts if one.failure is not None]
            check_failures(failed, len(found) * section.group_size)
            groups += [replace(group, task=name) for group in found]
    return groups


def _metrics(groups: Sequence[Group], update: Update, tasks: Collection[str]) -> dict[str, float | int | None]:
    """The metrics of one step, under the names that the field uses (docs/metrics.md says what each means)."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    logprobs = np.concatenate([turn.logprobs for rollout in rollouts for turn in rollout.turns])
    values: dict[str, float | int | None] = {
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
    }
    return values


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


def _samples(groups: Sequence[Group], credits_: Sequence[Credit], step: int) -> list[dict[str, Any]]:
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
