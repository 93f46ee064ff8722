"""What the words around an argument say: whether it is the control, or what is entered."""

from collections.abc import Sequence
from dataclasses import dataclass

from plumbline_forms.plans.tokens import Token, is_colon, is_sign

VALUE_FIRST = frozenset({"type", "append", "use", "select", "check", "uncheck", "attach", "send", "press"})
"""Verbs whose object is what is entered: "type V into L"."""
_CONTROL = frozenset({"field", "choice", "boxes", "upload"})
_GIVEN = frozenset({"option", "value", "file"})
_LABELLED, _LINKED, _OBJECT = 2.0, 2.0, 1.0
"""What a noun, a link and being the object of the verb count."""


@dataclass(frozen=True, slots=True)
class Context:
    """What the words around an argument say of it."""

    link: str = ""
    before: str = ""
    after: str = ""
    is_topic: bool = False
    """It stands before the verb: "in L, type V"."""
    is_object: bool = False

    @property
    def nouns(self) -> frozenset[str]:
        """What it is called."""
        return frozenset({self.before, self.after} - {""})


def contexts_of(tokens: Sequence[Token], places: Sequence[int], verb: int, first: int) -> list[Context]:
    """For each argument what the words before and after it say."""
    found = []
    for number, place in enumerate(places):
        earlier = places[number - 1] if number else -1
        later = places[number + 1] if number + 1 < len(places) else len(tokens)
        begin = max([earlier, *(at for at in (verb, first) if earlier < at < place)])
        stop = min([later, *(at for at in (verb, first) if place < at < later)])
        after_argument = begin == earlier and number > 0
        before = list(tokens[begin + 1 : place])
        if after_argument:
            before = before[_own_tail(before) :]
        tail = list(tokens[place + 1 : stop])
        tail = tail[: _own_tail(tail) if stop == later and later < len(tokens) else len(tail)]
        topic = place < verb
        link = _link(before, counts_either=number > 0 or topic, counts_colon=after_argument)
        is_object = not topic and not link and not any(verb < other < place for other in places)
        found.append(Context(link, _noun_before(before), _noun_after(tail), topic, is_object))
    return found


def _own_tail(between: Sequence[Token]) -> int:
    """How many words between two arguments belong to the first: up to a link or a sign, else its nouns."""
    last = 0
    for at, token in enumerate(between):
        if token.role("link") is not None or token.role("join") is not None or (is_sign(token)):
            return at
        if token.role("noun") in _CONTROL | {"checkbox", "button"}:
            last = at + 1
    return last


def _link(before: Sequence[Token], *, counts_either: bool, counts_colon: bool) -> str:
    for token in reversed(before):
        link = token.role("link")
        if counts_colon and is_colon(token):
            return "value"
        if link in {"label", "value"} or (link == "either" and counts_either):
            return link
    return ""


def _noun_before(before: Sequence[Token]) -> str:
    for token in reversed(before):
        if (noun := token.role("noun")) is not None:
            return noun
        if token.role("link") is not None or not (
            is_sign(token) or {"called", "article", "adverb"} & token.roles.keys()
        ):
            return ""
    return ""


def _noun_after(after: Sequence[Token]) -> str:
    for token in after:
        if (noun := token.role("noun")) is not None:
            return "" if noun in {"value", "file"} else noun
        if token.role("article") is None and not (is_sign(token) and token.word and token.word.text in "(*"):
            return ""
    return ""


def evidence(label: Context, value: Context, kind: str) -> tuple[bool, float]:
    """Whether anything but the verb says that the first is the control, and how much speaks for it."""
    value_first = kind in VALUE_FIRST
    first, second = _leaning(label, value_first), _leaning(value, value_first)
    says = bool(label.link or value.link or label.nouns or value.nouns or label.is_topic)
    return says, first - second


def _leaning(context: Context, value_first: bool) -> float:
    """How much speaks for an argument's being the control; below 0 for being what is entered."""
    total = 0.0
    if context.link == "label":
        total += _LINKED
    elif context.link == "value":
        total -= _LINKED
    elif context.link == "either":
        total += _OBJECT if value_first or context.is_topic else -_OBJECT
    if context.nouns & _CONTROL:
        total += _LABELLED
    elif context.nouns & _GIVEN:
        total -= _LABELLED
    elif "checkbox" in context.nouns:
        total -= _OBJECT / 2
    if context.is_topic:
        total += _OBJECT
    elif context.is_object:
        total += -_OBJECT if value_first else _OBJECT
    return total
