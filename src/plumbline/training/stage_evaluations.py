"""Evaluations of a run's stages: of what was saved on all of the final splits, of what is trained
on some of one."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from plumbline.evaluation.comparison import describe_fall
from plumbline.evaluation.evaluate import Conditions, evaluate_policy
from plumbline.evaluation.replays import replay_episodes
from plumbline.evaluation.statistics import mean_interval
from plumbline.policies.policy import Policy, Sampler
from plumbline.recipe import Recipe
from plumbline.records import Evaluation, Example, Sampling, SteppedSampling
from plumbline.rollouts.collect import check_prompts
from plumbline.runs.evaluations import (
    INDEX,
    EvaluationKey,
    PartialEvaluation,
    partial_file,
    read_evaluation,
    write_replays,
)
from plumbline.runs.run import Run
from plumbline.seeds import derive
from plumbline.tasks.task import Task
from plumbline.tasks.task_data import TaskData

MEAN = "mean_reward"


def evaluation_modes(recipe: Recipe) -> dict[str, Sampling]:
    """The sampling distributions by which a model is asked: greedily, and as in training (but for
    the number of denoising steps)."""
    sampling = recipe.sampling
    if isinstance(sampling, SteppedSampling):
        sampling = replace(sampling, steps=recipe.evaluation.steps or sampling.steps)
    return {"greedy": sampling.as_greedy()} | (
        {"sampled": sampling} if recipe.evaluation.sampled else {}
    )


def evaluate_stage(
    run: Run, tasks_data: Sequence[TaskData], stage: str, opened: Callable[[], Policy]
) -> None:
    """Evaluate a stage's saved model on all of the final splits, where that was not done before."""
    keys = {
        EvaluationKey(stage, split, mode, task=task_data.name): task_data
        for task_data in tasks_data
        for split in task_data.finals
        for mode in evaluation_modes(run.recipe)
    }
    limit = run.recipe.untrained_limit() if stage == "base" else None
    if limit is not None:
        keys = {key: task_data for key, task_data in keys.items() if key.mode == "greedy"}
    missing = [key for key in keys if not run.has_evaluation(key)]
    for key in keys.keys() - set(missing):  # a kill may have come between the two
        partial_file(run.evaluation_file(key)).unlink(missing_ok=True)
    if not missing:
        return
    policy = opened()
    for key in missing:
        _evaluate(run, policy, keys[key].task, keys[key].held_out[key.split][:limit], key)


def replay_last(run: Run, task_data: TaskData) -> None:
    """Pictures of the last stage's worst greedy answers, where the recipe asks for them and the
    task can."""
    recipe = run.recipe
    if not recipe.evaluation.replays or not task_data.task.replayable:
        return
    stage = "rl" if recipe.rl is not None else "sft" if recipe.sft is not None else "base"
    key = EvaluationKey(stage, recipe.evaluation.final[-1], "greedy", task=task_data.name)
    folder = run.replays(key)
    if (folder / INDEX).is_file():
        return
    run.working(f"replaying {key}", 0, recipe.evaluation.replays)
    replays = replay_episodes(
        task_data.task,
        task_data.held_out[key.split],
        run.evaluations()[key],
        recipe.evaluation.replays,
    )
    write_replays(folder, replays)


def _evaluate(
    run: Run, policy: Sampler, task: Task, examples: Sequence[Example], key: EvaluationKey
) -> Evaluation:
    """Evaluate and record; of a saved model also what is done so far, so that a run that was killed
    goes on there."""
    under = Conditions(
        source=key.stage if key.step is None else f"{key.stage}@{key.step}",
        split=key.split,
        sampling=evaluation_modes(run.recipe)[key.mode],
        seed=derive(
            run.recipe.seed, "evaluation", *([key.task] if key.task else []), key.split, key.mode
        ),
    )
    check_prompts(policy, examples, under.sampling)
    place, begun = run.evaluation_file(key), None
    if key.step is None:
        begun = PartialEvaluation(
            place, {**asdict(under), "task": task.name, "rubric": task.rubric}
        )
    evaluation = evaluate_policy(
        policy,
        task,
        examples,
        under,
        lambda done, total: run.working(f"evaluating {key}", done, total),
        begun,
    )
    run.evaluation(key, evaluation)
    if begun is not None:
        begun.remove()
    return evaluation


def evaluate_inside(
    run: Run, policy: Sampler, tasks_data: Sequence[TaskData], step: int
) -> dict[str, float]:
    """Evaluations during RL: recorded whole, and as metrics under the names that the field uses.

    Several tasks have metrics of their own, `eval/<task>` (the greedy mean) and `eval/<task>/...`,
    and the means over them beside.
    """
    found = {
        task_data.name: _evaluate_task_inside(run, policy, task_data, step)
        for task_data in tasks_data
    }
    if set(found) == {""}:
        return {f"eval/{name}": value for name, value in found[""].items()}
    values = {
        f"eval/{task}" if name == MEAN else f"eval/{task}/{name}": value
        for task, one in found.items()
        for name, value in one.items()
    }
    for name in (MEAN, f"sampled_{MEAN}")[: len(evaluation_modes(run.recipe))]:
        values[f"eval/{name}"] = _mean([one[name] for one in found.values()])
    return values


def _evaluate_task_inside(
    run: Run, policy: Sampler, task_data: TaskData, step: int
) -> dict[str, float]:
    section = run.recipe.evaluation
    examples = task_data.held_out[section.split][: section.limit]
    values: dict[str, float] = {}
    for mode in evaluation_modes(run.recipe):
        key = EvaluationKey("rl", section.split, mode, step, task_data.name)
        evaluation = _evaluate(run, policy, task_data.task, examples, key)
        mean = mean_interval(evaluation.rewards(), evaluation.clusters())
        name = MEAN if mode == "greedy" else f"{mode}_{MEAN}"
        values |= {name: evaluation.mean_reward, f"{name}_low": mean.low, f"{name}_high": mean.high}
        if mode == "sampled":
            continue
        first = read_evaluation(run.evaluation_file(replace(key, step=0)))
        if found := describe_fall(first, evaluation):
            to = f" to {task_data.name}" if task_data.name else ""
            run.event(
                "worse",
                f"after {step} steps of RL the greedy answers{to} earn {found}: what the model "
                "could is unlearnt. "
                "Start again with a lower rl.optimiser.learning_rate, one that falls (schedule: "
                "linear), or more "
                "answers a step (rl.prompts_per_step)",
            )
        strata = sorted({row.stratum for row in evaluation.rows if row.stratum})
        # eval/push, not eval/push/push
        for stratum in strata if len(strata) > 1 or not task_data.name else ():
            values[stratum] = _mean([r.reward for r in evaluation.rows if r.stratum == stratum])
        # there is one: too many that cannot be judged stop the run
        for reading in evaluation.rows[0].readings:
            values[f"reading/{reading}"] = _mean([r.readings[reading] for r in evaluation.rows])
        if evaluation.unjudged:
            values["frac_failed"] = len(evaluation.unjudged) / (
                len(evaluation.rows) + len(evaluation.unjudged)
            )
    return values


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
