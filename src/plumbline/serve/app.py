"""The routes of the server, over any `Backend`: an ASGI application."""

import asyncio
import contextlib
import json
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from plumbline.errors import PlumblineError
from plumbline.serve.backend import Backend
from plumbline.serve.chat_body import ChatBody, read_chat, split_request
from plumbline.serve.limits import (
    Json,
    Refusal,
    RequestLimits,
    read_body,
    shutdown_refusal,
    to_refusal,
)
from plumbline.serve.metrics import GONE, RequestMetrics, RequestRecord, find_model
from plumbline.serve.streaming import NumberedChunk, Reply, encode_event, merge_answers
from plumbline.version import __version__


def application(
    models: Sequence[Backend],
    *,
    metrics: RequestMetrics | None = None,
    routes: Sequence[BaseRoute] = (),
) -> Starlette:
    """The server as an ASGI application; it closes the models when it ends. Its token is asked for
    by `limits.Gate`.

    Args:
        models: each is asked for by its name.
        metrics: limits, counts and log; by default the usual limits, and counts alone.
        routes: further ones, such as a page's.
    """
    by_name = {served.name: served for served in models}
    metrics = metrics or RequestMetrics(RequestLimits())
    metrics.watch_queues(models)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        for served in by_name.values():
            await served.close()
        metrics.close()

    def described(served: Backend) -> Json:
        return {
            "id": served.name,
            "object": "model",
            "created": 0,
            "owned_by": "plumbline",
            "plumbline": {"family": served.family, "context": served.context},
        }

    def health() -> Response:
        status = "shutting down" if metrics.closing else "ok"
        return JSONResponse(
            {"status": status, "version": __version__}, 503 if metrics.closing else 200
        )

    kind = {"content-type": "text/plain; version=0.0.4; charset=utf-8"}
    answers: dict[str, Callable[..., Response]] = {
        "/v1/models": lambda: JSONResponse(
            {"object": "list", "data": [*map(described, by_name.values())]}
        ),
        "/v1/models/{model:path}": lambda model: JSONResponse(
            described(find_model(by_name, model))
        ),
        "/healthz": health,
        "/metrics": lambda: Response(metrics.render(), headers=kind),
        "/openapi.json": lambda: JSONResponse(openapi(by_name, metrics.limits)),
    }

    async def answer(of: Callable[..., Response], request: Request) -> Response:
        return of(**request.path_params)

    app = Starlette(
        routes=[
            Route("/v1/chat/completions", ChatRoute(by_name, metrics), methods=["POST"]),
            *(Route(path, partial(answer, of), methods=["GET"]) for path, of in answers.items()),
            *routes,
        ],
        lifespan=lifespan,
        exception_handlers=dict.fromkeys((Refusal, HTTPException, Exception), _answer_refusal),
    )
    app.router.redirect_slashes = False  # to an address that the request's own headers make up
    return app


async def _answer_refusal(request: Request, error: Exception) -> Response:
    """Answer what is refused, has no route, or broke; what broke stands in the server's log, and is
    not told."""
    refusal = (
        error if isinstance(error, Refusal) else Refusal(500, "the server failed; its log says how")
    )
    if isinstance(error, HTTPException):
        said = {404: "there is no such path here", 405: f"this path does not take {request.method}"}
        refusal = Refusal(
            error.status_code, said.get(error.status_code, error.detail), headers=error.headers
        )
    return refusal.response()


def openapi(models: Mapping[str, Backend], limits: RequestLimits) -> Json:
    """The server's own OpenAPI page: the file's paths and answers, the body as it is read, its
    models and limits."""
    page: Json = json.loads(files("plumbline.serve").joinpath("openapi.json").read_text("utf-8"))
    page["info"]["version"] = __version__
    schema = ChatBody.model_json_schema(ref_template="#/components/schemas/{model}")
    page["components"]["schemas"] |= {**schema.pop("$defs"), "ChatBody": schema}
    body = schema["properties"]
    body["model"]["enum"] = list(models)
    body["n"]["anyOf"][0]["maximum"] = limits.answers
    for name in ("max_tokens", "max_completion_tokens"):
        body[name]["anyOf"][0]["maximum"] = limits.tokens
    return page


