"""The answer to a browser agent: `AgentOutput` in the variant that the request's JSON schema describes.

browser-use asks for several: with and without thinking, flash (memory and actions alone), and one of which `done` is
the only action. None is assumed here: keys, actions and their parameters are taken from the schema, and what does not
conform to it is never sent.
"""

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any

from plumbline.errors import RecipeError
from plumbline.records import Message

Schema = Mapping[str, Any]
Act = Mapping[str, Mapping[str, Any]]
"""One action: its name, and its parameters."""
MOST_SCHEMA = 200_000
"""Characters of a schema that is read out of a system prompt."""
_DEEP = 24
"""References and nested schemas that are followed."""
_BEGIN, _END = "<json_schema>", "</json_schema>"
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
_PLAIN: Schema = {
    "properties": {
        **{key: {"type": "string"} for key in ("evaluation_previous_goal", "memory", "next_goal")},
        "action": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["evaluation_previous_goal", "memory", "next_goal", "action"],
}
"""What every variant of the agent reads, for an agent that sends no schema."""


def schema_of(messages: Sequence[Message], schema: Schema | None) -> Schema:
    """The schema that an answer has to follow: the request's, else the one in the system prompt, else the common one.

    browser-use writes it into the system prompt where it is told to (`add_schema_to_system_prompt`), as Python prints
    a dict.

    Raises:
        RecipeError: it is none of `AgentOutput`.
    """
    if schema:
        found = dict(schema)
    else:
        instructions = next((one["content"] for one in messages if one["role"] == "system"), "")
        found = _written(instructions) or dict(_PLAIN)
    if "action" not in (found.get("properties") or {}):
        raise RecipeError(
            "this model plans a browser agent's steps, and the schema has no list `action`",
            "ask it for AgentOutput; what else an agent asks for (judging, extracting) needs another model",
        )
    return found


def _written(instructions: str) -> dict[str, Any] | None:
    begin = instructions.rfind(_BEGIN)
    end = instructions.find(_END, begin)
    if begin < 0 or end < 0 or end - begin > MOST_SCHEMA:
        return None
    text = instructions[begin + len(_BEGIN) : end].strip()
    try:
        found = ast.literal_eval(text)  # literals alone: nothing is run
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    inner = found.get("schema", found) if isinstance(found, dict) else None
    return inner if isinstance(inner, dict) else None


def actions_of(schema: Schema) -> dict[str, Schema] | None:
    """The actions that the agent offers, with the schemas of their parameters; None where the schema names none."""
    items = _followed(schema["properties"]["action"].get("items") or {}, schema)
    variants = [_followed(one, schema) for one in items.get("anyOf") or items.get("oneOf") or [items]]
    found: dict[str, Schema] = {}
    for variant in variants:
        for name, parameters in (variant.get("properties") or {}).items():
            options = parameters.get("anyOf") or parameters.get("oneOf") or [parameters]
            found[name] = next(
                (inner for one in options if (inner := _followed(one, schema)).get("type") != "null"), parameters
            )
    return found or None


def write_output(schema: Schema, brain: Mapping[str, str], acts: Sequence[Act]) -> str:
    """The answer as JSON.

    Args:
        schema: of the request.
        brain: what the agent is told beside the actions (memory, next_goal, ...); keys the schema lacks are left out.
        acts: the actions, with the parameters that matter; the others get their defaults.

    Raises:
        RecipeError: the schema demands what a plan of a form does not say.
    """
    known = actions_of(schema)
    actions = []
    for act in acts:
        ((name, values),) = act.items()
        actions.append({name: _filled((known or {}).get(name, {}), values, schema)})
    given: dict[str, Any] = {"action": actions}
    given |= {key: value for key, value in brain.items() if key in schema["properties"]}
    output = _filled(schema, given, schema)
    if problem := problem_of(output, schema):
        raise RecipeError(
            f"no step of a form conforms to the schema: {problem}",
            "use the agent's own output (no output_model_schema)",
        )
    return json.dumps(output, ensure_ascii=False)


def _filled(schema: Schema, given: Mapping[str, Any], root: Schema) -> dict[str, Any]:
    """An object with what is given, and for the rest of what is required its default, or null where that is allowed."""
    found = dict(given)
    for name in schema.get("required") or ():
        wanted = (schema.get("properties") or {}).get(name, {})
        if name in found:
            continue
        if "default" in wanted:
            found[name] = wanted["default"]
        elif not problem_of(None, wanted, root):
            found[name] = None
    return found


def _followed(schema: Schema, root: Schema) -> Schema:
    """A schema, with references within the document followed.

    Raises:
        RecipeError: a reference leads nowhere, or in a circle.
    """
    for _ in range(_DEEP):
        reference = schema.get("$ref")
        if reference is None:
            return schema
        found: Any = root
        for part in str(reference).removeprefix("#/").split("/"):
            found = found.get(part) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping):
            break
        schema = found
    raise RecipeError(f"the schema's reference {str(schema.get('$ref'))[:60]!r} leads nowhere", "send the whole schema")


