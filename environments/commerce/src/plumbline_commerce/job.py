"""What a job of the commerce task is: pairs from a shop's records, a verifier, an oracle and
baselines.

A job is a folder beside `extraction/` and one line in `JOBS`.
"""

import sqlite3
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.config.imports import import_needed
from plumbline.errors import DataError, RecipeError
from plumbline.records import Example, Message, Outcome, Score
from plumbline.storage import open_regular
from plumbline.tasks.baselines import WITH_GOLD
from plumbline.tasks.rubric import Part, Rubric
from plumbline.tasks.tables import read_table
from plumbline.tasks.task import Baseline, gold_of
from plumbline_commerce.options import CommerceOptions

HERE = Path(__file__).parent
JOBS = {
    "extraction": "plumbline_commerce.extraction.job:Extraction",
    "sql_qa": "plumbline_commerce.sql_qa.job:SqlQa",
    "insights": "plumbline_commerce.insights.job:Insights",
    "push": "plumbline_commerce.push.job:Push",
}
"""Where each job is; imported when it is asked for, because not every job needs what another
imports."""
SHARES = {"val": 0.1, "test": 0.1}
"""Of a job's pairs; the rest is train."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A prompt, its gold answer, and what the verifier needs to know: one line of a split's
    file."""

    id: str
    prompt: Sequence[Message]
    gold: str
    reference: Mapping[str, Any]
    about: Mapping[str, str]
    """Ids of the shop's rows that it is about (order_id, customer_unique_id ...), written beside
    it."""


@dataclass(frozen=True, slots=True)
class Shop:
    """The records that pairs are made of."""

    database: Path
    """`commerce.db`, complete; read it only."""
    folder: Path
    """Of the records; a job may write files of its own below `folder / job.name`."""
    options: CommerceOptions
    progress: Callable[[str, int, int], None]


class Job:
    """One of the jobs that the shop's model is asked to do, for records in a folder."""

    name: str
    rubric: Rubric
    limits: Mapping[str, float]
    """The highest mean reward that each baseline may earn on a split; evaluations say where one
    earns more."""
    ways: Mapping[str, Baseline]
    """The baselines that are the job's own, by name."""
    cluster: str
    """The column of its rows with what examples share that are alike (`Example.cluster`)."""

    def __init__(self, options: CommerceOptions, folder: Path) -> None:
        """Nothing is read before the first verdict."""
        self.options, self.folder = options, folder

    @staticmethod
    def pairs(shop: Shop) -> Mapping[str, Sequence[Pair]]:
        """The pairs of train, val and test; `Shop.options.count(name)` of them together.

        Raises:
            DataError: the shop has too few records for so many.
        """
        raise NotImplementedError

    @staticmethod
    def check(reference: Mapping[str, Any]) -> None:
        """Check the reference of a row that somebody may have edited.

        Raises:
            ValueError: what is wrong with it, and what it should be.
        """
        raise NotImplementedError

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """What a completion came to, and what it is worth. Never raises, whatever the text."""
        raise NotImplementedError

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        """The baselines by name, those that every task has among them."""
        return {name: {**WITH_GOLD, **self.ways}[name] for name in self.limits}

    @property
    def identity(self) -> str:
        """What of the options decides a score, as text; part of the rubric's identity."""
        return ""

    def check_files(self) -> None:
        """Check what verdicts will read, as far as it is there.

        Raises:
            DataError: a file is damaged, or lacks a table.
        """

    def check_gold(self, examples: Iterable[Example]) -> None:
        """Check that the gold answers of records that we did not build say something; by default
        any answer does.

        Raises:
            RewardError: names the first whose gold answer says nothing.
        """

    def demonstration(self, example: Example, seed: int) -> str:  # noqa: ARG002
        """The answer that supervised training shows, under a seed; by default the gold answer."""
        return gold_of(example)

    def canonicalise_answer(self, example: Example, completion: str) -> Set[Hashable] | None:  # noqa: ARG002
        """See `plumbline.tasks.task.Task.canonicalise_answer`; None takes an answer's words for it."""
        return None


def find_job(name: str) -> type[Job]:
    """The job of that name, one of `JOBS`."""
    module, _, kind = JOBS[name].partition(":")
    job: type[Job] = getattr(import_needed(module, f"the job {name}", RecipeError), kind)
    return job


def read_rubric(job: str, version: int) -> Rubric:
    """A job's rubric, from its `rubric.yaml`: `parts` and `form`, of each part its weight and what
    it asks for."""
    groups = {
        group: tuple(Part(part, float(weight), asks) for part, (weight, asks) in listed.items())
        for group, listed in read_table(HERE / job / "rubric.yaml").items()
    }
    return Rubric(f"commerce-{job}", version, **groups)


def read_limits(job: str) -> dict[str, float]:
    """The limits of a job's baselines, from its `baselines.yaml`."""
    return {
        name: float(most)
        for name, most in read_table(HERE / job / "baselines.yaml")["limits"].items()
    }


def brazilian(value: float, decimals: int) -> str:
    """A number as Brazilians write it: 1.234,5."""
    return f"{value:,.{decimals}f}".translate(str.maketrans(",.", ".,"))


def pick(choices: Sequence[Any], rng: np.random.Generator) -> Any:
    """One of several, all equally likely."""
    return choices[int(rng.integers(len(choices)))]


def split_evenly(
    sizes: Mapping[str, int], kinds: Sequence[str], rng: np.random.Generator
) -> dict[str, list[int]]:
    """Deal rows to splits, each kind in the same shares, and shuffle each split.

    Args:
        sizes: rows of each split but train, which gets the rest.
        kinds: of each row [n].
        rng: decides where in the order of kinds a split begins, and how it is shuffled.

    Returns:
        Indices of rows by split, train first.
    """
    # Every k-th row of the list sorted by kind: each split gets its share of each kind, within one
    # row.
    left = sorted(range(len(kinds)), key=lambda index: (kinds[index], index))
    place = rng.random()
    members: dict[str, list[int]] = {}
    for name, size in sizes.items():
        positions = {int((step + place) * len(left) / size) for step in range(size)}
        members[name] = [index for position, index in enumerate(left) if position in positions]
        left = [index for position, index in enumerate(left) if position not in positions]
    members = {"train": left, **members}
    return {
        name: [int(index) for index in rng.permutation(indices)]
        for name, indices in members.items()
    }


def split_sizes(count: int) -> dict[str, int]:
    """How many of so many pairs val and test get."""
    return {name: max(1, round(share * count)) for name, share in SHARES.items()}


def too_few_error(wanted: int, there: str) -> DataError:
    """The error of a shop that is too small for the pairs that were asked for."""
    return DataError(
        f"{wanted} prompts were asked for, but {there}",
        "build more orders (about four for each prompt), or ask for fewer prompts",
    )


def rows_of(database: Path, query: str, arguments: Sequence[Any] = ()) -> Iterator[dict[str, Any]]:
    """Rows of a query of ours over the shop's database, which is opened for reading only.

    Raises:
        DataError: it is no database, or lacks a table or a column.
    """
    if database.exists():
        open_regular(database).close()  # a pipe would be waited for
    uri = f"{database.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            for row in connection.execute(query, arguments):
                yield dict(row)
    except sqlite3.Error as error:
        raise DataError(
            f"{database}: {error}", "build it again: plumbline data commerce --out FOLDER"
        ) from error
