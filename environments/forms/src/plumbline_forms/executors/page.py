"""A served page as a browser knows it: its controls, their labels, their constraints. Parsed from
the HTML alone.

Nothing here knows the declaration: what the page does not say, the executor does not know. It
covers what Plumbline's forms and FormFactory's have. Models are kept by the bytes of the page,
because a group of rollouts meets the same page again and again.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from selectolax.lexbor import LexborHTMLParser, LexborNode

from plumbline.errors import DataError
from plumbline_forms.values import PICKED, TYPED, read_limit, sanitised

_OTHERS = frozenset({"hidden", "checkbox", "radio", "file", "button", "reset", "submit", "image"})
"""Types of inputs that take no text."""
_DIRECTED = TYPED - {"number"} | {"hidden"}
"""Kinds that send the direction of their text where `dirname` asks for it."""
_UNREAD = frozenset({"select", "textarea", "datalist", "style"})
"""Elements whose text is no part of a label."""
_HIDING = "[hidden],[inert],datalist,dialog:not([open])"
_INVISIBLE = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
"""Styles of what takes no keys. A choice or a file may have another element that a user clicks
on."""
_BLANKS = re.compile(r"[ \t\n\f\r]+")
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
URLENCODED = "application/x-www-form-urlencoded"
PLAIN = "text/plain"
_OWNER = "data-plumbline-owner"
"""The place of the form owner, where the browser knows it and the tree does not (`form.js`)."""


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
    """Places of the choices that are selected."""
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
    """Whether it is read-only, so that no constraint is checked."""
    does: str = "submit"
    """What a click on a button does: submit, reset, button, or image, which submits with
    coordinates."""
    aliases: tuple[str, ...] = ()
    """Further names of a button: its value, title and the like."""
    placeholder: bool = False
    """Whether the first option of a list only asks to choose, so that it is no entry where one is
    required."""
    files: tuple[str, ...] = ()
    """Names of the files that are attached."""
    direction: str = ""
    """Where `dirname` asks for it: ltr, rtl, or auto, which goes by the text."""

    @property
    def called(self) -> str:
        """What an attempt's reason calls it: its group, label or name, in quotation marks."""
        return repr(self.group or self.label or self.name)

    @property
    def is_typed(self) -> bool:
        """Whether a user can type into it."""
        return self.kind in TYPED or self.kind in PICKED

    @property
    def sent(self) -> tuple[str, ...]:
        """What it contributes to the form as it is."""
        if self.kind in {"checkbox", "radio"}:
            return (self.value,) if self.checked else ()
        if self.kind in {"select", "multiselect"}:
            return tuple(
                self.choices[place].value
                for place in self.chosen
                if not self.choices[place].disabled
            )
        return self.files if self.kind == "file" else (self.value,)

    @property
    def entries(self) -> list[tuple[str, str]]:
        """The names and values that it contributes; a control with a name, and no file."""
        if self.kind == "hidden" and self.name.lower() == "_charset_":
            return [(self.name, "UTF-8")]
        found = [(self.name, value) for value in self.sent]
        if self.direction:
            way = _direction(self.value) if self.direction == "auto" else self.direction
            found.append((self.attributes["dirname"], way))
        return found

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

    @staticmethod
    def of(given: Mapping[str, str]) -> "FormOwner":
        """What the attributes of a form say."""
        method, enctype = given.get("method", "").lower(), given.get("enctype", "").lower()
        return FormOwner(
            given.get("action", ""),
            "post" if method == "post" else "get",
            enctype if enctype in {"multipart/form-data", PLAIN} else URLENCODED,
            "novalidate" not in given,
        )


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
        own, given = self.forms[form], button.attributes if button is not None else {}
        said = {
            name: given.get(f"form{name}", getattr(own, name))
            for name in ("action", "method", "enctype")
        }
        return replace(
            FormOwner.of(said), validates=own.validates and "formnovalidate" not in given
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
    tree = LexborHTMLParser(html.decode("utf-8", "replace"))
    # a browser that runs scripts shows none of them
    tree.strip_tags(["script", "noscript", "template"])
    language = (tree.root.attributes.get("lang") if tree.root is not None else None) or "en"
    text = " ".join(tree.body.text(separator=" ").split()) if tree.body is not None else ""
    page, nodes = _Nodes(tree), control_nodes(tree)
    controls = [page.control(node, index) for index, node in enumerate(nodes)]
    # Of several checked radio buttons of a group, the last one is.
    last = {
        (one.form, one.name): one.index
        for one in controls
        if one.kind == "radio" and one.checked and one.name
    }
    for one in controls:
        if one.kind == "radio" and last.get((one.form, one.name), one.index) != one.index:
            controls[one.index] = replace(one, checked=False)
    return PageModel(
        language[:2],
        text,
        _named_by_place(controls, nodes),
        tuple(_shown(node) for node in page.parts.values()),
        tuple(
            FormOwner.of({key: value or "" for key, value in form.attributes.items()})
            for form in page.forms
        ),
    )


def control_nodes(tree: LexborHTMLParser) -> list[LexborNode]:
    """The elements of a page's controls; places are counted in this list."""
    return [
        node for node in tree.css("input,textarea,select,button") if not _ancestor(node, "select")
    ]


def _shown(node: LexborNode) -> Shown:
    attributes = node.attributes
    try:
        values = json.loads(attributes.get("data-shown-values") or "")
    except ValueError as error:
        raise DataError("a conditional part of the page does not say when it is shown") from error
    return Shown(attributes.get("data-shown-if") or "", frozenset(map(str, values)))


class _Nodes:
    """What the controls of a page refer to; nodes are known by `mem_id`."""

    def __init__(self, tree: LexborHTMLParser) -> None:
        self.forms = tree.css("form")
        self.places = {node.mem_id: place for place, node in enumerate(self.forms)}
        self.parts = {node.mem_id: node for node in tree.css("fieldset[data-shown-if]")}
        self.named = {node.attributes.get("id") or "": node for node in reversed(tree.css("[id]"))}
        self.labels: dict[str, list[LexborNode]] = {}
        for node in tree.css("label[for]"):
            self.labels.setdefault(node.attributes.get("for") or "", []).append(node)
        self.hiding = {node.mem_id for node in tree.css(_HIDING)}
        styled = (
            node
            for node in tree.css("[style]")
            if _INVISIBLE.search(node.attributes["style"] or "")
        )
        self.styled = {node.mem_id for node in styled}
        self._texts: dict[int, str] = {}

    def owner(self, node: LexborNode, attributes: dict[str, str]) -> int | None:
        """The form owner: by the attribute, by the browser's mark, by the nearest form."""
        marked = attributes.pop(_OWNER, None)
        if "form" in attributes:
            form = self.named.get(attributes["form"]) if attributes["form"] else None
            return self.places.get(form.mem_id) if form is not None else None
        if marked is not None:
            return next(
                (
                    place
                    for place, form in enumerate(self.forms)
                    if form.attributes.get(_OWNER) == marked
                ),
                None,
            )
        form = _ancestor(node, "form")
        return self.places[form.mem_id] if form is not None else None

    def label(self, node: LexborNode, key: str) -> str:
        """The text of the label for an id; of several, the one in the control's own form."""
        labels = self.labels.get(key, []) if key else []
        form = _ancestor(node, "form")
        near = [
            one
            for one in labels
            if (own := _ancestor(one, "form")) and form and own.mem_id == form.mem_id
        ]
        return _text((near or labels)[-1]) if labels else ""

    def _around(self, label: LexborNode) -> str:
        """The text of a label that controls stand in, many of them in a page whose labels never
        end."""
        if label.mem_id not in self._texts:
            self._texts[label.mem_id] = _text(label)
        return self._texts[label.mem_id]

    def described(self, attributes: Mapping[str, str | None]) -> str:
        """The text of `aria-labelledby`, else `aria-label`."""
        by = (attributes.get("aria-labelledby") or "").split()
        text = " ".join(_text(self.named[key]) for key in by if key in self.named).strip()
        return text or attributes.get("aria-label") or ""

    def control(self, node: LexborNode, index: int) -> Control:
        """The control of a node, with what it has from the elements that it stands in."""
        attributes = {key: value or "" for key, value in node.attributes.items()}
        form = self.owner(node, attributes)
        kind = node.tag or ""
        if kind == "input":
            kind = attributes.get("type", "text").lower()
            kind = (
                kind
                if kind in TYPED - {"textarea"} or kind in PICKED or kind in _OTHERS
                else "text"
            )
            kind = "button" if kind in {"submit", "reset", "image"} else kind
        conditions, group, around = [], "", ""
        disabled, hidden = "disabled" in attributes, node.mem_id in self.hiding
        styled, inside, below = node.mem_id in self.styled, True, node
        for parent in _parents(node):
            inside = inside and parent.tag != "form"
            hidden = hidden or (parent.mem_id in self.hiding and parent.mem_id not in self.parts)
            styled = styled or parent.mem_id in self.styled
            if parent.mem_id in self.parts:
                conditions.append(list(self.parts).index(parent.mem_id))
            elif parent.tag == "fieldset":
                first = next((child for child in parent.iter() if child.tag == "legend"), None)
                exempt = first is not None and below.mem_id == first.mem_id
                disabled = disabled or ("disabled" in parent.attributes and not exempt)
                legend = parent.css_first("legend") if inside and not exempt else None
                group = group or (_text(legend) if legend is not None else "")
            elif parent.tag == "label" and not around:
                around = self._around(parent)
            elif inside and parent.attributes.get("role") == "group":
                group = group or self.described(parent.attributes)
            below = parent
        aria = self.described(attributes)
        named = self.label(node, attributes.get("id", "")) or around or aria
        label = named or attributes.get("placeholder") or attributes.get("title") or ""
        control = Control(
            index,
            kind,
            attributes.get("name", ""),
            label,
            group if kind in {"radio", "checkbox"} else "",
            attributes.get("value", "on" if kind in {"checkbox", "radio"} else ""),
            "checked" in attributes,
            attributes=attributes,
            conditions=tuple(conditions),
            disabled=disabled,
            form=form,
            hidden=hidden or (styled and (kind in TYPED or kind in PICKED)),
            barred="readonly" in attributes and node.tag != "select",
            direction=_written(node) if "dirname" in attributes and kind in _DIRECTED else "",
        )
        if kind == "select":
            return _list(control, node)
        if kind == "button":
            return _button(control, node, aria)
        if kind == "textarea":
            # The parser dropped the first line break already, as browsers do.
            return replace(control, value=node.text().replace("\r\n", "\n"))
        if not control.is_typed:
            return control
        listed = self.named.get(attributes.get("list", "")) if kind != "password" else None
        offered = (
            _list(control, listed).choices
            if listed is not None and listed.tag == "datalist"
            else ()
        )
        choices = tuple(one for one in offered if one.value and not one.disabled)
        return replace(control, value=sanitised(kind, control.value, attributes), choices=choices)


def _list(control: Control, node: LexborNode) -> Control:
    """A list with its options, and what is selected in it at first."""
    choices, chosen = [], []
    top = next(iter(node.css("option")), None)
    for place, option in enumerate(node.css("option")):
        attributes = option.attributes
        text = _BLANKS.sub(" ", option.text()).strip(" ")
        group = _ancestor(option, "optgroup")
        disabled = "disabled" in attributes or (
            group is not None and "disabled" in group.attributes
        )
        value = attributes["value"] or "" if "value" in attributes else text
        choices.append(Choice(value, attributes.get("label") or text, disabled))
        if "selected" in attributes:
            chosen.append(place)
    if "multiple" in control.attributes:
        return replace(control, kind="multiselect", choices=tuple(choices), chosen=tuple(chosen))
    # a list of several rows, of which none is chosen by itself
    if (control.limit("size") or 0) > 1:
        return replace(control, choices=tuple(choices), chosen=tuple(chosen[-1:]))
    chosen = chosen[-1:] or [place for place, one in enumerate(choices) if not one.disabled][:1]
    asks = (
        top is not None
        and top.parent is not None
        and top.parent.tag == "select"
        and not choices[0].value
    )
    return replace(control, choices=tuple(choices), chosen=tuple(chosen), placeholder=asks)


def _button(control: Control, node: LexborNode, aria: str) -> Control:
    """A button with what it does, and what it may be called: what a user reads on it first."""
    attributes = control.attributes
    kind = attributes.get("type", "").lower()
    is_image = kind == "image" and node.tag == "input"
    does = kind if kind in {"reset", "button"} or is_image else "submit"
    value, title = attributes.get("value", ""), attributes.get("title", "")
    if node.tag == "button":
        pictures = " ".join(image.attributes.get("alt") or "" for image in node.css("img")).strip()
        names = [_text(node), pictures, aria, title, value, control.label]
    elif is_image:
        names = [attributes.get("alt", ""), aria, title, value, control.name, control.label]
    else:
        # as Chromium writes
        value = attributes.get("value", {"submit": "Submit", "reset": "Reset"}.get(does, ""))
        names = [value, aria, title, control.label]
    label, *others = [*dict.fromkeys(name for name in names if name.strip()), ""]
    aliases = tuple(name for name in others if name)
    return replace(
        control,
        label=label,
        value=value if does == "submit" else control.value,
        does=does,
        aliases=aliases,
    )


def _written(node: LexborNode) -> str:
    """The direction in which a control's text is written; "auto" where that goes by the text."""
    for one in (node, *_parents(node)):
        said = (one.attributes.get("dir") or "").lower()
        if said in {"ltr", "rtl"} or (said == "auto" and one.mem_id == node.mem_id):
            return said
        if said == "auto":
            return _direction(_text(one))
        if node.attributes.get("type") == "tel":
            break
    return "ltr"


def _direction(text: str) -> str:
    """The direction of the first letter that has one."""
    found = (unicodedata.bidirectional(letter) for letter in text)
    return "ltr" if next((one for one in found if one in {"L", "R", "AL"}), "L") == "L" else "rtl"


def _parents(node: LexborNode) -> Iterator[LexborNode]:
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def _ancestor(node: LexborNode, tag: str) -> LexborNode | None:
    return next((parent for parent in _parents(node) if parent.tag == tag), None)


def _text(node: LexborNode) -> str:
    """What a node reads, without what its controls hold and suggest."""
    return " ".join(" ".join(_pieces(node)).split())


def _pieces(node: LexborNode) -> Iterator[str]:
    if node.css_first(",".join(_UNREAD)) is None:
        yield node.text(separator=" ")
        return
    for child in node.iter(include_text=True):
        if child.tag not in _UNREAD:
            yield from _pieces(child) if child.is_element_node else (child.text(),)


# -- labels by where a control stands --------------------------------------------------------------
# Real pages have labels that belong to nothing ("Select courses" above four boxes) and headings in
# place of labels. A person reads what stands right before the control; so does this.


def _named_by_place(
    controls: Sequence[Control], nodes: Sequence[LexborNode]
) -> tuple[Control, ...]:
    """The controls, with labels for those that have none, and group labels for groups that have
    none."""
    sizes = Counter(
        (one.kind, one.form, one.name) for one in controls if one.kind in {"radio", "checkbox"}
    )
    groups: dict[tuple[str, int | None, str], str] = {}
    found = []
    for control, node in zip(controls, nodes, strict=True):
        key = (control.kind, control.form, control.name)
        if sizes[key] > 1:
            if key not in groups:  # of its first member: before the others stand their siblings
                groups[key] = control.group or _before(node)
            control = replace(control, group=control.group or groups[key])
        elif not control.label and control.kind not in {"button", "hidden"}:
            control = replace(control, label=_before(node))
        found.append(control)
    return tuple(found)


def _before(node: LexborNode) -> str:
    """The nearest label or heading before a control within its form; "" where another control
    stands between."""
    inside: LexborNode | None = node
    while inside is not None and inside.tag != "form":
        sibling = inside.prev
        while sibling is not None:
            if sibling.is_element_node:
                if sibling.css_matches("input:not([type=hidden]),textarea,select,button"):
                    return ""
                if (
                    sibling.tag == "label" and not sibling.attributes.get("for")
                ) or sibling.tag in _HEADINGS:
                    return " ".join(sibling.text(separator=" ").split())
            sibling = sibling.prev
        inside = inside.parent
    return ""
