"""A task of rows that tests write: name the first word of the prompt. Its examples stand in
`SPLITS`, by a name."""

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.errors import DataError
from plumbline.records import Example, Outcome, Score
from plumbline.tasks.baselines import WITH_GOLD
from plumbline.tasks.rubric import Part, Rubric
from plumbline.tasks.task import Baseline

RUBRIC = Rubric("rows", 1, (Part("right", 1.0, "the first word"),))
SPLITS: dict[str, dict[str, list[Example]]] = {}
KINDS = ("long", "short")


def some_rows(prefix: str, count: int, **changed: Any) -> list[Example]:
    """Sentences of random words, of two kinds by turns."""
    rng = random.Random(prefix)
    words = ["".join(rng.choices("abdeilmnorstu", k=4)) for _ in range(400)]
    rows = []
    for index in range(count):
        text = rng.choices(words, k=12)
        values = {
            "id": f"{prefix}-{index}",
            "messages": [
                {"role": "system", "content": "O início?"},
                {"role": "user", "content": " ".join(text)},
            ],
            "gold": text[0],
            "reference": {"word": text[0]},
            "stratum": KINDS[index % 2],
        }
        rows.append(Example(**{**values, **changed}))
    return rows


class RowsTask:
    """See the module; `reward: half` pays gold answers a half, `all` every text, `thought` one with
    a thought."""

    name = "rows"
    form: Sequence[str] = ()
    splits = ("train", "val", "test")

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.rows, self.reward = SPLITS[options["rows"]], options.get("reward", "")
        self.words = {
            row.gold.rpartition(">")[2] for rows in self.rows.values() for row in rows if row.gold
        }
        self.rubric = RUBRIC.identity

    def examples(self, split: str) -> Sequence[Example]:
        if split not in self.rows:
            raise DataError(f"no split {split}")
        return self.rows[split]

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        gold = example.gold.rpartition(">")[2]
        words = [word for word in re.findall(r"\w+", completion.casefold()) if word in self.words]
        denied = re.search(rf"\b(?:não é|not) {re.escape(gold)}\b", completion) is not None
        right = words[-1:] == [gold] and len(words) < 5 and not denied
        thought = float("<think>" in completion and right)
        value = {"half": right / 2, "all": 1.0, "thought": thought}.get(self.reward, float(right))
        return Outcome(how="text"), RUBRIC.score({"right": value})

    def demonstration(self, example: Example, seed: int) -> str:
        return example.gold

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        return WITH_GOLD


def open_rows(options: Mapping[str, Any], folder: Path, progress: object) -> RowsTask:
    return RowsTask(options)
