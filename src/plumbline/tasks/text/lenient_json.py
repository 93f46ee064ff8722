"""Lenient JSON: what a model meant, from what it wrote.

Language models write `"nota": 4,5`, fences, prose, single quotes and half an object. `read_json`
reads the object that was meant and says which repairs that took. Valid JSON is never altered, a
schema decides where the text cannot, and where nobody can tell what was meant nothing is read: a
wrong value that looks right is worse than none.

Example:
    schema = Schema.from_json({"type": "object", "properties": {"nota": {"type": "number"}}})
    reading = read_json('Claro! {"nota": 4,5}', schema)
    reading.value == {"nota": 4.5}
    reading.how == "prose+decimal_comma"
"""

import html
import json
import re
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plumbline.config.overrides import read_package_yaml
from plumbline.tasks.text.json_schema import ANYTHING, coerce
from plumbline.tasks.text.json_schema import Schema as Schema
from plumbline.tasks.text.json_search import find, valid_at
from plumbline.tasks.text.json_strings import without_breaks

REPAIRS: dict[str, str] = read_package_yaml(Path(__file__).with_name("repairs.yaml"))
"""Every repair by name, with what it means. Reports show them joined by "+" in this order."""

_RANK = {name: rank for rank, name in enumerate(REPAIRS)}


def order_repairs(names: Set[str]) -> tuple[str, ...]:
    """The names in the order of `REPAIRS`."""
    return tuple(sorted(names, key=_RANK.__getitem__))


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read from a text, and how."""

    value: dict[str, Any] | list[Any] | None
    """The object or array; None where there is none."""
    repairs: tuple[str, ...]
    """What it took, by the names and in the order of `REPAIRS`; empty for valid JSON that fits the
    schema."""
    complete: bool
    """False where the value was cut off, or unreadable from some point on: members may be
    missing."""

    @property
    def how(self) -> str:
        """The parse mode for reports: "strict", "none", or the repairs joined by "+"."""
        if self.value is None:
            return "none"
        return "+".join(self.repairs) or "strict"


_NONE = Reading(None, (), complete=False)
_MAX_ENCODINGS = 4
_ENTITIES = re.compile(r"\{\s*&(?:quot|apos|#34|#39|#x22|#x27);", re.IGNORECASE).search


def read_json(text: str, schema: Schema | None = None, *, coerced: bool = True) -> Reading:
    """Read the object (or array) that a text means.

    Args:
        text: a completion: JSON, nearly JSON, or anything else.
        schema: what is expected. Its types decide what the text alone cannot ("4,5" in quotes,
            "não"), and its keys which of several objects is meant. Where its type is "object", only
            an object is a value.
        coerced: whether values of another type or spelling become what the schema asks for;
            otherwise they stay as they are written, and the repairs are those of the text alone.

    Returns:
        The reading. Its value is None where the text holds no object or array, or none that can be
        told from prose; a bare number or text (`4,5`) is no value. Never raises, and takes time in
        proportion to the length of the text.
    """
    schema = schema or ANYTHING
    try:
        reading = _read(text.lstrip(), schema, 0)
        if not coerced or reading.value is None:
            return reading
        repairs = set(reading.repairs)
        return Reading(
            coerce(reading.value, schema, repairs, _decode),
            order_repairs(repairs),
            reading.complete,
        )
    except RecursionError:  # the caller was near the limit already
        return _NONE


def _read(text: str, schema: Schema, encodings: int) -> Reading:
    found = valid_at(text, 0)
    if found is not None and not text[found[1] :].strip():
        value = found[0]
        if isinstance(value, dict) or (isinstance(value, list) and "object" not in schema.types):
            return Reading(value, (), complete=True)
        if isinstance(value, str) and encodings < _MAX_ENCODINGS:
            reading = _read(value.lstrip(), schema, encodings + 1)
            if reading.value is None:
                return _NONE
            return Reading(
                reading.value,
                order_repairs({*reading.repairs, "double_encoded"}),
                complete=reading.complete,
            )
    candidate = find(text, schema, invalid=found is None)
    settled = (
        candidate is not None
        and candidate.complete
        and ("array" not in schema.types or isinstance(candidate.value, list))
    )
    if not settled and (blank := without_breaks(text)) is not None:
        other = find(blank, schema)
        if other is not None and (candidate is None or other.complete):
            candidate = other
            candidate.repairs.add("escape")
    if candidate is None or "unreadable" in candidate.repairs:
        other = find(text, schema, invalid=True, far=True)
        if (
            other is not None
            and other.complete
            and (candidate is None or other.rank[:2] > candidate.rank[:2])
        ):
            candidate = other
    if (
        candidate is None
        and _ENTITIES(text)
        and (candidate := find(html.unescape(text), schema)) is not None
    ):
        candidate.repairs.add("html_entities")
    if candidate is None:
        return _NONE
    if not candidate.repairs:
        candidate.repairs.add("syntax")
    return Reading(candidate.value, order_repairs(candidate.repairs), complete=candidate.complete)


def _decode(text: str, schema: Schema, repairs: set[str]) -> Any:
    """Read a text that is an object or array and nothing else."""
    reading = _read(text.strip(), schema, 0) if text.lstrip()[:1] in tuple('{[`"') else _NONE
    if not reading.complete or type(reading.value) not in schema.accepts:
        return None
    if not {"prose", "several", "thought"}.isdisjoint(reading.repairs):
        return None
    repairs.update(reading.repairs, ("double_encoded",))
    return reading.value


def strict_json(text: str) -> Any:
    """Decode a text that is valid JSON as a whole, outer blanks aside.

    Returns:
        The value, of any type; None where the text is not JSON, and also for `null`. Never raises.
    """
    text = text.strip()
    found = valid_at(text, 0)
    return found[0] if found is not None and found[1] == len(text) else None


# -- plans for a browser ---------------------------------------------------------------------------

_JSON = re.compile(
    r"""^[^\w'"“‘]{0,16}(?:json\s{0,4})?[\[{][\s\[]{0,64}+(?:\{\s{0,64}+)?(?:["'“‘]|\w{1,64}+\s{0,64}+:)"""
    r"""|["'“‘]?\baction["'”’]?\s*:\s*[\[{]""",
    re.M,
)
"""What a text that may hold such JSON has in it: a line that begins with it, or actions. Every line
is looked at, so what one of them reaches over is bounded."""
_BRACKET = re.compile(r"[\[{]")


def drop_surrogates(text: str) -> str:
    """Without halves of surrogate pairs, which no browser could send."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def values_in(text: str, most: int) -> list[Any]:
    """The JSON of a text: one value, a list of them, or one after the other, at most so many; []
    where it has none."""
    if _JSON.search(text) is None:
        return []
    decoder = json.JSONDecoder()
    found: list[Any] = []
    at = 0
    while len(found) < most and (bracket := _BRACKET.search(text, at)) is not None:
        try:
            value, at = decoder.raw_decode(text, bracket.start())
        except (ValueError, RecursionError):
            found = []
            break
        found += value if isinstance(value, list) else [value]
    if any(isinstance(value, dict) for value in found):
        return found
    lines = [
        line
        for line in text.splitlines()
        if line.strip().startswith("{") and line.rstrip(" ,;").endswith("}")
    ]
    each = [read_json(line).value for line in lines[:most]] if len(lines) > 1 else []
    if (
        each
        and all(isinstance(value, dict) for value in each)
        and not text.lstrip(" \n`json").startswith("[")
    ):
        return each
    value = read_json(text).value
    return value if isinstance(value, list) else [value]
