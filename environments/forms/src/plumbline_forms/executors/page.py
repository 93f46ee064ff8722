"""A served page as a browser knows it: its controls, their labels, their constraints. Parsed from the HTML alone.

Nothing here knows the declaration: what the page does not say, the executor does not know. Models are kept by the
bytes of the page, because a group of rollouts meets the same page again and again.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from plumbline.errors import DataError
from plumbline_forms.constraints import PICKED, TYPED, read_limit, sanitised
from plumbline_forms.executors.nearby import named_by_place

_OTHERS = frozenset({"hidden", "checkbox", "radio", "file", "button", "reset", "submit", "image"})
"""Types of inputs that hold no text of a user's."""
_DIRECTED = frozenset({"text", "search", "tel", "url", "email", "password", "hidden", "textarea"})
"""Kinds of which `dirname` sends the direction, beside `input type=submit`."""
_UNREAD = frozenset({"select", "textarea", "datalist", "style"})
"""Elements whose text is no part of a label."""
_HOLDERS = ",".join(_UNREAD)
_HIDING = "[hidden],[inert],datalist,dialog:not([open])"
_INVISIBLE = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
"""Styles of what takes no keys. A choice or a file may have another element that a user clicks on."""
_BLANKS = re.compile(r"[ \t\n\f\r]+")
_NUMBER = re.compile(r"[ \t\n\f\r]*\+?(\d+)", re.ASCII)
_RAW = "script|style|textarea|title|xmp|iframe|noembed|noframes|noscript|template"
_TAG = re.compile(
    rf"<!--.*?(?:-->|\Z)|<({_RAW})(?=[\s/>]).*?(?:</\1(?=[\s/>])|\Z)"
    r"|<(/?)(form|input|select|button)(?=[\s/>])",
    re.IGNORECASE | re.DOTALL,
)
URLENCODED = "application/x-www-form-urlencoded"
_OWNER = "data-plumbline-owner"
"""The place of the form owner, where the parser or the browser knows it and the tree does not."""


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
    """By itself or by a fieldset."""
    form: int | None = 0
    """The place of its form owner; None without one."""
    hidden: bool = False
    """Whether the page does not show it, whatever a user does."""
    barred: bool = False
    """Whether it is read-only or stands in a datalist, so that no constraint is checked. Chromium sends what is in
    a datalist, unlike the standard; the browser decides here."""
    does: Literal["submit", "image", "reset", "button"] = "submit"
    """What a click on a button does; `image` submits with coordinates."""
    aliases: tuple[str, ...] = ()
    """Further names of a button: its value, title and the like."""
    placeholder: bool = False
    """Whether the first option of a list only asks to choose, so that it is no entry where one is required."""
    direction: str = ""
    """What `dirname` sends: ltr, rtl, or auto, which goes by the control's text; "" where it sends nothing."""

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


@dataclass(frozen=True, slots=True)
class FormOwner:
    """What a form, or its button, says about how it is sent."""

    action: str = ""
    method: str = "get"
    enctype: str = URLENCODED
    validates: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class PageModel:
    """A page."""

    language: str
    text: str
    controls: tuple[Control, ...]
    """In the order of the page, those without a form as well."""
    conditions: tuple[Shown, ...]
    forms: tuple[FormOwner, ...] = (FormOwner(),)

    def submission(self, form: int, button: Control | None) -> FormOwner:
        """How a form is sent by one of its buttons, or without one."""
        own = self.forms[form]
        given = button.attributes if button is not None else {}
        return FormOwner(
            given.get("formaction", own.action),
            _method(given["formmethod"]) if "formmethod" in given else own.method,
            _enctype(given["formenctype"]) if "formenctype" in given else own.enctype,
            own.validates and "formnovalidate" not in given,
        )

    def submits(self, form: int) -> tuple[Control, ...]:
        """The submit buttons of a form; the first is its default button."""
        buttons = (one for one in self.controls if one.kind == "button" and one.form == form)
        return tuple(one for one in buttons if one.does in {"submit", "image"})


