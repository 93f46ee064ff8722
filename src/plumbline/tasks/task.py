"""What a task is: examples, a verifier, an oracle and baselines; and an episode, what it asks turn
by turn.

A task never sees a policy. Adding one is a new folder or file and an entry point
(`plumbline.tasks`).
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from plumbline.errors import DataError, PlumblineError
from plumbline.records import Example, Failure, Frame, Headline, Message, Mistake, Outcome, Score
from plumbline.runs import output_guard
from plumbline.storage import write_jsonl

if TYPE_CHECKING:
    from plumbline.tasks.cases import Case, Label

T = TypeVar("T")
Replayed = tuple[Sequence[Mistake], Sequence[Frame]]
Baseline = Callable[[Sequence[Example]], list[str]]
"""A way to answer without the knowledge that the task is about: a completion for each example."""


# -- episodes --------------------------------------------------------------------------------------


class EpisodeFailed(PlumblineError):  # noqa: N818 - it says what happened
    """An episode could not be gone through, through no fault of the answer: a counted failure,
    never a reward."""


def label_failure(where: str, found: T | Failure) -> T | Failure:
    """With the name of what broke down, and as a raised `EpisodeFailed` is counted, where an
    episode failed."""
    if isinstance(found, Failure):
        return Failure(
            cause=EpisodeFailed.__name__, detail=f"{where}: {found.cause} {found.detail}".strip()
        )
    return found


def unwrap_result(found: T | Failure) -> T:
    """What an episode came to, for those who ask for one alone.

    Raises:
        EpisodeFailed: it failed.
    """
    if isinstance(found, Failure):
        raise EpisodeFailed(found.detail)
    return found


class Episode(Protocol):
    """One go at an example, told by one thread at a time. It never raises, whatever the text."""

    def ask(self) -> Sequence[Message] | None:
        """The chat that the next answer continues, the example's own before the first; None where
        it is over."""
        ...

    def tell(self, text: str) -> None:
        """Take the answer to what was asked."""
        ...

    def result(self) -> tuple[Outcome, Score]:
        """What the answers so far come to, from the first on: an episode may be ended before it is
        over."""
        ...


class OneTurn:
    """The episode of a task that asks once; see `Episode`."""

    def __init__(self, task: "Task", example: Example) -> None:
        self.task, self.example = task, example
        self.found: tuple[Outcome, Score] | None = None

    def ask(self) -> Sequence[Message] | None:
        """See `Episode.ask`."""
        return self.example.messages if self.found is None else None

    def tell(self, text: str) -> None:
        """See `Episode.tell`."""
        self.found = self.task.judge(self.example, text)

    def result(self) -> tuple[Outcome, Score]:
        """See `Episode.result`.

        Raises:
            ValueError: nothing was told.
        """
        if self.found is None:
            raise ValueError("an episode comes to nothing before its first answer")
        return self.found


# -- tasks -----------------------------------------------------------------------------------------


class Task:
    """Examples, and what a completion of one is worth. `PARTS` are a task's own; all else has a
    default.

    The law of a task (`plumbline.api.check_task`): the oracle scores 1.0 on every example of every
    split, no baseline does on average, a better answer never scores lower, and hostile text never
    raises. A task whose examples have no gold answers has no oracle.
    """

    name: str
    splits: tuple[str, ...]

    @property
    def rubric(self) -> str:
        """Identity of everything that decides a score: evaluations under different identities are
        not compared."""
        raise NotImplementedError

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        """The baselines by name: blank, constant, shuffled-gold, and the task's own cheats."""
        raise NotImplementedError

    def examples(self, split: str) -> Sequence[Example]:
        """The examples of a split, always in the same order.

        Raises:
            DataError: the split is unknown, empty, or its records are malformed.
        """
        raise NotImplementedError

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """What a completion came to, and what it is worth. Never raises, whatever the text."""
        raise NotImplementedError

    # What evaluations and training ask besides.

    @property
    def form(self) -> Sequence[str]:
        """Names of the parts that judge how an answer is written, not what it says."""
        return ()

    @property
    def headline(self) -> Headline | None:
        """What its evaluations put first; None is the mean reward."""
        return None

    def demonstration(self, example: Example, seed: int) -> str:  # noqa: ARG002
        """The answer that supervised training shows for this example; by default the gold answer.

        Raises:
            DataError: there is no gold answer to show.
        """
        return gold_of(example)

    def seen_by_functions(self, case: "Case") -> str:  # noqa: ARG002
        """How functions of the user's get the example of a case, in words; nothing where the task
        has none."""
        return ""

    @property
    def judges(self) -> int:
        """How many threads judge while the model goes on sampling, for verdicts that take time; 0
        judges in place.

        `judge`, and `tell` of an episode, are called from them.
        """
        return 0

    def judge_group(
        self,
        example: Example,  # noqa: ARG002
        completions: Sequence[str],  # noqa: ARG002
    ) -> Sequence[tuple[Outcome, Score] | Failure] | None:
        """What `judge` gives for each of them, in order, in one call; a `Failure` in the place of
        one for which it would raise. None where each is to be judged by itself."""
        return None

    # What a trial of the reward asks (`plumbline.checks.audit`). A check that needs what a task does
    # not have of its own is not run.

    @property
    def users_task(self) -> "Task | None":
        """Itself where its verifier is somebody's own code, which is tried before every run."""
        return None

    def describe_before_run(self, quick: bool) -> Sequence[str]:  # noqa: ARG002
        """What is said of the rows before a run; `quick` is whether verdicts take no time."""
        return ()

    def describe_rows(self, examples: Sequence[Example]) -> Sequence[str]:  # noqa: ARG002
        """What is to be known of the rows, and of a form that is paid for and no prompt asks
        for."""
        return ()

    def find_label(self, examples: Sequence[Example]) -> "Label | None":  # noqa: ARG002
        """What is wrong with gold answers that are labels (see `plumbline.tasks.cases`)."""
        return None

    def explain_misread(self, examples: Sequence[Example]) -> tuple[str, str] | None:  # noqa: ARG002
        """What is wrong, and what to do, where completions are in another form than the verifier
        reads."""
        return None

    def explain_unpaid(self, count: int, parts: Sequence[str] = ()) -> tuple[str, str]:  # noqa: ARG002
        """Why `count` texts, likely answers among them, are paid nothing, or nothing by these
        parts; empty where none of them needs to be right. And what a column must be for them to be
        paid, where that is known."""
        return "", ""

    def fit_ranges(self) -> "Task":
        """The task with the ranges that its parts are seen to have; itself where they are known."""
        return self

    def declare_ranges(self) -> tuple[str, bool]:
        """How to declare ranges that are guessed, empty where they are known; and whether numbers
        beyond 0 to 1 were seen, at which a run stops."""
        return "", False

    def guess_answers(self, examples: Sequence[Example]) -> Sequence["Case"]:  # noqa: ARG002
        """Texts that may be right, where there are no gold answers."""
        return ()

    @property
    def effective_weights(self) -> Mapping[str, float]:
        """The effective weight of each part; they add up to 1. Empty where it does not say."""
        return {}

    @property
    def knows_ranges(self) -> bool:
        """Whether the ranges are known by which parts weigh."""
        return True

    @property
    def penalties(self) -> Sequence[str]:
        """Parts that only take away."""
        return ()

    @property
    def answer_parts(self) -> Sequence[str]:
        """Parts that compare an answer with what is known."""
        return ()

    @property
    def rows_without_gold(self) -> Sequence[Example]:
        """Rows that are in no split, because they have no gold answer and others do."""
        return ()

    @property
    def functions(self) -> Mapping[str, str]:
        """The source of each function of the user's, by its name as `module:function`."""
        return {}

    def reopen(self) -> Mapping[str, Any]:
        """The options by which `open_task` opens it in another process; asked where it has
        `functions`."""
        return {}

    def judge_rows(
        self, examples: Sequence[Example], completions: Sequence[str]
    ) -> Sequence[tuple[Outcome, Score]]:
        """What `judge` gives for a completion of each example; in one call, where it can."""
        return list(map(self.judge, examples, completions))

    # Several turns.

    @property
    def turns(self) -> int:
        """The most answers of an episode; where it is 1, `judge` (or `judge_group`) is called, and
        no `episode`."""
        return 1

    def episode(self, example: Example) -> Episode:
        """A new episode, before its first answer. `judge` is what one comes to that ends after the
        first answer."""
        return OneTurn(self, example)

    def demonstrations(self, example: Example, seed: int) -> Sequence[Sequence[Message]] | None:  # noqa: ARG002
        """The chats that supervised training shows of an example, turn by turn, each with its
        answer at the end.

        None where they are those of an episode: the demonstration, and then the gold answer to
        whatever is asked.

        Raises:
            DataError: there is no gold answer to show.
        """
        return None

    # What is shown of an answer.

    @property
    def replayable(self) -> bool:
        """Whether its episodes can be shown again: where it has a `replay` of its own."""
        return getattr(self.replay, "__func__", None) is not Task.replay

    def mistakes(self, example: Example, completion: str) -> Sequence[Mistake]:  # noqa: ARG002
        """What a completion got wrong, for a replay; empty where nothing is."""
        return ()

    def replay(self, example: Example, completion: str) -> Sequence[Frame]:  # noqa: ARG002
        """Pictures of the episode, in order.

        Raises:
            PlumblineError: what is needed to take them (a browser) is not there, or broke down.
        """
        return ()

    def replay_episode(self, example: Example, completions: Sequence[str]) -> Replayed | None:  # noqa: ARG002
        """What `mistakes` and `replay` give, for all answers of an episode whose turns go on where
        one ended.

        None where each turn is replayed by itself.

        Raises:
            PlumblineError: see `replay`.
        """
        return None

    def render_pages(self, example: Example, completion: str) -> Sequence[str]:  # noqa: ARG002
        """The pages that an answer leaves behind, in order: HTML of their bodies, escaped, without
        scripts or links.

        Never raises, whatever the text.
        """
        return ()

    def canonicalise_answer(self, example: Example, completion: str) -> Set[Hashable] | None:  # noqa: ARG002
        """What a completion says, so that answers can be counted together that are written
        otherwise: its values, or what its query returns; None where its words are what it says.

        Looks at no gold answer. Empty for what cannot be read. Never raises, whatever the text.
        """
        return None

    # Its records.

    @property
    def built(self) -> bool:
        """Whether its records are there, so that to ask for examples reads them and builds
        nothing."""
        return True

    def sizes(self) -> Mapping[str, int]:
        """How many examples each split of the records will have that it would build."""
        return {split: len(self.examples(split)) for split in self.splits}

    def sketch(self, folder: Path) -> "Task":  # noqa: ARG002
        """The same task on a few records of a small world, to be built in `folder`: for the lengths
        of its texts."""
        return self

    def explain_foreign_ids(self, ids: Collection[str]) -> str:  # noqa: ARG002
        """Whose examples these are in records that hold those of other tasks, too, and how to ask
        for them.

        Of the splits that were read; empty for unknown ids.
        """
        return ""


