"""What a form is: pages of fields, and rules across fields that only the server checks.

A declaration is the one source of everything else: the page that is served, the checks of the
server, the records, the prompts and the oracle's plans are all derived from it, so that every
example can be solved by construction.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from plumbline_browser.plans.actions import CHOSEN, Language
from plumbline_forms.values import read_decimal, read_pattern

if TYPE_CHECKING:
    from plumbline_forms.suite.drawing import Drawing

Kind = Literal[
    "text", "textarea", "email", "tel", "url", "number", "date", "time", "password", "select", "multiselect", "radio",
    "checkbox", "checkboxes", "file", "hidden",
]  # fmt: skip
NamedBy = Literal["for", "wrap", "aria", "heading", "placeholder", "name"]
"""How the page says which control a label belongs to; "name" leaves only the control's own name to
go by."""
Value = str | bool | tuple[str, ...] | None
"""An entry in canonical form: text, number, ISO date, HH:MM and a choice's value as text; a box as
bool; the values of a multiple choice and the names of files as a tuple; None is left alone."""
Draw = Callable[["Drawing"], Value]


@dataclass(frozen=True, slots=True)
class Option:
    """One choice: what is sent, and what is read."""

    value: str
    text: str


@dataclass(frozen=True, slots=True)
class VisibleWhen:
    """A field is shown (and sent) only while another one has one of these values ("on" for a ticked
    box)."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One control, or one group of them."""

    name: str
    label: str
    kind: Kind
    draw: Draw | None = None
    """Where its value comes from; None for hidden fields, whose value is `default`."""
    required: bool = False
    filled: float = 1.0
    """How often a record fills it in; below 1 only for fields that are not required."""
    options: tuple[Option, ...] = ()
    blank: str | None = None
    """Text of a select's empty first option; None: its first option is what an untouched form
    sends."""
    default: str = ""
    """What the page is served with (a hidden field's value; "on" for a box that is ticked)."""
    minimum: str | None = None
    maximum: str | None = None
    step: str | None = None
    minlength: int | None = None
    maxlength: int | None = None
    """In UTF-16 code units, as browsers count."""
    pattern: str | None = None
    hint: str = ""
    """Shown below the control, and where a pattern is not matched."""
    placeholder: str = ""
    accept: tuple[str, ...] = ()
    """Endings of file names that the server takes, with their dot."""
    multiple: bool = False
    shown_if: VisibleWhen | None = None
    named_by: NamedBy = "for"
    alias: str = ""
    """What people who write the instructions call it, where the label noise is on."""

    def text_of(self, value: str) -> str:
        """What the option with this value reads."""
        return next(option.text for option in self.options if option.value == value)


RULES = ("in_order", "adds", "multiplies")


@dataclass(frozen=True, slots=True)
class Rule:
    """What the entries of several fields have to be to one another."""

    kind: str
    """in_order: the second date, time or number is not below the first. adds, multiplies: the last
    one is the sum or the product of the others, to the cent."""
    names: tuple[str, ...]
    """Of the fields; at the last one the error is shown."""

    def holds(self, values: Mapping[str, str]) -> bool:
        """Whether these entries respect it; what is missing breaks no rule, and is 0 in a sum."""
        texts = [values.get(name, "") for name in self.names]
        if self.kind == "adds":
            texts = [*(text or "0" for text in texts[:-1]), texts[-1]]
        *parts, last = map(read_decimal, texts)
        known = [part for part in parts if part is not None]
        if self.kind == "in_order":
            if known and last is not None:
                return known[0] <= last
            return not all(texts) or texts[0] <= texts[1]  # ISO dates and HH:MM compare as texts
        if last is None or len(known) < len(parts):
            return True
        return (sum(known) if self.kind == "adds" else math.prod(known)) == last


@dataclass(frozen=True, slots=True)
class FormPage:
    """One page of a form; a form with several is a wizard."""

    fields: tuple[Field, ...]
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Form:
    """One form."""

    name: str
    """In its address: `/<domain>/<name>`."""
    domain: str
    title: str
    pages: tuple[FormPage, ...]
    button: str
    """Text of the button that sends it."""
    rules: tuple[Rule, ...] = ()
    language: Language = "en"
    asides: tuple[str, ...] = ()
    """Sentences that documents hold besides the facts."""
    by_name: Mapping[str, Field] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "by_name", {one.name: one for page in self.pages for one in page.fields}
        )
        check_form(self)

    @property
    def fields(self) -> tuple[Field, ...]:
        """All fields, page after page."""
        return tuple(self.by_name.values())

    @property
    def path(self) -> str:
        """Its address on the site."""
        return f"/{self.domain}/{self.name}"


def check_form(form: Form) -> None:
    """Fail at import where a declaration contradicts itself.

    Raises:
        ValueError: names the form and the field.
    """
    names = [one.name for page in form.pages for one in page.fields]
    labels = [
        one.label.casefold() for page in form.pages for one in page.fields if one.kind != "hidden"
    ]
    if len(set(names)) != len(names) or len(set(labels)) != len(labels):
        raise ValueError(f"form {form.name}: names and labels must be unique")
    for page in form.pages:
        here = [one.name for one in page.fields]
        for one in page.fields:
            problem = ""
            if (one.kind in CHOSEN) != bool(one.options):
                problem = "needs options if, and only if, it is a choice"
            elif len({option.value for option in one.options}) != len(one.options):
                problem = "has an option value twice"
            elif (one.draw is None) != (one.kind == "hidden"):
                problem = "needs a draw, unless it is hidden"
            elif one.required and one.filled < 1:
                problem = "is required, so every record fills it in"
            elif one.shown_if is not None and one.shown_if.name not in here[: here.index(one.name)]:
                problem = "is shown by a field that does not stand before it on its page"
            if problem:
                raise ValueError(f"form {form.name}: {one.name} {problem}")
            if one.pattern is not None:
                read_pattern(one.pattern)
    for rule in form.rules:
        if rule.kind not in RULES:
            raise ValueError(f"form {form.name}: there is no rule {rule.kind}")
        if not any(set(rule.names) <= {one.name for one in page.fields} for page in form.pages):
            raise ValueError(
                f"form {form.name}: a rule needs fields that stand on no one page: {rule.names}"
            )
