"""Judges completions while the model goes on sampling: rewards that come from a browser take longer
than tokens.

Each completion is told to its episode as soon as the sampler has it. Threads of their own do that,
with all that waits of one example in one call where the task asks once and has such a call
(`Task.judge_group`). A task whose verdicts cost nothing is judged in place, which saves the threads
(`Task.judges`).
"""

import threading
import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from types import TracebackType

from plumbline.errors import EngineError, RewardError, TrainingStopped
from plumbline.records import Example, Failure, Message, Outcome, Score
from plumbline.tasks.task import Episode, Task, episode_of

MAX_FAILED = 0.2
"""Share of the completions of a step, or of an evaluation, that may fail to be judged."""
FEW_FAILED = 2
"""So many may fail whatever the share: one time-out of four says nothing of the verifier."""
_in_place = threading.Lock()
"""A task without threads is judged by one at a time, also where an evaluation and a sampler ahead
do so at once."""
Verdict = tuple[Outcome, Score | None, Failure | None]
_FAILED = Outcome(how="failed")
STOPS = (EngineError, RewardError)
"""No failures of a single verdict: what judges is gone, or the task's scoring function returns what
is no reward."""


def judge(task: Task, example: Example, completion: str) -> Verdict:
    """Judge one completion: the first and last of an episode. See `Judging`."""
    judging = Judging(task, [example])
    judging.judge(0, [(0, completion)])
    return judging.verdict(0, 0)


def check_failures(causes: Sequence[str], total: int) -> None:
    """Stop where the verifier itself breaks on many completions (a reward that is infinite, a
    database that is gone).

    Args:
        causes: why, of each that could not be judged.
        total: completions.

    Raises:
        TrainingStopped: more than `MAX_FAILED` of `total`, and more than `FEW_FAILED`, or all of
            them, could not be judged.
    """
    if len(causes) > max(MAX_FAILED * total, min(FEW_FAILED, total - 1)):
        cause, count = Counter(causes).most_common(1)[0]
        raise TrainingStopped(
            f"{len(causes)} of {total} completions could not be judged; {count} of them because of "
            f"{cause}",
            "look at the task's verifier: it must return parts in [0, 1] for every text",
        )


class Judging:
    """Judges on threads of its own from `with` on, at whose end the last of them has its
    verdict."""

    def __init__(self, task: Task, examples: Sequence[Example]) -> None:
        """Nothing is judged yet.

        Args:
            task: see `Task.judges` and `Task.turns`.
            examples: what completions are told of by their place.
        """
        self.task, self.examples = task, examples
        self._waiting: deque[int] = deque()
        self._told: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self._unjudged = 0
        self._found: dict[tuple[int, int], Verdict] = {}
        self._episodes: dict[tuple[int, int], Episode] = {}
        self._asked: dict[tuple[int, int], Sequence[Message]] = {}
        self._news = threading.Condition()
        self._ended = False
        self._gone: EngineError | RewardError | None = None
        self._threads = [
            threading.Thread(target=self._work, name=f"judge-{number}", daemon=True)
            for number in range(task.judges)
        ]

    def __enter__(self) -> "Judging":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._news:
            if kind is not None:
                self._waiting.clear()  # nobody will ask for these any more
            self._ended = True
            self._news.notify_all()
        for thread in self._threads:
            thread.join()
        if kind is None and self._gone is not None:
            raise self._gone

    def tell(self, prompt: int, copy: int, text: str) -> None:
        """Take a copy's text; where there are threads, the one that tells does not wait for the
        verdict.

        Raises:
            EngineError, RewardError: see `STOPS`; here, in `asked` or at the end of `with`.
        """
        if not self._threads:
            with _in_place:
                self.judge(prompt, [(copy, text)])
            return
        with self._news:
            if prompt not in self._told:
                self._waiting.append(prompt)
            self._told[prompt].append((copy, text))
            self._unjudged += 1
            self._news.notify_all()
            if self._gone is not None:
                raise self._gone

    def left(self, seconds: float) -> int:
        """How many of the texts that were told are not judged yet; waits up to `seconds` for the
        last of them."""
        with self._news:
            self._news.wait_for(lambda: not self._unjudged or self._gone is not None, seconds)
            return 0 if self._gone is not None else self._unjudged

    def asked(self) -> dict[tuple[int, int], Sequence[Message]]:
        """What the episodes ask that are not over, by prompt and copy, once all that was told is
        judged."""
        with self._news:
            while self._unjudged and self._gone is None:
                self._news.wait()
            if self._gone is not None:
                raise self._gone
            asked, self._asked = self._asked, {}
        return asked

    def verdict(self, prompt: int, copy: int) -> Verdict:
        """The verdict of the completions of a copy that were told, after `with`."""
        return self._found[prompt, copy]

    def _work(self) -> None:
        while True:
            with self._news:
                while not self._waiting and not self._ended:
                    self._news.wait()
                if not self._waiting:
                    return
                prompt = self._waiting.popleft()
                told = self._told.pop(prompt)
            try:
                self.judge(prompt, told)
            except STOPS as error:
                with self._news:
                    self._gone = self._gone or error
                    self._waiting.clear()
            with self._news:
                self._unjudged -= len(told)
                self._news.notify_all()

    def judge(self, prompt: int, told: Sequence[tuple[int, str]]) -> None:
        """Judge texts of copies of one prompt, in one call where the task has one and asks once.

        A verifier that breaks is a counted failure with its cause, never a reward of 0. Every
        exception but `STOPS` is caught here, because beyond lies a task's own code, fed with
        whatever a model wrote. Where the call for all of them breaks, that is warned of and each is
        judged by itself, so that one of them cannot take the others along.
        """
        if len(told) > 1 and self.task.turns == 1:
            try:
                verdicts = self.task.judge_group(self.examples[prompt], [text for _, text in told])
                if verdicts is not None:
                    found: dict[tuple[int, int], Verdict] = {
                        (prompt, copy): (_FAILED, None, each)
                        if isinstance(each, Failure)
                        else (*each, None)
                        for (copy, _), each in zip(told, verdicts, strict=True)
                    }
                    self._found |= found
                    return
            except STOPS:
                raise
            except Exception as error:  # noqa: BLE001 - the boundary to a task's code, see above
                broke = f"{type(error).__name__}: {error}"
                warnings.warn(
                    f"{self.task.name} could not judge a group at once, but one by one: {broke}",
                    stacklevel=2,
                )
        for copy, text in told:
            self._tell((prompt, copy), text)

    def _tell(self, place: tuple[int, int], text: str) -> None:
        try:
            if place not in self._episodes:
                self._episodes[place] = episode_of(self.task, self.examples[place[0]])
            episode = self._episodes[place]
            episode.tell(text)
            self._found[place] = (*episode.result(), None)
            if (messages := episode.ask()) is not None:
                self._asked[place] = messages
        except STOPS:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary to a task's code, see `judge`
            self._found[place] = (
                _FAILED,
                None,
                Failure(cause=type(error).__name__, detail=str(error)[:500]),
            )
