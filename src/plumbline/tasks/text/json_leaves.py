"""Reading one text, number or literal of nearly-JSON: the values that hold no others.

In an object, digits, a comma and digits are one number with decimals, because a key cannot begin with a digit; in an
array the comma separates. A number or word that the end of the text touches is left out: it may be half of another.
"""

import re
from collections.abc import Mapping
from typing import Any

from plumbline.tasks.text.json_escapes import unescape
from plumbline.tasks.text.json_schema import Schema
from plumbline.tasks.text.json_strings import BLANK, NAME, QUOTE, far_end, find_end, quoted_key
from plumbline.tasks.text.numbers import CURRENCY, read_number

MISSING: Any = object()
"""No value: the member or element is left out."""

_LITERALS: dict[str, Any] = {
    "true": True,
    "false": False,
    "null": None,
    "none": None,
    "nil": None,
    "undefined": None,
    "nan": None,
    "inf": None,
    "infinity": None,
    "verdadeiro": True,
    "verdadeira": True,
    "falso": False,
    "falsa": False,
    "nulo": None,
    "nula": None,
}
_JSON = frozenset({"true", "false", "null"})
_NON_FINITE = frozenset({"nan", "inf", "infinity"})
_PORTUGUESE = frozenset({"verdadeiro", "verdadeira", "falso", "falsa", "nulo", "nula"})

_BLANKS = re.compile(rf"{BLANK}*+").match
_COMMENT = re.compile(r"//[^\n]*+|/\*.*?(?:\*/|\Z)|#[^\n]*+", re.DOTALL).match
_QUOTED_KEY = quoted_key("")

_SPACE = r"[ \t\u00a0\u202f]*"
_SIGNED = rf"[-+−]?{_SPACE}{CURRENCY}?{_SPACE}[-+−]?{_SPACE}"
_UNIT = rf"(?:[eE][-+−]?\d+)?(?:{_SPACE}(?:%|{CURRENCY}|reais\b|real\b))?"
_DIGITS = r"0[xX][0-9a-fA-F]+|\d[\d._]*+"
_GROUPED = r"\d{1,3}(?:[\u00a0\u202f]\d{3})+(?:,\d+)?|\d{1,3}(?: \d{3})+,\d+"
_NO_KEY = r"(?!\w*[\"'”’]?[ \t]*[:：])"
_DECIMALS = rf"(?:[ \t]*[,，][ \t]*\d[\d._]*+{_NO_KEY})*"
_NUMBER_IN_OBJECT = re.compile(rf"{_SIGNED}(?:{_GROUPED}|{_DIGITS}|[.,，]\d[\d_]*+{_NO_KEY}){_DECIMALS}{_UNIT}").match
_NUMBER_IN_ARRAY = re.compile(rf"{_SIGNED}(?:{_DIGITS}|\.\d[\d_]*+){_UNIT}").match
AFTER_VALUE = re.compile(
    rf"{BLANK}*+(?:\Z|[,，;；}}\]]|//|/\*|\#|```|~~~|</|{_QUOTED_KEY})|[ \t\r]*\n{BLANK}*(?:[}}\]]|{NAME}[ \t]*[:：=])"
).match
_BEFORE_ELEMENT = re.compile(rf"{BLANK}+{QUOTE}|[ \t\r]*\n\s*[-+−]?\.?\d|[ \t]+[-+−]?\.?\d(?!\d\d(?![\d.]))").match
"""What may follow a number of an array where the comma is missing; not what may be thousands (`1 234`)."""
_CUT = re.compile(r"[ \t]*\Z").match
_CUT_AT_COMMA = re.compile(r",\Z|[ \t]+,[ \t]*\Z").match
_MAY_HAVE_DECIMALS = re.compile(r"(?<![\d.,])(?:\d+|[1-9]\d{0,2}(?:(?:\.\d{3})+|(?:,\d{3})+))\Z").search

_WORD = re.compile(r"[-+]?[^\W\d]\w*+").match
_PLAIN = re.compile(r"[^,，;；\"“”{}\[\]\n<]*+").match
_SEPARATES = re.compile(
    rf"[,，;；]{BLANK}*+(?:\Z|[}}\],，]|//|/\*|\#|\.\.\.|…|```|{_QUOTED_KEY}"
    rf"|(?P<bare>{NAME})[ \t]*[:：=](?P<valued>{BLANK}*(?:{QUOTE}|[\d\[{{-]))?)"
).match
_ENDS_LINE = re.compile(rf"{BLANK}*+(?:\Z|[}}\]]|```|~~~|{_QUOTED_KEY}|{NAME}[ \t]*[:：=])").match
_COMMENT_IN_TEXT = re.compile(r"\s(?://|/\*|#\s)").search
_NUMBERS = re.compile(r"[:+−-]*[\d.;\s]*,[\d.,;\seE+−-]*\Z").match
_BREAK_AT_END = re.compile(r"\\[nrt]\Z").search
"""An escaped line break behind a value is none of its characters."""
_STRAY = "\"”’':`"
_STRUCTURE = re.compile(r"""[,{\[]\s*["“'][\w .-]{1,80}["”']\s*:""").search
_MAX_BARE = 500
_STRIPPED = "".join(map(chr, range(33))) + "\u00a0\u202f\ufeff\u200b\u200c\u200d\u2060"


