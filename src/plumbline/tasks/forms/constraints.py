"""The rules of HTML for what a control may hold, as pure functions of texts.

The site uses them to check what it receives, and the direct executor to know when a browser would not send a form.
"""

import re
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from plumbline.tasks.forms.suite.declaration import is_date

_NUMBER = re.compile(r"-?(\d+(\.\d+)?|\.\d+)([eE][-+]?\d{1,3})?")
_EMAIL = re.compile(
    r"[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
    r"(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*"
)
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:(//[^\s/?#@]+([/?#]\S*)?|(?!//)\S+)")
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?")
MAX_DIGITS = 100
"""Longer texts are no numbers: nobody enters them, and arithmetic on them would take long."""


def read_decimal(text: str) -> Decimal | None:
    """A valid floating-point number of HTML; None for everything else."""
    if len(text) > MAX_DIGITS or not text.isascii() or not _NUMBER.fullmatch(text):
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def is_email(text: str) -> bool:
    """Whether a browser takes it for an e-mail address."""
    return text.isascii() and _EMAIL.fullmatch(text) is not None


def is_url(text: str) -> bool:
    """Whether a browser takes it for an absolute address (simplified: a scheme, and a host where one is announced)."""
    return _URL.fullmatch(text) is not None


def is_time(text: str) -> bool:
    """Whether it is HH:MM or HH:MM:SS."""
    return text.isascii() and _TIME.fullmatch(text) is not None


def utf16_length(text: str) -> int:
    """Length as browsers count it for maxlength and minlength; a line break counts once."""
    return len(text) if text.isascii() else len(text) + sum(letter > "\uffff" for letter in text)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern)
    except re.error:  # a browser ignores a pattern that is none
        return None


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text matches; the suite's patterns mean the same in JavaScript and in Python."""
    compiled = _compiled(pattern)
    return compiled is None or compiled.fullmatch(text) is not None


def range_problem(kind: str, text: str, minimum: str | None, maximum: str | None, step: str | None) -> str:
    """Why a number, date or time is out of its range or off its step: "min", "max", "step", or "" where it is not."""
    if kind == "number":
        value = read_decimal(text)
        low, high = read_decimal(minimum or ""), read_decimal(maximum or "")
        if value is None:
            return ""
        if low is not None and value < low:
            return "min"
        if high is not None and value > high:
            return "max"
        if step != "any":
            size = read_decimal(step or "1") or Decimal(1)
            # Numbers like 1e300 have no step that anyone could see; a browser's doubles call them whole.
            if value.adjusted() < MAX_DIGITS / 4 and (value - (low or Decimal(0))) % size != 0:
                return "step"
        return ""
    if (kind == "date" and is_date(text)) or (kind == "time" and is_time(text)):
        if minimum and text < minimum:
            return "min"
        if maximum and text > maximum:
            return "max"
    return ""
