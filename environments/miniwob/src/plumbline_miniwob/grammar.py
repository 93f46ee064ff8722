"""One step as one action: a verb, and one or two elements, numbers or keys at the places where they
belong.

This is the language that plans are written in, with the synonyms of `words.yaml`, from the same
pieces as the plans of forms. Nothing is guessed: a step with a word that has no place in it is not
read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from plumbline.tasks.tables import read_table
from plumbline_browser.plans.grammar import (
    Between,
    Phrases,
    Piece,
    Work,
    loose,
    pieces_of,
    quotations,
)
from plumbline_miniwob.actions import (
    MOST_PIXELS,
    MOST_WAIT,
    Act,
    Named,
    Point,
    Ref,
    Target,
    key_named,
)

WORDS: Mapping[str, Any] = read_table(Path(__file__).with_name("words.yaml"))
ROLES: Mapping[str, str] = {role: spellings[0] for role, spellings in WORDS["roles"].items()}
"""What an element is called in plans, by its role on the page."""
_ROLES = Phrases(WORDS["roles"])
_ALIKE: Sequence[frozenset[str]] = [frozenset(roles) for roles in WORDS["alike"]]
_VERBS = Phrases(WORDS["verbs"])
_INTO, _ONTO, _WITH = (Phrases({name: WORDS[name]}) for name in ("into", "onto", "with"))
_FILLERS, _LEAD = (frozenset(WORDS[name]) for name in ("fillers", "lead"))
_ORDINALS = {word: number for number, word in enumerate(WORDS["ordinals"], 1)}
_DIRECTIONS = {word: (int(x), int(y)) for word, (x, y) in WORDS["directions"].items()}
_UNITS = {word: int(factor) for word, factor in WORDS["units"].items()}
_ENDS = frozenset(".;!,:")
_INDEXES = frozenset({"element", "index", "node", "ref", "id", "item", "number"})
SCROLLED = 100
"""Pixels, where a scroll does not say how far."""
PAUSE = 500
"""Milliseconds, where a wait does not say how long."""
_MOST_PIECES = 60
"""Words, signs and quotations after the verb of a drag; two long names of a page have fewer."""


@dataclass(frozen=True, slots=True)
class TextElement:
    """An element of the page text, by its number there."""

    ref: int
    role: str
    name: str


@dataclass(frozen=True)
class PageText:
    """The elements that the model was shown; none where nothing is known of the page."""

    elements: tuple[TextElement, ...] = ()

    @cached_property
    def called(self) -> Mapping[str, tuple[TextElement, ...]]:
        """The elements by name, whose key is `loose`."""
        found: dict[str, tuple[TextElement, ...]] = {}
        for one in self.elements:
            found[loose(one.name)] = (*found.get(loose(one.name), ()), one)
        return found

    def fits(self, ref: int, name: str) -> bool:
        """Whether the element of this number is called so, as far as the page is known."""
        known = [one for one in self.elements if one.ref == ref]
        return not self.elements or any(loose(one.name) == loose(name) for one in known)

    def settled(self, target: Named) -> Named:
        """With the role that the page gives it, where plans have one word for several and only one
        is there."""
        if target.role is None:
            return target
        roles = {one.role for one in self.called.get(loose(target.name), ())}
        near = roles & frozenset().union(*(group for group in _ALIKE if target.role in group))
        if target.role in roles or len(near) != 1:
            return target
        return Named(target.name, near.pop(), target.nth)


NOWHERE = PageText()


def read_step(text: str, page: PageText = NOWHERE, work: Work | None = None) -> Act | None:
    """Read a step, without its number; None where it is not understood, or is more than one.

    Raises:
        TooMuchWorkError: the plan takes more than it may; never where its `work` is None.
    """
    between: Between = {}
    for number, quoted in enumerate(quotations(text)):
        if work is not None:
            work.look(len(text))
        if number and len(quoted) == 1:
            continue  # "click 'A' or 'B'" names no element called "A' or 'B"
        if (act := read_pieces(text, pieces_of(text, quoted, between), page)) is not None:
            return act
    return None


def read_pieces(text: str, pieces: Sequence[Piece], page: PageText) -> Act | None:
    """Read the pieces of a step of this text."""
    if (verb := begins(pieces)) is None:
        return None
    end = len(pieces)
    while end > verb[1] and pieces[end - 1].kind == "sign" and pieces[end - 1].value in _ENDS:
        end -= 1
    return _READERS[verb[0]](_Step(text, list(pieces[verb[1] : end]), page))


def begins(pieces: Sequence[Piece]) -> tuple[str, int] | None:
    """The verb that a line of these pieces begins with, and where it ends; None where it begins
    with none."""
    start = 0
    while (
        start < len(pieces)
        and pieces[start].kind in {"word", "sign"}
        and pieces[start].value in _LEAD | {","}
    ):
        start += 1
    return _VERBS.at(pieces, start)


@dataclass(frozen=True, slots=True)
class _Step:
    text: str
    rest: list[Piece]
    """After the verb."""
    page: PageText

    def target(self, start: int = 0, end: int | None = None) -> Target | None:
        return target_of(self.text, self.rest[start:end], self.page)


# -- what a step is about --------------------------------------------------------------------------


def target_of(text: str, pieces: Sequence[Piece], page: PageText) -> Target | None:
    """The element or place that some pieces of a text name; None where they name none, or say
    more."""
    kinds: dict[str, list[Piece]] = {
        kind: [] for kind in ("word", "quote", "ref", "point", "nth", "number", "sign")
    }
    for piece in pieces:
        kinds[piece.kind].append(piece)
    if len(kinds["quote"]) + len(kinds["point"]) > 1 or any(
        one.value not in "#,:.()" for one in kinds["sign"]
    ):
        return None
    words = [one.value for one in kinds["word"]]
    nth = [one.value for one in kinds["nth"]] + [
        _ORDINALS[word] for word in words if word in _ORDINALS
    ]
    said = [word for word in words if word not in _ORDINALS]
    role = _role(said)
    if role is None:
        return (
            _unquoted(text, pieces, page)
            if not (kinds["quote"] or kinds["ref"] or kinds["point"])
            else None
        )
    if kinds["ref"]:
        return _by_number(kinds, nth, page)
    numbers = [one.value for one in kinds["number"] if isinstance(one.value, int)]
    if kinds["quote"]:
        nth += numbers if kinds["sign"] or set(said) & {"number", "no"} else [0] * len(numbers)
        if len(nth) > 1 or 0 in nth:
            return None
        return page.settled(Named(kinds["quote"][0].value, role or None, nth[0] if nth else None))
    if kinds["point"]:
        return None if nth or numbers or role else Point(*kinds["point"][0].value)
    if len(numbers) == 1 and numbers[0] > 0 and not nth and set(said) & _INDEXES:
        return Ref(numbers[0])
    return _unquoted(text, pieces, page)


def _role(words: Sequence[str]) -> str | None:
    """The role that words name, "" where they say nothing, None where they say anything else."""
    for left in (words, [word for word in words if word not in _FILLERS]):
        while left and left[0] in {"the", "a", "an"}:
            left = left[1:]
        if not left:
            return ""
        if (role := _ROLES.whole(left)) is not None:
            return role
    return None


def _by_number(
    kinds: Mapping[str, Sequence[Piece]], nth: Sequence[int], page: PageText
) -> Ref | None:
    if (
        len(kinds["ref"]) != 1
        or kinds["point"]
        or kinds["number"]
        or nth
        or kinds["ref"][0].value == 0
    ):
        return None
    number = kinds["ref"][0].value
    # A number and a name are one element, or nobody knows which of the two is meant.
    return Ref(number) if all(page.fits(number, one.value) for one in kinds["quote"]) else None


def _unquoted(text: str, pieces: Sequence[Piece], page: PageText) -> Named | None:
    """A name of the page without quotation marks: "click Submit", "click the Submit button"."""
    left = list(pieces)
    while left and left[0].value in {"the", "a", "an", "on"}:
        left = left[1:]
    for size in range(min(3, len(left) - 1), -1, -1):
        core, tail = (left[:-size], left[-size:]) if size else (left, [])
        role = _ROLES.whole([one.value for one in tail]) if tail else ""
        if role is None or not core:
            continue
        said = loose(text[core[0].start : core[-1].end])
        names = {one.name for one in page.called.get(said, ())} if said else set()
        if len(names) == 1:
            return page.settled(Named(names.pop(), role or None))
    return None


# -- the verbs -------------------------------------------------------------------------------------


def _on(step: _Step, verb: str) -> Act | None:
    target = step.target()
    return None if target is None else Act(do=verb, on=target)  # type: ignore[arg-type]  # the names in the table


def _type(step: _Step) -> Act | None:
    """Type V · type V into T · fill T with V."""
    rest = step.rest
    if rest and rest[-1].kind == "quote" and len(rest) > 2:
        for at in range(1, len(rest) - 1):
            target = step.target(end=at) if _WITH.at(rest, at) == ("with", len(rest) - 1) else None
            if target is not None:
                return Act(do="type", text=rest[-1].value, on=target)
    if (given := _given(step)) is None:
        return None
    text, on = given
    return Act(do="type", text=text, on=on)


def _select(step: _Step) -> Act | None:
    given = _given(step)
    if given is not None and given[1] is not None:
        return Act(do="select", option=given[0], on=given[1])
    return _on(step, "click")  # a radio button, or an option of an open list


def _given(step: _Step) -> tuple[str, Target | None] | None:
    """What stands first, and the element that it goes into: "'V' into T", "the option 'V' from
    T"."""
    rest, at = step.rest, 0
    while (
        at < len(rest)
        and rest[at].kind == "word"
        and rest[at].value in _FILLERS | {"option", "value", "word"}
    ):
        at += 1
    if at == len(rest) or rest[at].kind != "quote":
        return None
    if at + 1 == len(rest):
        return rest[at].value, None
    into = _INTO.at(rest, at + 1)
    target = None if into is None else step.target(into[1])
    return None if target is None else (rest[at].value, target)


