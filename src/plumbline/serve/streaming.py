"""Answers on their way to a client: several at once, ended before a stop text, and in the shape of
OpenAI's."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, cast

from plumbline.serve.backend import AnswerChunk, AnswerRequest, Backend, Chunks
from plumbline.serve.chat_body import ChatBody
from plumbline.serve.limits import Json, Refusal
from plumbline.storage import dumps

NumberedChunk = tuple[int, AnswerChunk]
"""Which of the answers, and its next piece."""
Row = tuple[Any, ...]
"""The character at which a token's text begins, the token, its log-probability and its text; None
what is not known."""


async def cut_at_stop(pieces: AsyncIterator[AnswerChunk], stops: Sequence[str]) -> Chunks:
    """The pieces of an answer up to the first of the stop texts, which is left out; the work on it
    ends there.

    Text that may be the beginning of a stop is held back until it is known not to be, and so are
    the tokens that begin in it. Those that begin in the stop or behind it are left out, too, and
    stand among the facts (`after_stop`).
    """
    async with contextlib.aclosing(cast(Chunks, pieces)) as coming:
        held, waiting = "", list[Row]()
        async for piece in coming:
            waiting += _rows(piece, len(held))
            text = held + piece.text
            cut = min((at for stop in stops if (at := text.find(stop)) >= 0), default=None)
            if cut is not None:
                shown, rest = (
                    [row for row in waiting if (row[0] < cut) == kept] for kept in (True, False)
                )
                beyond = {"tokens": [row[1] for row in rest], "logprobs": [row[2] for row in rest]}
                facts = {**piece.facts, "stop": "text", **({"after_stop": beyond} if rest else {})}
                yield replace(_with_rows(piece, shown), text=text[:cut], finish="stop", facts=facts)
                return
            keep = 0 if piece.finish is not None else _may_begin(text, stops)
            free = len(text) - keep
            held = text[free:]
            shown = [row for row in waiting if row[0] < free or not keep]
            waiting = [(begins - free, *rest) for begins, *rest in waiting[len(shown) :]]
            yield replace(_with_rows(piece, shown), text=text[:free])


def _rows(piece: AnswerChunk, start: int) -> Iterator[Row]:
    """The tokens of a piece whose text begins at `start`; where their own texts are not known, all
    begin there."""
    known = piece.spelled and "".join(piece.spelled) == piece.text
    lengths = [len(text) for text in piece.spelled] if known else [0] * len(piece.tokens)
    columns = [column or [None] * len(piece.tokens) for column in (piece.logprobs, piece.spelled)]
    yield from zip(accumulate(lengths, initial=start), piece.tokens, *columns, strict=False)


def _with_rows(piece: AnswerChunk, rows: Sequence[Row]) -> AnswerChunk:
    """A piece with these tokens in place of its own."""
    columns = [
        tuple(value for value in column if value is not None) for column in zip(*rows, strict=True)
    ]
    _, tokens, logprobs, spelled = columns or ((),) * 4
    return replace(piece, tokens=tokens, logprobs=logprobs, spelled=spelled)


def _may_begin(text: str, stops: Sequence[str]) -> int:
    """Characters at the end of a text with which a stop may begin."""
    return max(
        (
            size
            for stop in stops
            for size in range(1, min(len(stop), len(text) + 1))
            if text.endswith(stop[:size])
        ),
        default=0,
    )


async def merge_answers(
    served: Backend, asked: Sequence[AnswerRequest], stops: Sequence[str]
) -> AsyncGenerator[NumberedChunk, None]:
    """The pieces of several answers as they come; closing it before its end stops the work on all
    of them."""
    coming: asyncio.Queue[NumberedChunk | asyncio.Task[None]] = asyncio.Queue()

    async def pump(index: int) -> None:
        pieces = cut_at_stop(served.answer(asked[index]), stops)
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


class Reply:
    """What there is of the answers to one request, and how it is written down."""

    def __init__(self, body: ChatBody, prompt_tokens: int) -> None:
        """Take the request, and how many tokens its chat has."""
        self.body, self.prompt_tokens = body, prompt_tokens
        self.id, self.created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())
        self.pieces: list[list[AnswerChunk]] = [[] for _ in range(body.n or 1)]

    def add_chunk(self, index: int, piece: AnswerChunk) -> None:
        """Take the next piece of an answer.

        Raises:
            Refusal: log-probabilities are asked for, and the model has none.
        """
        if self.body.logprobs and piece.tokens and not piece.logprobs:
            raise Refusal(
                400,
                "this model has no log-probabilities of single tokens: leave out logprobs",
                param="logprobs",
            )
        if piece.canvas is None:
            self.pieces[index].append(piece)

    @property
    def completion_tokens(self) -> int:
        """Tokens of all answers, those that a stop left out included: they were sampled."""
        return sum(
            len(piece.tokens) + len(piece.facts.get("after_stop", {}).get("tokens", ()))
            for pieces in self.pieces
            for piece in pieces
        )

    def usage(self) -> dict[str, int]:
        """The request's tokens."""
        read, drawn = self.prompt_tokens, self.completion_tokens
        return {"prompt_tokens": read, "completion_tokens": drawn, "total_tokens": read + drawn}

    def _head(self, kind: str) -> Json:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.body.model}

    def full_response(self) -> Json:
        """All answers, when they have ended."""
        return {
            **self._head("chat.completion"),
            "choices": [
                {
                    "index": index,
                    "message": {
                        "role": "assistant",
                        "content": "".join(piece.text for piece in pieces),
                        "refusal": None,
                    },
                    "logprobs": self._logprobs(pieces),
                    "finish_reason": pieces[-1].finish,
                    "plumbline": dict(pieces[-1].facts),
                }
                for index, pieces in enumerate(self.pieces)
            ],
            "usage": self.usage(),
            "plumbline": {**self.pieces[0][-1].facts, "ignored": self.body.ignored},
        }

    def _logprobs(self, pieces: Sequence[AnswerChunk]) -> Json | None:
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
                piece.tokens,
                piece.logprobs,
                piece.spelled or [None] * len(piece.tokens),
                strict=True,
            )
        ]
        return {"content": content, "refusal": None}

    def first_chunks(self) -> list[Json]:
        """What a stream begins with: who speaks."""
        return [
            self._chunk(
                {
                    "index": index,
                    "delta": {"role": "assistant", "content": ""},
                    "finish_reason": None,
                }
            )
            for index in range(len(self.pieces))
        ]

    def stream_chunk(self, index: int, piece: AnswerChunk) -> Json | None:
        """One piece in a stream; None where it has nothing to say."""
        ends, shown = piece.finish is not None, piece.canvas is not None
        if not (piece.text or ends or shown or (self.body.logprobs and piece.tokens)):
            return None
        choice: Json = {
            "index": index,
            "delta": {"content": piece.text} if piece.text else {},
            "finish_reason": piece.finish,
        }
        if self.body.logprobs:
            choice["logprobs"] = self._logprobs([piece])
        own = {"canvas": piece.canvas} if shown else {}
        return self._chunk(
            choice, {**own, **piece.facts, **({"ignored": self.body.ignored} if ends else {})}
        )

    def last_chunks(self) -> list[Json]:
        """What a stream ends with: its usage, where it is asked for."""
        options = self.body.stream_options
        if options is None or not options.include_usage:
            return []
        return [{**self._head("chat.completion.chunk"), "choices": [], "usage": self.usage()}]

    def _chunk(self, choice: Json, own: Mapping[str, Any] | None = None) -> Json:
        return {
            **self._head("chat.completion.chunk"),
            "choices": [choice],
            **({"plumbline": own} if own else {}),
        }


def encode_event(data: Mapping[str, Any] | str) -> bytes:
    """One event of a stream."""
    return f"data: {data if isinstance(data, str) else dumps(data)}\n\n".encode()
