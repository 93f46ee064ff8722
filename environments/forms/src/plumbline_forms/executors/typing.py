"""What a control holds after a user typed or pasted a text into it. One law for every executor.

The law is that of a person at a browser: a line break in a single line becomes a blank, maxlength cuts off, a date is
a date however it is spelled, and keys that a control does not take leave no trace.
"""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from plumbline_forms.constraints import PICKED, read_color, read_decimal, read_limit, sanitised, utf16_length

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
_CLOCK = re.compile(
    r"(\d{1,2})(?:[:h.](\d{2}))?(?::(\d{2}(?:\.\d{1,3})?))?\s*(h|hs|horas|min)?\s*([ap])?\.?(?:m\.?)?", re.IGNORECASE
)
_MONTH = re.compile(r"(\d{4})[-/.](\d{1,2})|(\d{1,2})[-/.](\d{4})|([^\W\d_]{3,9})\.?,?\s+(?:(?:of|de)\s+)?(\d{4})")
_WEEK = re.compile(
    r"(\d{4})-?\s?W(\d{1,2})|(?:week|semana|w)\s*(\d{1,2})(?:,?\s+|/|-)(?:(?:of|de)\s+)?(\d{4})", re.IGNORECASE
)
_MOMENT = re.compile(r"(.*?\S)(?:T|,\s*|,?\s+(?:(?:at|as|às)\s+)?)(\d{1,2}(?:[:h.ap\s].*|h)?)", re.IGNORECASE)
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
        language: of the page ("en", "pt"): it decides 03/04/2026, and what 1.234 is. So a text goes through here once:
            on a page in Portuguese 12,345 is 12.345, and that would be twelve thousand.
        maxlength: in UTF-16 code units.
    """
    if kind == "number" or kind in PICKED:
        return _special(kind, text.strip(), language)
    plain = _CONTROL.sub("", text)
    plain = _BREAKS.sub("\n" if kind == "textarea" else " ", plain)
    if kind in {"email", "url"}:
        plain = plain.strip(" \t\n\f\r")
    if maxlength is not None and utf16_length(plain) > maxlength:
        plain = _cut(plain, maxlength)
    return Typed(plain)


def held(kind: str, text: str, attributes: Mapping[str, str]) -> Typed:
    """What a control with these attributes holds after it was given a text that `typed` gave."""
    if kind == "number" and text and read_decimal(text) is None:
        return Typed("", refused=True)
    limit = read_limit(attributes.get("maxlength", "")) if kind not in PICKED | {"number"} else None
    return Typed(sanitised(kind, text if limit is None else _cut(text, limit), attributes))


def _cut(text: str, units: int) -> str:
    """The first so many UTF-16 code units, without half a sign at the end."""
    return text.encode("utf-16-le", "replace")[: 2 * units].decode("utf-16-le", "ignore")


@lru_cache(maxsize=4096)
def _special(kind: str, text: str, language: str) -> Typed:
    if not text:
        return Typed("")
    match kind:
        case "number" | "range":
            value = read_number(text, language)
        case "date":
            value = read_date(text, language)
        case "time":
            value = read_time(text)
        case "color":
            value = read_color(text)
        case _:
            value = _read_span(kind, text, language) if len(text) < 60 else ""
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


def _read_span(kind: str, text: str, language: str) -> str:
    """The value of a month, a week or a local date and time in one of the usual spellings; "" where it is none."""
    if kind == "datetime-local":
        match = _MOMENT.fullmatch(text)
        day, hour = (read_date(match.group(1), language), read_time(match.group(2))) if match else ("", "")
        return f"{day}T{hour}" if day and hour else ""
    if kind == "week":
        match = _WEEK.fullmatch(text)
        value = f"{match.group(1) or match.group(4)}-W{int(match.group(2) or match.group(3)):02d}" if match else ""
    else:
        match = _MONTH.fullmatch(text)
        number = match and int(match.group(2) or match.group(3) or _month(match.group(5)))
        value = f"{match.group(1) or match.group(4) or match.group(6)}-{number:02d}" if match else ""
    return sanitised(kind, value, {})


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
    """HH:MM for a time of day in one of the usual spellings (14:30, 2:30 PM, 14h30, 2pm); "" where it is none.

    Seconds stay where there are any: 14:30:15.
    """
    match = _CLOCK.fullmatch(text) if len(text) < 20 else None
    if match is None or (match.group(2) is None and not match.group(4) and not match.group(5)):
        return ""
    hours, minutes = int(match.group(1)), int(match.group(2) or 0)
    half = (match.group(5) or "").casefold()
    if half:
        if not 1 <= hours <= 12:
            return ""
        hours = hours % 12 + (12 if half == "p" else 0)
    if hours > 23 or minutes > 59 or float(match.group(3) or 0) >= 60:
        return ""
    return f"{hours:02d}:{minutes:02d}" + (f":{match.group(3)}" if float(match.group(3) or 0) else "")


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
