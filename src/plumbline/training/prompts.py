"""Which prompts a step gets: each task's share and order, how hard prompts are, and which groups are
drawn again.

Letters in shapes: S steps, K tasks.

Shares are of prompts, not of tokens or of rewards. A step's prompts are dealt to the tasks by
systematic sampling: with cumulative shares c_k, `count` prompts and an offset u in [0, 1), the
first k tasks get ceil(count c_k - u) of them together. So every task gets its share of a step
rounded up or down, whatever the offset. The offset moves on by the golden ratio from step to step,
which spreads it more evenly than chance would (an additive recurrence; Niederreiter 1992, "Random
Number Generation and Quasi-Monte Carlo Methods", chapter 3): a task too small for one prompt a step
comes at even distances. Within a task nothing else is different from a run of that task alone.

All of it is a function of the seed and the step: nothing is remembered, and a resumed run draws
what the other drew.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, cycle, islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from plumbline.algorithms.algorithm import TOLERANCE, has_signal
from plumbline.errors import DataError
from plumbline.policies.forks import processor_seconds
from plumbline.policies.policy import Engine, Policy, Sampler
from plumbline.recipe import Recipe
from plumbline.records import Example, FloatArray, Group, IntArray
from plumbline.rollouts.collect import TaskPart, check_judged, collect_parts, hand_over
from plumbline.runs.record import DIFFICULTY
from plumbline.seeds import generator
from plumbline.storage import JsonLines
from plumbline.tasks.task import Task
from plumbline.tasks.task_data import Splits

if TYPE_CHECKING:
    from plumbline.training.stage import Stage

STAGE = "rl"
GOLDEN = (5**0.5 - 1) / 2
ROUNDING = 9
"""Decimals of a step's share: 1/3 + 1/3 + 1/3 is 1."""
Order = Literal["random", "given", "easy-first"]
"""In which a task's examples come: a fresh order each epoch, or as they stand; for easy-first they
stand sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Tasks by name with what is trained on, and their shares. The only task of a run has the name
    ""."""

    tasks: Mapping[str, Task]
    examples: Splits
    shares: Mapping[str, float]
    """Of a step's prompts; they add up to 1."""
    order: Order = "random"

    @classmethod
    def of(cls, task: Task, examples: Sequence[Example]) -> "Source":
        """The source of one task."""
        return cls(tasks={"": task}, examples={"": examples}, shares={"": 1.0})

    @property
    def size(self) -> int:
        """Training examples of all tasks."""
        return sum(map(len, self.examples.values()))

    def draw(self, count: int, step: int, stage: str, seed: int) -> dict[str, list[Example]]:
        """The prompts of a step by task; see `deal`."""
        dealt = self.deal(count, step, stage, seed)
        return {
            name: [self.examples[name][index] for index in indices]
            for name, indices in dealt.items()
        }

    def deal(self, count: int, step: int, stage: str, seed: int) -> dict[str, list[int]]:
        """Which of its examples each task gives to a step: in the order of each epoch of that task,
        every one once before any comes again.

        Args:
            count: prompts of a step, the same in every step.
            step: which, from 0 on.
            stage: base, sft or rl; each has orders of its own.
            seed: the recipe's.
        """
        ends = self._count_drawn(count, step + 1, stage, seed)
        starts = self._count_drawn(count, step, stage, seed)
        dealt = {}
        for name, start, end in zip(self.examples, starts, ends, strict=True):
            n, named = len(self.examples[name]), [name] if name else []
            epochs = range(start // n, (end - 1) // n + 1)
            order = [self._order(n, seed, stage, "order", epoch, *named) for epoch in epochs]
            first = start // n * n
            dealt[name] = [
                int(order[(at - first) // n][(at - first) % n]) for at in range(start, end)
            ]
        return dealt

    def draw_further(
        self, count: int, step: int, stage: str, seed: int
    ) -> dict[str, Iterator[Example]]:
        """Endless prompts of each task beyond those that it gave to a step: first all others, then
        all again.

        They come in an order of the step's own; in `given` and easy-first those come first that
        follow in that order.
        """
        beyond: dict[str, Iterator[Example]] = {}
        for name, indices in self.deal(count, step, stage, seed).items():
            if indices:
                n, examples = len(self.examples[name]), self.examples[name]
                start = 0 if self.order == "random" else indices[-1] + 1
                order = (
                    self._order(n, seed, stage, "further", step, *([name] if name else [])) + start
                ) % n
                others = order[~np.isin(order, indices)]
                beyond[name] = map(examples.__getitem__, chain(others, cycle(order)))
        return beyond

    def epochs(self, count: int, steps: int, stage: str, seed: int) -> dict[str, float]:
        """How often each task's training examples were seen in so many steps, as metrics; none for
        one task."""
        if len(self.tasks) == 1:
            return {}
        drawn = zip(self.examples, self._count_drawn(count, steps, stage, seed), strict=True)
        return {f"train/epoch/{name}": number / len(self.examples[name]) for name, number in drawn}

    def _order(self, n: int, *names: str | int) -> IntArray:
        """The order [n] of a task's examples that the names say."""
        return generator(*names).permutation(n) if self.order == "random" else np.arange(n)

    def _count_drawn(self, count: int, steps: int, stage: str, seed: int) -> list[int]:
        """How many prompts [K] each task gave to the first so many steps."""
        first = generator(seed, stage, "mix").random() if len(self.shares) > 1 else 0.0
        offsets: FloatArray = np.mod(first + GOLDEN * np.arange(steps), 1.0)
        return [
            int(drawn) for drawn in _counts(tuple(self.shares.values()), count, offsets).sum(axis=0)
        ]


def _counts(shares: Sequence[float], count: int, offsets: FloatArray) -> IntArray:
    """How many [S, K] of each step's `count` prompts are each task's, for the steps' offsets
    [S]."""
    ends = np.round(count * np.cumsum(shares), ROUNDING)
    ends[-1] = count
    upto = np.ceil(ends[None, :] - offsets[:, None]).astype(np.int64)
    upto[:, -1] = count
    return np.diff(upto, axis=1, prepend=0)


# -- how hard prompts are --------------------------------------------------------------------------
#
# Before the first step of RL the model answers each training prompt a few times (`rl.filter`). Rows
# are written as soon as their part is judged, and what is drawn for a prompt depends on the seed and
# its id alone: a measurement that was killed continues where it was, and a resumed run keeps the same
# prompts.

AT_ONCE = 64
"""Prompts that are sampled together, after which their rows are written; no answer depends on
it."""


def choose_prompts(
    source: Source, policy: Policy, engine: Engine | None, progress: "Stage"
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
    stage: "Stage",
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
        began, prompts = processor_seconds(), dict[str, list[Example]]()
        for name, index in asked[len(rows) : len(rows) + AT_ONCE]:
            prompts.setdefault(name, []).append(source.examples[name][index])
        groups = _collect_prompts(
            engine or policy, source, run.recipe, prompts, "filter", copies=samples
        )
        spent = (processor_seconds() - began) / len(groups)
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
    progress: "Stage", task: str, means: Sequence[float], measured: int, kept: int
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


# -- the groups of a step --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepRollouts:
    """The judged rollouts of a step."""

    groups: list[Group]
    figures: Mapping[str, float | None] = field(default_factory=dict)
    """Of what was drawn, and what an engine found of the weights that drew."""
    gap: float | None = None
    """Mean |scored - recorded| log-probability [nats] of one rollout under the weights that drew
    it; None on-policy, where the update measures it on all of them."""


def collect_step(sampler: Sampler, source: Source, recipe: Recipe, step: int) -> list[Group]:
    """The judged groups of a step, task by task.

    Raises:
        TrainingStopped: too many answers to one of the tasks could not be judged.
    """
    assert recipe.rl is not None
    prompts = source.draw(recipe.rl.prompts_per_step, step, STAGE, recipe.seed)
    return _collect_prompts(sampler, source, recipe, prompts, "sample", step)


def _collect_prompts(
    sampler: Sampler,
    source: Source,
    recipe: Recipe,
    prompts: Splits,
    *words: str | int,
    copies: int | None = None,
) -> list[Group]:
    """The judged groups of some prompts by task; the words are part of the keys of their requests,
    which of several tasks end with the task's name."""
    assert recipe.rl is not None
    parts = [
        TaskPart(
            name,
            source.tasks[name],
            examples,
            (recipe.seed, STAGE, *words, *([name] if name else [])),
        )
        for name, examples in prompts.items()
        if examples
    ]
    groups = collect_parts(
        sampler, parts, copies=copies or recipe.rl.group_size, sampling=recipe.sampling
    )
    check_judged(groups)
    return groups


def resample(
    sampler: Sampler, source: Source, recipe: Recipe, step: int, first: Sequence[Group]
) -> tuple[list[Group], list[Group]]:
    """Replace the groups of a step without a signal by groups of further prompts with one: dynamic
    sampling.

    Each of `rl.resample` rounds draws as many further prompts of each task as its groups still lack
    a signal; those with a signal take the place of those without, in order (DAPO, Yu et al. 2025,
    arXiv:2503.14476, section 3.2, which continues until the batch is full). What is left after the
    last round stays. Which prompts is a function of seed and step.

    The bias: prompts with a spread are over-represented, those that the policy always or never
    solves are left out, so the step's gradient and `train/reward` are of that selection and not of
    the task's prompts. `train/reward_drawn` is of all that was drawn. A step draws until it has a
    signal, so a mean of it over steps is right where steps are weighted by `train/prompts_drawn`
    (Wald's identity).

    Args:
        sampler: draws.
        source: of the prompts.
        recipe: that is in force.
        step: which.
        first: its first draw.

    Returns:
        The groups to train on, as many of each task as before, and all that were drawn.
    """
    assert recipe.rl is not None
    further = source.draw_further(recipe.rl.prompts_per_step, step, STAGE, recipe.seed)
    groups, drawn = list(first), list(first)
    for attempt in range(recipe.rl.resample):
        if not (
            silent := [
                index for index, group in enumerate(groups) if not has_signal(group.rewards())
            ]
        ):
            break
        counts = Counter(groups[index].task for index in silent)
        prompts = {task: list(islice(further[task], count)) for task, count in counts.items()}
        more = _collect_prompts(sampler, source, recipe, prompts, "resample", step, attempt)
        drawn += more
        better = [group for group in more if has_signal(group.rewards())]
        for index in silent:
            place = next(
                (at for at, group in enumerate(better) if group.task == groups[index].task), None
            )
            groups[index] = groups[index] if place is None else better.pop(place)
    return groups, drawn
