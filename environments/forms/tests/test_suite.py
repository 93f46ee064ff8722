"""The suite: what it holds, that records keep every constraint, splits, noise, and the same bytes
for the same seed."""

import hashlib
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from environments.forms.tests.small import form_of
from plumbline.errors import DataError, RecipeError
from plumbline.seeds import generator
from plumbline.storage import dumps
from plumbline.tasks import open_task
from plumbline_forms.suite import catalogue
from plumbline_forms.suite.catalogue import (
    DOMAINS,
    FORMS,
    HELD_OUT,
    RECORDS,
    draw_record,
    is_shown,
    narrow,
    read_form,
    select,
    shown,
    text,
)
from plumbline_forms.suite.declaration import Field, Kind, Rule
from plumbline_forms.suite.drawing import Drawing, ascii_of, drawn

NOISE = dict.fromkeys(
    ("labels", "dates", "options", "numbers", "stars", "prefilled", "newlines", "order", "asides"),
    0.6,
)


@cache
def records_of(name):
    return [draw_record(FORMS[name], 42, index) for index in range(RECORDS)]


def open_forms(**options):
    return open_task("forms", options, Path("unused"))


def test_there_are_25_forms_in_8_domains_with_every_kind():
    assert len(FORMS) == 25
    assert Counter(Counter(form.domain for form in FORMS.values()).values()) == Counter(
        [5, 4, 3, 2, 3, 3, 3, 2]
    )
    fields = [one for form in FORMS.values() for one in form.fields]
    kinds = Counter(one.kind for one in fields)
    assert set(kinds) == set(get_args(Kind))
    assert min(kinds.values()) >= 2
    assert sum(len(form.pages) > 1 for form in FORMS.values()) >= 3
    assert sum(form.language == "pt" for form in FORMS.values()) >= 5
    assert sum(any(one.shown_if for one in form.fields) for form in FORMS.values()) >= 10
    assert {rule.kind for form in FORMS.values() for rule in form.rules} >= {"adds", "multiplies"}
    assert {one.named_by for one in fields} >= {
        "for",
        "wrap",
        "aria",
        "heading",
        "placeholder",
        "name",
    }
    assert any(not any(one.required for one in form.fields) for form in FORMS.values())


@pytest.mark.parametrize("name", FORMS)
def test_records_differ_and_no_column_is_constant(name):
    records, form = records_of(name), FORMS[name]
    assert len({dumps({"r": list(map(str, record.values()))}) for record in records}) == RECORDS
    for one in form.fields:
        values = [
            str(record.get(one.name)) for record in records if record.get(one.name) is not None
        ]
        if one.kind == "hidden" or (one.kind == "checkbox" and one.required):
            continue
        assert len(set(values)) > 1, one.name
        if one.options:
            chosen = {
                v
                for r in records
                for v in (r[one.name] if isinstance(r[one.name], tuple) else [r[one.name]])
            }
            assert {option.value for option in one.options} <= chosen, one.name


def test_values_across_fields_belong_together():
    record = records_of("wire-instruction")[0]
    assert (
        abs(float(record["amount"]) + float(record["fee"]) - float(record["total_debit"])) < 0.005
    )
    for record in records_of("vpn-access"):
        assert record["valid_from"] < record["valid_until"]
        assert (record["serial_number"] is None) == (record["device"] != "own_laptop")
        last = record["employee"].split(" ", 1)[1]
        assert ascii_of(last) in record["work_email"]
    form = FORMS["library-card"]
    for record in records_of("library-card"):
        for one in form.fields:
            assert is_shown(one, record) or record[one.name] is None


def test_a_record_depends_on_nothing_but_seed_form_and_index():
    form = FORMS["site-safety"]
    assert draw_record(form, 42, 7) == records_of("site-safety")[7]
    assert draw_record(form, 43, 7) != draw_record(form, 42, 7)


