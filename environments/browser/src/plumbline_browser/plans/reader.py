"""Reads plain-text steps into typed actions. Never raises, whatever the text.

A step is a verb, up to two arguments, and words of `words.yaml` around them; a line may hold
several. Three things say which of two arguments is the control: the words around them ("into the
'L' field"), the form's labels where only one of the two is a label, and the verb ("type V", but
"set L"). What has another word in it is not read.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from plumbline.tasks.tables import read_table
from plumbline_browser.plans import actions as plan
from plumbline_browser.plans.actions import CHOSEN, TYPED, Action, Element, Plan
from plumbline_browser.plans.grammar import (
    Phrases,
    Piece,
    Quotation,
    TooMuchWorkError,
    Work,
    claims,
    cleaned,
    cut,
    folded,
    has_quote,
    is_quoted,
    loose,
    opens,
    pieces_of,
    plainer,
    quotations,
    unquoted,
)

DATA: Mapping[str, Any] = read_table(Path(__file__).with_name("words.yaml"))
SUBMIT_WORDS, YES, NO, KEYS, _JOINS, _OWN, _WEAK = (
    frozenset(DATA[name]) for name in ("submits", "yes", "no", "keys", "joins", "own", "weak")
)
"""Lists of words; `words.yaml` says what each is for."""
_VERBS, _NOUNS, _LINKS = (Phrases(DATA[name]) for name in ("verbs", "nouns", "links"))
_MARKS = re.compile(r"[*`\"“”‘«»]|(?<!\w)['’]|['’](?!\w)")
"""What no argument without quotation marks has."""
_ARTICLES, _LEADS, _TAILS, _HOLDS = (
    Phrases({"": DATA[name]}) for name in ("articles", "lead", "tails", "holds")
)

# -- names of controls -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """What the controls of a form are called; keys are `loose`. A reader that knows no form has
    empty ones."""

    kinds: Mapping[str, str]
    """The kind of the control with this label."""
    options: Mapping[str, tuple[str, ...]]
    """Labels of the lists and groups that have this option."""
    buttons: frozenset[str]
    mention: re.Pattern[str] | None
    """Finds a label in a text, the longest one that begins at a place."""

    def kind(self, label: str) -> str:
        """The kind of a control; "" where none is called so."""
        return self.kinds.get(loose(label), "")

    def has(self, label: str) -> bool:
        """Whether a control or a button is called so."""
        return loose(label) in self.kinds or loose(label) in self.buttons

    def group_of(self, option: str) -> str:
        """The list or group with this option; "" where none or several have it, or a control is
        called so."""
        groups = self.options.get(loose(option), ())
        return groups[0] if len(groups) == 1 and not self.has(option) else ""


@lru_cache(maxsize=256)
def names_of(elements: tuple[Element, ...]) -> Names:
    """The names of a form's elements (a tuple of them)."""
    options: dict[str, dict[str, None]] = {}
    for one in elements:
        for option in (one.option, *one.offers):
            if option:
                options.setdefault(loose(option), {})[one.label] = None
    called = {
        one.label
        for one in elements
        if one.kind != "button" or folded(one.label) not in SUBMIT_WORDS
    }
    labels = sorted(called - {""}, key=len, reverse=True)
    mention = (
        re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, labels))})(?!\w)", re.IGNORECASE)
        if labels
        else None
    )
    return Names(
        {loose(one.label): one.kind for one in elements if one.kind != "button"},
        {option: tuple(groups) for option, groups in options.items()},
        frozenset(loose(one.label) for one in elements if one.kind == "button"),
        mention,
    )


UNKNOWN = names_of(())
"""Of no form in particular."""

# -- a step as a verb and its arguments ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Argument:
    """A label, or what is entered."""

    texts: tuple[str, ...]
    """Several where a list stands in its place: 'A' and 'B'."""
    link: str = ""
    """What the words before it say it is: label, value or either."""
    nouns: frozenset[str] = frozenset()
    quoted: bool = True

    @property
    def text(self) -> str:
        return self.texts[0]


@dataclass(frozen=True, slots=True)
class _Step:
    verb: str
    arguments: tuple[_Argument, ...]
    nouns: frozenset[str]
    """Of all arguments, and those that stand by themselves: "click the button"."""


