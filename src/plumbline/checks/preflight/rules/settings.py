"""Settings that are allowed and known to disappoint: the schedule, the clip, the laws of drawing and of scoring."""

import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import numpy as np

from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History, Series
from plumbline.checks.diagnosis.rules.steps import ADAPTERS, FAR_OFF, FULL, find_small_updates
from plumbline.checks.preflight.before import Before, Check
from plumbline.errors import PlumblineError
from plumbline.policies.options import PretrainedModel
from plumbline.recipe import OptimiserSection
from plumbline.records import SteppedSampling
from plumbline.runs.cards import Card
from plumbline.runs.remote import local_model

SLOW_RATE, SLOW_STEPS = 0.1, 0.15
"""A rate under a tenth of its peak for more than so many of the steps teaches little in them; a line has a tenth."""
SMALL = 5e7
"""Weights of a model up to which nothing is usual."""


LAW = ("temperature", "top_k", "top_p", "steps", "max_tokens")


def rates(before: Before) -> Iterator[Finding]:
    """The planned rates of each stage: their sum as that of a run, and what of the steps they leave."""
    recipe = before.recipe
    if recipe.sft is not None and (steps := _sft_steps(before)):
        yield from _planned(recipe.sft.optimiser, steps, "sft")
    if recipe.rl is not None:
        yield from _planned(recipe.rl.optimiser, recipe.rl.steps, "rl")
        yield from _slow(recipe.rl.optimiser, recipe.rl.steps)
        if recipe.model.tiny is None and not _is_small(before):
            adapters = isinstance(recipe.model, PretrainedModel) and recipe.model.lora is not None
            yield from _unusual(recipe.rl.optimiser.learning_rate, adapters=adapters)


def _is_small(before: Before) -> bool:
    """Whether it is a model of a demo or a test, which rates for real ones say nothing of."""
    try:
        return before.shapes is not None and before.shapes.parameters < SMALL
    except PlumblineError:
        return False  # which is said of the checkpoint


def _sft_steps(before: Before) -> int:
    sft = before.recipe.sft
    assert sft is not None
    shown = [one.sizes["train"] for name, one in before.tasks.items() if sft.tasks is None or name in sft.tasks]
    return sft.steps or max(1, round((sft.epochs or 0) * math.ceil(sum(shown) / sft.batch_size)))


def _planned(section: OptimiserSection, steps: int, kind: Literal["rl", "sft"]) -> Iterator[Finding]:
    from plumbline.training.schedule import schedule, warmup_steps

    warmup = warmup_steps(section.warmup, steps)
    planned = [section.learning_rate * schedule(section.schedule, step, steps, warmup) for step in range(steps)]
    series = {"rate": Series(np.arange(1, steps + 1), np.array(planned))}
    history = History(origin="recipe", name=kind, kind=kind, series=series, settings={"steps": steps})
    for finding in find_small_updates(history):
        yield replace(finding, what=f"{kind}: {finding.what}")
    if 2 * warmup > steps:
        yield Finding(
            "schedule",
            "warning",
            f"{kind}.optimiser.warmup takes {warmup} of {steps} steps",
            evidence={"warmup": warmup, "steps": steps},
            causes=("a number of steps that was meant for a longer run",),
            fix="a share of the steps",
            change={f"{kind}.optimiser.warmup": 0.05},
        )


def _slow(section: OptimiserSection, steps: int) -> Iterator[Finding]:
    """Whether the rate is near 0 for a large share of the steps."""
    from plumbline.training.schedule import schedule, warmup_steps

    warmup = warmup_steps(section.warmup, steps)
    slow = sum(schedule(section.schedule, step, steps, warmup) < SLOW_RATE for step in range(warmup, steps))
    if slow > SLOW_STEPS * steps:
        yield Finding(
            "schedule",
            "warning",
            f"rl.optimiser.schedule {section.schedule}: the rate is under {SLOW_RATE:.0%} of its peak for the last "
            f"{slow} of {steps} steps; linear has {SLOW_RATE:.0%} of such steps, constant_with_warmup none",
            evidence={"slow": slow, "steps": steps},
            causes=("a schedule of pretraining, where the end anneals: RL learns from its last prompts, too",),
            fix="a line, or a constant rate after a warmup",
            change={"rl.optimiser.schedule": "constant_with_warmup"},
        )


def _unusual(rate: float, *, adapters: bool) -> Iterator[Finding]:
    low, high = ADAPTERS if adapters else FULL
    if low / FAR_OFF <= rate <= high * FAR_OFF * (1 + 1e-9):
        return
    what = "adapters" if adapters else "all weights"
    other = ADAPTERS if not adapters else FULL
    yield Finding(
        "rate",
        "warning",
        f"rl.optimiser.learning_rate is {rate:.1e}, more than ten times {'above' if rate > high else 'below'} what is "
        f"usual for {what} ({low:.0e} to {high:.0e})",
        evidence={"rate": rate, "usual": [low, high], "adapters": adapters},
        causes=_meant_for(other, adapters=adapters, above=rate > high),
        fix=f"begin with {high if rate > high else low:.0e}",
        change={"rl.optimiser.learning_rate": high if rate > high else low},
    )