# -- POST /v1/chat/completions ---------------------------------------------------------------------

EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]


class ChatRoute:
    """The route, as an ASGI application; what it refuses is raised."""

    def __init__(self, models: Mapping[str, Backend], metrics: RequestMetrics) -> None:
        """Take the models by name, and where requests are counted."""
        self.models, self.metrics, self.limits = models, metrics, metrics.limits

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request.

        Raises:
            Refusal: it gets no answer, and nothing was sent yet.
        """
        with self.metrics.record_request() as entry:
            try:
                await self._answer(Request(scope, receive), send, entry)
            except Refusal as refusal:
                entry.status = refusal.status
                raise
            except ClientDisconnect:
                entry.status = GONE
            except asyncio.CancelledError:
                if not self.metrics.closing:
                    raise
                entry.status = 503
                if not entry.begun:
                    raise shutdown_refusal() from None

    async def _answer(self, request: Request, send: Any, entry: RequestRecord) -> None:
        body = read_chat(await read_body(request, self.limits))
        served = find_model(self.models, body.model)
        entry.model = served.name
        asked = split_request(body, self.limits)
        with self.metrics.take_slot():
            messages = asked[0].request.messages
            with _clear():
                reply = Reply(body, await asyncio.to_thread(served.prompt_length, messages))
            entry.contents["messages"] = messages
            entry.said |= {"n": len(asked), "stream": bool(body.stream)}
            pieces = merge_answers(served, asked, body.stops)
            try:
                await _run_while_connected(request, self._send(pieces, reply, send, entry))
            finally:
                await pieces.aclose()
                entry.said |= {
                    "prompt_tokens": reply.prompt_tokens,
                    "completion_tokens": reply.completion_tokens,
                    "finish": [each[-1].finish if each else None for each in reply.pieces],
                }
                entry.contents["answers"] = [
                    "".join(piece.text for piece in each) for each in reply.pieces
                ]

    async def _send(
        self,
        pieces: AsyncGenerator[NumberedChunk, None],
        reply: Reply,
        send: Any,
        entry: RequestRecord,
    ) -> None:
        """Send the answers when all have ended, or in a stream as they come.

        In a stream, what goes wrong before the first piece has a status, and later an event.
        """
        streams = bool(reply.body.stream)

        async def say(data: bytes, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": more})

        try:
            async with self._deadline():
                async for index, piece in pieces:
                    reply.add_chunk(index, piece)
                    entry.first = entry.first or time.monotonic() - entry.began
                    if streams and not entry.begun:
                        entry.begun = True
                        await send(
                            {"type": "http.response.start", "status": 200, "headers": EVENTS}
                        )
                        await say(b"".join(map(encode_event, reply.first_chunks())))
                    if streams and (said := reply.stream_chunk(index, piece)) is not None:
                        await say(encode_event(said))
        except Refusal as refusal:
            if not entry.begun:
                raise
            entry.status = refusal.status
            await say(encode_event(refusal.body()), more=False)
            return
        entry.status = 200
        if streams:
            await say(
                b"".join(map(encode_event, reply.last_chunks())) + encode_event("[DONE]"),
                more=False,
            )
        else:
            await JSONResponse(reply.full_response())({"type": "http"}, None, send)  # type: ignore[arg-type]

    @contextlib.asynccontextmanager
    async def _deadline(self) -> AsyncIterator[None]:
        """Refuse what takes too long, what the server's end cuts off, and what the model
        refuses."""
        try:
            with _clear():
                async with asyncio.timeout(self.limits.seconds):
                    yield
        except TimeoutError:
            raise Refusal(
                504, f"the answer took more than {self.limits.seconds:g} seconds", code="timeout"
            ) from None
        except asyncio.CancelledError:
            if self.metrics.closing:
                raise shutdown_refusal() from None
            raise


@contextlib.contextmanager
def _clear() -> Iterator[None]:
    """Turn errors of a model into refusals."""
    try:
        yield
    except PlumblineError as error:
        raise to_refusal(error) from error


async def _run_while_connected(request: Request, work: Coroutine[Any, Any, None]) -> None:
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
        doing.result()
    finally:
        for task in (doing, watching):
            task.cancel()
        await asyncio.gather(doing, watching, return_exceptions=True)
