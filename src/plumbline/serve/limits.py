"""What a client may ask of the server, and the body of a request within it."""

import asyncio
from dataclasses import dataclass

from starlette.requests import Request

from plumbline.serve.refusals import Refusal

CLOSE = {"connection": "close"}
"""For an answer that is given before the whole request was read: what is still to come is not waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a client may ask of the server."""

    body: int = 1 << 20
    """Bytes of a request's body."""
    body_seconds: float = 10.0
    """In which it must have come, and before it its head; also how long a client may not read what it is sent."""
    tokens: int = 4096
    """Of an answer."""
    answers: int = 16
    """To one request (`n`)."""
    requests: int = 64
    """In flight."""
    seconds: float = 120.0
    """For a request's answers."""


async def read_body(request: Request, limits: Limits) -> bytes:
    """The whole body of a request.

    Raises:
        Refusal: it is not said to be JSON, is too large, or does not come.
        ClientDisconnect: the client went away.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, "send Content-Type: application/json", code="content_type", headers=CLOSE)
    said = request.headers.get("content-length", "0")  # the server below has checked that it is a number
    too_large = Refusal(413, f"a body has at most {limits.body} bytes", code="body_too_large", headers=CLOSE)
    if len(said) > 15 or int(said) > limits.body:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.body:
                    raise too_large
    except TimeoutError:
        said = f"the body did not come within {limits.body_seconds:g} seconds"
        raise Refusal(408, said, code="slow_body", headers=CLOSE) from None
    return bytes(body)