def _step(text: str, pieces: Sequence[Piece]) -> _Step | None:
    """One clause; None where it begins with no verb or has a word that no table has.

    Words of no table that stand together are an argument without quotation marks, but beside a
    quoted one only behind a word that says what it is ("into the Name field", not "because it is
    so").
    """
    start = _skip(pieces, 0)
    if (verb := _VERBS.at(pieces, start)) is None:
        return None
    if verb[0] == "idle":
        return _Step("idle", (), frozenset())
    end = len(pieces)
    while end > verb[1]:
        cuts = (
            at
            for at in range(max(verb[1], end - _TAILS.longest), end)
            if _TAILS.at(pieces, at) == ("", end)
        )
        is_sign = pieces[end - 1].kind == "sign" and pieces[end - 1].value in ".;,!:"
        shorter = end - 1 if is_sign else next(cuts, end)
        if shorter == end:
            break
        end = shorter
    quoted = max((place for place in range(end) if pieces[place].kind == "quote"), default=-1)
    found: list[_Argument] = []
    link, nouns, at = "", set[str](), verb[1]
    joined, after = False, False
    while at < end:
        piece = pieces[at]
        if piece.kind == "quote":
            if joined and found and not link:
                found[-1] = replace(found[-1], texts=(*found[-1].texts, piece.value))
            else:
                found.append(_Argument((piece.value,), link, frozenset(nouns)))
                link, nouns = "", set()
            joined, after, at = False, True, at + 1
        elif (said := _HOLDS.at(pieces, at)) is not None and _is_whole(
            pieces[said[1] : said[1] + _GLUED]
        ):
            at = said[1]
        elif (said := _NOUNS.at(pieces, at)) is not None and _counts(text, piece):
            if after and not link and found:
                found[-1] = replace(found[-1], nouns=found[-1].nouns | {said[0]})
            else:
                nouns.add(said[0])
            joined, at = False, said[1]
        elif (
            (said := _LINKS.at(pieces, at)) is not None
            and _counts(text, piece)
            and (said[0] != "value" or found or piece.value != ":")
        ):
            link, joined, at = said[0], False, said[1]
        elif piece.value in _OWN and pieces[at + 1 : at + 2] and pieces[at + 1].kind != "quote":
            return None  # "type your full name": which name that is, is not said
        elif (said := _ARTICLES.at(pieces, at)) is not None and _is_plain(text, pieces, at):
            at = said[1]
        elif piece.value in _JOINS and after:
            joined, at = True, at + 1
        elif piece.value in {"*", "(", ")", ":"}:
            at += 1
        else:
            stop = _end_of_words(pieces, at, end, quoted)
            words = text[piece.start : pieces[stop - 1].end]
            if joined or (any(one.quoted for one in found) and not link) or _MARKS.search(words):
                return None
            found.append(_Argument((words,), link, frozenset(nouns), quoted=False))
            link, nouns, joined, after, at = "", set(), False, True, stop
    if joined or len(found) > 2:
        return None
    return _Step(verb[0], tuple(found), frozenset(nouns).union(*(one.nouns for one in found)))


def _is_plain(text: str, pieces: Sequence[Piece], at: int) -> bool:
    """Whether a word stands by itself and begins no name: "the", but not "The Old Mill" or
    "a@b.org"."""
    apart = at + 1 == len(pieces) or at + 2 == len(pieces) or pieces[at + 1].start > pieces[at].end
    return text[pieces[at].start].islower() and apart


def _counts(text: str, piece: Piece) -> bool:
    """Whether a word of a table may be what the table says, and is no name."""
    return piece.value not in _WEAK or text[piece.start].islower()


def _is_inside(pieces: Sequence[Piece], at: int) -> bool:
    """Whether a piece stands within a word: the "com" of a@b.com, the colon of 13:30."""
    before = pieces[at - 1].end == pieces[at].start and pieces[at - 1].kind != "quote"
    after = at + 1 < len(pieces) and pieces[at + 1].start == pieces[at].end
    return before and (after or pieces[at].kind == "word")


_GLUED = 3
"""Pieces that make a word with signs in it."""


