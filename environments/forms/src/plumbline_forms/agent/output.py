"""The answer to a browser agent: `AgentOutput` in the variant that the request's JSON schema describes.

browser-use asks for several: with and without thinking, flash (memory and actions alone), and one of which `done` is
the only action. None is assumed here: keys, actions and their parameters are taken from the schema, and what does not
conform to it is never sent.
"""

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any

from plumbline.config.imports import missing
from plumbline.errors import RecipeError
from plumbline.records import Message

Schema = Mapping[str, Any]
Act = Mapping[str, Mapping[str, Any]]
"""One action: its name, and its parameters."""
MOST_SCHEMA = 200_000
"""Characters of a schema that is read out of a system prompt."""
_DEEP = 24
"""References that are followed."""
_BEGIN, _END = "<json_schema>", "</json_schema>"
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
    problem_of(None, found)  # what is no schema is refused before anything of it is taken for granted
    if "action" not in found.get("properties", {}):
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
    items = _followed(_followed(schema["properties"]["action"], schema).get("items", {}), schema)
    found: dict[str, Schema] = {}
    for variant in _variants(items, schema):
        for name, parameters in variant.get("properties", {}).items():
            options = _variants(_followed(parameters, schema), schema)
            found[name] = next((one for one in options if one.get("type") != "null"), {})
    return found or None


def _variants(schema: Schema, root: Schema) -> list[Schema]:
    return [_followed(one, root) for one in schema.get("anyOf") or schema.get("oneOf") or [schema]]


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
        actions.append({name: _filled((known or {}).get(name, {}), values)})
    given: dict[str, Any] = {"action": actions}
    given |= {key: value for key, value in brain.items() if key in schema["properties"]}
    output = _filled(schema, given)
    if problem := problem_of(output, schema):
        raise RecipeError(
            f"no step of a form conforms to the schema: {problem}",
            "use the agent's own output (no output_model_schema)",
        )
    return json.dumps(output, ensure_ascii=False)


def _filled(schema: Schema, given: Mapping[str, Any]) -> dict[str, Any]:
    """An object with what is given, and for the rest of what is required its default, or null where that is allowed."""
    found = dict(given)
    for name in schema.get("required", ()):
        wanted = schema.get("properties", {}).get(name, {})
        if name in found or not isinstance(wanted, Mapping):
            continue
        if "default" in wanted:
            found[name] = wanted["default"]
        elif _may_be_null(wanted):
            found[name] = None
    return found


def _followed(schema: Schema | bool, root: Schema) -> Schema:
    """A schema, with references within the document followed; {} for those that are only true or false.

    Raises:
        RecipeError: a reference leads nowhere, or in a circle.
    """
    reference = None
    for _ in range(_DEEP):
        if not isinstance(schema, Mapping):
            return {}
        reference = schema.get("$ref")
        if reference is None:
            return schema
        found: Any = root
        for part in str(reference).removeprefix("#/").split("/"):
            found = found.get(part) if isinstance(found, Mapping) else None
        if found is None:
            break
        schema = found
    raise RecipeError(f"the schema's reference {str(reference)[:60]!r} leads nowhere", "send the whole schema")


def _may_be_null(schema: Schema) -> bool:
    kinds = [one.get("type", ()) for one in _variants(schema, schema)]
    return any("null" in ([kind] if isinstance(kind, str) else kind) for kind in kinds)


def problem_of(value: object, schema: Schema) -> str:
    """What in a value does not conform to a schema; "" where nothing does. Nothing that it refers to is fetched.

    Raises:
        RecipeError: it is no schema, or the package that reads schemas is not installed.
    """
    try:
        import jsonschema_rs
    except ModuleNotFoundError as error:
        raise missing("JSON by a schema", error, RecipeError) from error
    try:
        errors = jsonschema_rs.validator_for(dict(schema), offline=True).iter_errors(value)
        return next((error.message[:200] for error in errors), "")
    except ValueError as error:
        said = str(error).partition("\n")[0][:200]
        raise RecipeError(f"the schema of the agent's output is no JSON Schema: {said}", "correct it") from error
