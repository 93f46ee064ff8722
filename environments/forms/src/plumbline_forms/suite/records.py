"""Records: the values that one example asks to enter, drawn from a seed, a form's name and an index.

A record satisfies every constraint of its form, so that the server accepts it; no two records of a form are the same.
"""

from collections.abc import Mapping

from plumbline.seeds import generator
from plumbline_forms.suite.catalogue import VERSION
from plumbline_forms.suite.declaration import Field, Form, Value
from plumbline_forms.suite.drawing import Drawing

RECORDS = 50
"""Of each form."""
_TRIES = 20


def draw_record(form: Form, seed: int, index: int) -> dict[str, Value]:
    """The values of one record by field name, None for those that are left alone.

    Fields that are not shown, because of what another field got, are None; hidden fields are not part of a record.
    """
    for attempt in range(_TRIES):
        values = _draw(form, seed, index, attempt)
        entered = {name: value for name, value in values.items() if isinstance(value, str)}
        if all(rule.holds(entered) for rule in form.rules):
            return values
    raise AssertionError(f"{form.name}: no record keeps its rules, so a draw contradicts them")


def _draw(form: Form, seed: int, index: int, attempt: int) -> dict[str, Value]:
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
    """The form with its first so many visible fields only, for tiny models: another form, which the site serves so.

    Rules and conditions that need a field that is gone are gone, too.
    """
    visible = [one.name for one in form.fields if one.kind != "hidden"][:most]
    kept = {*visible, *(one.name for one in form.fields if one.kind == "hidden")}
    pages = []
    for page in form.pages:
        fields = tuple(one for one in page.fields if one.name in kept)
        if any(one.kind != "hidden" for one in fields):
            pages.append(type(page)(fields, page.title))
    return Form(
        name=form.name,
        domain=form.domain,
        title=form.title,
        pages=tuple(pages),
        button=form.button,
        rules=tuple(rule for rule in form.rules if set(rule.names()) <= kept),
        language=form.language,
        asides=form.asides,
    )