def _meant_for(other: tuple[float, float], *, adapters: bool, above: bool) -> tuple[str, ...]:
    """What an unusual rate may have been meant for; `other` are the usual ones of the other kind of training."""
    usual = f"({other[0]:.0e} to {other[1]:.0e})"
    if above:
        return ("a rate for supervised training", *(() if adapters else (f"a rate for adapters {usual}",)))
    return (*((f"a rate for all weights {usual}",) if adapters else ()), "a power of ten too many when it was written")


def laws(before: Before) -> Iterator[Finding]:
    """What is drawn, scored, clipped and evaluated, against one another."""
    recipe = before.recipe
    sampling, rl, controls = recipe.sampling, recipe.rl, recipe.controls
    if isinstance(sampling, SteppedSampling) and recipe.evaluation.steps not in {None, sampling.steps}:
        yield Finding(
            "law",
            "warning",
            f"evaluations take {recipe.evaluation.steps} denoising steps and training {sampling.steps}: what is "
            "evaluated is another sampler than the one that learns",
            evidence={"training": sampling.steps, "evaluation": recipe.evaluation.steps},
            causes=("evaluation.steps was set for quality, or to save time",),
            fix="evaluate with the steps of training, and beside it with others if you want to know",
            change={"evaluation.steps": None},
        )
    yield from _as_before(before)
    if rl is None:
        return
    if controls.score_temperature not in {None, sampling.temperature}:
        yield Finding(
            "law",
            "warning",
            f"answers are drawn at temperature {sampling.temperature:g} and scored at {controls.score_temperature:g}: "
            "the gradient is that of another model. It is a control that is wrong on purpose",
            evidence={"drawn": sampling.temperature, "scored": controls.score_temperature},
            causes=("the recipe of a control",),
            fix="for a real run leave controls out",
            change={"controls.score_temperature": None},
        )
    if rl.lag and rl.old == "rescored" and rl.tis is None:
        yield Finding(
            "law",
            "warning",
            f"answers are drawn with weights that are {rl.lag} versions old, and nothing corrects for it (rl.old: "
            "rescored without rl.tis)",
            evidence={"lag": rl.lag},
            causes=("rl.old: rescored leaves the sampler out of the ratio",),
            fix="weight by learner over sampler, or take the recorded log-probabilities",
            change={"rl.tis": 2.0},
        )
    yield from _idle_clip(before)


def _as_before(before: Before) -> Iterator[Finding]:
    """The law by which the run that made the model drew, where it says so."""
    name, sampling = before.recipe.model.name, before.recipe.sampling
    card = Card.read(model) if name is not None and Path(model := local_model(name)).is_dir() else None
    now = asdict(sampling) | {"steps": before.recipe.evaluation.steps or sampling.most_steps}
    then = {key: card.sampling[key] for key in LAW if key in card.sampling} if card is not None else {}
    if then.get("temperature") == 0:  # it was evaluated greedily alone, which says nothing of how it drew
        then = {key: value for key, value in then.items() if key in {"steps", "max_tokens"}}
    changed = {key: (old, now.get(key)) for key, old in then.items() if old != now.get(key)}
    if changed:
        said = ", ".join(f"{key} {old} then and {new} now" for key, (old, new) in changed.items())
        yield Finding(
            "law",
            "warning",
            f"the run that made {name} drew its answers by another law ({said}): its evaluations and those of this run "
            "are not of one kind",
            evidence={key: list(pair) for key, pair in changed.items()},
            causes=("two recipes with settings of their own",),
            fix="draw as that run did, or evaluate its model anew under this law before you compare",
            change={f"sampling.{key}": old for key, (old, _) in changed.items()},
        )


def _idle_clip(before: Before) -> Iterator[Finding]:
    rl = before.recipe.rl
    assert rl is not None
    set_ones = {key for key in ("clip_low", "clip_high") if key in rl.algorithm.model_fields_set}
    if set_ones and rl.inner_epochs == 1 and rl.lag == 0 and rl.recorded:
        yield Finding(
            "clip-idle",
            "note",
            f"{' and '.join(sorted(set_ones))} can never act: each batch is used once, at lag 0, so every ratio is 1",
            evidence={"inner_epochs": 1, "lag": 0},
            causes=("settings of a recipe with several updates a batch",),
            fix="leave the clip out, or use each batch several times",
            change={"rl.inner_epochs": 2},
        )


RATES = Check(name="rates", asks="whether the learning rate is usual, lasts, and moves the weights", look=rates)
LAWS = Check(
    name="laws",
    asks="whether training, scoring and evaluation draw by one law, and a clip that is set can act",
    look=laws,
)