def _is_whole(pieces: Sequence[Piece]) -> bool:
    """Whether a quotation, a number or a word with signs in it begins here: 'Ann', 13:30,
    a@b.org."""
    glued = len(pieces) == _GLUED and all(one.end == after.start for one, after in pairwise(pieces))
    return bool(pieces) and (pieces[0].kind in {"quote", "number", "point"} or glued)


def _skip(pieces: Sequence[Piece], at: int) -> int:
    """Past what may stand before a step."""
    while at < len(pieces):
        lead, verb = _LEADS.at(pieces, at), _VERBS.at(pieces, at)
        if verb is not None and (lead is None or lead[1] <= verb[1]):
            break
        if lead is None and (pieces[at].kind == "quote" or pieces[at].value not in _JOINS):
            break
        at = at + 1 if lead is None else lead[1]
    return at


def _end_of_words(pieces: Sequence[Piece], at: int, end: int, quoted: int) -> int:
    """Where an argument without quotation marks ends: before a quotation, a link, a noun of a
    control, or a comma.

    Before the last quotation a link ends it only where nothing but words of the tables stands up to
    a quotation: "Bank of the West in the 'Name' field".
    """
    at += 1
    while at < end and pieces[at].kind != "quote" and pieces[at].value != ",":
        noun = _NOUNS.at(pieces, at)
        is_known = _LINKS.at(pieces, at) is not None or (
            noun is not None and noun[0] not in {"value", "file"}
        )
        is_end = is_known and pieces[at].value not in _WEAK and not _is_inside(pieces, at)
        if is_end and (at > quoted or _said(pieces[at : at + _NEAR])):
            break
        at += 1
    return at


_NEAR = 8
"""Words between what is entered and its control."""


def _said(pieces: Sequence[Piece]) -> bool:
    """Whether pieces are words of the tables, up to a quotation where there is one."""
    at = 0
    while at < len(pieces) and pieces[at].kind != "quote":
        known = next(
            (said for one in (_HOLDS, _NOUNS, _ARTICLES, _LINKS) if (said := one.at(pieces, at))),
            None,
        )
        if known is None:
            return False
        at = known[1]
    return True


def _clauses(pieces: Sequence[Piece]) -> Iterator[Sequence[Piece]]:
    """The parts of a line that begin with a verb of their own, behind a comma, "and" or "then".

    Behind the name of a control none of them is needed: "in the 'L' field type 'V'".
    """
    first = _skip(pieces, 0)
    at = first + 1
    verb = _VERBS.at(pieces, first)
    names, uses = (
        verb is None and _LINKS.at(pieces, first) is not None,
        verb is not None and verb[0] == "use",
    )
    while at < len(pieces):
        begin = _skip(pieces, at)
        uses_it = uses and pieces[at - 1].value == "to" and not _TAILS.at(pieces, at - 1)
        found, noun = _VERBS.at(pieces, begin), _NOUNS.at(pieces, begin)
        # "upload field" is none
        is_verb = found is not None and (begin > at or noun is None or noun[1] <= found[1])
        if is_verb and (begin > at or names or uses_it):
            yield pieces[first:at]
            first, names, uses = begin, False, False
        # what was skipped is not looked at again: "and and and ..." takes a look a word
        at = max(at, begin) + 1
    yield pieces[first:]


def _topic(pieces: Sequence[Piece]) -> str | None:
    """The control that a clause without a verb names: "in the 'L' field"; None where it does
    anything else."""
    at = _skip(pieces, 0)
    link = _LINKS.at(pieces, at)
    rest = pieces[link[1] :] if link is not None else ()
    names = [piece.value for piece in rest if piece.kind == "quote"]
    words = [piece for piece in rest if piece.kind != "quote"]
    return names[0] if len(names) == 1 and _said(words) else None


# -- what a step comes to --------------------------------------------------------------------------

_VALUE_FIRST = frozenset({"type", "append", "select", "check", "uncheck", "attach"})
"""Verbs whose object is what is entered."""
_CONTROLS = frozenset({"field", "choice", "boxes"})
_PICKED = frozenset({"date", "time", "number"})
"""Kinds that pages show as something to pick from, and that are typed into all the same."""
_FILLS = frozenset({"type", "append", "set", "select", "check", "uncheck", "attach"})