@lru_cache(maxsize=512)
def parse_page(html: bytes) -> PageModel:
    """Parse a page.

    Raises:
        DataError: a conditional part is malformed (a page of ours never is).
    """
    source = html.decode("utf-8", "replace")
    tree = _tree(source)
    language = (tree.root.attributes.get("lang") if tree.root is not None else None) or "en"
    text = " ".join(tree.body.text(separator=" ").split()) if tree.body is not None else ""
    forms = tree.css("form")
    nodes = control_nodes(tree)
    if forms and not all("form" in node.attributes or _ancestor(node, "form") for node in nodes):
        # The parser ties controls to a form whose element they do not stand in, as in the rows of a table.
        tree = _tree(_with_owners(source))
        forms, nodes = tree.css("form"), control_nodes(tree)
    parts = tree.css("fieldset[data-shown-if]")
    page = _Nodes(tree, forms, {node.mem_id: place for place, node in enumerate(parts)})
    controls = _one_radio_each([_control(node, index, page) for index, node in enumerate(nodes)])
    return PageModel(
        language[:2],
        text,
        named_by_place(controls, nodes),
        tuple(_shown(node) for node in parts),
        tuple(form_owner({key: value or "" for key, value in form.attributes.items()}) for form in forms),
    )


def control_nodes(tree: LexborHTMLParser) -> list[LexborNode]:
    """The elements of a page's controls; places are counted in this list."""
    return [node for node in tree.css("input,textarea,select,button") if not _ancestor(node, "select")]


def _tree(source: str) -> LexborHTMLParser:
    tree = LexborHTMLParser(source)
    tree.strip_tags(["script", "noscript", "template"])  # a browser that runs scripts shows none of them
    return tree


def _with_owners(source: str) -> str:
    """The source, with each control marked with the form that was open where it stands."""
    opened, current = 0, ""

    def marked(match: re.Match[str]) -> str:
        nonlocal opened, current
        raw, end, tag = (match.group(1) or "").lower(), match.group(2), (match.group(3) or "").lower()
        if tag == "form" and end:
            current = ""
        elif tag == "form" and not current:
            current = f' {_OWNER}="{opened}"'
            opened += 1
            return match.group() + current
        elif (tag and tag != "form" and not end) or raw == "textarea":
            head = match.start() + 1 + len(tag or raw)
            return source[match.start() : head] + current + source[head : match.end()]
        return match.group()

    return _TAG.sub(marked, source)


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """What the controls of a page refer to."""

    tree: LexborHTMLParser
    forms: Sequence[LexborNode]
    parts: Mapping[int, int]
    """Places of the conditional parts by their nodes."""
    places: dict[int, int] = field(init=False)
    owners: dict[str, int] = field(init=False)
    named: dict[str, LexborNode] = field(init=False)
    labels: dict[str, list[LexborNode]] = field(init=False)
    hiding: frozenset[int] = field(init=False)
    """Elements that are not shown."""
    styled: frozenset[int] = field(init=False)
    """Elements that a style of their own hides."""

    def __post_init__(self) -> None:
        fill = object.__setattr__
        fill(self, "places", {node.mem_id: place for place, node in enumerate(self.forms)})
        marks = ((node.attributes.get(_OWNER), place) for place, node in enumerate(self.forms))
        fill(self, "owners", {mark: place for mark, place in marks if mark is not None})
        fill(self, "named", {node.attributes.get("id") or "": node for node in reversed(self.tree.css("[id]"))})
        labels: dict[str, list[LexborNode]] = {}
        for node in self.tree.css("label[for]"):
            labels.setdefault(node.attributes.get("for") or "", []).append(node)
        fill(self, "labels", labels)
        fill(self, "hiding", frozenset(node.mem_id for node in self.tree.css(_HIDING)))
        styled = (node for node in self.tree.css("[style]") if _INVISIBLE.search(node.attributes["style"] or ""))
        fill(self, "styled", frozenset(node.mem_id for node in styled))

    def owner(self, node: LexborNode, attributes: dict[str, str]) -> int | None:
        """The form owner: by the attribute, by the parser, by the nearest form."""
        marked = attributes.pop(_OWNER, None)
        if "form" in attributes:
            form = self.named.get(attributes["form"]) if attributes["form"] else None
            return self.places.get(form.mem_id) if form is not None else None
        if marked in self.owners:
            return self.owners[marked]
        form = _ancestor(node, "form")
        return self.places[form.mem_id] if form is not None else None

    def label(self, node: LexborNode, key: str) -> str:
        """The text of the label for an id; of several, the one in the control's own form."""
        labels = self.labels.get(key, []) if key else []
        form = _ancestor(node, "form")
        near = [one for one in labels if (own := _ancestor(one, "form")) and form and own.mem_id == form.mem_id]
        return _text((near or labels)[-1]) if labels else ""

    def described(self, attributes: Mapping[str, str | None]) -> str:
        """The text of `aria-labelledby`, else `aria-label`."""
        by = (attributes.get("aria-labelledby") or "").split()
        text = " ".join(_text(self.named[key]) for key in by if key in self.named).strip()
        return text or attributes.get("aria-label") or ""


