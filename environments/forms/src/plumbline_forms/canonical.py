"""What two entries of a kind have in common when they say the same: the form in which they are compared."""

import re
import unicodedata

from plumbline_forms.constraints import read_decimal
from plumbline_forms.suite.declaration import Field, Value
from plumbline_forms.suite.drawing import plain

Canonical = str | tuple[str, ...]
_PHONE = re.compile(r"[^\d+]")
_HOST = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://[^/?#]*)(.*)", re.DOTALL)


def gold(one: Field, value: Value) -> Canonical:
    """The canonical form of a record's value."""
    if isinstance(value, bool):
        return ("on",) if value else ()
    if isinstance(value, tuple):
        return tuple(sorted(value))
    return canonical(one, () if value is None else (value,))


def canonical(one: Field, values: tuple[str, ...]) -> Canonical:
    """The canonical form of what was received for a field."""
    if one.kind in {"checkbox", "checkboxes", "multiselect", "file"}:
        return tuple(sorted(value for value in values if value))
    text = values[0] if values else ""
    if one.kind in {"select", "radio", "time", "date", "password", "hidden"}:
        return text
    if one.kind == "number":
        number = read_decimal(text)
        return text if number is None else plain(number) if -50 < number.adjusted() < 50 else f"{number:E}"
    if one.kind == "email":
        return text.strip().casefold()
    if one.kind == "tel":
        return _PHONE.sub("", text)
    folded = " ".join(unicodedata.normalize("NFKC", text).split())
    if one.kind == "url" and (parts := _HOST.fullmatch(folded)):
        return parts.group(1).casefold() + parts.group(2).rstrip("/")
    return folded
