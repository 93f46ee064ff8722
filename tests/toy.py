"""A toy task that a random tiny model can learn in seconds: write as many "a" as you can."""

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.records import Example, Outcome, Score
from plumbline.tasks.rubric import Part, Rubric
from plumbline.tasks.task import Baseline, Task

RUBRIC = Rubric(
    "toy",
    1,
    (
        Part("letters", 0.75, "the share of the text that is the letter"),
        Part("any", 0.25, "any text"),
    ),
)


class ToyTask(Task):
    """See the module; `options` may break it in the ways that tests need."""

    name = "toy"
    splits = ("train", "val", "test")

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = dict(options)
        self.size = options.get("size", 12)
        self.reward = options.get("reward", "letters")

    @property
    def rubric(self) -> str:
        return RUBRIC.identity

    @property
    def form(self) -> Sequence[str]:
        return ["any"]

    def examples(self, split: str) -> Sequence[Example]:
        return [
            Example(
                id=f"{split}-{index}",
                messages=[
                    *self.options.get("lead", ()),
                    {"role": "user", "content": f"{split} {index}: escreva"},
                ],
                gold="aaaa" if self.options.get("gold", True) else None,
                reference={"letter": "a"},
                stratum="even" if index % 2 == 0 else "odd",
            )
            for index in range(self.size)
        ]

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        if (once := Path(self.options.get("kills_once", "/"))) != Path("/") and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if example.id in self.options.get("breaks", ()):
            raise RuntimeError("the page is gone")
        if self.reward == "constant":
            return Outcome(how="strict"), RUBRIC.score({"letters": 0.5, "any": 0.5})
        if self.reward == "infinite":
            return Outcome(how="strict"), RUBRIC.score({"letters": float("inf"), "any": 1.0})
        if self.reward == "raises":
            raise RuntimeError("the database is gone")
        text = completion.strip()
        letters = sum(character in "aA" for character in text) / len(text) if text else 0.0
        if self.reward == "dead_part":
            return Outcome(how="strict"), RUBRIC.score({"letters": 0.0, "any": letters})
        if self.reward == "constant_by_group":
            return Outcome(how="strict"), RUBRIC.score(
                {"letters": int(example.id[-1]) / 10, "any": 1.0}
            )
        return Outcome(how="strict"), RUBRIC.score({"letters": letters, "any": float(bool(text))})

    def demonstration(self, example: Example, seed: int) -> str:
        return example.gold

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        return {
            "blank": lambda examples: [""] * len(examples),
            "constant": lambda examples: ["b"] * len(examples),
        }


def open_toy(options: Mapping[str, Any], folder: Path, progress: object) -> ToyTask:
    return ToyTask(options)