PARTS = ("name", "splits", "rubric", "examples", "judge", "baselines")
"""What a task has to have of its own."""


class TaskAdapter(Task):
    """A task of a class that is no `Task`: what that lacks has the defaults, and what it has
    besides keeps its name."""

    def __init__(self, task: Any) -> None:
        self.task = task

    def __getattribute__(self, name: str) -> Any:
        inner = object.__getattribute__(self, "__dict__").get("task")
        if name in vars(type(self)) or name not in _OF_TASKS or not hasattr(inner, name):
            return object.__getattribute__(self, name)
        return getattr(inner, name)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "__dict__")["task"], name)


_OF_TASKS = frozenset(name for name in (*vars(Task), *PARTS) if not name.startswith("_"))


def as_task(task: Any) -> Task:
    """A task of any class as a `Task`."""
    return task if isinstance(task, Task) else TaskAdapter(task)


def episode_of(task: Task, example: Example) -> Episode:
    """A new episode of any task."""
    return task.episode(example) if task.turns > 1 else OneTurn(task, example)


def gold_of(example: Example) -> str:
    """The gold answer of an example.

    Raises:
        DataError: it has none.
    """
    if example.gold is None:
        raise DataError(
            f"example {example.id} has no gold answer, so there is nothing to show to a model, and "
            "no ceiling",
            "give gold answers (task jsonl: task.options.gold), or leave out sft and the oracle",
        )
    return example.gold


def export(task: Task, folder: Path) -> dict[str, int]:
    """Write the examples of every split to `SPLIT.jsonl`, as chat messages with the gold answer, if
    any.

    The same examples give the same bytes.

    Returns:
        How many examples each split has.

    Raises:
        DataError: a split is empty, or its records are malformed.
        StorageError: the disk is full, or the folder holds what is not ours.
    """
    output_guard.check_folder(folder, kind := f"{task.name} records")
    counts = {}
    for split in task.splits:
        examples, rows = task.examples(split), []
        for one in examples:
            gold = [] if one.gold is None else [{"role": "assistant", "content": one.gold}]
            messages = [*one.messages, *gold]
            rows.append(
                {
                    "id": one.id,
                    "stratum": one.stratum,
                    "messages": messages,
                    "reference": one.reference,
                }
            )
        output_guard.claim_folder(folder, kind)
        write_jsonl(folder / f"{split}.jsonl", rows)
        counts[split] = len(examples)
    return counts