def _one_radio_each(controls: Sequence[Control]) -> list[Control]:
    """The controls, where of several checked radio buttons of a group the last one is."""
    last = {(one.form, one.name): one.index for one in controls if one.kind == "radio" and one.checked and one.name}
    return [
        replace(one, checked=False)
        if one.kind == "radio" and one.name and one.checked and last[one.form, one.name] != one.index
        else one
        for one in controls
    ]


def form_owner(given: Mapping[str, str]) -> FormOwner:
    """What the attributes of a form say."""
    return FormOwner(
        given.get("action", ""),
        _method(given.get("method", "")),
        _enctype(given.get("enctype", "")),
        "novalidate" not in given,
    )


def _method(text: str) -> str:
    return text.lower() if text.lower() in {"post", "dialog"} else "get"


def _enctype(text: str) -> str:
    known = {"multipart/form-data", "text/plain"}
    return text.lower() if text.lower() in known else URLENCODED


def _shown(node: LexborNode) -> Shown:
    attributes = node.attributes
    try:
        values = json.loads(attributes.get("data-shown-values") or "")
    except ValueError as error:
        raise DataError("a conditional part of the page does not say when it is shown") from error
    return Shown(attributes.get("data-shown-if") or "", frozenset(map(str, values)))


class _Around(NamedTuple):
    """What a control has from the elements that it stands in."""

    label: str
    group: str
    conditions: tuple[int, ...]
    disabled: bool
    hidden: bool
    styled_away: bool
    barred: bool


def _around(node: LexborNode, page: _Nodes) -> _Around:
    conditions: list[int] = []
    group, label, disabled, barred = "", "", "disabled" in node.attributes, False
    hidden, styled_away, inside, below = node.mem_id in page.hiding, node.mem_id in page.styled, True, node
    for parent in _parents(node):
        inside = inside and parent.tag != "form"
        place = page.parts.get(parent.mem_id)
        barred = barred or parent.tag == "datalist"
        hidden = hidden or (place is None and parent.mem_id in page.hiding)
        styled_away = styled_away or parent.mem_id in page.styled
        if place is not None:
            conditions.append(place)
        elif parent.tag == "fieldset":
            first = next((child for child in parent.iter() if child.tag == "legend"), None)
            exempt = first is not None and below.mem_id == first.mem_id
            disabled = disabled or ("disabled" in parent.attributes and not exempt)
            legend = parent.css_first("legend") if inside and not exempt else None
            group = group or (_text(legend) if legend is not None else "")
        elif parent.tag == "label" and not label:
            label = _text(parent)
        elif inside and parent.attributes.get("role") == "group":
            group = group or page.described(parent.attributes)
        below = parent
    return _Around(label, group, tuple(conditions), disabled, hidden, styled_away, barred)


def _control(node: LexborNode, index: int, page: _Nodes) -> Control:
    attributes = {key: value or "" for key, value in node.attributes.items()}
    form = page.owner(node, attributes)
    kind = node.tag or ""
    if kind == "input":
        kind = attributes.get("type", "text").lower()
        kind = kind if kind in TYPED - {"textarea"} or kind in PICKED or kind in _OTHERS else "text"
        kind = "button" if kind in {"submit", "image", "reset"} else kind
    around = _around(node, page)
    label = (
        page.label(node, attributes.get("id", ""))
        or around.label
        or page.described(attributes)
        or attributes.get("placeholder")
        or attributes.get("title")
        or ""
    )
    value = attributes.get("value", "on" if kind in {"checkbox", "radio"} else "")
    choices, chosen = _choices(node) if kind == "select" else ((), ())
    if kind in TYPED - {"textarea"} or kind in PICKED:
        value = sanitised(kind, value, attributes)
        listed = page.named.get(attributes.get("list", "")) if kind != "password" else None
        if listed is not None and listed.tag == "datalist":
            choices = tuple(one for one in _choices(listed)[0] if one.value and not one.disabled)
    placeholder = False
    if kind == "select":
        top = next(iter(node.css("option")), None)
        placeholder = top is not None and top.parent is not None and top.parent.tag == "select"
        placeholder = placeholder and not choices[0].value and not _is_box(attributes)
        kind, chosen = _list(attributes, choices, chosen)
    if kind == "textarea":
        # The parser dropped the first line break already, as browsers do.
        value = node.text().replace("\r\n", "\n")
    is_submit = node.tag == "input" and attributes.get("type", "").lower() == "submit"
    aliases: tuple[str, ...] = ()
    does: Literal["submit", "image", "reset", "button"] = "submit"
    if kind == "button":
        does = _does(node, attributes)
        if is_submit and "value" not in attributes:
            value = "Submit"  # Chromium sends what it writes on the button
        label, *others = [*_names(node, attributes, does, page.described(attributes), label), ""]
        aliases = tuple(other for other in others if other)
    return Control(
        index,
        kind,
        attributes.get("name", ""),
        label,
        around.group if kind in {"radio", "checkbox"} else "",
        value,
        "checked" in attributes,
        choices,
        chosen,
        attributes,
        around.conditions,
        around.disabled,
        form,
        around.hidden or (around.styled_away and (kind in TYPED or kind in PICKED)),
        around.barred or ("readonly" in attributes and node.tag != "select"),
        does,
        aliases,
        placeholder,
        _direction(node) if attributes.get("dirname") and (kind in _DIRECTED or is_submit) else "",
    )


