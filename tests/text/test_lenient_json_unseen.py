"""The lenient reader on texts whose meaning was written down before anybody looked how it reads them.

`unseen_cases.jsonl`, one case a line: `group`; `schema` (true: the development schema, false: none, null: the same
either way); `text`; `readings`, each of which is honest; `or_incomplete` where anything is, if the reader says so.
"""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from plumbline.tasks.text.lenient_json import Schema, read_json
from tests.text import unseen_fuzz
from tests.text.json_fuzz import same, within

HERE = Path(__file__).parent
SCHEMA = Schema.from_json(json.loads((HERE / "lenient_json_schema.json").read_text()))
CASES = [json.loads(line) for line in (HERE / "unseen_cases.jsonl").read_text().splitlines()]
GROUPS = list(dict.fromkeys(case["group"] for case in CASES))


def disagreements(case: dict[str, Any]) -> list[Any]:
    found = []
    for schema in {True: [SCHEMA], False: [None], None: [SCHEMA, None]}[case["schema"]]:
        reading = read_json(case["text"], schema)
        admitted = case.get("or_incomplete", False) and not reading.complete
        if not admitted and not any(same(reading.value, value) for value in case["readings"]):
            found.append((case["text"], reading, case["readings"]))
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_hand_made_cases(group):
    found = [wrong for case in CASES if case["group"] == group for wrong in disagreements(case)]
    assert not found


def test_no_document_is_read_wrong_and_nearly_all_are_read():
    counts: Counter[str] = Counter()
    for i in range(6_000):
        text, value, schema = unseen_fuzz.document(random.Random(f"document {i}"))
        reading = read_json(text, Schema.from_json(schema))
        right = same(reading.value, value)
        assert right or not reading.complete, (i, text, reading, value)
        counts["right" if right else "not"] += 1
    assert counts["not"] <= 20


def test_a_cut_document_is_read_as_a_part_of_it():
    for i in range(4_000):
        text, value, schema = unseen_fuzz.cut_document(random.Random(f"cut {i}"))
        reading = read_json(text, Schema.from_json(schema))
        assert reading.value is None or within(reading.value, value), (i, text, reading, value)
        assert not reading.complete or same(reading.value, value), (i, text, reading, value)
