"""What a control is called by where it stands, on pages that tie no label to it.

Real pages have labels that belong to nothing ("Select courses" above four boxes) and headings in place of labels. A
person reads what stands right before the control; so does this: the nearest label without a control of its own, or
heading, that comes before the control and after the one before it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from selectolax.lexbor import LexborNode

if TYPE_CHECKING:
    from plumbline_forms.executors.page import Control

_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_CONTROLS = "input:not([type=hidden]),textarea,select,button"
_NAMELESS = frozenset({"button", "hidden"})


def named_by_place(controls: Sequence["Control"], nodes: Sequence[LexborNode]) -> tuple["Control", ...]:
    """The controls, with labels for those that have none, and group labels for groups that have none.

    Args:
        controls: in the order of the page.
        nodes: of the same controls.
    """
    sizes = Counter((one.kind, one.form, one.name) for one in controls if one.kind in {"radio", "checkbox"})
    groups: dict[tuple[str, int | None, str], str] = {}
    found = []
    for control, node in zip(controls, nodes, strict=True):
        key = (control.kind, control.form, control.name)
        if sizes[key] > 1:
            if key not in groups:  # of its first member: before the others stand their siblings
                groups[key] = control.group or _before(node)
            found.append(replace(control, group=control.group or groups[key]))
        elif not control.label and control.kind not in _NAMELESS:
            found.append(replace(control, label=_before(node)))
        else:
            found.append(control)
    return tuple(found)


def _before(node: LexborNode) -> str:
    """The nearest label or heading before a control within its form; "" where another control stands between."""
    inside: LexborNode | None = node
    while inside is not None and inside.tag != "form":
        for sibling in _preceding(inside):
            own = sibling.css_matches(_CONTROLS)
            if own:
                return ""
            if (sibling.tag == "label" and not sibling.attributes.get("for")) or sibling.tag in _HEADINGS:
                return " ".join(sibling.text(separator=" ").split())
        inside = inside.parent
    return ""


def _preceding(node: LexborNode) -> Iterator[LexborNode]:
    """The elements before a node in the same parent, the nearest first."""
    sibling = node.prev
    while sibling is not None:
        if sibling.is_element_node:
            yield sibling
        sibling = sibling.prev
