"""The controls of a form as a browser agent sees them, and the plan of somebody who knows all about
it."""

from collections.abc import Mapping
from functools import lru_cache

from plumbline_browser.plans.actions import (
    Action,
    Attach,
    Check,
    Element,
    Navigate,
    Select,
    Submit,
    Type,
    Uncheck,
)
from plumbline_forms.site.page import WORDS, FormView
from plumbline_forms.suite.catalogue import is_shown
from plumbline_forms.suite.declaration import Field, Form, Value

# -- elements --------------------------------------------------------------------------------------
# The controls of a form as a browser agent sees them: numbered from 1, page after page, each option
# by itself.
#
# A browser's own state numbers what is on the screen; this is the same list made from the
# declaration, so that a plan can be written before any page was opened. Fields that are shown only
# later have their numbers from the start.


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
