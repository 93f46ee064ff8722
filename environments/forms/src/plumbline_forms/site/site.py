"""The site: episodes, their pages, and everything that they received. One plain function answers a
request.

`Site.handle` needs no socket and no event loop, so the direct executor calls it as it is;
`Site.__call__` is the same behind ASGI for real browsers. A route or two need no framework, and
this way both go through the same code.

Every episode is a world of its own: its address holds an id that only its executor knows, its state
is dropped when it is closed, and nothing else is kept from request to request.
"""

import re
import secrets
import threading
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from plumbline.errors import PlumblineError
from plumbline_forms.site.page import (
    WORDS,
    Entries,
    FormView,
    render_page,
    render_receipt,
    shown_by,
)
from plumbline_forms.suite.declaration import Field, Form, FormPage
from plumbline_forms.values import (
    UnreadPatternError,
    is_valid,
    matches,
    range_problem,
    utf16_length,
)

# -- what the server received ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Receipt:
    """One POST."""

    number: int
    """From 1, within the episode."""
    page: int
    """Of the wizard, from 1."""
    entries: Entries
    files: Entries
    """Names of the files by control; a control without a file is not here."""
    errors: Mapping[str, str]
    """What the server complained about, by field name; empty where it accepted the page."""
    complete: bool
    """Whether the form was complete with it."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A complete form, all pages together."""

    entries: Entries
    files: Entries


def submission_of(receipts: Sequence[Receipt]) -> Submission | None:
    """The first complete form among the receipts; None where there is none.

    The first, because what has been sent cannot be taken back: a clerk works on what came first,
    and a plan that sends an empty form and a full one after it has sent an empty form.
    """
    pages: dict[int, Receipt] = {}
    for receipt in receipts:
        if receipt.errors:
            continue
        pages[receipt.page] = receipt
        if receipt.complete:
            entries: dict[str, tuple[str, ...]] = {}
            files: dict[str, tuple[str, ...]] = {}
            for page in sorted(pages):
                entries |= pages[page].entries
                files |= pages[page].files
            return Submission(entries, files)
    return None


# -- bodies of requests ----------------------------------------------------------------------------

Pairs = list[tuple[str, str]]
MAX_FIELDS = 500
_PARAMETER = re.compile(r';\s*(name|filename)="([^"]*)"')
_ESCAPES = (("%22", '"'), ("%0D", "\r"), ("%0A", "\n"))
"""How browsers write these three in a part's name."""


def read_body(content_type: str, body: bytes) -> tuple[Pairs, Pairs]:
    """The entries and the files of a body, each as (name, value or file name) in the order sent.

    A file control that was left empty sends a file without a name; it is left out.

    Raises:
        ValueError: another encoding, or malformed.
    """
    kind, _, parameters = content_type.partition(";")
    if kind.strip().lower() == "application/x-www-form-urlencoded":
        # latin-1 never fails, and bytes that no browser sends as they are come out wrong rather
        # than as an error.
        return parse_qsl(
            body.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_FIELDS
        ), []
    if kind.strip().lower() != "multipart/form-data":
        raise ValueError(
            f"a form is sent urlencoded or as multipart, not as {kind.strip()[:60] or 'nothing'}"
        )
    found = re.search(r'boundary="?([^";,\s]{1,200})"?', parameters)
    if found is None:
        raise ValueError("a multipart body needs a boundary")
    return _multipart(b"--" + found.group(1).encode("latin-1"), body)


def _multipart(boundary: bytes, body: bytes) -> tuple[Pairs, Pairs]:
    parts = (b"\r\n" + body).split(b"\r\n" + boundary)
    if len(parts) < 2 or not parts[-1].startswith(b"--") or len(parts) > MAX_FIELDS:
        raise ValueError("the multipart body is cut off, or has too many parts")
    entries: Pairs = []
    files: Pairs = []
    for part in parts[1:-1]:
        head, blank, content = part.partition(b"\r\n\r\n")
        names = {
            key: _plain(value) for key, value in _PARAMETER.findall(head.decode("utf-8", "replace"))
        }
        if not blank or "name" not in names:
            raise ValueError("a part of the multipart body has no name")
        if "filename" not in names:
            entries.append((names["name"], content.decode("utf-8", "replace")))
        elif names["filename"]:
            files.append((names["name"], names["filename"]))
    return entries, files


