"""From a checkout to the forms, records and examples of the forms task."""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from plumbline.config.imports import missing
from plumbline.errors import DataError, RecipeError
from plumbline.records import Example
from plumbline.seeds import generator
from plumbline_forms.build import HELD_OUT_FORMS, SEEN, SHARES, Suite, gold_plan, write_plan
from plumbline_forms.formfactory.app import FlaskApp, import_app
from plumbline_forms.formfactory.checkout import Checkout, documents_file, open_checkout
from plumbline_forms.formfactory.documents import split_documents
from plumbline_forms.formfactory.gold import Gold, read_gold
from plumbline_forms.formfactory.hosting import Hosted
from plumbline_forms.formfactory.pages import local_page
from plumbline_forms.formfactory.table import ROWS, Row
from plumbline_forms.options import FormsOptions
from plumbline_forms.prompts import Told, messages, values_text
from plumbline_forms.site.page import View, render_page
from plumbline_forms.suite.declaration import Draw, Field, Form, Page, Value

if TYPE_CHECKING:
    from plumbline_forms.formfactory.schema import Schema

TEST = "test"


class DriftWarning(UserWarning):
    """A checkout is not the one that the table of forms was written for; it is used all the same."""


@dataclass(frozen=True, slots=True)
class Imported:
    """One form of the benchmark with its records."""

    row: Row
    form: Form
    page: bytes
    """As it is served."""
    ported: bool
    """Whether a page with the same controls is served in place of one that a script builds."""
    records: tuple[Gold, ...]
    documents: tuple[str, ...]
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
        raise missing("the FormFactory suite", error, RecipeError, extra="formfactory") from error
    rows = [row for row in ROWS if options.forms is None or row.name in options.forms]
    checkout = open_checkout(options.path or "", rows)
    app = import_app(checkout)
    forms = {row.name: read_form(row, checkout, app, options.surface) for row in rows}
    return Suite(
        {name: one.form for name, one in forms.items()},
        (*(SEEN if options.splits == "80-10-10" else (TEST,)), *([HELD_OUT_FORMS] if options.held_out else [])),
        f"formfactory {checkout.digest}",
        partial(_build, options=options, forms=forms, digest=checkout.digest),
        Hosted(app, {one.form.path: one.page for one in forms.values()}),
    )


def read_form(row: Row, checkout: Checkout, app: FlaskApp, surface: str) -> Imported:
    """Read one form: its page, its gold and, where they are asked for, its documents.

    Raises:
        DataError: the page, the gold or the documents are not what they should be.
    """
    from plumbline_forms.formfactory.schema import read_schema, read_scripted

    html = _get(app, row, row.url)
    schema = read_scripted(row, html, _get(app, row, row.config)) if row.config else read_schema(row, html)
    found = checkout.records(row)
    records = tuple(read_gold(row, schema.fields, record) for record in found)
    _warn_of_drift(row, schema, records)
    form = _form(row, schema, records)
    if schema.ported:
        page = render_page(View(form), 1)
    else:
        page = local_page(html.decode("utf-8", "replace"), row.url)
    documents: tuple[str, ...] = ()
    if surface == "document":
        documents = split_documents(checkout.documents(row), len(found), documents_file(row))
    return Imported(row, form, page.encode(), schema.ported, records, documents)


def _get(app: FlaskApp, row: Row, path: str) -> bytes:
    reply = app.get(path)
    if reply.status != 200:
        raise DataError(
            f"the app answers {reply.status} for {path} ({row.id})", "take a checkout of FormFactory itself"
        )
    return reply.body


def _warn_of_drift(row: Row, schema: "Schema", records: Sequence[Gold]) -> None:
    """Say what differs from the checkout that the table knows; figures are then not comparable with others."""
    fields = sum(one.kind != "hidden" for one in schema.fields)
    unknown = Counter(key for record in records for key in record.unknown)
    stuck = sum(bool(record.lacking(schema.fields)) for record in records)
    drifts = [
        f"{fields} fields, where {row.fields} are known" if fields != row.fields else "",
        f"{len(records)} records, where {row.records} are known" if len(records) != row.records else "",
        f"gold keys that no label reads: {', '.join(unknown)}" if unknown else "",
        f"records left out, because a required field has no value: {stuck}" if stuck else "",
    ]
    if drift := "; ".join(filter(None, drifts)):
        warnings.warn(f"FormFactory {row.id} has drifted: {drift}", DriftWarning, stacklevel=2)


