"""The commerce task: records in a folder, a job for each row, one verifier for each job."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from plumbline.errors import DataError
from plumbline.records import Example, Item, Outcome, Score
from plumbline.seeds import generator
from plumbline.storage import read_jsonl
from plumbline.tasks import Progress
from plumbline.tasks.commerce.build import SPLITS, ensure_commerce, has_records
from plumbline.tasks.commerce.extraction import rubric as extraction
from plumbline.tasks.commerce.extraction.controls import CONTROLS
from plumbline.tasks.commerce.extraction.schema import ISSUES, KEYS
from plumbline.tasks.commerce.extraction.sloppy import sloppily
from plumbline.tasks.commerce.options import CommerceOptions, read_options
from plumbline.tasks.task import Control, gold_of

EXTRACTION = "extraction"


def open_commerce(options: Mapping[str, Any], folder: Path, progress: Progress) -> "CommerceTask":
    """Open the commerce task on the records that the options name, or on those of `folder`.

    Where `folder` has none, the first examples that are asked for build them there.

    Raises:
        RecipeError: an unknown option.
        DataError: there is no such folder of records, or `folder` holds records of other options.
        StorageError: `folder` holds what is not ours.
    """
    checked = read_options(dict(options))
    if checked.data is not None:
        if not Path(checked.data).is_dir():
            raise DataError(f"there is no folder {checked.data}", "correct task.options.data")
        return CommerceTask(Path(checked.data), checked)
    if has_records(checked, folder):
        return CommerceTask(folder, checked)
    return CommerceTask(folder, checked, lambda: ensure_commerce(checked, folder, progress))


class CommerceTask:
    """See `plumbline.tasks.task.Task`."""

    name = "commerce"
    splits = SPLITS

    def __init__(self, folder: Path, options: CommerceOptions, build: Callable[[], None] | None = None) -> None:
        """Nothing is read yet; `build` is called once before the first records are."""
        self.folder, self.options = folder, options
        self._build = build
        self._read = cache(self._read_split)

    @property
    def rubric(self) -> str:
        """See `Task.rubric`; the reading is part of it, because it decides the totals."""
        keys = "" if self.options.keys is None else f":{','.join(self.options.keys)}"
        return f"{extraction.RUBRIC.identity}:{self.options.reading}{keys}"

    @property
    def form(self) -> Sequence[str]:
        """See `Task.form`."""
        return [part.name for part in extraction.RUBRIC.form]

    def examples(self, split: str) -> Sequence[Example]:
        """See `Task.examples`."""
        if split not in self.splits:
            raise DataError(f"the commerce task has no split {split!r}", f"it has {', '.join(self.splits)}")
        return self._read(split)

    def _read_split(self, split: str) -> list[Example]:
        if self._build is not None:
            self._build()
            self._build = None
        path = self.folder / f"{split}.jsonl"
        examples: list[Example] = []
        seen: set[str] = set()
        for number, row in read_jsonl(path):
            example = _example(row, f"{path}:{number}")
            if example.id in seen:
                raise DataError(f"{path}:{number}: {example.id} is the id of an earlier row, too", "give each its own")
            seen.add(example.id)
            if examples and (differing := example.reference.keys() ^ examples[0].reference.keys()):
                raise DataError(
                    f"{path}:{number}: {', '.join(sorted(differing))} of the reference stands in some rows only",
                    "give every row of a file the same keys",
                )
            examples.append(example)
        if not examples:
            raise DataError(f"{path} has no examples", "build the records: plumbline data commerce")
        return examples

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """See `Task.judge`."""
        return extraction.judge(example.reference, example.reference["review"], completion, self.options.reading)

    def items(self, completion: str, score: Score) -> Mapping[str, Item]:
        """See `Itemised.items`."""
        return extraction.items(completion, score)

    def demonstration(self, example: Example, seed: int) -> str:
        """See `Task.demonstration`: the gold answer, as carelessly written as the options say."""
        gold, sloppiness = gold_of(example), self.options.sloppiness
        if len(example.reference["review"]) <= sloppiness.over:
            return gold
        return sloppily(gold, sloppiness, generator(seed, "sloppiness"))

    @property
    def controls(self) -> Mapping[str, Control]:
        """See `Task.controls`."""
        return CONTROLS


def _example(row: Mapping[str, Any], where: str) -> Example:
    """Check and type one row of a split's file.

    Raises:
        DataError: a key is missing or of the wrong kind; the message has file and line.
    """
    messages, reference = row.get("messages"), row.get("reference")
    if row.get("task") != EXTRACTION:
        raise DataError(
            f"{where}: the task is {row.get('task')!r}, which this version does not know",
            f'rows of the commerce task say "task": "{EXTRACTION}"; `plumbline data commerce` writes them',
        )
    if not isinstance(row.get("id"), str) or not isinstance(messages, list) or not isinstance(reference, dict):
        raise DataError(
            f"{where}: a row needs id (text), messages (a list) and reference (an object)", "correct that line"
        )
    well_formed = all(
        isinstance(message, dict) and isinstance(message.get("role"), str) and isinstance(message.get("content"), str)
        for message in messages
    )
    if not well_formed or [message["role"] for message in messages][-2:] != ["user", "assistant"]:
        raise DataError(
            f"{where}: messages are role and content, and end with user, then assistant", "correct that line"
        )
    if not isinstance(reference.get("review"), str):
        raise DataError(f"{where}: the reference lacks the review", "add the text that the answer is about")
    asked = set(reference) & set(KEYS)
    if not asked or 0 < len(asked & set(ISSUES)) < len(ISSUES):
        raise DataError(
            f"{where}: the reference has the gold values {', '.join(sorted(asked)) or 'of no key'}",
            f"it needs at least one of {', '.join(KEYS)}, and of the three flags all or none",
        )
    return Example(
        id=row["id"],
        messages=messages[:-1],
        gold=messages[-1]["content"],
        reference=reference,
        stratum=EXTRACTION,
    )
