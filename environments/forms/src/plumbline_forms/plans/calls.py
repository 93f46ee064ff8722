"""Actions that are written as calls or objects: `page.getByLabel("L").fill("V")`, `{"action": "type", "target": "L"}`.

Their names are the verbs of sentences ("select_option", "selectOption"), their parameters say which argument is the
control. Where neither they nor the form's labels do, nothing is read.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plumbline_forms.plans.actions import Action, Done, Press
from plumbline_forms.plans.elements import Element
from plumbline_forms.plans.labels import Names
from plumbline_forms.plans.meaning import actions_of
from plumbline_forms.plans.quotations import unquoted
from plumbline_forms.plans.sentence import Sentence
from plumbline_forms.plans.vocabulary import KEYS, Word, words_of

_NAMING = (
    *("action", "action_type", "actionType", "tool", "tool_name", "function", "command", "method", "operation", "op"),
    *("event", "step", "instruction", "type", "name"),
)
"""Keys under which an object says what is to be done; the first that does counts."""
_ENDS = frozenset({"done", "finish", "stop", "complete", "terminate", "end", "answer"})
_INDEX = frozenset({"index", "element_index", "element_id", "id"})
_LABELS = frozenset({"name", "selector", "locator", "placeholder", "in", "into", "on", "from"})
_VALUES = frozenset({"to", "with", "keys", "key", "content", "checked"})
_CONTROLS = frozenset({"field", "choice", "boxes", "checkbox", "button", "upload", "link"})
_TAKES_OPTION = frozenset({"click", "select", "check", "uncheck"})
_ROW = re.compile(r"[|\s]*\**(\w+)\**\s*\|(.+)")
_BETWEEN_PAIRS = re.compile(r"(?<!\s)\s*[|;,]\s*(?=\**[A-Za-z]{2,20}\**:)")
_PAIR = re.compile(r"\**([A-Za-z]{2,20}):?\**:?\s*(.+)", re.DOTALL)
_PREFIX = re.compile(r"(?:(?:await|return|const|let|var)\s+|\w+\s*=\s*)*")
_NAME = re.compile(r"\s{0,4}\.?\s{0,4}([A-Za-z_][\w.]{0,80})\(")
_ARGUMENT = re.compile(
    r"""[\s,{}\[\]]{0,40}(?:["']?(?P<key>[A-Za-z_]\w*)["']?\s*[:=]\s*(?=["'`‘“«\d\[{tTfF-]))?[\s{\[]{0,9}"""
    r"""(?:(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|‘[^’]*’|“[^”]*”|«[^»]*»)|(?P<bare>[\w.+-]+))[\s,{}\[\]]{0,40}"""
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_HUMPS = re.compile(r"(?<=[a-z])(?=[A-Z])|_+")
_MOST_DEPTH = 8
Given = Sequence[tuple[str, str]]
"""What a call is given: parameter ("" where there is none) and text."""


def read_call(text: str, names: Names) -> list[Action] | None:
    """The actions of a call, a chain of calls or a row of a table that begins with a verb; None where it is none.

    Args:
        text: of one line, without its marker.
        names: of the form's controls.
    """
    if (pairs := _pairs(text)) is not None and (named := _named(pairs)) is not None:
        verb = _verb(named[0])
        return None if verb is None else _read(verb, list(_texts(named[1])), names)
    if (row := _ROW.fullmatch(text)) is not None and (verb := _verb(row.group(1))) is not None:
        return _read(verb, [("", cell) for part in row.group(2).split("|") if (cell := part.strip(" '\"`*"))], names)
    return _read_chain(text, names)


def _read_chain(text: str, names: Names) -> list[Action] | None:
    """Calls one on what the other gives: those that are no verb, or only find something, say which control it is."""
    prefix = _PREFIX.match(text)
    assert prefix is not None
    at = prefix.end()
    verb: Word | None = None
    given: list[tuple[str, str]] = []
    while (match := _NAME.match(text, at)) is not None:
        arguments, at = _arguments(text, match.end())
        if arguments is None:
            return None
        said = _verb(_HUMPS.sub(" ", match.group(1).rpartition(".")[2]))
        kind = "seek" if said is None else said.name("verb")
        if kind == "seek":
            given += [("label" if key in {"", "name"} else key, value) for key, value in arguments]
        else:
            given += arguments
            verb = said if verb is None or kind != "clear" else verb
    return None if verb is None or text[at:].strip(" ;`") else _read(verb, given, names)


def _pairs(text: str) -> Mapping[str, str] | None:
    """A line that is written like an object: "Action: type | Target: L | Value: V"; None where it is not."""
    first, *others = _BETWEEN_PAIRS.split(text)
    if not others:
        return None
    parts = [_PAIR.fullmatch(part) for part in (first if ":" in first else f"action: {first}", *others)]
    if ":" not in first and len(words_of(first) or ()) != 1:
        return None
    values = {part.group(1).casefold(): part.group(2).strip(" '\"`*") for part in parts if part is not None}
    return values if len(values) == len(parts) and next(iter(values)) in _NAMING else None


def action_objects(value: Any, depth: int = 0) -> Iterator[Mapping[str, Any] | str]:
    """The objects that say what is to be done, and the sentences, in what was read from JSON."""
    if isinstance(value, str):
        yield value
    if depth > _MOST_DEPTH or not isinstance(value, list | dict):
        return
    inner = value if isinstance(value, list) else [one for one in value.values() if _holds_objects(one)]
    if isinstance(value, dict) and not inner:
        yield value
    for one in inner:
        yield from action_objects(one, depth + 1)


def _holds_objects(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(one, dict) for one in value)


def read_object(item: Mapping[str, Any], elements: Sequence[Element], names: Names) -> list[Action] | None:
    """The actions of an object that names what is to be done; [] where that is nothing, None where it does not say."""
    call = _named(item)
    if call is None:
        return None
    name, parameters = call
    if name.casefold() in _ENDS:
        return [Done(next((text for _, text in _texts(parameters)), ""))]
    verb = _verb(_HUMPS.sub(" ", name))
    if verb is None:
        return None
    given = list(_texts({key: value for key, value in parameters.items() if key not in _INDEX}))
    for key in _INDEX & parameters.keys():
        index = parameters[key]
        if type(index) is int and 1 <= index <= len(elements):
            element = elements[index - 1]
            given += [("label", element.label), *([("option", element.option)] if element.option else [])]
    return _read(verb, given, names)


def _named(item: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """What an object says is to be done, and with what."""
    for key in _NAMING:
        value = item.get(key)
        if isinstance(value, dict) and (call := _named(value)) is not None:
            return call
        if isinstance(value, str) and (value.casefold() in _ENDS or _verb(_HUMPS.sub(" ", value)) is not None):
            return value, {other: given for other, given in item.items() if other != key}
    if len(item) == 1:
        ((name, value),) = item.items()
        return name, value if isinstance(value, dict) else {"": value}
    return None


def _texts(parameters: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, str]]:
    """Parameters and their texts, those of objects and lists in them as well."""
    for key, value in parameters.items():
        if isinstance(value, str) and key in {"arguments", "args", "parameters", "params"}:
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                continue
        if isinstance(value, dict) and depth < _MOST_DEPTH:
            yield from _texts(value, depth + 1)
        elif isinstance(value, list):
            yield from ((key, str(one)) for one in value if isinstance(one, str | int | float))
        elif isinstance(value, str | int | float):
            yield key, str(value)


def _arguments(text: str, at: int) -> tuple[list[tuple[str, str]] | None, int]:
    """The arguments between brackets, and where they end; None where they do not end."""
    given: list[tuple[str, str]] = []
    while at < len(text) and text[at] != ")":
        match = _ARGUMENT.match(text, at)
        if match is None or match.end() == at:
            return None, at
        at = match.end()
        key = (match.group("key") or "").casefold()
        if match.group("quoted") is not None:
            given.append((key, unquoted(match.group("quoted"))))
        elif key or _NUMBER.fullmatch(match.group("bare")):
            given.append((key, match.group("bare")))
    return (given, at + 1) if at < len(text) else (None, at)


def _verb(name: str) -> Word | None:
    """The verb that a name begins with, whatever stands before it ("browser_click", "input_text")."""
    words = words_of(name[:60].replace(".", " ")) or ()
    return next((word for word in words if "verb" in word.roles), None)


def _read(verb: Word, given: Given, names: Names) -> list[Action] | None:
    """What a call comes to: parameters say which argument is the control, or else the form's labels do."""
    labels: list[str] = []
    values: list[str] = []
    others: list[str] = []
    nouns = set()
    for key, text in given:
        noun, part = _noun(text), _part(key)
        if noun in _CONTROLS | {"option"} and not names.knows(text):
            nouns.add(noun)  # getByRole("button", ...)
        elif part or not key:
            (labels if part == "label" else values if part == "value" else others).append(text)
    if others and not labels and len(others) + len(values) > 1:
        labels = [text for text in others if names.has(text)]
        if len(labels) != 1:
            return None
        others.remove(labels[0])
    values += others
    kind = verb.name("verb")
    if values and values[-1].casefold() in KEYS and (kind == "press" or (kind == "type" and not labels)):
        return [Press(values[-1])]
    if len(labels) > 1 and kind in _TAKES_OPTION and not values:
        labels, values = labels[:1], labels[1:]
    if len(labels) > 1:
        return None
    if kind == "check" and labels and len(values) == 1 and values[0].casefold() in {"true", "false"}:
        kind, values = ("check" if values[0].casefold() == "true" else "uncheck"), []
    if not labels:
        labels, values = (values, []) if len(values) == 1 else ([""], values)
    return actions_of(Sentence(kind, labels[0], tuple(values), frozenset(nouns)), "", names)


def _noun(text: str) -> str:
    words = words_of(text[:60]) or ()
    return words[0].name("noun") if len(words) == 1 else ""


def _part(key: str) -> str:
    """Whether what a parameter is given is the control or what is entered; "" where it is neither."""
    words = words_of(_HUMPS.sub(" ", key)) or ()
    if key in _LABELS or any(word.name("noun") in _CONTROLS for word in words):
        return "label"
    if key in _VALUES or any(word.name("noun") in {"value", "option", "file"} for word in words):
        return "value"
    return ""
