"""The server as a process: its socket, the patience it has with clients, and how it ends."""

import asyncio
import ipaddress
import os
import resource
import signal
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.routing import BaseRoute
from uvicorn.protocols.http.h11_impl import H11Protocol

from plumbline.errors import EngineError, RecipeError
from plumbline.serve.app import application
from plumbline.serve.backend import Backend
from plumbline.serve.limits import LONGEST, PUBLIC, Gate, RequestLimits
from plumbline.serve.metrics import RequestMetrics

HEAD = 32_768
"""Bytes of a request's head."""
BACKLOG = 2048
KEEP_ALIVE = 30
"""Seconds. Clients let go of an idle connection after 5 (httpx, and so OpenAI's): the server must
not be the first, or a request that is on its way is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Where and how a server listens."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    limits: RequestLimits = field(default_factory=RequestLimits)
    grace: float = 30.0
    """Seconds that running requests have to end when the server is told to."""
    log: Path | None = None
    log_contents: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no time.

        Raises:
            RecipeError: `grace` is not finite.
        """
        if not 0 <= self.grace <= LONGEST:
            raise RecipeError(f"--grace is {self.grace:g}", f"give seconds, {LONGEST} at most")

    @property
    def is_loopback(self) -> bool:
        """Whether nobody outside this machine can ask."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def hosts(self) -> frozenset[str]:
        """The names that the server may be called by (see `limits.Gate`); none where a token guards
        it."""
        return (
            frozenset()
            if self.token is not None
            else frozenset({self.host, "127.0.0.1", "::1", "localhost"})
        )


def token_of(variable: str | None, serving: ServerOptions) -> str | None:
    """The bearer token in an environment variable.

    Raises:
        RecipeError: it is empty or unfit for a header; or none is named, and others than this
            machine could ask.
    """
    if variable is None:
        if serving.is_loopback:
            return None
        raise RecipeError(
            f"{serving.host} can be reached from other machines, and anybody could ask",
            "put a secret into an environment variable and name it with --token-env, or leave out "
            "--host",
        )
    token = os.environ.get(variable, "")
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise RecipeError(
            f"the environment variable {variable} holds no token",
            f"export {variable}=..., of letters and digits",
        )
    return token


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket that listens at that address, so that nobody else can; port 0 takes a free one.

    Raises:
        EngineError: the address is not this machine's, or the port is taken.
    """
    try:
        try:  # of a number nobody is asked
            family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
            address: Any = (host, port)
        except ValueError:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise EngineError(
            f"cannot serve on {host}: {error.strerror or error}", "give another --host"
        ) from error
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(BACKLOG)  # two sockets may have one address until one of them listens
    except OSError as error:
        opened.close()
        raise EngineError(
            f"cannot serve on {host}:{port}: {error.strerror or error}",
            "give another --port, or 0 for a free one",
        ) from error
    return opened


class SlowClientProtocol(H11Protocol):
    """HTTP with clients that may be slow on purpose: a head that does not come and an answer that
    is not read end."""

    patience = 10.0
    """Seconds."""
    _head: asyncio.TimerHandle | None = None
    _reader: asyncio.TimerHandle | None = None

    def _waits(self) -> bool:
        """Whether the next request's head has not come as a whole."""
        return self.cycle is None or self.cycle.response_complete

    def _drop(self) -> None:
        self.transport.abort()

    def _time_head(self) -> None:
        if self._head is not None and not self._waits():
            self._head.cancel()
            self._head = None
        elif self._head is None and self._waits():
            self._head = self.loop.call_later(self.patience, self._drop)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head."""
        super().connection_made(transport)
        self._time_head()

    def data_received(self, data: bytes) -> None:
        """Go on waiting, or stop."""
        super().data_received(data)
        self._time_head()

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        super().pause_writing()
        self._reader = self.loop.call_later(self.patience, self._drop)

    def resume_writing(self) -> None:
        """It has read."""
        super().resume_writing()
        if self._reader is not None:
            self._reader.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        super().connection_lost(exc)
        for timer in (self._head, self._reader):
            if timer is not None:
                timer.cancel()


class Server(uvicorn.Server):
    """Uvicorn's, whose signals end it and nothing else, with the metrics told that it ends."""

    def __init__(self, config: uvicorn.Config, metrics: RequestMetrics) -> None:
        super().__init__(config)
        self.metrics = metrics

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as uvicorn calls it
        """A signal lets running requests end; a second Ctrl-C ends them."""
        if self.should_exit and sig == signal.SIGINT:
            for task in self.server_state.tasks:
                task.get_loop().call_soon_threadsafe(task.cancel)
        self.stop()

    def stop(self) -> None:
        """Take no further requests, and end when the running ones have."""
        self.metrics.closing = True
        self.should_exit = True


def make_server(
    models: Sequence[Backend],
    serving: ServerOptions,
    routes: Sequence[BaseRoute] = (),
    public: Collection[str] = PUBLIC,
) -> Server:
    """The server over these models, not started yet: `await server.serve([bound(host, port)])`.

    Args:
        models: what answers.
        serving: how.
        routes: further ones, such as a page's.
        public: the paths that need no token.

    Raises:
        StorageError: its log cannot be written.
    """
    metrics = RequestMetrics(serving.limits, serving.log, contents=serving.log_contents)
    patient: Any = type("Patient", (SlowClientProtocol,), {"patience": serving.limits.body_seconds})
    config = uvicorn.Config(
        Gate(
            application(models, metrics=metrics, routes=routes),
            serving.token,
            serving.hosts,
            public,
        ),
        http=patient,
        ws="none",
        loop="asyncio",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=HEAD,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, round(serving.grace)),
        backlog=BACKLOG,
    )
    return Server(config, metrics)


def serve(
    opening: Callable[[], Sequence[Backend]],
    serving: ServerOptions,
    tell: Callable[[str], None],
    routes: Sequence[BaseRoute] = (),
    public: Collection[str] = PUBLIC,
) -> None:
    """Serve until a signal says to end; `tell` hears the address and how to ask.

    The models are opened when the port is known to be free; who asks before they are waits for
    them.

    Raises:
        EngineError: the port is taken.
        StorageError: the log cannot be written.
    """
    raise_file_limit()
    with bind_socket(serving.host, serving.port) as listening:
        models = opening()
        server = make_server(models, serving, routes, public)
        port = listening.getsockname()[1]
        host = f"[{serving.host}]" if ":" in serving.host else serving.host
        address = f"http://{host}:{port}"
        tell(f"serving {', '.join(one.name for one in models)} at {address}/v1 (Ctrl-C ends it)")
        if any(getattr(route, "path", "") == "/" for route in routes):
            tell(f"  a page to try it: {address}/")
        secret = "" if serving.token is None else " -H 'Authorization: Bearer TOKEN'"
        tell(
            f"  try: curl {address}/v1/chat/completions{secret} -H 'Content-Type: application/json'"
            f' -d \'{{"model": "{models[0].name}", "messages": [{{"role": "user", "content": '
            '"Hello"}]}\''
        )
        asyncio.run(server.serve([listening]))
    tell("ended")


def raise_file_limit() -> None:
    """Let this process have as many connections as the system allows it, up to 8,192: each may send
    a head."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 8_192 if hard == resource.RLIM_INFINITY else min(hard, 8_192)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