def _plain(text: str) -> str:
    for written, sign in _ESCAPES:
        text = text.replace(written, sign)
    return text


def grouped(pairs: Pairs) -> dict[str, tuple[str, ...]]:
    """Pairs by name, the values in the order sent."""
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in found.items()}


# -- validation ------------------------------------------------------------------------------------


def check_page(form: Form, page: FormPage, entries: Entries, files: Entries) -> dict[str, str]:
    """Messages by field name for what is wrong with a page's entries; empty where it is
    accepted."""
    texts = WORDS[form.language]
    fields = {one.name: one for one in page.fields}
    errors = {name: texts["unknown"] for name in (*entries, *files) if name not in fields}
    for one in page.fields:
        problem = _problem(one, entries, files)
        if problem:
            errors[one.name] = texts[problem]
    if not errors:
        single = {name: values[0] for name, values in entries.items() if values}
        for rule in form.rules:
            if rule.names[-1] in fields and not rule.holds(single):
                errors[rule.names[-1]] = texts["order" if rule.kind == "in_order" else "sum"]
    return errors


def _problem(one: Field, entries: Entries, files: Entries) -> str:
    """The key of the message for one field; empty where there is nothing to complain about."""
    if one.kind == "file":
        return _file_problem(one, entries, files)
    values = entries.get(one.name, ())
    if one.kind == "hidden":
        return "" if values == (one.default,) else "kind"
    if one.name in files:
        return "kind"
    if not shown_by(one, entries):
        return "unknown" if values else ""
    filled = tuple(value for value in values if value)
    if not filled:
        return "missing" if one.required else ""
    if one.options:
        if (len(values) > 1 and one.kind not in {"multiselect", "checkboxes"}) or len(
            set(values)
        ) != len(values):
            return "once"
        return "" if {option.value for option in one.options}.issuperset(values) else "option"
    if len(values) > 1:
        return "once"
    if one.kind == "checkbox":
        return "" if values == ("on",) else "kind"
    return _typed_problem(one, filled[0].replace("\r\n", "\n"))


def _typed_problem(one: Field, value: str) -> str:
    if not is_valid(one.kind, value):
        return "kind"
    if one.kind != "textarea" and ("\n" in value or "\r" in value):
        return "kind"
    length = utf16_length(value)
    if length < (one.minlength or 0) or (one.maxlength is not None and length > one.maxlength):
        return "length"
    try:
        if one.pattern is not None and not matches(one.pattern, value):
            return "kind"
    except UnreadPatternError:  # too much work to accept the value
        return "kind"
    return "range" if range_problem(one.kind, value, one.minimum, one.maximum, one.step) else ""


def _file_problem(one: Field, entries: Entries, files: Entries) -> str:
    names = files.get(one.name, ())
    if entries.get(one.name):
        return "kind"  # a text where a file should be
    if not names or not shown_by(one, entries):
        return "missing" if one.required and shown_by(one, entries) else ""
    if len(names) > 1 and not one.multiple:
        return "once"
    return (
        ""
        if all(name.lower().endswith(one.accept) for name in names) or not one.accept
        else "ending"
    )


# -- somebody else's application in place of the site's own pages ----------------------------------


@dataclass(frozen=True, slots=True)
class ReceivedPost:
    """What an application received with one POST, and what it answered."""

    entries: Entries
    files: Entries
    refused: str
    """Why it did not take the form; "" where it did."""
    response: "Response"


class Application(Protocol):
    """Forms of one page each. It keeps nothing: episodes and their receipts are the site's."""

    def page(self, view: FormView) -> "Response":
        """The page of a form."""
        ...

    def take(self, view: FormView, content_type: str, body: bytes) -> ReceivedPost:
        """Receive a form."""
        ...

    def other(self, path: str) -> "Response | None":
        """What lies outside of episodes (styles, pictures); None where there is nothing."""
        ...


# -- site ------------------------------------------------------------------------------------------

