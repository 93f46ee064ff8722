"""Reads the body of a POST: the encodings that forms have, multi-values and file names included."""

import re
from urllib.parse import parse_qsl

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
        # latin-1 never fails, and bytes that no browser sends as they are come out wrong rather than as an error.
        return parse_qsl(body.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_FIELDS), []
    if kind.strip().lower() == "text/plain":
        return _plain_text(body.decode("utf-8", "replace")), []
    if kind.strip().lower() != "multipart/form-data":
        raise ValueError(f"a form is sent urlencoded, as multipart or as text, not as {kind.strip()[:60] or 'nothing'}")
    found = re.search(r'boundary="?([^";,\s]{1,200})"?', parameters)
    if found is None:
        raise ValueError("a multipart body needs a boundary")
    return _multipart(b"--" + found.group(1).encode("latin-1"), body)


def _plain_text(body: str) -> Pairs:
    """The entries of a text; a line without a sign of equality belongs to the value before it."""
    *lines, end = body.split("\r\n")
    if end or (lines and "=" not in lines[0]):
        raise ValueError("the body has a line that is no entry")
    entries: Pairs = []
    for line in lines:
        name, sign, value = line.partition("=")
        if sign:
            entries.append((name, value))
        else:
            entries[-1] = (entries[-1][0], f"{entries[-1][1]}\r\n{line}")
    return entries[:MAX_FIELDS]


def _multipart(boundary: bytes, body: bytes) -> tuple[Pairs, Pairs]:
    parts = (b"\r\n" + body).split(b"\r\n" + boundary)
    if len(parts) < 2 or not parts[-1].startswith(b"--") or len(parts) > MAX_FIELDS:
        raise ValueError("the multipart body is cut off, or has too many parts")
    entries: Pairs = []
    files: Pairs = []
    for part in parts[1:-1]:
        head, blank, content = part.partition(b"\r\n\r\n")
        names = {key: _plain(value) for key, value in _PARAMETER.findall(head.decode("utf-8", "replace"))}
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
