"""All forms by name, in a fixed order, and the ones that are held out whole.

The forms of a domain stand in `domains/<domain>.yaml`, each under its name. A field is a kind (a function of `fields`)
and its label, followed by what `declaration.Field` has besides:

    - {number: Openings, draw: whole 1 9, minimum: 1, maximum: 9, required: true, alias: How many positions}

`draw` is a function of `drawing` and its arguments, separated by blanks; where they hold blanks themselves, it is a
mapping of the function to a list, followed by arguments that have names. `options` are written "Red|Dark blue" (sent
as red, dark_blue) or "r=Red|b=Dark blue", `shown_if` "device=own_laptop|thin_client", or the name of a box alone,
`accept` ".pdf .docx". `blank: none` is a list without an empty first option. A rule is `in_order`, `adds` or
`multiplies` and the fields that it is about, the total last.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plumbline.tasks.tables import read_table
from plumbline_forms.suite.declaration import Adds, Condition, Draw, Field, Form, InOrder, Multiplies, Page, Rule
from plumbline_forms.suite.drawing import DRAWS
from plumbline_forms.suite.fields import FIELDS, shown

VERSION = 1
"""Of the declarations and their records: other words, fields or draws are another suite."""
DOMAINS = ("academic", "business", "creative", "technology", "finance", "health", "legal", "industry")
HELD_OUT = ("thesis-defence", "trade-show-booth", "palco-do-festival", "mortgage-precheck", "device-return")
"""Five forms of five domains, one a wizard and one in Portuguese, of which training never sees a record."""

_RULES: Mapping[str, Callable[[list[str]], Rule]] = {
    "in_order": lambda names: InOrder(*names),
    "adds": lambda names: Adds(tuple(names[:-1]), names[-1]),
    "multiplies": lambda names: Multiplies((names[0], names[1]), *names[2:]),
}


def read_form(domain: str, name: str, written: Mapping[str, Any]) -> Form:
    """The form that a file declares.

    Raises:
        ValueError: the declaration has an unknown word, or contradicts itself; names the form and the field.
    """
    pages = [
        Page(tuple(_field(name, dict(one)) for one in page["fields"]), page.get("title", ""))
        for page in written["pages"]
    ]
    rules = [_RULES[kind](names) for kind, *names in (rule.split() for rule in written.get("rules", ()))]
    lists = {"pages": tuple(pages), "rules": tuple(rules), "asides": tuple(written.get("asides", ()))}
    return Form(name=name, domain=domain, **{**written, **lists})


def _field(form: str, written: dict[str, Any]) -> Field:
    kind, label = next(iter(written.items()))
    try:
        more = {key: _READ.get(key, str)(value) for key, value in written.items() if key != kind}
        choices = [more.pop("options")] if "options" in more else []
        return FIELDS[kind](label, *choices, **more)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"form {form}: the {kind} {label!r} cannot be read: {error!r}") from error


def _draw(written: str | dict[str, Any]) -> Draw:
    if isinstance(written, str):
        name, *given = written.split()
        named = {}
    else:
        (name, listed), *rest = written.items()
        given, named = listed if isinstance(listed, list) else [listed], dict(rest)
    return DRAWS[name](*map(_argument, given), **{key: _argument(value) for key, value in named.items()})


def _argument(text: str) -> str | int:
    return int(text) if re.fullmatch(r"[0-9]+", text) else text


def _condition(written: str) -> Condition:
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
