"""What controls hold and which values a browser does not send: rules of HTML and of a user, as
functions of texts.

The site uses them to check what it receives, and the direct executor to know what a browser would
send. They cover the kinds of controls and the patterns that Plumbline's forms and FormFactory's
have.

A user's text follows one law in every executor: a line break in a single line becomes a blank,
maxlength cuts off, a date is a date however it is spelled, and keys that a control does not take
leave no trace.
"""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path

from pydantic_core import Url, ValidationError

from plumbline.tasks.tables import read_table

TYPED = frozenset({"text", "search", "tel", "url", "email", "password", "textarea", "number"})
"""Kinds of controls that take keys."""
PICKED = frozenset({"date", "month", "week", "time", "datetime-local", "range", "color"})
"""Kinds of controls whose value is set as a whole."""
_LINES = TYPED - {"textarea", "number"}
"""Kinds with a single line of text; patterns are for these alone."""
MAX_DIGITS = 100
"""Longer texts are no numbers: nobody enters them, and arithmetic on them would take long."""
_BLANK = " \t\n\f\r"

# -- numbers, dates and times in the form that HTML sends ------------------------------------------

_NUMBER = re.compile(r"-?(\d+(\.\d+)?|\.\d+)([eE][-+]?\d{1,3})?")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,3}))?)?")
_DAYS = {
    kind: re.compile(form, re.ASCII)
    for kind, form in (
        ("date", r"\d{4}-\d\d-\d\d"),
        ("month", r"\d{4}-\d\d"),
        ("week", r"\d{4}-W\d\d"),
    )
}
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:.+)")
_LIMIT = re.compile(r"[ \t\n\f\r]*\+?(\d{1,9})(?!\d)", re.ASCII)
_NUMBERS = frozenset({"number", "range"})
_DAY = 86_400_000
"""Milliseconds."""
_STEPS: Mapping[str, tuple[int, int, int]] = {
    "number": (1, 1, 0),
    "range": (1, 1, 0),
    "date": (1, 1, 719_163),
    "month": (1, 1, 0),
    "week": (1, 7, 719_160),
    "time": (60, 1000, 0),
    "datetime-local": (60, 1000, 719_163 * _DAY),
}
"""By kind: the default step, what a step is multiplied with, and where the steps begin."""


def read_decimal(text: str) -> Decimal | None:
    """A valid floating-point number of HTML that a double can hold; None for everything else."""
    if len(text) > MAX_DIGITS or not text.isascii() or not _NUMBER.fullmatch(text):
        return None
    try:
        return Decimal(text) if abs(float(text)) != float("inf") else None
    except InvalidOperation:
        return None


def read_limit(text: str) -> int | None:
    """A length limit; None where the text begins with no number."""
    match = _LIMIT.match(text)
    return int(match.group(1)) if match else None


def _scalar(kind: str, text: str) -> Decimal | None:
    """A value as a number: days, months, or milliseconds of a day; None where it is no value of the
    kind."""
    if kind in _NUMBERS:
        return read_decimal(text)
    if kind == "datetime-local":
        parts = _MOMENT.fullmatch(text)
        day, clock = (
            (_scalar("date", parts[1]), _scalar("time", parts[2])) if parts else (None, None)
        )
        return None if day is None or clock is None else day * _DAY + clock
    if kind != "time":
        try:
            return _days(kind, text)
        except ValueError:
            return None
    match = _TIME.fullmatch(text) if text.isascii() else None
    if match is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.groups()[:3])
    return Decimal(
        ((hours * 60 + minutes) * 60 + seconds) * 1000 + int((match.group(4) or "").ljust(3, "0"))
    )


def _days(kind: str, text: str) -> Decimal | None:
    """The day of a date, the first day of a week, or the number of a month.

    Raises:
        ValueError: there is no such day, week or month.
    """
    if not _DAYS[kind].fullmatch(text):
        return None
    first = datetime.date.fromisoformat(f"{text}-01" if kind == "month" else text)
    return Decimal(
        (first.year - 1970) * 12 + first.month - 1 if kind == "month" else first.toordinal()
    )


