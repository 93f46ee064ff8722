"""Types from a JSON Schema, and the coercions that they make unambiguous.

Only what helps to read a text is taken from a schema: `type`, `properties`, `items`, `enum`,
`const`, `required`, and `anyOf`/`oneOf` of types (how an optional number is often written). Every
other keyword can only narrow these further, so it is left aside; a key whose type is not said this
way (`$ref`, `allOf`) has no typed coercion, and nothing can go wrong there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from plumbline.errors import DataError
from plumbline.tasks.text.numbers import read_number, without_accents

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
_MAX_DEPTH = 64

TRUE_WORDS = frozenset({"true", "verdadeiro", "verdadeira", "sim", "s", "yes", "y", "v", "1"})
FALSE_WORDS = frozenset({"false", "falso", "falsa", "não", "nao", "n", "no", "f", "0"})
NULL_WORDS = frozenset(
    {
        "null",
        "none",
        "nil",
        "undefined",
        "nulo",
        "nula",
        "nenhum",
        "nenhuma",
        "n/a",
        "nan",
        "-",
        "—",
        "",
    }
)


@dataclass(frozen=True, slots=True)
class Schema:
    """What is expected at one place of a document. Build it with `Schema.from_json`; `Schema()`
    expects nothing.

    Example:
        schema = Schema.from_json({"type": "object", "properties": {"nota": {"type": ["number",
        "null"]}}})
    """

    types: frozenset[str] = frozenset()
    """Names of the types that are admitted; empty where any is, or where the schema says it in a
    way not supported."""
    properties: Mapping[str, "Schema"] = field(default_factory=dict)
    items: "Schema | None" = None
    enum: tuple[Any, ...] = ()
    required: frozenset[str] = frozenset()
    accepts: frozenset[type] = field(init=False)
    """The Python types that fit as they are."""

    def __post_init__(self) -> None:
        accepts = frozenset(python for name in self.types for python in _TYPES[name])
        object.__setattr__(self, "accepts", accepts)

    @classmethod
    def from_json(cls, schema: Any) -> "Schema":
        """Compile a JSON Schema.

        Args:
            schema: the decoded schema, a mapping (or True, which admits everything).

        Raises:
            DataError: it is no schema: not a mapping, an unknown type, properties that are no
                mapping.
        """
        return _compile(schema, "schema", 0)

    @property
    def numeric(self) -> bool:
        """Whether the schema names a number or an integer."""
        return "number" in self.types or "integer" in self.types

    @property
    def integral(self) -> bool:
        """Whether the schema names an integer, and no other number."""
        return "integer" in self.types and "number" not in self.types

    @property
    def textual(self) -> bool:
        """Whether the schema names a text, and no number."""
        return "string" in self.types and not self.numeric

    def admits(self, name: str) -> bool:
        """Whether a value of this JSON type may stand here, as far as the schema says."""
        return not self.types or name in self.types


ANYTHING = Schema()
"""Of a place of which nothing is said; another `Schema()` is of one of which something is, in a way
not supported."""


def _check(right: bool, cause: str) -> None:
    if not right:
        fix = (
            'give a JSON Schema such as {"type": "object", "properties": {"nota": {"type": '
            '"number"}}}'
        )
        raise DataError(cause, fix)


def _compile(schema: Any, where: str, depth: int) -> Schema:
    if isinstance(schema, bool):
        return Schema()
    is_mapping = isinstance(schema, Mapping)
    _check(
        is_mapping, f"{where} is no JSON Schema: a mapping is expected, not {type(schema).__name__}"
    )
    if depth > _MAX_DEPTH or "$ref" in schema:
        return Schema()
    names = schema.get("type", [])
    listed = [names] if isinstance(names, str) else names
    if not _is_list(listed) or not all(isinstance(name, str) and name in _TYPES for name in listed):
        raise DataError(f"{where}.type is {names!r}", f"use one or a list of {', '.join(_TYPES)}")
    types = frozenset(listed)
    properties = schema.get("properties", {})
    _check(
        isinstance(properties, Mapping), f"{where}.properties must be a mapping of keys to schemas"
    )
    members = {
        str(key): _compile(child, f"{where}.properties.{key}", depth + 1)
        for key, child in properties.items()
    }
    items, elements = schema.get("items"), None
    if isinstance(items, Mapping | bool):
        elements = _compile(items, f"{where}.items", depth + 1)
    else:  # a list (one schema for each position) is not supported
        _check(items is None or _is_list(items), f"{where}.items must be a schema")
    enum = schema.get("enum", [schema["const"]] if "const" in schema else [])
    required = schema.get("required", [])
    _check(_is_list(enum), f"{where}.enum must be a list of values")
    keys = _is_list(required) and all(isinstance(key, str) for key in required)
    _check(keys, f"{where}.required must be a list of keys")
    if not types and members:
        types = frozenset({"object"})
    if not types and enum:
        types = frozenset(map(_type_name, enum))
    branches = schema.get("anyOf", schema.get("oneOf"))
    if branches is None or types:
        return Schema(types, members, elements, tuple(enum), frozenset(required))
    # `anyOf` of types, at most one of which says more than its type; anything else admits
    # everything.
    _check(_is_list(branches), f"{where}.anyOf must be a list of schemas")
    compiled = [_compile(branch, f"{where}.anyOf", depth + 1) for branch in branches]
    rich = [branch for branch in compiled if branch.properties or branch.items or branch.enum]
    if len(rich) > 1 or not all(branch.types for branch in compiled):
        return Schema()
    types = types.union(*(branch.types for branch in compiled))
    return replace(rich[0], types=types) if rich else Schema(types)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = [name for name, python in _TYPES.items() if isinstance(value, python)]
    return names[0] if names else "string"


Decode = Callable[[str, Schema, set[str]], Any]
"""Reads a text as the object or array that a schema asks for, and adds to the repairs; None where
it is none."""


def coerce(value: Any, schema: Schema, repairs: set[str], decode: Decode | None = None) -> Any:
    """Turn what disagrees with the schema into what was meant, where there is only one thing it can
    be.

    Args:
        value: a decoded JSON value.
        schema: what is expected.
        repairs: the names of what was done are added here, and "mismatch" where a value still does
            not fit.
        decode: reads an object or array that was written as a text.

    Returns:
        The value, or another. What has no single reading stays (a text such as "4,5/5" for a
        number).
    """
    if schema.types and type(value) not in schema.accepts:
        value = _convert(value, schema, repairs, decode)
        whole = isinstance(value, float) and value.is_integer() and "integer" in schema.types
        if type(value) not in schema.accepts and not whole:
            repairs.add("mismatch")
            return value
    if isinstance(value, dict):
        if not schema.required <= value.keys():
            repairs.add("mismatch")
        known = schema.properties.keys() & value.keys()
        if not known:
            return value
        return {
            **value,
            **{key: coerce(value[key], schema.properties[key], repairs, decode) for key in known},
        }
    if isinstance(value, list):
        child = schema.items
        return (
            value
            if child is None
            else [coerce(element, child, repairs, decode) for element in value]
        )
    if not schema.enum or value in schema.enum:
        return value
    plain = _fold_text(value) if isinstance(value, str) else None
    equal = [
        member for member in schema.enum if isinstance(member, str) and _fold_text(member) == plain
    ]
    repairs.add("enum" if len(equal) == 1 else "mismatch")
    return equal[0] if len(equal) == 1 else value


def _convert(value: Any, schema: Schema, repairs: set[str], decode: Decode | None) -> Any:
    types = schema.types
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and "boolean" in types
        and value in (0, 1)
    ):
        repairs.add("boolean_word")
        return value == 1
    if not isinstance(value, str):
        return value
    if schema.numeric:
        number = read_number(value, integer="number" not in types, quoted=True)
        if number is not None:
            wanted = number.value
            if wanted is not None and "number" not in types:
                wanted = int(wanted) if wanted == int(wanted) else None
            if wanted is not None or (number.value is None and "null" in types):
                repairs.update(number.repairs, ("quoted_number",))
                return wanted
    word = value.strip().casefold()
    if "boolean" in types and (word in TRUE_WORDS or word in FALSE_WORDS):
        repairs.add("boolean_word")
        return word in TRUE_WORDS
    if "null" in types and word in NULL_WORDS:
        repairs.add("null_word")
        return None
    if decode is not None and not types.isdisjoint({"object", "array"}):
        inner = decode(value, schema, repairs)
        return value if inner is None else inner
    return value


def _fold_text(text: str) -> str:
    """Without case, outer blanks and accents."""
    return without_accents(text.strip().casefold())
