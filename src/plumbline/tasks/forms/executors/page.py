"""A served page as a browser knows it: its controls, their labels, their constraints. Parsed from the HTML alone.

Nothing here knows the declaration: what the page does not say, the executor does not know. Models are kept by the
bytes of the page, because a group of rollouts meets the same page again and again.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from selectolax.lexbor import LexborHTMLParser, LexborNode

from plumbline.errors import DataError
from plumbline.tasks.forms.constraints import PICKED, TYPED, read_limit, sanitised
from plumbline.tasks.forms.executors.nearby import named_by_place

_OTHERS = frozenset({"hidden", "checkbox", "radio", "file", "button", "reset", "submit", "image"})
"""Types of inputs that hold no text of a user's."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An option of a select."""

    value: str
    text: str
    disabled: bool = False


@dataclass(frozen=True, slots=True)
class Control:
    """One control."""

    index: int
    """Its place on the page; states are kept by it."""
    kind: str
    """An input's type, or textarea, select, multiselect, button."""
    name: str
    label: str
    """What a user would call it; for an option of a group, the option's text."""
    group: str = ""
    """The label of its group, for radios and boxes that have one."""
    value: str = ""
    checked: bool = False
    choices: tuple[Choice, ...] = ()
    """Options of a select, suggestions of an input."""
    chosen: tuple[int, ...] = ()
    """Places of the choices that are selected at first."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    conditions: tuple[int, ...] = ()
    """The conditional parts that it stands in, by their place on the page."""
    disabled: bool = False

    @property
    def called(self) -> str:
        """What an attempt's reason calls it: its group, label or name, in quotation marks."""
        return repr(self.group or self.label or self.name)

    @property
    def is_typed(self) -> bool:
        """Whether a user can type into it."""
        return self.kind in TYPED or self.kind in PICKED

    def limit(self, name: str) -> int | None:
        """A length limit; None where there is none, or it is no number."""
        return read_limit(self.attributes.get(name, ""))


@dataclass(frozen=True, slots=True)
class Shown:
    """A part that is shown while a control has one of these values."""

    name: str
    values: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class PageModel:
    """A page."""

    language: str
    text: str
    controls: tuple[Control, ...]
    """Of its form, in the order of the page; empty for a page without a form."""
    conditions: tuple[Shown, ...]
    multipart: bool
    has_form: bool


@lru_cache(maxsize=512)
def parse_page(html: bytes) -> PageModel:
    """Parse a page; of several forms, the first counts.

    Raises:
        DataError: a conditional part is malformed (a page of ours never is).
    """
    tree = LexborHTMLParser(html.decode("utf-8", "replace"))
    tree.strip_tags(["script"])  # nobody reads it on the page
    root, form = tree.root, tree.css_first("form")
    language = (root.attributes.get("lang") if root is not None else None) or "en"
    text = " ".join(tree.body.text(separator=" ").split()) if tree.body is not None else ""
    if form is None:
        return PageModel(language[:2], text, (), (), multipart=False, has_form=False)
    labels = {
        node.attributes.get("for") or "": _text(node) for node in form.css("label[for]") if node.attributes.get("for")
    }
    named = {node.attributes.get("id") or "": _text(node) for node in form.css("[id]")}
    parts = form.css("fieldset[data-shown-if]")
    conditions = tuple(_shown(node) for node in parts)
    places = {node.mem_id: place for place, node in enumerate(parts)}
    suggested = {node.attributes.get("id") or "": _choices(node)[0] for node in tree.css("datalist[id]")}
    controls: list[Control] = []
    nodes = form.css("input,textarea,select,button")
    for node in nodes:
        controls.append(_control(node, len(controls), labels, named, places, suggested))
    multipart = (form.attributes.get("enctype") or "").lower() == "multipart/form-data"
    return PageModel(language[:2], text, named_by_place(controls, nodes), conditions, multipart, has_form=True)


