"""Numbers as Brazilians and language models write them: `4,5`, `1.234,56`, `R$ 89,90`, `12,5%`,
`+0,5`, `1_000`.

A text that can be read in two ways (`"1.234"`, `R$ 1,234`, `4,5/5`, `3 a 5`) is not a number here:
None is returned, and the caller keeps the text, whose wrong type is seen, rather than a value that
only looks right.
"""

import math
import re
import unicodedata
from typing import NamedTuple


class Number(NamedTuple):
    """A number that was read, and what it took (names from
    `plumbline.tasks.text.lenient_json.REPAIRS`)."""

    value: int | float | None
    """None where the number is beyond all size (`1e999`, 5,000 digits)."""
    repairs: tuple[str, ...] = ()


_MAX_LENGTH = 400
"""Longer numbers are read as JSON only."""

CURRENCY = r"(?:(?:R|US|U|A|C)?\$|€|£|BRL|USD|EUR|r\$)"
NUMBER = re.compile(
    rf"""(?P<sign>[-+−]?)\s*
    (?P<before>{CURRENCY})?\s*
    (?P<inner_sign>[-+−]?)\s*
    (?P<body>0[xX][0-9a-fA-F]{{1,16}}(?!\w)|\d[\d.,_ \t\u00a0\u202f]*|[.,]\d+)
    (?P<exponent>[eE][-+−]?\d{{1,20}})?\s*
    (?P<after>%|{CURRENCY}|reais|real)?""",
    re.VERBOSE,
)

_JSON = re.compile(r"[-+]?\d+(\.\d+(?:[eE][-+]?\d+)?|[eE][-+]?\d+)?")
_INTEGER = re.compile(r"\d+")
_POINT = re.compile(r"\d+\.\d*|\.\d+")
_COMMA = re.compile(r"\d*,\d+")
_ONE_GROUP = re.compile(r"[1-9]\d{0,2}[.,]\d{3}")
_BRAZILIAN = re.compile(r"[1-9]\d{0,2}(?:(?:\.\d{3})+,\d+|(?:\.\d{3}){2,})")
_AMERICAN = re.compile(r"[1-9]\d{0,2}(?:(?:,\d{3})+\.\d+|(?:,\d{3}){2,})")
_BLANK_GROUPS = re.compile(
    r"[1-9]\d{0,2}(?:[\u00a0\u202f]\d{3})+(?:,\d+)?|[1-9]\d{0,2}(?: \d{3})+,\d+"
)
_BLANKS_AT_COMMA = re.compile(r"[ \t]*,[ \t]*")
_BLANKS = re.compile(r"[ \t\u00a0\u202f]")


def read_number(text: str, *, integer: bool = False, quoted: bool = False) -> Number | None:
    """Read a text that is one number and nothing else.

    Args:
        text: for example `4,5`, `-R$ 1.234,56`, `12,5 %`, `1,5e3`, `0x1F`. Blanks around it do not
            count.
        integer: whether a whole number is wanted. It decides what the text cannot: `"1.234"` and
            `1,234` are 1234 then, because 1.234 is no whole number.
        quoted: whether the text stood in quotes, where a lone `1.234` may be JSON's 1.234 or a
            Brazilian's 1234.

    Returns:
        The number and what it took to read it, or None where the text is no number or more than
        one.
    """
    text = text.strip()
    if len(text) > _MAX_LENGTH:
        return _json_number(text)
    match = NUMBER.fullmatch(text)
    if match is None or (match["sign"] and match["inner_sign"]):
        return None
    money = bool(match["before"] or (match["after"] or "%") != "%")
    read = _body(
        match["body"].strip(), match["exponent"] or "", integer=integer, quoted=quoted, money=money
    )
    if read is None or read.value is None:
        return read
    repairs = list(read.repairs)
    sign = match["sign"] or match["inner_sign"]
    if sign in ("+", "−"):
        repairs.append("number_form")
    if money:
        repairs.append("currency")
    if match["after"] == "%":
        repairs.append("percent")
    return Number(-read.value if sign in ("-", "−") else read.value, tuple(repairs))


def _json_number(text: str) -> Number | None:
    match = _JSON.fullmatch(text)
    if match is None:
        return None
    if match[1] is not None:
        return _finite(text, [])
    try:
        return Number(int(text))
    except ValueError:  # Python converts no more than 4,300 digits
        return Number(None, ("non_finite",))


def _body(body: str, exponent: str, *, integer: bool, quoted: bool, money: bool) -> Number | None:
    """The number without its sign, currency and percent sign."""
    if body[:2] in ("0x", "0X"):
        return Number(int(body, 16), ("number_form",))
    repairs: list[str] = []
    plain = _BLANKS_AT_COMMA.sub(",", body)
    if _BLANKS.search(plain):
        if not _BLANK_GROUPS.fullmatch(plain):
            return None
        plain = _BLANKS.sub("", plain)
        repairs.append("thousands")
    if "_" in plain:
        if "__" in plain or plain[-1] == "_" or "," in plain or "._" in plain or "_." in plain:
            return None
        plain = plain.replace("_", "")
        repairs.append("number_form")
    if _INTEGER.fullmatch(plain) and not exponent:
        if len(plain) > 1 and plain[0] == "0":
            repairs.append("number_form")
        return Number(int(plain), tuple(repairs))
    grouped = _without_groups(plain, integer=integer, quoted=quoted, money=money)
    if grouped is None:
        return None
    plain, found = grouped
    if found == "thousands" and exponent:
        return None
    repairs += [found] if found else []
    if not plain.isdecimal() or exponent:
        return _finite(plain + exponent.replace("−", "-"), repairs)
    return Number(int(plain), tuple(repairs))


def _without_groups(
    plain: str, *, integer: bool, quoted: bool, money: bool
) -> tuple[str, str] | None:
    """The digits with a point for the decimals, and the repair that it took; None where there are
    two readings."""
    if _INTEGER.fullmatch(plain):
        return plain, ""
    if _ONE_GROUP.fullmatch(plain):
        point = "." in plain
        if integer and (quoted or not point):
            return plain.replace(",", "").replace(".", ""), "thousands"
        # US thousands, or a price with three decimals, as fuel has in Brazil
        if money and not point:
            return None
        if money:  # no price in reais has three decimals behind a point
            return plain.replace(".", ""), "thousands"
        if point:
            return None if quoted else (plain, "")
        return plain.replace(",", "."), "decimal_comma"
    if _POINT.fullmatch(plain):
        odd = plain[0] == "." or plain[-1] == "." or (plain[0] == "0" and plain[1] != ".")
        return plain, "number_form" if odd else ""
    if _COMMA.fullmatch(plain):
        return plain.replace(",", "."), "decimal_comma"
    if _BRAZILIAN.fullmatch(plain):
        return plain.replace(".", "").replace(",", "."), "thousands"
    if _AMERICAN.fullmatch(plain):
        return plain.replace(",", ""), "thousands"
    return None


def _finite(digits: str, repairs: list[str]) -> Number:
    value = float(digits)
    if math.isfinite(value):
        return Number(value, tuple(repairs))
    return Number(None, (*repairs, "non_finite"))


def without_accents(text: str) -> str:
    """A text in Unicode's compatibility decomposition (NFKD), less its combining marks: "São"
    becomes "Sao"."""
    if text.isascii():
        return text
    return "".join(
        char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char)
    )
