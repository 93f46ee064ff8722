"""A task whose answers are judged by Ray actors, each of which has opened the same task for itself.

Everything but verdicts and episodes is answered by the task in this process. Verdicts are asked for by the threads of
`plumbline.judging`, one for each worker.

An episode lives in one worker, which is told its next text. Where that died, another one is told all texts so far: what
an episode comes to depends on its texts alone, so nothing is lost, and no score changes.
"""

import os
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from plumbline.engines.workers_pool import Pool
from plumbline.errors import EngineError
from plumbline.recipe import Recipe
from plumbline.records import Example, Message, Outcome, Score
from plumbline.runs.run import Run
from plumbline.tasks import open_task
from plumbline.tasks.episode import Episode
from plumbline.tasks.task import Grouped, Task, episode_of

KEPT = 1024
"""Episodes that a worker keeps; an older one that goes on is told anew."""
Verdict = tuple[Outcome, Score]
Told = tuple[Sequence[Message] | None, Verdict]


class Opening(NamedTuple):
    """What a task is opened with (see `open_task`), and where."""

    name: str
    options: Mapping[str, Any]
    folder: Path
    there: bool
    """Whether the folder exists."""
    home: Path


class Broke(NamedTuple):
    """What a verifier raised: its type may be known in the worker alone, or be one that cannot be pickled."""

    kind: str
    said: str


def spread_verdicts(recipe: Recipe, task: Task, name: str, run: Run) -> Task:
    """The task, judged by as many workers as the recipe's `scale.verdicts` says.

    Args:
        recipe: of the run.
        task: opened in this process.
        name: of the task in the recipe.
        run: whose data folder the workers open it with.
    """
    section, folder = recipe.each_task[name], run.folder / "data" / name

    def make() -> Any:  # when the first verdict is asked for: the records have been built then
        import ray

        opening = Opening(section.name, section.options, folder, folder.is_dir(), Path.cwd())
        return ray.remote(TaskWorker).options(num_cpus=1, scheduling_strategy="SPREAD").remote(opening)

    return spread(task, Pool("workers for verdicts", make, recipe.scale.verdicts, recipe.scale.timeout))


def spread(task: Task, pool: Pool) -> Task:
    """The task with its verdicts asked of a pool of `TaskWorker`.

    What else it has, it keeps under the same names, so that it is of the same protocols (`plumbline.tasks.task`).
    """
    spread = _Spread(task, pool)
    members: dict[str, Any] = {
        name: property(attrgetter(f"task.{name}")) for name in dir(task) if not name.startswith("_")
    }
    for name in ("judge", "judge_group", *(["episode"] if "episode" in members else [])):
        members[name] = staticmethod(getattr(spread, name))
    return type("SpreadTask", (), {**members, "judges": pool.count, "task": task, "pool": pool})()


class _Spread:
    """What of a task is asked of workers."""

    def __init__(self, task: Task, pool: Pool) -> None:
        self.task, self.pool = task, pool
        self.numbers = count()

    def judge(self, example: Example, completion: str) -> Verdict:
        """See `Task.judge`."""
        found: Verdict = ask(self.pool, "judge", pickle.dumps(example), completion)[0]
        return found

    def judge_group(self, example: Example, completions: Sequence[str]) -> Sequence[Verdict]:
        """See `Grouped.judge_group`: of any task, because a call to a worker costs about as much as a query."""
        found, _ = ask(self.pool, "judge_group", pickle.dumps(example), list(completions))
        return [_heard(one) for one in found]

    def episode(self, example: Example) -> "SpreadEpisode":
        """See `Episodic.episode`."""
        return SpreadEpisode(self.pool, example, next(self.numbers))


class SpreadEpisode:
    """An episode that lives in a worker; see `Episode`."""

    def __init__(self, pool: Pool, example: Example, number: int) -> None:
        self.pool, self.example, self.number = pool, example, number
        self.texts: list[str] = []
        self._asks: Sequence[Message] | None = example.messages
        self._came_to: Verdict | None = None
        self._lives: Any = None

    def ask(self) -> Sequence[Message] | None:
        """See `Episode.ask`."""
        return self._asks

    def tell(self, text: str) -> None:
        """See `Episode.tell`."""
        self.texts.append(text)
        told = self.number, pickle.dumps(self.example), self.texts
        (self._asks, self._came_to), self._lives = ask(self.pool, "tell", *told, wanted=self._lives)

    def result(self) -> Verdict:
        """See `Episode.result`.

        Raises:
            ValueError: nothing was told.
        """
        if self._came_to is None:
            raise ValueError("an episode comes to nothing before its first answer")
        return self._came_to


def ask(pool: Pool, method: str, *arguments: Any, wanted: Any = None) -> tuple[Any, Any]:
    """Ask a `TaskWorker`; what the task raised there is raised here, under the name that it had."""
    answer, worker = pool.call(method, *arguments, wanted=wanted)
    return _heard(answer), worker


def _heard(answer: Any) -> Any:
    if isinstance(answer, Broke):
        raise type(answer.kind, (Exception,), {})(answer.said)
    return answer


class TaskWorker:
    """The actor: a task that is asked for one verdict at a time."""

    def __init__(self, opening: Opening) -> None:
        self.opening = opening
        self.episodes: OrderedDict[int, tuple[Episode, int]] = OrderedDict()
        """Those that are not over, by number, each with how many texts it was told."""
        self.example = lru_cache(KEPT)(pickle.loads)

    def open(self) -> None:
        """Open the task.

        Raises:
            EngineError: the run's records are not on this machine.
            PlumblineError: see `open_task`.
        """
        name, options, folder, there, begun = self.opening
        if begun.is_dir():  # paths and modules are looked for there
            os.chdir(begun)
        if there and not folder.is_dir():
            raise EngineError(
                f"this machine has no folder {folder}, where the run's records are",
                "let run.folder be on a disk that all machines of the cluster share",
            )
        self.task = open_task(name, options, folder)

    def judge(self, example: bytes, completion: str) -> Verdict | Broke:
        """See `Task.judge`."""
        return _said(lambda: self.task.judge(self.example(example), completion))

    def judge_group(self, example: bytes, completions: Sequence[str]) -> Sequence[Verdict | Broke] | Broke:
        """See `Grouped.judge_group`; one by one where the task is not."""
        task = self.task
        if isinstance(task, Grouped):
            return _said(lambda: task.judge_group(self.example(example), completions))
        return [self.judge(example, completion) for completion in completions]

    def tell(self, number: int, example: bytes, texts: Sequence[str]) -> Told | Broke:
        """What an episode asks and comes to after these texts, of which the last is new."""
        return _said(lambda: self._tell(number, example, texts))

    def _tell(self, number: int, example: bytes, texts: Sequence[str]) -> Told:
        episode, told = self.episodes.pop(number, (None, 0))
        if episode is None or told >= len(texts):  # not here before, or a call that is asked again
            episode, told = episode_of(self.task, self.example(example)), 0
        for text in texts[told:]:
            episode.tell(text)
        if (asks := episode.ask()) is not None:
            self.episodes[number] = episode, len(texts)
            if len(self.episodes) > KEPT:
                self.episodes.popitem(last=False)
        return asks, episode.result()


def _said(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - the boundary to a task's code, as in `plumbline.judging`
        return Broke(type(error).__name__, str(error))
