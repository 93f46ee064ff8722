"""What an extraction is worth: its values against the gold, less a share for the way it was
written.

The values pay; form (it parses, it has the keys, nothing stands around it) takes away. So an object
of the right shape that says nothing right earns nothing, and a right answer with decimal commas
loses 0.15 of 1.

What a value says is one thing (`schema.py`), how it is written another: "Positivo" in valid JSON is
right and valid, and "7" for a number is right and costs the share of one key in `schema`. So no
text earns less when it is read leniently than when it is read strictly.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from plumbline.records import Outcome, Score
from plumbline.tasks.text.json_schema import Schema
from plumbline.tasks.text.lenient_json import Reading, order_repairs, read_json, strict_json
from plumbline_commerce.database.gold import MAX_SPAN
from plumbline_commerce.extraction.schema import (
    ISSUES,
    JSON_SCHEMA,
    KEYS,
    fits,
    is_number,
    meanings,
    words,
)
from plumbline_commerce.job import read_rubric

RUBRIC = read_rubric("extraction", 2)
SCHEMA = Schema.from_json(JSON_SCHEMA)
AROUND = frozenset({"fence", "prose", "thought"})
"""Repairs that took something away from around the object, and changed nothing in it."""
KEY_OF = {
    part.name: ISSUES[0] if part.name == "issues" else part.name
    for part in RUBRIC.parts
    if part.name != "exact"
}
"""Which key of the answer a part judges (the three flags are asked for together)."""
RIGHT = {
    "sentiment": 1.0,
    "complaint_category": 1.0,
    "issues": 1.0,
    "delay_days": 1.0,
    "sentiment_score": 0.79,
    "churn_risk": 0.49,
    "would_recommend": 1.0,
    "main_complaint": 1.0,
}
"""From which value on a part counts as right; the two numbers may be 0.1 off."""
ABSENT = object()
"""Stands for a key that is not there, which is not the same as null."""


def judge(
    reference: Mapping[str, Any], review: str, completion: str, reading: str
) -> tuple[Outcome, Score]:
    """Read a completion and score it.

    Args:
        reference: the gold values of the keys that were asked for; a part whose key was not is
            None.
        review: the text that `main_complaint` must be a span of.
        completion: what the model wrote.
        reading: which reading's total is the reward: "lenient" or "strict".
    """
    read = read_json(completion, SCHEMA, coerced=False)
    meant, repairs = (
        meanings(read.value, read.repairs, reference)
        if isinstance(read.value, dict)
        else ({}, set())
    )
    how = Reading(read.value, order_repairs({*read.repairs, *repairs}), read.complete).how
    parts = {"lenient": _parts(reference, review, read, meant)}
    strict = strict_json(completion)
    as_written = Reading(strict, (), complete=True)
    parts["strict"] = (
        parts["lenient"] if how == "strict" else _parts(reference, review, as_written, strict)
    )
    readings = {name: RUBRIC.total(values) for name, values in parts.items()}
    return Outcome(how=how), RUBRIC.score(parts[reading], readings)


def canonicalise_answer(completion: str) -> frozenset[tuple[str, str]]:
    """What an answer says: each known key with what its value means, as text; empty where it is no
    object."""
    read = read_json(completion, SCHEMA, coerced=False)
    meant = meanings(read.value, read.repairs, {})[0] if isinstance(read.value, dict) else {}
    return frozenset((key, repr(value)) for key, value in meant.items())


def _parts(
    reference: Mapping[str, Any], review: str, read: Reading, meant: Mapping[str, Any]
) -> Mapping[str, float | None]:
    """The value of every part: 0 where there is no object, None where its key was not asked for.

    Args:
        reference: the gold values.
        review: the text that a span must be of.
        read: the answer as it is written.
        meant: what its values mean, by key.
    """
    written = read.value
    values: dict[str, float | None] = dict.fromkeys(RUBRIC.names, 0.0)
    values |= {name: None for name, key in KEY_OF.items() if key not in reference}
    if not isinstance(written, dict):
        return values
    asked = [key for key in KEYS if key in reference]
    repaired = not AROUND.issuperset(read.repairs)
    values["parses"] = 0.25 if not read.complete else 0.5 if repaired else 1.0
    fitting = sum(
        key in written and _is_written_well(key, written[key], meant[key]) for key in asked
    )
    values["schema"] = fitting / len(written.keys() | set(asked))
    values["alone"] = float(AROUND.isdisjoint(read.repairs))
    right = True
    for name, judged in _JUDGES.items():
        if values[name] is not None:
            values[name] = worth = judged(reference, meant, review)
            right = right and worth >= RIGHT[name]
    values["exact"] = float(right)
    return values


def _is_written_well(key: str, written: object, meant: object) -> bool:
    """Whether a value has the right type, and is in range; another spelling of a text is none of
    another type."""
    return fits(key, written) or (type(written) is type(meant) and fits(key, meant))


def _issues(reference: Mapping[str, Any], value: Mapping[str, Any]) -> float:
    """Intersection over union of the issues that are true; a flag that is missing or no flag counts
    as wrong."""
    both = sum(reference[issue] is True and value.get(issue) is True for issue in ISSUES)
    either = sum(reference[issue] is True or value.get(issue) is not False for issue in ISSUES)
    return both / either if either else 1.0


def _days(gold: int | None, value: object) -> float:
    if gold is None or value is None:
        return float(value is gold)
    return {0.0: 1.0, 1.0: 0.5}.get(abs(value - gold), 0.0) if is_number(value) else 0.0


def _closeness(gold: float, value: object, reach: float) -> float:
    """1 where equal, falling to 0 at a distance of `reach`."""
    if not is_number(value) or not gold - reach < value < gold + reach:
        return 0.0  # compared first: an integer of 400 digits is no float
    return 1.0 - abs(value - gold) / reach


def _risk(gold: float, value: object) -> float:
    """Closeness; the sum that the prompt asks for is right before it is rounded to one decimal,
    too."""
    closeness = _closeness(gold, value, 0.2)
    return (
        1.0
        if closeness and is_number(value) and math.floor(10 * value + 0.5) / 10 == gold
        else closeness
    )


_SAID = re.compile(r"\w(?:.*\w)?", re.DOTALL).search


def _span(gold: str | None, value: object, review: str) -> float:
    """F1 of the words of a literal span with those of the gold span.

    Case, accents, white space and punctuation do not count, neither for what is literal nor for
    what is shared; what stands around the first and last word does not count for the length.
    """
    if gold is None:
        return float(value is None)
    if not isinstance(value, str) or (found := _SAID(value)) is None:
        return 0.0
    said = " ".join(found[0].split())
    if len(said) > MAX_SPAN:
        return 0.0
    mine, wanted = words(said), words(gold)
    if not mine or " ".join(mine) not in " ".join(words(review)):
        return 0.0
    shared = sum((Counter(mine) & Counter(wanted)).values())
    return 2 * shared / (len(mine) + len(wanted))


_JUDGES: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any], str], float]] = {
    "sentiment": lambda gold, value, _: float(value.get("sentiment") == gold["sentiment"]),
    "complaint_category": lambda gold, value, _: float(
        value.get("complaint_category") == gold["complaint_category"]
    ),
    "issues": lambda gold, value, _: _issues(gold, value),
    "delay_days": lambda gold, value, _: _days(gold["delay_days"], value.get("delay_days", ABSENT)),
    "sentiment_score": lambda gold, value, _: _closeness(
        gold["sentiment_score"], value.get("sentiment_score"), 0.5
    ),
    "churn_risk": lambda gold, value, _: _risk(gold["churn_risk"], value.get("churn_risk")),
    "would_recommend": lambda gold, value, _: float(
        value.get("would_recommend", ABSENT) is gold["would_recommend"]
    ),
    "main_complaint": lambda gold, value, review: _span(
        gold["main_complaint"], value.get("main_complaint", ABSENT), review
    ),
}
"""What each part that has a key of its own is worth."""