MAX_BODY = 1_000_000
"""Bytes of a request's body; more is refused (413)."""
MAX_RECEIPTS = 64
"""Submissions that an episode may make; more are refused (429)."""
MAX_EPISODES = 10_000
"""Episodes that may be open at once."""
RECEIVED = "received"
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; form-action 'self'"
)
"""Nothing is loaded from anywhere, and forms go nowhere else."""


class SiteError(PlumblineError):
    """The site cannot be served, or was used against its limits."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer to a request."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Episode:
    view: FormView
    receipts: list[Receipt] = field(default_factory=list)
    passed: int = 0
    """Pages of the wizard that were accepted in the present attempt."""


class Site:
    """Serves forms to episodes and keeps what it receives. Safe to call from several threads."""

    def __init__(self, application: Application | None = None) -> None:
        """Nothing is open yet.

        Args:
            application: whose forms are served; None serves the declared ones by the site's own
                renderer.
        """
        self._application = application
        self._episodes: dict[str, _Episode] = {}
        self._lock = threading.Lock()

    @property
    def open_episodes(self) -> int:
        """How many episodes are open."""
        return len(self._episodes)

    def open(self, view: FormView) -> str:
        """Begin an episode.

        Returns:
            Its id; `address` says where its form is.

        Raises:
            SiteError: too many episodes are open.
        """
        with self._lock:
            if len(self._episodes) >= MAX_EPISODES:
                raise SiteError(
                    f"{MAX_EPISODES} episodes are open", "close episodes that are done (Site.close)"
                )
            episode = secrets.token_hex(8)
            self._episodes[episode] = _Episode(view)
        return episode

    def close(self, episode: str) -> tuple[Receipt, ...]:
        """End an episode and return everything that it received, in order; () where it is not
        open."""
        with self._lock:
            found = self._episodes.pop(episode, None)
        return tuple(found.receipts) if found is not None else ()

    def receipts(self, episode: str) -> tuple[Receipt, ...]:
        """What an open episode received so far; () where it is not open."""
        with self._lock:
            found = self._episodes.get(episode)
            return tuple(found.receipts) if found is not None else ()

    def address(self, episode: str, view: FormView) -> str:
        """The path of an episode's form."""
        return f"/e/{episode}{view.form.path}"

    def receiver(self, path: str, page: str) -> str:
        """The address that answers a form: an application takes what its page sends to any address
        of the site.

        Args:
            path: where the form is sent to.
            page: the path of the page with the form.
        """
        return (
            page if page and self._application is not None and not path.startswith("/e/") else path
        )

    def handle(self, method: str, path: str, content_type: str = "", body: bytes = b"") -> Response:
        """Answer a request.

        Args:
            method: GET, HEAD or POST.
            path: without host and query.
            content_type: of the body.
            body: of a POST.
        """
        if path == "/health":
            return Response(200, b"ok", {"content-type": "text/plain"})
        parts = path.split("/")
        with self._lock:
            episode = self._episodes.get(parts[2]) if len(parts) > 2 and parts[1] == "e" else None
        if episode is None and self._application is not None and method in {"GET", "HEAD"}:
            return self._application.other(path) or _text(404, "There is nothing here.")
        if (
            episode is None
            or parts[3:5] != [episode.view.form.domain, episode.view.form.name]
            or len(parts) > 6
        ):
            return _text(404, "There is nothing here.")
        rest = parts[5] if len(parts) == 6 else "1"
        if method in {"GET", "HEAD"}:
            return self._get(episode, path, rest)
        if method != "POST":
            return _text(405, "Only GET and POST are answered.")
        if len(body) > MAX_BODY:
            return _text(413, "The form is too large.")
        try:
            if self._application is not None:
                return self._take(self._application, episode, content_type, body)
            entries, files = (grouped(pairs) for pairs in read_body(content_type, body))
        except ValueError as error:
            return _text(400, f"The form cannot be read: {error}")
        return self._post(episode, path, rest, entries, files)

    def _get(self, episode: _Episode, path: str, rest: str) -> Response:
        if self._application is not None:
            return (
                self._application.page(episode.view)
                if rest == "1"
                else _text(404, "There is nothing here.")
            )
        if rest == RECEIVED:
            return _receipt_page(episode.view)
        number = _page_number(episode.view, rest)
        if number is None:
            return _text(404, "There is nothing here.")
        if number > episode.passed + 1:  # pages of a wizard come one after the other
            return _to(path, 1)
        return _fresh_page(episode.view, number)

    def _post(
        self, episode: _Episode, path: str, rest: str, entries: Entries, files: Entries
    ) -> Response:
        form = episode.view.form
        number = _page_number(episode.view, rest)
        if number is None:
            return _text(404, "There is nothing here.")
        errors = check_page(form, form.pages[number - 1], entries, files)
        with self._lock:
            if len(episode.receipts) >= MAX_RECEIPTS:
                return _text(429, "Too many submissions.")
            in_turn = number <= episode.passed + 1
            complete = in_turn and not errors and number == len(form.pages)
            if not in_turn:
                errors = {"": "an earlier page is missing"}
            receipt = Receipt(len(episode.receipts) + 1, number, entries, files, errors, complete)
            episode.receipts.append(receipt)
            if not errors:
                episode.passed = 0 if complete else number
        if complete:
            return Response(303, b"", {"location": f"{_base(path)}/{RECEIVED}"})
        if not in_turn:
            return _to(path, 1)
        if errors:
            return _html(422, render_page(episode.view, number, entries, errors))
        return _to(path, number + 1)

    def _take(
        self, application: Application, episode: _Episode, content_type: str, body: bytes
    ) -> Response:
        """Hand a POST on to the application, and keep what it received."""
        taken = application.take(episode.view, content_type, body)
        errors = {"": taken.refused} if taken.refused else {}
        with self._lock:
            number = len(episode.receipts) + 1
            if number > MAX_RECEIPTS:
                return _text(429, "Too many submissions.")
            episode.receipts.append(
                Receipt(number, 1, taken.entries, taken.files, errors, not errors)
            )
        return taken.response

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """The same behind ASGI."""
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        if scope["type"] != "http":
            return
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            # what is beyond is read and dropped, so that the client hears of it
            if len(body) <= MAX_BODY:
                body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.lower(): value for name, value in scope["headers"]}
        kind = headers.get(b"content-type", b"").decode("latin-1")
        page = urlsplit(headers.get(b"referer", b"").decode("latin-1")).path
        receiver = (
            self.receiver(scope["path"], page) if scope["method"] == "POST" else scope["path"]
        )
        if receiver == scope["path"]:
            response = self.handle(scope["method"], scope["path"], kind, bytes(body))
        else:
            response = Response(307, b"", {"location": receiver})
        content = b"" if scope["method"] == "HEAD" else response.body
        sent = {
            **response.headers,
            "content-length": str(len(response.body)),
            "cache-control": "no-store",
        }
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in sent.items()]
        await send({"type": "http.response.start", "status": response.status, "headers": pairs})
        await send({"type": "http.response.body", "body": content})


def _page_number(view: FormView, rest: str) -> int | None:
    known = (
        rest.isascii()
        and rest.isdigit()
        and len(rest) < 3
        and 1 <= int(rest) <= len(view.form.pages)
    )
    return int(rest) if known else None


def _base(path: str) -> str:
    return "/".join(path.split("/")[:5])


def _to(path: str, number: int) -> Response:
    return Response(303, b"", {"location": _base(path) + (f"/{number}" if number > 1 else "")})


def _html(status: int, text: str) -> Response:
    headers = {"content-type": "text/html; charset=utf-8", "content-security-policy": POLICY}
    return Response(status, text.encode("utf-8", "replace"), headers)


def _text(status: int, text: str) -> Response:
    return Response(
        status, text.encode("utf-8", "replace"), {"content-type": "text/plain; charset=utf-8"}
    )


# A fresh page depends on its view alone, and a group of rollouts asks for the same one again and
# again.
@lru_cache(maxsize=512)
def _fresh_page(view: FormView, number: int) -> Response:
    return _html(200, render_page(view, number))


@lru_cache(maxsize=512)
def _receipt_page(view: FormView) -> Response:
    return _html(200, render_receipt(view))
