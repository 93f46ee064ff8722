"""A JSON schema of an object with known keys as its fixed text, and the languages of what stands between.

Supported are objects (nested, too) of `properties` with string, number, integer, boolean, null, `enum`, `const`, arrays
of these, lists of types and `anyOf`; `minimum`, `maximum`, `minLength`, `maxLength`, `minItems`, `maxItems`. All
properties are written, in the schema's order, as `json.dumps` writes them. A keyword that would narrow a value further
is an error, because what is promised is that an answer fits the schema.

A number is written without an exponent and lies within 1e15 of 0; a string has no `\\u`, its characters stand for
themselves.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from plumbline.policies.masked.regular import Part, either, machine, one, repeated, sequence, text

SAID = frozenset({"title", "description", "default", "examples", "$schema", "$id", "$comment", "additionalProperties"})
"""Keywords that leave the values as they are; of other properties there are none here."""
OF_TYPE = {
    "string": {"minLength", "maxLength"},
    "number": {"minimum", "maximum"},
    "integer": {"minimum", "maximum"},
    "boolean": set[str](),
    "null": set[str](),
    "array": {"items", "minItems", "maxItems"},
}
"""Keywords that narrow a type."""
MOST = 256
"""The largest length or number of items that is counted, and the most members of an enum."""
LARGEST = Decimal(10**15)
"""Beyond the range of a number that has no bound: what lies below is exact in double precision."""
NUMBERS = ("0", "7", "0.5", "4.5", "-3.5", "12", "-42", "12345", "-1234.56")
TEXTS = ("a", "Olá, é 1.", "não chegou")


@dataclass(frozen=True, slots=True)
class Value:
    """What may stand at one place of a document."""

    part: Part
    samples: tuple[str, ...]
    """Some of it, as JSON."""
    finite: bool = False
    """Whether the samples are all of it."""
    elastic: bool = False
    """Whether a value may be long: texts and arrays."""
    quoted: bool = False
    """Whether every value opens with a quote."""


@dataclass(frozen=True, slots=True)
class Form:
    """A document: text, value, text, ..., value, text."""

    texts: tuple[str, ...]
    values: tuple[Value, ...]

    def written(self, number: int) -> list[str]:
        """An example: fixed texts and samples in turn, of each value the sample `number`, over and over."""
        values = [value.samples[number % len(value.samples)][value.quoted :] for value in self.values]
        texts = [self.before(index) for index in range(len(values))]
        return [part for pair in zip(texts, values, strict=True) for part in pair] + [self.texts[-1]]

    def before(self, index: int) -> str:
        """The text before a value, with the quote that the value opens with whatever it is."""
        return self.texts[index] + '"' * self.values[index].quoted


def read_form(schema: str) -> Form:
    """The form of a schema, given as JSON.

    Raises:
        ValueError: it is not JSON, or says something that a form cannot hold to.
    """
    try:
        decoded = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the scaffold's schema is not JSON ({error})") from error
    texts, values = [""], list[Value]()
    try:
        _object(decoded, "the schema", texts, values)
    except RecursionError as error:
        raise ValueError("the scaffold's schema is nested too deeply") from error
    if not values:
        raise ValueError("the scaffold's schema names no property, so there is nothing to fill in")
    return Form(tuple(texts), tuple(values))


def _object(schema: Any, where: str, texts: list[str], values: list[Value]) -> None:
    """Append an object's text to the last of `texts`, and what follows each of its values."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or not properties or schema.get("type", "object") != "object":
        raise ValueError(f"{where} is not an object with known properties")
    _only(schema, where, SAID | {"type", "properties", "required"})
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(key, str) and key in properties for key in required):
        raise ValueError(f"{where} requires a property that it does not describe")
    for index, (key, child) in enumerate(properties.items()):
        texts[-1] += ("{" if index == 0 else ", ") + json.dumps(key, ensure_ascii=False) + ": "
        if isinstance(child, Mapping) and "properties" in child:
            _object(child, f"{where}.{key}", texts, values)
        else:
            values.append(_value(child, f"{where}.{key}"))
            texts.append("")
    texts[-1] += "}"


def _only(schema: Mapping[str, Any], where: str, known: set[str] | frozenset[str]) -> None:
    if unknown := sorted(set(schema) - known):
        raise ValueError(f"{where} says {unknown[0]}, which a scaffold cannot hold to")


