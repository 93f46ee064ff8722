"""The task jsonl: files of prompts with what is known about their answers, and a scoring function of the user's."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from plumbline.errors import DataError
from plumbline.imports import allowed
from plumbline.records import Example, Outcome, Score
from plumbline.tasks import Progress
from plumbline.tasks.controls import WITH_GOLD, WITHOUT_GOLD
from plumbline.tasks.jsonl.options import JsonlOptions, read_options
from plumbline.tasks.jsonl.rows import SPLITS, Records, read_records
from plumbline.tasks.jsonl.scorer import Scoring
from plumbline.tasks.precheck import precheck
from plumbline.tasks.task import Control, gold_of


def open_jsonl(options: Mapping[str, Any], folder: Path, progress: Progress) -> "JsonlTask":  # noqa: ARG001
    """Open the task; the files are read when their examples are first asked for, and nothing is written.

    Raises:
        RecipeError: an unknown option, or a scoring function that cannot be used.
    """
    task = open_rows(options)
    _ = task.rubric  # imports the functions
    return task


def open_rows(options: Mapping[str, Any]) -> "JsonlTask":
    """The task without its scoring functions, which are imported when they are first needed.

    Raises:
        RecipeError: an unknown option.
    """
    return JsonlTask(read_options(options))


class JsonlTask:
    """See `plumbline.tasks.task.Task`."""

    name = "jsonl"
    splits = SPLITS

    def __init__(self, options: JsonlOptions) -> None:
        self.options = options

    @cached_property
    def _scoring(self) -> Scoring:
        return Scoring(self.options)

    @cached_property
    def _records(self) -> Records:
        readable = all(map(allowed, self.options.functions()))  # else rows can be looked at, and not judged
        return read_records(self.options, self._scoring.needs if readable else frozenset())

    @property
    def rubric(self) -> str:
        """See `Task.rubric`: names, source, weights and ranges of the scoring functions."""
        return self._scoring.identity

    @property
    def form(self) -> Sequence[str]:
        """See `Task.form`: which parts judge form only the function knows."""
        return ()

    @property
    def judges(self) -> int:
        """See `Task`."""
        return self.options.judges

    def examples(self, split: str) -> Sequence[Example]:
        """See `Task.examples`."""
        if split not in SPLITS:
            raise DataError(f"the task jsonl has no split {split!r}", f"it has {', '.join(SPLITS)}")
        return self._records.splits[split]

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """See `Task.judge`.

        Raises:
            Exception: what the scoring function raises, or a DataError for what it returns: a counted failure.
        """
        return self.judge_group(example, [completion])[0]

    def judge_group(self, example: Example, completions: Sequence[str]) -> list[tuple[Outcome, Score]]:
        """Judge several completions of one example, which a function of lists takes in one call."""
        prompt = example.reference[self.options.prompt]
        if isinstance(prompt, list) and prompt[-1]["role"] == "assistant":
            prompt = prompt[:-1]
        return [(Outcome(how="text"), score) for score in self._scoring.scores(prompt, completions, example.reference)]

    def demonstration(self, example: Example, seed: int) -> str:  # noqa: ARG002
        """See `Task.demonstration`: the gold answer."""
        return gold_of(example)

    @property
    def controls(self) -> Mapping[str, Control]:
        """See `Task.controls`: the general ones, those from gold answers where there are any."""
        return WITH_GOLD if self._records.has_gold else WITHOUT_GOLD

    def precheck(self, verdicts: int) -> Sequence[str]:
        """See `plumbline.tasks.task.Prechecked`."""
        return [*self._records.notes, *precheck(self, self.examples("train"), verdicts)]
