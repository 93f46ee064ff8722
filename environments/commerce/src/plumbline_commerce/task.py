"""The commerce task: records in a folder, of which one job is asked; each job has its own verifier
(`job.py`)."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from functools import cache
from pathlib import Path
from typing import Any

from plumbline.errors import DataError
from plumbline.records import Example, Headline, Outcome, Score
from plumbline.storage import read_jsonl
from plumbline.tasks import Progress, silent
from plumbline.tasks.task import Baseline, Task
from plumbline_commerce.build import (
    MANIFEST,
    SPLITS,
    check_as_built,
    each_job,
    ensure_commerce,
    has_records,
)
from plumbline_commerce.classify import job_of
from plumbline_commerce.job import JOBS, find_job, split_sizes
from plumbline_commerce.options import COUNTS, CommerceOptions, read_options

FIXED = {"extraction": 20, "sql_qa": 15, "insights": 15, "push": 15}
"""Of each job's val split, in the split `fixed`: the evaluation of 65 prompts that the commerce log
settled on."""

SKETCHED, SKETCHED_ORDERS = 120, 3000
"""Prompts, and orders, of the records that are built to see how long texts are."""


def open_commerce(options: Mapping[str, Any], folder: Path, progress: Progress) -> "CommerceTask":
    """Open the commerce task on the records that the options name, or on those of `folder`.

    Where `folder` has none, the first examples that are asked for build them there.

    Raises:
        RecipeError: an unknown option.
        DataError: there is no such folder of records, or `folder` holds records of other options.
        StorageError: `folder` holds what is not ours.
    """
    checked = read_options(dict(options))
    place = folder if checked.data is None else Path(checked.data)
    if checked.data is not None and not place.is_dir():
        raise DataError(f"there is no folder {checked.data}", "correct task.options.data")
    if checked.data is None and not has_records(checked, folder):
        return CommerceTask(folder, checked, lambda: ensure_commerce(checked, folder, progress))
    return CommerceTask(
        place, check_as_built(checked, place) if (place / MANIFEST).is_file() else checked
    )


open_commerce.variants = each_job  # type: ignore[attr-defined]


class CommerceTask(Task):
    """See `plumbline.tasks.task.Task`."""

    name = "commerce"

    def __init__(
        self, folder: Path, options: CommerceOptions, build: Callable[[], None] | None = None
    ) -> None:
        """Nothing is read yet; `build` is called once before the first records are."""
        self.folder, self.options, self.job = (
            folder,
            options,
            find_job(options.job)(options, folder),
        )
        self.splits = (*SPLITS, "fixed") if options.fixed else SPLITS
        self._build = build
        self._checked = False
        self._read = cache(self._read_split)
        # the job of each row that was read and is not of this one
        self._others: dict[str, str] = {}

    @property
    def rubric(self) -> str:
        """See `Task.rubric`."""
        return self.job.rubric.identity + self.job.identity

    @property
    def form(self) -> Sequence[str]:
        """See `Task.form`."""
        return [part.name for part in self.job.rubric.form]

    @property
    def headline(self) -> Headline:
        """See `Task.headline`."""
        return Headline(limits=self.job.limits if self.options.keys is None else {})

    def examples(self, split: str) -> Sequence[Example]:
        """See `Task.examples`."""
        if split not in self.splits:
            hint = "; task.options.fixed: true adds fixed" if split == "fixed" else ""
            raise DataError(
                f"the commerce task has no split {split!r}",
                f"it has {', '.join(self.splits)}{hint}",
            )
        return self._read("val")[: FIXED[self.job.name]] if split == "fixed" else self._read(split)

    @property
    def built(self) -> bool:
        """See `Task.built`."""
        return self._build is None

    def sizes(self) -> Mapping[str, int]:
        """See `Task.sizes`."""
        count = self.options.count(self.job.name)
        held_out = split_sizes(count)
        sizes = {"train": count - sum(held_out.values()), **held_out}
        return (
            {**sizes, "fixed": min(FIXED[self.job.name], sizes["val"])}
            if self.options.fixed
            else sizes
        )

    def sketch(self, folder: Path) -> "CommerceTask":
        """See `Task.sketch`."""
        few = dict.fromkeys(COUNTS) | {
            self.job.name: min(SKETCHED, self.options.count(self.job.name))
        }
        orders = min(self.options.orders, SKETCHED_ORDERS)
        return open_commerce(
            {**self.options.model_dump(exclude_unset=True), **few, "orders": orders}, folder, silent
        )

    def _read_split(self, split: str) -> list[Example]:
        if self._build is not None:
            self._build()
            self._build = None
        # Here, because what a verdict raises is counted with the failures of its text.
        self.job.check_files()
        path = self.folder / f"{split}.jsonl"
        examples: list[Example] = []
        seen: set[str] = set()
        for number, row in read_jsonl(path):
            if (example := self._example(row, f"{path}:{number}")) is None:
                continue
            if example.id in seen:
                raise DataError(
                    f"{path}:{number}: {example.id} is the id of an earlier row, too",
                    "give each its own",
                )
            seen.add(example.id)
            if examples and (differing := example.reference.keys() ^ examples[0].reference.keys()):
                raise DataError(
                    f"{path}:{number}: {', '.join(sorted(differing))} of the reference stands in "
                    "some rows only",
                    "give every row of a file the same keys",
                )
            examples.append(example)
        if not examples:
            raise DataError(
                f"{path} has no examples of the job {self.job.name}",
                "build the records in another folder: plumbline data commerce --out FOLDER",
            )
        return examples

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """See `Task.judge`; the first verdict on records that we did not build checks the gold
        answers of all splits.

        Raises:
            RewardError: one of them says nothing, so that no answer to it can be judged.
        """
        if not self._checked:
            self._check_gold()
            self._checked = True
        return self.job.judge(example, completion)

    def _check_gold(self) -> None:
        if not (self.folder / MANIFEST).is_file():  # what we build is sifted
            splits = [split for split in SPLITS if (self.folder / f"{split}.jsonl").is_file()]
            self.job.check_gold(example for split in splits for example in self._read(split))

    def canonicalise_answer(self, example: Example, completion: str) -> Set[Hashable] | None:
        """See `Task.canonicalise_answer`."""
        return self.job.canonicalise_answer(example, completion)

    def demonstration(self, example: Example, seed: int) -> str:
        """See `Task.demonstration`."""
        return self.job.demonstration(example, seed)

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        """See `Task.baselines`."""
        return self.job.baselines

    def explain_foreign_ids(self, ids: Collection[str]) -> str:
        """See `Task.explain_foreign_ids`."""
        jobs = sorted(
            Counter(self._others[identity] for identity in ids if identity in self._others).items()
        )
        return "; ".join(
            f"add --set task.options.job={job} for the {count} of the job {job}"
            for job, count in jobs
        )

    def _example(self, row: Mapping[str, Any], where: str) -> Example | None:
        """Check and type one row of a split's file; None where it is of another job.

        Raises:
            DataError: a key is missing or of the wrong kind; the message has file and line.
        """
        messages, reference = row.get("messages"), row.get("reference")
        if (
            not isinstance(row.get("id"), str)
            or not isinstance(messages, list)
            or not isinstance(reference, dict)
        ):
            raise DataError(
                f"{where}: a row needs id (text), messages (a list) and reference (an object)",
                "correct that line",
            )
        well_formed = all(
            isinstance(message, dict)
            and isinstance(message.get("role"), str)
            and isinstance(message.get("content"), str)
            for message in messages
        )
        if not well_formed or [message["role"] for message in messages][-2:] != [
            "user",
            "assistant",
        ]:
            raise DataError(
                f"{where}: messages are role and content, and end with user, then assistant",
                "correct that line",
            )
        job = row.get("task", job_of(messages[-2]["content"]))
        if job not in JOBS:
            raise DataError(
                f"{where}: the task is {job!r}, and there are {', '.join(JOBS)}",
                'say "task" in that line; the text alone does not tell, and `plumbline data '
                "commerce` writes such rows",
            )
        if job != self.job.name:
            self._others[row["id"]] = job
            return None
        try:
            self.job.check(reference)
        except ValueError as error:
            raise DataError(f"{where}: {error}", "correct that line") from error
        return Example(
            id=row["id"],
            messages=messages[:-1],
            gold=messages[-1]["content"],
            reference=reference,
            stratum=self.job.name,
            cluster=str(row.get(self.job.cluster) or reference.get(self.job.cluster) or ""),
        )