def bytes_of(task):
    rows = [
        dumps({"id": e.id, "m": list(e.messages), "g": e.gold, "r": dict(e.reference)})
        for split in task.splits
        for e in task.examples(split)
    ]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def test_the_same_options_give_the_same_bytes():
    options = {"noise": NOISE, "surface": "document", "records": 6}
    assert bytes_of(open_forms(**options)) == bytes_of(open_forms(**options))
    assert bytes_of(open_forms(**options)) != bytes_of(open_forms(**options, seed=1))


def test_splits_are_stratified_disjoint_and_shuffled(forms):
    assert forms.splits == ("train", "val", "test", "held-out-forms")
    ids, prompts = {}, {}
    for split, each in (("train", 40), ("val", 5), ("test", 5), ("held-out-forms", 50)):
        examples = forms.examples(split)
        counts = Counter(example.stratum for example in examples)
        assert set(counts.values()) == {each}
        assert (
            (set(counts) == set(HELD_OUT))
            if split == "held-out-forms"
            else set(counts).isdisjoint(HELD_OUT)
        )
        ids[split] = {example.id for example in examples}
        prompts[split] = {example.fingerprint() for example in examples}
        assert len(prompts[split]) == len(examples) == len(ids[split])
        first = [example.stratum for example in examples[:25]]
        assert len(set(first)) > 3, "the first 25 are not all of one form"
    assert len(set().union(*prompts.values())) == 1250
    assert forms.examples("val") is forms.examples("val")


@pytest.mark.parametrize("surface", ["values", "document"])
def test_every_value_stands_in_the_prompt(surface):
    task = open_forms(surface=surface, records=10)
    for split in task.splits:
        for example in task.examples(split):
            prompt = example.messages[-1]["content"]
            form = task.forms[example.stratum]
            for name, value in example.reference["values"].items():
                one = form.by_name[name]
                for part in value if isinstance(value, list) else [value]:
                    if isinstance(part, str):
                        assert (one.text_of(part) if one.options else part) in prompt, (
                            example.id,
                            name,
                        )


@pytest.mark.parametrize(
    "options",
    [
        {"noise": NOISE},
        {"noise": NOISE, "surface": "document", "plan": "agent"},
        {"max_fields": 1, "records": 12},
        {
            "max_fields": 5,
            "instructions": "short",
            "forms": ["film-permit", "site-safety", "thesis-defence"],
        },
        {"instructions": "short", "noise": NOISE},
    ],
)
def test_the_oracle_is_right_whatever_the_dials_say(options):
    task = open_forms(**{"records": 10, **options})
    for split in task.splits:
        for example in task.examples(split):
            outcome, score = task.judge(example, example.gold)
            assert score.total == 1.0, (example.id, outcome.facts)


@pytest.mark.parametrize(("instructions", "named"), [("full", True), ("short", False)])
def test_plans_name_a_button_only_where_the_prompt_does(instructions, named):
    task = open_forms(records=5, instructions=instructions)
    for split in task.splits:
        for example in task.examples(split):
            button = f"'{task.forms[example.stratum].button}'"
            shown = (
                task.forms[example.stratum].button
                in example.messages[-1]["content"].split("\n\n", 1)[-1]
            )
            assert (button in example.gold) == named
            assert shown or not named, (example.id, button)


def test_noise_changes_the_prompt_and_not_what_is_right():
    clean, noisy = open_forms(records=6), open_forms(records=6, noise=NOISE)
    ids = {example.id: example for example in clean.examples("train")}
    differing = 0
    for example in noisy.examples("train"):
        same = ids[example.id]
        assert example.reference["values"] == same.reference["values"]
        differing += example.messages != same.messages
        assert clean.judge(same, example.gold)[1].parts["exact"] in {0.0, 1.0}
    assert differing > 0.9 * len(ids)


def test_a_narrow_form_is_a_form_of_its_own():
    form = narrow(FORMS["exchange-nomination"], 6)
    assert len(form.fields) == 6
    assert len(form.pages) == 2
    assert narrow(FORMS["meeting-room"], 3).fields[0].kind == "hidden"
    with pytest.raises(DataError, match="no 1000 different records"):
        open_forms(forms=["film-permit", "vpn-access"], max_fields=1, records=1000).examples(
            "train"
        )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"form": ["x"]}, "knows suite, path"),
        ({"forms": ["film-permits"]}, "did you mean film-permit"),
        ({"noise": {"label": 1}}, "noise.label"),
    ],
)
def test_options_are_checked(options, says):
    with pytest.raises(RecipeError, match=says):
        open_forms(**options)


