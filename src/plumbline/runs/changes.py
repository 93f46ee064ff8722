"""What of a recipe may change while its run is stopped.

A run is the run of one recipe, so most keys may not. Two kinds may, because errors advise them and nothing that was
computed before becomes false: keys that say how a run is executed or when it gives up, and the learning rate of a stage
that still trains. The recipe in the run's folder is then the one in force, and an event says from which step on, and
what stood there before.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from plumbline.errors import RunError
from plumbline.recipe import Recipe, differences
from plumbline.recipe.sections import NO_RESULT

HOW = (
    "sft.tokens_per_pass",
    "rl.tokens_per_pass",
    "rl.max_gap",
    "rl.patience",
    "evaluation.untrained",
    "engine.address",
    "engine.python",
    "engine.arguments",
    "engine.publish",
    "engine.timeout",
)
"""Keys that say how a run is executed, when it is stopped, or what is evaluated besides; results are the same but for
rounding. A family names those of its model section (`ModelSection.how`)."""
RATES = {
    "base": "model.tiny.learning_rate",
    "sft": "sft.optimiser.learning_rate",
    "rl": "rl.optimiser.learning_rate",
}
"""The key of each stage's learning rate."""


def _free(key: str) -> bool:
    return key.partition(".")[0] in NO_RESULT


@dataclass(frozen=True, slots=True)
class Change:
    """A key of a recipe with its value before and after."""

    key: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.key}: {self.old} -> {self.new}"

    @property
    def asked(self) -> bool:
        """Whether it is of the questions and branches, dozens of keys that nothing in a run depends on."""
        return self.key.partition(".")[0] == "decide"

    def stage(self, present: str | None) -> str | None:
        """The stage that it acts on: a rate's own, else the one that the run stands in."""
        return next((stage for stage, key in RATES.items() if key == self.key), present)


def same_but_seed(one: Recipe, other: Recipe) -> bool:
    """Whether two recipes are seeds of one."""
    return not more_than_seed(one, other)


def more_than_seed(one: Recipe, other: Recipe) -> list[Change]:
    """What differs besides the seed, the name and what changes no result."""
    free = {"seed", "name", *HOW, *(f"model.{key}" for key in one.model.how)}
    changes = [Change(*each) for each in differences(one, other)]
    return [each for each in changes if each.key not in free and not _free(each.key)]


def allowed_changes(before: Recipe, now: Recipe, finished: Collection[str], folder: object) -> list[Change]:
    """What differs between the recipe of a run and the one it is resumed with.

    Args:
        before: what stands in the run's folder.
        now: what was given.
        finished: the stages that are.
        folder: the run's, for the message.

    Raises:
        RunError: something differs that may not; says what may.
    """
    changes = [Change(*each) for each in differences(before, now)]
    late = [each for stage, key in RATES.items() if stage in finished for each in changes if each.key == key]
    if late:
        raise RunError(
            f"{late[0]}, but the stage that trains at this rate is finished",
            "leave the rate as it was, or use --out for a new run",
        )
    how = (*(f"model.{key}" for key in sorted(now.model.how)), *HOW)
    other = [each for each in changes if each.key not in (*how, *RATES.values()) and not _free(each.key)]
    if other:
        raise RunError(
            f"{folder} was started with another recipe ({'; '.join(map(str, other[:4]))})",
            "resume with the recipe it was started with, or use --out for a new run; only what says how it is "
            f"executed may change ({', '.join(how)}), and the learning rate of a stage that is not finished "
            f"({', '.join(RATES.values())})",
        )
    return changes
