"""Any policy as a `Backend`: requests that wait are drawn together, and handed on as they end.

A policy draws in calls; what comes meanwhile waits for the next one. One thread draws, because a
device does one thing at a time. What is drawn for a request depends on its key and on nothing
beside it, so batching changes no answer.
"""

import asyncio
import threading
import time
from contextlib import aclosing, suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any

from plumbline.errors import DataError, DeviceMemoryError, EngineError, RecipeError
from plumbline.policies.memory import is_full
from plumbline.policies.policy import LiveRequest, Policy
from plumbline.records import IntArray, Key, Request, Sampling, Trajectory
from plumbline.serve.backend import AnswerChunk, AnswerRequest, Backend, Chunks
from plumbline.serve.constrained import Grammars, SchemaConstraint

WAIT = 0.003
"""Seconds that the first request of a batch waits for others."""
CLOSING = 5.0
SHOWN = 256
"""Canvases that wait for a client at most: one that reads too slowly does not see all of them."""
Found = Trajectory | IntArray | BaseException
"""An answer, its canvas after a step, or why there is none."""


class _Waiting:
    """A request, and where what is found goes: a queue of the loop that its client waits in."""

    def __init__(
        self, asked: AnswerRequest, sampling: Sampling, constraint: SchemaConstraint | None
    ) -> None:
        self.gone = threading.Event()  # set when nobody waits for it any more
        self.request = LiveRequest(
            asked.request.key, asked.request.messages, sampling, self.gone, constraint
        )
        self.watched = asked.canvas
        self.found: asyncio.Queue[Found] = asyncio.Queue()
        self.loop = asyncio.get_running_loop()

    def give(self, found: Found) -> None:
        """Hand something over, from another thread."""
        with suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(self.found.put_nowait, found)


