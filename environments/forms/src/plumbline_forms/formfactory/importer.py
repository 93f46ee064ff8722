"""From a checkout to the forms, records and examples of the forms task."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from plumbline.config.imports import missing_module_error
from plumbline.errors import DataError, RecipeError
from plumbline.records import Example
from plumbline.seeds import generator
from plumbline.storage import read_text
from plumbline_forms.build import HELD_OUT_FORMS, SEEN, Suite, deal, example_of
from plumbline_forms.formfactory.checkout import (
    ROWS,
    BenchmarkForm,
    Checkout,
    open_checkout,
    split_documents,
)
from plumbline_forms.formfactory.gold import GoldRecord, read_gold
from plumbline_forms.formfactory.hosting import Asked, HostedForms, import_app, local_page
from plumbline_forms.options import FormsOptions
from plumbline_forms.prompts import values_text
from plumbline_forms.site.page import FormView, render_page
from plumbline_forms.suite.declaration import Draw, Field, Form, FormPage, Value

TEST = "test"


class DriftWarning(UserWarning):
    """A checkout is not the one that the table of forms was written for; it is used all the
    same."""


@dataclass(frozen=True, slots=True)
class Imported:
    """One form of the benchmark with its records."""

    row: BenchmarkForm
    form: Form
    page: str
    """As it is served."""
    records: Sequence[GoldRecord]
    usable: Sequence[int]
    """Records that have a value for every required field: with the others nobody could send the
    form."""
    documents: Sequence[str]
    """One for each record; empty where they are not asked for."""


def import_formfactory(options: FormsOptions) -> Suite:
    """The benchmark as a source of the forms task.

    Raises:
        RecipeError: Flask or the HTML parser is not installed.
        DataError: the checkout is missing, incomplete, or is none of the benchmark.
    """
    try:
        import flask  # noqa: F401
        import selectolax  # noqa: F401
    except ImportError as error:
        raise missing_module_error("the FormFactory suite", error, RecipeError) from error
    rows = [row for row in ROWS if options.forms is None or row.name in options.forms]
    checkout = open_checkout(options.path or "", rows)
    ask = import_app(checkout)
    forms = [read_form(row, checkout, ask, options.surface) for row in rows]
    return Suite(
        {one.form.name: one.form for one in forms},
        (
            *(SEEN if options.splits == "80-10-10" else (TEST,)),
            *([HELD_OUT_FORMS] if options.held_out else []),
        ),
        f"formfactory {checkout.digest}",
        partial(_build, options=options, forms=forms, digest=checkout.digest),
        HostedForms(ask, {one.form.path: one.page.encode() for one in forms}),
    )


def read_form(row: BenchmarkForm, checkout: Checkout, ask: Asked, surface: str) -> Imported:
    """Read one form: its page, its gold and, where they are asked for, its documents.

    Raises:
        DataError: the page, the gold or the documents are not what they should be.
    """
    from plumbline_forms.formfactory.schema import FIX, read_schema

    bodies = []
    for path in filter(None, (row.url, row.config)):
        reply, _, _ = ask(path)
        if reply.status != 200:
            raise DataError(f"the app answers {reply.status} for {path} ({row.id})", FIX)
        bodies.append(reply.body)
    form = read_schema(row, *bodies)
    records = [read_gold(row, form.fields, record) for record in checkout.records(row)]
    # A draw is a value of the field in any of the records: what controls that know the form, but
    # not the record, can know.
    fields = [
        one if one.kind == "hidden" else replace(one, draw=_draw_of(one, records))
        for one in form.fields
    ]
    form = replace(form, pages=(FormPage(tuple(fields)),))
    required = [one.name for one in fields if one.required and one.kind != "hidden"]
    usable = [
        index
        for index, gold in enumerate(records)
        if all(gold.values[name] not in {None, False} for name in required)
    ]
    _warn_of_drift(row, form, records, len(records) - len(usable))
    documents: Sequence[str] = ()
    if surface == "document":
        documents = split_documents(
            read_text(checkout.root / row.documents), len(records), row.documents
        )
    page = (
        render_page(FormView(form), 1)
        if row.config
        else local_page(bodies[0].decode("utf-8", "replace"), row.url)
    )
    return Imported(row, form, page, records, usable, documents)


def _draw_of(one: Field, records: Sequence[GoldRecord]) -> Draw:
    column: list[Value] = [record.values[one.name] for record in records]
    return lambda drawing: column[int(drawing.rng.integers(len(column)))]


def _warn_of_drift(
    row: BenchmarkForm, form: Form, records: Sequence[GoldRecord], stuck: int
) -> None:
    """Say what differs from the checkout that the table knows; figures are then not comparable with
    others."""
    fields = sum(one.kind != "hidden" for one in form.fields)
    unknown = Counter(key for record in records for key in record.unknown)
    drifts = [
        f"{fields} fields, where {row.fields} are known" if fields != row.fields else "",
        f"{len(records)} records, where {row.records} are known"
        if len(records) != row.records
        else "",
        f"gold keys that no label reads: {', '.join(unknown)}" if unknown else "",
        f"records left out, because a required field has no value: {stuck}" if stuck else "",
    ]
    if drift := "; ".join(filter(None, drifts)):
        warnings.warn(f"FormFactory {row.id} has drifted: {drift}", DriftWarning, stacklevel=2)


def _build(
    split: str, options: FormsOptions, forms: Sequence[Imported], digest: str
) -> list[Example]:
    examples, held_out = [], options.held_out or []
    for one in forms:
        if (one.row.name in held_out) != (split == HELD_OUT_FORMS):
            continue
        chosen = one.usable
        if options.splits != "test-only" and split != HELD_OUT_FORMS:
            chosen = deal(one.usable, generator(options.seed, "formfactory", "split", one.row.id))[
                split
            ]
        examples += [_example(one, index, options, digest) for index in chosen]
    if not examples:
        raise DataError(
            f"the split {split} of the chosen forms is empty",
            "choose more forms in task.options.forms",
        )
    order = generator(options.seed, "formfactory", "order", split).permutation(len(examples))
    return [examples[index] for index in order]


def _example(one: Imported, index: int, options: FormsOptions, digest: str) -> Example:
    gold = one.records[index]
    given = values_text(gold.told)
    if options.surface == "document":  # which says nothing of the stubs, so they are named after it
        stubs = gold.told[len(gold.told) - len(gold.stubbed) :]
        given = one.documents[index] + (f"\n\n{values_text(stubs)}" if stubs else "")
    more = {
        "levels": gold.levels,
        "unfillable": gold.unfillable,
        "unplaced": gold.unplaced,
        "stubbed": gold.stubbed,
        "ported": bool(one.row.config),
        "checkout": digest,
    }
    return example_of(
        f"{one.row.id}-{index:03d}", FormView(one.form), gold.values, given, index, options, more
    )