def _form(row: Row, schema: "Schema", records: Sequence[Gold]) -> Form:
    fields = tuple(
        one if one.kind == "hidden" else replace(one, draw=_draw_of(one, records), filled=1.0) for one in schema.fields
    )
    try:
        return Form(name=row.name, domain=row.domain, title=schema.title, pages=(Page(fields),), button=schema.button)
    except ValueError as error:
        raise DataError(
            f"the page of {row.id} cannot be told apart: {error}", "take a checkout of FormFactory"
        ) from error


def _draw_of(one: Field, records: Sequence[Gold]) -> Draw:
    """A value of the field in any of the records: what controls that know the form, but not the record, can know."""
    column: list[Value] = [record.values[one.name] for record in records]
    return lambda drawing: column[int(drawing.rng.integers(len(column)))]


def _build(split: str, options: FormsOptions, forms: Mapping[str, Imported], digest: str) -> list[Example]:
    examples, held_out = [], options.held_out or []
    for one in forms.values():
        if (one.row.name in held_out) != (split == HELD_OUT_FORMS):
            continue
        usable = [index for index, record in enumerate(one.records) if not record.lacking(one.form.fields)]
        whole = options.splits == "test-only" or split == HELD_OUT_FORMS
        chosen = usable if whole else deal(one.row, usable, options.seed)[split]
        examples += [_example(one, index, options, digest) for index in chosen]
    if not examples:
        raise DataError(f"the split {split} of the chosen forms is empty", "choose more forms in task.options.forms")
    order = generator(options.seed, "formfactory", "order", split).permutation(len(examples))
    return [examples[index] for index in order]


def deal(row: Row, indices: Sequence[int], seed: int) -> dict[str, list[int]]:
    """Deal a form's records to the splits: of 50 records 40, 5 and 5; of 40 records 32, 4 and 4."""
    rest = [indices[int(place)] for place in generator(seed, "formfactory", "split", row.id).permutation(len(indices))]
    dealt: dict[str, list[int]] = {}
    for split, share in SHARES.items():
        size = round(share * len(indices))
        dealt[split], rest = rest[:size], rest[size:]
    return {"train": rest, **dealt}


def _example(one: Imported, index: int, options: FormsOptions, digest: str) -> Example:
    record, form = one.records[index], one.form
    view = View(form)
    return Example(
        id=f"{one.row.id}-{index:03d}",
        messages=messages(
            form,
            _given(one, index, options.surface),
            surface=options.surface,
            plan=options.plan,
            full=options.instructions == "full",
        ),
        gold=write_plan(gold_plan(view, record.values, options), form, options.plan),
        reference={
            "form": form.name,
            "index": index,
            "values": {
                name: list(value) if isinstance(value, tuple) else value for name, value in record.values.items()
            },
            "prefilled": {},
            "stars": False,
            "levels": dict(record.levels),
            "unfillable": {name: asdict(value) for name, value in record.unfillable.items()},
            "unplaced": dict(record.unplaced),
            "stubbed": list(record.stubbed),
            "ported": one.ported,
            "checkout": digest,
        },
        stratum=form.name,
    )


def _given(one: Imported, index: int, surface: str) -> str:
    """What the instructions hold; a document says nothing of the stubs, so they are named after it."""
    record = one.records[index]
    if surface == "values":
        return values_text(record.told)
    stubs = [Told(one.form.by_name[name].label, str(file)) for name in record.stubbed for file in _names(record, name)]
    return one.documents[index] + (f"\n\n{values_text(stubs)}" if stubs else "")


def _names(record: Gold, name: str) -> tuple[str, ...]:
    value = record.values[name]
    return value if isinstance(value, tuple) else ()
