"""Reading one object or array that is nearly JSON, from its opening bracket on.

One pass, from left to right. Where the text can no longer be understood the scanner stops, and keeps what came before.
"""

import re
from collections.abc import Mapping
from typing import Any

from plumbline.tasks.text.json_arrays import Elements
from plumbline.tasks.text.json_escapes import unescape
from plumbline.tasks.text.json_leaves import AFTER_VALUE, MISSING, Leaves, blanks_end
from plumbline.tasks.text.json_schema import Schema
from plumbline.tasks.text.json_strings import BLANK, OPENING, QUOTE

_MAX_DEPTH = 100
"""Nearly-JSON nested deeper than this is not read; valid JSON may be deeper."""

# The plain cases, at one match each.
_KEY = re.compile(r'\s*+"([^"\\\n]*+)"\s*+:\s*+').match
_TEXT = re.compile(r'"([^"\\\x00-\x1f]*+)"(?=\s*+(?:[}\]]|,\s*+["}\]]))').match
_NUMBER = re.compile(r'(-?(?:0|[1-9]\d{0,17}))(?:([.,])(\d+))?(?=\s*+(?:\}|,\s*+["}]))').match
_ELEMENT = re.compile(r"(-?(?:0|[1-9]\d{0,17})(\.\d+)?)(?=\s*+[,\]])").match

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
_ELLIPSIS = re.compile(r"\.{3,}|…").match
_ITEM = r"""(?:[-+]?\d[\d.]*+|'[^'\\\n]*+'|"[^"\\\n]*+"|True|False|None)"""
_TUPLE = re.compile(rf"\(\s*({_ITEM}(?:,\s+{_ITEM})+|{_ITEM},)\s*\)").match
"""A flat tuple as Python prints it. Without a blank behind its commas it is none: `(4,5)` may be one number."""
_FENCES = ("```", "~~~")
_FENCE_LINE = re.compile(r"(?:```|~~~)\s*(?:\n|\Z)").match
_CLOSES = re.compile(r"\s*(?:\Z|[}\]`~<]|,\s*(?:[{\"'“}]|[^\W\d]))|[ \t\r]*\n").match
"""What follows a brace that ends an object, where it stands for the bracket of an array, too."""
_SEPARATORS = ",，;；"
_NUMERIC = (list, int, float)


