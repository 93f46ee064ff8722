"""What a client may ask of the server, and the body of a request within it."""

import asyncio
from dataclasses import dataclass

from starlette.requests import Request

from plumbline.errors import RecipeError
from plumbline.serve.refusals import Refusal

CLOSE = {"connection": "close"}
"""For an answer that is given before the whole request was read: what is still to come is not waited for."""


LONGEST = 86_400
"""Seconds of any wait."""


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

    def __post_init__(self) -> None:
        """Refuse what is no time.

        Raises:
            RecipeError: `seconds` is not finite.
        """
        if not 0 < self.seconds <= LONGEST:
            raise RecipeError(f"--timeout is {self.seconds:g}", f"give seconds, {LONGEST} at most")


async def read_body(request: Request, limits: Limits) -> bytes:
    """The whole body of a request; of all that are being read there are never more bytes than of `requests` full ones.

    Raises:
        Refusal: it is not said to be JSON, is too large, or does not come; or too much is being read.
        ClientDisconnect: the client went away.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, "send Content-Type: application/json", code="content_type", headers=CLOSE)
    said = request.headers.get("content-length", "0")  # the server below has checked that it is a number
    too_large = Refusal(413, f"a body has at most {limits.body} bytes", code="body_too_large", headers=CLOSE)
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
                    said = "the bodies of other requests are being read, as many bytes as this server reads at once"
                    headers = {**CLOSE, "retry-after": "1"}
                    raise Refusal(429, said, code="too_many_requests", headers=headers)
    except TimeoutError:
        said = f"the body did not come within {limits.body_seconds:g} seconds"
        raise Refusal(408, said, code="slow_body", headers=CLOSE) from None
    finally:
        reading.bytes = getattr(reading, "bytes", 0) - len(body)
    return bytes(body)
