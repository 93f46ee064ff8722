"""Writes typed actions as plain-text steps, such that reading gives the same actions, and agents'
JSON around items."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from plumbline_browser.plans import actions as plan
from plumbline_browser.plans.actions import Action, Language
from plumbline_browser.plans.reader import AROUND_URL, DATA, read_step

A = TypeVar("A")
Quote = Callable[[str], str]

_TEMPLATES: Mapping[Language, Mapping[str, str]] = DATA["steps"]


def write_steps(actions: Sequence[Action], language: Language = "en") -> str:
    """The actions as numbered steps, one to a line."""
    marker = _TEMPLATES[language]["marker"]
    return "\n".join(
        marker.format(number) + write_step(action, language)
        for number, action in enumerate(actions, 1)
    )


def write_step(action: Action, language: Language = "en") -> str:
    """One step without its number; see `faithful`."""
    return faithful(action, lambda quote: _sentence(action, language, quote), read_step)


def faithful(action: A, write: Callable[[Quote], str], read: Callable[[str], A | None]) -> str:
    """What is written of an action, such that reading gives it again.

    Quotes inside a value stay as they are unless that would be read as something else; then they
    are escaped.
    """
    plain = write(_plain)
    return plain if read(plain) == action else write(_escaped)


def _plain(text: str) -> str:
    return (
        "'"
        + text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
        + "'"
    )


def _escaped(text: str) -> str:
    inner = _plain(text)[1:-1].replace("'", "\\'").replace('"', '\\"')
    return f"'{inner}'"


def _sentence(action: Action, language: Language, quote: Quote) -> str:
    match action:
        case plan.Navigate(url):
            simple = (
                "/" in url
                and url.isascii()
                and url.isprintable()
                and not set(url) & set(" '\"`*\\")
            )
            url = url if simple and url == url.strip(AROUND_URL) else quote(url)
            return _TEMPLATES[language]["navigate"].format(url)
        case plan.Done(text, success):
            state = "Done" if success else "Done without success"
            return f"{state}: {quote(text)}" if text else state
        case plan.Type(label, text, clear):
            said = ["type" if clear else "append", text, label]
        case plan.Select(label, option):
            said = ["select", option, label]
        case plan.Check(label, option) | plan.Uncheck(label, option):
            verb = "check" if isinstance(action, plan.Check) else "uncheck"
            said = [f"{verb} option", option, label] if option else [verb, label]
        case plan.Attach(label, file):
            said = ["attach", file, label]
        case plan.Click(label, what):
            said = [f"click {what}".rstrip(), label]
        case plan.Submit(label):
            said = ["button", label] if label else ["submit"]
        case plan.Press(keys):
            said = ["press", keys]
    return _TEMPLATES[language][said[0]].format(*map(quote, said[1:]))


ACTIONS_PER_OUTPUT = 4
"""How many actions browser agents carry out at once; they drop what is beyond without a word."""


def write_outputs(steps: Sequence[str], items: Sequence[Mapping[str, Any]]) -> str:
    """A browser agent's actions as a JSON list of AgentOutput objects, with their steps as the
    goals."""
    outputs = [
        {
            "thinking": None,
            "evaluation_previous_goal": "" if first == 0 else "Success",
            "memory": f"{first} of {len(items)} actions done",
            "next_goal": "\n".join(steps[first : first + ACTIONS_PER_OUTPUT]),
            "action": items[first : first + ACTIONS_PER_OUTPUT],
        }
        for first in range(0, len(items), ACTIONS_PER_OUTPUT)
    ]
    return "[\n" + ",\n".join(json.dumps(output, ensure_ascii=False) for output in outputs) + "\n]"
