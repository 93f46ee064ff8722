"""Whatever the text, the reader returns, soon, and says something that is JSON."""

import json
import random
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from plumbline.tasks.text import json_search
from plumbline.tasks.text.lenient_json import REPAIRS, Schema, read_json, strict_json
from tests.text.json_fuzz import SCHEMA as FUZZ_SCHEMA

SCHEMA = Schema.from_json(FUZZ_SCHEMA)
PIECES = [
    *"{}[]\"'“”‘’:,;=.\\/#*`~<>-+ \n\t\r01a\x00é\ud800\udc00$%&_()|",
    *(
        '{"sentiment":',
        '"a"',
        ": ",
        "null",
        "tru",
        "NaN",
        "R$ ",
        "1.234,56",
        "```json",
        "</think>",
        "<think>",
        "\\u00",
    ),
    *(
        '\\"',
        '"""',
        "'''",
        "//",
        "/*",
        "*/",
        "...",
        '{"',
        '"}',
        '", "',
        "': '",
        '"nota": 4,5',
        "1e999",
        "&quot;",
    ),
    *(
        '{\\"',
        '"{',
        '{""a"": ',
        "9" * 5_000,
        "[" * 200,
        "{" * 200,
        '{"a":' * 150,
        "\\" * 31,
        " " * 300,
        "not a key",
    ),
]


def check(text: str) -> None:
    for schema in (SCHEMA, None):
        reading = read_json(text, schema)
        assert reading.value is None or isinstance(reading.value, dict | list)
        assert schema is None or reading.value is None or isinstance(reading.value, dict)
        assert set(reading.repairs) <= set(REPAIRS)
        assert isinstance(reading.how, str)
        json.dumps(reading.value, allow_nan=False)
    strict = strict_json(text)
    if isinstance(strict, dict):
        assert repr(read_json(text).value) == repr(strict)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_hostile_completions(seed):
    rng = random.Random(seed)
    for _ in range(1_350 if seed else 300):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 40)))
        check('{"sentiment":' + text if rng.random() < 0.3 else text)


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet=st.sampled_from("{}[]\"',:\\ \n4aé<>/`“”"), max_size=60))
def test_texts_of_structure(text):
    check(text)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200))
def test_any_text(text):
    check(text)
    check('{"main_complaint": "' + text + '", "churn_risk": 0,5}')


@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000,
        "{" * 20_000,
        '{"a":' * 20_000,
        "[" * 20_000 + "]" * 20_000,
        "{'a':[" * 2_500,
        '"' * 200_000,
        "'" * 200_000,
        '{"a": ' + "9" * 5_000 + "}",
        "{'a': " + "9" * 5_000 + "}",
        "{'a': " + "9" * 200_000 + "}",
        '{"a": 1e999999999999999999999}',
        "\x00" * 1_000,
        '{"a": "\x00"}',
        '{"a": "\ud800"}',
        "\ud800",
        "{'a': '\\ud800'}",
        "```" * 20_000,
        "<think>" * 20_000,
        "</think>" * 20_000,
        '"{\\"' * 5_000,
        "1," * 60_000,
        "{'a': 1" + "," * 60_000,
        "{'a': [" + "1, " * 20_000 + "]}",
        "/*" * 20_000,
        "{//" * 20_000,
        "{'a':'b'//" * 10_000,
        "&quot;" * 20_000,
        "{&quot;" * 5_000,
    ],
    ids=lambda text: ascii(text[:24]),
)
def test_extreme_texts(text):
    check(text)


def test_near_the_recursion_limit_nothing_is_raised():
    reached = 0

    def down(levels: int) -> None:
        nonlocal reached
        reached = levels
        down(levels + 1)

    def deep(levels: int):
        return read_json("{'a': [1, {'b': 4,5}]}") if levels == 0 else deep(levels - 1)

    with pytest.raises(RecursionError):
        down(0)
    for left in range(8, 60):
        assert deep(reached - left).value in ({"a": [1, {"b": 4.5}]}, None)


UNITS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def cost(text: str) -> float:
    start = time.process_time()
    read_json(text, SCHEMA)
    return time.process_time() - start


FRAMES = ['{"sentiment":"{}', "{'x':{}", "{'x':['a',{}]}"]


@pytest.mark.parametrize(
    "frame", ["{}", *(pytest.param(frame, marks=pytest.mark.slow) for frame in FRAMES)]
)
def test_time_grows_in_proportion_to_the_length(frame):
    """Eight times the text may cost at most about eight times the time; a square would cost 64
    times.

    The least of three times counts, on either side.
    """
    for unit in UNITS:
        short, long = (
            frame.replace("{}", unit * (length // len(unit))) for length in (3_000, 24_000)
        )
        if (base := min(cost(short) for _ in range(3))) > 0.0005:  # less than that is noise
            assert any(cost(long) < 24 * base for _ in range(3)), (unit, frame)


def test_what_stands_before_empty_objects_is_looked_through_once(monkeypatch):
    asked = []
    nothing = json_search._NOTHING
    monkeypatch.setattr(
        json_search, "_NOTHING", lambda *given: asked.append(given) or nothing(*given)
    )
    read_json("{}" * 1000 + "<select><option>{" * 50)
    assert len(asked) < 20
