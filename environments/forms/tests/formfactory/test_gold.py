"""Placing and resolving gold values: every level, every mismatch, and what is noted of what has no
place."""

import pytest

from plumbline.errors import DataError
from plumbline_forms.formfactory.checkout import row_of, split_documents
from plumbline_forms.formfactory.gold import Resolved, bracket, read_gold, resolve_value
from plumbline_forms.suite.declaration import Field, Option

SLOTS = ("Early (7:00 AM - 11:00 AM)", "Late (2:00 PM - 6:00 PM)")
SUMS = ("$0 - $10,000", "$10,001 - $25,000", "$25,001+")


def one(kind="text", options=(), **rest):
    made = tuple(Option(value, text) for value, text in (part.split("=") for part in options))
    return Field(name="x", label="X", kind=kind, options=made, **rest)


LENGTHS = one("select", ("6=6 Weeks", "life=Longtime", "none=None", "dr=Doctorate"))


@pytest.mark.parametrize(
    ("field", "raw", "value", "level"),
    [
        (LENGTHS, "6 Weeks", "6", "exact"),
        (LENGTHS, "6 weeks", "6", "folded"),
        (LENGTHS, "Long Time", "life", "folded"),
        (LENGTHS, "None", "none", "exact"),
        (LENGTHS, "PhD", "dr", "alias"),
        (LENGTHS, "dr", "dr", "alias"),
        (LENGTHS, "7 weeks", None, "unfillable"),
        (LENGTHS, "", None, "exact"),
        (one("select", ("a=$0 - $10,000", "b=$10,001+")), 81234, "b", "bucket"),
        (one("checkbox"), True, True, "exact"),
        (one("checkbox"), "No", False, "folded"),
        (one("checkbox"), "true", True, "folded"),
        (one("checkbox"), "perhaps", None, "unfillable"),
        (one("checkboxes", ("a=Ant", "b=Bee", "c=Cat")), ["Cat", "Ant"], ("a", "c"), "exact"),
        (one("checkboxes", ("a=Ant", "b=Bee")), ["bee"], ("b",), "folded"),
        (one("checkboxes", ("a=Ant", "b=Bee")), ["Ant", "bee"], ("a", "b"), "folded"),
        (one("checkboxes", ("a=Ant", "b=Bee")), ["Ant", "Yak"], None, "unfillable"),
        (one("file"), "None", None, "exact"),
        (one("file"), "cv.pdf", ("cv.pdf",), "exact"),
        (one("textarea"), "None", "None", "exact"),
        (one("textarea"), ["a", "b"], "a, b", "folded"),
        (one("text"), 40127, "40127", "exact"),
        (one("text"), "1 Fern Way\nMossby", "1 Fern Way Mossby", "folded"),
        (one("textarea"), "1 Fern Way\nMossby", "1 Fern Way\nMossby", "exact"),
        (one("date"), "2031/05/06", "2031-05-06", "folded"),
        (one("date"), "2031-05-06", "2031-05-06", "exact"),
        (one("date"), "soon", None, "unfillable"),
        (one("number"), 3.5, "3.5", "unfillable"),
        (one("number", step="0.01"), 3.5, "3.5", "exact"),
        (one("number"), "$1,200", "1200", "folded"),
        (one("number", maximum="100"), 120, "120", "unfillable"),
        (one("email"), "not one", None, "unfillable"),
        (one("text", maxlength=3), "long", None, "unfillable"),
        (one("text"), {"name": "A"}, None, "unfillable"),
    ],
)
def test_values(field, raw, value, level):
    found = resolve_value(field, raw, {"PhD": "Doctorate"})
    assert found.level == level
    assert found.value == (None if level == "unfillable" else value)
    assert bool(found.reason) == (level == "unfillable")


