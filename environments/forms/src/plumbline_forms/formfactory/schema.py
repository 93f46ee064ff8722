"""A form's declaration, read from its page: what a user sees there, and nothing that the page does not say."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from selectolax.lexbor import LexborHTMLParser

from plumbline.errors import DataError
from plumbline_forms.executors.page import Control, parse_page
from plumbline_forms.formfactory.table import Row
from plumbline_forms.suite.declaration import TYPED, Field, Kind, Option

_STAR = re.compile(r"\s*\*+$")
_KINDS = frozenset(get_args(Kind))
_SCRIPTED: Mapping[str, Kind] = {
    # The page's script makes text inputs of addresses and dates, too.
    "string": "text",
    "email": "text",
    "date": "text",
    "radio": "radio",
    "checkbox": "checkbox",
}


@dataclass(frozen=True, slots=True)
class Schema:
    """A form without values."""

    title: str
    button: str
    fields: tuple[Field, ...]
    ported: bool = False
    """Whether a script builds the page, so that one with the same controls is served in its place."""


def read_schema(row: Row, html: bytes) -> Schema:
    """The form of a page.

    Raises:
        DataError: the page has no form, or a control of a kind that is not known.
    """
    model = parse_page(html)
    buttons = [control for control in model.controls if control.kind == "button"]
    controls = [control for control in model.controls if control.kind != "button" and control.name]
    if not controls or not buttons:
        raise DataError(f"the page of {row.id} has no form with a button", "take a checkout of FormFactory itself")
    groups: dict[tuple[str, str], list[Control]] = {}
    for control in controls:
        groups.setdefault((control.kind, control.name), []).append(control)
    fields = tuple(_field(row, kind, members) for (kind, _), members in groups.items())
    return Schema(_title(html) or row.name, buttons[-1].label, fields)


def read_scripted(row: Row, html: bytes, config: bytes) -> Schema:
    """The form that a page's script would build from the description that it fetches.

    Raises:
        DataError: the description is malformed, or asks for a control that the script does not make.
    """
    fix = "take a checkout of FormFactory itself"
    try:
        described = json.loads(config)
        title, entries = str(described["title"]), list(described["fields"])
        fields = [Field(name="page_type", label="page_type", kind="hidden", default=title)]
        fields += [_scripted(entry) for entry in entries]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{row.config}, which describes {row.id}, is malformed: {error!r}", fix) from error
    button = LexborHTMLParser(html.decode("utf-8", "replace")).css_first("button[type=submit]")
    if button is None:
        raise DataError(f"the page of {row.id} has no button that sends it", fix)
    return Schema(title, " ".join(button.text().split()), tuple(fields), ported=True)


def _scripted(entry: Mapping[str, Any]) -> Field:
    options = tuple(Option(str(text), str(text)) for text in entry.get("options", ()))
    kind = _SCRIPTED[entry["type"]]
    return Field(name=str(entry["name"]), label=str(entry["label"]), kind=kind, options=options)


def _title(html: bytes) -> str:
    tree = LexborHTMLParser(html.decode("utf-8", "replace"))
    for selector in ("h1", "h2", "title"):
        if (node := tree.css_first(selector)) is not None and node.text().strip():
            return " ".join(node.text().split())
    return ""


def _field(row: Row, kind: str, members: list[Control]) -> Field:
    first = members[0]
    if kind == "checkbox" and len(members) > 1:
        kind = "checkboxes"
    if kind not in _KINDS:
        raise DataError(f"{row.id} has a control of a kind that is not known: {kind}", "tell us; forms have changed")
    grouped = kind in {"radio", "checkboxes"}
    options, blank = _options(first, members, grouped=grouped)
    attributes = first.attributes
    label = _STAR.sub("", first.group if grouped else first.label) or first.name
    typed = kind in TYPED
    return Field(
        name=first.name,
        label=label,
        kind=kind,  # type: ignore[arg-type]  # one of the kinds, by the check above
        required="required" in attributes,
        options=options,
        blank=blank,
        default=_default(first, members, kind),
        minimum=attributes.get("min") if typed else None,
        maximum=attributes.get("max") if typed else None,
        step=attributes.get("step") if typed else None,
        minlength=first.limit("minlength"),
        maxlength=first.limit("maxlength"),
        pattern=attributes.get("pattern") if typed else None,
        placeholder=attributes.get("placeholder", ""),
        accept=tuple(part for part in attributes.get("accept", "").replace(" ", "").split(",") if part[:1] == "."),
        multiple="multiple" in attributes,
    )


def _options(first: Control, members: list[Control], *, grouped: bool) -> tuple[tuple[Option, ...], str | None]:
    """The options, and the text of a list's empty first one."""
    if grouped:
        return tuple(Option(one.value, _STAR.sub("", one.label) or one.value) for one in members), None
    blank = next((one.text for one in first.choices if not one.value), None)
    return tuple(Option(one.value, one.text) for one in first.choices if one.value), blank


def _default(first: Control, members: list[Control], kind: str) -> str:
    if kind in {"radio", "checkboxes"}:
        return next((one.value for one in members if one.checked), "")
    if kind == "checkbox":
        return "on" if first.checked else ""
    if kind in {"select", "multiselect"}:
        return first.choices[first.chosen[0]].value if first.chosen else ""
    return "" if kind == "file" else first.value
