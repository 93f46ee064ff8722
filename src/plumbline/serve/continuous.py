"""An autoregressive model as a `Served`: one running batch, which every request joins when it comes.

One thread steps the batch while anything runs. What it draws goes to the event loops of those who asked, once a step;
there tokens become text.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from plumbline.errors import DeviceMemoryError, EngineError
from plumbline.policies.memory import is_full
from plumbline.records import Message, Request, Sampling
from plumbline.serve.served import Asked, Piece, law_of
from plumbline.serve.spelling import Spelling

if TYPE_CHECKING:
    from plumbline.policies.autoregressive.continuous import Row, Told
    from plumbline.policies.autoregressive.policy import AutoregressivePolicy
    from plumbline.serve.constrained import Grammars


class ContinuousServed:
    """An autoregressive policy in this process, whose weights do not change any more; close it."""

    family = "autoregressive"

    def __init__(self, name: str, policy: AutoregressivePolicy, sampling: Sampling, *, rows: int | None = None) -> None:
        """Take a policy, the law where a client says nothing of it, and the most answers that run at once.

        Raises:
            ModelError: this policy cannot draw in a running batch.
        """
        from plumbline.policies.autoregressive.continuous import RunningBatch

        self.name, self.context, self.policy, self.sampling = name, policy.context, policy, sampling
        self._batch = RunningBatch(policy, rows)
        self._grammars: Grammars | None = None
        self._compiling = ThreadPoolExecutor(4, f"schema-{name}")  # of its own: what is slow there delays no free text
        self._answers: dict[Row, _Answer] = {}
        self._changes: deque[tuple[Row, _Answer | None]] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"serve-{name}", daemon=True)
        self._thread.start()

    def prompt_length(self, messages: Sequence[Message]) -> int:
        """See `Served.prompt_length`."""
        return self.policy.prompt_length(messages)

    @property
    def waiting(self) -> int:
        """Answers that have not been begun."""
        return len(self._batch.waiting) + sum(answer is not None for _, answer in list(self._changes))

    @property
    def rows(self) -> int:
        """The most answers that run at once; fewer than at first where the memory was not enough."""
        return self._batch.limit

    async def answer(self, asked: Asked) -> AsyncGenerator[Piece, None]:
        """See `Served.answer`."""
        if self._closed:
            raise self._closing()
        threads = None if asked.schema is None else self._compiling
        row, judge = await asyncio.get_running_loop().run_in_executor(threads, self._row, asked)
        answer = _Answer(asyncio.get_running_loop())
        self._tell(row, answer)
        spelling, text, finish = Spelling(self.policy.chat.text), "", None
        try:
            while finish is None:
                told = await answer.more()
                finish = told[-1].finish
                piece = self._piece(spelling, told, spell=asked.logprobs)
                text += piece.text
                if finish is not None and judge is not None:  # a grammar leaves out what it cannot express
                    valid = await asyncio.to_thread(judge, text)
                    piece = replace(piece, facts={**piece.facts, "json": {"way": "constrained", "valid": valid}})
                yield piece
        finally:
            if finish is None:
                self._tell(row, None)

    def _row(self, asked: Asked) -> tuple[Row, Callable[[str], bool] | None]:
        """The row of a request, and what judges its JSON; or what is wrong with it."""
        from plumbline.policies.autoregressive.continuous import Row

        request = Request(asked.request.key, asked.request.messages, law_of(self.sampling, asked))
        prompt = self.policy.chat.prompt(request.messages)
        self.policy.check_length(len(prompt), request.sampling.max_tokens)
        constraint = judge = None
        if asked.schema is not None:
            from plumbline.serve.constrained import Grammars, judge_of

            if self._grammars is None:
                self._grammars = Grammars(self.policy)
            constraint, judge = self._grammars.constraint(asked.schema), judge_of(asked.schema)
        return Row.of(request, prompt, constraint), judge

    def _piece(self, spelling: Spelling, told: Sequence[Told], *, spell: bool) -> Piece:
        tokens, finish = tuple(each.token for each in told), told[-1].finish
        decode = self.policy.chat.tokenizer.decode
        return Piece(
            text=spelling.add(tokens, last=finish is not None),
            tokens=tokens,
            logprobs=tuple(each.logprob for each in told),
            spelled=tuple(decode([token]) for token in tokens) if spell else (),
            finish=finish,
            facts={} if finish is None else {"model": self.name, "family": self.family},
        )

    async def close(self) -> None:
        """See `Served.close`."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._compiling.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._thread.join)

    def _tell(self, row: Row, answer: _Answer | None) -> None:
        """Let the thread know of a row that is wanted, or is not any more.

        Raises:
            EngineError: the thread has ended.
        """
        with self._wake:
            if self._closed and answer is not None:
                raise self._closing()
            self._changes.append((row, answer))
            self._wake.notify()

    def _closing(self) -> EngineError:
        return EngineError(f"{self.name} is being closed", "ask again later")

    # -- the thread that draws ---------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._closed or self._changes or self._answers)
                if self._closed:
                    break
            self._change()
            try:
                told = self._batch.step()
            except Exception as error:  # noqa: BLE001 - whatever breaks there, those who wait are told
                self._break(error)
            else:
                found: list[tuple[_Answer, Told | Exception]] = [(self._answers[each.row], each) for each in told]
                for each in told:
                    if each.finish is not None or each.failure is not None:
                        del self._answers[each.row]
                self._deliver(found)
        self._change()
        self._deliver([(answer, self._closing()) for answer in self._answers.values()])

    def _change(self) -> None:
        """Let rows join and leave."""
        while self._changes:
            row, answer = self._changes.popleft()
            if answer is not None:
                self._answers[row] = answer
                self._batch.join(row)
            elif self._answers.pop(row, None) is not None:
                self._batch.leave(row)

    def _break(self, error: Exception) -> None:
        """Every answer that runs or waits ends with an error; a new batch begins with the next one."""
        from plumbline.policies.autoregressive.continuous import RunningBatch

        if is_full(error):
            error = DeviceMemoryError(
                "the memory does not hold this answer", "ask for fewer tokens, or shorten the messages"
            )
        self._deliver([(answer, error) for answer in self._answers.values()])
        self._answers.clear()
        self._batch = RunningBatch(self.policy, self._batch.limit)

    def _deliver(self, found: Sequence[tuple[_Answer, Told | Exception]]) -> None:
        """Hand over what was drawn: one call a step to each event loop, because waking one costs more than a token."""
        loops: dict[asyncio.AbstractEventLoop, list[tuple[_Answer, Told | Exception]]] = defaultdict(list)
        for answer, told in found:
            loops[answer.loop].append((answer, told))
        for loop, parts in loops.items():
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_hand_over, parts)


def _hand_over(found: Sequence[tuple[_Answer, Told | Exception]]) -> None:
    for answer, told in found:
        answer.told.append(told)
        answer.there.set()


@dataclass(slots=True, eq=False)
class _Answer:
    """What was drawn for one who waits in an event loop."""

    loop: asyncio.AbstractEventLoop
    told: list[Told | Exception] = field(default_factory=list)
    there: asyncio.Event = field(default_factory=asyncio.Event)

    async def more(self) -> list[Told]:
        """The tokens that came since; several where the client is slower than the model.

        Raises:
            Exception: the answer ended with it.
        """
        await self.there.wait()
        self.there.clear()
        told, self.told = self.told, []
        good: list[Told] = []
        for each in told:
            failure = each if isinstance(each, Exception) else each.failure
            if failure is not None:
                raise failure
            good.append(each)  # type: ignore[arg-type]
        return good