def _actions(step: _Step, names: Names, topic: str) -> list[Action] | None:
    """What a step comes to; [] where there is nothing to do, None where something is missing that
    it does not say."""
    if step.verb == "idle":
        return []
    if step.verb == "send" and "file" in step.nouns:
        step = replace(step, verb="attach")
    if step.verb == "ensure":
        said = "check" if "state" in step.nouns else "uncheck" if "off" in step.nouns else ""
        return _actions(replace(step, verb=said), names, topic) if said else None
    verb = "type" if step.verb == "use" else step.verb
    if len(step.arguments) == 2:
        verb = {"click": "select", "send": "attach"}.get(step.verb, verb)
        return _entries(replace(step, verb=verb), *step.arguments, names)
    if not step.arguments and topic and step.verb in {"check", "uncheck"}:
        return _actions(replace(step, arguments=(_Argument((topic,)),)), names, "")
    if not step.arguments:
        sends = "button" in step.nouns or (
            step.verb == "send" and (not step.nouns or "form" in step.nouns)
        )
        return [plan.Submit()] if step.verb in {"click", "press", "send"} and sends else None
    (one,) = step.arguments
    label, kind = one.text, names.kind(one.text)
    if topic and verb in _FILLS and not names.has(label):
        return _entries(replace(step, verb=verb), one, _Argument((topic,), "label"), names)
    if len(one.texts) > 1:
        tick = plan.Check if step.verb == "check" else plan.Uncheck
        return [tick(text) for text in one.texts] if step.verb in {"check", "uncheck"} else None
    generic = not one.quoted and label.casefold() in SUBMIT_WORDS
    is_named = (
        one.quoted or generic or names.has(label) or names.group_of(label) or step.verb == "press"
    )
    if names.mention and not is_named:
        return None  # "select the desired option"
    match step.verb:
        case "press" if label.casefold() in KEYS:
            return [plan.Press(label)]
        case "press" | "click" | "send" if generic or (
            step.verb == "send" and "form" in step.nouns
        ):
            return [plan.Submit()]
        case "click" | "use" | "check" if "button" in step.nouns:
            return [plan.Submit(label)]
        case "press" | "select" | "send" | "use" if (
            "button" in step.nouns or loose(label) in names.buttons
        ):
            return [plan.Submit(label)]
        case "press":
            return [plan.Press(label)]
        case "send":
            return [plan.Submit(label)] if one.quoted else None
        case "click" | "select" if (group := names.group_of(label)) and names.kind(
            group
        ) in CHOSEN - {"radio"}:
            return [
                (plan.Check if names.kind(group) == "checkboxes" else plan.Select)(group, label)
            ]
        case "select" if group := names.group_of(label):
            return [plan.Select(group, label)]
        case "select" if kind == "checkbox" or (not kind and "checkbox" in step.nouns):
            return [plan.Check(label)]
        case "navigate" | "use" if not kind and not step.nouns & (
            _CONTROLS | {"checkbox", "option"}
        ):
            return None
        case "click" | "select" | "navigate" | "use":
            return [plan.Click(label, _what(step.nouns))]
        case "check" | "uncheck":
            tick = plan.Check if step.verb == "check" else plan.Uncheck
            group = names.group_of(label)
            return [
                tick(group, label)
                if group and names.kind(group) in {"select", "multiselect"}
                else tick(label)
            ]
        case "clear" if kind == "checkbox" or (not kind and "checkbox" in step.nouns):
            return [plan.Uncheck(label)]
        case "clear" if kind in TYPED or not kind:
            return [plan.Type(label, "")]
    return None


def _what(nouns: frozenset[str]) -> Literal["", "field", "box"]:
    if nouns & {"checkbox", "option"}:
        return "box"
    return "field" if nouns & _CONTROLS else ""


