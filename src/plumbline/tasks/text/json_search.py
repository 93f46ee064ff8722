"""Finding the value that was meant in a text: thoughts, fences, prose, quotings, and several
objects."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from plumbline.tasks.text.json_scanner import Scanner, last_list
from plumbline.tasks.text.json_schema import ANYTHING, Schema, coerce
from plumbline.tasks.text.json_strings import BLANK, NAME, is_raw, place_behind, unescape

_STRINGS = json.JSONDecoder(strict=False)

_NAMES = "think|thinking|thought|thoughts|reasoning|reflection|scratchpad|racioc[ií]nio|pensamento|pensando"
_TAG = rf"[<\[◁]/?(?:(?i:{_NAMES})|\|(?:begin|end)_of_thought\|)[>\]▷]"
_KEY = rf"[uUbBrR]?[\"'“‘«`„”’]|{NAME}[\"']?\s*[:：=]|\d{{1,20}}\s*:"
_OBJECT = rf"\{{(?={BLANK}*+(?:{_KEY}|\}}|[uU]?\\+[\"nrt]|//|/\*|\#|,))"
_ARRAY = rf"\[(?={BLANK}*+[\[{{\"'“‘«\]\w+\-.])"
_STRING = r'(?<!\\)"(?=(?:\s|\\[nrt])*+[\[{])'
_OBJECTS = re.compile(f"(?P<tag>{_TAG})|{_OBJECT}|{_STRING}").search
_VALUES = re.compile(f"(?P<tag>{_TAG})|{_OBJECT}|{_STRING}|{_ARRAY}").search
_ANY_TAG = re.compile(_TAG).search
_CLOSING_TAG = re.compile(rf"[<\[◁](?:/(?i:{_NAMES})|\|end_of_thought\|)[>\]▷]").search

_ESCAPED = re.compile(r'\{(?:\s|\\+[nrt])*[uU]?\\+"').match
_ESCAPED_END = re.compile(r'(?:[^"\\]|\\.)*+\\?', re.DOTALL).match
_DOUBLED = re.compile(r'\{\s*""\w').match
_MAX_LEVELS = 4

_MAY_BE_VALID = re.compile(r'\{\s*+(?:\}|"[^"\\\n]*+"\s*+:)|\[').match
_NO_BRACE = re.compile(r'\s*(?:(?:```|~~~)[ \t]*\w*\s*)?(?="([^"\\\n{]{1,80})"\s*:)').match
_GOES_ON = re.compile(
    rf'(?:{BLANK}|[\]}}])*+,?{BLANK}*+(?=["\']([^"\'\\\n]{{1,80}})["\']\s*:)'
).match
_NEXT_ELEMENT = re.compile(
    rf"(?P<closing>(?:{BLANK}|[\]}}])*+)(?P<comma>[,;，；]?){BLANK}*+(?P<list>\[?){BLANK}*+\{{(?={BLANK}*+[\"'“‘]?(?P<key>[^\"'”’\\\n{{}}:]{{1,80}}))"
).match
_NEXT_SCALAR = re.compile(rf"(?:{BLANK}|[\]}}])*+(,(?:{BLANK}*+\[)?){BLANK}*+(?=([\"\d-]))").match
_CLOSED_BEHIND = re.compile(rf"(?:{BLANK}|\}})*+\]").match
_BEHIND_KEY = re.compile(r"[\"'”’]\s*[:：=]>?\s*\Z").search
_BEHIND_ELEMENT = re.compile(r"(?:[,\[{]\s*|[\"'”’,\]}]\s*[:：=]?[ \t]*)\Z").search
_MEMBER_BEHIND = re.compile(r"[^{}`:]{0,60}?\w[\"'”’]\s*[:：=]").match
_FENCE_BEFORE = re.compile(r"(?:`{1,3}|~{3,})[ \t]*[\w+-]*\s*\Z").search
_FENCE_BEHIND = re.compile(r"\s*(?:`{1,3}|~{3,})").match
_ENDS_PHRASE = re.compile(r"[:\n>*`]\s*\Z").search
_ENDS_LINE = re.compile(r"[ \t]*[.!*]*[ \t]*(?:\n|\Z|</)").match
_NOTHING = re.compile(r"[\s`~{}\[\]]*+(?:json\s*)?(?=(?P<end>\Z)|)", re.IGNORECASE).match

_SCANS = 8
"""At most so many times its own length is read of a text; hostile texts would make it more."""
_ALWAYS = 20_000
"""Characters that may be read whatever the length."""
_EACH = 16
"""What a bracket costs besides its characters."""


@dataclass(slots=True)
class Candidate:
    """A value that was found in a text, and where."""

    value: Any
    start: int
    end: int
    complete: bool
    repairs: set[str]
    rank: tuple[int, int, bool, bool]
    """Whether it is or holds an object, how many keys count, whether they are quoted (where no
    schema names them), whether it is complete: the greatest is meant, and of equals the last."""
    bare: int = 0
    """How many of its texts have no quotes."""
    fits: bool | None = None
    """Whether its values fit the schema; None where nobody asked yet."""
    since: int = 0
    """Where the part of the text begins that is searched: behind the last thought."""


def find(
    text: str, schema: Schema, *, invalid: bool = False, far: bool = False
) -> Candidate | None:
    """Find the value that was meant.

    With a schema of an object it is the object with most keys of the schema, then a complete one,
    then the last; otherwise the object with most keys likewise, or an array where there is no
    object. An object inside of a thought counts only where the thought never ends.

    Args:
        text: a completion.
        schema: what is expected.
        invalid: whether the text is known not to begin with valid JSON.
        far: whether a quote inside of a text is part of it up to the next key.

    Returns:
        The candidate with its repairs, those of its surroundings included; None where there is no
        value.
    """
    return _Search(text, schema, max(_ALWAYS, _SCANS * len(text)), invalid=invalid, far=far).run()


class _Search:
    """One walk through a text, from one bracket or tag to the next."""

    def __init__(
        self,
        text: str,
        schema: Schema,
        budget: int,
        level: int = 0,
        *,
        invalid: bool = False,
        far: bool = False,
    ) -> None:
        self.text, self.schema, self.level = text, schema, level
        self.invalid, self.far = invalid, far
        self.budget = budget
        """How many characters may still be read."""
        self.wants_object = "object" in schema.types
        self.wants_list = "array" in schema.types and not self.wants_object
        self.members, self.items = schema.properties, schema.items or ANYTHING
        self.known = self.items.properties if self.wants_list else self.members
        """The keys of the objects that the schema asks for: of the value, or of its elements."""
        lists = [
            member.items.properties for member in self.known.values() if member.items is not None
        ]
        self.inner = frozenset[str]().union(*lists)
        """The keys of the objects in their lists."""
        self.best: Candidate | None = None
        self.fallback: Candidate | None = None
        """From a thought that never ended, or from before a closing tag that nothing opened."""
        self.since = 0
        self.first = True
        """Whether nothing was found yet since `since`."""
        self.several = self.thought = self.unending = False
        self.broken = self.torn = False
        """Whether an object was not read to its end: what follows may be parts of it. Whether it
        had members."""
        self.raw: bool | None = None
        """Whether the backslashes of quoted texts are plain; None where nothing was read yet."""
        self.unbalanced: tuple[int, int, bool] | None = None
        """A part of the text, and whether it closes more lists than it opens."""

    def run(self) -> Candidate | None:
        search = _OBJECTS if self.wants_object else _VALUES
        pos = 0
        # the most common text: an object, and nothing else
        if self.text[:1] == "{" and self.text[1:2] != "{":
            candidate, pos = self._at_bracket(0)
            if candidate is not None:
                if candidate.complete and candidate.value and not self.text[pos:].strip():
                    return candidate
                self._offer(candidate)
        else:
            pos = self._without_brace(0)
        while self.budget > 0 and (match := search(self.text, pos)) is not None:
            if match["tag"]:
                pos = self._without_brace(self._at_tag(match))
            else:
                candidate, pos = self._at_bracket(match.start())
                if candidate is not None:
                    self._offer(candidate)
        best = self.best or self.fallback
        if best is not None:
            if self.several:
                best.repairs.add("several")
            if self.thought:
                best.repairs.add("thought")
            self._name_surroundings(best)
            if best.complete and self._lost_behind(best.end):
                best.complete = False
                best.repairs.add("unreadable")
        return best

    def _at_tag(self, match: re.Match[str]) -> int:
        """Pass over a thought; where to search on."""
        self.thought, self.first, self.broken, self.torn = True, True, False, False
        self.since = match.end()
        if match[0][1] == "/" or "end_of" in match[0]:
            # What came before was a thought that the prompt had opened, unless the text began with
            # the object.
            if self.best is not None and self.best.start == 0:
                self.fallback = self.best
            self.best, self.several, self.unending = None, False, False
        else:
            closing = None if self.unending else _CLOSING_TAG(self.text, match.end())
            if closing is None:
                self.unending = True
            else:
                self.since = closing.end()
        return self.since

    def _offer(self, candidate: Candidate) -> None:
        candidate.since = self.since
        plausible = not self._is_part(candidate) and self._is_plausible(candidate)
        if (
            self.torn
            and candidate.complete
            and self._search_behind(_BEHIND_ELEMENT, candidate.start)
        ):
            candidate.complete = False  # it may be the rest of the object before
            candidate.repairs.add("unreadable")
        self.first = False
        self.broken = self.broken or not candidate.complete
        self.torn = self.torn or (not candidate.complete and bool(candidate.value))
        if not plausible:
            return
        if self.unending:
            if self.fallback is None or self._beats(candidate, self.fallback):
                self.fallback = candidate
            return
        if self.best is not None and candidate.rank[0] and self.best.rank[0]:
            self.several = self.several or (candidate.rank[1] > 0) == (self.best.rank[1] > 0)
        if self.best is None or self._beats(candidate, self.best):
            self.best = candidate

    def _beats(self, new: Candidate, old: Candidate) -> bool:
        """Whether the later of two is meant: by its keys, then by whether it fits the schema."""
        if new.rank[:2] != old.rank[:2]:
            return new.rank > old.rank
        return (self._fits(new), new.rank) >= (self._fits(old), old.rank)

    def _fits(self, candidate: Candidate) -> bool:
        if candidate.fits is None:
            found: set[str] = set()
            coerce(candidate.value, self.schema, found)
            candidate.fits = "mismatch" not in found
        return candidate.fits

    # -- reading at one place ----------------------------------------------------------------------

    def _without_brace(self, pos: int) -> int:
        """Read an object whose opening brace is missing (it may have stood in the prompt); where to
        search on."""
        match = _NO_BRACE(self.text, pos)
        if match is None or (self.members and match[1] not in self.members):
            return pos
        candidate, resume = self._read_nearly_json(match.end(), braced=False)
        if not candidate.complete and not (self.members and candidate.rank[1]):
            return pos
        self._offer(candidate)
        return resume

    def _at_bracket(self, start: int) -> tuple[Candidate | None, int]:
        """What is at a bracket or a quote, and where to search on."""
        text = self.text
        self.budget -= _EACH
        found = self._read_quoted(start)
        if found is not None:
            return found, found.end
        if text[start] == '"':
            return None, start + 1
        if not (self.invalid and start == 0) and _MAY_BE_VALID(text, start):
            self.budget -= start // 256  # a failure counts the lines before it
            valid = valid_at(text, start)
            if valid is not None:
                value, end = valid
                self.budget -= end - start
                alone = isinstance(value, dict) and self.wants_list and _CLOSED_BEHIND(text, end)
                scalars = self._next_scalar(value, end)
                more = (
                    scalars
                    or self._goes_on(value, start, end)
                    or self._next_element(value, start, end)
                )
                if not alone and not more:
                    return self._candidate(value, start, end, set(), complete=True), end
        return self._read_nearly_json(start, braced=True)

    def _read_quoted(self, start: int) -> Candidate | None:
        """JSON inside a JSON string, or with its quotes escaped or doubled."""
        text = self.text
        if text[start] == '"':
            try:
                inner, end = _STRINGS.raw_decode(text, start)
            except ValueError:
                self.budget -= len(text) - start
                if place_behind(_ESCAPED_END(text, start + 1), 0) < len(text):
                    return None  # not cut off, but something that is no JSON string
                inner, end = unescape(text[start + 1 :], cut=True)[0], len(text)
        elif "\\" in text[start + 1 : start + 12] and _ESCAPED(text, start):
            end = place_behind(_ESCAPED_END(text, start), len(text))
            inner = unescape(text[start:end], cut=end == len(text))[0]
        elif '""' in text[start + 1 : start + 12] and _DOUBLED(text, start):
            inner, end = text[start:].replace('""', '"'), len(text)
        else:
            return None
        self.budget -= end - start
        if self.level >= _MAX_LEVELS:
            return None
        search = _Search(inner, self.schema, self.budget, self.level + 1)
        found = search.run()
        self.budget = search.budget
        if found is not None:
            found.start, found.end = start, end
            found.repairs.add("double_encoded")
        return found

    def _read_nearly_json(self, start: int, *, braced: bool) -> tuple[Candidate, int]:
        """Read nearly-JSON, and say where to search on."""
        text, schema = self.text, self.schema
        repairs: set[str] = set()
        if self.raw is None:
            self.raw = "\\" in text and is_raw(text, start)
        scanner = Scanner(text, repairs, raw=self.raw, far=self.far)
        if braced:
            value = scanner.read(start, schema)
        else:
            repairs.add("brackets")
            value = scanner.members(start, schema, {}, 0)
        while not scanner.stopped:
            if more := self._goes_on(value, start, scanner.pos):
                value = scanner.members(more, schema, value, 0)
            elif more := self._next_scalar(value, scanner.pos):
                found = scanner.read(more, schema)
                value += found
            elif (element := self._next_element(value, start, scanner.pos)) is not None:
                match, array, items = element
                if not match["comma"]:
                    repairs.add("missing_comma")
                if array is None:
                    array = value = [value]
                item = scanner.members(match.end(), items, {}, 1, in_array=True)
                if item or not scanner.stopped:
                    array.append(item)
            else:
                break
            repairs.add("brackets")
        if self.wants_list and isinstance(value, dict) and _CLOSED_BEHIND(text, scanner.pos):
            value = [value]
        resume = max(start + 1, scanner.resume if scanner.stopped else scanner.pos)
        candidate = self._candidate(
            value, start, scanner.pos, repairs, complete=not (scanner.stopped or scanner.lost)
        )
        candidate.bare = scanner.bare
        self.budget -= max(scanner.pos, scanner.reach) - start
        return candidate, resume

    def _next_element(
        self, value: Any, start: int, end: int
    ) -> tuple[re.Match[str], list[Any] | None, Schema] | None:
        """The object behind a value whose list was closed too early, or has no brackets; None where
        there is none.

        It comes with the list, None where the object before is its first element, and with the
        schema of the elements. Only a comma and closing marks part the two. Where the schema says
        array, objects one behind the other are its elements, too. Otherwise a list must be there,
        and the keys of the object must be those of its elements.
        """
        match = _NEXT_ELEMENT(self.text, end)
        if match is None or self._search_behind(_BEHIND_KEY, start):
            return None
        array, schema = value, self.schema
        if isinstance(value, dict) and self.wants_list:
            array = None
        elif isinstance(value, dict):
            array, schema = last_list(value, schema)
            if match["key"] in self.known or match["list"] or array is None:
                return None
        lines = self.wants_list and self.text[start] == "{" and not match["closing"].strip()
        if array is not None and not match["comma"] and not lines:
            return None
        items = schema.items or ANYTHING
        if not items.admits("object"):
            return None
        if array is not None and not self.wants_list:
            named = match["key"] in items.properties
            alike = bool(array) and isinstance(array[-1], dict) and match["key"] in array[-1]
            if not named and not (alike and self._closes_list(match.start("key"))):
                return None
        return match, array, items

    def _next_scalar(self, value: Any, end: int) -> int:
        """The mark behind which the texts or numbers of a list go on that was closed too early; 0
        where none do."""
        if not self.wants_list or not isinstance(value, list) or not value:
            return 0
        match, last = _NEXT_SCALAR(self.text, end), value[-1]
        if match is None or isinstance(last, dict | list):
            return 0
        if isinstance(last, str) != (match[2] == '"'):
            return 0
        flat = not self.items.admits("array")
        more = flat if match[1][-1] == "[" else self._closes_list(match.end())
        return match.end(1) - 1 if more else 0

    def _closes_list(self, pos: int) -> bool:
        """Whether more brackets of lists are closed than opened from here to the end, or to the
        next tag."""
        if self.unbalanced is None or not self.unbalanced[0] <= pos < self.unbalanced[1]:
            end = self._part_end(pos)
            self.budget -= end - pos
            self.unbalanced = (
                pos,
                end,
                self.text.count("]", pos, end) > self.text.count("[", pos, end),
            )
        return self.unbalanced[2]

    def _goes_on(self, value: Any, start: int, end: int) -> int:
        """Where an object that was closed too early goes on (`{"a": 1}, "b": 2}`); 0 where it does
        not."""
        match = _GOES_ON(self.text, end) if self.members and isinstance(value, dict) else None
        if (
            match is None
            or match[1] not in self.members
            or not self._keys(value)
            or self._search_behind(_BEHIND_KEY, start)
        ):
            return 0
        return match.end()

    def _candidate(
        self, value: Any, start: int, end: int, repairs: set[str], *, complete: bool
    ) -> Candidate:
        quoted = self.schema is not ANYTHING or "bare_key" not in repairs
        if isinstance(value, dict):
            rank = (1, self._keys(value), quoted, complete)
        else:
            inner = [self._keys(item) for item in value if isinstance(item, dict)]
            rank = (1 + self.wants_list if inner else 0, max(inner, default=0), quoted, complete)
        return Candidate(value, start, end, complete, repairs, rank)

    def _keys(self, value: dict[str, Any]) -> int:
        return sum(key in self.known for key in value) if self.known else len(value)

    # -- prose or not ------------------------------------------------------------------------------

    def _search_behind(self, what: Callable[[str, int, int], Any], start: int) -> bool:
        return bool(what(self.text, max(self.since, start - 30), start))

    def _is_part(self, candidate: Candidate) -> bool:
        """Whether it stands where a member or element of another object would, which was not read
        to its end."""
        named = self.members and candidate.rank[1]
        if self._search_behind(_BEHIND_KEY, candidate.start):
            return not (self.first and named)
        if not self.broken:
            return False
        if isinstance(candidate.value, list):
            return not self._begins_phrase(candidate)
        escaped = self.torn and "double_encoded" in candidate.repairs
        return not named and (escaped or self._search_behind(_BEHIND_ELEMENT, candidate.start))

    def _is_plausible(self, candidate: Candidate) -> bool:
        """Whether what was found is JSON that somebody meant, and not a brace or a bracket of
        prose."""
        value = candidate.value
        if not value:
            return candidate.complete and not candidate.repairs and self._stands_apart(candidate)
        if isinstance(value, dict):
            quoted = "bare_key" not in candidate.repairs or (
                not self.members and candidate.bare < len(value)
            )
            return (
                bool(self.members and candidate.rank[1]) or quoted or self._stands_apart(candidate)
            )
        if candidate.rank[0] or self._stands_apart(candidate):
            return True
        whole = candidate.complete and "bare_string" not in candidate.repairs
        return (
            whole
            and self._begins_phrase(candidate)
            and _ENDS_LINE(self.text, candidate.end) is not None
        )

    def _begins_phrase(self, candidate: Candidate) -> bool:
        """Whether it stands at the beginning of a line or behind a colon."""
        begin = max(candidate.since, candidate.start - 20)
        alone = begin == candidate.since and not self.text[begin : candidate.start].strip()
        return alone or _ENDS_PHRASE(self.text, begin, candidate.start) is not None

    def _stands_apart(self, candidate: Candidate) -> bool:
        """Whether a fence stands before it, or nothing but fences and stray brackets around it."""
        text, start = self.text, candidate.start
        if _FENCE_BEFORE(text, max(0, start - 60), start) is not None:
            return True
        if not self.first:
            return False
        before, after = _NOTHING(text, candidate.since, start), _NOTHING(text, candidate.end)
        return bool(before and before.end() == start and after and after["end"] is not None)

    def _part_end(self, pos: int) -> int:
        """Where the next tag is, or the end."""
        tag = _ANY_TAG(self.text, pos)
        return tag.start() if tag else len(self.text)

    def _lost_behind(self, end: int) -> bool:
        """Whether parts of the object follow, which was closed too early: an object with a key that
        only a list of it has, or members and a brace that closes them (`4}5, "b": 2}`)."""
        element = _NEXT_ELEMENT(self.text, end)
        if (
            element is not None
            and element["key"] not in self.known
            and element["key"] in self.inner
        ):
            return True
        if _MEMBER_BEHIND(self.text, end) is None:
            return False
        rest = self.text[end : self._part_end(end)]
        return rest.count("}") > rest.count("{")

    def _name_surroundings(self, candidate: Candidate) -> None:
        """Add the repairs that say what was left out around the value."""
        text, repairs = self.text, candidate.repairs
        start, end = candidate.start, candidate.end
        part_end = self._part_end(end)
        fence = _FENCE_BEFORE(text, max(candidate.since, start - 60), start)
        if fence is not None:
            start = fence.start()
            repairs.add("fence")
            end = place_behind(_FENCE_BEHIND(text, end), end)
        before, after = text[candidate.since : start].strip(), text[end:part_end].strip()
        if self.wants_object and before[:1] == "[" and (before == "[" or self.several):
            repairs.add("unwrapped")
            before = "" if before == "[" else before
            after = after.lstrip(" ,;\n").removesuffix("]").rstrip()
        for rest in (before, after):
            if rest:
                repairs.add("prose" if rest.strip("{}[]()<>,;. \n`~") else "brackets")


# -- valid JSON ------------------------------------------------------------------------------------


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODE = json.JSONDecoder(parse_constant=_refuse).raw_decode
_MAY_BE_INFINITE = re.compile(r"[eE]\+?\d{3}|\d{200}").search


def valid_at(text: str, start: int) -> tuple[Any, int] | None:
    """The valid JSON that begins at `start`, and where it ends; None where there is none.

    What Python cannot hold is not valid here: a number that overflows to an infinity, an integer of
    more than 4,300 digits, nesting beyond the recursion limit.
    """
    try:
        value, end = _DECODE(text, start)
    except (ValueError, RecursionError):
        return None
    todo = [value] if _MAY_BE_INFINITE(text, start, end) else []
    while todo:
        item = todo.pop()
        if isinstance(item, dict | list):
            todo.extend(item.values() if isinstance(item, dict) else item)
        elif isinstance(item, float) and math.isinf(item):  # 1e999
            return None
    return value, end
