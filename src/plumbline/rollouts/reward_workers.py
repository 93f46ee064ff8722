"""Judges completions while the model goes on sampling: rewards that come from a browser take longer
than tokens.

Each completion is submitted to its episode as soon as the sampler has it. Threads of their own do
that, with all that waits of one example in one call where the task asks once and has such a call
(`Task.judge_group`). A task whose verdicts cost nothing is judged in place, which saves the threads
(`Task.judges`).
"""

import threading
import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from types import TracebackType

from plumbline.errors import EngineError, RewardError, TrainingStopped
from plumbline.records import Example, Failure, Message, Outcome, Verdict
from plumbline.tasks.task import Episode, Task, episode_of

MAX_FAILED = 0.2
"""Share of the completions of a step, or of an evaluation, that may fail to be judged."""
FEW_FAILED = 2
"""So many may fail whatever the share: one time-out of four says nothing of the verifier."""
_in_place = threading.Lock()
"""A task without threads is judged by one at a time, also where an evaluation and an async
sampler do so at once."""
_FAILED = Outcome(how="failed")
STOPS = (EngineError, RewardError)
"""No failures of a single verdict: what judges is gone, or the task's scoring function returns what
is no reward."""


def judge(task: Task, example: Example, completion: str) -> Verdict:
    """Judge one completion: the first and last of an episode. See `RewardWorkers`."""
    workers = RewardWorkers(task, [example])
    workers.judge_texts(0, [(0, completion)])
    return workers.result(0, 0)


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


class RewardWorkers:
    """Threads that judge from `with` on, at whose end the last text has its verdict."""

    def __init__(self, task: Task, examples: Sequence[Example]) -> None:
        """Nothing is judged yet.

        Args:
            task: see `Task.judges` and `Task.turns`.
            examples: what completions are submitted for, by their place.
        """
        self.task, self.examples = task, examples
        self._waiting: deque[int] = deque()
        self._texts: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self._num_pending = 0
        self._results: dict[tuple[int, int], Verdict] = {}
        self._episodes: dict[tuple[int, int], Episode] = {}
        self._prompts: dict[tuple[int, int], Sequence[Message]] = {}
        self._changed = threading.Condition()
        self._ended = False
        self._error: EngineError | RewardError | None = None
        self._threads = [
            threading.Thread(target=self._work, name=f"judge-{number}", daemon=True)
            for number in range(task.judges)
        ]

    def __enter__(self) -> "RewardWorkers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            if kind is not None:
                self._waiting.clear()  # nobody will ask for these any more
            self._ended = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        if kind is None and self._error is not None:
            raise self._error

    def submit(self, prompt: int, copy: int, text: str) -> None:
        """Take a copy's text; where there are threads, the one that submits does not wait for the
        verdict.

        Raises:
            EngineError, RewardError: see `STOPS`; here, in `next_prompts` or at the end of `with`.
        """
        if not self._threads:
            with _in_place:
                self.judge_texts(prompt, [(copy, text)])
            return
        with self._changed:
            if prompt not in self._texts:
                self._waiting.append(prompt)
            self._texts[prompt].append((copy, text))
            self._num_pending += 1
            self._changed.notify_all()
            if self._error is not None:
                raise self._error

    def pending(self, seconds: float) -> int:
        """How many of the submitted texts are not judged yet; waits up to `seconds` for the
        last of them."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self._num_pending or self._error is not None, seconds
            )
            return 0 if self._error is not None else self._num_pending

    def next_prompts(self) -> dict[tuple[int, int], Sequence[Message]]:
        """What the episodes ask that are not over, by prompt and copy, once all that was submitted
        is judged."""
        with self._changed:
            while self._num_pending and self._error is None:
                self._changed.wait()
            if self._error is not None:
                raise self._error
            prompts, self._prompts = self._prompts, {}
        return prompts

    def result(self, prompt: int, copy: int) -> Verdict:
        """The verdict of the completions of a copy that were submitted, after `with`."""
        return self._results[prompt, copy]

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._ended:
                    self._changed.wait()
                if not self._waiting:
                    return
                prompt = self._waiting.popleft()
                texts = self._texts.pop(prompt)
            try:
                self.judge_texts(prompt, texts)
            except STOPS as error:
                with self._changed:
                    self._error = self._error or error
                    self._waiting.clear()
            with self._changed:
                self._num_pending -= len(texts)
                self._changed.notify_all()

    def judge_texts(self, prompt: int, texts: Sequence[tuple[int, str]]) -> None:
        """Judge texts of copies of one prompt, in one call where the task has one and asks once.

        A verifier that breaks is a counted failure with its cause, never a reward of 0. Every
        exception but `STOPS` is caught here, because beyond lies a task's own code, fed with
        whatever a model wrote. Where the call for all of them breaks, that is warned of and each is
        judged by itself, so that one of them cannot take the others along.
        """
        if len(texts) > 1 and self.task.turns == 1:
            try:
                verdicts = self.task.judge_group(self.examples[prompt], [text for _, text in texts])
                if verdicts is not None:
                    self._results |= {
                        (prompt, copy): Verdict(_FAILED, failure=each)
                        if isinstance(each, Failure)
                        else Verdict(*each)
                        for (copy, _), each in zip(texts, verdicts, strict=True)
                    }
                    return
            except STOPS:
                raise
            except Exception as error:  # noqa: BLE001 - the boundary to a task's code, see above
                broke = f"{type(error).__name__}: {error}"
                warnings.warn(
                    f"{self.task.name} could not judge a group at once, but one by one: {broke}",
                    stacklevel=2,
                )
        for copy, text in texts:
            self._judge_text((prompt, copy), text)

    def _judge_text(self, place: tuple[int, int], text: str) -> None:
        try:
            if place not in self._episodes:
                self._episodes[place] = episode_of(self.task, self.examples[place[0]])
            episode = self._episodes[place]
            episode.tell(text)
            self._results[place] = Verdict(*episode.result())
            if (messages := episode.ask()) is not None:
                self._prompts[place] = messages
        except STOPS:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary to a task's code, see `judge_texts`
            failure = Failure(cause=type(error).__name__, detail=str(error)[:500])
            self._results[place] = Verdict(_FAILED, failure=failure)
