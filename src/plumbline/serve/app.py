"""The routes of the server, over any `Served`: an ASGI application."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from plumbline import __version__
from plumbline.serve.book import Book, known
from plumbline.serve.chat import Chat
from plumbline.serve.chat_body import ChatBody
from plumbline.serve.limits import Limits, Refusal
from plumbline.serve.served import Served


def application(models: Sequence[Served], *, book: Book | None = None, routes: Sequence[BaseRoute] = ()) -> Starlette:
    """The server as an ASGI application; it closes the models when it ends. Its token is asked for by `limits.Gate`.

    Args:
        models: each is asked for by its name.
        book: limits, counts and log; by default the usual limits, and counts alone.
        routes: further ones, such as a page's.
    """
    by_name = {served.name: served for served in models}
    book = book or Book(Limits())
    book.watch(models)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        for served in by_name.values():
            await served.close()
        book.close()

    async def listed(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_described(one) for one in by_name.values()]})

    async def described(request: Request) -> Response:
        return JSONResponse(_described(known(by_name, request.path_params["model"])))

    async def healthy(_: Request) -> Response:
        status = "shutting down" if book.closing else "ok"
        return JSONResponse({"status": status, "version": __version__}, 503 if book.closing else 200)

    async def counted(_: Request) -> Response:
        return Response(book.page(), headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})

    async def explained(_: Request) -> Response:
        return JSONResponse(openapi(by_name, book.limits))

    app = Starlette(
        routes=[
            Route("/v1/chat/completions", Chat(by_name, book), methods=["POST"]),
            Route("/v1/models", listed, methods=["GET"]),
            Route("/v1/models/{model:path}", described, methods=["GET"]),
            Route("/healthz", healthy, methods=["GET"]),
            Route("/metrics", counted, methods=["GET"]),
            Route("/openapi.json", explained, methods=["GET"]),
            *routes,
        ],
        lifespan=lifespan,
        exception_handlers={Refusal: _refused, HTTPException: _not_routed, Exception: _broken},
    )
    app.router.redirect_slashes = False  # to an address that the request's own headers make up
    return app


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return JSONResponse(error.body(), error.status, error.headers)


async def _not_routed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = {404: "there is no such path here", 405: f"this path does not take {request.method}"}
    refusal = Refusal(error.status_code, said.get(error.status_code, error.detail), headers=error.headers)
    return await _refused(request, refusal)


async def _broken(request: Request, _: Exception) -> Response:
    """What is no error of ours goes on to the server's own log; the client is not told what it was."""
    return await _refused(request, Refusal(500, "the server failed; its log says how"))


def _described(served: Served) -> dict[str, Any]:
    return {
        "id": served.name,
        "object": "model",
        "created": 0,
        "owned_by": "plumbline",
        "plumbline": {"family": served.family, "context": served.context},
    }


def openapi(models: Mapping[str, Served], limits: Limits) -> dict[str, Any]:
    """The server's own OpenAPI page: the file's paths and answers, the body as it is read, its models and limits."""
    page: dict[str, Any] = json.loads(files("plumbline.serve").joinpath("openapi.json").read_text("utf-8"))
    page["info"]["version"] = __version__
    schema = ChatBody.model_json_schema(ref_template="#/components/schemas/{model}")
    page["components"]["schemas"] |= {**schema.pop("$defs"), "ChatBody": schema}
    body = schema["properties"]
    body["model"]["enum"] = list(models)
    body["n"]["anyOf"][0]["maximum"] = limits.answers
    for name in ("max_tokens", "max_completion_tokens"):
        body[name]["anyOf"][0]["maximum"] = limits.tokens
    return page
