"""Who may ask: a bearer token, no page from elsewhere, and on a loopback address only by its own name."""

import hmac
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import JSONResponse

from plumbline.serve.refusals import Refusal

PUBLIC = frozenset({"/healthz", "/openapi.json"})
"""Paths that need no token."""
WORK = ("/v1/", "/try/")
"""Beginnings of paths that a page from elsewhere cannot ask: all others say what is there already."""


class Gate:
    """The whole application behind its token; where there is none, for whoever calls this machine by a name of its own.

    Without the second, a page in the user's browser could have a name of its own resolved to 127.0.0.1 and read what
    the models say. A browser always says the name in `Host`. A page from elsewhere could also ask without reading the
    answer, which takes the machine's time; a browser says where a request is from.
    """

    def __init__(
        self, app: Any, token: str | None = None, hosts: Collection[str] = (), public: Collection[str] = PUBLIC
    ) -> None:
        """Take the application, its token, the names that it may be called by (none: any), and the public paths."""
        self.app, self.hosts, self.public = app, hosts, public
        self.token = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuse, or pass on."""
        if scope["type"] == "http" and (refusal := self._refusal(scope)) is not None:
            await JSONResponse(refusal.body(), refusal.status, refusal.headers)(scope, receive, send)
            return
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
    """Whether a browser says that a page of another origin asks; a browser that does not say so names the origin."""
    if site := headers.get(b"sec-fetch-site"):
        return site not in {b"same-origin", b"none"}
    origin = headers.get(b"origin")
    return origin is not None and origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower()


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # brackets without an end
        return ""