class Scanner(Leaves):
    """Reads one object or array; `repairs`, `pos` and `stopped` then say how.

    Example:
        repairs: set[str] = set()
        scanner = Scanner("{nota: 4,5}", repairs)
        scanner.read(0, None) == {"nota": 4.5}
        repairs == {"bare_key", "decimal_comma"}
    """

    __slots__ = ()

    def read(self, start: int, schema: Schema | None) -> Any:
        """Read the object or array whose bracket is at `start`, or the elements behind a comma there.

        What was read before a stop is kept.
        """
        if self.text[start] == "{":
            return self.members(start + 1, schema, {}, 0)
        value = self._elements(start + 1, schema, 0)
        return [] if value is MISSING else value

    # --- objects ----------------------------------------------------------------------------------------------------

    def members(
        self, pos: int, schema: Schema | None, into: dict[str, Any], depth: int, *, in_array: bool = False
    ) -> dict[str, Any]:
        """Read the members of an object, from behind its opening brace, into a dictionary, and return that."""
        text, size = self.text, self.size
        known = (schema.properties or None) if schema is not None else None
        last: str | None = None
        comma = True
        while True:
            quick = _KEY(text, pos)
            if quick is not None:
                name, pos = quick[1], quick.end()
                if not comma:
                    self.repairs.add("missing_comma")
            else:
                self.depth = depth
                key = self._next_key(pos, into, last, known, comma=comma, in_array=in_array)
                if key is None:
                    return into
                name, pos = key, self.pos
            value = self._member(pos, known.get(name) if known is not None else None, known, depth)
            if value is not MISSING:
                into[name] = value
            if self.stopped:
                if value is MISSING:
                    into.pop(name, None)  # the last of two values counts, and it was not read
                return into
            last, pos, comma = name, self.pos, False
            if pos < size and text[pos] == ",":
                pos, comma = pos + 1, True

    def _next_key(
        self,
        pos: int,
        into: dict[str, Any],
        last: str | None,
        known: Mapping[str, Schema] | None,
        *,
        comma: bool,
        in_array: bool,
    ) -> str | None:
        """Read up to the value of the next member, and return its key; None at the end of the object, or at a stop."""
        text, repairs = self.text, self.repairs
        while True:
            pos = self._gap(pos)
            if pos >= self.size:
                self._stop("truncated", self.size)
                return None
            char = text[pos]
            if char == "}":
                if comma and last is not None:
                    repairs.add("trailing_comma")
                self.pos = pos + 1
                return None
            if char == "]":
                repairs.add("brackets")
                if in_array and not self._belongs(pos + 1, known):
                    self.pos = pos
                    return None
                if not in_array and last is not None and not isinstance(into.get(last), list):
                    # The bracket that opened a list here is missing.
                    if last in into and wants_list(known, last):
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
                comma = True
                pos += 1
                continue
            key = self._odd_key(pos, known)
            if key is not None:
                if not comma:
                    repairs.add("missing_comma")
                return key
            if char == "{" and in_array and comma and known and _first_key(text, pos) in known:
                repairs.add("brackets")  # the brace that ends this element is missing
                self.pos = pos
                return None
            if last is not None and self._more_elements(pos, into, last, known):
                if self.stopped:
                    return None
                pos, comma = self.pos, False
                continue
            pos = self._not_a_key(pos, into, last)
            if pos < 0:
                return None

    def _more_elements(self, pos: int, into: dict[str, Any], last: str, known: Mapping[str, Schema] | None) -> bool:
        """Read the elements that stand behind a list that was closed too early, or that no bracket opened."""
        old, char = into.get(last, MISSING), self.text[pos]
        if old is MISSING or self.depth >= _MAX_DEPTH or "inner_quotes" in self.repairs:
            return False
        kind = dict if char == "{" else str if char in QUOTE else None
        if kind is None:
            return False
        schema = known.get(last) if known is not None else None
        unopened = isinstance(old, kind) and wants_list(known, last)
        array, schema = ([old], schema) if unopened else last_list(old, schema)
        if not array or not isinstance(array[-1], kind):
            return False
        if char == "{" and not unopened:
            items = schema.items if schema is not None else None
            if _first_key(self.text, pos) not in (items.properties if items and items.properties else array[-1]):
                return False
        self.repairs.add("brackets")
        more = self._elements(pos, schema, self.depth + 1, in_object=True, outer=known)
        cut = kind is str and self.stopped  # it may be half of the next key
        array += more if isinstance(more, list) and not cut else []
        if unopened:
            into[last] = array
        return True

    def _belongs(self, pos: int, known: Mapping[str, Schema] | None) -> bool:
        """Whether a key of this very object follows a bracket that should end the array around it."""
        match = _ODD_KEY(self.text, blanks_end(self.text, pos + (self.text[pos : pos + 1] == ",")))
        return bool(match and known and (match["double"] or match["single"] or match["bare"]) in known)

    def _odd_key(self, pos: int, known: Mapping[str, Schema] | None) -> str | None:
        """A key that is not plainly quoted; `self.pos` is then the place of its value."""
        match = _ODD_KEY(self.text, pos)
        if match is None:
            only = _KEY_ONLY(self.text, pos)
            if only is None or known is None or only[1] not in known:
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
            name, odd = unescape(written, raw=self.raw)
            if odd:
                self.repairs.add("escape")
            return name
        if match["unclosed"] is not None:
            self.repairs.add("quotes")
            return match["unclosed"]
        self.repairs.add("quotes" if match["stray"] else "bare_key")
        return (match["bare"] or match["digits"]).replace("\\_", "_")

    def _not_a_key(self, pos: int, into: dict[str, Any], last: str | None) -> int:
        """Pass over what stands where a key should, and return the place behind it; -1 where the reading stops."""
        text = self.text
        ellipsis = _ELLIPSIS(text, pos)
        if ellipsis is not None:
            self.repairs.add("ellipsis")
            return ellipsis.end()
        if _CUT_KEY(text, pos) or text.startswith((*_FENCES, "</"), pos):
            self._stop("truncated", self.size if _CUT_KEY(text, pos) else pos, pos)
            return -1
        junk = _JUNK(text, pos)
        if junk is not None:
            self.repairs.add("junk")
            if last is not None and type(into.get(last, 0)) in _NUMERIC and not any(map(str.isalpha, junk[0])):
                # Digits: the list before was closed too early, or the number before is half of one, or was left out.
                into.pop(last, None)
                self._lose()
            return junk.end()
        # Quotes where no text is expected: the member before may have ended at the wrong one.
        if last is not None and text[pos] in QUOTE:
            into.pop(last, None)
        self._stop("unreadable", pos)
        return -1

    # --- arrays -----------------------------------------------------------------------------------------------------

    def _elements(
        self,
        pos: int,
        schema: Schema | None,
        depth: int,
        *,
        in_object: bool = False,
        outer: Mapping[str, Schema] | None = None,
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
        child = schema.items if schema is not None else None
        array = Elements()
        comma = True
        while True:
            pos = self._gap(pos)
            char = text[pos : pos + 1]
            if not char or text.startswith(_FENCES, pos):
                self._stop("truncated", pos)
                break
            if char in "]}":
                if char == "}":
                    repairs.add("brackets")
                    if not _CLOSES(text, pos + 1):
                        self._stop("unreadable", pos)
                        break
                    array.wrapped = len(array.items) == 1 and isinstance(array.items[0], list)
                elif comma and array.items:
                    repairs.add("trailing_comma")
                self.pos = pos + (char == "]" or not in_object)
                break
            if char in _SEPARATORS:
                if comma:
                    repairs.add("trailing_comma")
                array.separate(char, spaced=text[pos + 1 : pos + 2].isspace())
                comma = True
                pos += 1
                continue
            ellipsis = _ELLIPSIS(text, pos)
            if ellipsis is not None:
                repairs.add("ellipsis")
                pos, comma = ellipsis.end(), False
                continue
            value = self._element(pos, child, depth)
            if char in QUOTE and isinstance(value, str) and self._at_colon():
                # The array was never closed, and this is the next key of the object around it; or else its own object
                # was never opened, or closed too early.
                scalars = bool(array.items) and not any(isinstance(item, dict | list) for item in array.items)
                if not in_object or not (value in outer if outer is not None else scalars):
                    self._stop("unreadable", pos)
                    break
                repairs.add("brackets")
                array.wrapped = len(array.items) == 1 and isinstance(array.items[0], list)
                self.pos = pos
                break
            if value is not MISSING:
                if not comma:
                    repairs.add("missing_comma")
                    array.joined.add(len(array.items))
                array.add(value, pos, self.pos)
            if self.stopped:
                break
            pos, comma = self.pos, False
        integer = child is not None and "integer" in child.types and "number" not in child.types
        value = array.value(text, repairs, integer=integer)
        if value is MISSING:
            self._lose()
        return value

    def _at_colon(self) -> bool:
        pos = blanks_end(self.text, self.pos)
        return not self.stopped and self.text[pos : pos + 1] in (":", "：")

    # --- values -----------------------------------------------------------------------------------------------------

    def _member(self, pos: int, schema: Schema | None, known: Mapping[str, Schema] | None, depth: int) -> Any:
        """Read the value of a member."""
        text = self.text
        char = text[pos : pos + 1]
        if char == '"':
            plain = _TEXT(text, pos)
            if plain is not None:
                self.pos = plain.end()
                return plain[1]
        elif char in "-0123456789" and char:
            number = _NUMBER(text, pos)
            if number is not None and (number[2] != "," or schema is None or "number" in schema.types):
                self.pos = number.end()
                if number[2] is None:
                    return int(number[1])
                if number[2] == ",":
                    self.repairs.add("decimal_comma")
                return float(f"{number[1]}.{number[3]}")
        elif char not in '{["':
            pos = self._gap(pos)
            char = text[pos : pos + 1]
            if char in ":：" and char:
                self.repairs.add("separator")
                pos = self._gap(pos + 1)
                char = text[pos : pos + 1]
            if char in ",，}];；" and char and not (char in ",，" and text[pos + 1 : pos + 2].isdecimal()):
                self.repairs.add("missing_value")
                self.pos = pos
                return MISSING
            ellipsis = _ELLIPSIS(text, pos)
            if ellipsis is not None and AFTER_VALUE(text, ellipsis.end()):
                self.repairs.add("ellipsis")
                self.pos = ellipsis.end()
                return MISSING
            if _FENCE_LINE(text, pos):
                return self._stop("truncated", pos)
        return self._value(char, pos, schema, known, depth, in_array=False)

    def _element(self, pos: int, schema: Schema | None, depth: int) -> Any:
        """Read an element of an array."""
        text = self.text
        char = text[pos]
        if char == '"':
            plain = _TEXT(text, pos)
            if plain is not None:
                self.pos = plain.end()
                return plain[1]
        elif char in "-0123456789":
            number = _ELEMENT(text, pos)
            if number is not None:
                self.pos = number.end()
                return int(number[1]) if number[2] is None else float(number[1])
        return self._value(char, pos, schema, None, depth, in_array=True)

    def _value(
        self,
        char: str,
        pos: int,
        schema: Schema | None,
        known: Mapping[str, Schema] | None,
        depth: int,
        *,
        in_array: bool,
    ) -> Any:
        if not char:
            return self._stop("truncated", pos)
        if char in "{[":
            if depth >= _MAX_DEPTH:
                return self._stop("unreadable", pos)
            if char == "{":
                value: Any = self.members(pos + 1, schema, {}, depth + 1, in_array=in_array)
            else:
                value = self._elements(pos + 1, schema, depth + 1, in_object=not in_array, outer=known)
            return MISSING if self.stopped and not value else value
        if char in OPENING:
            return self._text(pos, schema, known, in_array=in_array)
        if char in "uUbBrR" and self.text[pos + 1 : pos + 2] in ("'", '"'):  # Python's u'…'
            self.repairs.add("quotes")
            return self._text(pos + 1, schema, known, in_array=in_array)
        if char == "(" and not (schema is not None and schema.textual) and (flat := _TUPLE(self.text, pos)):
            return self._tuple(flat, schema)
        found = self._number(pos, schema, in_array=in_array) or self._literal(pos, schema)
        return found[0] if found is not None else self._bare(pos, schema, known, in_array=in_array)

    def _tuple(self, flat: re.Match[str], schema: Schema | None) -> Any:
        """Read a tuple of Python as the array that JSON has for it."""
        self.repairs.add("brackets")
        inside = Scanner(f"[{flat[1].rstrip(',')}]", self.repairs, raw=self.raw)
        value = inside.read(0, schema)
        self.pos = flat.end()
        return self._lose() if inside.stopped or inside.lost or not AFTER_VALUE(self.text, self.pos) else value


def wants_list(known: Mapping[str, Schema] | None, key: str) -> bool:
    """Whether the schema says that this key holds an array, and nothing else but null."""
    return known is not None and key in known and "array" in known[key].types <= {"array", "null"}


def last_list(value: Any, schema: Schema | None) -> tuple[list[Any] | None, Schema | None]:
    """The list that a value is or ends with, at any depth, and its schema."""
    while isinstance(value, dict) and value:
        key = next(reversed(value))
        value, schema = value[key], schema.properties.get(key) if schema is not None else None
    return (value, schema) if isinstance(value, list) else (None, None)


def _first_key(text: str, pos: int) -> str | None:
    """The first key of the object whose brace is at `pos`; None where it is not plain."""
    key = _ODD_KEY(text, blanks_end(text, pos + 1))
    return key and (key["double"] or key["single"] or key["bare"])
