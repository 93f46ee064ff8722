"""The routes: chat completions, models and health, over any `Served`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from plumbline.errors import PlumblineError
from plumbline.serve.answering import Reply, event, together
from plumbline.serve.chat_body import askings, read_chat
from plumbline.serve.refusals import Refusal, refusal_of
from plumbline.serve.served import Served


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a client may ask of the server."""

    body: int = 1 << 20
    """Bytes of a request's body."""
    body_seconds: float = 10.0
    """In which it must have come."""
    tokens: int = 4096
    """Of an answer."""
    requests: int = 64
    """In flight."""
    seconds: float = 120.0
    """For a request's answers."""


def application(
    models: Sequence[Served],
    limits: Limits | None = None,
    *,
    routes: Sequence[BaseRoute] = (),
) -> Starlette:
    """The server as an ASGI application; it closes the models when it ends.

    Args:
        models: each is asked for by its name.
        limits: what clients may ask for.
        routes: further ones, such as a page's.
    """
    by_name = {served.name: served for served in models}
    bounds = limits or Limits()

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        for served in by_name.values():
            await served.close()

    own = [
        Route("/v1/chat/completions", _Chat(by_name, bounds), methods=["POST"]),
        Route("/v1/models", lambda _: JSONResponse(_listed(by_name)), methods=["GET"]),
        Route("/healthz", lambda _: JSONResponse({"status": "ok"}), methods=["GET"]),
    ]
    return Starlette(routes=[*own, *routes], lifespan=lifespan, exception_handlers={Refusal: _refused})


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return JSONResponse(error.body(), error.status, error.headers)


def _listed(models: Mapping[str, Served]) -> dict[str, Any]:
    return {
        "object": "list",
        "data": [
            {
                "id": name,
                "object": "model",
                "created": 0,
                "owned_by": "plumbline",
                "plumbline": {"family": one.family, "context": one.context},
            }
            for name, one in models.items()
        ],
    }


class _Chat:
    """POST /v1/chat/completions."""

    def __init__(self, models: Mapping[str, Served], limits: Limits) -> None:
        self.models, self.limits = models, limits

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        with contextlib.suppress(ClientDisconnect):
            try:
                response = await self._respond(request)
            except PlumblineError as error:
                raise refusal_of(error) from error
            await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        body = read_chat(await request.body())
        served = self.models.get(body.model)
        if served is None:
            raise Refusal(404, f"there is no model {body.model!r} here", param="model", code="model_not_found")
        asked = askings(body, self.limits.tokens)
        reply = Reply(body, await asyncio.to_thread(served.prompt_length, asked[0].request.messages))
        numbered = together(served, asked, body.stops)
        if body.stream:
            first = await anext(numbered)  # what is wrong has a status of its own until here

            async def events() -> AsyncIterator[bytes]:
                async with contextlib.aclosing(numbered):
                    for chunk in reply.opening():
                        yield event(chunk)
                    index, piece = first
                    while True:
                        reply.take(index, piece)
                        if (said := reply.chunk(index, piece)) is not None:
                            yield event(said)
                        try:
                            index, piece = await anext(numbered)
                        except StopAsyncIteration:
                            break
                    for chunk in reply.closing():
                        yield event(chunk)
                    yield event("[DONE]")

            return StreamingResponse(events(), media_type="text/event-stream")
        async for index, piece in numbered:
            reply.take(index, piece)
        return JSONResponse(reply.whole())
