"""The attribute pattern as a browser reads it: a regular expression of JavaScript under its flag v.

An erroneous expression is None, because a browser ignores it. Python's `re` reads another language, and backtracks
without a bound. Here a match is a set of places in the text, which takes polynomial time; only expressions with
backreferences keep what their groups hold, too. Work is counted, so that a verdict is the same on every machine.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn

from plumbline_forms.characters import (
    CATEGORIES,
    CLASS_SIGNS,
    CLASS_SYNTAX,
    DIGITS,
    ENDS,
    ESCAPES,
    OF_STRINGS,
    OTHER_PROPERTIES,
    PROPERTIES,
    SCRIPTS,
    SIGNS,
    SYNTAX,
    TWICE,
    Test,
    UnreadPatternError,
    in_category,
    in_script,
    same,
    variants,
    word,
)

MOST_STEPS = 1_000_000
"""For one text, of a microsecond or less; a pattern that needs more is refused."""
_LONGEST = 20_000
"""Characters of a pattern."""
_DEEPEST = 60
"""Groups and classes within one another."""


class _WrongError(Exception):
    """A pattern is erroneous."""


@dataclass(frozen=True, slots=True, eq=False)
class _Set:
    """One character of a set, or one of its strings."""

    test: Test
    strings: frozenset[str] = frozenset()
    folds: bool = False
    may_hold_strings: bool = False
    known: dict[str, bool] = field(default_factory=dict)

    def has(self, letter: str) -> bool:
        if letter not in self.known:
            self.known[letter] = self.test(letter)
        return self.known[letter]


@dataclass(frozen=True, slots=True, eq=False)
class _Sequence:
    parts: tuple["_Node", ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Either:
    parts: tuple["_Node", ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Repeat:
    body: "_Node"
    least: int
    most: int | None
    greedy: bool
    groups: range
    """Those within, which every turn empties."""


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    body: "_Node"
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    body: "_Node"
    back: bool
    wanted: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Edge:
    """A place between characters: "^", "$", "b" or "B"."""

    kind: str
    multiline: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Again:
    """What one of these groups holds; they are known when all is read."""

    groups: list[int]
    folds: bool


_Node = _Set | _Sequence | _Either | _Repeat | _Group | _Look | _Edge | _Again


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A pattern that is no error."""

    node: _Node
    kept: tuple[int, ...]
    """Groups that are referred to."""

    def fullmatch(self, text: str) -> bool:
        """Whether it matches the whole text.

        Raises:
            UnreadPatternError: that takes too much work, or rests on a property of a character that is not known here.
        """
        if self.kept:
            found = _Tracking(text, self.kept).ends(self.node, (0, (None,) * len(self.kept)), back=False)
            return any(at == len(text) for at, _ in found)
        return bool(_Places(text).ends(self.node, 1, back=False) >> len(text) & 1)


