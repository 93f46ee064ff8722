"""From options to examples: records, splits, noise, prompts and gold plans. The same options give
the same bytes.

Nothing is written: the records are drawn in a tenth of a second, so there is no folder that could
be stale.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from plumbline.errors import DataError
from plumbline.records import Example
from plumbline.seeds import generator
from plumbline_browser.plans.actions import TYPED, Action
from plumbline_browser.plans.writer import write_steps
from plumbline_forms.options import FormsOptions
from plumbline_forms.plans.agent import write_agent
from plumbline_forms.plans.oracle import elements_of, plan_for
from plumbline_forms.prompts import document_text, messages, tell, values_text
from plumbline_forms.site.page import FormView
from plumbline_forms.site.site import Application
from plumbline_forms.suite.catalogue import FORMS, HELD_OUT, VERSION, draw_record, is_shown, narrow
from plumbline_forms.suite.declaration import Form, Value
from plumbline_forms.suite.mixed import mixed_forms

SEEN = ("train", "val", "test")
HELD_OUT_FORMS = "held-out-forms"
MIXED = "mixed"
"""The stratum of forms that are made up."""
SHARES = {"val": 0.1, "test": 0.1}
"""Of each form's records; the rest is train."""
_REDRAWS = 1000
"""Added to a record's index each time that it came out like an earlier one."""


def forms_of(options: FormsOptions) -> dict[str, Form]:
    """The forms that the options choose, as narrow as they say."""
    names = FORMS if options.forms is None else options.forms
    chosen = {name: FORMS[name] for name in names}
    if options.max_fields is None:
        return chosen
    return {name: narrow(form, options.max_fields) for name, form in chosen.items()}


def held_out_of(options: FormsOptions, forms: Mapping[str, Form]) -> tuple[str, ...]:
    """Which of the chosen forms are held out whole.

    Raises:
        DataError: a form is to be held out that is not among the chosen ones, or none is left to
            train on.
    """
    if options.held_out is not None and (
        missing := [name for name in options.held_out if name not in forms]
    ):
        raise DataError(
            f"{', '.join(missing)} cannot be held out: not among task.options.forms",
            "name it there, too",
        )
    names = HELD_OUT if options.held_out is None else options.held_out
    held = tuple(name for name in forms if name in names)
    if len(held) == len(forms):
        raise DataError(
            "every form is held out, so there is nothing to train on",
            "set task.options.held_out: []",
        )
    return held


def build_split(
    split: str, options: FormsOptions, forms: Mapping[str, Form], mixed: Mapping[str, Form]
) -> list[Example]:
    """The examples of a split, shuffled over the forms; of a form that is made up one, in train.

    Raises:
        DataError: a form is so narrow that it has too few different records, or the split is empty.
    """
    held = held_out_of(options, forms)
    examples = []
    for name, form in forms.items():
        if (name in held) != (split == HELD_OUT_FORMS):
            continue
        records = distinct_records(form, options)
        members: Sequence[int] = range(len(records))
        if name not in held:
            members = deal(members, generator(options.seed, "forms", "split", name), least=1)[split]
        examples += [_example(form, records[index], index, options) for index in members]
    if split == "train":
        own = options.model_copy(update={"noise": options.mixed_noise or options.noise})
        made = (
            _example(form, draw_record(form, options.seed, 0), 0, own) for form in mixed.values()
        )
        examples += [replace(one, stratum=MIXED) for one in made]
    order = generator(options.seed, "forms", "order", split).permutation(len(examples))
    return [examples[index] for index in order]


def deal(indices: Sequence[int], rng: np.random.Generator, least: int = 0) -> dict[str, list[int]]:
    """Deal a form's records to the splits, at least so many to each: of 50 records 40, 5 and 5."""
    rest = [indices[int(place)] for place in rng.permutation(len(indices))]
    members: dict[str, list[int]] = {}
    for split, share in SHARES.items():
        size = max(least, round(share * len(indices)))
        members[split], rest = rest[:size], rest[size:]
    return {"train": rest, **members}


def distinct_records(form: Form, options: FormsOptions) -> list[dict[str, Value]]:
    """A form's records, no two the same.

    Raises:
        DataError: it has not so many.
    """
    seen: set[tuple[Value, ...]] = set()
    records = []
    for index in range(options.records):
        for redraw in range(50):
            values = draw_record(form, options.seed, index + redraw * _REDRAWS)
            key = tuple(values.values())
            if key not in seen:
                seen.add(key)
                records.append(values)
                break
        else:
            raise DataError(
                f"the form {form.name} with {len(form.fields)} fields has no {options.records} "
                "different records",
                "raise task.options.max_fields, or lower task.options.records",
            )
    return records


