"""What both tasks share: options, examples made from a seed, wordings that the split `test` alone
has, two rewards."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import Field

from plumbline.errors import DataError
from plumbline.recipe import Section, section
from plumbline.records import Example, Message
from plumbline.seeds import generator
from plumbline.tasks.rubric import Rubric
from plumbline.tasks.task import Task

Made = tuple[str, str, dict[str, Any], str]
"""A prompt, its gold answer, what the verifier compares with, and the wording."""
Maker = Callable[[str, bool, np.random.Generator], Made]
"""Makes a request of a kind, with the wordings of `test` or with the others."""
PER_KIND = {"val": 30, "test": 60}
"""Examples of each kind in the splits whose size is fixed."""


class GeneratedOptions(Section):
    """Options of both tasks; each adds its kinds."""

    reward: Literal["strict", "slope"] = "strict"
    """strict pays a right answer alone; slope pays the graded parts, too. The parts are measured in
    both."""
    train: int = Field(default=1280, ge=4, le=5000)
    """Examples to train on, over all kinds."""
    seed: int = Field(default=0, ge=0, le=10_000)
    """Another seed, other requests in the same wordings."""
    system: str | None = None
    """A system message before every prompt."""


Options = TypeVar("Options", bound=GeneratedOptions)
T = TypeVar("T")


def read_options(kind: type[Options], values: Mapping[str, Any], task: str) -> Options:
    """Check a recipe's `task.options`.

    Raises:
        RecipeError: an unknown key or value.
    """
    known = f"the {task} task knows {', '.join(kind.model_fields)}"
    return section(kind, dict(values), inside="task.options.", advice=known)


class GeneratedTask(Task):
    """A task whose examples are made in memory: `make` draws one, and no prompt stands in two
    splits.

    The examples of a kind do not depend on the other kinds, nor `val` and `test` on the size of
    `train`.
    """

    splits = ("train", "val", "test")

    def __init__(
        self, rubric: Rubric, options: GeneratedOptions, kinds: Sequence[str], make: Maker
    ) -> None:
        self.scores, self.options, self.kinds, self.make = (
            rubric,
            options,
            tuple(dict.fromkeys(kinds)),
            make,
        )
        self._of_kind = cache(self._make_kind)

    @property
    def rubric(self) -> str:
        """See `Task.rubric`."""
        return self.scores.identity

    @property
    def form(self) -> Sequence[str]:
        """See `Task.form`."""
        return [part.name for part in self.scores.form]

    def examples(self, split: str) -> Sequence[Example]:
        """See `Task.examples`: the kinds in turn."""
        if split not in self.splits:
            raise DataError(
                f"the {self.name} task has no split {split!r}", f"it has {', '.join(self.splits)}"
            )
        by_kind = [self._of_kind(kind)[split] for kind in self.kinds]
        longest = max(map(len, by_kind))
        return [examples[at] for at in range(longest) for examples in by_kind if at < len(examples)]

    def _make_kind(self, kind: str) -> dict[str, list[Example]]:
        """The examples of a kind by split; `train` comes last, so that its size changes no other
        split."""
        place, kinds = self.kinds.index(kind), len(self.kinds)
        sizes = PER_KIND | {
            "train": self.options.train // kinds + (place < self.options.train % kinds)
        }
        found: dict[str, list[Example]] = {}
        prompts: set[str] = set()
        for split, size in sizes.items():
            rng = generator(self.options.seed, self.name, split, kind)
            found[split] = []
            while len(found[split]) < size:
                prompt, gold, reference, wording = self.make(kind, split == "test", rng)
                if prompt in prompts:
                    continue
                prompts.add(prompt)
                before = self.options.system
                first: list[Message] = (
                    [] if before is None else [{"role": "system", "content": before}]
                )
                example = Example(
                    id=f"{kind}-{split}-{len(found[split]):04d}",
                    messages=[*first, {"role": "user", "content": prompt}],
                    gold=gold,
                    reference=reference,
                    stratum=kind,
                    cluster=wording,
                )
                found[split].append(example)
        return found


def pick(rng: np.random.Generator, among: Sequence[T]) -> T:
    """A member at random."""
    return among[int(rng.integers(len(among)))]


def sample(rng: np.random.Generator, among: Sequence[T], count: int) -> list[T]:
    """Different members at random, in random order."""
    return [among[at] for at in rng.choice(len(among), size=count, replace=False)]
