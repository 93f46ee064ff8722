"""What a control holds after a user typed or pasted a text into it. One law for every executor.

The law is that of a person at a browser: a line break in a single line becomes a blank, maxlength cuts off, a date is
a date however it is spelled, and keys that a control does not take leave no trace.
"""

import datetime
import re
from dataclasses import dataclass
from functools import lru_cache

from plumbline.tasks.forms.constraints import read_decimal, utf16_length

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BREAKS = re.compile(r"\r\n?|\n")
_ISO = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[T ]00:00(?::00)?)?")
_SHORT = re.compile(r"(\d{1,2})[-/. ](\d{1,2})[-/. ](\d{4})")
_DAY_FIRST = re.compile(
    r"(\d{1,2})(?:st|nd|rd|th|º|°)?(?:\s+(?:of|de))?[\s-]+([^\W\d_]{3,9})\.?,?(?:\s+(?:de|of))?[\s-]+(\d{4})"
)
_MONTH_FIRST = re.compile(r"([^\W\d_]{3,9})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})")
_WEEKDAY = re.compile(r"^[^\W\d_]{3,9}(?:-feira)?,\s+")
_MONTHS = (
    ("january", "janeiro"),
    ("february", "fevereiro"),
    ("march", "março"),
    ("april", "abril"),
    ("may", "maio"),
    ("june", "junho"),
    ("july", "julho"),
    ("august", "agosto"),
    ("september", "setembro"),
    ("october", "outubro"),
    ("november", "novembro"),
    ("december", "dezembro"),
)
_CLOCK = re.compile(r"(\d{1,2})(?:[:h.](\d{2}))?(?::\d{2})?\s*(h|hs|horas|min)?\s*([ap])?\.?(?:m\.?)?", re.IGNORECASE)
_MONEY = re.compile(r"(?:r\$|us\$|\$|€|£|usd|eur|gbp|brl)|[\s\u00a0\u202f]|(?:%|reais|euros|dollars)$", re.IGNORECASE)
_GROUPED = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_GROUPED_PT = re.compile(r"-?\d{1,3}(?:\.\d{3})*(?:,\d+)?|-?\d+,\d+")


@dataclass(frozen=True, slots=True)
class Typed:
    """What is in the control afterwards."""

    value: str
    refused: bool = False
    """Whether the control takes no such text (letters in a number); it is empty then."""


def typed(kind: str, text: str, language: str = "en", maxlength: int | None = None) -> Typed:
    """What a control holds after the text was entered.

    Args:
        kind: "textarea", or the type of the input.
        text: what was entered.
        language: of the page ("en", "pt"): it decides 03/04/2026, and what 1.234 is.
        maxlength: in UTF-16 code units.
    """
    if kind in {"date", "time", "number"}:
        return _special(kind, text.strip(), language)
    plain = _CONTROL.sub("", text)
    plain = _BREAKS.sub("\n" if kind == "textarea" else " ", plain)
    if kind in {"email", "url"}:
        plain = plain.strip(" \t\n\f\r")
    if maxlength is not None and utf16_length(plain) > maxlength:
        plain = _cut(plain, maxlength)
    return Typed(plain)


def _cut(text: str, units: int) -> str:
    """The first so many UTF-16 code units, without half a sign at the end."""
    return text.encode("utf-16-le", "replace")[: 2 * units].decode("utf-16-le", "ignore")


@lru_cache(maxsize=4096)
def _special(kind: str, text: str, language: str) -> Typed:
    if not text:
        return Typed("")
    if kind == "number":
        number = read_number(text, language)
        return Typed(number) if number else Typed("", refused=True)
    value = read_date(text, language) if kind == "date" else read_time(text)
    return Typed(value) if value else Typed("", refused=True)


def read_date(text: str, language: str = "en") -> str:
    """An ISO date for a date in one of the usual spellings; "" where it is none.

    03/04/2026 is March 4 on an English page and 3 April on a Portuguese one; where only one reading is a date, it is
    that.
    """
    text = _WEEKDAY.sub("", text.strip()) if len(text) < 60 else ""
    if match := _ISO.fullmatch(text):
        return _day(*map(int, match.groups()))
    if match := _SHORT.fullmatch(text):
        first, second, year = map(int, match.groups())
        month_first = (language == "en" and "." not in text and first <= 12) or second > 12
        return _day(year, first, second) if month_first else _day(year, second, first)
    if match := _DAY_FIRST.fullmatch(text):
        return _day(int(match.group(3)), _month(match.group(2)), int(match.group(1)))
    if match := _MONTH_FIRST.fullmatch(text):
        return _day(int(match.group(3)), _month(match.group(1)), int(match.group(2)))
    return ""


def _month(name: str) -> int:
    name = name.casefold()
    for number, names in enumerate(_MONTHS, 1):
        if any(known == name or (len(name) in {3, 4} and known.startswith(name)) for known in names):
            return number
    return 0


def _day(year: int, month: int, day: int) -> str:
    try:
        return datetime.date(year, month, day).isoformat()
    except ValueError:
        return ""


def read_time(text: str) -> str:
    """HH:MM for a time of day in one of the usual spellings (14:30, 2:30 PM, 14h30, 2pm); "" where it is none."""
    match = _CLOCK.fullmatch(text) if len(text) < 20 else None
    if match is None or (match.group(2) is None and not match.group(3) and not match.group(4)):
        return ""
    hours, minutes = int(match.group(1)), int(match.group(2) or 0)
    half = (match.group(4) or "").casefold()
    if half:
        if not 1 <= hours <= 12:
            return ""
        hours = hours % 12 + (12 if half == "p" else 0)
    return f"{hours:02d}:{minutes:02d}" if hours < 24 and minutes < 60 else ""


def read_number(text: str, language: str = "en") -> str:
    """A number as a number control holds it, for one in the usual spellings; "" where it is none.

    Currency, blanks and thousands separators are what nobody types into such a control. A comma is the decimal mark
    on a Portuguese page, and between groups of three digits on an English one.
    """
    if len(text) > 60:
        return ""
    if read_decimal(text) is not None and not (language == "pt" and re.fullmatch(r"-?[1-9]\d{0,2}(\.\d{3})+", text)):
        return text
    plain = _MONEY.sub("", text).removeprefix("+")
    if language == "pt" and _GROUPED_PT.fullmatch(plain):
        plain = plain.replace(".", "").replace(",", ".")
    elif _GROUPED.fullmatch(plain):
        plain = plain.replace(",", "")
    return plain if read_decimal(plain) is not None else ""
