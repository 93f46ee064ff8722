"""Reads what a model wrote as a plan: plain-text steps, or browser-agent JSON. Never raises, whatever the text."""

import re
from functools import lru_cache

from plumbline.tasks.forms.plans import grammar
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
from plumbline.tasks.forms.plans.grammar import QUOTES

MAX_CHARACTERS = 60_000
"""Of a completion; what is beyond is not read."""
MAX_STEPS = 300
"""Actions of a plan; what is beyond is not read."""
MAX_LINE = 12_000
"""Characters of one step; longer ones are not understood."""
MAX_VALUE = 10_000
"""Characters of one argument; longer ones are not understood."""

_ESCAPED = re.compile(r"\\([\\'\"nrt])")
_MEANING = {"n": "\n", "r": "\r", "t": "\t"}


def read_steps(text: str) -> Plan:
    """Read plain-text steps, one to a line; a value in quotes may go on over several lines.

    Lines that are no step are counted as unread: markers and numbers may be of any style or missing, and a step that
    is missing is simply not there.
    """
    actions: list[Action] = []
    unread, pending = 0, ""
    cut = len(text) > MAX_CHARACTERS
    for line in [*_clean(text[:MAX_CHARACTERS]).split("\n"), None]:
        if line is not None and pending and not _starts(line):
            if len(pending) < MAX_LINE and read_step(pending) is None:
                pending += "\n" + line  # inside a quotation, or a step that nobody will understand
                continue
            if not line.strip(" `"):
                continue
        if pending:
            action = read_step(pending)
            if action is None:
                unread += 1
            elif len(actions) < MAX_STEPS:
                actions.append(action)
            else:
                cut = True
                break
        pending = line or ""
        if not pending.strip(" `"):
            pending = ""
    how = "steps" if actions else "none"
    return Plan(tuple(actions), how + ("+unread" if unread else "") + ("+cut" if cut else ""), unread)


def _clean(text: str) -> str:
    """Without a thought before the answer, and with one kind of line break."""
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _starts(line: str) -> bool:
    """Whether a line begins a step: with a marker, or with a verb of the table."""
    found = grammar.MARKER.match(line)
    assert found is not None
    marked = found.group("word") is not None and found.group("number") is not None
    return marked or grammar.VERB.match(line, found.end()) is not None


@lru_cache(maxsize=4096)
def read_step(line: str) -> Action | None:
    """Read one step; None where it is none."""
    if len(line) > MAX_LINE:
        return None
    marker = grammar.MARKER.match(line)
    assert marker is not None
    verb = grammar.VERB.match(line, marker.end())
    if verb is None or verb.lastgroup is None:
        return None
    rest = line[verb.end() :].strip()
    action = _READERS[verb.lastgroup](rest, verb.lastgroup)
    if action is None or any(len(value) > MAX_VALUE for value in _texts(action)):
        return None
    return action


def _texts(action: Action) -> list[str]:
    return [value for name in action.__slots__ if isinstance(value := getattr(action, name), str)]


# -- arguments ---------------------------------------------------------------------------------------------------


def _argument(text: str) -> str:
    """One argument, out of its quotes."""
    text = text.strip()
    if _is_quoted(text):
        return _ESCAPED.sub(lambda found: _MEANING.get(found.group(1), found.group(1)), text[1:-1])
    return text.strip("*_").rstrip(".;").strip()


def _is_quoted(text: str) -> bool:
    return len(text) > 1 and text[0] in QUOTES and text[-1] == QUOTES[text[0]] and not _is_escaped(text, len(text) - 1)