def _value(schema: Any, where: str) -> Value:
    if not isinstance(schema, Mapping):
        raise ValueError(f"{where} is not a schema with a type")  # noqa: TRY004 - of the recipe, not of the code
    if "enum" in schema or "const" in schema:
        _only(schema, where, SAID | {"enum", "const", "type"})
        members = [schema["const"]] if "const" in schema else schema["enum"]
        if not isinstance(members, list) or not 0 < len(members) <= MOST:
            raise ValueError(f"{where}.enum is not a list of 1 to {MOST} values")
        return _members([member for member in members if _fits(member, schema.get("type"))], where)
    if "anyOf" in schema:
        _only(schema, where, SAID | {"anyOf"})
        branches = schema["anyOf"]
        if not isinstance(branches, list) or not branches:
            raise ValueError(f"{where}.anyOf is not a list of schemas")
        return _either([_value(branch, where) for branch in branches])
    names = schema.get("type")
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, list) or not listed or not all(isinstance(n, str) and n in OF_TYPE for n in listed):
        raise ValueError(f"{where}.type is {names!r}, and not among {', '.join(OF_TYPE)}")
    _only(schema, where, SAID | {"type"}.union(*(OF_TYPE[name] for name in listed)))
    return _either([_of_type(name, schema, where) for name in dict.fromkeys(listed)])


def _fits(member: Any, names: Any) -> bool:
    """Whether an enum's member is of the type that is named beside it, if any is."""
    kind = {str: "string", bool: "boolean", type(None): "null", int: "integer", float: "number"}.get(type(member))
    listed = [names] if isinstance(names, str) else names
    return listed is None or kind in listed or (kind == "integer" and "number" in listed)


def _members(members: Sequence[Any], where: str) -> Value:
    written = tuple(dict.fromkeys(json.dumps(member, ensure_ascii=False) for member in members))
    if not written or any(isinstance(member, dict | list) for member in members):
        raise ValueError(f"{where} has no member that is a text, a number, true, false or null")
    quoted = all(isinstance(member, str) for member in members)
    return Value(either(*map(text, written)), written, finite=True, quoted=quoted)


def _either(values: Sequence[Value]) -> Value:
    if len(values) == 1:
        return values[0]
    return Value(
        either(*(value.part for value in values)),
        tuple(sample for value in values for sample in value.samples),
        finite=all(value.finite for value in values),
        elastic=any(value.elastic for value in values),
        quoted=all(value.quoted for value in values),
    )


def _of_type(name: str, schema: Mapping[str, Any], where: str) -> Value:
    if name == "boolean":
        return _members([True, False], where)
    if name == "null":
        return _members([None], where)
    if name == "string":
        least, most = _bounds(schema, where, "minLength", "maxLength")
        samples = [one for one in TEXTS if least <= len(one) and (most is None or len(one) <= most)] or ["a" * least]
        part = sequence(text('"'), repeated(CHARACTER, least, most), text('"'))
        return Value(part, tuple(json.dumps(one, ensure_ascii=False) for one in samples), elastic=True, quoted=True)
    if name == "array":
        return _array(schema, where)
    return _number(schema, where, fraction=name == "number")


def _bounds(schema: Mapping[str, Any], where: str, least: str, most: str) -> tuple[int, int | None]:
    low, high = schema.get(least, 0), schema.get(most)
    for value in (low, 0 if high is None else high):
        if type(value) is not int or not 0 <= value <= MOST:
            raise ValueError(f"{where}: {least} and {most} are whole numbers from 0 to {MOST} in a scaffold")
    if high is not None and low > high:
        raise ValueError(f"{where}: {least} is above {most}")
    return low, high


def _array(schema: Mapping[str, Any], where: str) -> Value:
    item = _value(schema.get("items"), f"{where}.items")
    least, most = _bounds(schema, where, "minItems", "maxItems")
    following = sequence(text(", "), item.part)
    parts = [sequence(item.part, repeated(following, max(least, 1) - 1, None if most is None else most - 1))]
    inside = parts[0] if most != 0 else text("")
    filled = [", ".join([item.samples[0]] * count) for count in (max(least, 1), max(least, 2))]
    samples = [f"[{one}]" for one, count in zip(filled, (1, 2), strict=True) if most is None or count <= most]
    if least == 0:
        inside, samples = either(inside, text("")), [*samples, "[]"]
    return Value(sequence(text("["), inside, text("]")), tuple(samples or [f"[{filled[0]}]"]), elastic=True)


