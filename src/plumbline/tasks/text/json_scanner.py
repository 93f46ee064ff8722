"""Reading one object or array that is nearly JSON, from its opening bracket on.

One pass, from left to right. Where the text can no longer be understood the scanner stops, and
keeps what came before.

In an object, digits, a comma and digits are one number with decimals, because a key cannot begin
with a digit. In an array a comma separates: `[4,5]` is two numbers. Only where the array separates
by `;`, or where a comma without a blank behind it cannot separate (`R$ 10,50`, `12,5%`, `4,05`), it
is a decimal comma; and where neither is clear the array is left out. A number or word that the end
of the text touches is left out: it may be half of another.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plumbline.tasks.text.json_schema import ANYTHING, Schema
from plumbline.tasks.text.json_strings import (
    BLANK,
    NAME,
    OPENING,
    QUOTE,
    Ending,
    far_end,
    find_end,
    place_behind,
    quoted_key,
    unescape,
)
from plumbline.tasks.text.numbers import CURRENCY, read_number

MISSING: Any = object()
"""No value: the member or element is left out."""
Known = Mapping[str, Schema]
"""The schemas of an object's keys, by the key; empty where the schema names none."""
_NO_KEYS = ANYTHING.properties

_MAX_DEPTH = 100
"""Nearly-JSON nested deeper than this is not read; valid JSON may be deeper."""
_MAX_BARE = 500

# The plain cases, at one match each.
_KEY = re.compile(r'\s*+"([^"\\\n]*+)"\s*+:\s*+').match
_TEXT = re.compile(r'"([^"\\\x00-\x1f]*+)"(?=\s*+(?:[}\]]|,\s*+["}\]]))').match
_NUMBER = re.compile(r'(-?(?:0|[1-9]\d{0,17}))(?:([.,])(\d+))?(?=\s*+(?:\}|,\s*+["}]))').match
_ELEMENT = re.compile(r"(-?(?:0|[1-9]\d{0,17}))(?:(\.)(\d+))?(?=\s*+[,\]])").match

# Keys, and what stands in their place.
_QUOTED_KEY = quoted_key("")
_ODD_KEY = re.compile(
    r"""(?:[uUbBrR](?=["']))?(?:
        "(?P<double>(?:[^"\\\n]|\\.)*+)"(?:"(?=\s*:))?
        |(?P<open>['“‘«`„”’´])(?!\s*['’])(?P<single>(?:[^\n\\,{}:"“”«»`]|\\.){0,200}?)["'”’»`´“](?:['’](?=\s*:))?
        |["'“‘](?P<unclosed>\w[\w-]{0,80})(?=\s*:(?!["'][\s:：]))
        |(?P<bare>[^\W\d](?:[\w.-]|\\_){0,80})(?P<stray>["'”’])?
        |(?P<digits>\d{1,20})
    )[BLANK]*(?P<separator>[:：]|=>?)\s*""".replace("[BLANK]", BLANK),
    re.VERBOSE,
).match
_KEY_ONLY = re.compile(r'"([^"\\\n]{1,120})"\s+(?=["\d\[{tfn-])').match
_CUT_KEY = re.compile(
    r"(?:[\"'“‘«`][^\"'”’»`:,{}\n]{0,120}[\"'”’»`]?|[^\W\d][\w.-]{0,80})\s*(?:```\s*|~~~\s*)?\Z"
).match
_JUNK = re.compile(r"[^\"'“”‘’{}\[\]\n,;:]{1,120}(?=[,}\n])").match

