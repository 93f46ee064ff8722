"""What a plan may ask for, typed. Controls are named as people name them: by their label."""

from dataclasses import dataclass
from typing import Literal

Language = Literal["en", "pt"]
"""That steps are written in."""
TYPED = frozenset({"text", "textarea", "email", "tel", "url", "number", "date", "time", "password"})
"""Kinds of controls that a user types into."""
CHOSEN = frozenset({"select", "multiselect", "radio", "checkboxes"})
"""Kinds with options."""


@dataclass(frozen=True, slots=True)
class Navigate:
    """Go to an address."""

    url: str


@dataclass(frozen=True, slots=True)
class Type:
    """Type a text into a control, in place of what is there (or, where `clear` is off, after
    it)."""

    label: str
    text: str
    clear: bool = True


@dataclass(frozen=True, slots=True)
class Select:
    """Choose an option of a list or a group."""

    label: str
    option: str


@dataclass(frozen=True, slots=True)
class Check:
    """Tick a box: one by itself, or an option of a group of boxes."""

    label: str
    option: str = ""


@dataclass(frozen=True, slots=True)
class Uncheck:
    """Take the tick away from a box."""

    label: str
    option: str = ""


@dataclass(frozen=True, slots=True)
class Attach:
    """Attach a file, by its name."""

    label: str
    file: str


@dataclass(frozen=True, slots=True)
class Click:
    """Click on something that is not a button."""

    label: str
    what: Literal["", "field", "box"] = ""


@dataclass(frozen=True, slots=True)
class Submit:
    """Click a button; without a label, the one that sends the page."""

    label: str = ""


@dataclass(frozen=True, slots=True)
class Press:
    """Press a key in the control that was used last."""

    keys: str


@dataclass(frozen=True, slots=True)
class Done:
    """Stop: what follows is not carried out."""

    text: str = ""
    success: bool = True


Action = Navigate | Type | Select | Check | Uncheck | Attach | Click | Submit | Press | Done
Fill = (Type, Select, Check, Uncheck, Attach)
"""Actions that change what a form holds."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan as it was read."""

    actions: tuple[Action, ...]
    how: str = "steps"
    """steps, json or none; +unread where a line or an action was not understood, +cut where it was
    too long; none+costly where reading it takes more than `tokens.MOST_WORK`."""
    unread: int = 0
    """Lines that claim to be steps, or actions, that were not understood."""
    idle: int = 0
    """Steps or actions that were understood and change nothing on a page: "wait", "leave it empty",
    a screenshot."""

    def carried_out(self) -> tuple[Action, ...]:
        """The actions up to the one that stops the plan."""
        end = next(
            (number for number, one in enumerate(self.actions, 1) if isinstance(one, Done)), None
        )
        return self.actions[:end]


@dataclass(frozen=True, slots=True)
class Element:
    """Something that can be clicked, typed into or chosen from."""

    index: int
    page: int
    kind: str
    """The field's kind, or "button"."""
    label: str
    option: str = ""
    """The text of the option, for elements of a radio group or a group of boxes."""
    offers: tuple[str, ...] = ()
    """The texts of a list's options."""
