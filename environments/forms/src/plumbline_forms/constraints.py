"""The rules of HTML for what a control may hold, as pure functions of texts.

The site uses them to check what it receives, and the direct executor to know when a browser would not send a form.
"""

import ipaddress
import re
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

from plumbline_forms.characters import UnreadPatternError
from plumbline_forms.patterns import read_pattern

TYPED = frozenset({"text", "search", "tel", "url", "email", "password", "textarea", "number"})
"""Kinds of controls that take keys."""
PICKED = frozenset({"date", "month", "week", "time", "datetime-local", "range", "color"})
"""Kinds of controls whose value is set as a whole."""
_LINES = frozenset({"text", "search", "tel", "url", "email", "password"})
"""Kinds with a single line of text; patterns are for these alone."""
_NUMBER = re.compile(r"-?(\d+(\.\d+)?|\.\d+)([eE][-+]?\d{1,3})?")
_EMAIL = re.compile(
    r"[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
    r"(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*"
)
_WIDE = re.compile(r"[^\x00-\x7f]")
_BLANK = " \t\n\f\r"
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,3}))?)?")
_DATE = re.compile(r"(\d{4,6})-(\d\d)(?:-(\d\d))?")
_WEEK = re.compile(r"(\d{4,6})-W(\d\d)")
_HEX = re.compile(r"#(?:[0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})")
_RGB = re.compile(
    r"rgba?\(\s*(\d{1,3})(?:\s*,\s*(\d{1,3})\s*,\s*(\d{1,3})(?:\s*,\s*[\d.]*\d%?)?"
    r"|\s+(\d{1,3})\s+(\d{1,3})(?:\s*/\s*[\d.]*\d%?)?)\s*\)",
    re.ASCII,
)
_COLORS: Mapping[str, str] = {
    "aliceblue": "f0f8ff", "antiquewhite": "faebd7", "aqua": "00ffff", "aquamarine": "7fffd4", "azure": "f0ffff",
    "beige": "f5f5dc", "bisque": "ffe4c4", "black": "000000", "blanchedalmond": "ffebcd", "blue": "0000ff",
    "blueviolet": "8a2be2", "brown": "a52a2a", "burlywood": "deb887", "cadetblue": "5f9ea0", "chartreuse": "7fff00",
    "chocolate": "d2691e", "coral": "ff7f50", "cornflowerblue": "6495ed", "cornsilk": "fff8dc", "crimson": "dc143c",
    "cyan": "00ffff", "darkblue": "00008b", "darkcyan": "008b8b", "darkgoldenrod": "b8860b", "darkgray": "a9a9a9",
    "darkgreen": "006400", "darkgrey": "a9a9a9", "darkkhaki": "bdb76b", "darkmagenta": "8b008b",
    "darkolivegreen": "556b2f", "darkorange": "ff8c00", "darkorchid": "9932cc", "darkred": "8b0000",
    "darksalmon": "e9967a", "darkseagreen": "8fbc8f", "darkslateblue": "483d8b", "darkslategray": "2f4f4f",
    "darkslategrey": "2f4f4f", "darkturquoise": "00ced1", "darkviolet": "9400d3", "deeppink": "ff1493",
    "deepskyblue": "00bfff", "dimgray": "696969", "dimgrey": "696969", "dodgerblue": "1e90ff", "firebrick": "b22222",
    "floralwhite": "fffaf0", "forestgreen": "228b22", "fuchsia": "ff00ff", "gainsboro": "dcdcdc",
    "ghostwhite": "f8f8ff", "gold": "ffd700", "goldenrod": "daa520", "gray": "808080", "green": "008000",
    "greenyellow": "adff2f", "grey": "808080", "honeydew": "f0fff0", "hotpink": "ff69b4", "indianred": "cd5c5c",
    "indigo": "4b0082", "ivory": "fffff0", "khaki": "f0e68c", "lavender": "e6e6fa", "lavenderblush": "fff0f5",
    "lawngreen": "7cfc00", "lemonchiffon": "fffacd", "lightblue": "add8e6", "lightcoral": "f08080",
    "lightcyan": "e0ffff", "lightgoldenrodyellow": "fafad2", "lightgray": "d3d3d3", "lightgreen": "90ee90",
    "lightgrey": "d3d3d3", "lightpink": "ffb6c1", "lightsalmon": "ffa07a", "lightseagreen": "20b2aa",
    "lightskyblue": "87cefa", "lightslategray": "778899", "lightslategrey": "778899", "lightsteelblue": "b0c4de",
    "lightyellow": "ffffe0", "lime": "00ff00", "limegreen": "32cd32", "linen": "faf0e6", "magenta": "ff00ff",
    "maroon": "800000", "mediumaquamarine": "66cdaa", "mediumblue": "0000cd", "mediumorchid": "ba55d3",
    "mediumpurple": "9370db", "mediumseagreen": "3cb371", "mediumslateblue": "7b68ee", "mediumspringgreen": "00fa9a",
    "mediumturquoise": "48d1cc", "mediumvioletred": "c71585", "midnightblue": "191970", "mintcream": "f5fffa",
    "mistyrose": "ffe4e1", "moccasin": "ffe4b5", "navajowhite": "ffdead", "navy": "000080", "oldlace": "fdf5e6",
    "olive": "808000", "olivedrab": "6b8e23", "orange": "ffa500", "orangered": "ff4500", "orchid": "da70d6",
    "palegoldenrod": "eee8aa", "palegreen": "98fb98", "paleturquoise": "afeeee", "palevioletred": "db7093",
    "papayawhip": "ffefd5", "peachpuff": "ffdab9", "peru": "cd853f", "pink": "ffc0cb", "plum": "dda0dd",
    "powderblue": "b0e0e6", "purple": "800080", "rebeccapurple": "663399", "red": "ff0000", "rosybrown": "bc8f8f",
    "royalblue": "4169e1", "saddlebrown": "8b4513", "salmon": "fa8072", "sandybrown": "f4a460", "seagreen": "2e8b57",
    "seashell": "fff5ee", "sienna": "a0522d", "silver": "c0c0c0", "skyblue": "87ceeb", "slateblue": "6a5acd",
    "slategray": "708090", "slategrey": "708090", "snow": "fffafa", "springgreen": "00ff7f", "steelblue": "4682b4",
    "tan": "d2b48c", "teal": "008080", "thistle": "d8bfd8", "tomato": "ff6347", "turquoise": "40e0d0",
    "violet": "ee82ee", "wheat": "f5deb3", "white": "ffffff", "whitesmoke": "f5f5f5", "yellow": "ffff00",
    "yellowgreen": "9acd32",
}  # fmt: skip
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):(.*)", re.IGNORECASE | re.DOTALL)
_SPECIAL = frozenset({"http", "https", "ws", "wss", "ftp"})
_LIMIT = re.compile(r"[ \t\n\f\r]*\+?(\d{1,9})(?!\d)", re.ASCII)
MAX_DIGITS = 100
"""Longer texts are no numbers: nobody enters them, and arithmetic on them would take long."""
_LAST_DAY = 100_000_000
"""Days from 1970 to the last date that a browser knows, 275760-09-13."""
_DAY, _WEEK_MS = 86_400_000, 604_800_000
_STEPS: Mapping[str, tuple[int, int, int]] = {
    "number": (1, 1, 0),
    "range": (1, 1, 0),
    "date": (1, _DAY, 0),
    "month": (1, 1, 0),
    "week": (1, _WEEK_MS, -259_200_000),
    "time": (60, 1000, 0),
    "datetime-local": (60, 1000, 0),
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


def is_email(text: str) -> bool:
    """Whether a browser takes it for an e-mail address."""
    return text.isascii() and _EMAIL.fullmatch(text) is not None


def is_url(text: str) -> bool:
    """Whether a browser takes it for an absolute address: a scheme, and a host where the scheme needs one."""
    match = _SCHEME.fullmatch(re.sub(r"[\t\n\r]", "", text.strip(_BLANK)))
    if match is None:
        return False
    scheme, rest = match.group(1).lower(), match.group(2)
    if scheme == "file":
        rest = re.sub(r"\\", "/", rest)
        host = re.split("[/?#]", rest[2:], maxsplit=1)[0] if rest.startswith("//") else ""
        return (
            not host
            or re.fullmatch("[a-zA-Z]:", host) is not None
            or (":" not in host and _is_host(host, needed=True, special=True))
        )
    if scheme in _SPECIAL:
        rest = rest.lstrip("/\\")
    elif rest.startswith("//"):
        rest = rest[2:]
    else:
        return True
    authority = re.split(r"[/?#\\]" if scheme in _SPECIAL else "[/?#]", rest, maxsplit=1)[0]
    _, sign, host = authority.rpartition("@")
    return _is_host(host, needed=bool(sign) or scheme in _SPECIAL, special=scheme in _SPECIAL)


def _is_host(text: str, *, needed: bool, special: bool) -> bool:
    """Whether it is a host, perhaps with a port; hosts of special schemes are read as domains or as IPv4."""
    match = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(?::(\d*))?", text, re.DOTALL | re.ASCII)
    if match is None or (match.group(2) and int(match.group(2)[-9:]) > 65535):
        return False
    host = match.group(1)
    if host.startswith("["):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            return False
        return "%" not in host
    if not host:
        return not needed and match.group(2) is None
    if not special:
        return not re.search(r"[\x00\t\n\r #/<>?@\[\\\]^|]", host)
    if re.search(r"[\x00-\x1f\x7f#/:<>?@\[\\\]^|]|%(?![0-9a-fA-F]{2})", host):
        return False
    parts = host.removesuffix(".").split(".")
    if not re.fullmatch(r"\d+|0[xX][0-9a-fA-F]*", parts[-1], re.ASCII):
        return True
    numbers = [
        int("0" + part[2:], 16) if part[:2] in {"0x", "0X"} else int(part, 8 if part[0] == "0" else 10)
        for part in parts
        if re.fullmatch(r"0[xX][0-9a-fA-F]{0,8}|0[0-7]{0,11}|[1-9]\d{0,9}", part, re.ASCII)
    ]
    if len(numbers) != len(parts) or len(parts) > 4:
        return False
    return all(number < 256 for number in numbers[:-1]) and numbers[-1] < 256 ** (5 - len(parts))


def is_time(text: str) -> bool:
    """Whether it is HH:MM, HH:MM:SS, or that with a fraction of a second."""
    return text.isascii() and _TIME.fullmatch(text) is not None


def utf16_length(text: str) -> int:
    """Length as browsers count it for maxlength and minlength; a line break counts once."""
    return len(text) if text.isascii() else len(text) + sum(letter > "\uffff" for letter in text)


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text matches a pattern; an erroneous pattern is ignored, as browsers do.

    Raises:
        UnreadPatternError: the pattern asks for what is not read here, or for too much work on this text.
    """
    compiled = read_pattern(pattern)
    return compiled is None or compiled.fullmatch(text)


def sanitised(kind: str, value: str, attributes: Mapping[str, str]) -> str:
    """The value that a control of this kind holds where it is given this one: the standard's sanitisation."""
    if kind in _LINES:
        value = value.replace("\n", "").replace("\r", "")
        if kind == "email" and "multiple" in attributes:
            return ",".join(_ascii_host(part.strip(_BLANK)) for part in value.split(","))
        if kind == "email":
            return _ascii_host(value.strip(_BLANK))
        return value.strip(_BLANK) if kind == "url" else value
    if kind == "range":
        return _on_scale(value, attributes)
    if kind == "color":
        return read_color(value) or "#000000"
    if kind == "datetime-local":
        value = re.sub(r"^0+(?=\d{4}-)", "", value.replace(" ", "T", 1))
        value = re.sub(r"(:\d\d:\d\d)(?:\.0+|(\.\d*[1-9])0+)$", r"\1\2", value)
        value = re.sub(r"(T\d\d:\d\d):00$", r"\1", value)
    return value if kind not in _STEPS or _scalar(kind, value) is not None else ""


def _ascii_host(address: str) -> str:
    """An address with its host in the ASCII form of internationalised names, as browsers send it."""
    local, _, host = address.rpartition("@")
    if address.isascii() or not is_email(f"{local}@{_WIDE.sub('x', host)}"):
        return address
    try:
        found = f"{local}@{host.encode('idna').decode('ascii').lower()}"
    except UnicodeError:
        return address
    return found if is_email(found) else address


def read_color(text: str) -> str:
    """#rrggbb for a colour as CSS writes it, by digits or a name; "" where it is none."""
    text = text.casefold()
    if _HEX.fullmatch(text):
        digits = text[1:] if len(text) > 5 else "".join(2 * digit for digit in text[1:])
        return "#" + digits[:6]
    if match := _RGB.fullmatch(text):
        return "#" + "".join(f"{min(255, int(part)):02x}" for part in match.groups() if part)
    return f"#{_COLORS[text]}" if text in _COLORS else ""


def _on_scale(value: str, attributes: Mapping[str, str]) -> str:
    """Where a slider stands: within its ends, on a step, in the middle where the value is no number."""
    low = read_decimal(attributes.get("min", ""))
    low = Decimal(0) if low is None else low
    high = read_decimal(attributes.get("max", ""))
    high = max(low, Decimal(100) if high is None else high)
    number = read_decimal(value)
    number = min(high, max(low, low + (high - low) / 2 if number is None else number))
    step, base = _steps("range", attributes)
    if step is not None and abs(number - base) / step < 10**20:
        near = base + ((number - base) / step).quantize(Decimal(1), ROUND_HALF_UP) * step
        near = near - step if near > high else near + step if near < low else near
        number = near if low <= near <= high else number
    text = str(number + 0).lower()
    return text.rstrip("0").removesuffix(".") if "." in text and "e" not in text else text


def _steps(kind: str, attributes: Mapping[str, str]) -> tuple[Decimal | None, Decimal]:
    """The step, None where any value is on it, and a value that is on a step."""
    usual, scale, origin = _STEPS[kind]
    base = _scalar(kind, attributes.get("min", ""))
    base = _scalar(kind, attributes.get("value", "")) if base is None else base
    base = Decimal(origin) if base is None else base
    text = attributes.get("step", "")
    if text.lower() == "any":
        return None, base
    step = read_decimal(text)
    step = Decimal(usual) if step is None or step <= 0 else step
    if kind in {"date", "month", "week"}:
        step = max(Decimal(1), step.quantize(Decimal(1), ROUND_HALF_UP)) if step < 10**20 else step
    step *= scale
    if kind in {"time", "datetime-local"}:
        step = max(Decimal(1), step.quantize(Decimal(1), ROUND_HALF_UP)) if step < 10**20 else step
    return step, base


def _scalar(kind: str, text: str) -> Decimal | None:
    """A value as a number: milliseconds since 1970, months for a month; None where it is no value of the kind."""
    if kind in {"number", "range"}:
        return read_decimal(text)
    if not text.isascii():
        return None
    if kind == "time":
        match = _TIME.fullmatch(text)
        if match is None:
            return None
        hours, minutes, seconds = (int(part or 0) for part in match.groups()[:3])
        return Decimal(((hours * 60 + minutes) * 60 + seconds) * 1000 + int((match.group(4) or "").ljust(3, "0")))
    if kind == "datetime-local":
        day, _, hour = text.replace(" ", "T", 1).partition("T")
        days, clock = _scalar("date", day), _scalar("time", hour)
        return None if days is None or clock is None else days + clock
    if kind == "week":
        match = _WEEK.fullmatch(text)
        if match is None or int(match.group(1)) == 0:
            return None
        first = _first_monday(int(match.group(1)))
        day_number = first + 7 * (int(match.group(2)) - 1)
        there = first <= day_number < _first_monday(int(match.group(1)) + 1) and day_number <= _LAST_DAY
        return Decimal(day_number * _DAY) if there else None
    match = _DATE.fullmatch(text)
    if match is None or (match.group(3) is None) != (kind == "month"):
        return None
    year, month, day_of = int(match.group(1)), int(match.group(2)), int(match.group(3) or 1)
    if year == 0 or not 1 <= month <= 12 or day_of == 0:
        return None
    number = _days(year, month, 1) + day_of - 1
    if number >= _days(year + month // 12, month % 12 + 1, 1) or number > _LAST_DAY:
        return None
    return Decimal((year - 1970) * 12 + month - 1) if kind == "month" else Decimal(number * _DAY)


def _days(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 in the Gregorian calendar, for years that `datetime` does not know, too."""
    year, month = (year, month) if month > 2 else (year - 1, month + 12)
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 719_469


def _first_monday(year: int) -> int:
    """The day on which a year's first week begins: the one with January 4."""
    fourth = _days(year, 1, 4)
    return fourth - (fourth + 3) % 7


def range_problem(
    kind: str, text: str, minimum: str | None, maximum: str | None, step: str | None, value: str | None = None
) -> str:
    """Why a number, date or time is out of its range or off its step: "min", "max", "step", or "" where it is not.

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
    low, high = _scalar(kind, minimum or ""), _scalar(kind, maximum or "")
    if kind == "range":
        low = high = None  # a slider stands within its ends
    if kind == "time" and low is not None and high is not None and low > high:
        low, high = (low, None) if high < number < low else (None, None)  # a span over midnight
    if low is not None and number < low:
        return "min"
    if high is not None and number > high:
        return "max"
    size, base = _steps(kind, {"min": minimum or "", "step": step or "", "value": value or ""})
    away = abs(number - base)
    # A browser counts in doubles: beyond 53 bits each number is on a step, and so is what differs by a float's error.
    if size is None or away / 2**53 > size:
        return ""
    rest = away % size
    error = size / 2**24 if kind == "number" else 0
    return "step" if error < rest < size - error else ""


def invalid(kind: str, text: str, attributes: Mapping[str, str], *, edited: bool) -> str:
    """Why a browser does not send a form with this text in a control; "" where it does, and for an empty text.

    Args:
        kind: of the control, one that a user types into or picks a value of.
        text: what it holds.
        attributes: of the control.
        edited: whether a user changed it; only then it can be too short.
    """
    if not text:
        return ""
    if kind in _LINES or kind == "textarea":
        several = kind == "email" and "multiple" in attributes
        parts = text.split(",") if several else [text]
        if (kind == "email" and not all(map(is_email, parts))) or (kind == "url" and not is_url(text)):
            return f"not a valid {kind}"
        if kind != "textarea" and (pattern := attributes.get("pattern")) is not None:
            try:
                if not all(matches(pattern, part) for part in parts):
                    return "not in the format that is asked for"
            except UnreadPatternError as error:
                return str(error)
        if edited and utf16_length(text) < (read_limit(attributes.get("minlength", "")) or 0):
            return "too short"
        return ""
    found = range_problem(kind, text, *(attributes.get(name) for name in ("min", "max", "step", "value")))
    return f"out of range ({found})" if found else ""