class Leaves:
    """Reads single values; `repairs`, `pos` and `stopped` then say how.

    Args:
        text: the whole text.
        repairs: the names of the repairs are added here.
        raw: whether the backslashes in its quoted texts are plain.
        far: whether a quote inside of a text is part of it up to the next key (else up to where a value may end).
    """

    __slots__ = ("bare", "depth", "far", "lost", "pos", "raw", "reach", "repairs", "resume", "size", "stopped", "text")

    def __init__(self, text: str, repairs: set[str], *, raw: bool = False, far: bool = False) -> None:
        self.text = text
        self.far = far
        self.raw = raw
        self.size = len(text)
        self.repairs = repairs
        self.pos = 0
        """Behind what was read."""
        self.stopped = False
        """Whether the reading ended early: the text was cut off, or nobody can tell what it means from here on."""
        self.lost = False
        """Whether a member was left out because nobody can tell its value."""
        self.resume = 0
        """Where another value may be searched after a stop."""
        self.reach = 0
        """The farthest character that was looked at for a text that was not read."""
        self.depth = 0
        """How deep the object is nested whose next key is read."""
        self.bare = 0
        """How many values were texts without quotes."""

    def _stop(self, repair: str, pos: int, resume: int | None = None) -> Any:
        self.stopped = True
        self.repairs.add(repair)
        self.pos = pos
        self.resume = pos if resume is None else resume
        return MISSING

    def _lose(self) -> Any:
        """Leave out one value that nobody can tell, and go on."""
        self.lost = True
        self.repairs.add("unreadable")
        return MISSING

    def _gap(self, pos: int) -> int:
        """The place behind blanks and comments."""
        text = self.text
        pos = blanks_end(text, pos)
        while pos < self.size and text[pos] in "/#":
            comment = _COMMENT(text, pos)
            if comment is None:
                break
            self.repairs.add("comment")
            pos = blanks_end(text, comment.end())
        return pos

    def _text(self, pos: int, schema: Schema | None, known: Mapping[str, Schema] | None, *, in_array: bool) -> Any:
        """Read a quoted text."""
        text = self.text
        quote = text[pos]
        if quote in "\"'" and text.startswith(quote * 3, pos):
            end = text.find(quote * 3, pos + 3)
            self.repairs.add("quotes")
            if end < 0:
                return self._stop("truncated", self.size, pos + 1)
            if not (AFTER_VALUE(text, end + 3) or (in_array and _BEFORE_ELEMENT(text, end + 3))):
                return self._stop("unreadable", pos, pos + 1)
            self.pos = end + 3
            return text[pos + 3 : end]
        ending = far_end(text, pos + 1, known) if self.far and quote == '"' and not in_array else None
        if ending is None:
            self.reach = self.size if self.far and not in_array else self.reach
            ending = find_end(text, pos + 1, quote, in_array=in_array, known=known)
        if ending.state == "broken":
            self.reach = max(self.reach, ending.after)
            return self._stop("unreadable", pos, pos + 1)
        cut = ending.state == "cut"
        raw = content = text[pos + 1 : ending.end]
        if "\\" in raw:
            content, odd = unescape(raw, cut=cut, raw=self.raw)
            if odd:
                self.repairs.add("escape")
        if quote != '"' or ending.state == "unclosed":
            self.repairs.add("quotes")
        if ending.inner:
            self.repairs.add("inner_quotes")
        if not raw.isprintable() and any(char < " " for char in raw):
            self.repairs.add("control_character")
        if not cut:
            self.pos = ending.after
            return content
        # Where no quote follows, no other object can; a tag may end a thought that this object was part of.
        alone = not ending.inner and "</" not in raw
        self._stop("truncated", ending.after, self.size if alone else pos + 1)
        # Quotes inside, or the end of an object: its quote may be missing, and it may have swallowed its neighbours.
        swallowed = ending.inner or raw.rstrip()[-1:] in ("}", "]") or _STRUCTURE(raw) is not None
        return content if content.strip() and not swallowed and _may_be_half(content, schema) else MISSING

    def _number(self, pos: int, schema: Schema | None, *, in_array: bool) -> tuple[Any] | None:
        """Read a number; None where there is none."""
        text = self.text
        run = (_NUMBER_IN_ARRAY if in_array else _NUMBER_IN_OBJECT)(text, pos)
        if run is None or not (AFTER_VALUE(text, run.end()) or (in_array and _BEFORE_ELEMENT(text, run.end()))):
            return None
        end = run.end()
        integer = schema is not None and "integer" in schema.types and "number" not in schema.types
        cut = run[0][-1] != "%" and _CUT(text, end)  # 1 may be half of 12
        if not cut and not in_array and not integer:  # "0," may be half of "0,85"
            cut = _CUT_AT_COMMA(text, end) and _MAY_HAVE_DECIMALS(run[0])
        if cut:
            return (self._stop("truncated", self.size),)
        number = read_number(run[0].replace("，", ","), integer=integer)
        if number is None:
            return None
        if "，" in run[0]:
            self.repairs.add("separator")
        json_form = not number.repairs or number.repairs == ("percent",) or "non_finite" in number.repairs
        if not json_form and schema is not None and schema.textual:
            return None  # an identifier such as 00123 is a text there, and stays as it is written
        self.repairs.update(number.repairs)
        self.pos = end
        return (number.value,)

    def _literal(self, pos: int, schema: Schema | None) -> tuple[Any] | None:
        """Read true, None, undefined, NaN, verdadeiro and their like; None where there is none."""
        match = _WORD(self.text, pos)
        if match is None:
            return None
        word = match[0]
        plain = word.lstrip("+-").lower()
        if plain not in _LITERALS or (word[0] in "+-" and plain not in _NON_FINITE):
            return None
        if not AFTER_VALUE(self.text, match.end()):
            return None
        value = _LITERALS[plain]
        wanted = "null" if value is None else "boolean"
        if plain in _PORTUGUESE and schema is not None and schema.admits("string") and not schema.admits(wanted):
            return None
        if word not in _JSON:
            self.repairs.add("non_finite" if plain in _NON_FINITE else "literal")
        self.pos = match.end()
        return (value,)

    def _bare(self, pos: int, schema: Schema | None, known: Mapping[str, Schema] | None, *, in_array: bool) -> Any:
        """Read a text without quotes."""
        text = self.text
        at = pos
        while True:
            before = max(pos, at - 1)
            at = _end(_PLAIN(text, at), at)
            if at - pos > _MAX_BARE:
                return self._stop("unreadable", at, pos + 1)
            comment = _COMMENT_IN_TEXT(text, before, at)
            if comment is not None:
                at = comment.start()
                break
            if at >= self.size:
                return self._stop("truncated", pos)
            char = text[at]
            if char in "}]" or (char == "\n" and (in_array or _ENDS_LINE(text, at))):
                break
            if char in ",，;；":
                if in_array or _separates(text, at, known):
                    break
                at += 1
                continue
            opened = char in '"”' and text[pos:at].strip(_STRIPPED)[-1:] not in ("", ",")
            if opened and known is not None and at + 1 < self.size and AFTER_VALUE(text, at + 1):
                at += 1  # only its opening quote is missing
                break
            return self._stop("unreadable", pos, pos)
        bare = text[pos:at].strip(_STRIPPED)
        if bare[-1:] in _STRAY and bare:
            return self._without_stray(bare, at, schema)
        if not bare or (in_array and ":" in bare) or _BREAK_AT_END(bare):
            return self._stop("unreadable", pos, max(pos, at))
        if _NUMBERS(bare) and not (
            schema is not None and schema.textual
        ):  # a list without its brackets, perhaps: only this member is lost
            self.pos = at
            return self._lose()
        self.repairs.add("bare_string")
        self.bare += 1
        self.pos = at
        return bare

    def _without_stray(self, bare: str, at: int, schema: Schema | None) -> Any:
        """A value with a quote or colon at its end that belongs to nothing."""
        self.pos = at
        content = bare.rstrip(_STRAY)
        number = read_number(content) if bare[-1] == ":" else None
        if number is not None:
            self.repairs.update(number.repairs, ("junk",))
            return number.value
        # The opening quote of a text is missing, and the schema says of what type it is.
        if not content or bare[-1] == ":" or schema is None or content.lower() in _LITERALS:
            return self._lose()
        self.repairs.add("quotes")
        content, odd = unescape(content, raw=self.raw)
        if odd:
            self.repairs.add("escape")
        return content


def blanks_end(text: str, pos: int) -> int:
    """The place behind blanks."""
    return _end(_BLANKS(text, pos), pos)


def _end(match: re.Match[str] | None, otherwise: int) -> int:
    return match.end() if match is not None else otherwise


def _separates(text: str, at: int, known: Mapping[str, Schema] | None) -> bool:
    """Whether a comma ends a text without quotes: a key must follow, and `, word:` may be part of the text."""
    match = _SEPARATES(text, at)
    if match is None:
        return False
    bare = match["bare"]
    return not (bare and known and bare not in known and match["valued"] is None)


def _may_be_half(text: str, schema: Schema | None) -> bool:
    """Whether a text that was cut off may be kept: not where half of it means something else."""
    if schema is None:
        return True
    if schema.enum:
        longer = [member for member in schema.enum if isinstance(member, str) and member.startswith(text)]
        return longer == [text]
    return schema.admits("string")
