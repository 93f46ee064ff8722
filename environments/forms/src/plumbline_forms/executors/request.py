"""The request that a browser sends for a form: the entries in their encoding, line breaks and file parts included."""

import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote_plus, urljoin, urlsplit

from plumbline_forms.executors.page import URLENCODED, FormOwner

ELSEWHERE = "not sent, its address is not one of this site"
_BOUNDARY = "----PlumblineFormBoundary"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a form: a value, or the name of a file ("" for a file control that was left empty)."""

    name: str
    value: str
    is_file: bool = False


def stub(name: str) -> bytes:
    """The content of a file of this name: no file is ever read, because a plan names it."""
    return f"Plumbline stub for {name}\n".encode("utf-8", "replace")


def target_of(how: FormOwner, path: str) -> str | None:
    """The path that a form on a page of the site is sent to; None where that is no address of the site."""
    try:
        parts = urlsplit(urljoin(f"http://site{path}", how.action.strip()))
    except ValueError:
        return None
    return parts.path if (parts.scheme, parts.netloc) == ("http", "site") else None


def encode(entries: Sequence[Entry], enctype: str = URLENCODED, *, multipart: bool = False) -> tuple[str, bytes]:
    """Content type and body.

    Args:
        entries: of a form.
        enctype: one of the three that forms have.
        multipart: short for the enctype that sends files.
    """
    if enctype == "text/plain" and not multipart:
        lines = (f"{_crlf(entry.name)}={_crlf(entry.value)}\r\n" for entry in entries)
        return "text/plain", _bytes("".join(lines))
    if enctype != "multipart/form-data" and not multipart:
        pairs = (f"{_form(entry.name)}={_form(_crlf(entry.value))}" for entry in entries)
        return "application/x-www-form-urlencoded", "&".join(pairs).encode("ascii")
    boundary = _BOUNDARY
    while any(boundary in entry.value for entry in entries):
        boundary += "x"
    body = bytearray()
    for entry in entries:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{_part(entry.name)}"'
        if entry.is_file:
            head += f'; filename="{_part(entry.value)}"\r\nContent-Type: {_type_of(entry.value)}'
        body += f"{head}\r\n\r\n".encode("utf-8", "replace")
        body += (stub(entry.value) if entry.value else b"") if entry.is_file else _bytes(_crlf(entry.value))
        body += b"\r\n"
    body += f"--{boundary}--\r\n".encode("ascii")
    return f"multipart/form-data; boundary={boundary}", bytes(body)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _form(text: str) -> str:
    if text.isascii() and text.isalnum():  # nearly every name, and most values
        return text
    return quote_plus(text, safe="*", errors="replace").replace("~", "%7E")


def _crlf(text: str) -> str:
    return (
        text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n") if "\n" in text or "\r" in text else text
    )


def _part(text: str) -> str:
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


@lru_cache(maxsize=256)
def _type_of(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"
