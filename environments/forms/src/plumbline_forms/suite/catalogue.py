"""All forms by name, in a fixed order, and the ones that are held out whole.

The forms of a domain stand in `domains/<domain>.yaml`, each under its name. A field is a kind (a
function of `fields`) and its label, followed by what `declaration.Field` has besides:

    - {number: Openings, draw: whole 1 9, minimum: 1, maximum: 9, required: true, alias: How many positions}

`draw` is a method of `Drawing` and its arguments, separated by blanks; where they hold blanks
themselves, it is a mapping of the method to a list, followed by arguments that have names.
`options` are written "Red|Dark blue" (sent as red, dark_blue) or "r=Red|b=Dark blue", `shown_if`
"device=own_laptop|thin_client", or the name of a box alone, `accept` ".pdf .docx". `blank: none` is
a list without an empty first option. A rule is `in_order`, `adds` or `multiplies` and the fields
that it is about, the total last.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from plumbline.seeds import generator
from plumbline.tasks.tables import read_table
from plumbline_forms.suite import declaration
from plumbline_forms.suite.declaration import (
    Field,
    Form,
    FormPage,
    Option,
    Rule,
    Value,
    VisibleWhen,
)
from plumbline_forms.suite.drawing import Drawing, drawn

# -- constructors of fields ------------------------------------------------------------------------


def slug(text: str) -> str:
    """A name for a text: lower case, digits, underscores."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().casefold()
    return re.sub(r"[^a-z0-9]+", "_", plain).strip("_")


def options(texts: str) -> tuple[Option, ...]:
    """Options from "Red|Dark blue" (sent as red, dark_blue) or "r=Red|b=Dark blue"."""
    pairs = [text.split("=", 1) if "=" in text else (slug(text), text) for text in texts.split("|")]
    return tuple(Option(value, text) for value, text in pairs)


def shown(name: str, *values: str) -> VisibleWhen:
    """Shown while the field has one of these values; without values, while the box is ticked."""
    return VisibleWhen(name, values or ("on",))


def text(label: str, draw: declaration.Draw, **more: Any) -> Field:
    """A line of text."""
    return Field(**{"name": slug(label), "label": label, "kind": "text", "draw": draw, **more})


area, email, tel, url = (partial(text, kind=kind) for kind in ("textarea", "email", "tel", "url"))
date, time, password, file = (
    partial(text, kind=kind) for kind in ("date", "time", "password", "file")
)
number, money = partial(text, kind="number"), partial(text, kind="number", minimum="0", step="0.01")


def choice(label: str, texts: str, **more: Any) -> Field:
    """A control with options."""
    return text(label, options=options(texts), **more)


# the first, empty option asks for a choice
select = partial(choice, kind="select", blank="-", draw=drawn("one_of"))
radio = partial(choice, kind="radio", draw=drawn("one_of"))
multiselect, boxes = (
    partial(choice, kind=kind, draw=drawn("some_of", 1, 3))
    for kind in ("multiselect", "checkboxes")
)


def box(label: str, chance: float = 0.5, **more: Any) -> Field:
    """A box that is ticked in so many records."""
    return text(label, kind="checkbox", **{"draw": drawn("flag", chance), **more})


# A box without which the form cannot be sent.
consent = partial(box, required=True, draw=drawn("agreed"))


def hidden(name: str, default: str) -> Field:
    """A value that the page sends by itself."""
    return Field(name=name, label=name, kind="hidden", default=default)


FIELDS: Mapping[str, Callable[..., Field]] = {
    "text": text, "area": area, "email": email, "tel": tel, "url": url, "number": number, "money": money, "date": date,
    "time": time, "password": password, "select": select, "multiselect": multiselect, "radio": radio, "boxes": boxes,
    "box": box, "consent": consent, "file": file, "hidden": hidden,
}  # fmt: skip
"""By the names that the files of `domains` call them."""


# -- catalogue -------------------------------------------------------------------------------------

VERSION = 1
"""Of the declarations and their records: other words, fields or draws are another suite."""
DOMAINS = (
    "academic",
    "business",
    "creative",
    "technology",
    "finance",
    "health",
    "legal",
    "industry",
)
HELD_OUT = (
    "thesis-defence",
    "trade-show-booth",
    "palco-do-festival",
    "mortgage-precheck",
    "device-return",
)
"""Five forms of five domains, one a wizard and one in Portuguese, of which training never sees a
record."""