def _list(
    attributes: Mapping[str, str], choices: Sequence[Choice], chosen: tuple[int, ...]
) -> tuple[str, tuple[int, ...]]:
    """The kind of a list and what is selected in it at first."""
    if "multiple" in attributes:
        return "multiselect", chosen
    if chosen or _is_box(attributes):
        return "select", chosen[-1:]
    return "select", tuple(place for place, one in enumerate(choices) if not one.disabled)[:1]


def _is_box(attributes: Mapping[str, str]) -> bool:
    """Whether a select shows several options at once."""
    size = _NUMBER.match(attributes.get("size", ""))
    return "multiple" in attributes or (size is not None and int(size.group(1)[:9]) > 1)


def _does(node: LexborNode, attributes: Mapping[str, str]) -> Literal["submit", "image", "reset", "button"]:
    kind = attributes.get("type", "").lower()
    if kind == "image" and node.tag == "input":
        return "image"
    return "reset" if kind == "reset" else "button" if kind == "button" else "submit"


def _names(node: LexborNode, attributes: Mapping[str, str], does: str, aria: str, label: str) -> list[str]:
    """What a button may be called, what a user reads on it first."""
    title, alt = attributes.get("title", ""), attributes.get("alt", "")
    if node.tag == "button":
        pictures = " ".join(image.attributes.get("alt") or "" for image in node.css("img")).strip()
        names = [_text(node), pictures, aria, title, attributes.get("value", "")]
    elif does == "image":
        names = [alt, aria, title, attributes.get("value", ""), attributes.get("name", "")]
    else:
        written = {"submit": "Submit", "reset": "Reset"}.get(does, "")
        names = [attributes.get("value", written), aria, title, alt]
    return list(dict.fromkeys(name for name in (*names, label) if name.strip()))


def direction_of(text: str) -> str:
    """The direction of a text by its first strong character: ltr or rtl."""
    strong = (unicodedata.bidirectional(letter) for letter in text)
    first = next((one for one in strong if one in {"L", "R", "AL"}), "L")
    return "ltr" if first == "L" else "rtl"


def _direction(node: LexborNode) -> str:
    for one in (node, *_parents(node)):
        if (given := (one.attributes.get("dir") or "").lower()) in {"ltr", "rtl", "auto"}:
            return given if one is node or given != "auto" else direction_of(_text(one))
        if one is node and one.tag == "input" and (one.attributes.get("type") or "").lower() == "tel":
            return "ltr"
    return "ltr"


def _parents(node: LexborNode) -> Iterator[LexborNode]:
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def _ancestor(node: LexborNode, tag: str) -> LexborNode | None:
    return next((parent for parent in _parents(node) if parent.tag == tag), None)


def _choices(node: LexborNode) -> tuple[tuple[Choice, ...], tuple[int, ...]]:
    choices, chosen = [], []
    for place, option in enumerate(node.css("option")):
        attributes = option.attributes
        text = _BLANKS.sub(" ", option.text()).strip(" ")
        value = attributes["value"] or "" if "value" in attributes else text
        group = _ancestor(option, "optgroup")
        disabled = "disabled" in attributes or (group is not None and "disabled" in group.attributes)
        choices.append(Choice(value, attributes.get("label") or text, disabled))
        if "selected" in attributes:
            chosen.append(place)
    return tuple(choices), tuple(chosen)


def _text(node: LexborNode) -> str:
    """What a node reads, without what its controls hold and suggest."""
    return " ".join(" ".join(_pieces(node)).split())


def _pieces(node: LexborNode) -> Iterator[str]:
    if node.css_first(_HOLDERS) is None:
        yield node.text(separator=" ")
        return
    for child in node.iter(include_text=True):
        if child.tag not in _UNREAD:
            yield from _pieces(child) if child.is_element_node else (child.text(),)
