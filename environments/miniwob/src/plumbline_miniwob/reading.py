"""Reads what a model wrote into actions: steps in plain English, or the JSON of browser agents.
Never raises.

A step is read by grammar.py, the language that plans are written in; what that does not understand
is given to the reader of forms, which knows more words. What neither understands, and claims to be
a step, is counted as unread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from plumbline.tasks.text.lenient_json import drop_surrogates, values_in
from plumbline_browser.plans import actions as forms
from plumbline_browser.plans.grammar import (
    Piece,
    TooMuchWorkError,
    Work,
    action_objects,
    claims,
    cleaned,
    cut,
    loose,
    pieces_of,
    plainer,
    quotations,
)
from plumbline_browser.plans.reader import SUBMIT_WORDS, Names, names_of, read_line
from plumbline_miniwob.actions import Act, Named, from_json, key_named, target_json
from plumbline_miniwob.grammar import (
    NOWHERE,
    PAUSE,
    SCROLLED,
    PageText,
    begins,
    read_pieces,
    read_step,
)
from plumbline_miniwob.writing import CALLED

MAX_CHARACTERS = 20_000
"""Of a completion; what is beyond is not read."""
MAX_ACTS = 100
"""Of a plan; what is beyond is not carried out."""
MAX_LINE = 2_000
"""Characters of one step; longer ones are not understood."""
_MOST_LINES = 2_000
_ENDS = frozenset({"done", "finish", "stop"})
"""What ends a plan; what follows is not carried out."""
_IDLE = frozenset(
    {"screenshot", "dropdown_options", "find_text", "get_dropdown_options", "navigate", "go_to_url"}
)
"""Actions of agents that change nothing on these pages."""


@dataclass(frozen=True, slots=True)
class PagePlan:
    """A plan as it was read."""

    acts: tuple[Act, ...]
    how: str
    """steps, json or none; +unread where something was not understood, +cut where it was too long;
    none+costly where reading it takes more than `MOST_WORK`."""
    unread: int = 0
    """Lines that claim to be steps, or actions, that were not understood."""
    idle: int = 0
    """Those that were understood and change nothing on a page."""


def read_plan(text: str, page: PageText = NOWHERE) -> PagePlan:
    """Read a completion in either language; a text that holds no agent's JSON is read as steps.

    Args:
        text: what a model wrote.
        page: the elements that it was shown.
    """
    given = drop_surrogates(cleaned(text[: 2 * MAX_CHARACTERS]))
    short = given[:MAX_CHARACTERS]
    found = _read_json(values_in(short, MAX_ACTS), page)
    how = "steps" if found is None else "json"
    try:
        acts, unread, idle = found if found is not None else _read_lines(short, page, Work())
    except TooMuchWorkError:
        return PagePlan((), "none+costly")
    is_cut = len(acts) > MAX_ACTS or len(given) > MAX_CHARACTERS
    how = (how if acts else "none") + ("+unread" if unread else "") + ("+cut" if is_cut else "")
    return PagePlan(tuple(acts[:MAX_ACTS]), how, unread, idle)


def _read_lines(text: str, page: PageText, work: Work) -> tuple[list[Act], int, int]:
    """The actions of lines, how many of these were not understood, and how many change nothing."""
    acts: list[Act] = []
    unread = 0
    for line in text.split("\n")[:_MOST_LINES]:
        if cut(line)[1].casefold().rstrip(".!") in _ENDS:
            break
        said = _read_line(line, page, work)
        unread += said is None and claims(line, lambda pieces: begins(pieces) is not None)
        acts += said or ()
        if len(acts) > MAX_ACTS:
            break
    return acts, unread, 0


def _read_line(line: str, page: PageText, work: Work) -> Sequence[Act] | None:
    """The actions of one line; None where it is not understood."""
    if len(line) > MAX_LINE:
        return None
    body = cut(line)[1]
    for text in dict.fromkeys((body, *plainer(body))):
        if (act := read_step(text, page, work)) is not None:
            return (act,)
        if (acts := _several(text, page)) is not None or (
            acts := _foreign(text, page, work)
        ) is not None:
            return acts
    return None


def _several(text: str, page: PageText) -> Sequence[Act] | None:
    """Steps in one line, each of which is understood by itself: "click [3], then wait 2 s"."""
    quoted = next(quotations(text), None)
    if quoted is None:
        return None
    parts: list[list[Piece]] = [[]]
    for piece in pieces_of(text, quoted):
        if piece.value in {",", ";", ".", "·"} or (
            piece.kind == "word" and piece.value in {"and", "then"}
        ):
            parts.append([])
        else:
            parts[-1].append(piece)
    acts = [read_pieces(text, part, page) for part in parts if part]
    return [act for act in acts if act is not None] if len(acts) > 1 and None not in acts else None


# -- what the reader of forms says -----------------------------------------------------------------

_KINDS = {"textbox": "text", "slider": "number", "textarea": "textarea"} | {
    kind: kind for kind in ("password", "date", "time", "number", "select", "checkbox")
}
"""What forms call a kind of element; all others are buttons to them."""
_OWN = frozenset({"double", "hover", "drag", "scroll", "wait"})
"""Verbs that forms know nothing of, or mean otherwise."""


def _foreign(text: str, page: PageText, work: Work) -> Sequence[Act] | None:
    """A step in words that forms know, which names its elements, and not their numbers or
    places."""
    pieces = pieces_of(text, next(quotations(text), ()))
    verb = begins(pieces)
    if (verb is not None and verb[0] in _OWN) or any(
        one.kind in {"ref", "point"} for one in pieces
    ):
        return None
    said = read_line(text, _names(page), work)
    acts = [_act(action, page) for action in said or ()]
    return (
        [act for act in acts if act is not None] if said is not None and None not in acts else None
    )


@lru_cache(maxsize=256)
def _names(page: PageText) -> Names:
    return names_of(
        tuple(
            forms.Element(one.ref, 1, _KINDS.get(one.role, "button"), one.name)
            for one in page.elements[:200]
            if one.name and len(one.name) <= 200
        )
    )


def _act(action: forms.Action, page: PageText) -> Act | None:
    """An action of forms as one here; None where it has no place on these pages."""

    def on(label: str, role: str | None = None) -> Named:
        return page.settled(Named(label, role))

    match action:
        case forms.Type(label, text, clear=True):
            return Act(do="type", on=on(label), text=text)
        case forms.Select(label, option):
            return Act(do="select", on=on(label), option=option)
        case forms.Check(label, option):
            return Act(do="check", on=on(option or label))
        case forms.Uncheck(label, option):
            return Act(do="uncheck", on=on(option or label))
        case forms.Submit(""):
            buttons = {one.name for one in page.elements if one.role == "button"}
            found = [name for name in buttons if name.casefold() in SUBMIT_WORDS]
            return Act(do="click", on=Named(found[0], "button")) if len(found) == 1 else None
        case forms.Submit(label):
            is_button = (
                any(one.role == "button" for one in page.called.get(loose(label), ()))
                or not page.elements
            )
            return Act(do="click", on=on(label, "button" if is_button else None))
        case forms.Click(label):
            return Act(do="click", on=on(label))
        case forms.Press(keys) if key := key_named(keys):
            return Act(do="key", key=key)
    return None


# -- the JSON of browser agents --------------------------------------------------------------------

_AGENT = {name: verb for verb, name in CALLED.items()} | {
    **dict.fromkeys(
        ("click_element", "click_element_by_index", "left_click", "mouse_click", "tap"), "click"
    ),
    **dict.fromkeys(("input_text", "type", "fill", "type_text"), "type"),
    **dict.fromkeys(("select_dropdown_option", "select", "select_option"), "select"),
    **dict.fromkeys(("drag_drop", "drag_and_drop", "left_click_drag"), "drag"),
    **dict.fromkeys(("key", "press", "press_key", "keypress"), "key"),
    **dict.fromkeys(("double", "doubleclick", "dblclick"), "double"),
    **dict.fromkeys(("mouse_move", "move", "move_to"), "hover"),
}

_NUMBERS = ("index", "ref", "element", "element_id")
"""Keys under which an object gives the number of an element."""


def _read_json(values: Sequence[Any], page: PageText) -> tuple[list[Act], int, int] | None:
    """The actions of agents' objects, how many were not understood, and how many change nothing;
    None without any."""
    items: list[Any] = []
    for value in values:
        if isinstance(value, dict) and isinstance(value.get("action"), list | dict):
            given = value["action"]
            items += given if isinstance(given, list) else [given]
        else:
            items += [one for one in action_objects([value]) if not isinstance(one, str)]
    items = [item for item in items if isinstance(item, dict)]
    acts: list[Act] = []
    unread = idle = 0
    for item in items[: MAX_ACTS + 1]:
        name, given = _call(item)
        if name in _ENDS:
            break
        found = () if name in _IDLE else _item(name, given, page)
        unread += found is None and bool(item)
        idle += found == ()
        acts += found or ()
    return (acts, unread, idle) if acts or idle or (items and unread < len(items)) else None


def _call(item: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """What an object says is to be done, and with what: {"click": {...}}, {"action": "click",
    ...}."""
    if len(item) == 1:
        ((name, given),) = item.items()
        return str(name), given if isinstance(given, dict) else {"": given}
    for key in ("action", "action_type", "type", "name", "do"):
        if isinstance(item.get(key), str):
            return item[key].casefold().replace("-", "_"), {
                other: one for other, one in item.items() if other != key
            }
    return "", item


def _item(name: str, given: Mapping[str, Any], page: PageText) -> Sequence[Act] | None:
    verb = _AGENT.get(name)
    try:
        return None if verb is None else (_agent_act(verb, given, page),)
    except (ValueError, TypeError, OverflowError):
        return None


def _agent_act(verb: str, given: Mapping[str, Any], page: PageText) -> Act:
    """One of an agent's actions.

    Raises:
        ValueError, TypeError: it is malformed.
    """
    value: dict[str, Any] = {"do": verb}
    on = given.get("on", given.get("from") if verb == "drag" else given)
    if verb != "wait" and (target := _where(on, page)) is not None:
        value["on"] = target
    if verb == "drag":
        value["to"] = _where(given.get("to"), page)
    elif verb == "type":
        value["text"] = given.get("text", given.get("value"))
        if given.get("clear") is False:
            raise ValueError("what is typed here replaces what is there")
    elif verb == "select":
        value["option"] = given.get("option", given.get("text"))
    elif verb == "key":
        value["key"] = given.get("keys", given.get("key", given.get("")))
    elif verb == "scroll":
        value["by"] = _scrolled(given)
    elif verb == "wait":
        seconds = given.get("seconds", given.get("", PAUSE / 1000))
        # What is no number is refused by who reads the act: a list must not be multiplied.
        value["ms"] = given.get(
            "ms", 1000 * seconds if isinstance(seconds, int | float) else seconds
        )
    return from_json(value)


def _where(given: object, page: PageText) -> dict[str, Any] | None:
    """The target of an agent's action; None where it names none.

    Raises:
        ValueError: a number that is none.
    """
    if not isinstance(given, dict):
        given = {"index": given} if isinstance(given, int) else {}
    number = next((given[key] for key in _NUMBERS if key in given), None)
    if number is None and isinstance(given.get(""), int):
        number = given[""]
    if isinstance(number, str) and number.isascii() and number.isdecimal():
        number = int(number[:6])
    if number is not None:
        return {"ref": number}
    for x, y in (("coordinate_x", "coordinate_y"), ("x", "y")):
        if x in given and y in given:
            return {"x": given[x], "y": given[y]}
    name, role = given.get("name", given.get("target")), given.get("role")
    if isinstance(name, str) and (role is None or isinstance(role, str)):
        return {**target_json(page.settled(Named(name, role))), "nth": given.get("nth")}
    return None


def _scrolled(given: Mapping[str, Any]) -> list[Any]:
    if "by" in given:
        return list(given["by"])
    far = given.get("amount", given.get("pixels", SCROLLED))
    down = given.get("down", given.get("direction", "down"))
    if down not in (True, False, "down", "up"):
        raise ValueError(f"{down!r} is no direction")
    return [0, far if down in (True, "down") else -far]
