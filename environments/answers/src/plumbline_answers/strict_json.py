"""The task strict-json: a request in English for a JSON value, and a verifier that accepts that
value alone."""

import json
import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from plumbline.records import Example, Outcome, Score
from plumbline.tasks import Progress
from plumbline.tasks.baselines import blank, constant, shuffled_gold
from plumbline.tasks.rubric import Part, Rubric
from plumbline.tasks.tables import read_table
from plumbline.tasks.task import Baseline, gold_of
from plumbline_answers.generated import (
    GeneratedOptions,
    GeneratedTask,
    Made,
    pick,
    read_options,
    sample,
)

Kind = Literal["object", "array", "records", "schema"]
NAMES = {"list": "list of strings"}
"""How a request calls a type, where it is not by its own name."""
SCHEMAS: dict[str, dict[str, Any]] = {"list": {"type": "array", "items": {"type": "string"}}}
MOST_BRACKETS = 200
"""No request asks for a value with as many; how deep a parser can go would depend on who calls
it."""
MOST_DIGITS = 40
MOST_TRIES = 16
"""Brackets in an answer at which a value is looked for."""
_FENCED = re.compile(r"```[\w-]*[ \t]*\n(.*)```", re.DOTALL)
_BRACKET = re.compile(r"[\[{]")
SLOPE = Rubric(
    "strict-json-slope",
    1,
    (
        Part("strict", 0.5, "the whole answer is the JSON value that was asked for"),
        Part(
            "json", 0.1, "the answer is an object or array; half where it stands among other text"
        ),
        Part("container", 0.1, "the value is the container that was asked for"),
        Part("count", 0.1, "how near the number of items, or of keys, is to the one asked for"),
        Part("keys", 0.1, "the names of keys: those asked for and present among all"),
        Part("types", 0.1, "the share of values asked for that have the right type"),
    ),
)
STRICT = Rubric(
    "strict-json",
    1,
    tuple(Part(p.name, float(p.name == "strict"), p.pays_for) for p in SLOPE.parts),
)


class StrictJsonOptions(GeneratedOptions):
    """Options of the strict-json task."""

    kinds: list[Kind] = Field(default=["object", "array", "records", "schema"], min_length=1)
    """What is asked for: an object, items of one type, several objects, an instance of a JSON
    schema."""


def open_strict_json(options: Mapping[str, Any], folder: Path, progress: Progress) -> "StrictJson":  # noqa: ARG001
    """Open the task strict-json.

    Raises:
        RecipeError: an unknown option.
    """
    return StrictJson(read_options(StrictJsonOptions, options, StrictJson.name))


class StrictJson(GeneratedTask):
    """A JSON value exactly as asked, and nothing around it."""

    name = "strict-json"

    def __init__(self, options: StrictJsonOptions) -> None:
        super().__init__(
            SLOPE if options.reward == "slope" else STRICT, options, options.kinds, make_request
        )

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        """See `Task.baselines`."""
        return {
            "blank": blank,
            "constant": constant,
            "shuffled-gold": shuffled_gold,
            "fenced": lambda examples: [
                f"```json\n{gold_of(example)}\n```" for example in examples
            ],
            "empty": lambda examples: [
                "{}" if _is_object(example.reference) else "[]" for example in examples
            ],
        }

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """See `Task.judge`. The reading `parses` is the total of a verifier that accepts all JSON,
        fenced or not."""
        value, how = find_value(completion)
        parts = measure(value, example.reference)
        parts["json"] = {"strict": 1.0, "prose": 0.5, "none": 0.0}[how]
        right = float(all(part in (1.0, None) for part in parts.values()))
        fenced = _FENCED.fullmatch(completion.strip())
        parses = any(parse(text) is not None for text in (completion, fenced[1] if fenced else ""))
        readings = {"strict": right, "parses": float(parses)}
        return Outcome(how=how), self.scores.score(parts | {"strict": right}, readings)


# -- the verifier ----------------------------------------------------------------------------------


def parse(text: str, start: int | None = None) -> tuple[Any, int] | None:
    """Read a text as JSON: the whole of it, or the value that begins at `start`; and where the
    value ends.

    None where it is no JSON, and where a key stands twice, a number is not finite or has too many
    digits, or there are too many brackets.
    """
    if text.count("[") + text.count("{") > MOST_BRACKETS:
        return None
    try:
        if start is None:
            return _DECODER.decode(text.strip()), len(text)
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None


def find_value(text: str) -> tuple[Any, str]:
    """The object or array that a text is, or the longest that stands in it; and how: strict, prose
    or none."""
    whole = parse(text)
    if whole is not None and isinstance(whole[0], dict | list):
        return whole[0], "strict"
    found, longest, at = None, 0, 0
    for _ in range(MOST_TRIES if whole is None else 0):
        bracket = _BRACKET.search(text, at)
        if bracket is None:
            break
        at = bracket.start()
        inner = parse(text, at)
        if inner is not None and inner[1] - at > longest:
            found, longest = inner[0], inner[1] - at
        at = at + 1 if inner is None else inner[1]
    return found, "none" if found is None else "prose"