def range_problem(
    kind: str,
    text: str,
    minimum: str | None,
    maximum: str | None,
    step: str | None,
    value: str | None = None,
) -> str:
    """Why a number, date or time is out of its range or off its step: "min", "max", "step", or ""
    where it is not.

    Args:
        kind: of the control.
        text: what it holds.
        minimum: the attribute min.
        maximum: the attribute max.
        step: the attribute step.
        value: the attribute value: steps are counted from it where there is no minimum.
    """
    number = _scalar(kind, text) if kind in _STEPS else None
    if number is None:
        return ""
    low, high, first = (_scalar(kind, limit or "") for limit in (minimum, maximum, value))
    usual, scale, origin = _STEPS[kind]
    base = low if low is not None else first if first is not None else Decimal(origin)
    if kind == "time" and low is not None and high is not None and low > high:
        low, high = (low, None) if high < number < low else (None, None)  # a span over midnight
    if kind == "range":
        low = high = None  # it stands nowhere else
    if low is not None and number < low:
        return "min"
    if high is not None and number > high:
        return "max"
    if (step or "").lower() == "any":
        return ""
    size = read_decimal(step or "")
    size = Decimal(usual) if size is None or size <= 0 else size
    size *= scale
    if kind not in _NUMBERS:
        size = max(Decimal(1), size.quantize(Decimal(1), ROUND_HALF_UP)) if size < 10**20 else size
    # A browser counts in doubles: beyond 53 bits each number is on a step, and so is what differs
    # by a float's error.
    away = abs(number - base)
    if away / 2**53 > size:
        return ""
    error = size / 2**24 if kind in _NUMBERS else 0
    return "step" if error < away % size < size - error else ""


# -- addresses -------------------------------------------------------------------------------------

_EMAIL = re.compile(
    r"[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
    r"(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*"
)
_WIDE = re.compile(r"[^\x00-\x7f]")
_SPECIAL = re.compile(r"(?:https?|wss?|ftp):", re.IGNORECASE)


def is_email(text: str) -> bool:
    """Whether a browser takes it for an e-mail address."""
    return text.isascii() and _EMAIL.fullmatch(text) is not None


def _parts(kind: str, text: str, attributes: Mapping[str, str]) -> list[str]:
    """The addresses of a control that takes several; what another one holds, whole."""
    return text.split(",") if kind == "email" and "multiple" in attributes else [text]


def is_url(text: str) -> bool:
    """Whether a browser takes it for an absolute address: a scheme, and a host where the scheme
    needs one."""
    text = re.sub(r"[\t\n\r]", "", text.strip(_BLANK))
    if _SPECIAL.match(text):
        text = re.sub(" |xn--", "x", text)  # Chromium lets blanks and any such prefix be in a host
    try:
        Url(text)
    except ValidationError:
        return False
    return True


def is_valid(kind: str, text: str) -> bool:
    """Whether a text has the form that controls of a kind send."""
    if kind in {"email", "url"}:
        return is_email(text) if kind == "email" else is_url(text)
    return kind not in _STEPS or _scalar(kind, text) is not None


def _ascii_host(address: str) -> str:
    """An address with its host in the ASCII form of internationalised names, as browsers send
    it."""
    local, _, host = address.rpartition("@")
    if address.isascii() or not is_email(f"{local}@{_WIDE.sub('x', host)}"):
        return address
    try:
        found = f"{local}@{host.encode('idna').decode('ascii').lower()}"
    except UnicodeError:
        return address
    return found if is_email(found) else address


# -- patterns --------------------------------------------------------------------------------------


class UnreadPatternError(ValueError):
    """A pattern asks for more than is read here."""


_MEMBER = r"(?:[\w .,:;@'\"#%+=!?*<>]|\\[-\\^$.*+?()[\]{}|/dw])"
_ATOM = (
    rf"(?:[^\\^$.*+?()\[\]{{}}|]|\\[\\^$.*+?()[\]{{}}|/dw]|\[\^?(?:{_MEMBER}(?:-{_MEMBER})?)+\])"
)
_TIMES = r"(?:\{\d{1,3}\})?"
_STRETCH = rf"(?:{_ATOM}{_TIMES}|\((?:{_ATOM}{_TIMES})+\){_TIMES})*"
_DOUBLED = re.compile(r"([!#%*+,.:;<=>?@])\1")  # JavaScript reserves them in classes
_ERRONEOUS = re.compile(
    rf"(?<!\\)\[\^?(?:{_MEMBER}(?:-{_MEMBER})?+)*+(?:-(?!-)|[(){{}}/|])", re.ASCII
)
_READ = re.compile(
    rf"{_STRETCH}(?:{_ATOM}(?:[?*+]|\{{\d{{1,3}},\d{{0,3}}\}}){_STRETCH})?", re.ASCII
)