@pytest.mark.parametrize(
    ("text", "options", "place"),
    [
        *(
            (text, SUMS, place)
            for text, place in (("0", 0), ("10000", 0), ("10001", 1), ("81234", 2))
        ),
        *((text, SUMS, None) for text in ("-5", "much")),
        *((text, SLOTS, place) for text, place in (("10AM", 0), ("11AM", 0), ("2PM", 1))),
        *((text, SLOTS, None) for text in ("7PM", "11:30 AM", "9")),
        ("9", ("Red", "Blue"), None),
    ],
)
def test_brackets(text, options, place):
    assert bracket(text, options) == place


def test_keys_that_differ_are_placed_and_those_without_a_field_are_noted():
    fields = (one("text"), Field(name="partyName", label="Party Name (whoever)", kind="text"))
    gold = read_gold(
        row_of("G11"), fields, {"Party Name": "Moss Ltd", "x": "1", "X *": "2", "Colour": "red"}
    )
    assert gold.values == {"x": "1", "partyName": "Moss Ltd"}
    assert gold.unplaced.keys() == {"X *", "Colour"}
    assert "already" in gold.unplaced["X *"]
    assert "no label" in gold.unplaced["Colour"]
    assert gold.unknown == ("Colour",)


def test_what_is_known_to_have_no_field_is_no_drift():
    gold = read_gold(row_of("H11"), (one("text"),), {"X": "1", "Scope of Work": "all of it"})
    assert gold.unplaced.keys() == {"Scope of Work"}
    assert "heading" in gold.unplaced["Scope of Work"]
    assert gold.unknown == ()
    assert [told.label for told in gold.told] == ["X"]


def test_references_say_where_every_value_came_from(examples):
    levels = {
        "n": "exact",
        "g": "exact",
        "financialAid": "alias",
        "income": "bucket",
        "essay": "folded",
    }
    assert examples["A13-000"].reference["levels"] == levels
    assert examples["A13-000"].reference["values"]["income"] == "mid"
    assert examples["A13-001"].reference["values"]["income"] == "high"
    assert examples["A13-002"].reference["unfillable"].keys() == {"g"}
    assert examples["A13-002"].reference["unfillable"]["g"]["gold"] == "9.9"
    assert "(max)" in examples["A13-002"].reference["unfillable"]["g"]["reason"]
    assert examples["A15-000"].reference["values"]["courses[]"] == ["K1", "K3"]
    assert examples["A15-001"].reference["unfillable"]["semester"]["gold"] == "Winter 2030"
    assert examples["B13-000"].reference["values"]["address"] == "1 Fern Way Mossby"
    assert examples["B13-002"].reference["unfillable"]["session_time"]["gold"] == "12PM"
    assert examples["B14-001"].reference["values"] == {
        "full_name": "Bo Lind",
        "email": "bo@moss.example",
    }
    assert set(examples["B14-001"].reference["unplaced"]) == {"degree", "reference"}
    assert set(examples["D12-000"].reference["unplaced"]) == {"Brief description of the issue"}
    assert examples["E12-000"].reference["values"]["accountType"] == "savings"
    assert {key for key, one in examples.items() if one.reference["stubbed"]} == {
        "F13-000",
        "F13-001",
    }
    assert {key for key, one in examples.items() if one.reference["ported"]} == {
        "A12-000",
        "A12-001",
    }


def test_documents_are_split_at_the_number_that_is_due():
    text = "  1)One.\n1. a\n2. b\n\n2) Two\n 12) not a text\n3) Three\n2) again\n"
    assert split_documents(text, 3, "x") == (
        "One.\n1. a\n2. b",
        "Two\n 12) not a text",
        "Three\n2) again",
    )


@pytest.mark.parametrize("count", [2, 4])
def test_documents_that_do_not_match_their_records(count):
    with pytest.raises(DataError, match=f"x.txt has 3 .* {count} records"):
        split_documents("1. a\n2. b\n3. c", count, "x.txt")


def test_resolved_values_are_plain():
    assert resolve_value(one(), None, {}) == Resolved(None, "exact")
