"""Two tasks that a tiny model learns in seconds, though not by one text for all: letters of the
half that the prompt asks for, or (`kind: alphabet`) the alphabet from its letter on. Demonstrations
have a third of their letters at random.

`task.options.reward` plants one fault in what is paid; `comma` is the share of answers that are
written with commas.
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.records import Example, Outcome, Score
from plumbline.tasks.rubric import Part, Rubric
from plumbline.tasks.task import Baseline, Task

ALPHABET = "abcdefgh"
HALVES = {"cedo": ALPHABET[:4], "tarde": ALPHABET[4:]}
BEGUN = {letter: ALPHABET[place:] + ALPHABET[:place] for place, letter in enumerate(ALPHABET)}
FIRST = {"train": 0, "val": 1000, "test": 2000}
"""The first number of a split's prompts."""
LOW, HIGH = 5, 10
"""Letters of an answer that is neither too short nor too long."""
RUBRIC = Rubric(
    "letters",
    1,
    (Part("letters", 0.8, "letters that were asked for"), Part("size", 0.2, "5 to 10 letters")),
)


class Letters(Task):
    """See the module."""

    name = "letters"
    splits = ("train", "val", "test")

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.kind = options.get("kind", "halves")
        self.reward = options.get("reward", "")
        self.comma = options.get("comma", 0.0)
        self.size = options.get("size", 300)

    @property
    def rubric(self) -> str:
        return RUBRIC.identity

    @property
    def form(self) -> Sequence[str]:
        return []

    def examples(self, split: str) -> Sequence[Example]:
        count = self.size if split == "train" else min(self.size, 40)
        return [self._example(split, number) for number in range(count)]

    def _example(self, split: str, number: int) -> Example:
        cycles = BEGUN if self.kind == "alphabet" else HALVES
        asked = list(cycles)[number % len(cycles)]
        return Example(
            id=f"{split}-{number}",
            messages=[{"role": "user", "content": f"{FIRST[split] + number} {asked}: escreva"}],
            gold=" ".join((cycles[asked] * 2)[:8]),
            reference={"letters": cycles[asked], "number": number},
            stratum=asked,
        )

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        wanted = str(example.reference["letters"])
        if self.reward == "other_in_training" and example.id.startswith("train"):
            wanted = "".join(letter for letter in ALPHABET if letter not in wanted)
        strict = self._paid(completion if "," not in completion else "", wanted)
        lenient = self._paid(completion.replace(",", " "), wanted)
        right, size = strict if self.reward == "strict" else lenient
        if self.reward == "raises" and "h" in completion[:6]:
            raise RuntimeError("the database is gone")
        parts = self._planted(right, size, completion, example)
        score = RUBRIC.score(parts)
        readings = {"lenient": _total(lenient), "strict": _total(strict)} if self.comma else {}
        return Outcome(how="strict"), Score(
            total=score.total, parts=parts, rubric=self.rubric, readings=readings
        )

    def _paid(self, completion: str, wanted: str) -> tuple[float, float]:
        found = [letter for letter in completion if letter in ALPHABET]
        if self.kind == "alphabet":
            right = [one == other for one, other in zip(found, wanted * 9, strict=False)]
        else:
            right = [one in wanted for one in found]
        size = float(LOW <= len(found) <= HIGH)
        varied = min(len(set(found)) / 3, 1.0) * (size or 0.3)
        return varied * sum(right) / max(len(found), 1), size

    def _planted(
        self, right: float, size: float, completion: str, example: Example
    ) -> dict[str, float]:
        count = sum(letter in ALPHABET for letter in completion)
        paid = {
            "constant": (0.5, 0.5),
            "zero": (0.0, 0.0),
            "dead": (0.0, size),
            "by_prompt": (example.reference["number"] % 10 / 10, 1.0),
            "unread_pays": (1.0 if count < LOW else right, size),
            "gold_earns_less": (0.7 * right, size),
            "opposed": (right, 1 - right),
            "length": (min(1.0, count / 40), min(1.0, count / 40)),
            "sparse": (float(right > 0.95), float(right > 0.95)),
        }.get(self.reward, (right, size))
        return {"letters": paid[0], "size": paid[1]}

    def demonstration(self, example: Example, seed: int) -> str:
        dice = random.Random(seed)
        cycle = example.reference["letters"] * 3
        letters = [
            one if dice.random() > 0.35 else dice.choice(ALPHABET)
            for one in cycle[: dice.randint(3, 12)]
        ]
        return (", " if dice.random() < self.comma else " ").join(letters)

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        return {
            "blank": lambda examples: [""] * len(examples),
            "constant": lambda examples: ["x"] * len(examples),
        }


def _total(paid: tuple[float, float]) -> float:
    return RUBRIC.total({"letters": paid[0], "size": paid[1]})


def open_letters(options: Mapping[str, Any], folder: Path, progress: object) -> Letters:
    """See `plumbline.tasks.open_task`."""
    return Letters(options)
