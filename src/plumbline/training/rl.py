"""RL over recorded trajectories: draw, weigh, update, publish. Nothing here knows the family or
the algorithm.

What it does not do: no value model, no reward model, no KL unless asked, and unless
`rl.off_policy_steps` says so no sampling with weights that are older than this step.
Groups without signal cost neither a forward nor a backward pass; the denominator counts them all
the same.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from plumbline.algorithms.algorithm import Algorithm, has_signal
from plumbline.errors import DataError
from plumbline.policies.memory import begin_peak, read_peak
from plumbline.policies.policy import Engine, Helpers, Policy, Sampler
from plumbline.recipe import Recipe, RlSection, TeacherSection
from plumbline.records import Example, Group, IntArray, Message, rollouts_of
from plumbline.rollouts.collect import hand_over
from plumbline.runs.lineage import RATES
from plumbline.runs.run import Run
from plumbline.seeds import generator
from plumbline.tasks.task import gold_of
from plumbline.training.async_rollouts import open_rollouts
from plumbline.training.gradient_noise import smooth_ratio
from plumbline.training.microbatches import Microbatches
from plumbline.training.optimiser import Optimiser
from plumbline.training.prompts import (
    STAGE,
    Source,
    StepRollouts,
    choose_prompts,
    collect_step,
    resample,
)
from plumbline.training.stage import Stage, StepTimer
from plumbline.training.update import StepReport, split_minibatches, update_policy


def step_metrics(
    drawn: StepRollouts, update: StepReport, section: RlSection, step: int, tasks: Collection[str]
) -> dict[str, float | int | None]:
    """The metrics of one step, under the names that the field uses (docs/reference/metrics.md says
    what each means)."""
    groups = drawn.groups
    rollouts = rollouts_of(groups)
    logprobs = np.concatenate([turn.logprobs for rollout in rollouts for turn in rollout.turns])
    return {
        **_rewards(groups, tasks),
        "train/reward_std": _mean(
            [spread for group in groups if (spread := _spread(group)) is not None]
        ),
        "train/frac_reward_zero_std": _mean([not has_signal(group.rewards()) for group in groups]),
        "train/completion_length": _mean([rollout.num_tokens for rollout in rollouts]),
        "train/turns": _mean([len(rollout.turns) for rollout in rollouts]),
        "train/frac_cut": _mean([rollout.cut for rollout in rollouts]),
        "train/frac_truncated": _mean([rollout.truncated for rollout in rollouts]),
        "train/frac_strict": _mean(
            [rollout.verdict.outcome.how == "strict" for rollout in rollouts]
        ),
        "train/frac_failed": _mean([rollout.verdict.failure is not None for rollout in rollouts]),
        "train/entropy": float(-logprobs.mean(dtype=np.float64)),
        "train/loss": update.loss,
        "train/grad_norm": update.grad_norm,
        "train/grad_signal": None if update.gradient is None else update.gradient.signal,
        "train/grad_noise": None if update.gradient is None else update.gradient.noise,
        "train/clip_fraction": update.clip_fraction,
        "train/kl": update.kl if section.teacher is None else None,
        **({} if section.teacher is None else {"train/kl_teacher": update.kl}),
        "train/tis_capped": update.capped,
        "train/scored_terms": update.terms,
        "train/staleness": _mean(
            [step - turn.version for rollout in rollouts for turn in rollout.turns]
        ),
        "train/sampler_scorer_gap": update.gap if drawn.gap is None else drawn.gap,
        "train/tis_gap": update.gap
        if section.off_policy_steps or section.tis is not None
        else None,
    }


def resample_metrics(drawn: Sequence[Group], tasks: Collection[str]) -> dict[str, float | None]:
    """The metrics of all groups that were drawn for a step, those that were replaced, too."""
    return {
        "train/reward_drawn": _rewards(drawn, tasks)["train/reward"],
        "train/frac_zero_std_drawn": _mean([not has_signal(group.rewards()) for group in drawn]),
        "train/prompts_drawn": len(drawn),
    }


def _algorithm_metrics(
    algorithm: Algorithm, report: StepReport, groups: Sequence[Group]
) -> dict[str, float | None]:
    """Metrics that only some algorithms have, or lack."""
    if not algorithm.uses_group_baseline:
        return {"train/frac_reward_zero_std": None, "train/reward_std": None}
    own = {name: report.figures.get(name) for name in algorithm.own_metrics}
    if not algorithm.selects_subset:
        return own
    rollouts = rollouts_of(groups)
    kept = {rollout.prompt for rollout in rollouts if rollout.advantage != 0}
    share = len(kept) / len({rollout.prompt for rollout in rollouts})
    return {"train/frac_prompts_kept": share, **own}


def teacher_chat(example: Example, teacher: TeacherSection) -> list[Message]:
    """The chat of an example as a teacher that is told more is given it.

    Raises:
        DataError: it is told the gold answer, and the example has none.
    """
    if teacher.again is not None:
        answer: Message = {"role": "assistant", "content": gold_of(example)}
        return [*example.messages, answer, {"role": "user", "content": teacher.again}]
    hint = teacher.hint or ""
    told = hint.replace("{gold}", gold_of(example)) if "{gold}" in hint else hint
    *before, last = example.messages
    return [*before, {**last, "content": f"{last['content']}\n\n{told}"}]


def sample_rows(groups: Sequence[Group], step: int) -> list[dict[str, Any]]:
    """Every rollout of the step as a plain row."""
    return [
        {
            "step": step,
            **({"task": group.task} if group.task else {}),
            "id": group.example.id,
            "text": rollout.text,
            **(
                {"turns": [turn.text for turn in rollout.turns], "asked": rollout.asked}
                if rollout.asked
                else {}
            ),
            "reward": score.total if score else None,
            "parts": dict(score.parts) if score else {},
            "readings": dict(score.readings) if score else {},
            "how": outcome.how,
            "advantage": rollout.advantage,
            "tokens": rollout.num_tokens,
            "finish": rollout.turns[-1].finish,
            "failure": failure.cause if failure else "",
        }
        for group in groups
        for rollout in group.rollouts
        for outcome, score, failure in [rollout.verdict]
    ]


def _rewards(groups: Sequence[Group], tasks: Collection[str]) -> dict[str, float | None]:
    """The step's mean reward, its parts and its readings; of several tasks by task, and the mean of
    their means.

    Scores of two tasks are of two rubrics, so no mean runs over the rollouts of both. A task
    without a rollout that was judged has no mean, and then there is none over the tasks either.
    """
    values: dict[str, float | None] = {}
    for task in tasks:
        rollouts = rollouts_of(group for group in groups if group.task == task)
        judged = [score for rollout in rollouts if (score := rollout.verdict.score) is not None]
        inside = f"/{task}" if task else ""
        values[f"train/reward{inside}"] = _mean([score.total for score in judged])
        for name in judged[0].parts if judged else ():
            parts = [part for score in judged if (part := score.parts.get(name)) is not None]
            values[f"train/reward{inside}/{name}"] = _mean(parts)
        for name in judged[0].readings if judged else ():
            values[f"train/reading{inside}/{name}"] = _mean(
                [score.readings[name] for score in judged]
            )
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


Evaluator = Callable[[int], Mapping[str, float]]
"""Evaluates the policy after so many steps and returns metrics to log."""


def train_rl(
    policy: Policy,
    source: Source,
    run: Run,
    evaluate: Evaluator | None = None,
    engine: Engine | None = None,
    helpers: Helpers | None = None,
    teacher: Policy | None = None,
) -> None:
    """Train a policy with verified rewards, as the recipe that is in force says (`run.recipe`).

    Args:
        policy: any family; as it is given, it is what a KL is measured to.
        source: deals the prompts of a step.
        run: where records and checkpoints go; a stage that was stopped goes on.
        evaluate: called as often as the recipe's `evaluation.every` says; where that is not 0, also
            before the first step and after the last.
        engine: draws in place of the policy.
        helpers: do some of the micro-batches of each update.
        teacher: another model that the KL is measured to.

    Raises:
        DataError: a task has no examples, or a prompt exceeds the context.
        TrainingStopped: going on would make the result false (see `guards`), or a check or a watch
            rule says so.
    """
    recipe, section = run.recipe, run.recipe.rl
    assert section is not None
    algorithm = section.algorithm
    if not all(source.examples.values()):
        raise DataError("there is nothing to train on: the training split is empty")
    turns = max(task.turns for task in source.tasks.values())
    optimiser = Optimiser(policy.trainable(), section.optimiser, section.steps, RATES[STAGE])
    microbatches = Microbatches(optimiser, policy, run, STAGE, helpers)
    progress = Stage(run, STAGE, optimiser, section.seconds)
    prompts = choose_prompts(source, policy, engine, progress)

    def encode(example: Example) -> IntArray:
        assert section.teacher is not None
        return policy.encode(teacher_chat(example, section.teacher))

    def draw(sampler: Sampler, step: int) -> StepRollouts:
        groups, figures = collect_step(sampler, prompts, recipe, step), dict[str, float | None]()
        if section.resample:
            groups, drawn = resample(sampler, prompts, recipe, step, groups)
            figures |= resample_metrics(drawn, source.tasks)
        return StepRollouts(groups, figures | (dict(engine.figures) if engine else {}))

    def draw_now(step: int) -> StepRollouts:
        hand_over(policy, step, engine)
        return draw(engine or policy, step)

    with (
        open_rollouts(policy, draw, section, progress, engine)
        if section.off_policy_steps
        else nullcontext(draw_now)
    ) as next_rollouts:
        if section.beta > 0 or algorithm.uses_reference:
            # before the stage resumes: the weights that this stage began with
            policy.keep_reference()
        for step in progress.steps():
            done = step + 1
            if step == 0:
                progress.idle = True
                if before := _evaluate_if_due(evaluate, recipe, 0, last=False):
                    run.metrics(STAGE, 0, before)
                progress.idle = False

            rate, laps = optimiser.learning_rate(step), StepTimer()
            begin_peak(microbatches.device)
            drawn = next_rollouts(step)
            laps.lap("rollouts")

            shuffle = generator(recipe.seed, STAGE, "shuffle", step)
            groups = weigh_rollouts(
                drawn.groups,
                algorithm,
                minibatch=section.minibatch,
                turns=turns,
                shuffle=shuffle if recipe.controls.shuffle_advantages else None,
                encode=encode if section.teacher and section.teacher.has_hint else None,
            )
            report = update_policy(policy, optimiser, groups, recipe, step, microbatches, teacher)
            laps.lap("update")
            progress.spend(laps.seconds["cpu/rollouts"] + laps.seconds["cpu/update"])

            rows = sample_rows(groups, done)
            for row in rows:
                run.sample(row)
            values = {
                **step_metrics(drawn, report, section, step, source.tasks),
                **_algorithm_metrics(algorithm, report, groups),
                **drawn.figures,
                "train/grad_snr": smooth_ratio(report.gradient, progress.memory),
                "train/learning_rate": rate,
                "train/epoch": done * section.prompts_per_step / prompts.size,
                **prompts.epochs(section.prompts_per_step, done, STAGE, recipe.seed),
            }
            values |= _evaluate_if_due(evaluate, recipe, done, last=progress.is_last(done))
            progress.record(done, values, rows)
            laps.lap("rest")
            run.timings(
                STAGE, done, laps.seconds | {"memory/peak_gb": read_peak(microbatches.device) / 1e9}
            )


# -- advantages and weights ------------------------------------------------------------------------
#
# Every token of an answer has the answer's advantage.
#
# GRPO gives every token of an answer the answer's advantage (Shao et al. 2024, arXiv:2402.03300),
# and so every token of every answer of an episode of several turns the episode's. The denominators
# count the tokens of all its answers, and Dr. GRPO's constant is rollouts * max_tokens * turns
# allowed: the most tokens that the rollouts could have had, whatever they had, so that a token
# weighs the same in an episode that took one turn and in one that took all.
#
# A batch may be learnt from in minibatches of some of its groups, every k-th of them, so that each
# has something of every task; the weights of each minibatch's rollouts are those of a batch of that
# size.


def weigh_rollouts(
    groups: Sequence[Group],
    algorithm: Algorithm,
    *,
    minibatch: int | None = None,
    turns: int = 1,
    shuffle: np.random.Generator | None = None,
    encode: Callable[[Example], IntArray] | None = None,
) -> list[Group]:
    """The groups of one step with the advantage and the weight of each rollout.

    Args:
        groups: as they were judged.
        algorithm: says what both are.
        minibatch: see `split_minibatches`.
        turns: the most that an episode may have.
        shuffle: shuffles advantages, for the negative control.
        encode: gives the prompt of a teacher that is told more.
    """
    given = [algorithm.advantages(group) for group in groups]
    if shuffle is not None:
        given = algorithm.shuffle(given, shuffle)
    found = list(groups)
    for part in split_minibatches(range(len(groups)), minibatch):
        rollouts = rollouts_of(groups[index] for index in part)
        lengths = np.array([rollout.num_tokens for rollout in rollouts])
        if algorithm.selects_subset:
            lengths *= np.concatenate([given[index] for index in part]) != 0
        most = turns * rollouts[0].turns[0].sampling.max_tokens
        shares = iter(algorithm.weights(lengths.tolist(), most))
        for index in part:
            told = None if encode is None else encode(groups[index].example)
            weighted = (
                replace(
                    rollout,
                    advantage=float(advantage),
                    weight=float(next(shares)),
                    teacher_prompt=told,
                )
                for rollout, advantage in zip(groups[index].rollouts, given[index], strict=True)
            )
            found[index] = replace(groups[index], rollouts=tuple(weighted))
    return found


def _evaluate_if_due(
    evaluate: Evaluator | None, recipe: Recipe, done: int, *, last: bool
) -> Mapping[str, float]:
    """The metrics of an evaluation after so many steps; none where none is due."""
    assert recipe.rl is not None
    every = recipe.evaluation.every
    due = every > 0 and (done % every == 0 or last)
    return evaluate(done) if due and evaluate is not None else {}