class BatchedBackend(Backend):
    """A policy in this process; close it."""

    sampler: Policy

    def __init__(
        self,
        name: str,
        sampler: Policy,
        sampling: Sampling,
        *,
        at_once: int = 64,
        grammars: Grammars | None = None,
    ) -> None:
        """Take also the most requests of one batch, and the `Grammars` that JSON can follow, where
        there are some."""
        super().__init__(name, sampler, sampling)
        self.at_once, self.grammars = at_once, grammars
        # whether an answer's terms are its tokens, one by one
        self._single = self.family == "autoregressive"
        self._drawing: dict[Key, _Waiting] = {}
        self._asked: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._closed, self._left = False, 0
        self._thread = threading.Thread(target=self._work, name=f"serve-{name}", daemon=True)
        self._thread.start()

    def answer(self, asked: AnswerRequest) -> Chunks:
        """See `Backend.answer`; JSON by a grammar where there are grammars."""
        if asked.schema is None or self.grammars is None:
            return super().answer(asked)
        return self._constrained(asked, self.grammars)

    async def _constrained(self, asked: AnswerRequest, grammars: Grammars) -> Chunks:
        if self._closed:
            raise self._ends()
        constraint, judge = await asyncio.get_running_loop().run_in_executor(
            grammars.threads, grammars.follow, asked.schema or {}
        )
        async with aclosing(self.write(asked, constraint)) as pieces:
            async for piece in pieces:
                # a grammar leaves out what it cannot express
                valid = await asyncio.to_thread(judge, piece.text)
                yield replace(
                    piece, facts={**piece.facts, "json": {"way": "constrained", "valid": valid}}
                )

    async def write(
        self, asked: AnswerRequest, constraint: SchemaConstraint | None = None
    ) -> Chunks:
        """See `Backend.write`: one piece when all is there, behind the canvas after each step where
        it is wanted.

        Raises:
            RecipeError: the family has no log-probabilities of single tokens; or no token goes on
                as the constraint wants it.
        """
        if asked.logprobs and not self._single:
            raise RecipeError(
                f"{self.name} is of family {self.family}, which has no log-probabilities of single "
                "tokens",
                "leave out logprobs",
            )
        waiting = _Waiting(asked, self.sampling_of(asked), constraint)
        await asyncio.to_thread(self._check, waiting.request)
        # asked here, because what is put behind the end of the queue waits for ever
        if self._closed:
            raise self._ends()
        self._asked.put(waiting)
        try:
            while not isinstance(found := await waiting.found.get(), Trajectory):
                if isinstance(found, BaseException):
                    raise found
                yield AnswerChunk(canvas=self.sampler.render_canvas(found))
        finally:
            waiting.gone.set()
        if constraint is not None and constraint.failure is not None:
            raise constraint.failure
        tokens = tuple((found.tokens if found.answer is None else found.answer).tolist())
        decode: Any = (
            self.sampler.chat.tokenizer.decode
            if asked.logprobs and hasattr(self.sampler, "chat")
            else None
        )
        yield AnswerChunk(
            text=found.text,
            tokens=tokens,
            logprobs=tuple(found.logprobs.tolist()) if self._single else (),
            spelled=() if decode is None else tuple(decode([token]) for token in tokens),
            finish=found.finish,
            facts={"model": self.name, "family": self.family},
        )

    def _check(self, request: Request) -> None:
        """Refuse a chat that does not fit before it stands in a batch, which would fail as a
        whole."""
        prompt, answer = self.sampler.prompt_length(request.messages), request.sampling.max_tokens
        if prompt + answer > self.context:
            raise DataError(
                f"a prompt of {prompt} tokens and an answer of up to {answer} exceed the context "
                f"of {self.context}",
                "lower max_tokens, or shorten the messages",
            )

    @property
    def waiting(self) -> int:
        """See `Backend.waiting`."""
        return self._asked.qsize() + self._left

    def _ends(self) -> EngineError:
        return EngineError(f"{self.name} is being closed", "ask again later")

    async def close(self) -> None:
        """See `Backend.close`; a batch that is being drawn is waited for no longer than `CLOSING`
        seconds."""
        self._closed = True
        for one in list(self._drawing.values()):
            one.gone.set()
        if self.grammars is not None:
            self.grammars.threads.shutdown(wait=False, cancel_futures=True)
        self._asked.put(None)
        await asyncio.to_thread(self._thread.join, CLOSING)

    # -- the thread that draws ---------------------------------------------------------------------

    def _work(self) -> None:
        left: list[_Waiting] = []
        while not self._closed:
            left = [one for one in left + self._gather(wait=not left) if not one.gone.is_set()]
            # the first request, and those of its sampling distribution whose keys are not there yet
            batch: dict[Key, _Waiting] = {}
            for one in left:
                if one.request.sampling == left[0].request.sampling and len(batch) < self.at_once:
                    batch.setdefault(one.request.key, one)
            left = [one for one in left if batch.get(one.request.key) is not one]
            self._left, self._drawing = len(left), batch
            # `close` has seen what is being drawn, or this sees that it is closed
            if batch and not self._closed:
                self._draw(batch)
        for one in [*self._drawing.values(), *left, *self._gather(wait=False)]:
            one.give(self._ends())

    def _gather(self, *, wait: bool) -> list[_Waiting]:
        """What has been asked; where `wait`, at least one thing, and what comes within a moment of
        it."""
        found = [self._asked.get()] if wait else []
        until = time.monotonic() + WAIT
        with suppress(Empty):
            while None not in found:
                found.append(self._asked.get(wait, max(0.0, until - time.monotonic())))
        return [one for one in found if one is not None]

    def _draw(self, batch: dict[Key, _Waiting]) -> None:
        """Draw a batch of one sampling distribution; an error of it is handed to all that had no
        answer yet."""

        def watch(key: Key, canvas: IntArray) -> None:
            if key in batch and batch[key].watched and batch[key].found.qsize() < SHOWN:
                batch[key].give(canvas.copy())

        try:
            if any(one.watched for one in batch.values()):
                self.sampler.watch = watch
            for request, trajectory in self.sampler.sample([one.request for one in batch.values()]):
                batch.pop(request.key).give(trajectory)
                if self._closed or all(one.gone.is_set() for one in batch.values()):
                    break
            for one in batch.values():
                one.give(self._ends())
        except Exception as error:  # noqa: BLE001 - whatever breaks there, those who wait are told
            if is_full(error):
                error = DeviceMemoryError(
                    "the memory does not hold this answer", "ask for fewer tokens"
                )
            for one in batch.values():
                one.give(error)
        finally:
            self.sampler.watch = None
