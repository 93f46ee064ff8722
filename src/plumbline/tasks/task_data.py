"""A task of a run with its examples: what it is trained on and what it is evaluated on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plumbline.recipe import Recipe
from plumbline.records import Example
from plumbline.tasks.task import Task

Splits = Mapping[str, Sequence[Example]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskData:
    """A task of a run with its examples, and what its stages are evaluated on."""

    name: str
    """What the recipe calls it; empty for the only task of a run."""
    task: Task
    splits: Splits
    """Its examples, those of train among them."""
    finals: Sequence[str]
    """The splits that every stage is evaluated on after its end."""
    inside: str
    """The split that RL is evaluated on."""
    planned: Mapping[str, int] | None = None
    """How many examples each split will have, where the records are not built and these are a few
    like them."""

    @property
    def train(self) -> Sequence[Example]:
        """What is trained on."""
        return self.splits["train"]

    @property
    def held_out(self) -> Splits:
        """What is evaluated on."""
        wanted = dict.fromkeys([*self.finals, self.inside])
        return {
            split: self.splits[split]
            for split in wanted
            if split in self.splits and split != "train"
        }

    @property
    def built(self) -> bool:
        """Whether these are the run's own examples."""
        return self.planned is None

    @property
    def sizes(self) -> Mapping[str, int]:
        """How many examples each split has, or will have."""
        return self.planned or {split: len(examples) for split, examples in self.splits.items()}

    @property
    def called(self) -> str:
        """With a colon, for the beginning of a sentence about one of several tasks."""
        return f"{self.name}: " if self.name else ""


def task_shares(recipe: Recipe, sizes: Mapping[str, int]) -> dict[str, float]:
    """The tasks' shares of a step's prompts, from how many training examples each has."""
    heavy = {
        name: (recipe.tasks[name].weight if recipe.tasks else 1.0)
        * (size if recipe.mix == "examples" else 1)
        for name, size in sizes.items()
    }
    return {name: weight / sum(heavy.values()) for name, weight in heavy.items()}
