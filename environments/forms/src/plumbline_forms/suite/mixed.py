"""Forms that are made up for training, so that a model learns to read a form and not to know twenty of them.

A form is put together from fields of others. Some fields are of another kind, and labels are dealt anew or coined
(`coined.py`): a label then says nothing about what to do with its control, and only the page does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import InvalidOperation

import numpy as np

from plumbline.seeds import generator
from plumbline_forms.suite.coined import Coiner, of_strangers
from plumbline_forms.suite.declaration import Condition, Field, Form, Kind, Page
from plumbline_forms.suite.drawing import Drawing
from plumbline_forms.suite.fields import slug

FEWEST, MOST = 4, 16
"""Fields of a form, before those that would say the same twice are left out."""
COINED, RELABELLED, CHANGED, EVEN, TWO_PAGES = 0.6, 0.5, 0.25, 0.5, 0.2
"""Of forms: labels are coined; of others: dealt anew; of fields: of another kind; of choices: so, too, which makes
lists of which several may be chosen as common as boxes; of forms: a second page."""
STRANGERS, SPARE, UNTOLD, CONDITIONAL = 0.7, 0.5, 0.3, 0.3
"""Of fields: people with coined names, of its own; of fields that are not required: one that records leave out, and how
often; of pages with a choice: what stands below depends on it."""
_KINDS: Mapping[Kind, Kind] = {
    "text": "textarea",
    "email": "text",
    "tel": "text",
    "url": "text",
    "number": "text",
    "date": "text",
    "time": "text",
    "select": "radio",
    "radio": "select",
    "multiselect": "checkboxes",
    "checkboxes": "multiselect",
}
"""What a field may become, such that each of its values can still be entered."""


def mixed_forms(forms: Mapping[str, Form], count: int, seed: int, most: int | None = None) -> dict[str, Form]:
    """So many forms of the fields of others, each by its name.

    Args:
        forms: whose fields, titles and buttons are taken; a form keeps to one language.
        count: how many are made.
        seed: the same seed makes the same forms.
        most: fields of each, where it is below `MOST`.
    """
    usable = {name: [one for one in form.fields if _stands_alone(one, form)] for name, form in forms.items()}
    most = MOST if most is None else min(most, MOST)
    languages = sorted({form.language for form in forms.values()})
    made = {}
    for index in range(count):
        rng = generator(seed, "forms", "mixed", index)
        # Every language as often: of the rarer one not even the verbs were safe (Aplica for Anexe, after 900 forms).
        language = languages[int(rng.integers(len(languages)))]
        alike = [form for form in forms.values() if form.language == language]
        like = alike[int(rng.integers(len(alike)))]
        pool = [one for name, form in forms.items() if form.language == language for one in usable[name]]
        coiner = Coiner(rng, language, set()) if rng.random() < COINED else None
        fields = _fields(pool, int(rng.integers(min(FEWEST, most), most + 1)), rng, coiner)
        cut = int(rng.integers(1, len(fields))) if len(fields) > 1 and rng.random() < TWO_PAGES else len(fields)
        name = f"mixed-{index:04d}"
        made[name] = Form(
            name=name,
            domain=like.domain,
            title=coiner.coin("titles") if coiner else like.title,
            pages=tuple(Page(_depending(part, rng)) for part in (fields[:cut], fields[cut:]) if part),
            button=coiner.coin("buttons") if coiner else like.button,
            language=language,
            asides=like.asides,
        )
    return made


def _fields(pool: Sequence[Field], count: int, rng: np.random.Generator, coiner: Coiner | None) -> tuple[Field, ...]:
    chosen: list[Field] = []
    names: set[str] = set()
    labels: set[str] = set()
    texts: set[str] = set()
    for one in _order(pool, rng):
        spoken = {one.label.casefold(), one.alias.casefold()} - {""}
        said = {option.text.casefold() for option in one.options}
        # An option that reads as a label would be another control of that name.
        if len(chosen) == count or one.name in names or spoken & (labels | texts) or said & labels:
            continue
        chosen.append(one)
        names.add(one.name)
        labels |= spoken
        texts |= said
    fields = [_changed(one) if one.kind in _KINDS and rng.random() < _share(one) else one for one in chosen]
    fields = [_told(one, rng) for one in fields]
    if coiner is not None:
        coiner.taken |= {slug(text) for text in labels | texts} | names
        heads: list[str] = []
        return tuple(coiner.field(one, heads) for one in fields)
    if rng.random() >= RELABELLED:
        return tuple(fields)
    # What a box says is a sentence, which names nothing that could be typed or chosen.
    places = [place for place, one in enumerate(fields) if one.kind != "checkbox"]
    called = [fields[place] for place in places]
    for place, other in zip(places, rng.permutation(len(places)), strict=True):
        given = called[int(other)]
        fields[place] = replace(fields[place], label=given.label, name=given.name, alias=given.alias)
    return tuple(fields)


def _order(pool: Sequence[Field], rng: np.random.Generator) -> list[Field]:
    """The pool in any order, but every other field is of a kind that is drawn first, so that rare kinds come, too."""
    left = [pool[int(place)] for place in rng.permutation(len(pool))]
    order: list[Field] = []
    while left:
        if len(order) % 2:
            order.append(left.pop())
            continue
        kinds = sorted({one.kind for one in left})
        kind = kinds[int(rng.integers(len(kinds)))]
        order.append(left.pop(next(place for place, one in enumerate(left) if one.kind == kind)))
    return order


def _share(one: Field) -> float:
    return EVEN if one.options else CHANGED


def _changed(one: Field) -> Field:
    kind = _KINDS[one.kind]
    blank = "-" if kind == "select" else None
    # A text is held to no range, and a pattern is not asked of several lines.
    return replace(
        one, kind=kind, blank=blank, named_by="for", minimum=None, maximum=None, step=None, pattern=None, placeholder=""
    )


def _told(one: Field, rng: np.random.Generator) -> Field:
    """A field about people of its own, perhaps, and perhaps one that records leave out."""
    assert one.draw is not None
    draw = of_strangers(one.draw) if rng.random() < STRANGERS else one.draw
    spare = not one.required and rng.random() < SPARE
    return replace(one, draw=draw, filled=1 - UNTOLD if spare else one.filled)


def _depending(fields: tuple[Field, ...], rng: np.random.Generator) -> tuple[Field, ...]:
    """The fields of a page, of which one is perhaps shown for some of the choices before it only."""
    choices = [place for place, one in enumerate(fields[:-1]) if one.kind in {"select", "radio", "checkbox"}]
    if not choices or rng.random() >= CONDITIONAL:
        return fields
    by = choices[int(rng.integers(len(choices)))]
    place = int(rng.integers(by + 1, len(fields)))
    values = [option.value for option in fields[by].options]
    some = tuple(values[int(at)] for at in rng.permutation(len(values))[: max(1, len(values) // 2)]) or ("on",)
    shown = replace(fields[place], shown_if=Condition(fields[by].name, some))
    return (*fields[:place], shown, *fields[place + 1 :])


def _stands_alone(one: Field, form: Form) -> bool:
    """Whether a field can be entered without the others of its form: no value of theirs decides its own."""
    if one.draw is None or one.shown_if is not None or one.named_by == "name":
        return False
    if any(one.name == rule.names()[-1] for rule in form.rules):
        return False
    try:
        one.draw(Drawing(generator(0, "forms", "alone", one.name), form.language, now=one))
    except (ValueError, InvalidOperation):  # a date, time or number after one that is not there
        return False
    return True
