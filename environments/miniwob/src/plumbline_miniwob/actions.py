"""What a plan may ask for, typed, and as the JSON that the page's hand takes."""

import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

Verb = Literal[
    "click",
    "double",
    "hover",
    "type",
    "select",
    "check",
    "uncheck",
    "drag",
    "scroll",
    "key",
    "wait",
]
VERBS: frozenset[str] = frozenset(get_args(Verb))
MOST_PIXELS = 10_000
"""Of a point's coordinates, and of a scroll."""
MOST_WAIT = 60_000
"""Milliseconds that one action may wait; pages end by themselves long before."""


@dataclass(frozen=True, slots=True)
class Ref:
    """The n-th element of the page text that the model was shown."""

    number: int


@dataclass(frozen=True, slots=True)
class Named:
    """An element by what it is called when the action is carried out."""

    name: str
    role: str | None = None
    """None: whatever is called so."""
    nth: int | None = None
    """Of several that are called so, from 1; None: it must be the only one."""


@dataclass(frozen=True, slots=True)
class Point:
    """A place on the page [pixels]; the pages are 160 wide and 210 high."""

    x: float
    y: float


Target = Ref | Named | Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One action. Which of the fields it has depends on the verb; the others are None."""

    do: Verb
    on: Target | None = None
    """None for key, type, scroll and wait: what has the focus, or the page."""
    to: Target | None = None
    """Of drag: where it ends."""
    text: str | None = None
    """Of type: in place of what is there."""
    option: str | None = None
    """Of select."""
    key: str | None = None
    """Of key: such as Enter or Control+C."""
    by: tuple[float, float] | None = None
    """Of scroll: right and down [pixels]."""
    ms: int | None = None
    """Of wait [milliseconds]."""

    def __post_init__(self) -> None:
        needs, may = _FIELDS[self.do]
        given = {name for name in _NAMES if getattr(self, name) is not None}
        if not needs <= given <= needs | may:
            raise ValueError(
                f"{self.do} needs {sorted(needs)} and may have {sorted(may)}, but has "
                f"{sorted(given)}"
            )


_NAMES = ("on", "to", "text", "option", "key", "by", "ms")
_FIELDS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    verb: (frozenset(needs.split()), frozenset(may.split()))
    for verb, needs, may in (
        ("click", "on", ""),
        ("double", "on", ""),
        ("hover", "on", ""),
        ("type", "text", "on"),
        ("select", "on option", ""),
        ("check", "on", ""),
        ("uncheck", "on", ""),
        ("drag", "on to", ""),
        ("scroll", "by", "on"),
        ("key", "key", "on"),
        ("wait", "ms", ""),
    )
}
"""What each verb needs, and what it may have besides."""


_KEYS = (
    *(
        "Enter",
        "Tab",
        "Escape",
        "Space",
        "Backspace",
        "Delete",
        "Insert",
        "Home",
        "End",
        "PageUp",
        "PageDown",
    ),
    *("ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"),
)
_MODIFIERS = {
    "control": "Control",
    "ctrl": "Control",
    "shift": "Shift",
    "alt": "Alt",
    "option": "Alt",
} | dict.fromkeys(("meta", "cmd", "command", "super", "windows"), "Meta")
_SPELLED = (
    {key.casefold(): key for key in _KEYS}
    | {key.removeprefix("Arrow").casefold(): key for key in _KEYS if key.startswith("Arrow")}
    | {"return": "Enter", "esc": "Escape", "spacebar": "Space", "del": "Delete", "ins": "Insert"}
)
_JOIN = re.compile(r"(?<=[^\s+-])\s*[+-]\s*(?=\S)")


def key_named(text: str) -> str | None:
    """A key as the page's hand knows it ("ctrl + c" is Control+C, "arrow down" ArrowDown); None
    where it is none."""
    *held, last = _JOIN.split(text.strip()[:40])
    modifiers = [_MODIFIERS.get(one.casefold()) for one in held]
    plain = re.sub(r"[\s_-]", "", last.casefold()) or last
    plain = "arrow" + plain.removesuffix("arrow") if plain.endswith("arrow") else plain
    key = _SPELLED.get(
        plain, last if len(last) == 1 and last.isprintable() and last != " " else None
    )
    if key is None or None in modifiers:
        return None
    key = key.upper() if modifiers and len(key) == 1 and key.upper() in _LETTERS else key
    return "+".join([*dict.fromkeys(one for one in modifiers if one), key])


_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def to_json(act: Act) -> dict[str, Any]:
    """An action as the page's hand takes it."""
    found: dict[str, Any] = {"do": act.do}
    for name in _NAMES:
        value = getattr(act, name)
        if value is None:
            continue
        if isinstance(value, Ref | Named | Point):
            value = target_json(value)
        found[name] = list(value) if isinstance(value, tuple) else value
    return found


def target_json(target: Target) -> dict[str, Any]:
    """A target as the page's hand takes it."""
    match target:
        case Ref(number):
            return {"ref": number}
        case Point(x, y):
            return {"x": x, "y": y}
        case Named(name, role, nth):
            return {"role": role, "name": name, **({} if nth is None else {"nth": nth})}


def from_json(value: Mapping[str, Any]) -> Act:
    """An action from the JSON that an oracle yields, described.

    Raises:
        ValueError: it is none.
    """
    do = value.get("do")
    if do not in VERBS:
        raise ValueError(f"there is no action {do!r}")
    found = {name: given for name in _NAMES if (given := value.get(name)) is not None}
    for name in ("on", "to"):
        if name in found:
            found[name] = target_from(found[name])
    wrong = [name for name in ("text", "option", "key") if not isinstance(found.get(name, ""), str)]
    if wrong:
        raise ValueError(f"{wrong[0]} is {reprlib.repr(found[wrong[0]])}, and no text")
    if "key" in found and (key := key_named(found["key"])) is None:
        raise ValueError(f"there is no key {found['key']!r}")
    if "key" in found:
        found["key"] = key
    if "by" in found:
        found["by"] = _pair(found["by"])
    if "ms" in found:
        found["ms"] = round(_number(found["ms"], MOST_WAIT))
    return Act(do=do, **found)


def target_from(value: object) -> Target:
    """A target from JSON.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, Mapping):
        ref, name, role, nth = (value.get(key) for key in ("ref", "name", "role", "nth"))
        if _is_count(ref):
            return Ref(ref)  # type: ignore[arg-type]
        if (
            isinstance(name, str)
            and (role is None or isinstance(role, str))
            and (nth is None or _is_count(nth))
        ):
            return Named(name, role, nth)
        if "x" in value and "y" in value:
            x, y = _pair((value["x"], value["y"]))
            return Point(round(x, 1), round(y, 1))
    raise ValueError(f"{reprlib.repr(value)} names nothing on a page")


def _is_count(value: object) -> bool:
    return type(value) is int and 0 < value < 100_000


def _pair(value: object) -> tuple[float, float]:
    if not isinstance(value, Sequence) or len(value) != 2:
        raise ValueError(f"{reprlib.repr(value)} is no pair of numbers")
    return _number(value[0], MOST_PIXELS), _number(value[1], MOST_PIXELS)


def _number(value: object, most: float) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or abs(value) > most
    ):
        raise ValueError(f"{reprlib.repr(value)} is no number up to {most}")
    return value