# What stands between values.
_BLANKS = re.compile(rf"{BLANK}*+").match
_COMMENT = re.compile(r"//[^\n]*+|/\*.*?(?:\*/|\Z)|#[^\n]*+", re.DOTALL).match
_COMMENTS = ("/", "#")
_ELLIPSIS = re.compile(r"\.{3,}|…").match
_FENCES = ("```", "~~~")
_FENCE_LINE = re.compile(r"(?:```|~~~)\s*(?:\n|\Z)").match
_SEPARATORS = ",，;；"
_CLOSES = re.compile(r"\s*(?:\Z|[}\]`~<]|,\s*(?:[{\"'“}]|[^\W\d]))|[ \t\r]*\n").match
"""What follows a brace that ends an object, where it stands for the bracket of an array, too."""
_AFTER_VALUE = re.compile(
    rf"{BLANK}*+(?:\Z|[,，;；}}\]]|//|/\*|\#|```|~~~|</|{_QUOTED_KEY})|[ \t\r]*\n{BLANK}*(?:[}}\]]|{NAME}[ \t]*[:：=])"
).match
_BEFORE_ELEMENT = re.compile(
    rf"{BLANK}+{QUOTE}|[ \t\r]*\n\s*[-+−]?\.?\d|[ \t]+[-+−]?\.?\d(?!\d\d(?![\d.]))"
).match
"""What may follow a number of an array where the comma is missing; not what may be thousands
(`1 234`)."""

# Numbers, words, and texts without quotes.
_SPACE = r"[ \t\u00a0\u202f]*"
_SIGNED = rf"[-+−]?{_SPACE}{CURRENCY}?{_SPACE}[-+−]?{_SPACE}"
_UNIT = rf"(?:[eE][-+−]?\d+)?(?:{_SPACE}(?:%|{CURRENCY}|reais\b|real\b))?"
_DIGITS = r"0[xX][0-9a-fA-F]+|\d[\d._]*+"
_GROUPED = r"\d{1,3}(?:[\u00a0\u202f]\d{3})+(?:,\d+)?|\d{1,3}(?: \d{3})+,\d+"
_NO_KEY = r"(?!\w*[\"'”’]?[ \t]*[:：])"
_DECIMALS = rf"(?:[ \t]*[,，][ \t]*\d[\d._]*+{_NO_KEY})*"
_NUMBER_IN_OBJECT = re.compile(
    rf"{_SIGNED}(?:{_GROUPED}|{_DIGITS}|[.,，]\d[\d_]*+{_NO_KEY}){_DECIMALS}{_UNIT}"
).match
_NUMBER_IN_ARRAY = re.compile(rf"{_SIGNED}(?:{_DIGITS}|\.\d[\d_]*+){_UNIT}").match
_CUT = re.compile(r"[ \t]*\Z").match
_CUT_AT_COMMA = re.compile(r",\Z|[ \t]+,[ \t]*\Z").match
_MAY_HAVE_DECIMALS = re.compile(
    r"(?<![\d.,])(?:\d+|[1-9]\d{0,2}(?:(?:\.\d{3})+|(?:,\d{3})+))\Z"
).search
_NUMBERS = re.compile(r"[:+−-]*[\d.;\s]*,[\d.,;\seE+−-]*\Z").match
_ITEM = r"""(?:[-+]?\d[\d.]*+|'[^'\\\n]*+'|"[^"\\\n]*+"|True|False|None)"""
_TUPLE = re.compile(rf"\(\s*({_ITEM}(?:,\s+{_ITEM})+|{_ITEM},)\s*\)").match
"""A flat tuple as Python prints it. Without a blank behind its commas it is none: `(4,5)` may be
one number."""
_WORD = re.compile(r"[-+]?[^\W\d]\w*+").match
_PLAIN = re.compile(r"[^,，;；\"“”{}\[\]\n<]*+").match
_SEPARATES = re.compile(
    rf"[,，;；]{BLANK}*+(?:\Z|[}}\],，]|//|/\*|\#|\.\.\.|…|```|{_QUOTED_KEY}"
    rf"|(?P<bare>{NAME})[ \t]*[:：=](?P<valued>{BLANK}*(?:{QUOTE}|[\d\[{{-]))?)"
).match
_ENDS_LINE = re.compile(rf"{BLANK}*+(?:\Z|[}}\]]|```|~~~|{_QUOTED_KEY}|{NAME}[ \t]*[:：=])").match
_COMMENT_IN_TEXT = re.compile(r"\s(?://|/\*|#\s)").search
_BREAK_AT_END = re.compile(r"\\[nrt]\Z").search
"""An escaped line break behind a value is none of its characters."""
_STRAY = "\"”’':`"
_STRUCTURE = re.compile(r"""[,{\[]\s*["“'][\w .-]{1,80}["”']\s*:""").search
_STRIPPED = "".join(map(chr, range(33))) + "\u00a0\u202f\ufeff\u200b\u200c\u200d\u2060"