def _example(form: Form, values: Mapping[str, Value], index: int, options: FormsOptions) -> Example:
    rng = generator(options.seed, "forms", "noise", form.name, index)
    noise = options.noise
    stars = bool(rng.random() < noise.stars)
    prefilled = _prefilled(form, values, options, index, rng)
    view = FormView(form, prefilled, stars)
    told = tell(form, values, noise, rng, stars=stars)
    if options.surface == "document":
        given = document_text(form, told, rng)
    else:
        aside = (
            form.asides[int(rng.integers(len(form.asides)))] if rng.random() < noise.asides else ""
        )
        given = values_text(told, aside)
    return example_of(f"{form.name}-{index:03d}", view, values, given, index, options)


def example_of(
    name: str,
    view: FormView,
    values: Mapping[str, Value],
    given: str,
    index: int,
    options: FormsOptions,
    more: Mapping[str, Any] | None = None,
) -> Example:
    """The example that asks for a record.

    Args:
        name: of the example.
        view: the form, as it is met.
        values: what the server should receive.
        given: how it is told.
        index: of the record.
        options: of the task.
        more: of its reference.
    """
    form, full = view.form, options.instructions == "full"
    return Example(
        id=name,
        messages=messages(form, given, surface=options.surface, plan=options.plan, full=full),
        gold=write_plan(gold_plan(view, values, options), form, options.plan),
        reference={
            "form": form.name,
            "index": index,
            "values": {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in values.items()
            },
            "prefilled": dict(view.prefilled),
            "stars": view.stars,
            **(more or {}),
        },
        stratum=form.name,
        cluster=form.name,
    )


def gold_plan(view: FormView, values: Mapping[str, Value], options: FormsOptions) -> list[Action]:
    """The oracle's plan, without the names of buttons where short instructions do not give them.

    Plans of browser agents click by number, and need to know the button for that.
    """
    return plan_for(view, values, buttons=options.instructions == "full" or options.plan == "agent")


def write_gold(view: FormView, values: Mapping[str, Value], plan: str) -> str:
    """The oracle's plan for the whole page as text, in one of the two languages."""
    return write_plan(plan_for(view, values), view.form, plan)


def write_plan(actions: Sequence[Action], form: Form, plan: str) -> str:
    """Actions as text, in one of the two languages."""
    if plan == "agent":
        return write_agent(actions, elements_of(form), form.language)
    return write_steps(actions, form.language)


def _prefilled(
    form: Form,
    values: Mapping[str, Value],
    options: FormsOptions,
    index: int,
    rng: np.random.Generator,
) -> dict[str, str]:
    """What the page comes with: half of it right, half of it from somebody else's form."""
    if options.noise.prefilled == 0:
        return {}
    others = draw_record(form, options.seed, index + 7 * _REDRAWS)
    found = {}
    for one in form.fields:
        typed = one.kind in TYPED - {"password"} or one.kind == "select"
        if (
            not typed
            or one.shown_if is not None
            or values.get(one.name) is None
            or not is_shown(one, values)
        ):
            continue
        if rng.random() < options.noise.prefilled:
            value = (values if rng.random() < 0.5 else others).get(one.name)
            if isinstance(value, str):
                found[one.name] = value
    if found and all(
        found.get(name) == value for name, value in values.items() if value not in (None, False, ())
    ):
        found.popitem()  # else there is nothing to do, and nothing to earn
    return found


def values_of(reference: Mapping[str, Any]) -> dict[str, Value]:
    """A reference's values, typed again."""
    return {
        name: tuple(map(str, value)) if isinstance(value, list) else value
        for name, value in reference["values"].items()
    }


@dataclass(frozen=True, slots=True)
class Suite:
    """Forms, their splits and examples, and what identifies them: ours (`own_suite`) or another's
    (`formfactory`)."""

    forms: Mapping[str, Form]
    splits: tuple[str, ...]
    identity: str
    """What decides the forms and their records, as a part of the rubric's identity."""
    build: Callable[[str], list[Example]]
    """The examples of one of the splits."""
    application: Application | None = None
    """What serves the forms; None for the site's own renderer."""


def own_suite(options: FormsOptions) -> Suite:
    """Plumbline's own suite, as the options choose it.

    Raises:
        DataError: see `held_out_of`.
    """
    forms = forms_of(options)
    held = held_out_of(options, forms)
    narrow = "" if options.max_fields is None else f":{options.max_fields} fields"
    seen = {name: form for name, form in forms.items() if name not in held}
    mixed = mixed_forms(seen, options.mixed, options.seed, options.max_fields)
    return Suite(
        {**forms, **mixed},
        (*SEEN, HELD_OUT_FORMS) if held else SEEN,
        f"suite {VERSION}{narrow}",
        partial(build_split, options=options, forms=forms, mixed=mixed),
    )