def read_form(domain: str, name: str, written: Mapping[str, Any]) -> Form:
    """The form that a file declares.

    Raises:
        ValueError: the declaration has an unknown word, or contradicts itself; names the form and
            the field.
    """
    pages = [
        FormPage(tuple(_field(name, dict(one)) for one in page["fields"]), page.get("title", ""))
        for page in written["pages"]
    ]
    rules = [Rule(kind, tuple(names)) for kind, *names in map(str.split, written.get("rules", ()))]
    lists = {
        "pages": tuple(pages),
        "rules": tuple(rules),
        "asides": tuple(written.get("asides", ())),
    }
    return Form(name=name, domain=domain, **{**written, **lists})


def _field(form: str, written: dict[str, Any]) -> Field:
    kind, label = next(iter(written.items()))
    try:
        more = {key: _READ.get(key, str)(value) for key, value in written.items() if key != kind}
        choices = [more.pop("options")] if "options" in more else []
        return FIELDS[kind](label, *choices, **more)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"form {form}: the {kind} {label!r} cannot be read: {error!r}") from error


def _draw(written: str | dict[str, Any]) -> declaration.Draw:
    if isinstance(written, str):
        name, *given = written.split()
        named = {}
    else:
        (name, listed), *rest = written.items()
        given, named = listed if isinstance(listed, list) else [listed], dict(rest)
    return drawn(
        name, *map(_argument, given), **{key: _argument(value) for key, value in named.items()}
    )


def _argument(text: str) -> str | int:
    return int(text) if re.fullmatch(r"[0-9]+", text) else text


def _condition(written: str) -> VisibleWhen:
    name, _, values = written.partition("=")
    return shown(name, *filter(None, values.split("|")))


_READ: Mapping[str, Callable[[Any], Any]] = {
    "draw": _draw,
    "required": {"true": True, "false": False}.__getitem__,
    "multiple": {"true": True, "false": False}.__getitem__,
    "filled": float,
    "chance": float,
    "minlength": int,
    "maxlength": int,
    "accept": lambda endings: tuple(endings.split()),
    "blank": lambda text: None if text == "none" else text,
    "shown_if": _condition,
}
"""What is no text; everything else is taken as it is written."""

FORMS: Mapping[str, Form] = {
    name: read_form(domain, name, written)
    for domain in DOMAINS
    for name, written in read_table(Path(__file__).with_name("domains") / f"{domain}.yaml").items()
}


# -- records ---------------------------------------------------------------------------------------
# Records: the values that one example asks to enter, drawn from a seed, a form's name and an index.
#
# A record satisfies every constraint of its form, so that the server accepts it; no two records of
# a form are the same.

RECORDS = 50
"""Of each form."""
_TRIES = 20


def draw_record(form: Form, seed: int, index: int) -> dict[str, Value]:
    """The values of one record by field name, None for those that are left alone.

    Fields that are not shown, because of what another field got, are None; hidden fields are not
    part of a record.
    """
    for attempt in range(_TRIES):
        values = _records_draw(form, seed, index, attempt)
        entered = {name: value for name, value in values.items() if isinstance(value, str)}
        if all(rule.holds(entered) for rule in form.rules):
            return values
    raise AssertionError(f"{form.name}: no record keeps its rules, so a draw contradicts them")


def _records_draw(form: Form, seed: int, index: int, attempt: int) -> dict[str, Value]:
    drawing = Drawing(generator(seed, "forms", VERSION, form.name, index, attempt), form.language)
    for one in form.fields:
        if one.draw is None:
            continue
        skipped = not is_shown(one, drawing.values) or drawing.rng.random() >= one.filled
        drawing.now = one
        drawing.values[one.name] = None if skipped else one.draw(drawing)
    return drawing.values


def is_shown(one: Field, values: Mapping[str, Value]) -> bool:
    """Whether a field's condition holds for the values of the others."""
    if one.shown_if is None:
        return True
    value = values.get(one.shown_if.name)
    if isinstance(value, bool):
        return value and "on" in one.shown_if.values
    chosen = value if isinstance(value, tuple) else (value,)
    return any(choice in one.shown_if.values for choice in chosen)


def narrow(form: Form, most: int) -> Form:
    """The form with its first so many visible fields only, for tiny models: another form, which the
    site serves so.

    Rules and conditions that need a field that is gone are gone, too.
    """
    visible = [one.name for one in form.fields if one.kind != "hidden"][:most]
    kept = {*visible, *(one.name for one in form.fields if one.kind == "hidden")}
    pages = []
    for page in form.pages:
        fields = tuple(one for one in page.fields if one.name in kept)
        if any(one.kind != "hidden" for one in fields):
            pages.append(FormPage(fields, page.title))
    return replace(
        form,
        pages=tuple(pages),
        rules=tuple(rule for rule in form.rules if set(rule.names) <= kept),
    )