def _is_escaped(text: str, at: int) -> bool:
    before = text[max(0, at - 50) : at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _without_tail(text: str) -> str:
    """Without the nouns and the full stop after the last argument."""
    stopped = text.rstrip(" \t*.;!")
    if stopped and stopped[0:1] and stopped[-1] in QUOTES.values():
        return stopped
    head, tail = text[: -grammar.TAIL_LENGTH], text[-grammar.TAIL_LENGTH :]
    return (head + grammar.TAIL.sub("", tail)).strip()


def _without_lead(text: str) -> str:
    found = grammar.LEAD.match(text)
    assert found is not None
    return text[found.end() :] if found.end() < len(text) else text


def _pair(rest: str, link: str) -> tuple[str, str] | None:
    """Both arguments of `'value' LINK the 'label' field`; the last link counts, because values hold anything."""
    whole = _without_lead(_without_tail(rest))
    if whole and whole[0] in QUOTES:
        for found in reversed(list(grammar.QUOTED_LINK[link].finditer(whole))):
            value, label = whole[: found.end()], whole[found.start(1) :]
            if _is_quoted(value) and _is_quoted(label):
                return _argument(value), _argument(label)
    bare = list(grammar.BARE_LINK[link].finditer(whole))
    if not bare or (whole[0] in QUOTES and _is_quoted(whole)):
        return None
    value, label = whole[: bare[-1].start()], whole[bare[-1].end() :]
    if label[:1] in QUOTES and not _is_quoted(label):
        return None  # the quotation goes on
    return _argument(value), _argument(label)


def _label_first(rest: str) -> tuple[str, str] | None:
    """Both arguments of `the 'label' field with 'value'`."""
    whole = _without_lead(rest.rstrip(" .;"))
    if whole and whole[0] in QUOTES:
        for found in grammar.QUOTED_WITH.finditer(whole):
            label, value = whole[: found.end()], whole[found.start(1) :]
            if _is_quoted(label) and _is_quoted(value):
                return _argument(label), _argument(value)
    return None


def _single(rest: str) -> str | None:
    """The one argument there is; None where there is none, or its quotation goes on."""
    whole = _without_lead(_without_tail(rest))
    if not whole or (whole[0] in QUOTES and not _is_quoted(whole)):
        return None
    return _argument(whole)


# -- one reader a verb -------------------------------------------------------------------------------------------


def _navigate(rest: str, _: str) -> Action | None:
    url = _argument(rest.rsplit(" ", 1)[-1] if not _is_quoted(rest) else rest)
    return Navigate(url) if "/" in url else None


def _type(rest: str, verb: str) -> Action | None:
    found = _pair(rest, verb)
    if found is not None:
        return Type(found[1], found[0], clear=verb == "type")
    turned = _label_first(rest)
    return Type(*turned) if turned is not None else None


def _select(rest: str, _: str) -> Action | None:
    found = _pair(rest, "select")
    if found is not None:
        return Select(found[1], found[0])
    label = _single(rest)
    return Click(label) if label else None


def _box(rest: str, verb: str) -> Action | None:
    kind = Check if verb == "check" else Uncheck
    found = _pair(rest, verb) if _without_lead(rest)[:1] in QUOTES else None
    if found is not None:
        return kind(found[1], found[0])
    label = _single(rest)
    return None if label is None else kind(label)


def _attach(rest: str, _: str) -> Action | None:
    found = _pair(rest, "attach")
    return Attach(found[1], found[0]) if found is not None else None


def _submit(rest: str, _: str) -> Action | None:
    return Submit() if len(rest) < grammar.TAIL_LENGTH else None


def _click(rest: str, _: str) -> Action | None:
    label = _single(rest)
    whole = _without_lead(_without_tail(rest))
    quoted = _is_quoted(whole)
    around = rest.replace(whole, " ", 1) if quoted else rest
    if label is None:
        return Submit() if grammar.BUTTON.search(rest) and rest[-1] not in QUOTES.values() else None
    generic = not quoted and label.casefold() in grammar.SUBMIT_WORDS
    if generic or grammar.BUTTON.search(around):
        return Submit("" if generic else label)
    if not label:
        return None
    if grammar.BOX.search(around):
        return Click(label, "box")
    return Click(label, "field" if grammar.FIELD.search(around) else "")


def _press(rest: str, _: str) -> Action | None:
    whole = _without_lead(_without_tail(rest))
    around = rest.replace(whole, " ", 1) if _is_quoted(whole) else rest
    if grammar.BUTTON.search(around[-grammar.TAIL_LENGTH :]):
        return _click(rest, "click")
    keys = _single(rest)
    return Press(keys) if keys else None


def _done(rest: str, _: str) -> Action | None:
    text = rest.lstrip(":.,; ")
    if _is_quoted(text) or not text:
        return Done(_argument(text))
    failed = text.removeprefix("without success").lstrip(":.,; ")
    if failed != text and (_is_quoted(failed) or not failed):
        return Done(_argument(failed), success=False)
    return None


_READERS = {
    "navigate": _navigate,
    "type": _type,
    "append": _type,
    "select": _select,
    "check": _box,
    "uncheck": _box,
    "attach": _attach,
    "submit": _submit,
    "click": _click,
    "press": _press,
    "done": _done,
}
