"""Routes of the page. Its files have fixed names; no path of a request is ever opened."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from plumbline.errors import PlumblineError
from plumbline.reports.style import PALETTE
from plumbline.serve.page.trials import Trials

FILES = {
    "/": ("index.html", "text/html"),
    "/page/page.css": ("page.css", "text/css"),
    "/page/form.css": ("form.css", "text/css"),
    "/page/page.js": ("page.js", "text/javascript"),
    "/page/icon.svg": ("icon.svg", "image/svg+xml"),
}
PUBLIC = frozenset({*FILES, "/page/palette.css"})
"""Paths that need no token: they say nothing of the models."""
POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
LARGEST = 400_000
"""Bytes of a request for a verdict."""
LONGEST = 100_000
"""Characters of an answer to judge."""
WAITING = 16
"""Requests that may wait for the one thread that opens tasks and judges."""
SECONDS = 30.0
"""That a request may wait and take."""


class _Refused(Exception):  # noqa: N818 - it is an answer
    """A request that is answered with a status and a reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def routes(sources: Mapping[str, str]) -> list[Route]:
    """The page, its files, `GET /try/examples` and `POST /try/judge`.

    Args:
        sources: of each model that clients know by name its directory, or "" for one that has none (a router).
    """
    contents = {path: (files(__package__).joinpath(name).read_bytes(), kind) for path, (name, kind) in FILES.items()}
    contents["/page/palette.css"] = (PALETTE.encode(), "text/css")
    queue = _Queue()
    trials = Trials(sources)
    return [
        *(Route(path, partial(_file, *content), methods=["GET"]) for path, content in contents.items()),
        Route("/try/examples", partial(_answered, partial(_examples, trials, queue)), methods=["GET"]),
        Route("/try/judge", partial(_answered, partial(_judge, trials, queue)), methods=["POST"]),
    ]


async def _file(content: bytes, kind: str, request: Request) -> Response:  # noqa: ARG001
    return Response(content, media_type=kind, headers=HEADERS)


async def _answered(handle: Callable[[Request], Awaitable[Any]], request: Request) -> Response:
    """What a handler gives as JSON; what it refuses as an error in the shape that OpenAI's clients know."""
    try:
        status, value = 200, await handle(request)
    except _Refused as error:
        status, value = error.status, _error(str(error))
    except PlumblineError as error:
        status, value = 404, _error(str(error))
    # In ASCII, so that half a surrogate pair in an answer cannot break the encoding.
    return Response(json.dumps(value), status, {**HEADERS, "cache-control": "no-store"}, "application/json")


def _error(why: str) -> dict[str, Any]:
    return {"error": {"message": why, "type": "invalid_request_error", "param": None, "code": None}}


async def _examples(trials: Trials, queue: "_Queue", request: Request) -> Any:
    asked = request.query_params
    offset = asked.get("offset", "0")
    if not (offset.isascii() and offset.isdigit() and len(offset) < 10):
        raise _Refused(400, "offset is a number from 0 on")
    given = (asked.get("model", ""), asked.get("task", ""), asked.get("split", ""))
    return await queue.run(lambda: trials.listing(*given, int(offset)))


async def _judge(trials: Trials, queue: "_Queue", request: Request) -> Any:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise _Refused(415, "send application/json")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST:
            raise _Refused(413, f"a request may have {LARGEST} bytes")
    try:
        value = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise _Refused(400, "the body is no JSON") from error
    names = ("model", "task", "split", "example", "text")
    if not isinstance(value, dict) or not all(isinstance(value.get(name), str) for name in names):
        raise _Refused(400, f"the body is an object with the texts {', '.join(names)}")
    model, task, split, example, text = (value[name] for name in names)
    if len(text) > LONGEST:
        raise _Refused(413, f"an answer may have {LONGEST} characters")
    return await queue.run(lambda: trials.verdict((model, task, split), example, text))


class _Queue:
    """One thread for what takes time: tasks, and the databases that some of them hold, are for one thread at a time."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "try")
        self._waiting = 0

    async def run(self, work: Callable[[], Any]) -> Any:
        """What `work` returns.

        Raises:
            _Refused: too many wait already, or it took too long; it then goes on, and what it opens is kept.
        """
        if self._waiting >= WAITING:
            raise _Refused(503, "too many wait for a verdict; try again later")
        self._waiting += 1
        done = self._pool.submit(work)
        done.add_done_callback(partial(self._ended, asyncio.get_running_loop()))
        try:
            # Shielded: what nobody waits for any more still counts until it has run, so that the line stays short.
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(done)), SECONDS)
        except TimeoutError as error:
            raise _Refused(503, f"no verdict after {SECONDS:.0f} seconds") from error

    def _ended(self, loop: asyncio.AbstractEventLoop, _: Any) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._waiting -= 1
