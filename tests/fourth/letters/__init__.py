"""The smallest environment: a package with a task, its entry point in pyproject.toml, and recipes
beside the code."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.records import Example, Outcome, Score
from plumbline.tasks.baselines import blank, shuffled_gold
from plumbline.tasks.rubric import Part, Rubric
from plumbline.tasks.task import Baseline

LENGTH = 4
"""Letters of a right answer."""
RUBRIC = Rubric(
    "letters", 1, (Part("share", 1.0, "how much of the word that was asked for is there"),)
)


class Letters:
    """Write a letter four times, and nothing else."""

    name = "letters"
    splits = ("train", "val", "test")
    rubric = RUBRIC.identity
    form: Sequence[str] = ()
    baselines: Mapping[str, Baseline] = {"blank": blank, "shuffled_gold": shuffled_gold}

    def examples(self, split: str) -> Sequence[Example]:
        """Twelve prompts of each split, each for one of three letters."""
        return [
            Example(
                id=f"{split}-{number}",
                messages=[
                    {
                        "role": "user",
                        "content": f"{split} {number}: write {'abc'[number % 3]} four times",
                    }
                ],
                gold="abc"[number % 3] * LENGTH,
                reference={"letter": "abc"[number % 3]},
            )
            for number in range(12)
        ]

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """A quarter for each of four letters; another character takes all."""
        text = completion.strip()
        right = set(text) == {example.reference["letter"]} and len(text) <= LENGTH
        return Outcome(how="strict"), RUBRIC.score({"share": len(text) / LENGTH if right else 0.0})

    def demonstration(self, example: Example, seed: int) -> str:
        """The gold answer."""
        assert example.gold is not None
        return example.gold


def open_letters(
    options: Mapping[str, Any], folder: Path, progress: Callable[..., None]
) -> Letters:
    """Open the task; it has no options."""
    return Letters()
