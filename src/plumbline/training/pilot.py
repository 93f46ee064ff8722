"""What a model's own answers to training prompts offer to learn from, measured before anything is
trained, and what training would gain (`plumbline pilot`).

Letters in shapes: P prompts, G answers to each.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from plumbline.algorithms.algorithm import has_signal
from plumbline.checks.audit.trial import try_reward
from plumbline.checks.check import refuse_findings
from plumbline.checks.gain import LEAST_GAIN, Foretold, Offer, foretell, foretold_lines
from plumbline.checks.refusals import check_recipe
from plumbline.errors import DataError, RecipeError
from plumbline.policies import open_policy
from plumbline.policies.forks import processor_seconds
from plumbline.policies.options import model_section
from plumbline.policies.policy import Policy
from plumbline.recipe import Recipe, RlSection, parse_recipe
from plumbline.records import Group, Judged, Score, rollouts_of
from plumbline.rollouts.collect import check_judged, check_prompts, collect
from plumbline.runs import output_guard
from plumbline.storage import file_begins_with, write_text
from plumbline.tasks import Progress, open_task, silent
from plumbline.tasks.task import Task
from plumbline.training.microbatches import Microbatches
from plumbline.training.optimiser import Optimiser
from plumbline.training.rl import weigh_rollouts
from plumbline.training.update import update_policy

PROMPTS, ANSWERS = 64, 8
"""P and G by default: 512 answers."""
AT_ONCE = 16
"""Prompts that are answered together, between two words on how far it is."""
CUT = "Most answers are cut: raise sampling.max_tokens."
STEP = 128
"""Answers of a step."""
ENOUGH = 0.05
"""Signal over noise of a step, for which it gets more answers, as long as `FEWEST` steps remain."""
FEWEST = 10
WAYS: dict[str, dict[str, Any]] = {
    "expert-iteration": {"algorithm": "rft", "inner_epochs": 2, "minibatch": 8},
    "grpo": {"algorithm": "grpo", "minibatch": 4, "resample": 0},
    "dynamic": {"algorithm": "grpo", "minibatch": 4, "resample": 2},
    "dpo": {"algorithm": "dpo", "minibatch": 4},
}
"""Keys of `rl` for each way; SFT has none."""
STAYS = {"filter", "order", "patience", "max_gap", "tokens_per_microbatch", "optimiser"}
"""Keys of the recipe's own `rl` that stay under another algorithm; under the same one all do."""
HEAD = "# Written by `plumbline pilot`: "
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
    """Processor-seconds of learning from an answer; as long as drawing takes, where no answer has
    an advantage."""

    def signal_at(self, answers: int) -> float | None:
        """Signal over noise of a step with so many answers (McCandlish et al. 2018,
        arXiv:1812.06162: it grows with their number)."""
        return None if self.signal is None else self.signal * answers

    def offer(self, *, gold: bool) -> Offer:
        """What there is to learn from, with or without gold answers."""
        return Offer(self.reward, self.spread, self.draw_seconds, self.update_seconds, gold)


@dataclass(frozen=True, slots=True)
class Pilot:
    """What was measured, what it foretells, and the recipe that follows."""

    figures: PilotFigures
    seconds: float
    """Processor-seconds of training that are asked about."""
    foretold: list[Foretold]
    """The largest gain first."""
    recipe: Recipe | None
    """None where no way gains `LEAST_GAIN`."""

    def lines(self) -> Iterator[str]:
        """For terminals: a dozen."""
        seen = self.figures
        yield f"{seen.answers} answers to {seen.prompts} training prompts"
        yield f"reward      {seen.reward:.3f} sampled, {seen.best:.3f} the best of {ANSWERS}"
        yield (
            f"right       {seen.right:.3f} of the answers; {seen.right_prompts:.3f} of the prompts "
            f"have one among {ANSWERS}"
        )
        moving = ", ".join(f"{name} {value:.2f}" for name, value in seen.parts.items())
        yield f"differ      {seen.mixed:.3f} of the groups; within a prompt by {seen.spread:.3f} ({moving})"
        yield (
            f"answers     {seen.tokens:.0f} tokens, {seen.truncated:.3f} cut, {seen.duplicates:.3f} "
            f"repeated, {seen.entropy:.2f} nats a token"
        )
        signal = seen.signal_at(STEP) or 0
        yield f"gradient    signal over noise {signal:.3f} with {STEP} answers a step"
        yield from foretold_lines(self.foretold, self.seconds)
        if self.recipe is None:
            yield f"what would have to change: {' '.join(self.obstacles())}"
        else:
            yield f"best: {self.recipe.description}"
            if seen.truncated > 0.5:
                yield CUT

    def obstacles(self) -> Iterator[str]:
        """Why nothing is gained."""
        seen = self.figures
        if seen.truncated > 0.5:
            yield CUT
        if seen.reward > 1 - LEAST_GAIN:
            yield "The prompts are solved: take harder ones."
        elif seen.mixed < 0.1:
            yield (
                "Answers to a prompt earn the same: pay parts of an answer, take easier prompts, or "
                "show gold answers (sft)."
            )
        else:
            yield "The budget is too small for these costs: give it more --minutes."

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "figures": asdict(self.figures),
            "seconds": self.seconds,
            "foretold": [asdict(one) for one in self.foretold],
            "recipe": self.recipe and self.recipe.to_dict(),
            "obstacles": [] if self.recipe else [*self.obstacles()],
        }