def _entries(step: _Step, first: _Argument, second: _Argument, names: Names) -> list[Action] | None:
    """What is entered into a control, whichever of the two it is."""
    is_second = _second_is_control(step.verb, first, second, names)
    if is_second is None:
        return None
    control, value = (second, first) if is_second else (first, second)
    label, kind = control.text, names.kind(control.text)
    if (
        step.verb not in _FILLS
        or len(control.texts) > 1
        or (not value.quoted and loose(value.text) == loose(label))
    ):
        return None
    if names.mention and not (control.quoted or kind):
        return None
    if (
        names.mention
        and not value.quoted
        and not _may_hold(kind, step.verb, label, value.text, names)
    ):
        return None  # "check off 'L'", "put a check in 'L'"
    is_file = kind == "file" or (not kind and "file" in step.nouns)
    if len(value.texts) > 1 and not (is_file or kind in {"multiselect", "checkboxes", ""}):
        return None
    is_box = kind == "checkbox" or (not kind and "checkbox" in step.nouns)
    chosen = kind in CHOSEN or (not kind and bool(step.nouns & {"choice", "boxes", "option"}))
    verb = step.verb
    if verb == "attach" or is_file:
        return [plan.Attach(label, text) for text in value.texts]
    if is_box and (verb in {"set", "select"} or (verb == "check" and not value.quoted)):
        return [_ticked(label, text) for text in value.texts]
    is_option = kind in {"select", "multiselect"} and label in names.options.get(
        loose(value.text), ()
    )
    if (verb == "type" and is_option) or (verb == "append" and kind in CHOSEN):
        verb = "select"  # "write 'Law' for 'Course'", which is a list
    if verb == "set" or (verb == "select" and kind in _PICKED):
        verb = "select" if chosen else "type"
    if verb in {"type", "append"}:
        return (
            [plan.Type(label, value.text, clear=verb == "type")] if len(value.texts) == 1 else None
        )
    make = {"select": plan.Select, "check": plan.Check, "uncheck": plan.Uncheck}[verb]
    return [make(label, text) for text in value.texts]


def _may_hold(kind: str, verb: str, label: str, value: str, names: Names) -> bool:
    """Whether words without quotation marks can be what is entered: a typed text, or an option that
    is there."""
    if kind in CHOSEN or kind == "checkbox":
        return label in names.options.get(loose(value), ()) or (
            verb in {"set", "check"} and folded(value) in YES | NO
        )
    return verb in {"type", "append", "set"} or kind in _PICKED | {"file"}


def _second_is_control(verb: str, first: _Argument, second: _Argument, names: Names) -> bool | None:
    """Whether the second of two arguments is the control; None where nothing says so."""
    if second.link == "label" and second.nouns & _CONTROLS:
        return True
    known = (bool(names.kind(first.text)), bool(names.kind(second.text)))
    if known[0] != known[1]:
        return known[1]
    if second.link in {"label", "value"}:
        return second.link == "label"
    return verb in _VALUE_FIRST if second.link else None


def _ticked(label: str, value: str) -> Action:
    """A single box that is said to be so; what is neither yes nor no is left to fail."""
    said = folded(value)
    if said in NO:
        return plan.Uncheck(label)
    return plan.Check(label) if said in YES else plan.Check(label, value)


# -- one line --------------------------------------------------------------------------------------