_NON_FINITE = frozenset({"nan", "inf", "infinity"})
_PORTUGUESE = {
    "verdadeiro": True,
    "verdadeira": True,
    "falso": False,
    "falsa": False,
    "nulo": None,
    "nula": None,
}
_LITERALS: dict[str, bool | None] = {
    "true": True,
    "false": False,
    **_PORTUGUESE,
    **dict.fromkeys(("null", "none", "nil", "undefined", *_NON_FINITE)),
}


class Scanner:
    """Reads one object or array; `repairs`, `pos` and `stopped` then say how.

    Args:
        text: the whole text.
        repairs: the names of the repairs are added here.
        raw: whether the backslashes in its quoted texts are plain.
        far: whether a quote inside of a text is part of it up to the next key (else up to where a
            value may end).

    Example:
        repairs: set[str] = set()
        scanner = Scanner("{nota: 4,5}", repairs)
        scanner.read(0, ANYTHING) == {"nota": 4.5}
        repairs == {"bare_key", "decimal_comma"}
    """

    __slots__ = (
        "bare",
        "depth",
        "far",
        "lost",
        "near",
        "pos",
        "raw",
        "reach",
        "repairs",
        "resume",
        "size",
        "stopped",
        "text",
    )

    def __init__(
        self, text: str, repairs: set[str], *, raw: bool = False, far: bool = False
    ) -> None:
        self.text, self.size, self.repairs, self.raw, self.far = text, len(text), repairs, raw, far
        self.pos = 0
        """Behind what was read."""
        self.stopped = False
        """Whether the reading ended early: the text was cut off, or nobody can tell what it means
        from here on."""
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
        self.near: dict[int, int] = {}
        """From where on no text of an object ends far, by the identity of the keys that its schema
        names."""

    def read(self, start: int, schema: Schema) -> Any:
        """Read the object or array whose bracket is at `start`, or the elements behind a comma
        there.

        What was read before a stop is kept.
        """
        if self.text[start] == "{":
            return self.members(start + 1, schema, {}, 0)
        value = self._elements(start + 1, schema, 0)
        return [] if value is MISSING else value

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
        pos = place_behind(_BLANKS(self.text, pos), pos)
        while self.text[pos : pos + 1] in _COMMENTS and (comment := _COMMENT(self.text, pos)):
            self.repairs.add("comment")
            pos = place_behind(_BLANKS(self.text, comment.end()), pos)
        return pos

    # -- objects -----------------------------------------------------------------------------------

    def members(
        self, pos: int, schema: Schema, into: Any, depth: int, *, in_array: bool = False
    ) -> Any:
        """Read the members of an object, from behind its opening brace, into a dictionary, and
        return that."""
        text, repairs, known = self.text, self.repairs, schema.properties
        last: str | None = None
        comma = True
        while True:
            quick = _KEY(text, pos)
            if quick is not None:
                name, pos = quick[1], quick.end()
            else:
                pos = self._gap(pos)
                char = text[pos : pos + 1]
                if not char:
                    self._stop("truncated", self.size)
                    return into
                if char == "}":
                    if comma and last is not None:
                        repairs.add("trailing_comma")
                    self.pos = pos + 1
                    return into
                if char == "]":
                    repairs.add("brackets")
                    if in_array:
                        # Not the end of the array around it where a key of this very object
                        # follows.
                        behind = pos + 1 + (text[pos + 1 : pos + 2] == ",")
                        if _first_key(text, behind) not in known:
                            self.pos = pos
                            return into
                    if not in_array and last is not None and not isinstance(into.get(last), list):
                        # The bracket that opened a list here is missing.
                        if last in into and _wants_list(known, last):
                            into[last] = [into[last]]
                        else:
                            into.pop(last, None)
                            self._lose()
                    pos += 1
                    continue
                if char in _SEPARATORS:
                    if comma:
                        repairs.add("trailing_comma")
                    elif char != ",":
                        repairs.add("separator")
                    pos, comma = pos + 1, True
                    continue
                key = self._odd_key(pos, known)
                if key is None:
                    if char == "{" and in_array and comma and _first_key(text, pos + 1) in known:
                        repairs.add("brackets")  # the brace that ends this element is missing
                        self.pos = pos
                        return into
                    self.depth = depth
                    if last is not None and self._more_elements(pos, into, last, known):
                        comma = False
                    else:
                        self._not_a_key(pos, into, last)
                    if self.stopped:
                        return into
                    pos = self.pos
                    continue
                name, pos = key, self.pos
            if not comma:
                repairs.add("missing_comma")
            value = self._value(pos, known.get(name, ANYTHING), known, depth, in_array=False)
            if value is not MISSING:
                into[name] = value
            if self.stopped:
                if value is MISSING:
                    into.pop(name, None)  # the last of two values counts, and it was not read
                return into
            last, pos, comma = name, self.pos, False
            if text[pos : pos + 1] == ",":
                pos, comma = pos + 1, True

    def _more_elements(self, pos: int, into: dict[str, Any], last: str, known: Known) -> bool:
        """Read the elements that stand behind a list that was closed too early, or that no bracket
        opened."""
        old, char = into.get(last, MISSING), self.text[pos]
        if old is MISSING or self.depth >= _MAX_DEPTH or "inner_quotes" in self.repairs:
            return False
        kind = dict if char == "{" else str if char in QUOTE else None
        if kind is None:
            return False
        schema = known.get(last, ANYTHING)
        unopened = isinstance(old, kind) and _wants_list(known, last)
        array, schema = ([old], schema) if unopened else last_list(old, schema)
        if not array or not isinstance(array[-1], kind):
            return False
        if char == "{" and not unopened:
            named = schema.items.properties if schema.items is not None else None
            if _first_key(self.text, pos + 1) not in (named or array[-1]):
                return False
        self.repairs.add("brackets")
        more = self._elements(pos, schema, self.depth + 1, in_object=True, outer=known)
        cut = kind is str and self.stopped  # it may be half of the next key
        array += more if isinstance(more, list) and not cut else []
        if unopened:
            into[last] = array
        return True

    def _odd_key(self, pos: int, known: Known) -> str | None:
        """A key that is not plainly quoted; `self.pos` is then the place of its value."""
        match = _ODD_KEY(self.text, pos)
        if match is None:
            only = _KEY_ONLY(self.text, pos)
            if only is None or only[1] not in known:
                return None
            self.repairs.add("separator")
            self.pos = only.end()
            return only[1]
        self.pos = match.end()
        if match["separator"] != ":":
            self.repairs.add("separator")
        written = match["double"] if match["double"] is not None else match["single"]
        if written is not None:
            if self.text[pos] != '"':
                self.repairs.add("quotes")
            return self._unescape(written)
        self.repairs.add("quotes" if match["unclosed"] or match["stray"] else "bare_key")
        return match["unclosed"] or (match["bare"] or match["digits"]).replace("\\_", "_")

    def _not_a_key(self, pos: int, into: dict[str, Any], last: str | None) -> None:
        """Pass over what stands where a key should; the reading may stop there."""
        text = self.text
        if ellipsis := _ELLIPSIS(text, pos):
            self.repairs.add("ellipsis")
            self.pos = ellipsis.end()
        elif _CUT_KEY(text, pos) or text.startswith((*_FENCES, "</"), pos):
            self._stop("truncated", self.size if _CUT_KEY(text, pos) else pos, pos)
        elif junk := _JUNK(text, pos):
            self.repairs.add("junk")
            words = any(map(str.isalpha, junk[0]))
            if last is not None and not words and type(into.get(last, 0)) in (list, int, float):
                # Digits: the list before was closed too early, or the number before is half of one,
                # or was left out.
                into.pop(last, None)
                self._lose()
            self.pos = junk.end()
        else:
            # Quotes where no text is expected: the member before may have ended at the wrong one.
            if last is not None and text[pos] in QUOTE:
                into.pop(last, None)
            self._stop("unreadable", pos)

    # -- arrays ------------------------------------------------------------------------------------

    def _elements(
        self,
        pos: int,
        schema: Schema,
        depth: int,
        *,
        in_object: bool = False,
        outer: Known = _NO_KEYS,
    ) -> Any:
        """Read the elements of an array, from behind its opening bracket.

        Args:
            pos: the place behind the bracket.
            schema: of the array.
            depth: how deep it is nested.
            in_object: whether it is the value of a member.
            outer: the keys that the schema names for the object around it, if it does.
        """
        text, repairs = self.text, self.repairs
        child = schema.items or ANYTHING
        array = _Array()
        items = array.items
        comma, unclosed = True, False
        while True:
            pos = self._gap(pos)
            char = text[pos : pos + 1]
            if not char or text.startswith(_FENCES, pos):
                self._stop("truncated", pos)
                break
            if char in "]}":
                unclosed = char == "}"
                if unclosed and not _CLOSES(text, pos + 1):
                    repairs.add("brackets")
                    self._stop("unreadable", pos)
                elif not unclosed and comma and items:
                    repairs.add("trailing_comma")
                break
            if char in _SEPARATORS:
                if comma:
                    repairs.add("trailing_comma")
                if char in ";；":
                    array.semicolons.append(len(items))
                elif text[pos + 1 : pos + 2].isspace():
                    array.spaced[len(items)] = None
                pos, comma = pos + 1, True
                continue
            if ellipsis := _ELLIPSIS(text, pos):
                repairs.add("ellipsis")
                pos, comma = ellipsis.end(), False
                continue
            value = self._value(pos, child, _NO_KEYS, depth, in_array=True)
            behind = (
                place_behind(_BLANKS(text, self.pos), self.pos)
                if char in QUOTE and not self.stopped
                else self.size
            )
            if isinstance(value, str) and text.startswith((":", "："), behind):
                # The array was never closed, and this is the next key of the object around it; or
                # else its own object was never opened, or closed too early.
                scalars = bool(items) and not any(isinstance(item, dict | list) for item in items)
                unclosed = in_object and (value in outer if outer else scalars)
                if not unclosed:
                    self._stop("unreadable", pos)
                break
            if value is not MISSING:
                if not comma:
                    repairs.add("missing_comma")
                    array.joined.add(len(items))
                items.append(value)
                array.spans.append((pos, self.pos))
            if self.stopped:
                break
            pos, comma = self.pos, False
        wrapped = False
        if not self.stopped:
            self.pos = pos + (char == "]" or (char == "}" and not in_object))
            if unclosed:
                repairs.add("brackets")
                # It holds one array only, and either of their brackets is wrong.
                wrapped = len(items) == 1 and isinstance(items[0], list)
        value = MISSING if wrapped else array.value(text, repairs, integer=child.integral)
        return self._lose() if value is MISSING else value

    # -- values ------------------------------------------------------------------------------------

    def _value(self, pos: int, schema: Schema, known: Known, depth: int, *, in_array: bool) -> Any:
        """Read the value of a member, or an element of an array."""
        text = self.text
        char = text[pos : pos + 1]
        if char == '"':
            plain = _TEXT(text, pos)
            if plain is not None:
                self.pos = plain.end()
                return plain[1]
        elif char in "-0123456789" and char:
            number = (_ELEMENT if in_array else _NUMBER)(text, pos)
            if number is not None and (
                number[2] != "," or schema is ANYTHING or "number" in schema.types
            ):
                self.pos = number.end()
                if number[2] is None:
                    return int(number[1])
                if number[2] == ",":
                    self.repairs.add("decimal_comma")
                return float(f"{number[1]}.{number[3]}")
        elif not in_array and char not in "{[":
            pos = self._gap(pos)
            if text.startswith((":", "："), pos):
                self.repairs.add("separator")
                pos = self._gap(pos + 1)
            char = text[pos : pos + 1]
            if (
                char in ",，}];；"
                and char
                and not (char in ",，" and text[pos + 1 : pos + 2].isdecimal())
            ):
                self.repairs.add("missing_value")
                self.pos = pos
                return MISSING
            ellipsis = _ELLIPSIS(text, pos)
            if ellipsis is not None and _AFTER_VALUE(text, ellipsis.end()):
                self.repairs.add("ellipsis")
                self.pos = ellipsis.end()
                return MISSING
            if _FENCE_LINE(text, pos):
                return self._stop("truncated", pos)
        if not char:
            return self._stop("truncated", pos)
        if char in "{[":
            if depth >= _MAX_DEPTH:
                return self._stop("unreadable", pos)
            if char == "{":
                value = self.members(pos + 1, schema, {}, depth + 1, in_array=in_array)
            else:
                value = self._elements(
                    pos + 1, schema, depth + 1, in_object=not in_array, outer=known
                )
            return MISSING if self.stopped and not value else value
        if char in OPENING:
            return self._text(pos, schema, known, in_array=in_array)
        if char in "uUbBrR" and text[pos + 1 : pos + 2] in ("'", '"'):  # Python's u'…'
            self.repairs.add("quotes")
            return self._text(pos + 1, schema, known, in_array=in_array)
        if char == "(" and not schema.textual and (flat := _TUPLE(text, pos)):
            # A tuple of Python is the array that JSON has for it.
            self.repairs.add("brackets")
            inside = Scanner(f"[{flat[1].rstrip(',')}]", self.repairs, raw=self.raw)
            value = inside.read(0, schema)
            self.pos = flat.end()
            return (
                self._lose()
                if inside.stopped or inside.lost or not _AFTER_VALUE(text, self.pos)
                else value
            )
        found = self._number(pos, schema, in_array=in_array) or self._literal(pos, schema)
        return (
            found[0]
            if found is not None
            else self._read_bare_text(pos, schema, known, in_array=in_array)
        )

    def _text(self, pos: int, schema: Schema, known: Known, *, in_array: bool) -> Any:
        """Read a quoted text."""
        text = self.text
        quote = text[pos]
        if quote in "\"'" and text.startswith(quote * 3, pos):
            end = text.find(quote * 3, pos + 3)
            self.repairs.add("quotes")
            if end < 0:
                return self._stop("truncated", self.size, pos + 1)
            if not self._ends_value(end + 3, in_array=in_array):
                return self._stop("unreadable", pos, pos + 1)
            self.pos = end + 3
            return text[pos + 3 : end]
        ending = (
            self._far_end(pos + 1, known) if self.far and quote == '"' and not in_array else None
        )
        if ending is None:
            self.reach = self.size if self.far and not in_array else self.reach
            ending = find_end(text, pos + 1, quote, in_array=in_array, known=known)
        if ending.state == "broken":
            self.reach = max(self.reach, ending.after)
            return self._stop("unreadable", pos, pos + 1)
        cut = ending.state == "cut"
        raw = content = text[pos + 1 : ending.end]
        if "\\" in raw:
            content = self._unescape(raw, cut=cut)
        if quote != '"' or ending.state == "unclosed":
            self.repairs.add("quotes")
        if ending.inner:
            self.repairs.add("inner_quotes")
        if not raw.isprintable() and any(char < " " for char in raw):
            self.repairs.add("control_character")
        if not cut:
            self.pos = ending.after
            return content
        # Where no quote follows, no other object can; a tag may end a thought that this object was
        # part of.
        alone = not ending.inner and "</" not in raw
        self._stop("truncated", ending.after, self.size if alone else pos + 1)
        # Quotes inside, or the end of an object: its quote may be missing, and it may have
        # swallowed its neighbours.
        swallowed = ending.inner or raw.rstrip()[-1:] in ("}", "]") or _STRUCTURE(raw) is not None
        if swallowed or not content.strip():
            return MISSING
        # It may be kept where half of it means nothing else.
        longer = [one for one in schema.enum if isinstance(one, str) and one.startswith(content)]
        kept = longer == [content] if schema.enum else schema.admits("string")
        return content if kept else MISSING

    def _far_end(self, start: int, known: Known) -> Ending | None:
        """See `far_end`; where none follows, none follows further on."""
        if start >= self.near.get(id(known), self.size):
            return None
        ending = far_end(self.text, start, known)
        if ending is None:
            self.near[id(known)] = start
        return ending

    def _unescape(self, written: str, *, cut: bool = False) -> str:
        content, odd = unescape(written, cut=cut, raw=self.raw)
        if odd:
            self.repairs.add("escape")
        return content

    def _ends_value(self, pos: int, *, in_array: bool) -> bool:
        return bool(_AFTER_VALUE(self.text, pos) or (in_array and _BEFORE_ELEMENT(self.text, pos)))

    def _number(self, pos: int, schema: Schema, *, in_array: bool) -> tuple[Any] | None:
        """Read a number; None where there is none."""
        text = self.text
        run = (_NUMBER_IN_ARRAY if in_array else _NUMBER_IN_OBJECT)(text, pos)
        if run is None or not self._ends_value(run.end(), in_array=in_array):
            return None
        integer = schema.integral
        cut = run[0][-1] != "%" and _CUT(text, run.end())  # 1 may be half of 12
        if not cut and not in_array and not integer:  # "0," may be half of "0,85"
            cut = _CUT_AT_COMMA(text, run.end()) and _MAY_HAVE_DECIMALS(run[0])
        if cut:
            return (self._stop("truncated", self.size),)
        number = read_number(run[0].replace("，", ","), integer=integer)
        if number is None:
            return None
        if "，" in run[0]:
            self.repairs.add("separator")
        json_form = (
            not number.repairs or number.repairs == ("percent",) or "non_finite" in number.repairs
        )
        if not json_form and schema.textual:
            return None  # an identifier such as 00123 is a text there, and stays as it is written
        self.repairs.update(number.repairs)
        self.pos = run.end()
        return (number.value,)

    def _literal(self, pos: int, schema: Schema) -> tuple[Any] | None:
        """Read true, None, undefined, NaN, verdadeiro and their like; None where there is none."""
        match = _WORD(self.text, pos)
        plain = match[0].lstrip("+-").lower() if match is not None else ""
        if match is None or plain not in _LITERALS or not _AFTER_VALUE(self.text, match.end()):
            return None
        if match[0][0] in "+-" and plain not in _NON_FINITE:
            return None
        value = _LITERALS[plain]
        wanted = "null" if value is None else "boolean"
        if plain in _PORTUGUESE and schema.admits("string") and not schema.admits(wanted):
            return None
        if match[0] not in ("true", "false", "null"):
            self.repairs.add("non_finite" if plain in _NON_FINITE else "literal")
        self.pos = match.end()
        return (value,)

    def _read_bare_text(self, pos: int, schema: Schema, known: Known, *, in_array: bool) -> Any:
        """Read a text without quotes."""
        text = self.text
        at = pos
        while True:
            before = max(pos, at - 1)
            at = place_behind(_PLAIN(text, at), at)
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
            if char in _SEPARATORS:
                # In an object a key must follow, and `, word:` may be part of the text.
                follows = None if in_array else _SEPARATES(text, at)
                unknown = follows and follows["bare"] and known and follows["bare"] not in known
                if in_array or (follows and not (unknown and follows["valued"] is None)):
                    break
                at += 1
                continue
            opened = char in '"”' and text[pos:at].strip(_STRIPPED)[-1:] not in ("", ",")
            if opened and known and at + 1 < self.size and _AFTER_VALUE(text, at + 1):
                at += 1  # only its opening quote is missing
                break
            return self._stop("unreadable", pos, pos)
        bare = text[pos:at].strip(_STRIPPED)
        self.pos = at
        if bare[-1:] in _STRAY and bare:
            # A quote or colon at its end belongs to nothing.
            content = bare.rstrip(_STRAY)
            number = read_number(content) if bare[-1] == ":" else None
            if number is not None:
                self.repairs.update(number.repairs, ("junk",))
                return number.value
            # The opening quote of a text is missing, and the schema says of what type it is.
            if not content or bare[-1] == ":" or schema is ANYTHING or content.lower() in _LITERALS:
                return self._lose()
            self.repairs.add("quotes")
            return self._unescape(content)
        if not bare or (in_array and ":" in bare) or _BREAK_AT_END(bare):
            return self._stop("unreadable", pos, max(pos, at))
        if _NUMBERS(bare) and not schema.textual:
            return self._lose()  # a list without its brackets, perhaps: only this member is lost
        self.repairs.add("bare_string")
        self.bare += 1
        return bare


