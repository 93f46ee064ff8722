"""What a task is: examples, a verifier, an oracle and controls.

A task never sees a policy. Adding one is a new folder or file and an entry point (`plumbline.tasks`).
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from pathlib import Path
from typing import Protocol, runtime_checkable

from plumbline.errors import DataError
from plumbline.records import Example, Failure, Frame, Headline, Message, Mistake, Outcome, Score
from plumbline.tasks.episode import Episode, OneTurn

Control = Callable[[Sequence[Example]], list[str]]
"""A way to answer without the knowledge that the task is about: a completion for each example."""


class Task(Protocol):
    """Examples, and what a completion of one is worth.

    The law of a task (`plumbline.api.check_task`): the oracle scores 1.0 on every example of every split, no
    control does on average, a better answer never scores lower, and hostile text never raises. A task whose examples
    have no gold answers has no oracle.

    What a task may have besides: `Episodic`, `Guided`, `Threaded`, `Grouped`, `Headlined`, `Replayable`, `Continued`,
    `Prechecked`, `Sharing`, `Showing`, `Sketched`, `Telling`.
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
        """The answer that supervised training shows for this example.

        Raises:
            DataError: there is no gold answer to show.
        """
        ...

    @property
    def controls(self) -> Mapping[str, Control]:
        """The controls by name: blank, constant, shuffled-gold, and the task's own cheats."""
        ...


@runtime_checkable
class Episodic(Protocol):
    """A task that may ask again. Its `judge` is what an episode comes to that ends after the first answer."""

    @property
    def turns(self) -> int:
        """The most answers of an episode; where it is 1, `judge` (or `judge_group`) is called, and no `episode`."""
        ...

    def episode(self, example: Example) -> Episode:
        """A new episode, before its first answer."""
        ...


@runtime_checkable
class Guided(Protocol):
    """A task of several turns whose gold answer is another one at each, and that knows them without an episode."""

    def demonstrations(self, example: Example, seed: int) -> Sequence[Sequence[Message]]:
        """The chats that supervised training shows of an example, turn by turn, each with its answer at the end.

        Raises:
            DataError: there is no gold answer to show.
        """
        ...


@runtime_checkable
class Threaded(Protocol):
    """A task whose verdicts take time, so that threads judge while the model goes on sampling."""

    @property
    def judges(self) -> int:
        """How many threads; `judge`, and `tell` of an episode, are called from them. 0 judges in place."""
        ...


@runtime_checkable
class Grouped(Protocol):
    """A task that judges several completions of one example in one call."""

    def judge_group(self, example: Example, completions: Sequence[str]) -> Sequence[tuple[Outcome, Score] | Failure]:
        """What `judge` gives for each of them, in order; a `Failure` in the place of one for which it would raise."""
        ...


@runtime_checkable
class Headlined(Protocol):
    """A task that says what its evaluations put first."""

    @property
    def headline(self) -> Headline:
        """See `plumbline.records.Headline`."""
        ...


@runtime_checkable
class Replayable(Protocol):
    """A task whose episodes can be shown again, picture by picture."""

    def mistakes(self, example: Example, completion: str) -> Sequence[Mistake]:
        """What a completion got wrong; empty where nothing is."""
        ...

    def replay(self, example: Example, completion: str) -> Sequence[Frame]:
        """Pictures of the episode, in order.

        Raises:
            PlumblineError: what is needed to take them (a browser) is not there, or broke down.
        """
        ...


@runtime_checkable
class Continued(Protocol):
    """A task whose turns go on where the one before ended, so that the answers of an episode are replayed together."""

    def replay_episode(self, example: Example, completions: Sequence[str]) -> tuple[Sequence[Mistake], Sequence[Frame]]:
        """What `Replayable.mistakes` and `Replayable.replay` give, for all answers of an episode.

        Raises:
            PlumblineError: see `Replayable.replay`.
        """
        ...


@runtime_checkable
class Showing(Protocol):
    """A task that can show at once what an answer does, as pages."""

    def shown(self, example: Example, completion: str) -> Sequence[str]:
        """The pages that an answer leaves behind, in order: HTML of their bodies, escaped, without scripts or links.

        Never raises, whatever the text.
        """
        ...


@runtime_checkable
class Prechecked(Protocol):
    """A task whose verifier is somebody's own code, to be tried before anything is trained."""

    def precheck(self, verdicts: int) -> Sequence[str]:
        """Try the verifier (see `plumbline.tasks.precheck`).

        Args:
            verdicts: how many a run will ask for; 0 where there is no run.

        Returns:
            What the user should know.

        Raises:
            DataError: a result would be false: it raises, gives no reward in [0, 1], differs from call to call.
        """
        ...


@runtime_checkable
class Sketched(Protocol):
    """A task that builds records, and can say beforehand what they will be."""

    @property
    def built(self) -> bool:
        """Whether its records are there, so that to ask for examples reads them and builds nothing."""
        ...

    def sizes(self) -> Mapping[str, int]:
        """How many examples each split of the records will have that it would build."""
        ...

    def sketch(self, folder: Path) -> Task:
        """The same task on a few records of a small world, to be built in `folder`: for the lengths of its texts."""
        ...


@runtime_checkable
class Telling(Protocol):
    """A task that can tell what an answer says, so that answers can be counted together that are written otherwise."""

    def said(self, example: Example, completion: str) -> Set[Hashable] | None:
        """What a completion says: its values, or what its query returns; None where its words are what it says.

        Looks at no gold answer. Empty for what cannot be read. Never raises, whatever the text.
        """
        ...


@runtime_checkable
class Sharing(Protocol):
    """A task whose records hold examples of other tasks, too."""

    def elsewhere(self, ids: Collection[str]) -> str:
        """Whose examples these are, and how to ask for them; of the splits that were read, empty for unknown ids."""
        ...


def headline_of(task: Task) -> Headline | None:
    """What a task's evaluations put first; None where it does not say."""
    return task.headline if isinstance(task, Headlined) else None


def turns_of(task: Task) -> int:
    """The most answers that an episode of a task has."""
    return task.turns if isinstance(task, Episodic) else 1


def episode_of(task: Task, example: Example) -> Episode:
    """A new episode of any task."""
    if turns_of(task) > 1 and isinstance(task, Episodic):
        return task.episode(example)
    return OneTurn(example, task.judge)


def threads_of(task: Task) -> int:
    """How many threads judge a task's completions; 0 where they are judged in place."""
    return task.judges if isinstance(task, Threaded) else 0


def gold_of(example: Example) -> str:
    """The gold answer of an example.

    Raises:
        DataError: it has none.
    """
    if example.gold is None:
        raise DataError(
            f"example {example.id} has no gold answer, so there is nothing to show to a model, and no ceiling",
            "give gold answers (task jsonl: task.options.gold), or leave out sft and the oracle",
        )
    return example.gold