def _shown(node: LexborNode) -> Shown:
    attributes = node.attributes
    try:
        values = json.loads(attributes.get("data-shown-values") or "")
    except ValueError as error:
        raise DataError("a conditional part of the page does not say when it is shown") from error
    return Shown(attributes.get("data-shown-if") or "", frozenset(map(str, values)))


def _control(
    node: LexborNode,
    index: int,
    labels: Mapping[str, str],
    named: Mapping[str, str],
    places: Mapping[int, int],
    suggested: Mapping[str, tuple[Choice, ...]],
) -> Control:
    attributes = {key: value or "" for key, value in node.attributes.items()}
    kind = node.tag or ""
    if kind == "input":
        kind = attributes.get("type", "text").lower()
        kind = kind if kind in TYPED - {"textarea"} or kind in PICKED or kind in _OTHERS else "text"
        kind = "button" if kind in {"submit", "image"} else kind
    conditions: list[int] = []
    group, wrapping, disabled = "", "", "disabled" in attributes
    for parent in _parents(node):
        if parent.tag == "label" and not wrapping:
            wrapping = _text(parent, without=node)
        elif parent.tag == "datalist":
            disabled = True
        elif parent.tag == "fieldset":
            if (place := places.get(parent.mem_id)) is not None:
                conditions.append(place)
            else:
                disabled = disabled or "disabled" in parent.attributes
                legend = parent.css_first("legend")
                group = group or (_text(legend) if legend is not None else "")
        elif parent.attributes.get("role") == "group":
            group = group or _described(parent.attributes, named)
    label = (
        labels.get(attributes.get("id", ""))
        or wrapping
        or _described(attributes, named)
        or attributes.get("placeholder")
        or attributes.get("title")
        or ""
    )
    value = attributes.get("value", "on" if kind in {"checkbox", "radio"} else "")
    choices, chosen = _choices(node) if kind == "select" else ((), ())
    if kind in TYPED - {"textarea"} or kind in PICKED:
        value = sanitised(kind, value, attributes)
        choices = suggested.get(attributes.get("list", ""), ())
    if kind == "select" and "multiple" in attributes:
        kind = "multiselect"
    elif kind == "select":
        chosen = chosen[-1:] or tuple(place for place, one in enumerate(choices) if not one.disabled)[:1]
    if kind == "textarea":
        # The parser dropped the first line break already, as browsers do.
        value = node.text().replace("\r\n", "\n")
    if kind == "button":
        label = attributes.get("value") or _text(node)
    return Control(
        index,
        kind,
        attributes.get("name", ""),
        label,
        group if kind in {"radio", "checkbox"} else "",
        value,
        "checked" in attributes,
        choices,
        chosen,
        attributes,
        tuple(conditions),
        disabled,
    )


def _parents(node: LexborNode) -> Iterator[LexborNode]:
    parent = node.parent
    while parent is not None and parent.tag != "form":
        yield parent
        parent = parent.parent


def _described(attributes: Mapping[str, str | None], named: Mapping[str, str]) -> str:
    by = (attributes.get("aria-labelledby") or "").split()
    return " ".join(named.get(key, "") for key in by).strip() or (attributes.get("aria-label") or "")


def _choices(node: LexborNode) -> tuple[tuple[Choice, ...], tuple[int, ...]]:
    choices, chosen = [], []
    for place, option in enumerate(node.css("option")):
        attributes = option.attributes
        text = _text(option)
        value = attributes.get("value", text)
        text = attributes.get("label") or text
        choices.append(Choice(value or "", text, "disabled" in attributes))
        if "selected" in attributes:
            chosen.append(place)
    return tuple(choices), tuple(chosen)


def _text(node: LexborNode, without: LexborNode | None = None) -> str:
    """What a node reads; of a label that holds its control, the control's own text is left out."""
    if without is not None and without.tag in {"select", "textarea"}:
        pieces = [child.text(separator=" ") for child in node.iter(include_text=True) if child.mem_id != without.mem_id]
        return " ".join(" ".join(pieces).split())
    return " ".join(node.text(separator=" ").split())
