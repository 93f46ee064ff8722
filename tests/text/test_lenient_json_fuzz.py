"""Random documents with random faults: nothing is read wrong, nearly everything is read, and the
fuzz has power."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from plumbline.tasks.text.json_schema import coerce
from plumbline.tasks.text.lenient_json import Reading, Schema, read_json
from tests.text import json_fuzz
from tests.text.json_fuzz import FAULTS, NEEDS_SCHEMA, PUBLISHED, same, within
from tests.text.seed_parser import extract_json

SCHEMA = Schema.from_json(json_fuzz.SCHEMA)


def samples(
    seed: int, count: int, faults: tuple[str, ...] = FAULTS, most: int = 6, begin: int = 0
) -> Iterator[tuple[Any, str, Any]]:
    """(document, text, schema); every fourth without a schema where the faults allow it."""
    for i in range(begin, begin + count):
        rng = random.Random(seed * 1_000_000 + i)
        document = json_fuzz.document(rng)
        chosen = json_fuzz.sample_faults(rng, faults, most)
        text = json_fuzz.write(document, rng, chosen)
        yield document, text, None if i % 4 == 0 and not chosen & NEEDS_SCHEMA else SCHEMA


def judge(document: Any, reading: Reading) -> str:
    if reading.value is None:
        return "failed"
    if same(reading.value, document):
        return "right"
    return "wrong" if reading.complete else "partial"


def in_parts(whole: int) -> pytest.MarkDecorator:
    """The first part of a long fuzz, and all of the rest among the slow tests."""
    parts = [(0, 800), pytest.param(800, whole - 800, marks=pytest.mark.slow)]
    return pytest.mark.parametrize(("begin", "count"), parts, ids=["first", "rest"])


def misses(seed: int, count: int, **how: Any) -> tuple[Counter[str], list[tuple[str, Any]]]:
    counts: Counter[str] = Counter()
    wrong = []
    for document, text, schema in samples(seed, count, **how):
        reading = read_json(text, schema)
        verdict = judge(document, reading)
        counts[verdict] += 1
        if verdict == "wrong" or (verdict == "partial" and not within(reading.value, document)):
            wrong.append((text, reading.value))
    return counts, wrong


@in_parts(6_000)
def test_nothing_is_silently_wrong_and_nearly_everything_is_right(begin, count):
    counts, wrong = misses(1, count, begin=begin)
    assert wrong == []
    assert counts["right"] >= 0.995 * count, counts


def test_many_faults_at_once():
    counts, wrong = misses(2, 1_000, most=14)
    assert wrong == []
    assert counts["right"] >= 0.98 * 1_000, counts


@in_parts(1_500)
def test_the_published_faults(begin, count):
    counts, wrong = misses(3, count, faults=PUBLISHED, begin=begin)
    assert wrong == []
    assert counts["right"] == count, counts


@in_parts(4_000)
def test_a_document_cut_anywhere_says_nothing_that_the_whole_one_does_not(begin, count):
    # In [4,5; 3,5] only the semicolon behind the cut shows that 4 is half of 4,5.
    faults = tuple(
        set(FAULTS)
        - {"prose_after", "extra_bracket", "list", "stray_thought", "thought", "semicolons"}
    )
    kept = 0
    for i, (document, text, schema) in enumerate(
        samples(4, count, tuple(sorted(faults)), begin=begin), begin
    ):
        reading = read_json(text[: random.Random(i).randrange(len(text))], schema)
        assert reading.value is None or within(reading.value, document), (text, reading)
        kept += len(reading.value or {})
    assert kept > count, "most of what was whole is kept"


def share(
    seed: int, count: int, faults: tuple[str, ...], parse: Callable[[str], Any]
) -> Counter[str]:
    """What another parser makes of the same texts, with our typed coercion on top."""
    counts: Counter[str] = Counter()
    for document, text, _ in samples(seed, count, faults):
        value = parse(text)
        if value is None:
            counts["failed"] += 1
            continue
        value = coerce(value, SCHEMA, set())
        counts["right" if same(value, document) else "wrong"] += 1
    return counts


def loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


@pytest.mark.parametrize(("parse", "most"), [(extract_json, 0.6), (loads, 0.3)])
def test_the_fuzz_has_power(parse, most):
    """The parser that this one replaces fails on most of it, even with our coercion on top, and
    json.loads on more."""
    assert share(3, 300, PUBLISHED, parse)["right"] < most * 300


def test_a_wrong_reading_is_seen_as_wrong():
    """With nothing but decimal commas the replaced parser succeeds often, and takes list commas for
    decimal ones."""
    counts = share(6, 1_200, ("decimal_comma",), extract_json)
    assert counts["right"] > 0.1 * 1_200, counts
    assert counts["wrong"] >= 5, counts
    assert (
        share(6, 1_200, ("decimal_comma",), lambda text: read_json(text, SCHEMA).value)["right"]
        == 1_200
    )


def marks_of(text: str) -> list[int]:
    """Places of the brackets, quotes, commas and colons of a JSON text that are structure."""
    places, inside, escaped = [], False, False
    for at, char in enumerate(text):
        if inside and (escaped or char == "\\"):
            escaped = not escaped
            continue
        if char == '"':
            inside = not inside
        if char == '"' or (not inside and char in "{}[],:"):
            places.append(at)
    return places


@in_parts(3_000)
def test_damage_at_one_mark_is_seldom_silent(begin, count):
    """One bracket, quote, comma or colon lost: what is still read, and called whole, is right or a
    part of it."""
    silent = []
    for i in range(begin, begin + count):
        rng = random.Random(f"mark {i}")
        document = dict(list(json_fuzz.document(rng).items())[:5])
        text = json.dumps(document, ensure_ascii=False, indent=rng.choice([None, 2]))
        at = rng.choice(marks_of(text))
        damaged = text[:at] + text[at + 1 :]
        reading = read_json(damaged, SCHEMA)
        if reading.complete and not within(reading.value, document):
            silent.append((text[at], damaged, reading.value))
    assert len(silent) < 0.01 * count, silent