def problem_of(value: object, schema: Schema, root: Schema | None = None, depth: int = 0) -> str:
    """What in a value does not conform to a schema; "" where nothing does.

    The keywords that pydantic writes for `AgentOutput`: type, enum, const, properties, required, additionalProperties,
    items, minItems (and browser-use's min_items), minimum, minLength, maxLength, anyOf, oneOf, allOf, $ref.
    """
    root = schema if root is None else root
    if depth > _DEEP:
        return "it is nested too deeply"
    schema = _followed(schema, root)
    kinds = schema.get("type")
    if kinds is not None:
        names = [kinds] if isinstance(kinds, str) else list(kinds)
        if not any(_is(value, name) for name in names):
            return f"{str(value)[:40]!r} is no {' or '.join(map(str, names))}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{str(value)[:40]!r} is none of its values"
    if "const" in schema and value != schema["const"]:
        return f"{str(value)[:40]!r} is not {schema['const']!r}"
    for key in ("anyOf", "oneOf"):
        tried = [problem_of(value, one, root, depth + 1) for one in schema.get(key) or ()]
        if tried and all(tried):
            return tried[0] if len(tried) == 1 else f"{str(value)[:60]!r} is none of {len(tried)} variants"
    inner = [problem_of(value, one, root, depth + 1) for one in schema.get("allOf") or ()]
    inner += _of_object(value, schema, root, depth) if isinstance(value, dict) else []
    inner += _of_list(value, schema, root, depth) if isinstance(value, list) else []
    inner += _of_scalar(value, schema)
    return next(filter(None, inner), "")


def _is(value: object, name: str) -> bool:
    return isinstance(value, _TYPES.get(name, ())) and (not isinstance(value, bool) or name == "boolean")


def _of_object(value: dict[str, Any], schema: Schema, root: Schema, depth: int) -> list[str]:
    properties = schema.get("properties") or {}
    found = [f"{name} is missing" for name in schema.get("required") or () if name not in value]
    if schema.get("additionalProperties") is False:
        found += [f"{name} is unknown" for name in value if name not in properties]
    return found + [
        problem_of(inner, properties[name], root, depth + 1) for name, inner in value.items() if name in properties
    ]


def _of_list(value: list[Any], schema: Schema, root: Schema, depth: int) -> list[str]:
    least = schema.get("minItems", schema.get("min_items", 0))
    found = [f"a list of {len(value)}, not of {least} or more"] if len(value) < least else []
    return found + [problem_of(one, schema.get("items") or {}, root, depth + 1) for one in value]


def _of_scalar(value: object, schema: Schema) -> list[str]:
    if isinstance(value, str):
        short, long = len(value) < schema.get("minLength", 0), len(value) > schema.get("maxLength", len(value))
        return [f"a text of {len(value)} characters"] if short or long else []
    if isinstance(value, int | float) and not isinstance(value, bool) and value < schema.get("minimum", value):
        return [f"{value} is below {schema['minimum']}"]
    return []
