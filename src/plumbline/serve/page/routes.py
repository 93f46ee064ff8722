"""Routes of the page. Its files have fixed names; no path of a request is ever opened."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.resources import files
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from plumbline.errors import PlumblineError
from plumbline.reports.page import read_template
from plumbline.serve.limits import Limits, Refusal, read_body
from plumbline.serve.page.trials import Trials

FILES = {
    "/": ("index.html", "text/html"),
    "/page/page.css": ("page.css", "text/css"),
    "/page/shown.css": ("shown.css", "text/css"),
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
LIMITS = Limits(body=400_000)
"""Of a request for a verdict."""
LONGEST = 100_000
"""Characters of an answer to judge."""
WAITING = 16
"""Requests that may wait for the one thread that opens tasks and judges."""
SECONDS = 30.0
"""That a request may wait and take."""


def routes(sources: Mapping[str, str]) -> list[Route]:
    """The page, its files, `/try/examples` and `POST /try/judge`. A GET opens no task; a POST may.

    Args:
        sources: of each model that clients know by name its directory, or "" for one that has none (a router).
    """
    contents = {path: (files(__package__).joinpath(name).read_bytes(), kind) for path, (name, kind) in FILES.items()}
    contents["/page/palette.css"] = (read_template("palette.css").encode(), "text/css")
    queue = _Queue()
    trials = Trials(sources)
    return [
        *(Route(path, partial(_file, *content), methods=["GET"]) for path, content in contents.items()),
        Route("/try/examples", partial(_answered, partial(_examples, trials, queue)), methods=["GET", "POST"]),
        Route("/try/judge", partial(_answered, partial(_judge, trials, queue)), methods=["POST"]),
    ]


async def _file(content: bytes, kind: str, request: Request) -> Response:  # noqa: ARG001
    return Response(content, media_type=kind, headers=HEADERS)


async def _answered(handle: Callable[[Request], Awaitable[Any]], request: Request) -> Response:
    """What a handler gives, as JSON; what there is not is refused."""
    try:
        value = await handle(request)
    except PlumblineError as error:
        raise Refusal(404, " ".join(str(error).split())) from error
    except ClientDisconnect:
        return Response(status_code=499)  # to nobody
    # In ASCII, so that half a surrogate pair in an answer cannot break the encoding.
    return Response(json.dumps(value), 200, {**HEADERS, "cache-control": "no-store"}, "application/json")


async def _examples(trials: Trials, queue: "_Queue", request: Request) -> Any:
    asked = request.query_params
    offset = asked.get("offset", "0")
    if not (offset.isascii() and offset.isdigit() and len(offset) < 10):
        raise Refusal(400, "offset is a number from 0 on")
    given = (asked.get("model", ""), asked.get("task", ""), asked.get("split", ""))
    opens = request.method == "POST"
    return await queue.run(lambda: trials.listing(*given, int(offset), opens=opens))


async def _judge(trials: Trials, queue: "_Queue", request: Request) -> Any:
    try:
        value = json.loads(await read_body(request, LIMITS))
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "the body is no JSON") from error
    names = ("model", "task", "split", "example", "text")
    if not isinstance(value, dict) or not all(isinstance(value.get(name), str) for name in names):
        raise Refusal(400, f"the body is an object with the texts {', '.join(names)}")
    model, task, split, example, text = (value[name] for name in names)
    if len(text) > LONGEST:
        raise Refusal(413, f"an answer may have {LONGEST} characters")
    return await queue.run(lambda: trials.verdict((model, task, split), example, text))


class _Queue:
    """One thread for what takes time: tasks, and the databases that some of them hold, are for one thread at a time."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "try")
        self._waiting = 0

    async def run(self, work: Callable[[], Any]) -> Any:
        """What `work` returns.

        Raises:
            Refusal: too many wait already, or it took too long; it then goes on, and what it opens is kept.
        """
        if self._waiting >= WAITING:
            raise Refusal(503, "too many wait for a verdict; try again later")
        self._waiting += 1
        done = self._pool.submit(work)
        done.add_done_callback(partial(self._ended, asyncio.get_running_loop()))
        try:
            # Shielded: what nobody waits for any more still counts until it has run, so that the line stays short.
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(done)), SECONDS)
        except TimeoutError as error:
            raise Refusal(503, f"no verdict after {SECONDS:.0f} seconds") from error

    def _ended(self, loop: asyncio.AbstractEventLoop, _: Any) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._waiting -= 1
