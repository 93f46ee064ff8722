"""POST /v1/chat/completions."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from plumbline.errors import PlumblineError
from plumbline.serve.answering import Numbered, Reply, event, together
from plumbline.serve.book import GONE, Book, Entry, known
from plumbline.serve.chat_body import askings, read_chat
from plumbline.serve.limits import Refusal, read_body, refusal_of, shutting_down
from plumbline.serve.served import Served

T = TypeVar("T")
EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]


class Chat:
    """The route, as an ASGI application; what it refuses is raised."""

    def __init__(self, models: Mapping[str, Served], book: Book) -> None:
        """Take the models by name, and where requests are counted."""
        self.models, self.book, self.limits = models, book, book.limits

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request.

        Raises:
            Refusal: it gets no answer, and nothing was sent yet.
        """
        with self.book.entry() as entry:
            try:
                await self._answer(Request(scope, receive), send, entry)
            except Refusal as refusal:
                entry.status = refusal.status
                raise
            except ClientDisconnect:
                entry.status = GONE
            except asyncio.CancelledError:
                if not self.book.closing:
                    raise
                entry.status = 503
                if not entry.begun:
                    raise shutting_down() from None

    async def _answer(self, request: Request, send: Any, entry: Entry) -> None:
        body = read_chat(await read_body(request, self.limits))
        served = known(self.models, body.model)
        entry.model = served.name
        asked = askings(body, self.limits)
        with self.book.slot():
            messages = asked[0].request.messages
            with _clear():
                reply = Reply(body, await asyncio.to_thread(served.prompt_length, messages))
            entry.contents["messages"] = messages
            entry.said |= {"n": len(asked), "stream": bool(body.stream)}
            pieces = together(served, asked, body.stops)
            writing = self._stream if body.stream else self._whole
            try:
                await _while_there(request, writing(pieces, reply, send, entry))
            finally:
                await pieces.aclose()
                entry.said |= {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens}
                entry.said["finish"] = [each[-1].finish if each else None for each in reply.pieces]
                entry.contents["answers"] = ["".join(piece.text for piece in each) for each in reply.pieces]

    async def _whole(self, pieces: AsyncGenerator[Numbered, None], reply: Reply, send: Any, entry: Entry) -> None:
        async with self._deadline():
            async for index, piece in pieces:
                entry.piece()
                reply.take(index, piece)
        entry.status = 200
        await JSONResponse(reply.whole())({"type": "http"}, None, send)  # type: ignore[arg-type]

    async def _stream(self, pieces: AsyncGenerator[Numbered, None], reply: Reply, send: Any, entry: Entry) -> None:
        """Send pieces as they come; what goes wrong before the first of them has a status, and later an event."""

        async def say(data: bytes, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": more})

        begun = False
        try:
            async with self._deadline():
                async for index, piece in pieces:
                    reply.take(index, piece)
                    entry.piece()
                    if not begun:
                        begun = entry.begun = True
                        await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
                        await say(b"".join(map(event, reply.opening())))
                    if (said := reply.chunk(index, piece)) is not None:
                        await say(event(said))
        except Refusal as refusal:
            if not begun:
                raise
            entry.status = refusal.status
            await say(event(refusal.body()), more=False)
            return
        entry.status = 200
        await say(b"".join(map(event, reply.closing())) + event("[DONE]"), more=False)

    @contextlib.asynccontextmanager
    async def _deadline(self) -> AsyncIterator[None]:
        """Refuse what takes too long, what the server's end cuts off, and what the model refuses."""
        try:
            with _clear():
                async with asyncio.timeout(self.limits.seconds):
                    yield
        except TimeoutError:
            raise Refusal(504, f"the answer took more than {self.limits.seconds:g} seconds", code="timeout") from None
        except asyncio.CancelledError:
            if self.book.closing:
                raise shutting_down() from None
            raise


@contextlib.contextmanager
def _clear() -> Iterator[None]:
    """Turn errors of a model into refusals."""
    try:
        yield
    except PlumblineError as error:
        raise refusal_of(error) from error


async def _while_there(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Do the work, and drop it when the client goes away.

    Raises:
        ClientDisconnect: it went.
    """

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    doing, watching = asyncio.create_task(work), asyncio.create_task(gone())
    try:
        await asyncio.wait({doing, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise ClientDisconnect
        return doing.result()
    finally:
        for task in (doing, watching):
            task.cancel()
        await asyncio.gather(doing, watching, return_exceptions=True)
