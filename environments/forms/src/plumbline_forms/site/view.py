"""A form as one example meets it: prefilled or not, required fields starred or not."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from plumbline_forms.suite.declaration import Field, Form


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What decides the bytes of a form's pages.

    Views are compared by identity, so that rendered pages can be kept by view; keep one for each example.
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