@lru_cache(maxsize=512)
def read_pattern(pattern: str) -> re.Pattern[str] | None:
    """The attribute pattern: letters, classes and groups with fixed counts, and one piece of any
    length.

    None for a class with a sign that JavaScript wants escaped there ("[0-9-()]"): a browser ignores
    such a pattern.

    Python and JavaScript read such a pattern alike, and it takes no long on any text.

    Raises:
        UnreadPatternError: it is more than that.
    """
    if len(pattern) < 1000 and _ERRONEOUS.search(pattern):
        return None
    if len(pattern) > 1000 or _DOUBLED.search(pattern) or _READ.fullmatch(pattern) is None:
        raise UnreadPatternError(f"its pattern {pattern[:40]!r} is not read here")
    try:
        return re.compile(pattern, re.ASCII)
    except re.error as error:
        raise UnreadPatternError(f"its pattern is erroneous: {error}") from error


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text matches a pattern.

    Raises:
        UnreadPatternError: see `read_pattern`.
    """
    compiled = read_pattern(pattern)
    return compiled is None or compiled.fullmatch(text) is not None


# -- what a control holds --------------------------------------------------------------------------

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BREAKS = re.compile(r"\r\n?|\n")


@dataclass(frozen=True, slots=True)
class Typed:
    """What is in the control afterwards."""

    value: str
    refused: bool = False
    """Whether the control takes no such text (letters in a number); it is empty then."""


def utf16_length(text: str) -> int:
    """Length as browsers count it for maxlength and minlength; a line break counts once."""
    return len(text) if text.isascii() else len(text) + sum(letter > "\uffff" for letter in text)


def sanitised(kind: str, value: str, attributes: Mapping[str, str]) -> str:
    """The value that a control of this kind holds where it is given this one: the standard's
    sanitisation."""
    if kind == "range":
        return _on_the_range(value, attributes)
    if kind == "color":
        return _colour(value) or "#000000"
    if kind in _LINES:
        value = value.replace("\n", "").replace("\r", "")
        value = value.strip(_BLANK) if kind == "url" else value
        if kind == "email":
            value = ",".join(
                _ascii_host(one.strip(_BLANK)) for one in _parts(kind, value, attributes)
            )
        return value
    if not is_valid(kind, value):
        return ""
    if kind == "datetime-local":
        day, clock = value[:10], value[11:]
        clock = clock.rstrip("0").rstrip(".") if "." in clock else clock
        return f"{day}T{clock.removesuffix(':00') if len(clock) == 8 else clock}"
    return value


def _on_the_range(value: str, attributes: Mapping[str, str]) -> str:
    """The nearest number that a slider can stand at; its middle for what is none."""
    low, high, first = (read_decimal(attributes.get(name, "")) for name in ("min", "max", "value"))
    base = low if low is not None else first if first is not None else Decimal(0)
    low, high = low or Decimal(0), Decimal(100) if high is None else high
    high = max(low, high)
    number = read_decimal(value)
    number = low + (high - low) / 2 if number is None else min(max(number, low), high)
    step = attributes.get("step", "").lower()
    size = read_decimal(step) or Decimal(0)
    size = size if size > 0 else Decimal(1)
    if step != "any":
        number = base + size * ((number - base) / size + Decimal("0.5")).to_integral_value(
            ROUND_FLOOR
        )
        number = number - size if number > high else number
        number = min(max(number + size if number < low else number, low), high)
    text = str(number).lower()
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


_HEX = re.compile(r"#(?:([0-9a-f]{3})[0-9a-f]?|([0-9a-f]{6})(?:[0-9a-f]{2})?)")
_COLOURS: Mapping[str, str] = read_table(Path(__file__).with_name("colours.yaml"))


def _colour(text: str) -> str:
    """Six digits for a colour that has a name or digits; "" for every other text."""
    text = text.lower()
    match = _HEX.fullmatch(_COLOURS.get(text, text))
    if match is None:
        return ""
    return "#" + (match[2] or "".join(2 * digit for digit in match[1]))


def typed(kind: str, text: str, language: str = "en", maxlength: int | None = None) -> Typed:
    """What a control holds after the text was entered.

    Args:
        kind: "textarea", or the type of the input.
        text: what was entered.
        language: of the page ("en", "pt"): it decides 03/04/2026, and what 1.234 is. So a text goes
            through here once: on a page in Portuguese 12,345 is 12.345, and that would be twelve
            thousand.
        maxlength: in UTF-16 code units.
    """
    if kind in PICKED or kind == "number":
        return _special(kind, text.strip(), language)
    plain = _BREAKS.sub("\n" if kind == "textarea" else " ", _CONTROL.sub("", text))
    if kind in {"email", "url"}:
        plain = plain.strip(_BLANK)
    if maxlength is not None and utf16_length(plain) > maxlength:
        plain = _cut(plain, maxlength)
    return Typed(plain)


def held(kind: str, text: str, attributes: Mapping[str, str]) -> Typed:
    """What a control with these attributes holds after it was given a text that `typed` gave."""
    if kind == "number" and text and read_decimal(text) is None:
        return Typed("", refused=True)
    limit = read_limit(attributes.get("maxlength", "")) if kind in TYPED - {"number"} else None
    return Typed(sanitised(kind, text if limit is None else _cut(text, limit), attributes))


def _cut(text: str, units: int) -> str:
    """The first so many UTF-16 code units, without half a sign at the end."""
    return text.encode("utf-16-le", "replace")[: 2 * units].decode("utf-16-le", "ignore")


def invalid(kind: str, text: str, attributes: Mapping[str, str], *, edited: bool) -> str:
    """Why a browser does not send a form with this text in a control; "" where it does, and for an
    empty text.

    Args:
        kind: of the control, one that a user types into or picks a value of.
        text: what it holds.
        attributes: of the control.
        edited: whether a user changed it; only then it can be too short.
    """
    if not text:
        return ""
    if kind in _STEPS:
        found = range_problem(
            kind, text, *(attributes.get(name) for name in ("min", "max", "step", "value"))
        )
        return f"out of range ({found})" if found else ""
    parts = _parts(kind, text, attributes)
    if not all(is_valid(kind, one) for one in parts):
        return f"not a valid {kind}"
    if kind in _LINES and (pattern := attributes.get("pattern")) is not None:
        try:
            if not all(matches(pattern, one) for one in parts):
                return "not in the format that is asked for"
        except UnreadPatternError as error:
            return str(error)
    return (
        "too short"
        if edited and utf16_length(text) < (read_limit(attributes.get("minlength", "")) or 0)
        else ""
    )


# -- numbers, dates and times as people write them -------------------------------------------------

MONTHS: Mapping[str, tuple[str, ...]] = {
    "en": (
        *("January", "February", "March", "April", "May", "June", "July"),
        *("August", "September", "October", "November", "December"),
    ),
    "pt": (
        *("janeiro", "fevereiro", "março", "abril", "maio", "junho", "julho"),
        *("agosto", "setembro", "outubro", "novembro", "dezembro"),
    ),
}
_ISO = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[T ]00:00(?::00)?)?")
_SHORT = re.compile(r"(\d{1,2})[-/. ](\d{1,2})[-/. ](\d{4})")
_DAY_FIRST = re.compile(
    r"(\d{1,2})(?:st|nd|rd|th|º|°)?(?:\s+(?:of|de))?[\s-]+([^\W\d_]{3,9})\.?,?(?:\s+(?:de|of))?[\s-]+(\d{4})"
)
_MONTH_FIRST = re.compile(r"([^\W\d_]{3,9})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})")
_WEEKDAY = re.compile(r"^[^\W\d_]{3,9}(?:-feira)?,\s+")
_CLOCK = re.compile(
    r"(\d{1,2})(?:[:h.](\d{2}))?(?::(\d{2}(?:\.\d{1,3})?))?\s*(h|hs|horas|min)?\s*([ap])?\.?(?:m\.?)?",
    re.IGNORECASE,
)
_LONGEST_SPAN = 60
_GAP = re.compile(r"[T,]\s*|,?\s+(?:(?:at|às)\s+)?")
_YEAR_FIRST = re.compile(r"(\d{4})[-/.](\d{1,2})", re.ASCII)
_MONTH_NUMBER = re.compile(r"(\d{1,2})[-/. ](\d{4})", re.ASCII)
_WEEK_LAST = re.compile(r"(\d{4})[- ]?w(\d{1,2})", re.ASCII | re.IGNORECASE)
_WEEK_NUMBER = re.compile(
    r"(?:w|week|semana)\s?(\d{1,2})(?:,|\s(?:of|de))?\s(\d{4})", re.ASCII | re.IGNORECASE
)
_MONEY = re.compile(
    r"(?:r\$|us\$|\$|€|£|usd|eur|gbp|brl)|[\s\u00a0\u202f]|(?:%|reais|euros|dollars)$",
    re.IGNORECASE,
)
_GROUPED = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_GROUPED_PT = re.compile(r"-?\d{1,3}(?:\.\d{3})*(?:,\d+)?|-?\d+,\d+")


@lru_cache(maxsize=4096)
def _special(kind: str, text: str, language: str) -> Typed:
    match kind:
        case "number" | "range":
            value = read_number(text, language)
        case "date":
            value = read_date(text, language)
        case "time":
            value = read_time(text)
        case "color":
            value = _colour(text)
        case _:
            value = _read_span(kind, text, language)
    return Typed(value, refused=not value and bool(text))


def _read_span(kind: str, text: str, language: str) -> str:
    """A month, a week or a moment for one in the usual spellings; "" where it is none."""
    if len(text) > _LONGEST_SPAN:
        return ""
    if kind == "datetime-local":
        for gap in _GAP.finditer(text):
            day, clock = read_date(text[: gap.start()], language), read_time(text[gap.end() :])
            if day and clock:
                return f"{day}T{clock}"
        return ""
    if match := (_YEAR_FIRST if kind == "month" else _WEEK_LAST).fullmatch(text):
        year, place = match[1], match[2]
    elif match := (_MONTH_NUMBER if kind == "month" else _WEEK_NUMBER).fullmatch(text):
        place, year = match[1], match[2]
    else:
        return read_date(f"1 {text}", language)[:7] if kind == "month" else ""
    value = f"{year}-{'W' if kind == 'week' else ''}{int(place):02d}"
    return value if is_valid(kind, value) else ""


def read_date(text: str, language: str = "en") -> str:
    """An ISO date for a date in one of the usual spellings; "" where it is none.

    03/04/2026 is March 4 on an English page and 3 April on a Portuguese one; where only one reading
    is a date, it is that.
    """
    text = _WEEKDAY.sub("", text.strip()) if len(text) < 60 else ""
    if match := _ISO.fullmatch(text):
        year, month, day = map(int, match.groups())
    elif match := _SHORT.fullmatch(text):
        first, second, year = map(int, match.groups())
        month_first = (language == "en" and "." not in text and first <= 12) or second > 12
        month, day = (first, second) if month_first else (second, first)
    elif match := _DAY_FIRST.fullmatch(text):
        day, month, year = int(match.group(1)), _month(match.group(2)), int(match.group(3))
    elif match := _MONTH_FIRST.fullmatch(text):
        month, day, year = _month(match.group(1)), int(match.group(2)), int(match.group(3))
    else:
        return ""
    try:
        return datetime.date(year, month, day).isoformat()
    except ValueError:
        return ""


def _month(name: str) -> int:
    name = name.casefold()
    for number, names in enumerate(zip(*MONTHS.values(), strict=True), 1):
        known = [one.casefold() for one in names]
        if name in known or (len(name) in {3, 4} and any(one.startswith(name) for one in known)):
            return number
    return 0


def read_time(text: str) -> str:
    """HH:MM for a time of day in one of the usual spellings (14:30, 2:30 PM, 14h30, 2pm); "" where
    it is none.

    Seconds stay where there are any: 14:30:15.
    """
    match = _CLOCK.fullmatch(text) if len(text) < 20 else None
    if match is None or (match.group(2) is None and not match.group(4) and not match.group(5)):
        return ""
    hours, minutes, seconds = int(match.group(1)), int(match.group(2) or 0), match.group(3)
    if half := (match.group(5) or "").casefold():
        if not 1 <= hours <= 12:
            return ""
        hours = hours % 12 + (12 if half == "p" else 0)
    if hours > 23 or minutes > 59 or float(seconds or 0) >= 60:
        return ""
    return f"{hours:02d}:{minutes:02d}" + (f":{seconds}" if float(seconds or 0) else "")


def read_number(text: str, language: str = "en") -> str:
    """A number as a number control holds it, for one in the usual spellings; "" where it is none.

    Currency, blanks and thousands separators are what nobody types into such a control. A comma is
    the decimal mark on a Portuguese page, and between groups of three digits on an English one.
    """
    if len(text) > 60:
        return ""
    if read_decimal(text) is not None and not (
        language == "pt" and re.fullmatch(r"-?[1-9]\d{0,2}(\.\d{3})+", text)
    ):
        return text
    plain = _MONEY.sub("", text).removeprefix("+")
    if language == "pt" and _GROUPED_PT.fullmatch(plain):
        plain = plain.replace(".", "").replace(",", ".")
    elif _GROUPED.fullmatch(plain):
        plain = plain.replace(",", "")
    return plain if read_decimal(plain) is not None else ""
