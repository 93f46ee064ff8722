"""What a sentence comes to on a form: the actions that it asks for."""

import re
from dataclasses import replace
from typing import Literal

from plumbline_forms.plans.actions import (
    Action,
    Attach,
    Check,
    Click,
    Navigate,
    Press,
    Select,
    Submit,
    Type,
    Uncheck,
)
from plumbline_forms.plans.labels import Names, folded, loose
from plumbline_forms.plans.quotations import opens
from plumbline_forms.plans.sentence import Sentence
from plumbline_forms.plans.vocabulary import KEYS, NO, SUBMIT_WORDS, YES
from plumbline_forms.suite.declaration import TYPED

URL = re.compile(r"[a-z][a-z0-9+.-]{0,30}://[^\s<>'\"`]+", re.IGNORECASE)
_SELECTS = frozenset({"select", "multiselect", "radio", "checkboxes"})
_SPACE = frozenset({"space", "spacebar", "espaço"})
_LISTS = frozenset({"select", "multiselect"})
_PICKED = frozenset({"date", "time", "number"})
"""Kinds that pages show as something to pick from, and that are typed into all the same."""
_FILE_NAME = re.compile(r"[^/\\]{1,200}\.\w{2,5}")


def actions_of(said: Sentence, text: str, names: Names) -> list[Action] | None:
    """What a sentence comes to.

    Args:
        said: the sentence.
        text: the whole step; a quotation that is open in it may go on in the next line.
        names: of the form's controls.

    Returns:
        Its actions, [] where there is nothing to do, None where something is missing that it does not say.
    """
    if said.verb == "idle":
        return []
    if said.values:
        return _entries(said, names) if said.label else _of_each(said, text, names)
    if said.verb == "navigate" and URL.fullmatch(said.label):
        return [Navigate(said.label)]
    if said.verb in {"click", "seek", "navigate"}:
        return _click(said, text, names)
    if said.verb == "press":
        return _press(said, text, names)
    if said.verb == "send":
        sends_itself = not said.quoted or "form" in said.nouns
        if loose(said.label) in names.buttons and said.label:
            return [Submit(said.label)]
        return None if "file" in said.nouns else [Submit("" if sends_itself or not said.label else said.label)]
    if not said.label:
        return [] if said.verb in {"set", "type", "use", "clear"} and not opens(text) else None
    kind = names.kind(said.label)
    if said.verb in {"select", "check", "uncheck", "use", "attach"} and (
        "button" in said.nouns or loose(said.label) in names.buttons
    ):
        return None if "state" in said.nouns else [Submit(said.label)]
    if said.verb in {"select", "check", "uncheck", "click"} and (group := names.group_of_all(said.label)):
        return _entries(replace(said, label=group, values=(said.label,)), names)
    if said.verb == "select" or (said.verb in {"set", "use"} and names.group_of(said.label)):
        return _single_choice(said, kind, names)
    if said.verb in {"check", "uncheck"}:
        tick = Check if said.verb == "check" else Uncheck
        group = names.group_of(said.label)
        return [tick(group, said.label) if group and names.kind(group) in _LISTS else tick(said.label)]
    if said.verb == "clear":
        is_box = kind == "checkbox" or (not kind and "checkbox" in said.nouns)
        return [Uncheck(said.label)] if is_box else [Type(said.label, "")] if kind in TYPED or not kind else None
    if said.verb == "attach" and not kind and _FILE_NAME.fullmatch(said.label) and names.only("file"):
        return [Attach(names.only("file"), said.label)]
    return None


def _of_each(said: Sentence, text: str, names: Names) -> list[Action] | None:
    """The same with each of several boxes or options."""
    found = [actions_of(replace(said, label=value, values=()), text, names) for value in said.values]
    return [action for each in found if each for action in each] if all(found) else None


def _entries(said: Sentence, names: Names) -> list[Action] | None:
    """What is entered into a control."""
    label, kind = said.label, names.kind(said.label)
    values = [one for value in said.values for one in names.items_of(label, value) or [value]]
    is_file = kind == "file" or (not kind and said.nouns & {"file", "upload"})
    if len(values) > 1 and not (is_file or kind in {"multiselect", "checkboxes", ""}):
        return None
    if said.verb == "type" and not (is_file and "file" in said.nouns):
        return [Type(label, values[0])]
    if said.verb == "append" and not is_file and kind not in _SELECTS and len(values) == 1:
        return [Type(label, values[0], clear=False)]
    if said.verb == "attach" or (said.verb in {"type", "append", "send", "select", "use", "set"} and is_file):
        return [Attach(label, value) for value in values]
    if said.verb in {"select", "check", "use", "set"} and kind in _PICKED:
        return [Type(label, values[0])]
    if said.verb in {"check", "uncheck"}:
        return [(Check if said.verb == "check" else Uncheck)(label, value) for value in values]
    if said.verb == "press":
        if values[0].casefold() not in KEYS:
            return [Type(label, values[0])] if kind in TYPED else None
        return [Click(label, "box")] if kind == "checkbox" and values[0].casefold() in _SPACE else [Press(values[0])]
    if said.verb == "click" or said.verb == "select":
        return [_ticked(label, value) if kind == "checkbox" else Select(label, value) for value in values]
    if said.verb in {"use", "set", "append"}:
        if kind == "checkbox" or (not kind and "checkbox" in said.nouns):
            return [_ticked(label, value) for value in values]
        chosen = kind in _SELECTS or (not kind and said.nouns & {"choice", "boxes", "option"})
        if len(values) > 1 and not chosen:
            return None
        return [Select(label, value) if chosen else Type(label, value) for value in values]
    return None


def _ticked(label: str, value: str) -> Action:
    """A single box that is said to be so; what is neither yes nor no is left to fail."""
    said = folded(value)
    if said in NO:
        return Uncheck(label)
    return Check(label) if said in YES else Check(label, value)


def _single_choice(said: Sentence, kind: str, names: Names) -> list[Action]:
    if group := names.group_of(said.label):
        return [(Check if names.kind(group) == "checkboxes" else Select)(group, said.label)]
    offered = loose(said.label) in names.options
    if kind == "checkbox" or (not kind and not offered and "checkbox" in said.nouns):
        return [Check(said.label)]
    return [Click(said.label, _what(said.nouns))]


def _click(said: Sentence, text: str, names: Names) -> list[Action] | None:
    generic = not said.quoted and said.label.casefold() in SUBMIT_WORDS
    if not said.label:
        if said.verb != "click" or opens(text):
            return None if said.verb == "click" else []
        return [Submit()] if "button" in said.nouns else None
    if generic or "button" in said.nouns:
        return [Submit("" if generic else said.label)]
    if (group := names.group_of(said.label)) and names.kind(group) in _LISTS:  # an open list is clicked, too
        return [Select(group, said.label)]
    return [Click(said.label, _what(said.nouns))]


def _what(nouns: frozenset[str]) -> Literal["", "field", "box"]:
    if nouns & {"checkbox", "option"}:
        return "box"
    return "field" if nouns & {"field", "choice", "boxes", "upload"} else ""


def _press(said: Sentence, text: str, names: Names) -> list[Action] | None:
    if not said.label:
        return [Submit()] if "button" in said.nouns else None
    label = said.label if said.quoted else said.label.rstrip(".,; ")
    key = label.casefold()
    generic = not said.quoted and key in SUBMIT_WORDS
    if key not in KEYS and (generic or "button" in said.nouns or loose(said.label) in names.buttons):
        return _click(said, text, names)
    return [Press(label)]
