"""A declared form as HTML: one renderer for all forms, no script but for conditional fields, nothing from elsewhere."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

from plumbline_forms.suite.declaration import Field, Form, Language, Page

Entries = Mapping[str, tuple[str, ...]]
"""Values by name, in the order received; a name sent twice has two values."""

# -- view ----------------------------------------------------------------------------------------------------------


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


# -- page ----------------------------------------------------------------------------------------------------------

WORDS: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "next": "Continue",
        "page": "Page",
        "of": "of",
        "errors": "Please correct the marked entries.",
        "thanks": "Thank you. Your form was successfully submitted.",
    },
    "pt": {
        "next": "Continuar",
        "page": "Página",
        "of": "de",
        "errors": "Corrija os campos marcados.",
        "thanks": "Obrigado. Seu formulário foi enviado com sucesso.",
    },
}
STYLE = (
    "body{font:16px/1.4 sans-serif;max-width:42rem;margin:2rem auto;padding:0 1rem}"
    ".field,fieldset{margin:0 0 1rem;border:0;padding:0}label,legend,.caption,h3{display:block;font:inherit;"
    "font-weight:600;margin:0}input:not([type=radio],[type=checkbox]),select,textarea{width:100%;font:inherit;"
    "padding:.3rem;box-sizing:border-box}.option{font-weight:400}.hint{color:#555}.error{color:#b00}"
)
SCRIPT = """(() => {
  const now = name => [...document.getElementsByName(name)].flatMap(control =>
    control.matches(":disabled") ? [] :
    control.type === "radio" || control.type === "checkbox" ? (control.checked ? [control.value] : []) :
    control.options ? [...control.selectedOptions].map(option => option.value) : [control.value]);
  const update = () => document.querySelectorAll("fieldset[data-shown-if]").forEach(part => {
    const wanted = JSON.parse(part.dataset.shownValues);
    const shown = now(part.dataset.shownIf).some(value => wanted.includes(value));
    part.disabled = !shown;
    part.hidden = !shown;
  });
  document.addEventListener("input", update);
  document.addEventListener("change", update);
  update();
})();"""
"""Shows a conditional part while its condition holds; what is not shown is disabled, so it is not sent."""
_TYPES = {"multiselect": "select", "checkboxes": "checkbox"}


def shown_by(one: Field, entries: Entries) -> bool:
    """Whether a page with these entries shows the field."""
    if one.shown_if is None:
        return True
    return any(value in one.shown_if.values for value in entries.get(one.shown_if.name, ()))


def render_page(
    view: View, number: int, entries: Entries | None = None, errors: Mapping[str, str] | None = None
) -> str:
    """The HTML of one page of a form.

    Args:
        view: the form, and how it is met.
        number: of the page, from 1.
        entries: what it is filled with after errors; None serves it fresh.
        errors: messages by field name.
    """
    form, page = view.form, view.form.pages[number - 1]
    words, errors = WORDS[form.language], errors or {}
    last = number == len(form.pages)
    parts = [f"<h1>{escape(form.title)}</h1>"]
    if len(form.pages) > 1:
        progress = f"{words['page']} {number} {words['of']} {len(form.pages)}"
        parts.append(f'<p class="progress">{progress}: {escape(page.title)}</p>')
    if errors:
        parts.append(f'<p class="error" role="alert">{words["errors"]}</p>')
    files = any(one.kind == "file" for one in page.fields)
    encoding = ' enctype="multipart/form-data"' if files else ""
    parts.append(f'<form method="post"{encoding}>')
    parts += [_field(view, page, one, entries, errors.get(one.name, "")) for one in page.fields]
    button = form.button if last else words["next"]
    parts.append(f'<button type="submit">{escape(button)}</button></form>')
    if any(one.shown_if for one in page.fields):
        parts.append(f"<script>{SCRIPT}</script>")
    return _document(form.language, form.title, parts)


def render_receipt(view: View) -> str:
    """The page that says that the form has arrived."""
    form = view.form
    thanks = WORDS[form.language]["thanks"]
    return _document(form.language, form.title, [f"<h1>{escape(form.title)}</h1>", f'<p role="status">{thanks}</p>'])


def _document(language: Language, title: str, parts: list[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body><main>\n{body}\n</main></body></html>\n"
    )


def _field(view: View, page: Page, one: Field, entries: Entries | None, error: str) -> str:
    values = view.untouched(one) if entries is None else entries.get(one.name, ())
    if one.kind == "hidden":
        return f'<input type="hidden" name="{one.name}" value="{escape(one.default)}">'
    label = escape(one.label) + (" *" if view.stars and one.required else "")
    inner = _group(one, label, values) if one.kind in {"radio", "checkboxes"} else _named(one, label, values)
    inner += f'<p class="hint">{escape(one.hint)}</p>' if one.hint else ""
    inner += f'<p class="error">{escape(error)}</p>' if error else ""
    if one.shown_if is None:
        return f'<div class="field">{inner}</div>'
    wanted = escape(json.dumps(one.shown_if.values, ensure_ascii=False))
    now = _served(view, page) if entries is None else entries
    state = "" if shown_by(one, now) else " disabled hidden"
    return f'<fieldset data-shown-if="{one.shown_if.name}" data-shown-values="{wanted}"{state}>{inner}</fieldset>'


def _served(view: View, page: Page) -> Entries:
    """What a fresh page would send; a condition on a condition is followed in the order of the fields."""
    now: dict[str, tuple[str, ...]] = {}
    for one in page.fields:
        if shown_by(one, now):
            now[one.name] = view.untouched(one)
    return now


def _named(one: Field, label: str, values: tuple[str, ...]) -> str:
    """A single control with its label, tied together in one of the ways that pages have."""
    key = f"f-{one.name}"
    if one.kind == "checkbox":
        control = _control(one, f'id="{key}"', values)
        if one.named_by == "wrap":
            return f'<label class="option">{control} {label}</label>'
        return f'{control} <label class="option" for="{key}">{label}</label>'
    match one.named_by:
        case "wrap":
            return f"<label>{label} {_control(one, '', values)}</label>"
        case "aria":
            return f'<span class="caption" aria-hidden="true">{label}</span>' + _control(
                one, f'aria-label="{label}"', values
            )
        case "heading":
            return f'<h3 id="h-{one.name}">{label}</h3>' + _control(one, f'aria-labelledby="h-{one.name}"', values)
        case "placeholder":
            return _control(one, f'placeholder="{label}"', values)
        case "name":
            return f'<span class="caption">{label}</span>' + _control(one, "", values)
        case _:
            return f'<label for="{key}">{label}</label>' + _control(one, f'id="{key}"', values)


def _control(one: Field, extra: str, values: tuple[str, ...]) -> str:
    value = values[0] if values else ""
    attributes = " ".join(part for part in (f'name="{one.name}"', extra, _constraints(one)) if part)
    if one.kind == "textarea":
        # The first line break after the tag is not part of the value, so one is always written.
        return f"<textarea {attributes}>\n{escape(value, quote=False)}</textarea>"
    if one.kind in {"select", "multiselect"}:
        return f"<select {attributes}>{_options(one, values)}</select>"
    if one.kind == "checkbox":
        return f'<input type="checkbox" {attributes} value="on"{" checked" if value == "on" else ""}>'
    if one.kind in {"file", "password"}:
        return f'<input type="{one.kind}" {attributes}>'
    return f'<input type="{one.kind}" {attributes} value="{escape(value)}">'


def _options(one: Field, values: tuple[str, ...]) -> str:
    blank = "" if one.blank is None or one.kind == "multiselect" else f'<option value="">{escape(one.blank)}</option>'
    return blank + "".join(
        f'<option value="{escape(option.value)}"{" selected" if option.value in values else ""}>'
        f"{escape(option.text)}</option>"
        for option in one.options
    )


def _group(one: Field, label: str, values: tuple[str, ...]) -> str:
    kind = _TYPES.get(one.kind, one.kind)
    required = " required" if one.required and kind == "radio" else ""
    choices = "".join(
        f'<label class="option"><input type="{kind}" name="{one.name}" value="{escape(option.value)}"'
        f"{' checked' if option.value in values else ''}{required}> {escape(option.text)}</label>"
        for option in one.options
    )
    if one.named_by == "heading":
        return f'<h3 id="h-{one.name}">{label}</h3><div role="group" aria-labelledby="h-{one.name}">{choices}</div>'
    return f"<fieldset><legend>{label}</legend>{choices}</fieldset>"


def _constraints(one: Field) -> str:
    """The attributes by which a browser checks the control."""
    given = {
        "min": one.minimum,
        "max": one.maximum,
        "step": one.step,
        "minlength": one.minlength,
        "maxlength": one.maxlength,
        "pattern": one.pattern,
        "title": one.hint if one.pattern else None,
        "accept": ",".join(one.accept) or None,
        "placeholder": one.placeholder or None,
    }
    flags = [
        name
        for name, wanted in (("required", one.required), ("multiple", one.multiple or one.kind == "multiselect"))
        if wanted
    ]
    return " ".join([*(f'{key}="{escape(str(value))}"' for key, value in given.items() if value is not None), *flags])