def run_pilot(
    recipe: Recipe, folder: Path, minutes: float = 60, progress: Progress = silent
) -> Pilot:
    """Measure what a recipe's model, prompts and reward offer, and foretell what training gains.

    Args:
        recipe: with one task and a model; its stages are looked at for nothing but rates and
            limits.
        folder: where the task may build its records.
        minutes: of training that are asked about, on all processors of the recipe.
        progress: is told what is done.

    Raises:
        RecipeError: several tasks, no model, or what `check_recipe` refuses.
        RunError: the audit of the reward found something fatal.
        DataError: see `measure_answers`.
    """
    if len(recipe.each_task) > 1 or recipe.model.name is None:
        raise RecipeError(
            "a pilot measures one model on one task",
            "name a model (model.name), and leave one task",
        )
    check_recipe(recipe)
    (section,) = recipe.each_task.values()
    task = open_task(section.name, section.options, folder, progress)
    train = task.examples("train")
    progress("auditing the reward", 0, 1)
    tried = try_reward(task, "run", ("train",))
    refuse_findings("the reward cannot be trusted", tried.findings, "see plumbline audit")
    progress(f"opening {recipe.model.name}", 0, 1)
    policy = open_policy(model_section(recipe), recipe.model.name, recipe.seed)
    check_prompts(policy, train[:PROMPTS], recipe.sampling)
    figures = measure_answers(policy, task, recipe, progress=progress)
    cpu = not policy.engine.get("device", "").startswith("cuda")
    seconds = 60 * minutes * (torch.get_num_threads() if cpu else 1)
    gold = all(example.gold is not None for example in train)
    foretold = foretell(figures.offer(gold=gold), seconds)
    best = next((one for one in foretold if one.gain >= LEAST_GAIN), None)
    return Pilot(
        figures, seconds, foretold, advise(recipe, best, figures, len(train)) if best else None
    )


def advise(recipe: Recipe, way: Foretold, figures: PilotFigures, rows: int) -> Recipe:
    """The recipe with a way in place of its stages, as many steps as the budget pays for, and a
    starting rate; its other keys stay where the way has them. Its description says how often each
    of the training rows would be shown.

    Raises:
        RecipeError: with these keys it is no recipe.
    """
    own = WAYS.get(way.way)
    answers = STEP if own else 16
    signal = figures.signal_at(1) or math.inf
    while own and signal * answers < ENOUGH and way.answers > 2 * answers * FEWEST:
        answers *= 2
    steps = max(FEWEST, round(way.answers / answers))
    prompts = steps * answers / (ANSWERS if own else 1)
    before = recipe.to_dict()["rl" if own else "sft"] or {}
    if own and recipe.rl and recipe.rl.algorithm.name != own["algorithm"]:
        before = {name: value for name, value in before.items() if name in STAYS}
    rate = {"learning_rate": way.learning_rate, "schedule": "linear", "warmup": 0}
    stage = before | {
        "steps": steps,
        "seconds": None,
        "optimiser": before.get("optimiser", {}) | rate,
    }
    advised = {
        "name": f"{recipe.name}-{way.way}",
        "description": f"{way.way}, {steps} steps of {answers} answers, learning rate "
        f"{way.learning_rate:g}; {prompts / rows:.2g} epochs of {rows:,} training prompts",
        "sft": None if own else stage | {"epochs": None, "batch_size": answers},
        "rl": own
        and stage
        | own
        | {
            "algorithm": stage.get("algorithm", own["algorithm"]),
            "prompts_per_step": answers // ANSWERS,
            "group_size": ANSWERS,
            "minibatch": own["minibatch"] * answers // STEP,
        },
    }
    return parse_recipe(recipe.to_dict() | advised)


def check_advice(path: Path) -> None:
    """Refuse a file that no pilot wrote.

    Raises:
        StorageError: it is there.
    """
    output_guard.check_file(path, "recipe", lambda there: file_begins_with(there, HEAD))


def write_advice(recipe: Recipe, path: Path) -> None:
    """Write a pilot's recipe.

    Raises:
        StorageError: it cannot be written.
    """
    write_text(path, f"{HEAD}a way, its steps and a starting rate.\n{recipe.to_yaml()}")


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
    began, groups, count = processor_seconds(), list[Group](), len(examples) * answers
    for start in range(0, len(examples), AT_ONCE):
        progress(f"drawing {count} answers", start * answers, count)
        groups += collect(
            policy,
            task,
            examples[start : start + AT_ONCE],
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
        update_seconds=updated or drawn / len(rollouts),
    )


def _measure_signal(
    policy: Policy, groups: Sequence[Group], recipe: Recipe
) -> tuple[float | None, float]:
    """Signal over noise of one answer, and the processor-seconds of an update for each answer that
    has an advantage; 0 where none has."""
    given = recipe.rl or RlSection(steps=1)
    still = given.optimiser.model_copy(update={"learning_rate": 0.0, "weight_decay": 0.0})
    section = RlSection(steps=1, tokens_per_microbatch=given.tokens_per_microbatch, optimiser=still)
    optimiser = Optimiser(policy.trainable(), still, 1)
    weighted = weigh_rollouts(groups, section.algorithm)
    learnt = sum(rollout.advantage != 0 for rollout in rollouts_of(weighted))
    began = processor_seconds()
    report = update_policy(
        policy,
        optimiser,
        weighted,
        recipe.model_copy(update={"rl": section}),
        0,
        Microbatches(optimiser, policy),
    )
    spent = (processor_seconds() - began) / learnt if learnt else 0.0
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