def measure(value: Any, asked: Mapping[str, Any]) -> dict[str, float | None]:
    """The parts that do not depend on what stands around a value. An array has no keys: None."""
    items, keys, count = asked["items"], asked["keys"], asked["count"]
    if not isinstance(value, dict if _is_object(asked) else list):
        return {"container": 0.0, "count": 0.0, "keys": None if items else 0.0, "types": 0.0}
    parts: dict[str, float | None] = {
        "container": 1.0,
        "count": max(0.0, 1 - abs(len(value) - count) / count),
    }
    if items:
        right = sum(has_type(one, items) for one in value[:count])
        return parts | {"keys": None, "types": right / count}
    objects = [
        one if isinstance(one, dict) else {}
        for one in (value if isinstance(value, list) else [value])
    ]
    shared = [len(one.keys() & keys.keys()) / len(one.keys() | keys.keys()) for one in objects]
    slots = count * len(keys) if isinstance(value, list) else len(keys)
    right = sum(
        key in one and has_type(one[key], kind)
        for one in objects[:count]
        for key, kind in keys.items()
    )
    return parts | {"keys": sum(shared) / len(shared) if shared else 0.0, "types": right / slots}


def has_type(value: Any, kind: str) -> bool:
    """Whether a value has a type. A boolean is no number, an integer has no point, and no text or
    list is empty."""
    if kind == "list":
        return (
            isinstance(value, list)
            and bool(value)
            and all(has_type(one, "string") for one in value)
        )
    if kind == "string":
        return isinstance(value, str) and bool(value.strip())
    return type(value) in {"integer": (int,), "number": (int, float), "boolean": (bool,)}[kind]


def _is_object(asked: Mapping[str, Any]) -> bool:
    return asked["kind"] in ("object", "schema")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError("too many digits")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("beyond all size, or no number")
    return number


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_finite, parse_constant=_finite
)


# -- the requests ----------------------------------------------------------------------------------


@cache
def load_words() -> Any:
    """Keys by type with what their values may be, topics with their keys, and wordings."""
    return read_table(Path(__file__).with_suffix(".yaml"))


@cache
def key_types() -> dict[str, str]:
    """The type of each key."""
    return {key: kind for kind, keys in load_words()["keys"].items() for key in keys}


def make_request(kind: str, held_out: bool, rng: np.random.Generator) -> Made:
    """A request of a kind, a value that it asks for, and what the verifier has to know."""
    topic = pick(rng, list(load_words()["topics"]))
    known = load_words()["topics"][topic]
    items, several = "", kind in ("array", "records")
    if kind == "array":
        names = sample(rng, [key for key in known if key_types()[key] != "list"], 1)
        items, count = key_types()[names[0]], int(rng.integers(2, 7))
    else:
        least, most = {"object": (2, 4), "records": (1, 3), "schema": (2, 3)}[kind]
        names = sample(rng, known, int(rng.integers(least, most + 1)))
        count = int(rng.integers(2, 4 if len(names) < most else 3)) if several else len(names)
    keys = {} if items else {key: key_types()[key] for key in names}
    objects = [{key: make_value(key, rng) for key in names} for _ in range(count if several else 1)]
    gold = [one[names[0]] for one in objects] if items else objects if several else objects[0]
    wording = pick(rng, load_words()["wordings"][kind]["test" if held_out else "train"])
    called = {key: NAMES.get(key_types()[key], key_types()[key]) for key in names}
    properties = {key: SCHEMAS.get(one, {"type": one}) for key, one in keys.items()}
    schema = {
        "type": "object",
        "properties": properties,
        "required": names,
        "additionalProperties": False,
    }
    prompt = wording.format(
        a=f"{_article(topic)} {topic}",
        n=count,
        key=names[0],
        type=items,
        keys=f"{len(names)} key{'s' if len(names) > 1 else ''}",
        paren=_write_list([f'"{key}" ({one})' for key, one in called.items()]),
        colon=", ".join(f"{key}: {one}" for key, one in called.items()),
        **{"as": _write_list([f'"{key}" as {_article(one)} {one}' for key, one in called.items()])},
        lines="\n".join(f"- {key} ({one})" for key, one in called.items()),
        schema=json.dumps(schema, separators=(",", ":")),
    )
    reference = {"kind": kind, "count": count, "items": items, "keys": keys}
    return prompt, json.dumps(gold), reference, wording


def make_value(key: str, rng: np.random.Generator) -> Any:
    """A sensible value of a key."""
    kind = key_types()[key]
    if kind == "boolean":
        return bool(rng.integers(2))
    among = load_words()["keys"][kind][key]
    if kind == "string":
        return pick(rng, among)
    if kind == "list":
        return sample(rng, among, int(rng.integers(1, 3)))
    low, high = map(float, among)
    return (
        int(rng.integers(int(low), int(high) + 1))
        if kind == "integer"
        else round(float(rng.uniform(low, high)), 2)
    )


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeio" else "a"


def _write_list(parts: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