def last_list(value: Any, schema: Schema) -> tuple[list[Any] | None, Schema]:
    """The list that a value is or ends with, at any depth, and its schema."""
    while isinstance(value, dict) and value:
        key = next(reversed(value))
        value, schema = value[key], schema.properties.get(key, ANYTHING)
    return (value, schema) if isinstance(value, list) else (None, ANYTHING)


def _wants_list(known: Known, key: str) -> bool:
    """Whether the schema says that this key holds an array, and nothing else but null."""
    return key in known and "array" in known[key].types <= {"array", "null"}


def _first_key(text: str, pos: int) -> str | None:
    """The key that stands next; None where it is not plain."""
    key = _ODD_KEY(text, place_behind(_BLANKS(text, pos), pos))
    return key and (key["double"] or key["single"] or key["bare"])


# -- what the commas of an array mean --------------------------------------------------------------

_BEGINS_WITH_DIGIT = re.compile(r"\d").match
_LEADING_ZERO = re.compile(r"0\d").match
_ONE_GROUP = re.compile(r"[-+−]?[1-9]\d{0,2},\d{3}\Z").match
_WHOLE = re.compile(r"[-+−]?(?:0|[1-9]\d*|[1-9]\d{0,2}(?:\.\d{3})+)\Z").match
_MARKED = re.compile(r"[-+−]?[ \t]*[^-+−.\d]").match


