"""What a task is: examples, a verifier, an oracle and controls.

A task never sees a policy. Adding one is a new folder or file and one line in `plumbline.tasks.TASKS`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from plumbline.records import Example, Outcome, Score

Control = Callable[[Sequence[Example]], list[str]]
"""A way to answer without the knowledge that the task is about: a completion for each example."""


class Task(Protocol):
    """Examples, and what a completion of one is worth.

    The law of a task (`plumbline.testing.check_task`): the oracle scores 1.0 on every example of every split, no
    control does on average, a better answer never scores lower, and hostile text never raises.
    """

    name: str
    splits: tuple[str, ...]

    @property
    def rubric(self) -> str:
        """Identity of everything that decides a score: evaluations under different identities are not compared."""
        ...

    @property
    def form(self) -> Sequence[str]:
        """Names of the parts that judge how an answer is written, not what it says."""
        ...

    def examples(self, split: str) -> Sequence[Example]:
        """The examples of a split, always in the same order.

        Raises:
            DataError: the split is unknown, empty, or its records are malformed.
        """
        ...

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """What a completion came to, and what it is worth. Never raises, whatever the text."""
        ...

    def demonstration(self, example: Example, seed: int) -> str:
        """The answer that supervised training shows for this example."""
        ...

    @property
    def controls(self) -> Mapping[str, Control]:
        """The controls by name: blank, constant, shuffled-gold, and the task's own cheats."""
        ...