def test_held_out_forms_are_checked():
    assert open_forms(forms=["vpn-access"]).splits == ("train", "val", "test")
    with pytest.raises(DataError, match="no split 'held-out-forms'"):
        open_forms(forms=["vpn-access"]).examples("held-out-forms")
    with pytest.raises(DataError, match=r"task\.options\.held_out: \[\]"):
        open_forms(forms=["thesis-defence"])
    with pytest.raises(DataError, match="not among"):
        open_forms(forms=["vpn-access"], held_out=["film-permit"])
    task = open_forms(forms=["vpn-access", "film-permit"], held_out=["film-permit"], records=10)
    assert {example.stratum for example in task.examples("held-out-forms")} == {"film-permit"}


@pytest.mark.parametrize("noise", [{}, NOISE])
def test_forms_that_are_made_up_can_be_filled_in_and_tell_nothing_of_those_held_out(noise):
    task = open_forms(mixed=150, records=10, noise=noise)
    examples = task.examples("train")
    made = [one for one in examples if one.stratum == "mixed"]
    assert len(made) == 150 == len({one.id for one in made})
    assert {one.stratum for split in task.splits[1:] for one in task.examples(split)} == set(
        FORMS
    ), "in train alone"
    others = open_forms(records=10, noise=noise)
    assert {one.stratum for one in others.examples("train")} == set(FORMS) - set(HELD_OUT)
    assert task.rubric == others.rubric, "what is judged is the same"
    assert [task.judge(one, one.gold)[1].total for one in made] == pytest.approx([1.0] * 150)
    fields = [field for one in made for field in task.view_of(one).form.fields]
    seen, held = (
        {
            field.label
            for name, form in FORMS.items()
            if (name in HELD_OUT) == held
            for field in form.fields
        }
        for held in (False, True)
    )
    labels = [field.label for field in fields]
    coined = [label for label in labels if label not in seen]
    assert 0.4 < len(coined) / len(labels) < 0.6
    assert len(set(coined)) > 0.8 * len(coined), "nearly all of them come once"
    assert not set(coined) & held
    kinds = {label: {field.kind for field in fields if field.label == label} for label in seen}
    assert sum(len(found) > 1 for found in kinds.values()) > 50, (
        "a label does not say what its control is"
    )
    several = [
        sum(field.kind == kind for field in fields) for kind in ("multiselect", "checkboxes")
    ]
    assert min(several) > 50, "lists of which several may be chosen are as common as boxes"
    assert max(several) < 1.4 * min(several)
    files = [
        value
        for one in made
        for value in one.reference["values"].values()
        if isinstance(value, list | tuple)
    ]
    assert sum(len(value) > 1 and "." in value[0] for value in files) > 12, (
        "several files are no exception"
    )
    fewer = {
        one.id: one.gold for one in open_forms(mixed=40, records=10, noise=noise).examples("train")
    }
    assert fewer.items() <= {one.id: one.gold for one in examples}.items(), (
        "the same seed makes the same forms"
    )


def told(example):
    return re.findall(
        r"^- (.+?): (.+)$", example.messages[-1]["content"].split("\n\n")[1], re.MULTILINE
    )


def test_gold_plans_enter_all_that_is_told_whatever_the_page_comes_with():
    for example in open_forms(records=10, noise={"prefilled": 1.0}).examples("val"):
        for label, value in told(example):
            assert value in {"no", "não"} or f"'{label}'" in example.gold


def test_no_two_values_of_a_form_that_is_made_up_are_told_by_one_name():
    made = [
        one
        for one in open_forms(mixed=300, noise={"labels": 1.0}).examples("train")
        if one.stratum == "mixed"
    ]
    for example in made:
        labels = [label for label, _ in told(example)]
        assert len(set(labels)) == len(labels), example.id


