"""What a client is told that gets no answer: a status, and an error in the shape of OpenAI's."""

from collections.abc import Mapping
from typing import Any

from plumbline.errors import DataError, DeviceMemoryError, EngineError, PlumblineError, RecipeError

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

    def body(self) -> dict[str, Any]:
        """The error as OpenAI's clients read it."""
        kind = KINDS.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def refusal_of(error: PlumblineError) -> Refusal:
    """An error of the model as a refusal.

    A chat that does not fit and a law or a schema that cannot be followed are the client's; all else is the server's.
    """
    said = " ".join(str(error).split())
    if isinstance(error, DataError):
        return Refusal(400, said, param="messages", code="context_length_exceeded" if "context" in said else None)
    if isinstance(error, RecipeError):
        return Refusal(400, said)
    if isinstance(error, EngineError):
        return Refusal(502, "the engine behind this model does not answer", code="engine")
    if isinstance(error, DeviceMemoryError):
        return Refusal(503, "the memory of the device is not enough for this request", code="memory")
    return Refusal(500, "the model failed; the server's log says how", code="model")