@lru_cache(maxsize=512)
def read_pattern(pattern: str) -> Pattern | None:
    """Read a pattern; None for an erroneous one.

    Raises:
        UnreadPatternError: it is longer or deeper than is read here, or names a property that is not known here.
    """
    if len(pattern) > _LONGEST:
        raise UnreadPatternError(f"its pattern has {len(pattern)} characters: {_LONGEST} are read")
    # A pair of surrogates is one character, as it is in JavaScript.
    reader = _Reader(pattern.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass"))
    try:
        return reader.read()
    except _WrongError:
        return None


# -- matching -------------------------------------------------------------------------------------------------------


class _Run:
    def __init__(self, text: str) -> None:
        self.text = text
        self.steps = 0

    def spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MOST_STEPS:
            raise UnreadPatternError("its pattern takes too long on this text")

    def is_edge(self, node: _Edge, at: int) -> bool:
        before, after = self.text[at - 1 : at] if at else "", self.text[at : at + 1]
        if node.kind == "^":
            return not before or (node.multiline and before in ENDS)
        if node.kind == "$":
            return not after or (node.multiline and after in ENDS)
        return (bool(before and word(before)) != bool(after and word(after))) == (node.kind == "b")


class _Places(_Run):
    """Matches from a set of places to a set of places; a set is the bits of a number."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.all = (2 << len(text)) - 1
        self.masks: dict[_Node, int] = {}
        """Of sets, the places before their characters; of edges and looks, where they hold."""

    def ends(self, node: _Node, places: int, *, back: bool) -> int:
        """Where a match ends that begins at one of the places; with `back`, the other way round."""
        self.spend(1 + len(self.text) // 1000)
        match node:
            case _Set():
                mask = self._mask(node)
                found = (places >> 1) & mask if back else (places & mask) << 1
                for string in node.strings:
                    found |= self._string(string, places, folds=node.folds, back=back)
                return found
            case _Sequence(parts):
                for part in reversed(parts) if back else parts:
                    if not places:
                        return 0
                    places = self.ends(part, places, back=back)
                return places
            case _Either(parts):
                found = 0
                for part in parts:
                    found |= self.ends(part, places, back=back)
                return found
            case _Repeat():
                return self._repeat(node, places, back=back)
            case _Group(body, _):
                return self.ends(body, places, back=back)
            case _Look(_, _, wanted):
                return places & (self._mask(node) if wanted else ~self._mask(node))
            case _Edge():
                return places & self._mask(node)
            case _Again():
                raise AssertionError("a pattern with backreferences keeps its groups")

    def _mask(self, node: _Set | _Edge | _Look) -> int:
        if node in self.masks:
            return self.masks[node]
        mask = 0
        if isinstance(node, _Look):
            # Where a match can begin is where it ends from everywhere, read the other way round.
            mask = self.ends(node.body, self.all, back=not node.back)
        else:
            self.spend(1 + len(self.text) // 20)
            for at in range(len(self.text) + 1):
                here = (
                    self.is_edge(node, at)
                    if isinstance(node, _Edge)
                    else at < len(self.text) and node.has(self.text[at])
                )
                mask |= here << at
        self.masks[node] = mask
        return mask

    def _string(self, string: str, places: int, *, folds: bool, back: bool) -> int:
        found, size = 0, len(string)
        self.spend(1 + len(self.text) // 10)
        for at in range(len(self.text) - size + 1):
            if places >> (at + size if back else at) & 1 and same(self.text[at : at + size], string, folds=folds):
                found |= 1 << (at if back else at + size)
        return found

    def _repeat(self, node: _Repeat, places: int, *, back: bool) -> int:
        for _ in range(node.least):
            further = self.ends(node.body, places, back=back)
            if further == places:
                break
            places = further
        found = new = places
        turns = 0
        while new and (node.most is None or turns < node.most - node.least):
            new = self.ends(node.body, new, back=back) & ~found
            found |= new
            turns += 1
        return found


_State = tuple[int, tuple[tuple[int, int] | None, ...]]


class _Tracking(_Run):
    """Matches that know what the groups hold to which the pattern refers."""

    def __init__(self, text: str, kept: tuple[int, ...]) -> None:
        super().__init__(text)
        self.slot = {number: slot for slot, number in enumerate(kept)}

    def ends(self, node: _Node, state: _State, *, back: bool) -> list[_State]:
        """Where a match from here ends, the preferred one first."""
        self.spend(8)
        at, held = state
        match node:
            case _Set():
                there = at - 1 if back else at
                fits = 0 <= there < len(self.text) and node.has(self.text[there])
                found = [(at - 1 if back else at + 1, held)] if fits else []
                for string in sorted(node.strings, key=len, reverse=True):
                    found += self._string(string, state, folds=node.folds, back=back)
                return found
            case _Sequence(parts):
                states = [state]
                for part in reversed(parts) if back else parts:
                    states = list(dict.fromkeys(end for one in states for end in self.ends(part, one, back=back)))
                return states
            case _Either(parts):
                return list(dict.fromkeys(end for part in parts for end in self.ends(part, state, back=back)))
            case _Repeat():
                return self._repeat(node, state, back=back)
            case _Group(body, number):
                found = self.ends(body, state, back=back)
                if (slot := self.slot.get(number)) is None:
                    return found
                return [(end, _put(kept, slot, (min(at, end), max(at, end)))) for end, kept in found]
            case _Look(body, behind, wanted):
                found = self.ends(body, state, back=behind)
                if not wanted:
                    return [] if found else [state]
                return [(at, found[0][1])] if found else []
            case _Edge():
                return [state] if self.is_edge(node, at) else []
            case _Again(groups, folds):
                span = next((span for one in groups if (span := held[self.slot[one]]) is not None), (0, 0))
                return self._string(self.text[span[0] : span[1]], state, folds=folds, back=back)

    def _string(self, string: str, state: _State, *, folds: bool, back: bool) -> list[_State]:
        at, held = state
        end = at - len(string) if back else at + len(string)
        here = self.text[min(at, end) : max(at, end)] if end >= 0 else ""
        return [(end, held)] if len(here) == len(string) and same(here, string, folds=folds) else []

    def _repeat(self, node: _Repeat, state: _State, *, back: bool) -> list[_State]:
        slots = [slot for number, slot in self.slot.items() if number in node.groups]
        levels, seen, turns = [[state]], {state}, 0
        while levels[-1] and (node.most is None or turns < node.most):
            turns += 1
            following: dict[_State, None] = {}
            for at, held in levels[-1]:
                emptied = held
                for slot in slots:
                    emptied = _put(emptied, slot, None)
                for end in self.ends(node.body, (at, emptied), back=back):
                    if turns <= node.least or (end[0] != at and end not in seen):
                        following[end] = None
            if turns <= node.least:
                if list(following) == levels[-1]:
                    turns = node.least  # further turns change nothing
                levels, seen = [list(following)], set(following)
            else:
                levels.append(list(following))
                seen |= following.keys()
        if turns < node.least:
            return []
        return [one for level in (reversed(levels) if node.greedy else levels) for one in level]


def _put(
    held: tuple[tuple[int, int] | None, ...], slot: int, span: tuple[int, int] | None
) -> tuple[tuple[int, int] | None, ...]:
    return (*held[:slot], span, *held[slot + 1 :])


# -- reading --------------------------------------------------------------------------------------------------------


class _Reader:
    """Reads one pattern by the grammar of ECMA-262 under the flag v; all its early errors raise `_WrongError`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.groups = 0
        self.named: dict[str, list[int]] = {}
        self.asked: list[tuple[int | str, list[int]]] = []
        """Backreferences, each with the list of its groups, which is filled in at the end."""
        self.flags = frozenset[str]()

    def read(self) -> Pattern:
        node, _ = self._either()
        if self.at < len(self.text):
            self._wrong()
        for asked, groups in self.asked:
            if isinstance(asked, int):
                groups += [asked] if asked <= self.groups else self._wrong()
            else:
                groups += self.named.get(asked) or self._wrong()
        kept = {number for _, groups in self.asked for number in groups}
        return Pattern(node, tuple(sorted(kept)))

    def _wrong(self) -> NoReturn:
        raise _WrongError

    def _peek(self, size: int = 1) -> str:
        return self.text[self.at : self.at + size]

    def _take(self, token: str) -> bool:
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def _expect(self, token: str) -> None:
        if not self._take(token):
            self._wrong()

    def _next(self) -> str:
        letter = self._peek() or self._wrong()
        self.at += 1
        return letter

    def _deeper(self, by: int) -> None:
        self.depth += by
        if self.depth > _DEEPEST:
            raise UnreadPatternError(f"its pattern has more than {_DEEPEST} groups within one another")

    def _either(self) -> tuple[_Node, set[str]]:
        """Alternatives, and the names of the groups in them."""
        parts, names = [], set[str]()
        while True:
            part, its_names = self._sequence()
            parts.append(part)
            names |= its_names
            if not self._take("|"):
                return (parts[0] if len(parts) == 1 else _Either(tuple(parts))), names

    def _sequence(self) -> tuple[_Node, set[str]]:
        parts: list[_Node] = []
        names = set[str]()
        while self._peek() not in {"", "|", ")"}:
            first = self.groups + 1
            part, its_names = self._term()
            if names & its_names:
                self._wrong()  # a name twice in one alternative
            names |= its_names
            parts.append(self._repeated(part, range(first, self.groups + 1)))
        return (parts[0] if len(parts) == 1 else _Sequence(tuple(parts))), names

    def _repeated(self, node: _Node, groups: range) -> _Node:
        match = _QUANTIFIER.match(self.text, self.at)
        if match is None:
            return node
        if isinstance(node, _Edge | _Look):
            self._wrong()
        self.at = match.end()
        sign, least, comma, most, lazy = match.groups()
        low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(sign, (_count(least), None))
        if least is not None:
            high = low if not comma else _count(most) if most else None
        if high is not None and high < low:
            self._wrong()
        return _Repeat(node, low, high, not lazy, groups)

    def _term(self) -> tuple[_Node, set[str]]:
        letter = self._next()
        if letter == "(":
            self._deeper(1)
            flags = self.flags
            found = self._group()
            self._expect(")")
            self.flags = flags
            self._deeper(-1)
            return found
        if letter in "^$":
            return _Edge(letter, "m" in self.flags), set()
        if letter == ".":
            return _Set((lambda _: True) if "s" in self.flags else (lambda one: one not in ENDS)), set()
        if letter == "[":
            return self._class(), set()
        if letter == "\\":
            return self._escape(), set()
        if letter in "*+?{}])":
            self._wrong()
        return self._one(letter), set()

    def _one(self, letter: str) -> _Set:
        if "i" in self.flags:
            return _Set(variants(letter).__contains__)
        return _Set(letter.__eq__)

    def _group(self) -> tuple[_Node, set[str]]:
        for token, back, wanted in (
            ("?=", False, True),
            ("?!", False, False),
            ("?<=", True, True),
            ("?<!", True, False),
        ):
            if self._take(token):
                body, names = self._either()
                return _Look(body, back, wanted), names
        if self._take("?<"):
            name = self._name()
            number = self._number()
            self.named.setdefault(name, []).append(number)
            body, names = self._either()
            if name in names:
                self._wrong()
            return _Group(body, number), names | {name}
        if self._take("?"):
            match = _MODIFIERS.match(self.text, self.at) or self._wrong()
            on, off = match.group(1), match.group(2)
            if len(set(on + (off or ""))) < len(on + (off or "")) or (not on and off == ""):
                self._wrong()
            self.at = match.end()
            self.flags = (self.flags | set(on)) - set(off or "")
            body, names = self._either()
            return _Sequence((body,)), names  # a group can be repeated, whatever is in it
        number = self._number()
        body, names = self._either()
        return _Group(body, number), names

    def _number(self) -> int:
        self.groups += 1
        return self.groups

    def _name(self) -> str:
        name = ""
        while not self._take(">"):
            letter = self._next()
            if letter == "\\":
                self._expect("u")
                letter = self._unicode()
            name += letter
        if not name.replace("$", "_").replace("\u200c", "_").replace("\u200d", "_").isidentifier():
            self._wrong()
        return name

    def _escape(self) -> _Node:
        letter = self._next()
        if letter in "bB":
            return _Edge(letter, multiline=False)
        if letter in "123456789":
            while self._peek().isascii() and self._peek().isdigit():
                letter += self._next()
            return self._again(_count(letter))
        if letter == "k":
            self._expect("<")
            return self._again(self._name())
        self.at -= 1
        return self._several() or self._one(self._sign(SYNTAX))

    def _again(self, asked: int | str) -> _Node:
        groups: list[int] = []
        self.asked.append((asked, groups))
        return _Again(groups, "i" in self.flags)

    def _several(self) -> _Set | None:
        """What follows a backslash where it stands for several characters."""
        letter = self._peek()
        if letter.lower() in ESCAPES and letter:
            self.at += 1
            return self._leaf(ESCAPES[letter.lower()], negated=letter.isupper())
        if letter not in {"p", "P"}:
            return None
        self.at += 1
        match = _PROPERTY.match(self.text, self.at) or self._wrong()
        self.at = match.end()
        name, value = match.groups()
        negated = letter == "P"
        if value is not None:
            if name in {"General_Category", "gc"} and value in CATEGORIES:
                return self._leaf(in_category(CATEGORIES[value]), negated=negated)
            if name in {"Script", "sc"} and value in SCRIPTS:
                return self._leaf(in_script(SCRIPTS[value]), negated=negated)
            if name not in {"Script", "sc", "Script_Extensions", "scx"}:
                self._wrong()
        elif name in CATEGORIES:
            return self._leaf(in_category(CATEGORIES[name]), negated=negated)
        elif name in PROPERTIES:
            return self._leaf(PROPERTIES[name], negated=negated)
        elif name not in OTHER_PROPERTIES and (name not in OF_STRINGS or negated):
            self._wrong()
        raise UnreadPatternError(f"its pattern names the property {name[:40]!r}, which is not known here")

    def _leaf(self, test: Test, *, negated: bool) -> _Set:
        wide: Test = (lambda one: any(map(test, variants(one)))) if "i" in self.flags else test
        return _Set((lambda one: not wide(one)) if negated else wide)

    def _sign(self, identity: frozenset[str]) -> str:
        """The one character for which an escape stands; the backslash is behind."""
        letter = self._next()
        if letter in SIGNS:
            return SIGNS[letter]
        if letter == "c":
            control = self._next()
            return chr(ord(control) % 32) if control.isascii() and control.isalpha() else self._wrong()
        if letter == "0":
            return self._wrong() if self._peek() in DIGITS else "\0"
        if letter == "x":
            match = _HEX2.match(self.text, self.at) or self._wrong()
            self.at = match.end()
            return chr(int(match.group(), 16))
        if letter == "u":
            return self._unicode()
        return letter if letter in identity else self._wrong()

    def _unicode(self) -> str:
        match = _UNICODE.match(self.text, self.at) or self._wrong()
        self.at = match.end()
        lead, trail, alone, braced = match.groups()
        if lead:
            return chr(0x10000 + (int(lead, 16) - 0xD800) * 0x400 + int(trail, 16) - 0xDC00)
        number = int(alone or braced[-7:], 16) if alone or len(braced.lstrip("0")) < 7 else 0x110000
        return chr(number) if number < 0x110000 else self._wrong()

    # -- classes ----------------------------------------------------------------------------------------------------

    def _class(self) -> _Set:
        """A class; its bracket is behind."""
        self._deeper(1)
        negated = self._take("^")
        found = self._contents()
        self._expect("]")
        self._deeper(-1)
        if not negated:
            return found
        if found.may_hold_strings:
            self._wrong()
        return _Set(lambda one: not found.test(one))

    def _contents(self) -> _Set:
        if self._peek() == "]":
            return _Set(lambda _: False)
        first, ranged = self._operand()
        if not ranged and self._peek(2) in {"--", "&&"}:
            return self._operation(first, self._peek(2))
        found = [first]
        while self._peek() != "]":
            found.append(self._operand()[0])
        return self._union(found)

    def _operation(self, first: _Set, sign: str) -> _Set:
        found = first
        while self._peek() != "]":
            self._expect(sign)
            if sign == "&&" and self._peek() == "&":
                self._wrong()
            left, right = found, self._operand(ranges=False)[0]
            folds = left.folds or right.folds
            if sign == "--":
                found = _Set(_minus(left.test, right.test), left.strings - right.strings, folds, left.may_hold_strings)
            else:
                may = left.may_hold_strings and right.may_hold_strings
                found = _Set(_both(left.test, right.test), left.strings & right.strings, folds, may)
        return found

    def _union(self, sets: Iterable[_Set]) -> _Set:
        sets = list(sets)
        if len(sets) == 1:
            return sets[0]
        tests = [one.test for one in sets]
        strings = frozenset[str]().union(*(one.strings for one in sets))
        may = any(one.may_hold_strings for one in sets)
        return _Set(lambda letter: any(test(letter) for test in tests), strings, any(one.folds for one in sets), may)

    def _operand(self, *, ranges: bool = True) -> tuple[_Set, bool]:
        """A class, an escape, strings, a character or a range, and whether it is a range."""
        if self._take("["):
            return self._class(), False
        if self._take("\\q{"):
            return self._strings(), False
        if self._peek() == "\\":
            self.at += 1
            if found := self._several():
                return found, False
            self.at -= 1
        low = self._member()
        if not ranges or self._peek() != "-" or self._peek(2) == "--":
            return self._one(low), False
        self.at += 1
        high = self._member()
        if high < low:
            self._wrong()
        return self._leaf(lambda one: low <= one <= high, negated=False), True

    def _strings(self) -> _Set:
        texts, text = [], ""
        while not self._take("}"):
            if self._take("|"):
                texts.append(text)
                text = ""
            else:
                text += self._member()
        texts.append(text)
        single = self._union([_Set(lambda _: False), *(self._one(one) for one in texts if len(one) == 1)])
        longer = frozenset(one for one in texts if len(one) != 1)
        return _Set(single.test, longer, "i" in self.flags, bool(longer))

    def _member(self) -> str:
        """One character of a class."""
        letter = self._next()
        if letter == "\\":
            return "\b" if self._take("b") else self._sign(SYNTAX | CLASS_SIGNS)
        if letter in CLASS_SYNTAX or (letter in TWICE and self._peek() == letter):
            self._wrong()
        return letter


_QUANTIFIER = re.compile(r"(?:([*+?])|\{(\d+)(?:(,)(\d*))?\})(\?)?", re.ASCII)
_MODIFIERS = re.compile(r"([ims]*)(?:-([ims]*))?:")
_PROPERTY = re.compile(r"\{([A-Za-z_]+)(?:=([A-Za-z0-9_]+))?\}")
_HEX2 = re.compile(r"[0-9a-fA-F]{2}")
_UNICODE = re.compile(
    r"([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|([0-9a-fA-F]{4})|\{([0-9a-fA-F]+)\}"
)


def _count(digits: str | None) -> int:
    """A count; beyond every text, all are alike."""
    digits = (digits or "0").lstrip("0")
    return int(digits or "0") if len(digits) < 10 else 10**10


def _minus(one: Test, two: Test) -> Test:
    return lambda letter: one(letter) and not two(letter)


def _both(one: Test, two: Test) -> Test:
    return lambda letter: one(letter) and two(letter)
