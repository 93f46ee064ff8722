"""Compiling a schema, and the coercions that it makes unambiguous."""

import pytest

from plumbline.errors import DataError
from plumbline.tasks.text.json_schema import Schema, coerce

TYPES = [
    {"type": "decimal"},
    {"type": ["number", 3]},
    {"type": {"number": 1}},
    {"properties": {"a": {"type": "float"}}},
]
SHAPES = [{"properties": []}, {"properties": {"a": 3}}, {"items": 3}, {"enum": "abc"}, {"anyOf": 3}]


@pytest.mark.parametrize(
    "schema", [None, [], "object", 3, *TYPES, *SHAPES, {"required": "a"}, {"required": [1]}]
)
def test_what_is_no_schema_is_a_data_error(schema):
    with pytest.raises(DataError):
        Schema.from_json(schema)


def test_the_message_names_the_place():
    with pytest.raises(DataError, match=r"properties\.a\.items\.type .*'float'"):
        Schema.from_json({"properties": {"a": {"items": {"type": "float"}}}})


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"$ref": "#/$defs/x"},
        {"allOf": [{"type": "number"}]},
        {"items": [{"type": "number"}]},
        {"anyOf": [{"$ref": "#/x"}, {"type": "null"}]},
        {
            "anyOf": [
                {"type": "object", "properties": {"a": {}}},
                {"type": "array", "items": {"type": "number"}},
            ]
        },
        {"patternProperties": {"x": {}}, "minProperties": 1, "if": {}, "not": {}},
    ],
)
def test_what_is_not_supported_admits_everything(schema):
    compiled = Schema.from_json(schema)
    assert not compiled.types
    for value in ("4,5", "não", "", 3, None, {"a": "4,5"}, ["4,5"]):
        repairs: set[str] = set()
        assert coerce(value, compiled, repairs) is value
        assert not repairs


def test_an_optional_number_as_pydantic_writes_it():
    schema = Schema.from_json(
        {"properties": {"a": {"anyOf": [{"type": "number"}, {"type": "null"}]}}}
    )
    assert schema.types == {"object"}
    assert schema.properties["a"].types == {"number", "null"}


def test_types_follow_from_an_enumeration():
    assert Schema.from_json({"enum": ["a", None, 3, True, 1.5]}).types == {
        "string",
        "null",
        "number",
        "boolean",
    }
    assert Schema.from_json({"const": "a"}).enum == ("a",)


def test_required_is_kept():
    assert Schema.from_json({"type": "object", "required": ["a"]}).required == {"a"}


def test_a_schema_of_absurd_depth_is_no_trouble():
    schema: dict = {}
    for _ in range(500):
        schema = {"properties": {"a": schema}}
    assert Schema.from_json(schema).types == {"object"}


COERCED = {
    "number": [
        *(
            ("4,5", 4.5),
            ("R$ 1.234,56", 1234.56),
            (3, 3),
            (True, True),
            ("4,5/5", "4,5/5"),
            ("", ""),
        ),
        ("1.234", "1.234"),  # two readings
    ],
    "number null": [("", None), ("NaN", None)],
    "integer": [("1.234", 1234), ("12,0", 12), ("4,5", "4,5"), (4.0, 4.0)],
    "boolean": [("Não", False), (" verdadeiro ", True), ("talvez", "talvez"), (1, True), (2, 2)],
    "boolean null": [("nenhum", None)],
    "null": [("nulo", None)],
    "string null": [("nulo", "nulo")],
    "string": [("4,5", "4,5"), (4.5, 4.5)],
    "string number": [("4,5", "4,5")],
}


@pytest.mark.parametrize("types", COERCED)
def test_coercion_of_what_is_unambiguous(types):
    schema = Schema.from_json({"type": types.split()})
    for value, expected in COERCED[types]:
        repairs: set[str] = set()
        got = coerce(value, schema, repairs)
        assert got == expected
        assert type(got) is type(expected)
        changed = (value is not expected and value != expected) or type(value) is not type(expected)
        assert bool(repairs - {"mismatch"}) == changed
        assert ("mismatch" in repairs) == (type(got) not in schema.accepts and got != 4.0)


def test_an_enumeration_forgives_case_blanks_and_accents_and_nothing_else():
    schema = Schema.from_json({"enum": ["Não", "sim", "SIM", "ótimo"]})
    read = lambda text: coerce(text, schema, set())  # noqa: E731
    assert read(" nao ") == "Não"
    assert read("OTIMO") == "ótimo"
    assert read("SIM") == "SIM"
    assert read("Sim") == "Sim", "two members are equal to it"
    assert read("otimos") == "otimos"


def test_coercion_goes_into_objects_and_arrays():
    schema = Schema.from_json(
        {"properties": {"a": {"type": "array", "items": {"properties": {"n": {"type": "number"}}}}}}
    )
    repairs: set[str] = set()
    assert coerce({"a": [{"n": "4,5", "m": "4,5"}, 3]}, schema, repairs) == {
        "a": [{"n": 4.5, "m": "4,5"}, 3]
    }
    assert repairs == {"decimal_comma", "quoted_number", "mismatch"}
