"""The data sets of reasoning-gym (https://github.com/open-thought/reasoning-gym) as tasks, by their
own `score_answer`.

Written against reasoning-gym 0.1.25. Problem i of a data set is made with the seed `seed + i`, so
data sets of neighbouring seeds share problems; all splits here are shares of one data set.
"""

import difflib
import hashlib
import json
import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import Field

from plumbline.adapters.split_task import SplitOptions, SplitTask
from plumbline.config.imports import import_needed
from plumbline.errors import DataError, RecipeError
from plumbline.recipe import section
from plumbline.records import Example, Message, Outcome, Score
from plumbline.rollouts.reward_workers import judge
from plumbline.tasks import Progress

WHAT = "the task reasoning_gym"


class ReasoningGymOptions(SplitOptions):
    """Options of the task reasoning_gym."""

    dataset: str
    """A name that reasoning-gym registers, such as `basic_arithmetic`."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Fields of the data set's configuration. Those of `composite` are {datasets: [{name, weight,
    config}, ...]}."""
    system: str | None = None
    """A system message before every question."""


def open_reasoning_gym(
    options: Mapping[str, Any],
    folder: Path,  # noqa: ARG001
    progress: Progress,  # noqa: ARG001
) -> "ReasoningGymTask":
    """Open a data set; its problems are generated when examples are first asked for, and nothing is
    written.

    Raises:
        RecipeError: reasoning-gym is not installed, has no such data set, or does not take this
            configuration.
    """
    known = ", ".join(ReasoningGymOptions.model_fields)
    advice = f"the task reasoning_gym needs dataset, and knows {known}"
    return ReasoningGymTask(
        section(ReasoningGymOptions, options, inside="task.options.", advice=advice)
    )


open_reasoning_gym.part = "dataset"  # type: ignore[attr-defined]


class ReasoningGymTask(SplitTask):
    """One data set. The stratum is the data set that made the problem, which `composite` has
    several of.

    Where no answer of the data set earns 1, they are no gold answers. Where some do not, an audit
    names them.
    """

    def __init__(self, options: ReasoningGymOptions) -> None:
        super().__init__(options)
        self.options, self.name = options, options.dataset
        gym = import_needed("reasoning_gym", WHAT, RecipeError)
        names = import_needed("reasoning_gym.factory", WHAT, RecipeError).DATASETS
        if options.dataset not in names:
            close = difflib.get_close_matches(options.dataset, names)
            raise RecipeError(
                f"reasoning-gym has no data set {options.dataset}",
                f"did you mean {' or '.join(close)}?"
                if close
                else f"it has {', '.join(sorted(names))}",
            )
        values = {**options.config, "seed": options.seed, "size": options.size}
        try:
            if options.dataset == "composite":
                spec = import_needed("reasoning_gym.composite", WHAT, RecipeError).DatasetSpec
                values["datasets"] = [
                    spec(**{"weight": 1.0, "config": {}, **one})
                    for one in options.config.get("datasets", ())
                ]
            self._made = gym.create_dataset(options.dataset, **values)
        except (TypeError, ValueError, AssertionError, AttributeError) as error:
            raise RecipeError(
                f"reasoning-gym makes no {options.dataset} with task.options.config: {error}",
                "the fields and their ranges stand in the data set's configuration class",
            ) from error

    @property
    def rubric(self) -> str:
        """See `Task.rubric`: the data set, the package's version and a hash of the
        configuration."""
        digest = hashlib.sha256(
            json.dumps(self.options.config, sort_keys=True).encode()
        ).hexdigest()[:6]
        return f"reasoning_gym/{self.name}/{version('reasoning-gym')}+{digest}"

    @cached_property
    def _entries(self) -> Mapping[str, dict[str, Any]]:
        before = random.getstate()
        # list_functions, for one, draws from the interpreter's generator, too
        random.seed(self.options.seed)
        try:
            return {f"{self.name}-{index}": self._made[index] for index in range(self.options.size)}
        finally:
            random.setstate(before)

    def load(self) -> Iterable[Example]:
        """See `SplitTask.load`."""
        system: list[Message] = (
            [{"role": "system", "content": self.options.system}] if self.options.system else []
        )
        examples = [
            Example(
                id=name,
                messages=[*system, {"role": "user", "content": entry["question"]}],
                gold=entry["answer"]
                if isinstance(entry["answer"], str) and entry["answer"]
                else None,
                reference={"answer": entry["answer"]},
                stratum=str(entry.get("metadata", {}).get("source_dataset", self.name)),
            )
            for name, entry in self._entries.items()
        ]
        scores = (judge(self, one, one.gold)[1] for one in examples if one.gold is not None)
        usable = any(score is not None and score.total == 1 for score in scores)
        return examples if usable else [replace(one, gold=None) for one in examples]

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """See `Task.judge`: the data set's own score, cut to [0, 1].

        Raises:
            DataError: the data set gives no number.
            Exception: what its `score_answer` raises: a counted failure.
        """
        found = float(self._made.score_answer(completion, self._entries[example.id]))
        if math.isnan(found):
            raise DataError(
                f"score_answer of {self.name} gives no number", "report it to reasoning-gym"
            )
        return Outcome(how="text"), Score(total=min(1.0, max(0.0, found)), rubric=self.rubric)