@dataclass(slots=True)
class _Array:
    """The elements of one array with their places in the text, and how its commas stood."""

    items: list[Any] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    semicolons: list[int] = field(default_factory=list)
    """How many elements stood before each semicolon."""
    spaced: dict[int, None] = field(default_factory=dict)
    """How many elements stood before each comma with a blank behind it."""
    joined: set[int] = field(default_factory=set)
    """How many elements stood before each place where the comma is missing."""

    def value(self, text: str, repairs: set[str], *, integer: bool) -> Any:
        """The array; MISSING where nobody can tell its elements apart.

        Args:
            text: the whole text.
            repairs: the names of the repairs are added here.
            integer: whether its elements are whole numbers by the schema.
        """
        ends = self.semicolons
        if ends:
            repairs.add("separator")
        else:
            doubt = self._doubt(text) if len(self.items) > 1 else ""
            if not doubt:
                return self.items
            if doubt == "mixed":
                return MISSING
            ends = list(self.spaced)
            if doubt == "zero" and not ends:
                # No number begins with 05 or 000: each belongs to the one before. In [4,05,3,5] the
                # rest has two readings.
                ends = list(range(2, len(self.items), 2))
                if len(self.items) % 2 or not all(
                    _LEADING_ZERO(text, start) for start, _ in self.spans[1::2]
                ):
                    return MISSING
        # What stands between these separators is one number, commas included.
        whole: list[Any] = []
        for begin, end in zip([0, *ends], [*ends, len(self.items)], strict=True):
            if end - begin > 1 and all(map(_is_number, self.items[begin:end])):
                written = text[self.spans[begin][0] : self.spans[end - 1][1]]
                number = read_number(written, integer=integer)
                if number is None or (not integer and _ONE_GROUP(written)):
                    return MISSING  # rows of a table, perhaps; or 105,000, which is 105 or 105000
                repairs.update(number.repairs)
                whole.append(number.value)
            else:
                whole += self.items[begin:end]
        return whole

    def _doubt(self, text: str) -> str:
        """Why a comma without a blank behind it may be a decimal comma; "" if none is.

        "unit" in `12,5%` and `R$ 10,50`, "zero" in `4,05`, and "mixed" where something else than a
        comma separates, too (`4,5 3,5`, `4,5 | 3,5`).
        """
        for i in range(1, len(self.items)):
            if i in self.spaced or i in self.joined or not _is_number(self.items[i - 1]):
                continue
            left, right = text[slice(*self.spans[i - 1])], text[slice(*self.spans[i])]
            if not _is_number(self.items[i]):
                if _BEGINS_WITH_DIGIT(right) and _WHOLE(left):
                    return "mixed"
                continue
            if self.joined and _WHOLE(left) and _WHOLE(right):
                return "mixed"
            if right[-1] == "%" != left[-1] or (_MARKED(left) and not _MARKED(right)):
                return "unit"
            if _LEADING_ZERO(right) and _WHOLE(left):
                return "zero"
        return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
