"""The plan of somebody who knows every value and every kind of control: it is accepted and right, by construction."""

from collections.abc import Mapping

from plumbline_forms.plans.actions import Action, Attach, Check, Navigate, Select, Submit, Type, Uncheck
from plumbline_forms.site.page import WORDS
from plumbline_forms.site.view import View
from plumbline_forms.suite.declaration import Field, Value
from plumbline_forms.suite.records import is_shown

ADDRESS = "http://127.0.0.1:5050"
"""What prompts and plans call the site; executors go to wherever it really is."""


def plan_for(view: View, values: Mapping[str, Value], *, buttons: bool = True) -> list[Action]:
    """The actions that enter the values, page after page, and send the form.

    What is told is entered also where the page has it already, because whoever plans has not seen what is filled in. A
    box that should stay as it is has no action.

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


def _entering(view: View, one: Field, value: Value) -> list[Action]:
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
