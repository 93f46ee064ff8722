"""A vote among several answers to one prompt: that is elected with which the others agree most.

Self-consistency (Wang et al. 2022, arXiv:2203.11171) where what answers say is one value, and minimum Bayes risk
decoding (Eikema and Aziz 2020, arXiv:2005.10283) where they can agree in part. No gold answer is looked at: a model
that is used can vote like this, too.
"""

import re
from collections.abc import Hashable, Sequence, Set

from plumbline.records import Example
from plumbline.tasks.task import Task, Telling

_WORD = re.compile(r"\w+")


def elect(task: Task, example: Example, answers: Sequence[str]) -> int:
    """The place of the elected answer: of those that agree equally much with the others, the first.

    Two answers agree by the Dice coefficient of what they say (`plumbline.tasks.task.Telling`), or of their words where
    the task does not tell. One that says nothing agrees with none.
    """
    said = [_said(task, example, answer) for answer in answers]
    support = [
        sum(_dice(one, other) for place, other in enumerate(said) if place != mine) for mine, one in enumerate(said)
    ]
    return support.index(max(support))


def _said(task: Task, example: Example, answer: str) -> Set[Hashable]:
    told = task.said(example, answer) if isinstance(task, Telling) else None
    return frozenset(_WORD.findall(answer.casefold())) if told is None else told


def _dice(one: Set[Hashable], other: Set[Hashable]) -> float:
    return 2 * len(one & other) / (len(one) + len(other)) if one and other else 0.0