def _drag(step: _Step) -> Act | None:
    if len(step.rest) > _MOST_PIECES:  # both ends are read again at every "to"
        return None
    for at in range(1, len(step.rest) - 1):
        if (onto := _ONTO.at(step.rest, at)) is None:
            continue
        first, second = step.target(end=at), step.target(onto[1])
        if first is not None and second is not None:
            return Act(do="drag", on=first, to=second)
    return None


def _scroll(step: _Step) -> Act | None:
    """Scroll [T] down [by N] · scroll [T] by (X, Y) · scroll down [by N] [in T]."""
    rest = list(step.rest)
    by = next((at for at, one in enumerate(rest) if one.kind == "word" and one.value == "by"), None)
    directions = [
        at for at, one in enumerate(rest) if one.kind == "word" and one.value in _DIRECTIONS
    ]
    far: float | tuple[float, float] = SCROLLED
    used = set(directions)
    if by is not None:
        if by + 1 == len(rest) or rest[by + 1].kind not in {"number", "point"}:
            return None
        far = rest[by + 1].value
        used |= {by, by + 1}
        if by + 2 < len(rest) and rest[by + 2].value in {"px", "pixels", "pixel"}:
            used.add(by + 2)
    if isinstance(far, tuple):
        moved = None if directions else far
    else:
        x, y = _DIRECTIONS[rest[directions[0]].value] if len(directions) == 1 else (0, 0)
        moved = (x * far, y * far) if len(directions) == 1 and far >= 0 else None
    if moved is None or max(map(abs, moved)) > MOST_PIXELS:
        return None
    left = [one for at, one in enumerate(rest) if at not in used]
    while left and left[0].value in {"in", "on", "inside"}:
        left = left[1:]
    if not left or {one.value for one in left} <= {"the", "page"}:
        return Act(do="scroll", by=moved)
    target = target_of(step.text, left, step.page)
    return None if target is None else Act(do="scroll", on=target, by=moved)


