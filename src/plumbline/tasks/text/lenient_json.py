"""Lenient JSON: what a model meant, from what it wrote.

Language models write `"nota": 4,5`, fences, prose, single quotes and half an object. `read_json` reads the object that
was meant and says which repairs that took. Valid JSON is never altered, a schema decides where the text cannot, and
where nobody can tell what was meant nothing is read: a wrong value that looks right is worse than none.

Example:
    schema = Schema.from_json({"type": "object", "properties": {"nota": {"type": "number"}}})
    reading = read_json('Claro! {"nota": 4,5}', schema)
    reading.value == {"nota": 4.5}
    reading.how == "prose+decimal_comma"
"""

from dataclasses import dataclass
from typing import Any

from plumbline.tasks.text.json_candidates import find, without_entities
from plumbline.tasks.text.json_escapes import without_breaks
from plumbline.tasks.text.json_schema import Schema, coerce
from plumbline.tasks.text.json_strict import strict_json, valid_at
from plumbline.tasks.text.repairs import REPAIRS, in_order

__all__ = ["REPAIRS", "Reading", "Schema", "read_json", "strict_json"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read from a text, and how."""

    value: dict[str, Any] | list[Any] | None
    """The object or array; None where there is none."""
    repairs: tuple[str, ...]
    """What it took, by the names and in the order of `REPAIRS`; empty for valid JSON that fits the schema."""
    complete: bool
    """False where the value was cut off, or unreadable from some point on: members may be missing."""

    @property
    def how(self) -> str:
        """The parse mode for reports: "strict", "none", or the repairs joined by "+"."""
        if self.value is None:
            return "none"
        return "+".join(self.repairs) or "strict"


_NONE = Reading(None, (), complete=False)
_MAX_ENCODINGS = 4


def read_json(text: str, schema: Schema | None = None, *, coerced: bool = True) -> Reading:
    """Read the object (or array) that a text means.

    Args:
        text: a completion: JSON, nearly JSON, or anything else.
        schema: what is expected. Its types decide what the text alone cannot ("4,5" in quotes, "não"), and its keys
            which of several objects is meant. Where its type is "object", only an object is a value.
        coerced: whether values of another type or spelling become what the schema asks for; otherwise they stay as
            they are written, and the repairs are those of the text alone.

    Returns:
        The reading. Its value is None where the text holds no object or array, or none that can be told from prose; a
        bare number or text (`4,5`) is no value. Never raises, and takes time in proportion to the length of the text.
    """
    try:
        reading = _read(text.lstrip(), schema, 0)
        if schema is None or not coerced or reading.value is None:
            return reading
        repairs = set(reading.repairs)
        return Reading(coerce(reading.value, schema, repairs, _decode), in_order(repairs), reading.complete)
    except RecursionError:  # the caller was near the limit already
        return _NONE


def _read(text: str, schema: Schema | None, encodings: int) -> Reading:
    found = valid_at(text, 0)
    if found is not None and not text[found[1] :].strip():
        value = found[0]
        if isinstance(value, dict) or (isinstance(value, list) and not _wants_object(schema)):
            return Reading(value, (), complete=True)
        if isinstance(value, str) and encodings < _MAX_ENCODINGS:
            reading = _read(value.lstrip(), schema, encodings + 1)
            if reading.value is None:
                return _NONE
            return Reading(reading.value, in_order({*reading.repairs, "double_encoded"}), complete=reading.complete)
    candidate = find(text, schema, invalid=found is None)
    listed = schema is None or "array" not in schema.types or (candidate and isinstance(candidate.value, list))
    settled = candidate is not None and candidate.complete and listed
    if not settled and (blank := without_breaks(text)) is not None:
        other = find(blank, schema)
        if other is not None and (candidate is None or other.complete):
            candidate = other
            candidate.repairs.add("escape")
    if candidate is None or "unreadable" in candidate.repairs:
        other = find(text, schema, invalid=True, far=True)
        if other is not None and other.complete and (candidate is None or other.rank[:2] > candidate.rank[:2]):
            candidate = other
    if candidate is None and (plain := without_entities(text)) is not None:
        candidate = find(plain, schema)
        if candidate is not None:
            candidate.repairs.add("html_entities")
    if candidate is None:
        return _NONE
    if not candidate.repairs:
        candidate.repairs.add("syntax")
    return Reading(candidate.value, in_order(candidate.repairs), complete=candidate.complete)


def _decode(text: str, schema: Schema, repairs: set[str]) -> Any:
    """Read a text that is an object or array and nothing else."""
    reading = _read(text.strip(), schema, 0) if text.lstrip()[:1] in tuple('{[`"') else _NONE
    if not reading.complete or type(reading.value) not in schema.accepts:
        return None
    if not {"prose", "several", "thought"}.isdisjoint(reading.repairs):
        return None
    repairs.update(reading.repairs, ("double_encoded",))
    return reading.value


def _wants_object(schema: Schema | None) -> bool:
    return schema is not None and "object" in schema.types
