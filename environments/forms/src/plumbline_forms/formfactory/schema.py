"""A form's declaration, read from its page: what a user sees there, and nothing that the page does
not say."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import get_args

from selectolax.lexbor import LexborHTMLParser

from plumbline.errors import DataError
from plumbline_browser.plans.actions import TYPED
from plumbline_forms.executors.page import Control, parse_page
from plumbline_forms.formfactory.checkout import BenchmarkForm
from plumbline_forms.suite.declaration import Field, Form, FormPage, Kind, Option

FIX = "take a checkout of FormFactory itself"
_STAR = re.compile(r"\s*\*+$")
_KINDS: Mapping[str, Kind] = {kind: kind for kind in get_args(Kind)}
_SCRIPTED: Mapping[str, Kind] = {
    # The page's script makes text inputs of addresses and dates, too.
    "string": "text",
    "email": "text",
    "date": "text",
    "radio": "radio",
    "checkbox": "checkbox",
}


def nothing(_: object) -> None:
    """The draw of every field, until the records are known."""


def read_schema(row: BenchmarkForm, html: bytes, config: bytes | None = None) -> Form:
    """The form of a page.

    Args:
        row: what is known of it.
        html: the page.
        config: the description that the page's script fetches, and builds the form from.

    Raises:
        DataError: the page has no form, or a control of a kind that is not known; or the
            description is malformed.
    """
    tree = LexborHTMLParser(html.decode("utf-8", "replace"))
    if config is None:
        controls = parse_page(html).controls
        button = next((one.label for one in reversed(controls) if one.kind == "button"), None)
        groups: dict[tuple[str, str], list[Control]] = {}
        for one in controls:
            if one.kind != "button" and one.name:
                groups.setdefault((one.kind, one.name), []).append(one)
        if not groups or button is None:
            raise DataError(f"the page of {row.id} has no form with a button", FIX)
        nodes = filter(None, map(tree.css_first, ("h1", "h2", "title")))
        title = next((text for node in nodes if (text := " ".join(node.text().split()))), row.name)
        fields = [_field(row, members) for members in groups.values()]
    else:
        title, fields = _scripted(row, config)
        node = tree.css_first("button[type=submit]")
        if node is None:
            raise DataError(f"the page of {row.id} has no button that sends it", FIX)
        button = " ".join(node.text().split())
    try:
        return Form(
            name=row.name,
            domain=row.domain,
            title=title,
            pages=(FormPage(tuple(fields)),),
            button=button,
        )
    except ValueError as error:
        raise DataError(
            f"the page of {row.id} cannot be told apart: {error}", "take a checkout of FormFactory"
        ) from error


def _scripted(row: BenchmarkForm, config: bytes) -> tuple[str, list[Field]]:
    """The title and the fields of a description."""
    try:
        described = json.loads(config)
        title = str(described["title"])
        fields = [Field(name="page_type", label="page_type", kind="hidden", default=title)]
        for entry in described["fields"]:
            options = tuple(Option(str(text), str(text)) for text in entry.get("options", ()))
            name, label, kind = str(entry["name"]), str(entry["label"]), _SCRIPTED[entry["type"]]
            fields.append(Field(name=name, label=label, kind=kind, options=options, draw=nothing))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{row.config}, which describes {row.id}, is malformed: {error!r}", FIX
        ) from error
    return title, fields


def _field(row: BenchmarkForm, members: Sequence[Control]) -> Field:
    """The field that one control, or a group of controls of one name, is."""
    first = members[0]
    kind = _KINDS.get("checkboxes" if first.kind == "checkbox" and len(members) > 1 else first.kind)
    if kind is None:
        raise DataError(
            f"{row.id} has a control of a kind that is not known: {first.kind}",
            "tell us; forms have changed",
        )
    attributes, listed = first.attributes, [Option(one.value, one.text) for one in first.choices]
    default = first.value
    if grouped := kind in {"radio", "checkboxes"}:
        listed = [Option(one.value, _STAR.sub("", one.label) or one.value) for one in members]
        default = next((one.value for one in members if one.checked), "")
    elif kind == "checkbox":
        default = "on" if first.checked else ""
    elif kind in {"select", "multiselect"}:
        default = first.choices[first.chosen[0]].value if first.chosen else ""
    elif kind == "file":
        default = ""
    limits = attributes if kind in TYPED else {}
    return Field(
        name=first.name,
        label=_STAR.sub("", first.group if grouped else first.label) or first.name,
        kind=kind,
        draw=None if kind == "hidden" else nothing,
        required="required" in attributes,
        options=tuple(option for option in listed if option.value or grouped),
        blank=None
        if grouped
        else next((option.text for option in listed if not option.value), None),
        default=default,
        minimum=limits.get("min"),
        maximum=limits.get("max"),
        step=limits.get("step"),
        minlength=first.limit("minlength"),
        maxlength=first.limit("maxlength"),
        pattern=limits.get("pattern"),
        placeholder=attributes.get("placeholder", ""),
        accept=tuple(
            part
            for part in attributes.get("accept", "").replace(" ", "").split(",")
            if part[:1] == "."
        ),
        multiple="multiple" in attributes,
    )