def _key(step: _Step) -> Act | None:
    """Press K · press K in T; what is no key is pressed as a button is."""
    rest = step.rest
    for at in range(1, len(rest) + 1):
        into = _INTO.at(rest, at) if at < len(rest) else ("", at)
        key = None if into is None else _key_of(step.text, rest[:at])
        if into is None or key is None:
            continue
        if at == len(rest):
            return Act(do="key", key=key)
        if (target := step.target(into[1])) is not None:
            return Act(do="key", key=key, on=target)
    target = step.target()
    if (
        isinstance(target, Named)
        and target.role is None
        and loose(target.name) not in step.page.called
    ):
        return None
    return None if target is None else Act(do="click", on=target)


def _key_of(text: str, pieces: Sequence[Piece]) -> str | None:
    while pieces and pieces[0].value == "the" and len(pieces) > 1:
        pieces = pieces[1:]
    while len(pieces) > 1 and pieces[-1].kind == "word" and pieces[-1].value in {"key", "keys"}:
        pieces = pieces[:-1]
    if not pieces:
        return None
    return key_named(
        pieces[0].value if len(pieces) == 1 and pieces[0].kind == "quote" else _raw(text, pieces)
    )


def _raw(text: str, pieces: Sequence[Piece]) -> str:
    return text[pieces[0].start : pieces[-1].end]


def _wait(step: _Step) -> Act | None:
    rest = [one for one in step.rest if one.value not in {"for", "about"}]
    if not rest:
        return Act(do="wait", ms=PAUSE)
    if len(rest) != 2 or rest[0].kind != "number" or rest[1].value not in _UNITS:
        return None
    ms = round(rest[0].value * _UNITS[rest[1].value])
    return Act(do="wait", ms=ms) if 0 <= ms <= MOST_WAIT else None


_READERS: Mapping[str, Callable[[_Step], Act | None]] = {
    **{verb: partial(_on, verb=verb) for verb in ("click", "double", "hover", "check", "uncheck")},
    "type": _type,
    "select": _select,
    "drag": _drag,
    "scroll": _scroll,
    "key": _key,
    "wait": _wait,
}
