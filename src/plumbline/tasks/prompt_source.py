"""Where the prompts of training come from: one task, or several of which each has its share of
every step.

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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, cycle
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from plumbline.records import Example
from plumbline.seeds import generator
from plumbline.tasks.task import Task

GOLDEN = (5**0.5 - 1) / 2
ROUNDING = 9
"""Decimals of a step's share: 1/3 + 1/3 + 1/3 is 1."""
Mix = Literal["tasks", "examples"]
"""What a weight weighs: its task as a whole, or each of its training examples."""
Order = Literal["random", "given", "easy-first"]
"""In which a task's examples come: a fresh order each epoch, or as they stand; for easy-first they
stand sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Tasks by name with what is trained on, and their shares. The only task of a run has the name
    ""."""

    tasks: Mapping[str, Task]
    examples: Mapping[str, Sequence[Example]]
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

    def _order(self, n: int, *names: str | int) -> NDArray[np.int64]:
        """The order [n] of a task's examples that the names say."""
        return generator(*names).permutation(n) if self.order == "random" else np.arange(n)

    def _count_drawn(self, count: int, steps: int, stage: str, seed: int) -> list[int]:
        """How many prompts [K] each task gave to the first so many steps."""
        first = generator(seed, stage, "mix").random() if len(self.shares) > 1 else 0.0
        offsets: NDArray[np.float64] = np.mod(first + GOLDEN * np.arange(steps), 1.0)
        return [
            int(drawn) for drawn in _counts(tuple(self.shares.values()), count, offsets).sum(axis=0)
        ]


def _counts(shares: Sequence[float], count: int, offsets: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many [S, K] of each step's `count` prompts are each task's, for the steps' offsets
    [S]."""
    ends = np.round(count * np.cumsum(shares), ROUNDING)
    ends[-1] = count
    upto = np.ceil(ends[None, :] - offsets[:, None]).astype(np.int64)
    upto[:, -1] = count
    return np.diff(upto, axis=1, prepend=0)


def task_shares(
    weights: Mapping[str, float], sizes: Mapping[str, int], mix: Mix
) -> dict[str, float]:
    """The tasks' shares of a step's prompts.

    Args:
        weights: of the tasks, by name.
        sizes: how many training examples each has.
        mix: what a weight weighs.
    """
    heavy = {
        name: weight * (sizes[name] if mix == "examples" else 1) for name, weight in weights.items()
    }
    return {name: weight / sum(heavy.values()) for name, weight in heavy.items()}