def test_forms_that_are_made_up_are_as_narrow_as_the_others():
    task = open_forms(
        mixed=50, records=10, max_fields=3, forms=["film-permit", "vpn-access"], held_out=[]
    )
    made = [task.view_of(one).form for one in task.examples("train") if one.stratum == "mixed"]
    assert len(made) == 50
    assert {len(form.fields) for form in made} == {3}


DRAW = drawn("whole", 1, 9)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (lambda: form_of(text("A", DRAW), text("A", DRAW, name="b")), "unique"),
        (
            lambda: form_of(text("A", DRAW, shown_if=shown("b", "1")), text("B", DRAW)),
            "stand before",
        ),
        (lambda: form_of(select("A", "x=X|x=Y")), "twice"),
        (lambda: form_of(Field(name="a", label="A", kind="select", draw=DRAW)), "options"),
        (lambda: form_of(text("A", DRAW, required=True, filled=0.5)), "every record"),
        (lambda: form_of(text("A", DRAW), rules=(Rule("adds", ("a", "b")),)), "no one page"),
    ],
)
def test_declarations_that_contradict_themselves_are_refused(declared, said):
    with pytest.raises(ValueError, match=said):
        declared()


def written(*fields, **more):
    return {"title": "F", "button": "Go", "pages": [{"fields": list(fields)}], **more}


def test_a_written_form_is_the_one_that_the_functions_make():
    form = read_form(
        "legal",
        "f",
        written(
            {"hidden": "channel", "default": "web"},
            {
                "select": "Way",
                "options": "Post|p=Pick up",
                "blank": "none",
                "alias": "How",
                "required": "true",
            },
            {
                "number": "Hours",
                "draw": "whole 2 9",
                "step": "0.10",
                "shown_if": "way=post|p",
                "filled": "0.5",
            },
            {
                "file": "CV",
                "draw": {"papers": ["cv", ".pdf"], "count": "2"},
                "accept": ".pdf .txt",
                "minlength": "3",
            },
            rules=["in_order way hours"],
            language="pt",
            asides=["Chove."],
        ),
    )
    hidden, way, hours, cv = form.fields
    assert (form.path, form.language, form.asides) == ("/legal/f", "pt", ("Chove.",))
    assert form.rules == (Rule("in_order", ("way", "hours")),)
    assert (hidden.kind, hidden.default, hidden.draw) == ("hidden", "web", None)
    assert (way.blank, way.required, way.alias) == (None, True, "How")
    assert [(one.value, one.text) for one in way.options] == [("post", "Post"), ("p", "Pick up")]
    assert (hours.step, hours.filled, hours.required) == ("0.10", 0.5, False)
    assert hours.shown_if == shown("way", "post", "p")
    assert (cv.accept, cv.minlength) == ((".pdf", ".txt"), 3)
    drawing = Drawing(generator(1, "x"), "pt")
    assert 2 <= int(hours.draw(drawing)) <= 9
    assert all(name.startswith("cv_") and name.endswith(".pdf") for name in cv.draw(drawing))


@pytest.mark.parametrize(
    "field",
    [
        {"texts": "A", "draw": "city"},
        {"text": "A", "draw": "town"},
        {"text": "A", "draw": "city", "requird": "true"},
        {"text": "A", "draw": "city", "required": "yes"},
        {"text": "A", "draw": "city 1 2"},
        {"text": "A", "draw": "city", "filled": "often"},
    ],
)
def test_a_written_field_that_cannot_be_read_is_named(field):
    with pytest.raises(ValueError, match=r"form f: .* 'A' cannot"):
        read_form("legal", "f", written(field))


def test_the_files_of_the_domains_are_all_read():
    folder = Path(catalogue.__file__).with_name("domains")
    assert {path.stem for path in folder.glob("*.yaml")} == set(DOMAINS)
    with pytest.raises(TypeError, match="tittle"):
        read_form("legal", "f", written({"text": "A", "draw": "city"}, tittle="F"))


def test_references_are_plain_json(forms):
    for example in forms.examples("val"):
        assert json.loads(json.dumps(dict(example.reference))) == dict(example.reference)
