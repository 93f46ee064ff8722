"""What a plan may ask for, typed. Controls are named as people name them: by their label."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from plumbline_forms.site.page import WORDS, FormView
from plumbline_forms.suite.catalogue import is_shown
from plumbline_forms.suite.declaration import Field, Form, Value

# -- actions ---------------------------------------------------------------------------------------


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
    too long; none+costly where reading it takes more than `grammar.MOST_WORK`."""
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


# -- elements --------------------------------------------------------------------------------------
# The controls of a form as a browser agent sees them: numbered from 1, page after page, each option
# by itself.
#
# A browser's own state numbers what is on the screen; this is the same list made from the
# declaration, so that a plan can be written before any page was opened. Fields that are shown only
# later have their numbers from the start.


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


@lru_cache(maxsize=256)
def elements_of(form: Form) -> tuple[Element, ...]:
    """The elements of a form's pages, in the order of the pages."""
    found: list[Element] = []
    for number, page in enumerate(form.pages, 1):
        for one in page.fields:
            if one.kind in {"radio", "checkboxes"}:
                found += [
                    Element(len(found) + place, number, one.kind, one.label, option.text)
                    for place, option in enumerate(one.options, 1)
                ]
            elif one.kind != "hidden":
                offers = tuple(option.text for option in one.options)
                found.append(Element(len(found) + 1, number, one.kind, one.label, offers=offers))
        last = number == len(form.pages)
        button = form.button if last else WORDS[form.language]["next"]
        found.append(Element(len(found) + 1, number, "button", button))
    return tuple(found)


# -- the plan of an oracle -------------------------------------------------------------------------
# The plan of somebody who knows every value and every kind of control: it is accepted and right, by
# construction.

ADDRESS = "http://127.0.0.1:5050"
"""What prompts and plans call the site; executors go to wherever it really is."""


def plan_for(view: FormView, values: Mapping[str, Value], *, buttons: bool = True) -> list[Action]:
    """The actions that enter the values, page after page, and send the form.

    What is told is entered also where the page has it already, because whoever plans has not seen
    what is filled in. A box that should stay as it is has no action.

    Args:
        view: the form, as it is served.
        values: the record.
        buttons: whether they are clicked by their names; else each page is "submitted".
    """
    form = view.form
    actions: list[Action] = [Navigate(ADDRESS + form.path)]
    for number, page in enumerate(form.pages, 1):
        for one in page.fields:
            if one.kind != "hidden" and is_shown(one, values):
                actions += _entering(view, one, values.get(one.name))
        last = number == len(form.pages)
        name = form.button if last else WORDS[form.language]["next"]
        actions.append(Submit(name if buttons else ""))
    return actions


def _entering(view: FormView, one: Field, value: Value) -> list[Action]:
    if isinstance(value, bool):
        there = view.untouched(one) == ("on",)
        return [] if value == there else [Check(one.label) if value else Uncheck(one.label)]
    if isinstance(value, tuple):
        if one.kind == "file":
            return [Attach(one.label, name) for name in value]
        kind = Check if one.kind == "checkboxes" else Select
        return [kind(one.label, one.text_of(option)) for option in value]
    if value is None:
        return []
    if one.options:
        return [Select(one.label, one.text_of(value))]
    return [Type(one.label, value)]
