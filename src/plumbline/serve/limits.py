"""Who may ask the server, and for what: a token, limits of requests, and what is said to those who
get no answer.

A request needs the bearer token, comes from no page elsewhere, and on a loopback address calls it
by its own name.
"""

import asyncio
import hmac
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse

from plumbline.errors import DataError, DeviceMemoryError, EngineError, PlumblineError, RecipeError

Json = dict[str, Any]
"""An object of JSON."""
KINDS = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    502: "server_error",
    503: "server_error",
    504: "timeout_error",
}
"""The error's type by its status; all others are the request's fault."""
CLOSE = {"connection": "close"}
"""For an answer that is given before the whole request was read: what is still to come is not
waited for."""
LONGEST = 86_400
"""Seconds of any wait."""
PUBLIC = frozenset({"/healthz", "/openapi.json"})
"""Paths that need no token."""
WORK = ("/v1/", "/try/")
"""Beginnings of paths that a page from elsewhere cannot ask: all others say what is there
already."""


class Refusal(Exception):  # noqa: N818 - it is an answer
    """An error that goes to the client as it is."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})

    def body(self) -> Json:
        """The error as OpenAI's clients read it."""
        return {
            "error": {
                "message": self.message,
                "type": KINDS.get(self.status, "invalid_request_error"),
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> JSONResponse:
        """The whole answer."""
        return JSONResponse(self.body(), self.status, self.headers)


def shutdown_refusal() -> Refusal:
    """What is said when the server ends."""
    return Refusal(
        503, "this server is shutting down", code="shutting_down", headers={"retry-after": "5"}
    )


def to_refusal(error: PlumblineError) -> Refusal:
    """An error of the model as a refusal.

    A chat that does not fit and a sampling distribution or a schema that cannot be followed are the
    client's; all else is the server's.
    """
    said = " ".join(str(error).split())
    if isinstance(error, DataError):
        return Refusal(
            400,
            said,
            param="messages",
            code="context_length_exceeded" if "context" in said else None,
        )
    if isinstance(error, RecipeError):
        return Refusal(400, said)
    if isinstance(error, EngineError):
        return Refusal(502, "the engine behind this model does not answer", code="engine")
    if isinstance(error, DeviceMemoryError):
        return Refusal(
            503, "the memory of the device is not enough for this request", code="memory"
        )
    return Refusal(500, "the model failed; the server's log says how", code="model")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """What a client may ask of the server."""

    body: int = 1 << 20
    """Bytes of a request's body."""
    body_seconds: float = 10.0
    """In which it must have come, and before it its head; also how long a client may not read what
    it is sent."""
    tokens: int = 4096
    """Of an answer."""
    answers: int = 16
    """To one request (`n`)."""
    requests: int = 64
    """In flight."""
    seconds: float = 120.0
    """For a request's answers."""

    def __post_init__(self) -> None:
        """Refuse what is no time.

        Raises:
            RecipeError: `seconds` is not finite.
        """
        if not 0 < self.seconds <= LONGEST:
            raise RecipeError(f"--timeout is {self.seconds:g}", f"give seconds, {LONGEST} at most")


async def read_body(request: Request, limits: RequestLimits) -> bytes:
    """The whole body of a request; of all that are being read there are never more bytes than of
    `requests` full ones.

    Raises:
        Refusal: it is not said to be JSON, is too large, or does not come; or too much is being
            read.
        ClientDisconnect: the client went away.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(
            415, "send Content-Type: application/json", code="content_type", headers=CLOSE
        )
    # the server below has checked that it is a number
    said = request.headers.get("content-length", "0")
    too_large = Refusal(
        413, f"a body has at most {limits.body} bytes", code="body_too_large", headers=CLOSE
    )
    if len(said) > 15 or int(said) > limits.body:
        raise too_large
    body, reading = bytearray(), request.app.state
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                body += chunk
                reading.bytes = getattr(reading, "bytes", 0) + len(chunk)
                if len(body) > limits.body:
                    raise too_large
                if reading.bytes > limits.body * limits.requests:
                    raise Refusal(
                        429,
                        "the bodies of other requests are being read, as many bytes as this server "
                        "reads at once",
                        code="too_many_requests",
                        headers={**CLOSE, "retry-after": "1"},
                    )
    except TimeoutError:
        raise Refusal(
            408,
            f"the body did not come within {limits.body_seconds:g} seconds",
            code="slow_body",
            headers=CLOSE,
        ) from None
    finally:
        reading.bytes = getattr(reading, "bytes", 0) - len(body)
    return bytes(body)


class Gate:
    """The whole application behind its token; where there is none, for whoever calls this machine
    by a name of its own.

    Without the second, a page in the user's browser could have a name of its own resolved to
    127.0.0.1 and read what the models say. A browser always says the name in `Host`. A page from
    elsewhere could also ask without reading the answer, which takes the machine's time; a browser
    says where a request is from.
    """

    def __init__(
        self,
        app: Any,
        token: str | None,
        hosts: Collection[str],
        public: Collection[str],
    ) -> None:
        """Take the application, its token, the names that it may be called by (none: any), and the
        public paths."""
        self.app, self.hosts, self.public = app, hosts, public
        self.token = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuse, or pass on."""
        if scope["type"] == "http" and (refusal := self._refusal(scope)) is not None:
            await refusal.response()(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _refusal(self, scope: Any) -> Refusal | None:
        headers = dict(scope["headers"])
        host = _name(headers.get(b"host", b"").decode("latin-1"))
        if self.hosts and host not in self.hosts:
            return Refusal(421, "this server answers by the name of this machine only", code="host")
        if scope["path"].startswith(WORK) and _is_foreign(headers):
            return Refusal(403, "this server works for no page from elsewhere", code="origin")
        if self.token is None or scope["path"] in self.public:
            return None
        if hmac.compare_digest(headers.get(b"authorization", b""), self.token):
            return None
        return Refusal(
            401,
            "send the server's token as Authorization: Bearer TOKEN",
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )


def _is_foreign(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser says that a page of another origin asks; a browser that does not say so
    names the origin."""
    if site := headers.get(b"sec-fetch-site"):
        return site not in {b"same-origin", b"none"}
    origin = headers.get(b"origin")
    return (
        origin is not None
        and origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower()
    )


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # brackets without an end
        return ""