MAX_CHARACTERS = 60_000
"""Of a completion; what is beyond is not read."""
MAX_STEPS = 300
"""Actions of a plan; what is beyond is not read."""
MAX_LINE = 12_000
"""Characters of one step; longer ones are not understood."""
MAX_VALUE = 10_000
"""Characters of one argument; longer ones are not understood."""
_MOST_LINES = 40
"""Line breaks in one quotation at which it may end."""
_MOST_STEPS = 20_000
_SHORT = 500
"""Characters in which labels without quotation marks are looked for."""
_DONE = re.compile(r"(?:done|concluído|pronto)(?![\w-])(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_FAILED = "without success"
AROUND_URL = "'\"`<>()[]*_.,;“”‘’«»"
"""What stands around an address without quotation marks, and is none of it."""
_URL = re.compile(r"[a-z][a-z0-9+.-]{0,30}://[^\s<>'\"`]+", re.IGNORECASE)
_HEADED = re.compile(
    r"[*_'\"]*+(?P<label>[^:*'\"]{1,200}+)[*_'\"]*+:[*_'\"]*+\s+(?P<rest>.+)", re.DOTALL
)
"""A label in front of a step; no part of it gives back what it took, because a label may hold
underscores, too."""
_TITLE = re.compile(r"(?:\s*#[^'\"`*/]*|[^'\"`*/]*:[\s*_]*|\W*(?:\d+\W+)?\*\*[^'\"`*/]*\*\*\W*)")
"""A heading of the lines below it: behind "#", before ":" or bold, without a quotation and an
address."""
_LONGEST_TITLE = 200
_FENCE = re.compile(r"`{3,}\w*|`*")


def read_step(line: str) -> Action | None:
    """Read one step by itself; None where it is none, or says more or less than one thing."""
    said = read_line(line)
    return said[0] if said is not None and len(said) == 1 else None


def read_line(
    line: str, names: Names = UNKNOWN, work: Work | None = None, topic: str = ""
) -> tuple[Action, ...] | None:
    """Read one line.

    Args:
        line: of a plan.
        names: of the form's controls.
        work: of the whole plan, where there is more of it.
        topic: the control that the line above clicked on.

    Returns:
        Its actions; () where it says that nothing is to be done; None where it is not understood.

    Raises:
        TooMuchWorkError: the plan takes more than it may; never where `work` is None.
    """
    if len(line) > MAX_LINE:
        return None
    body = cut(cut(line)[1])[1]  # "Step 3: 3) type 'Ann'"
    if (headed := _HEADED.match(body)) is not None and names.kind(headed.group("label")):
        topic, body = headed.group("label"), headed.group("rest")  # "**Full name:** type 'Ann'"
    said, spent = _read_body(body, names, topic)
    if work is not None:
        work.spend(spent)
    return said


# A group of rollouts says the same things again and again, whatever their numbers.
@lru_cache(maxsize=8192)
def _read_body(body: str, names: Names, topic: str) -> tuple[tuple[Action, ...] | None, int]:
    """What a step says, and the work that it takes, which is the same where it is known from
    before."""
    work = Work()
    try:
        for text in dict.fromkeys((body, *plainer(body))):
            if (said := _read_text(text, names, work, topic)) is not None:
                return said, work.spent
    except TooMuchWorkError:
        pass
    return None, work.spent


def _read_text(text: str, names: Names, work: Work, topic: str) -> tuple[Action, ...] | None:
    work.look(len(text))
    if (done := _DONE.fullmatch(text)) is not None and (
        action := _done(done.group("rest"))
    ) is not None:
        return (action,)
    if "/" in text and (url := _address(text)):
        return (plan.Navigate(url),)
    is_list = False
    for number, quoted in enumerate(quotations(text)):
        if number > 0 and (len(quoted) == 1 or is_list):
            continue  # two quotations that leave open which is which are not one long label instead
        is_list = len(quoted) > 2 and any(names.has(one.text) for one in quoted)
        if any(len(one.text) > MAX_VALUE for one in quoted):
            continue
        for arguments in (*_with_label(text, quoted, names), quoted):
            work.look(len(text))
            if (said := _read_clauses(text, pieces_of(text, arguments), names, topic)) is not None:
                return said
    return None


def _with_label(
    text: str, quoted: Sequence[Quotation], names: Names
) -> Iterator[Sequence[Quotation]]:
    """The quotations and the last label of the form outside of them, which needs no marks."""
    if names.mention is None or len(quoted) > 1:
        return
    for found in reversed(list(names.mention.finditer(text[:_SHORT]))):
        one = Quotation(found.group(), found.start(), found.end())
        if all(one.end <= other.start or other.end <= one.start for other in quoted):
            if all(loose(other.text) != loose(one.text) for other in quoted):
                yield sorted((*quoted, one), key=lambda each: each.start)
            return


def _read_clauses(
    text: str, pieces: Sequence[Piece], names: Names, topic: str
) -> tuple[Action, ...] | None:
    """Each clause is understood by itself, but for the control that the one before it clicked on or
    named."""
    actions: list[Action] = []
    clauses = list(_clauses(pieces))
    for number, clause in enumerate(clauses):
        step = _step(text, clause)
        if step is None:
            named = _topic(clause) if number + 1 < len(clauses) else None
            if named is None:
                return None
            topic = named
            continue
        said = _actions(step, names, topic)
        if said is None:
            return None
        topic = clicked_on(said, names) or topic
        actions += said
    return tuple(actions)


def clicked_on(said: Sequence[Action], names: Names) -> str:
    """The control that was just clicked on, which the next step may fill without naming it; ""
    where there is none."""
    one = said[0] if len(said) == 1 else None
    label = (
        one.label
        if isinstance(one, plan.Click) or (isinstance(one, plan.Type) and not one.text)
        else ""
    )
    return label if names.kind(label) not in {"", "checkbox"} else ""


def _done(rest: str) -> Action | None:
    text = rest.lstrip(":.,;! ")
    success = not text.startswith(_FAILED)
    text = text.removeprefix(_FAILED).lstrip(":.,; ")
    return (
        plan.Done(unquoted(text) if text else "", success) if is_quoted(text) or not text else None
    )


def _address(text: str) -> str:
    """The address that a step goes to; "" where it goes to none."""
    pieces = pieces_of(text[:_SHORT], ())
    verb = _VERBS.at(pieces, _skip(pieces, 0))
    if verb is None or verb[0] != "navigate" or len(next(quotations(text), ())) > 1:
        return ""
    rest = text[pieces[verb[1] - 1].end :].strip()
    if is_quoted(rest):
        return unquoted(rest) if "/" in rest else ""
    if (url := _URL.search(text)) is not None:
        return url.group().rstrip(AROUND_URL)
    last = rest.rsplit(" ", 1)[-1]
    last = unquoted(last) if is_quoted(last) else last.strip(AROUND_URL)
    return last if "/" in last else ""


# -- a whole plan ----------------------------------------------------------------------------------

COSTLY = Plan((), "none+costly")
"""A plan that takes more than `grammar.MOST_WORK`."""


def read_steps(text: str, names: Names = UNKNOWN) -> Plan:
    """Read plain-text steps, one to a line; a value in quotes may go on over several lines.

    Markers and numbers may be of any style or missing. What claims to be a step (it has a number,
    or begins with a verb) and is not understood is counted as unread; what says that nothing is to
    be done is counted as idle.

    Args:
        text: what a model wrote.
        names: of the form's controls, where the form is known.
    """
    try:
        return _read_all(text, names, Work())
    except TooMuchWorkError:
        return COSTLY


def _read_all(text: str, names: Names, work: Work) -> Plan:
    actions: list[Action] = []
    unread = idle = 0
    topic = ""
    for line in _steps(text[:MAX_CHARACTERS], names, work):
        if names.kind(title := cut(line)[1].strip("*_: ")):
            topic = title  # "2. **Full name**", and below it what to do there
            continue
        if len(line) <= _LONGEST_TITLE and _TITLE.fullmatch(line):
            continue
        said = read_line(line, names, work, topic)
        topic = clicked_on(said, names) if said else topic if said == () else ""
        unread += said is None and claims(line, begins_with_verb)
        idle += said == ()
        actions += said or ()
        if len(actions) > MAX_STEPS:
            break
    cut_off = len(text) > MAX_CHARACTERS or len(actions) > MAX_STEPS
    how = "steps" if actions else "none"
    how += ("+unread" if unread else "") + ("+cut" if cut_off else "")
    return Plan(tuple(actions[:MAX_STEPS]), how, unread, idle)


def _steps(text: str, names: Names, work: Work) -> list[str]:
    """The lines that may be steps, without empty ones; a quotation that is open goes on in the next
    line."""
    steps: list[str] = []
    pending, lines = "", 0
    for line in cleaned(text).split("\n"):
        # Inside a quotation, or after a step that nobody will understand?
        may_go_on = (
            opens(pending) and len(pending) < MAX_LINE and lines < _MOST_LINES and not _begins(line)
        )
        if may_go_on and read_line(pending, names, work, topic="any") is None:
            lines += has_quote(line)
            pending += "\n" + line
            continue
        steps.append(pending)
        pending, lines = "" if _FENCE.fullmatch(line.strip()) else line, 0
        if len(steps) > _MOST_STEPS:
            break
    return [one for one in (*steps, pending) if one]


def _begins(line: str) -> bool:
    """Whether a line begins a step: with a marker, or with a verb of the table."""
    marker, rest = cut(line)
    marked = marker.group("word") is not None and marker.group("number") is not None
    return marked or begins_with_verb(pieces_of(rest[:60], ()))


def begins_with_verb(pieces: Sequence[Piece]) -> bool:
    """Whether a line of these pieces begins with a verb of the table."""
    return (
        pieces[:1] != []
        and pieces[0].value not in _JOINS
        and _VERBS.at(pieces, _skip(pieces, 0)) is not None
    )
