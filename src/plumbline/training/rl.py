"""RL over recorded trajectories: draw, credit, update, publish. Nothing here knows the family or the algorithm.

What it does not do: no value model, no reward model, no KL unless asked, and unless `rl.lag` says so no sampling
with weights that are older than this step.
Groups without signal cost neither a forward nor a backward pass; the denominator counts them all the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from plumbline.checks.diagnosis.watch import Fired, Watcher
from plumbline.errors import DataError, TrainingStopped
from plumbline.policies.memory import begin_peak, peak
from plumbline.policies.policy import Engine, Helpers, Policy, Sampler
from plumbline.recipe import Recipe
from plumbline.records import Group
from plumbline.runs.lineage import RATES
from plumbline.runs.run import Run
from plumbline.seeds import generator
from plumbline.tasks.source import Source
from plumbline.training.ahead import drawing
from plumbline.training.credit import credit
from plumbline.training.judging import check_failures
from plumbline.training.metrics import sample_rows, step_metrics
from plumbline.training.noise import smoothed_ratio
from plumbline.training.optimiser import Optimiser
from plumbline.training.rollouts import Part, collect_parts
from plumbline.training.stage import Laps, Stage
from plumbline.training.update import update_policy

STAGE = "rl"
Evaluator = Callable[[int], Mapping[str, float]]
"""Evaluates the policy after so many steps and returns metrics to log."""


def train_rl(
    policy: Policy,
    source: Source,
    run: Run,
    evaluate: Evaluator | None = None,
    engine: Engine | None = None,
    helpers: Helpers | None = None,
) -> None:
    """Train a policy with verified rewards, as the recipe that is in force says (`run.recipe`).

    Args:
        policy: any family; as it is given, it is what a KL is measured to.
        source: deals the prompts of a step.
        run: where records and checkpoints go; a stage that was stopped goes on.
        evaluate: called as often as the recipe's `evaluation.every` says; where that is not 0, also before the first
            step and after the last.
        engine: draws in place of the policy.
        helpers: do some of the passes of each update.

    Raises:
        DataError: a task has no examples, or a prompt exceeds the context.
        TrainingStopped: going on would make the result false (see `guards`), or a check or a watch rule says so.
    """
    recipe, section = run.recipe, run.recipe.rl
    assert section is not None
    if not all(source.examples.values()):
        raise DataError("there is nothing to train on: the training split is empty")
    turns = max(task.turns for task in source.tasks.values())
    optimiser = Optimiser(policy.trainable(), section.optimiser, section.steps, RATES[STAGE])
    optimiser.passes.tell(run, STAGE, policy)
    optimiser.passes.helpers = helpers
    progress = Stage(run, STAGE, optimiser, section.seconds)
    watcher = Watcher(run, progress)

    def draw(sampler: Sampler, step: int) -> list[Group]:
        return _collect(sampler, source, recipe, step)

    with drawing(policy, draw, section, progress, engine) as rollouts_of:
        if section.beta > 0:
            policy.keep_reference()  # before the stage resumes: the weights that this stage began with
        for step in progress.steps():
            done = step + 1
            if step == 0 and (before := _evaluated(evaluate, recipe, 0, last=False)):
                run.metrics(STAGE, 0, before)

            rate, laps = optimiser.learning_rate(step), Laps()
            begin_peak(optimiser.passes.device)
            drawn = rollouts_of(step)
            laps.lap("rollouts")

            shuffle = generator(recipe.seed, STAGE, "shuffle", step)
            credits_ = credit(drawn.groups, section, shuffle, recipe.controls, turns)
            update = update_policy(policy, optimiser, credits_, recipe, step)
            policy.publish(done)
            laps.lap("update")
            progress.spend(laps.seconds["cpu/rollouts"] + laps.seconds["cpu/update"])

            rows = sample_rows(drawn.groups, credits_, done)
            for row in rows:
                run.sample(row)
            values = {
                **step_metrics(drawn, update, section, step, source.tasks),
                **drawn.figures,
                "train/grad_snr": smoothed_ratio(update.gradient, progress.memory),
                "train/learning_rate": rate,
                "train/epoch": done * section.prompts_per_step / source.size,
                **source.epochs(section.prompts_per_step, done, STAGE, recipe.seed),
            }
            values |= _evaluated(evaluate, recipe, done, last=progress.is_last(done))
            progress.record(done, values, rows)
            if (fired := watcher.look({"step": done, **values})) and not progress.is_last(done):
                progress.halt(_stopped_by(fired), fired.facts())
            laps.lap("rest")
            run.timings(STAGE, done, laps.seconds | {"memory/peak_gb": peak(optimiser.passes.device) / 1e9})


def _evaluated(evaluate: Evaluator | None, recipe: Recipe, done: int, *, last: bool) -> Mapping[str, float]:
    """The metrics of an evaluation after so many steps; none where none is due."""
    assert recipe.rl is not None
    every = recipe.evaluation.every
    due = every > 0 and (done % every == 0 or last)
    return evaluate(done) if due and evaluate is not None else {}


def _stopped_by(fired: Fired) -> TrainingStopped:
    fix = f"{fired.advice} Then --resume, with --set watch.{fired.rule}=null to go on without this rule"
    return TrainingStopped(f"the rule {fired.rule}: {fired.said}", fix)


def _collect(sampler: Sampler, source: Source, recipe: Recipe, step: int) -> list[Group]:
    """The judged groups of a step, task by task.

    Raises:
        TrainingStopped: too many answers to one of the tasks could not be judged.
    """
    section = recipe.rl
    assert section is not None
    batch = source.draw(section.prompts_per_step, step, STAGE, recipe.seed)
    dealt = {name: [example for owner, example in batch if owner == name] for name in source.tasks}
    parts = {
        name: Part(source.tasks[name], examples, (recipe.seed, STAGE, "sample", step, *([name] if name else [])))
        for name, examples in dealt.items()
        if examples
    }
    found = collect_parts(sampler, list(parts.values()), copies=section.group_size, sampling=recipe.sampling)
    for groups in found:
        failed = [str(one.failure) for group in groups for one in group.rollouts if one.failure is not None]
        check_failures(failed, len(groups) * section.group_size)
    return [replace(group, task=name) for name, groups in zip(parts, found, strict=True) for group in groups]
