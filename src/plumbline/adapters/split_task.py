"""What tasks of other packages share: their distinct prompts, split into train, val and test."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Self

from pydantic import Field, model_validator

from plumbline.errors import DataError
from plumbline.recipe import Section
from plumbline.records import Example
from plumbline.seeds import derive
from plumbline.tasks.baselines import WITH_GOLD, WITHOUT_GOLD
from plumbline.tasks.task import Baseline, Task


class SplitOptions(Section):
    """Options of every task of another package."""

    size: int = Field(default=500, ge=3)
    """How many problems are asked for; equal prompts count as one example."""
    val: float = Field(default=0.1, gt=0, lt=1)
    """A share of the distinct prompts, like `test`."""
    test: float = Field(default=0.1, gt=0, lt=1)
    seed: int = 0
    """Of the problems, where they are generated, and of which prompts are held out."""

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        if self.val + self.test >= 1:
            raise ValueError("val and test hold out all of the examples")
        return self


class SplitTask(Task):
    """A task whose examples come as one sequence. A prompt is in one split only, and which one
    depends on its text and the seed alone."""

    splits = ("train", "val", "test")

    def __init__(self, options: SplitOptions) -> None:
        self.shares = options

    def load(self) -> Iterable[Example]:
        """All examples, of all splits.

        Raises:
            DataError: the package cannot make them.
        """
        raise NotImplementedError

    @cached_property
    def _split_examples(self) -> Mapping[str, Sequence[Example]]:
        distinct = {one.fingerprint(): one for one in reversed([*self.load()])}
        order = sorted(distinct, key=lambda prompt: derive(self.shares.seed, "split", prompt))
        val, test = (
            max(1, round(share * len(order))) for share in (self.shares.val, self.shares.test)
        )
        if val + test >= len(order):
            raise DataError(
                f"{self.name} has {len(order)} distinct prompts, of which {val + test} would be "
                "held out",
                "set task.options.size higher, or val and test lower",
            )
        held = {
            "val": set(order[:val]),
            "test": set(order[val : val + test]),
            "train": set(order[val + test :]),
        }
        return {
            split: [one for prompt, one in reversed(distinct.items()) if prompt in held[split]]
            for split in self.splits
        }

    def examples(self, split: str) -> Sequence[Example]:
        """See `Task.examples`: in the order of the package."""
        if split not in self.splits:
            raise DataError(
                f"the task {self.name} has no split {split!r}", f"it has {', '.join(self.splits)}"
            )
        return self._split_examples[split]

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        """See `Task.baselines`: those from gold answers where every example has one."""
        every = (one for split in self._split_examples.values() for one in split)
        return WITHOUT_GOLD if any(one.gold is None for one in every) else WITH_GOLD
