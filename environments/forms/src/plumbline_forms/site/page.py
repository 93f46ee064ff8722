"""A form as one example meets it, and its pages as HTML: one template for all forms
(`page.html.j2`)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.tasks.tables import read_table
from plumbline_browser.plans.actions import Language
from plumbline_forms.suite.declaration import Field, Form

if TYPE_CHECKING:
    from jinja2 import Template

Entries = Mapping[str, tuple[str, ...]]
"""Values by name, in the order received; a name sent twice has two values."""


@dataclass(frozen=True, slots=True, eq=False)
class FormView:
    """What decides the bytes of a form's pages.

    Views are compared by identity, so that rendered pages can be kept by view; keep one for each
    example.
    """

    form: Form
    prefilled: Mapping[str, str] = field(default_factory=dict)
    """What typed fields and selects come with, by field name."""
    stars: bool = False
    """Whether labels of required fields end in a star."""

    def default(self, one: Field) -> str:
        """What a field is served with."""
        return self.prefilled.get(one.name, one.default)

    def untouched(self, one: Field) -> tuple[str, ...]:
        """What the page sends for a shown field that nobody touched; () where that is nothing."""
        default = self.default(one)
        if one.kind == "select":
            known = default in {option.value for option in one.options}
            return (default if known else "" if one.blank is not None else one.options[0].value,)
        if one.kind == "checkbox":
            return ("on",) if default == "on" else ()
        if one.kind in {"radio", "checkboxes", "multiselect"}:
            return (default,) if default else ()
        if one.kind == "file":
            return ()
        return (default,)


WORDS: Mapping[Language, Mapping[str, str]] = read_table(Path(__file__).with_name("words.yaml"))
"""What pages say besides the declaration, messages about wrong entries included."""


def shown_by(one: Field, entries: Entries) -> bool:
    """Whether a page with these entries shows the field."""
    if one.shown_if is None:
        return True
    return any(value in one.shown_if.values for value in entries.get(one.shown_if.name, ()))


def render_page(
    view: FormView,
    number: int,
    entries: Entries | None = None,
    errors: Mapping[str, str] | None = None,
) -> str:
    """The HTML of one page of a form.

    Args:
        view: the form, and how it is met.
        number: of the page, from 1.
        entries: what it is filled with after errors; None serves it fresh.
        errors: messages by field name.
    """
    page = view.form.pages[number - 1]
    now: dict[str, tuple[str, ...]] = {} if entries is None else dict(entries)
    fields = []
    for one in page.fields:  # a condition on a condition is followed in the order of the fields
        is_shown = shown_by(one, now)
        values = view.untouched(one) if entries is None else entries.get(one.name, ())
        if entries is None and is_shown:
            now[one.name] = values
        fields.append((one, values, is_shown))
    return _rendered(view, number=number, page=page, fields=fields, errors=errors or {})


def render_receipt(view: FormView) -> str:
    """The page that says that the form has arrived."""
    return _rendered(view, page=None)


def _rendered(view: FormView, **given: Any) -> str:
    words = WORDS[view.form.language]
    return _template().render(form=view.form, words=words, stars=view.stars, **given)


@cache
def _template() -> "Template":
    from jinja2 import Environment, FileSystemLoader

    folder = FileSystemLoader(Path(__file__).parent)
    pages = Environment(loader=folder, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    pages.filters["json"] = lambda values: json.dumps(values, ensure_ascii=False)
    return pages.get_template("page.html.j2")
