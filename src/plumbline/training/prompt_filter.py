"""Which prompts RL has, and in which order: how hard they are to the model that it begins with,
measured once.

Before the first step of RL the model answers each training prompt a few times (`rl.filter`). Rows
are written as soon as their part is judged, and what is drawn for a prompt depends on the seed and
its id alone: a measurement that was killed continues where it was, and a resumed run keeps the same
prompts.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from plumbline.algorithms.algorithm import TOLERANCE
from plumbline.errors import DataError
from plumbline.policies.policy import Engine, Policy
from plumbline.records import Example
from plumbline.rollouts.collect import check_judged, collect_parts, task_parts
from plumbline.runs.record import DIFFICULTY
from plumbline.seeds import generator
from plumbline.storage import JsonLines
from plumbline.tasks.prompt_source import Source
from plumbline.training.async_rollouts import hand_over
from plumbline.training.stage import Stage, StepTimer

AT_ONCE = 64
"""Prompts that are sampled together, after which their rows are written; no answer depends on
it."""


def choose_prompts(
    source: Source, policy: Policy, engine: Engine | None, progress: Stage
) -> Source:
    """The source of the stage's steps: the prompts that `rl.filter` keeps, as `rl.order` says.

    Args:
        source: all training prompts.
        policy: with the weights that the stage begins with.
        engine: draws in its place.
        progress: of the stage, before it resumes; what is measured here is part of its budget.

    Raises:
        DataError: no prompt of a task is kept, the budget is spent, or the file is of other
            prompts.
        TrainingStopped: too many answers could not be judged.
    """
    recipe, section = progress.run.recipe, progress.run.recipe.rl
    assert section is not None
    if (wanted := section.filter) is None:
        return replace(source, order=section.order)
    asked = []
    for name, examples in source.examples.items():
        order = generator(recipe.seed, progress.name, "filter", name).permutation(len(examples))
        asked += [(name, int(index)) for index in order[: wanted.prompts]]
    rows = _measure_prompts(source, asked, policy, engine, progress, wanted.samples)
    chosen: dict[str, list[Example]] = {}
    for name, examples in source.examples.items():
        means = {
            index: row["mean"]
            for (task, index), row in zip(asked, rows, strict=True)
            if task == name
        }
        kept = [
            at
            for at in sorted(means)
            if means[at] is not None and wanted.least <= means[at] <= wanted.most
        ]
        _report_kept(
            progress,
            name,
            [mean for mean in means.values() if mean is not None],
            len(means),
            len(kept),
        )
        if section.order == "easy-first":
            kept.sort(key=lambda index: -means[index])
        chosen[name] = [examples[index] for index in kept]
    return replace(source, examples=chosen, order=section.order)


def _measure_prompts(
    source: Source,
    asked: Sequence[tuple[str, int]],
    policy: Policy,
    engine: Engine | None,
    stage: Stage,
    samples: int,
) -> list[dict[str, Any]]:
    """The row of each prompt (its task and place), in their order; only those that have none yet
    are asked."""
    run, file = stage.run, JsonLines(stage.run.folder / DIFFICULTY)
    file.cut_torn()
    rows, what = file.rows(), "measuring how hard prompts are"
    keys = [(name, source.examples[name][index].id, samples) for name, index in asked]
    if [tuple(map(row.get, ("task", "id", "samples"))) for row in rows] != keys[: len(rows)]:
        raise DataError(
            f"{file.path} is of other prompts", "remove it: they are then measured again"
        )
    if len(rows) < len(asked):
        hand_over(policy, 0, engine)
    while len(rows) < len(asked):
        run.working(what, len(rows), len(asked))
        timer, prompts = StepTimer(), dict[str, list[Example]]()
        for name, index in asked[len(rows) : len(rows) + AT_ONCE]:
            prompts.setdefault(name, []).append(source.examples[name][index])
        parts = task_parts(source, prompts, (run.recipe.seed, stage.name, "filter"))
        groups = collect_parts(
            engine or policy, parts, copies=samples, sampling=run.recipe.sampling
        )
        check_judged(groups)
        timer.lap("filter")
        spent = timer.seconds["cpu/filter"] / len(groups)
        for group in groups:
            judged = [reward for reward in group.rewards() if not np.isnan(reward)]
            mean, spread = (
                (float(np.mean(judged)), float(np.std(judged))) if judged else (None, None)
            )
            row = {
                "task": group.task,
                "id": group.example.id,
                "mean": mean,
                "spread": spread,
                "samples": samples,
            }
            rows.append(row | ({"seconds": spent} if stage.seconds is not None else {}))
            file.append(rows[-1])
    run.working(what, len(rows), len(asked))
    stage.spend(sum(row.get("seconds", 0.0) for row in rows))
    if stage.is_last(0):
        about = f"rl.filter took all of the {stage.seconds:g} seconds that RL has"
        raise DataError(about, "raise rl.seconds, or give rl.filter.prompts or fewer samples")
    return rows


def _report_kept(
    progress: Stage, task: str, means: Sequence[float], measured: int, kept: int
) -> None:
    """Say once how many of a task's prompts are kept.

    Raises:
        DataError: none is.
    """
    never, always = (
        sum(mean <= TOLERANCE for mean in means),
        sum(mean >= 1 - TOLERANCE for mean in means),
    )
    figures = (
        f"mean reward {np.mean(means or np.nan):.3f}; {never} always fail, {always} always succeed"
    )
    prompts = f"{measured} prompts{f' of {task}' if task else ''}"
    if not kept:
        raise DataError(
            f"rl.filter keeps none of {prompts} ({figures})",
            "widen rl.filter.least and rl.filter.most, raise rl.filter.samples, or begin with a "
            "model that solves some",
        )
    message = f"{kept} of {prompts} kept ({figures})"
    if message not in {event["message"] for event in progress.run.files["events"].rows()}:
        progress.run.event("note", message)
