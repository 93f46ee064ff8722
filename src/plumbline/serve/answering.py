"""Answers on their way to a client: several at once, ended before a stop text, and in the shape of OpenAI's."""

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from plumbline.serve.chat_body import ChatBody
from plumbline.serve.refusals import Refusal
from plumbline.serve.served import Asked, Piece, Served

Numbered = tuple[int, Piece]
"""Which of the answers, and its next piece."""


async def until_stop(pieces: AsyncIterator[Piece], stops: Sequence[str]) -> AsyncGenerator[Piece, None]:
    """The pieces of an answer up to the first of the stop texts, which is left out; the work on it ends there.

    Text that may be the beginning of a stop is held back until it is known not to be.
    """
    async with contextlib.aclosing(cast(AsyncGenerator[Piece, None], pieces)) as coming:
        held = ""
        async for piece in coming:
            text = held + piece.text
            cut = min((at for stop in stops if (at := text.find(stop)) >= 0), default=None)
            if cut is not None:
                yield replace(piece, text=text[:cut], finish="stop", facts={**piece.facts, "stop": "text"})
                return
            keep = 0 if piece.finish is not None else _may_begin(text, stops)
            held = text[len(text) - keep :]
            yield replace(piece, text=text[: len(text) - keep])


def _may_begin(text: str, stops: Sequence[str]) -> int:
    """Characters at the end of a text with which a stop may begin."""
    return max(
        (size for stop in stops for size in range(1, min(len(stop), len(text) + 1)) if text.endswith(stop[:size])),
        default=0,
    )


async def together(served: Served, asked: Sequence[Asked], stops: Sequence[str]) -> AsyncGenerator[Numbered, None]:
    """The pieces of several answers as they come; closing it before its end stops the work on all of them."""
    coming: asyncio.Queue[Numbered | asyncio.Task[None]] = asyncio.Queue()

    async def pump(index: int) -> None:
        pieces = until_stop(served.answer(asked[index]), stops)
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                coming.put_nowait((index, piece))

    tasks = [asyncio.create_task(pump(index)) for index in range(len(asked))]
    for task in tasks:
        task.add_done_callback(coming.put_nowait)
    try:
        left = len(tasks)
        while left:
            item = await coming.get()
            if isinstance(item, asyncio.Task):
                item.result()
                left -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class Reply:
    """What there is of the answers to one request, and how it is written down."""

    body: ChatBody
    prompt_tokens: int
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))
    pieces: list[list[Piece]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pieces = [[] for _ in range(self.body.n or 1)]

    def take(self, index: int, piece: Piece) -> None:
        """Take the next piece of an answer.

        Raises:
            Refusal: log-probabilities are asked for, and the model has none.
        """
        if self.body.logprobs and piece.tokens and not piece.logprobs:
            raise Refusal(
                400, "this model has no log-probabilities of single tokens: leave out logprobs", param="logprobs"
            )
        if piece.canvas is None:
            self.pieces[index].append(piece)

    @property
    def completion_tokens(self) -> int:
        """Tokens of all answers."""
        return sum(len(piece.tokens) for pieces in self.pieces for piece in pieces)

    def usage(self) -> dict[str, int]:
        """The request's tokens."""
        drawn = self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": drawn,
            "total_tokens": self.prompt_tokens + drawn,
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.body.model}

    def whole(self) -> dict[str, Any]:
        """All answers, when they have ended."""
        choices = []
        for index, pieces in enumerate(self.pieces):
            text = "".join(piece.text for piece in pieces)
            choices.append(
                {
                    "index": index,
                    "message": {"role": "assistant", "content": text, "refusal": None},
                    "logprobs": self._logprobs(pieces),
                    "finish_reason": pieces[-1].finish,
                    "plumbline": dict(pieces[-1].facts),
                }
            )
        first = self.pieces[0][-1].facts
        return {
            **self._head("chat.completion"),
            "choices": choices,
            "usage": self.usage(),
            "plumbline": {**first, "ignored": self.body.ignored},
        }

    def _logprobs(self, pieces: Sequence[Piece]) -> dict[str, Any] | None:
        if not self.body.logprobs:
            return None
        content = [
            {
                "token": spelled if spelled is not None else f"token_id:{token}",
                "logprob": logprob,
                "bytes": None if spelled is None else list(spelled.encode()),
                "top_logprobs": [],
            }
            for piece in pieces
            for token, logprob, spelled in zip(
                piece.tokens, piece.logprobs, piece.spelled or [None] * len(piece.tokens), strict=True
            )
        ]
        return {"content": content, "refusal": None}

    def opening(self) -> list[dict[str, Any]]:
        """What a stream begins with: who speaks."""
        return [
            self._chunk({"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None})
            for index in range(len(self.pieces))
        ]

    def chunk(self, index: int, piece: Piece) -> dict[str, Any] | None:
        """One piece in a stream; None where it has nothing to say."""
        ends, shown = piece.finish is not None, piece.canvas is not None
        if not (piece.text or ends or shown or (self.body.logprobs and piece.tokens)):
            return None
        choice: dict[str, Any] = {
            "index": index,
            "delta": {"content": piece.text} if piece.text else {},
            "finish_reason": piece.finish,
        }
        if self.body.logprobs:
            choice["logprobs"] = self._logprobs([piece])
        own: dict[str, Any] = {"canvas": piece.canvas} if shown else {}
        return self._chunk(choice, {**own, **piece.facts, **({"ignored": self.body.ignored} if ends else {})})

    def closing(self) -> list[dict[str, Any]]:
        """What a stream ends with: its usage, where it is asked for."""
        options = self.body.stream_options
        if options is None or not options.include_usage:
            return []
        return [{**self._head("chat.completion.chunk"), "choices": [], "usage": self.usage()}]

    def _chunk(self, choice: dict[str, Any], own: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return {**self._head("chat.completion.chunk"), "choices": [choice], **({"plumbline": own} if own else {})}


def event(data: Mapping[str, Any] | str) -> bytes:
    """One event of a stream."""
    said = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, allow_nan=False)
    return f"data: {said}\n\n".encode()
