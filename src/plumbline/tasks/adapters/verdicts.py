"""What all adapters share: examples by id, and a verdict that never raises."""

from collections import defaultdict
from collections.abc import Sequence

from plumbline.records import Example, Failure, Score
from plumbline.tasks.task import Task
from plumbline.training.judging import judge


def by_id(task: Task, splits: Sequence[str] = ()) -> dict[str, Example]:
    """The examples of splits (none is all of them) by id.

    Raises:
        DataError: there is no such split, or its records are malformed.
    """
    return {example.id: example for split in splits or task.splits for example in task.examples(split)}


def verdict(task: Task, example: Example, text: str) -> tuple[Score | None, Failure | None]:
    """The score of an answer, or why it has none; of a task that asks again, what the first answer comes to."""
    _, score, failure = judge(task, example, text)
    return score, failure


def parts_of(scores: Sequence[Score | None]) -> dict[str, float]:
    """The mean of each part over the scores that have it."""
    found: dict[str, list[float]] = defaultdict(list)
    for score in scores:
        for name, value in ({} if score is None else score.parts).items():
            if value is not None:
                found[name].append(value)
    return {name: sum(values) / len(values) for name, values in found.items()}
