"""The lenient reader: given cases, hand-made cases, every rule with its contrast, and valid JSON
untouched."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plumbline.tasks.text.json_scanner import Scanner
from plumbline.tasks.text.json_schema import ANYTHING
from plumbline.tasks.text.lenient_json import REPAIRS, Reading, Schema, read_json, strict_json
from plumbline_commerce.extraction.schema import meanings
from tests.text.json_fuzz import same

HERE = Path(__file__).parent


def lines(name: str) -> list[dict]:
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()]


SCHEMA = Schema.from_json(json.loads((HERE / "lenient_json_schema.json").read_text()))
NAMED = {
    name: Schema.from_json(one)
    for name, one in json.loads((HERE / "nasty_schemas.json").read_text()).items()
}
SCHEMAS = {
    True: [SCHEMA],
    False: [None],
    None: [SCHEMA, None],
    **{name: [one] for name, one in NAMED.items()},
}
DEVELOPMENT = [
    {
        "group": case["cat"],
        "schema": True,
        "text": case["text"],
        "readings": [case["expected"], *case["alts"]],
    }
    for case in lines("lenient_json_cases.jsonl")
]
NASTY = lines("nasty_cases.jsonl")
CASES = {"development": DEVELOPMENT, "nasty": NASTY, "unseen": lines("unseen_cases.jsonl")}
GROUPS = list(
    dict.fromkeys((file, case["group"]) for file, cases in CASES.items() for case in cases)
)


@pytest.mark.parametrize(("file", "group"), GROUPS)
def test_hand_made_cases(file, group):
    """What was meant was decided by hand, that of the unseen before anybody looked how it reads
    them.

    One case a line: `group`; `schema` (true: that of the reviews, false: none, null: the same
    either way, or a name); `text`; `readings`, each of which is honest; `or_incomplete` where
    anything is, if the reader says so; `how`.
    """
    for case in CASES[file]:
        for schema in SCHEMAS[case["schema"]] if case["group"] == group else ():
            reading = read_json(case["text"], schema)
            admitted = case.get("or_incomplete", False) and not reading.complete
            assert admitted or any(same(reading.value, value) for value in case["readings"]), (
                case,
                reading,
            )
            how = case.get("how", reading.how).split("+")
            ordered = "+".join(name for name in (*REPAIRS, "strict", "none") if name in how)
            assert reading.how == ordered, (case, reading)
            if reading.value is not None:
                assert reading.complete != bool(
                    {"truncated", "unreadable"} & set(reading.repairs)
                ), (case, reading)
                json.dumps(reading.value, allow_nan=False)


# --- how it was read ------------------------------------------------------------------------------------------------


def test_strict_means_valid_and_not_coerced():
    schema = Schema.from_json({"type": "object", "properties": {"nota": {"type": "number"}}})
    assert read_json('{"nota": "4.5"}').how == "strict"
    assert read_json('{"nota": "4.5"}', schema).how == "quoted_number"
    assert read_json('{"nota": "4,5/5"}', schema) == Reading(
        {"nota": "4,5/5"}, ("mismatch",), complete=True
    )


def test_a_reading_says_whether_it_is_whole():
    assert read_json('{"a": 1, "b": [2, 3').complete is False
    assert read_json('{"a": 1, "b": [2, 3').value == {"a": 1, "b": [2]}
    assert read_json('{"a": 1, "b": [2, 3}').complete is True
    assert read_json("nada").complete is False
    assert read_json('{"a": ' + "9" * 5_000 + "}") == Reading(
        {"a": None}, ("non_finite",), complete=True
    )


# --- strict_json ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (' {"a": [1, 2.5, null]} ', {"a": [1, 2.5, None]}),
        ("4.5", 4.5),
        ("null", None),
        ("{'a': 1}", None),
        ('{"a": NaN}', None),
        ('{"a": -Infinity}', None),
        ('{"a": 1e999}', None),
        ('{"a": 1} {"b": 2}', None),
        ("", None),
        ("[" * 100_000, None),
        ("9" * 5_000, None),
        ('"\\ud800"', "\ud800"),
        ('"' + "e400 " * 3 + '"', "e400 e400 e400 "),
        ("[1e300, 1e-400]", [1e300, 0.0]),
    ],
)
def test_strict_json(text, value):
    assert strict_json(text) == value


# --- valid JSON is never altered --------------------------------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
)
containers = st.lists(values) | st.dictionaries(st.text(), values)
formats = st.fixed_dictionaries(
    {
        "indent": st.none() | st.integers(0, 4),
        "ensure_ascii": st.booleans(),
        "sort_keys": st.booleans(),
    }
)


def schema_of(value) -> dict:
    """A schema that the value fits."""
    if isinstance(value, dict):
        return {
            "type": "object",
            "properties": {key: schema_of(member) for key, member in value.items()},
        }
    if isinstance(value, list):
        return (
            {"type": "array", "items": schema_of(value[0])}
            if len(value) == 1
            else {"type": "array"}
        )
    names = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    return {"type": names[type(value)]}


FRAMES = st.sampled_from(["Segue:\n{}", "```json\n{}\n```", "<think>x</think>{}"])


@settings(max_examples=100, deadline=None)
@given(containers, formats, FRAMES)
def test_valid_json_is_what_json_loads_says(value, style, frame):
    text = json.dumps(value, **style)
    expected = json.loads(text)
    for schema in (None, Schema(), Schema.from_json(schema_of(value))):
        reading = read_json(text, schema)
        assert repr(reading.value) == repr(expected)
        assert reading == Reading(expected, (), complete=True)
        assert reading.how == "strict"
    # What stands in prose or beside a fault is read by the scanner alone, which must not alter it
    # either.
    repairs: set[str] = set()
    scanner = Scanner(text, repairs)
    assert repr(scanner.read(0, ANYTHING)) == repr(expected)
    assert not scanner.stopped
    assert scanner.pos == len(text)
    assert repairs == set()
    if isinstance(value, dict) and value:
        assert repr(read_json(frame.replace("{}", text)).value) == repr(expected)


# --- the rules, each with its contrast --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value", "contrast", "other"),
    [
        # In an object digits, a comma and digits are one number; in an array they are two.
        ('{"a": 4,5}', {"a": 4.5}, '{"a": [4,5]}', {"a": [4, 5]}),
        ("{'a': 4,5}", {"a": 4.5}, "{'a': [4,5]}", {"a": [4, 5]}),
        # A semicolon makes the commas of an array decimal.
        ("{'a': [4,5; 3,5]}", {"a": [4.5, 3.5]}, "{'a': [4,5, 3,5]}", {"a": [4, 5, 3, 5]}),
        # Two groups are thousands; one alone is JSON's decimal point, unless it is money.
        ("{'a': 1.234.567}", {"a": 1234567}, "{'a': 1.234}", {"a": 1.234}),
        ("{'a': R$ 1.234}", {"a": 1234}, "{'a': 1.234}", {"a": 1.234}),
        ("{'a': 1.234,56}", {"a": 1234.56}, "{'a': 1,234.56}", {"a": 1234.56}),
        # A number before a colon is a key.
        ("{'a': 4, 5: 6}", {"a": 4, "5": 6}, "{'a': 4, 5, 'b': 6}", {"a": 4.5, "b": 6}),
        # A quote ends a text only where a value may end.
        (
            '{"a": "x "y" z", "b": 1}',
            {"a": 'x "y" z', "b": 1},
            '{"a": "x", "y": "z"}',
            {"a": "x", "y": "z"},
        ),
        (
            "{'a': 'd'água', 'b': 1}",
            {"a": "d'água", "b": 1},
            "{'a': 'd', 'b': 1}",
            {"a": "d", "b": 1},
        ),
        # A number at the very end may be half of one; one before a newline is whole.
        ('{"a": 1, "b": 2', {"a": 1}, '{"a": 1, "b": 2\n', {"a": 1, "b": 2}),
        ('{"a": 1, "b": 0,', {"a": 1}, '{"a": 1, "b": 0.5,', {"a": 1, "b": 0.5}),
        ('{"a": 1, "b": tru', {"a": 1}, '{"a": 1, "b": true', {"a": 1, "b": True}),
        # What is inside of a thought does not count, unless the thought never ends.
        ('<think>{"a": 1}</think>{"a": 2}', {"a": 2}, '<think>{"a": 1}', {"a": 1}),
        # A text that lost a quote swallows nothing.
        (
            '{"a": 1, "b": "x" "y", "c": 2}',
            {"a": 1},
            '{"a": 1, "b": "x" "c": 2}',
            {"a": 1, "b": "x", "c": 2},
        ),
    ],
)
def test_rules_and_their_contrasts(text, value, contrast, other):
    assert same(read_json(text).value, value), read_json(text)
    assert same(read_json(contrast).value, other), read_json(contrast)


def test_of_several_objects_the_one_with_most_keys_then_complete_then_the_last():
    schema = Schema.from_json({"type": "object", "properties": {"a": {}, "b": {}}})
    assert read_json('{"a": 1, "b": 2} {"a": 3}', schema).value == {"a": 1, "b": 2}
    assert read_json('{"a": 1} {"a": 2} {"a": 3, "b":', schema).value == {"a": 2}
    assert read_json('{"a": 1} {"a": 2}', schema).value == {"a": 2}
    assert read_json('{"x": 1, "y": 2, "z": 3} {"a": 4}', schema).value == {"a": 4}
    assert read_json('{"x": 1, "y": 2, "z": 3} {"a": 4}').value == {"x": 1, "y": 2, "z": 3}
    assert read_json('[{"a": 1}, {"a": 2, "b": 3}, {"a": 4}]', schema).value == {"a": 2, "b": 3}


def test_a_list_is_a_value_unless_the_schema_says_object():
    text = "[{'a': 1}, {'a': 2}]"
    assert read_json(text).value == [{"a": 1}, {"a": 2}]
    assert read_json(text, Schema.from_json({"type": "array"})).value == [{"a": 1}, {"a": 2}]
    assert read_json(text, Schema.from_json({"type": "object"})).value == {"a": 2}
    assert read_json("[1, 2]", Schema.from_json({"type": "object"})).value is None


def test_every_repair_is_used_and_documented():
    """Each name is reached by a text of these tables, so none is a promise only."""
    cases = [*DEVELOPMENT, *NASTY]
    seen = {
        name
        for case in cases
        for one in SCHEMAS[case["schema"]]
        for name in read_json(case["text"], one).repairs
    }
    seen |= set(read_json('{"a": 1, (obs), "b": 2}').repairs)
    seen |= meanings({"Delay_Days": "7 dias"}, (), {})[1]
    assert seen == set(REPAIRS)


def test_without_coercion_values_stay_as_they_are_written():
    schema = Schema.from_json({"type": "object", "properties": {"nota": {"type": "number"}}})
    for text in (
        '{"nota": "4,5", "x": 1}',
        '```json\n{"nota": "4,5"}\n```',
        json.dumps('{"nota": "4,5"}'),
    ):
        assert read_json(text, schema).value["nota"] == 4.5
        plain = read_json(text, schema, coerced=False)
        assert plain.value["nota"] == "4,5"
        assert set(read_json(text, schema).repairs) - set(plain.repairs) == {
            "decimal_comma",
            "quoted_number",
        }


def test_the_documentation_lists_every_repair():
    page = (HERE.parents[1] / "docs" / "research" / "lenient-json.md").read_text()
    rows = [
        line
        for line in page.splitlines()
        if line.startswith("| `") and line.split("`")[1] in REPAIRS
    ]
    assert rows == [f"| `{name}` | {meaning} |" for name, meaning in REPAIRS.items()]


def test_the_example_of_the_documentation():
    page = (HERE.parents[1] / "docs" / "research" / "lenient-json.md").read_text()
    code = page.split("```python\n")[1].split("\n```\n\nThree")[0]
    found: dict = {}
    exec(code, found)
    for line in code.splitlines():
        if line.startswith("reading."):
            expression, expected = line.split("#")
            assert eval(expression, found) == eval(expected), line
