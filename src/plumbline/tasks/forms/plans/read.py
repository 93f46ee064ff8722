"""Reads plain-text steps into typed actions. Never raises, whatever the text."""

import re
from functools import lru_cache
from typing import Literal

from plumbline.tasks.forms.plans.actions import (
    Action,
    Attach,
    Check,
    Click,
    Done,
    Navigate,
    Plan,
    Press,
    Select,
    Submit,
    Type,
    Uncheck,
)
from plumbline.tasks.forms.plans.labels import UNKNOWN, Names, folded, loose
from plumbline.tasks.forms.plans.quotations import has_quote, is_quoted, opens, plainer, quotations, unquoted
from plumbline.tasks.forms.plans.sentence import Sentence, sentences
from plumbline.tasks.forms.plans.vocabulary import KEYS, NO, SUBMIT_WORDS, YES, words_of

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

_MARKER = re.compile(
    r"\s{0,16}(?:(?:[-*•>→]|#{1,4})\s{1,3})?(?:\[[ xX]?\]\s{1,3})?[*_#]{0,3}\s?"
    r"(?:(?P<word>step|passo|etapa|action|ação|acao)\b\s{0,2}#?\s?)?"
    r"(?P<number>[(\[]?\d{1,4}(?:\.\d{1,3})?[ºª]?(?![\w/'\"]))?[*_]{0,2}(?:\s{0,2}[:.)\]–—-]{1,2})?[*_]{0,2}\s{0,4}",
    re.IGNORECASE,
)
"""What may stand before a step; it matches nothing, too."""
_DONE = re.compile(r"(?:done|finish(?:ed)?|concluído|pronto|fim)(?![\w-])(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_FAILED = "without success"
_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s<>'\"`]+", re.IGNORECASE)
_AROUND_URL = "'\"`<>()[]*_.,;“”‘’«»"
_SELECTS = frozenset({"select", "multiselect", "radio", "checkboxes"})
_PICKED = frozenset({"date", "time"})
"""Kinds that pages show as something to pick from, and that are typed into all the same."""


def read_steps(text: str, names: Names = UNKNOWN) -> Plan:
    """Read plain-text steps, one to a line; a value in quotes may go on over several lines.

    Markers and numbers may be of any style or missing. What claims to be a step (it has a number, or begins with a
    verb) and is not understood is counted as unread; what says that nothing is to be done is counted as idle.

    Args:
        text: what a model wrote.
        names: of the form's controls, where the form is known.
    """
    actions: list[Action] = []
    unread = idle = lines = 0
    pending = ""
    cut = len(text) > MAX_CHARACTERS
    for line in [*_clean(text[:MAX_CHARACTERS]).split("\n"), None]:
        # Inside a quotation, or after a step that nobody will understand?
        if line is not None and opens(pending) and not _starts(line) and _goes_on(pending, lines, names):
            lines += has_quote(line)
            pending += "\n" + line
            continue
        if pending:
            found = read_line(pending, names)
            if found is None:
                unread += _claims(pending)
            idle += found == ()
            actions += found or ()
            if len(actions) > MAX_STEPS:
                cut = True
                break
        pending, lines = line or "", 0
        if not pending.strip(" `"):
            pending = ""
    how = "steps" if actions else "none"
    how += ("+unread" if unread else "") + ("+cut" if cut else "")
    return Plan(tuple(actions[:MAX_STEPS]), how, unread, idle)


def _goes_on(pending: str, lines: int, names: Names) -> bool:
    return len(pending) < MAX_LINE and lines < _MOST_LINES and read_line(pending, names) is None


def _clean(text: str) -> str:
    """Without a thought before the answer, and with one kind of line break."""
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _starts(line: str) -> bool:
    """Whether a line begins a step: with a marker, or with a verb of the table."""
    found = _MARKER.match(line)
    assert found is not None
    marked = found.group("word") is not None and found.group("number") is not None
    return marked or _begins_with_verb(line[found.end() :])


def _claims(line: str) -> bool:
    """Whether a line that was not understood claims to be a step."""
    found = _MARKER.match(line)
    assert found is not None
    rest = line[found.end() :]
    return bool(rest.strip(" .:-*_`")) and (found.group("number") is not None or _begins_with_verb(rest))


def _begins_with_verb(text: str) -> bool:
    words = words_of(text[:60])
    for word in words or ():
        if "verb" in word.roles:
            return True
        if "adverb" not in word.roles and not word.is_sign:
            return False
    return False


def read_step(line: str) -> Action | None:
    """Read one step by itself; None where it is none, or says more or less than one thing."""
    found = read_line(line)
    return found[0] if found is not None and len(found) == 1 else None


def read_line(line: str, names: Names = UNKNOWN) -> tuple[Action, ...] | None:
    """Read one line.

    Returns:
        Its actions; () where it says that nothing is to be done; None where it is not understood.
    """
    if len(line) > MAX_LINE:
        return None
    marker = _MARKER.match(line)
    assert marker is not None
    return _read(line[marker.end() :].strip(), names)


# A group of rollouts says the same things again and again, whatever their numbers.
@lru_cache(maxsize=8192)
def _read(body: str, names: Names) -> tuple[Action, ...] | None:
    for text in dict.fromkeys((body, plainer(body))):
        found = _read_text(text, names)
        if found is not None:
            return found
    return None


def _read_text(text: str, names: Names) -> tuple[Action, ...] | None:
    if (done := _DONE.fullmatch(text)) is not None and (action := _done(done.group("rest"))) is not None:
        return (action,)
    if (url := _navigates(text)) is not None:
        return (Navigate(url),)
    said = sentences(text, names)
    if said is None:
        return None
    actions: list[Action] = []
    for one in said:
        found = _action(one, text, names)
        if found is None:
            return None
        actions += found
    if any(len(value) > MAX_VALUE for action in actions for value in _texts(action)):
        return None
    return tuple(actions)


def _texts(action: Action) -> list[str]:
    return [value for name in action.__slots__ if isinstance(value := getattr(action, name), str)]


def _done(rest: str) -> Action | None:
    text = rest.lstrip(":.,;! ")
    if is_quoted(text) or not text:
        return Done(unquoted(text) if text else "")
    failed = text.removeprefix(_FAILED).lstrip(":.,; ")
    if failed != text and (is_quoted(failed) or not failed):
        return Done(unquoted(failed) if failed else "", success=False)
    return None


def _navigates(text: str) -> str | None:
    """The address that a step goes to; None where it goes to none."""
    verb = next((word for word in words_of(text[:60]) or () if "adverb" not in word.roles), None)
    if verb is None or verb.name("verb") != "navigate" or len(next(quotations(text), ())) > 1:
        return None
    rest = text[verb.end :].strip()
    if is_quoted(rest):
        return unquoted(rest) if "/" in rest else None
    if found := _URL.search(rest):
        return found.group().rstrip(_AROUND_URL)
    last = rest.rsplit(" ", 1)[-1]
    last = unquoted(last) if is_quoted(last) else last.strip(_AROUND_URL)
    return last if "/" in last else None


# -- from sentences to actions -----------------------------------------------------------------------------------


def _action(said: Sentence, text: str, names: Names) -> list[Action] | None:
    """What a sentence comes to; None where something is missing that it does not say."""
    if said.verb == "idle":
        return []
    if said.values:
        return _entries(said, names)
    if said.verb in {"click", "seek", "navigate"}:
        return _click(said, text)
    if said.verb == "press":
        return _press(said, text, names)
    if said.verb == "send":
        sends_itself = not said.quoted or "form" in said.nouns
        if loose(said.label) in names.buttons and said.label:
            return [Submit(said.label)]
        return None if "file" in said.nouns else [Submit("" if sends_itself or not said.label else said.label)]
    if not said.label:
        return [] if said.verb in {"set", "type", "use"} and not opens(text) else None
    kind = names.kind(said.label)
    if said.verb in {"select", "check", "uncheck", "use"} and ("button" in said.nouns or kind == "button"):
        return [Submit(said.label)]
    if said.verb == "select":
        return _single_choice(said, kind, names)
    if said.verb in {"check", "uncheck"}:
        return [(Check if said.verb == "check" else Uncheck)(said.label)]
    return None


def _entries(said: Sentence, names: Names) -> list[Action] | None:
    """What is entered into a control."""
    label, kind = said.label, names.kind(said.label)
    is_file = kind == "file" or (not kind and said.nouns & {"file", "upload"})
    if said.verb == "type" and not (is_file and "file" in said.nouns):
        return [Type(label, said.values[0])]
    if said.verb == "append" and not is_file and kind not in _SELECTS:
        return [Type(label, said.values[0], clear=False)]
    if said.verb == "attach" or (said.verb in {"type", "append", "send", "select", "use", "set"} and is_file):
        return [Attach(label, value) for value in said.values]
    if said.verb in {"check", "uncheck"}:
        return [(Check if said.verb == "check" else Uncheck)(label, value) for value in said.values]
    if said.verb in {"select", "use", "set"} and kind in _PICKED:
        return [Type(label, said.values[0])]
    if said.verb == "click" or said.verb == "select":
        return [_ticked(label, value) if kind == "checkbox" else Select(label, value) for value in said.values]
    if said.verb in {"use", "set", "append"}:
        value = said.values[0]
        if kind == "checkbox" or (not kind and "checkbox" in said.nouns):
            return [_ticked(label, value)]
        chosen = kind in _SELECTS or (not kind and said.nouns & {"choice", "boxes", "option"})
        return [Select(label, value) if chosen else Type(label, value)]
    return None


def _ticked(label: str, value: str) -> Action:
    """A single box that is said to be so; what is neither yes nor no is left to fail."""
    said = folded(value)
    if said in NO:
        return Uncheck(label)
    return Check(label) if said in YES else Check(label, value)


def _single_choice(said: Sentence, kind: str, names: Names) -> list[Action]:
    groups = names.options.get(loose(said.label), ())
    if kind == "checkbox" or (not kind and not groups and "checkbox" in said.nouns):
        return [Check(said.label)]
    if not kind and len(groups) == 1:
        ticks = names.kind(groups[0]) == "checkboxes"
        return [(Check if ticks else Select)(groups[0], said.label)]
    return [Click(said.label, _what(said.nouns))]


def _click(said: Sentence, text: str) -> list[Action] | None:
    generic = not said.quoted and said.label.casefold() in SUBMIT_WORDS
    if not said.label:
        if said.verb != "click" or opens(text):
            return None if said.verb == "click" else []
        return [Submit()] if "button" in said.nouns else None
    if generic or "button" in said.nouns:
        return [Submit("" if generic else said.label)]
    return [Click(said.label, _what(said.nouns))]


def _what(nouns: frozenset[str]) -> Literal["", "field", "box"]:
    if nouns & {"checkbox", "option"}:
        return "box"
    return "field" if nouns & {"field", "choice", "boxes", "upload"} else ""


def _press(said: Sentence, text: str, names: Names) -> list[Action] | None:
    if not said.label:
        return [Submit()] if "button" in said.nouns else None
    key = said.label.casefold()
    generic = not said.quoted and key in SUBMIT_WORDS
    if key not in KEYS and (generic or "button" in said.nouns or loose(said.label) in names.buttons):
        return _click(said, text)
    return [Press(said.label)]
