"""Writes actions as steps, one to a line, or as a browser agent's JSON, such that reading gives the
same actions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from plumbline_browser.plans.grammar import loose
from plumbline_browser.plans.writer import Quote, faithful, write_outputs
from plumbline_miniwob.actions import Act, Named, Point, Ref, Target
from plumbline_miniwob.grammar import ROLES, PageText, read_step

LONGEST_NAME = 60
"""Characters of a name that plans say in the place of a number."""
CALLED = {
    "click": "click",
    "double": "double_click",
    "hover": "hover",
    "type": "input",
    "select": "select_dropdown",
    "check": "check",
    "uncheck": "uncheck",
    "drag": "drag",
    "scroll": "scroll",
    "key": "send_keys",
    "wait": "wait",
}
"""What agents call the verbs."""


def write_plan(acts: Sequence[Act], plan: str) -> str:
    """Actions as text, in one of the two languages ("steps" or "agent")."""
    return write_agent(acts) if plan == "agent" else write_steps(acts)


def by_name(acts: Sequence[Act], page: PageText) -> tuple[Act, ...]:
    """The same plan with elements named by what they are called instead of by their numbers in the
    page's text.

    An element keeps its number where it has no name or a long one, where another of its role is
    called the same, or where the step would be read as something else.
    """
    return tuple(_called(act, page) for act in acts)


def _called(act: Act, page: PageText) -> Act:
    told = replace(act, on=_name_of(act.on, page), to=_name_of(act.to, page))
    return told if read_step(write_step(told), page) == told else act


def _name_of(target: Target | None, page: PageText) -> Target | None:
    if not isinstance(target, Ref) or target.number > len(page.elements):
        return target
    one = page.elements[target.number - 1]
    alike = [each for each in page.called[loose(one.name)] if each.role == one.role]
    return (
        Named(one.name, one.role)
        if 0 < len(one.name) <= LONGEST_NAME and len(alike) == 1
        else target
    )


def write_steps(acts: Sequence[Act]) -> str:
    """The actions as steps, one to a line."""
    return "\n".join(map(write_step, acts))


def write_step(act: Act) -> str:
    """One step; see `faithful`."""
    return faithful(act, lambda quote: _sentence(act, quote), read_step)


def _sentence(act: Act, quote: Quote) -> str:
    on = "" if act.on is None else _target(act.on, quote)
    at = f"at {on}" if isinstance(act.on, Point) else on
    match act.do:
        case "click":
            return f"Click {at}"
        case "double":
            return f"Double-click {at}"
        case "hover":
            return f"Move to {on}"
        case "check" | "uncheck":
            return f"{act.do.capitalize()} {on}"
        case "type":
            return f"Type {quote(act.text or '')}" + (f" into {on}" if on else "")
        case "select":
            return f"Select {quote(act.option or '')} from {on}"  # noqa: S608 - a sentence, and no query
        case "drag":
            assert act.to is not None, "checked when it was made"
            return f"Drag {on} to {_target(act.to, quote)}"
        case "scroll":
            return f"Scroll {on} {_by(act)}" if on else f"Scroll {_by(act)}"
        case "key":
            return f"Press {_key(act.key or '', quote)}" + (f" in {on}" if on else "")
        case "wait":
            return f"Wait {act.ms} ms"


def _target(target: Target, quote: Quote) -> str:
    match target:
        case Ref(number):
            return f"[{number}]"
        case Point(x, y):
            return f"({x:g}, {y:g})"
        case Named(name, role, nth):
            called = quote(name) + (f" {ROLES[role]}" if role else "")
            if nth is not None:
                return f"the {_nth(nth)} {called}"
            return f"the {called}" if role else called


def _nth(number: int) -> str:
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _by(act: Act) -> str:
    x, y = act.by or (0, 0)
    if x and not y:
        return f"{'right' if x > 0 else 'left'} by {abs(x):g}"
    if y and not x:
        return f"{'down' if y > 0 else 'up'} by {abs(y):g}"
    return f"by ({x:g}, {y:g})"


def _key(key: str, quote: Quote) -> str:
    plain = key.isascii() and key[:1].isalpha() and key[-1:].isalnum()
    return key if plain else quote(key)


def write_agent(acts: Sequence[Act]) -> str:
    """The actions as a JSON list of AgentOutput objects, with their steps as the goals."""
    return write_outputs(list(map(write_step, acts)), list(map(_item, acts)))


def _item(act: Act) -> dict[str, Any]:
    values: dict[str, Any] = {} if act.on is None else _where(act.on)
    match act.do:
        case "type":
            values |= {"text": act.text, "clear": True}
        case "select":
            values |= {"text": act.option}
        case "drag":
            assert act.to is not None, "checked when it was made"
            values = {"from": values, "to": _where(act.to)}
        case "scroll":
            values |= {"by": list(act.by or (0, 0))}
        case "key":
            values |= {"keys": act.key}
        case "wait":
            values = {"ms": act.ms}
    return {CALLED[act.do]: values}


def _where(target: Target) -> dict[str, Any]:
    match target:
        case Ref(number):
            return {"index": number}
        case Point(x, y):
            return {"coordinate_x": x, "coordinate_y": y}
        case Named(name, role, nth):
            return {
                "name": name,
                **({"role": role} if role else {}),
                **({"nth": nth} if nth is not None else {}),
            }