_TAIL = one(range(0x80, 0xC0))
CHARACTER = either(
    one(set(range(0x20, 0x80)) - set(b'"\\')),
    sequence(one(b"\\"), one(b'"\\/bfnrt')),
    sequence(one(range(0xC2, 0xE0)), _TAIL),
    sequence(one([0xE0]), one(range(0xA0, 0xC0)), _TAIL),
    sequence(one([*range(0xE1, 0xED), 0xEE, 0xEF]), _TAIL, _TAIL),
    sequence(one([0xED]), one(range(0x80, 0xA0)), _TAIL),
    sequence(one([0xF0]), one(range(0x90, 0xC0)), _TAIL, _TAIL),
    sequence(one(range(0xF1, 0xF4)), _TAIL, _TAIL, _TAIL),
    sequence(one([0xF4]), one(range(0x80, 0x90)), _TAIL, _TAIL),
)
"""One character of a JSON string, in well-formed UTF-8 (RFC 3629, section 4)."""


def _number(schema: Mapping[str, Any], where: str, *, fraction: bool) -> Value:
    low, high = (_bound(schema, key, where) for key in ("minimum", "maximum"))
    parts = []
    if high is None or high >= 0:
        parts.append(_magnitudes(max(low or Decimal(0), Decimal(0)), LARGEST if high is None else high, fraction))
    if low is None or low < 0:
        least, most = max(-(high or Decimal(0)), Decimal(0)), LARGEST if low is None else -low
        parts.append(sequence(text("-"), _magnitudes(least, most, fraction)))
    tried = (*NUMBERS, *(format(bound, "f") for bound in (low, high) if bound is not None))
    samples = tuple(
        sample
        for sample in dict.fromkeys(tried)
        if (fraction or "." not in sample)
        and (low is None or Decimal(sample) >= low)
        and (high is None or Decimal(sample) <= high)
    )
    if not parts or not samples:
        raise ValueError(f"{where} admits no number that a scaffold could try")
    return Value(either(*parts), samples)


def _bound(schema: Mapping[str, Any], key: str, where: str) -> Decimal | None:
    value = schema.get(key)
    if value is None:
        return None
    if type(value) not in {int, float} or not abs(value) <= 1e15:
        raise ValueError(f"{where}.{key} is not a number up to 1e15")
    return Decimal(str(value))


def _magnitudes(low: Decimal, high: Decimal, fraction: bool) -> Part:
    """Numbers without a sign from `low` to `high`. A state compares the digits so far with as many of each bound's."""
    bounds = [_digits(low), _digits(high)]
    longest = 1 + max(len(part) for pair in bounds for part in pair)

    def compare(signs: tuple[int, ...], place: int, digit: str, part: int) -> tuple[int, ...]:
        found = []
        for sign, bound in zip(signs, bounds, strict=True):
            other = bound[part][place : place + 1] or "0"
            beyond = part == 0 and place >= len(bound[0])  # the number of digits decides
            found.append(sign if sign or beyond else (digit > other) - (digit < other))
        return tuple(found)

    def whole(state: tuple[str, int, tuple[int, ...]]) -> tuple[int, ...]:
        """How the whole part compares, now that its number of digits is known."""
        _, count, signs = state
        lengths = [len(before) for before, _ in bounds]
        return tuple(
            sign if count == length else (count > length) - (count < length)
            for sign, length in zip(signs, lengths, strict=True)
        )

    def move(state: tuple[str, int, tuple[int, ...]], character: str) -> tuple[str, int, tuple[int, ...]] | None:
        phase, count, signs = state
        if character == ".":
            return ("point", 0, whole(state)) if fraction and phase in {"zero", "whole"} else None
        if phase == "zero":
            return None
        if phase in {"start", "whole"}:
            after = "zero" if phase == "start" and character == "0" else "whole"
            return (after, min(count + 1, longest), compare(signs, count, character, 0))
        return ("fraction", min(count + 1, longest), compare(signs, count, character, 1))

    def ends(state: tuple[str, int, tuple[int, ...]]) -> bool:
        phase, count, signs = state
        if phase in {"start", "point"}:
            return False
        below, above = signs if phase == "fraction" else whole(state)
        rest = bounds[0][1][count if phase == "fraction" else 0 :]
        return above <= 0 and (below > 0 or (below == 0 and not rest))

    first: tuple[str, int, tuple[int, ...]] = ("start", 0, (0, 0))
    return machine(first, move, ends, "0123456789.")


def _digits(bound: Decimal) -> tuple[str, str]:
    """The digits of a bound before and behind the point."""
    before, _, behind = format(abs(bound), "f").partition(".")
    return before.lstrip("0") or "0", behind.rstrip("0")
