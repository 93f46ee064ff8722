"""A plan's actions as the agent's own, and the answer that carries them.

What a label means is decided where executors decide it (`executors/operations.py`), and what is
typed is what they type. The agent's actions go by the element: `input`, `select_dropdown`, `click`,
`upload_file`, `send_keys`. Two things its actions cannot do are done by a fixed script
(`evaluate`), where it has that: several options of one list (its `select_dropdown` takes back what
was chosen before), and several files for one control.

The answer is `AgentOutput` in the variant that the request's JSON schema describes. browser-use
asks for several: with and without thinking, flash (memory and actions alone), and one of which
`done` is the only action. None is assumed: keys, actions and their parameters are taken from the
schema, and what does not conform to it is never sent.
"""

import ast
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import jsonschema_rs

from plumbline.errors import RecipeError
from plumbline.records import Message
from plumbline_browser.plans.actions import Action, Attach, Click, Select, Submit
from plumbline_browser.plans.grammar import loose
from plumbline_forms.agent.scene import INCOMPLETE, LISTS, Scene
from plumbline_forms.executors import operations as does
from plumbline_forms.executors.executor import Attempt
from plumbline_forms.executors.operations import Operation, Target, find, resolve
from plumbline_forms.executors.page import Control
from plumbline_forms.values import typed

Act = Mapping[str, Mapping[str, Any]]
"""One action of the agent: its name, and its parameters."""
MARK = "Plumbline:"
"""What a script's result begins with when it did what it was to do."""
_SHOWN = 100
"""Characters of a value that the agent shows."""
_FIND = "var c=document.getElementById(w.id)||document.getElementsByName(w.name)[0];"
_CHOOSE = (
    "(function(){var w=JSON.parse(decodeURIComponent('%s'));"
    + _FIND
    + "if(!c||!c.options)return 'there is no such list';"
    "var n=0;for(var i=0;i<c.options.length;i++){var o=c.options[i];var "
    "hit=w.texts.some(function(t){"
    "return "
    "o.text.trim().toLowerCase()===t.toLowerCase()||o.value.toLowerCase()===t.toLowerCase()});"
    "if(hit){o.selected=true;n++}}"
    "c.dispatchEvent(new Event('input',{bubbles:true}));c.dispatchEvent(new "
    "Event('change',{bubbles:true}));"
    "return (n===w.texts.length?'" + MARK + " ':'only ')+n+' options chosen'})()"
)
_COLLECT = (
    "(function(){var w=JSON.parse(decodeURIComponent('%s'));"
    + _FIND
    + "if(!c||!c.files)return 'no control';"
    "var kept=Array.from(c.files);c.addEventListener('change',function(){var d=new DataTransfer();"
    "kept.concat(Array.from(c.files)).forEach(function(f){"
    "if(!Array.from(d.files).some(function(o){return o.name===f.name}))d.items.add(f)});"
    "kept=Array.from(d.files);c.files=d.files});return '" + MARK + " files are collected'})()"
)
"""From then on files are added to those that are there, as a person adds them."""


@dataclass(frozen=True, slots=True)
class Acted:
    """What one or several of a plan's actions come to on the page."""

    act: Act | None
    """None where the page is as it should be already."""
    taken: int = 1
    """How many of the plan's actions it stands for."""
    ends: bool = False
    """Whether what follows has to wait for the next step, because the page may be another one."""
    prepares: bool = False
    """It only makes the page ready for the same action, which comes with the next step."""


def act_on(
    actions: Sequence[Action], scene: Scene, offered: Collection[str] | None, *, prepared: bool
) -> Acted | Attempt:
    """What the first of the actions comes to, or how it ended where there is nothing to be done.

    Args:
        actions: what is left of the plan.
        scene: the page.
        offered: names of the actions that the agent has; None where it does not say.
        prepared: whether the page was made ready for the first of them.
    """
    first = actions[0]
    has_script = offered is None or "evaluate" in offered
    match _resolved(first, scene):
        case Attempt() as ended:
            return ended
        case does.Enter(control, text, clear):
            entered = typed(control.kind, text, scene.page.language)
            if entered.refused:
                return Attempt("refused", f"{control.called} takes no such {control.kind}")
            holds = control.value if len(control.value) < _SHOWN else None
            if clear and control.kind != "password" and holds == entered.value:
                return Acted(None)
            return Acted({"input": {"index": control.index, "text": entered.value, "clear": clear}})
        case does.Choose(control) as choice if control.kind == "multiselect":
            return _several(actions, choice, scene, has_script=has_script)
        case does.Choose(control) as choice:
            return Acted(
                {"select_dropdown": {"index": control.index, "text": _option(first, choice)}}
            )
        case does.Tick(control, on):
            return Acted(
                None
                if on is not None and control.checked == on
                else {"click": {"index": control.index}}
            )
        case does.Put(control, name):
            label = first.label if isinstance(first, Attach) else ""
            files = [
                one
                for one in actions
                if isinstance(one, Attach) and loose(one.label) == loose(label)
            ]
            if len(files) > 1 and "multiple" in control.attributes and has_script and not prepared:
                return Acted(_script(_COLLECT, control), taken=0, ends=True, prepares=True)
            return Acted({"upload_file": {"index": control.index, "path": scene.files[name]}})
        case does.Touch(control) | does.Push(control):
            return Acted({"click": {"index": control.index}})
        case does.Send():
            # The button with the action's name, else the last one that sends the form.
            label = first.label if isinstance(first, Submit | Click) else ""
            buttons = [one for one in scene.page.controls if one.kind == "button"]
            called = [one for one in buttons if loose(one.label) == loose(label)]
            sending = [one for one in buttons if one.attributes.get("type") == "submit"]
            return Acted({"click": {"index": (called or sending or buttons)[-1].index}}, ends=True)
        case does.Return():
            return Acted({"send_keys": {"keys": "Enter"}}, ends=True)
        case does.Go():
            raise AssertionError("where a plan goes is decided by who knows the task's address")


def _resolved(action: Action, scene: Scene) -> Operation | Attempt:
    """What an action comes to; of a list that the agent shows in part, its own action looks the
    option up."""
    found = resolve(action, scene.page, "/", frozenset(scene.files))
    if isinstance(action, Select) and isinstance(found, Attempt) and found.status == "not found":
        target = find(scene.page, action.label, LISTS)
        if (
            isinstance(target, Target)
            and target.kind in LISTS
            and INCOMPLETE in target.members[0].attributes
        ):
            return does.Choose(target.members[0], -1, on=True)
    return found


def _option(action: Action, choice: does.Choose) -> str:
    return (
        choice.control.choices[choice.place].text
        if choice.place >= 0
        else str(getattr(action, "option", ""))
    )


def _several(
    actions: Sequence[Action], first: does.Choose, scene: Scene, *, has_script: bool
) -> Acted | Attempt:
    """All choices of one list that stand together in the plan, as one action."""
    control, texts = first.control, []
    for action in actions:
        found = _resolved(action, scene)
        if (
            not isinstance(found, does.Choose)
            or found.control.index != control.index
            or found.on != first.on
        ):
            break
        texts.append(_option(action, found))
    others = {control.choices[place].text for place in control.chosen} - set(texts)
    if len(texts) == 1 and not others and first.on:
        return Acted({"select_dropdown": {"index": control.index, "text": texts[0]}})
    if not has_script or not first.on:
        return Attempt("refused", f"the agent cannot choose several options of {control.called}")
    return Acted(_script(_CHOOSE, control, texts=texts), len(texts), ends=True)


def _script(source: str, control: Control, **data: Any) -> Act:
    """A script with its data, which is encoded such that no sign of it can be read as part of the
    script."""
    attributes = control.attributes
    where = {
        "id": attributes.get("id", ""),
        "name": attributes.get("name", attributes.get("id", "")),
    }
    return {"evaluate": {"code": source % quote(json.dumps({**where, **data}), safe="")}}


# -- the answer ------------------------------------------------------------------------------------

Schema = Mapping[str, Any]
MOST_SCHEMA = 200_000
"""Characters of a schema that is read out of a system prompt."""
_DEEP = 24
"""References that are followed."""
_PLAIN: Schema = {
    "properties": {
        **{key: {"type": "string"} for key in ("evaluation_previous_goal", "memory", "next_goal")},
        "action": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["evaluation_previous_goal", "memory", "next_goal", "action"],
}
"""What every variant of the agent reads, for an agent that sends no schema."""


def schema_of(messages: Sequence[Message], schema: Schema | None) -> Schema:
    """The schema that an answer has to follow: the request's, else the one in the system prompt,
    else the common one.

    browser-use writes it into the system prompt where it is told to
    (`add_schema_to_system_prompt`), as Python prints a dict.

    Raises:
        RecipeError: it is none of `AgentOutput`.
    """
    instructions = next((one["content"] for one in messages if one["role"] == "system"), "")
    found = schema or _written(instructions) or _PLAIN
    # what is no schema is refused before anything of it is taken for granted
    _problem_of(None, found)
    if "action" not in found.get("properties", {}):
        raise RecipeError(
            "this model plans a browser agent's steps, and the schema has no list `action`",
            "ask it for AgentOutput; what else an agent asks for (judging, extracting) needs "
            "another model",
        )
    return found


def _written(instructions: str) -> Schema | None:
    text, end, _ = instructions.rpartition("<json_schema>")[2].partition("</json_schema>")
    if not end or "<json_schema>" not in instructions or len(text) > MOST_SCHEMA:
        return None
    try:
        found = ast.literal_eval(text.strip())  # literals alone: nothing is run
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    inner = found.get("schema", found) if isinstance(found, dict) else None
    return inner if isinstance(inner, dict) else None


def actions_of(schema: Schema) -> dict[str, Schema] | None:
    """The actions that the agent offers, with the schemas of their parameters; None where the
    schema names none."""
    items = _followed(_followed(schema["properties"]["action"], schema).get("items", {}), schema)
    found: dict[str, Schema] = {}
    for variant in _variants(items, schema):
        for name, parameters in variant.get("properties", {}).items():
            options = _variants(_followed(parameters, schema), schema)
            found[name] = next((one for one in options if one.get("type") != "null"), {})
    return found or None


def _variants(schema: Schema, root: Schema) -> list[Schema]:
    return [_followed(one, root) for one in schema.get("anyOf") or schema.get("oneOf") or [schema]]


def _followed(schema: Schema | bool, root: Schema) -> Schema:
    """A schema, with references within the document followed; {} for those that are only true or
    false.

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
    raise RecipeError(
        f"the schema's reference {str(reference)[:60]!r} leads nowhere", "send the whole schema"
    )


def write_output(schema: Schema, brain: Mapping[str, str], acts: Sequence[Act]) -> str:
    """The answer as JSON.

    Args:
        schema: of the request.
        brain: what the agent is told beside the actions (memory, next_goal, ...); keys the schema
            lacks are left out.
        acts: the actions, with the parameters that matter; the others get their defaults.

    Raises:
        RecipeError: the schema demands what a plan of a form does not say.
    """
    known = actions_of(schema) or {}
    actions = [
        {name: _filled(known.get(name, {}), values) for name, values in act.items()} for act in acts
    ]
    said = {key: value for key, value in brain.items() if key in schema["properties"]}
    output = _filled(schema, {"action": actions, **said})
    if problem := _problem_of(output, schema):
        raise RecipeError(
            f"no step of a form conforms to the schema: {problem}",
            "use the agent's own output (no output_model_schema)",
        )
    return json.dumps(output, ensure_ascii=False)


def _filled(schema: Schema, given: Mapping[str, Any]) -> dict[str, Any]:
    """An object with what is given, and for the rest of what is required its default, or null where
    that is allowed."""
    found = dict(given)
    for name in schema.get("required", ()):
        wanted = schema.get("properties", {}).get(name, {})
        if name in found or not isinstance(wanted, Mapping):
            continue
        kinds = [one.get("type", ()) for one in _variants(wanted, wanted)]
        if "default" in wanted:
            found[name] = wanted["default"]
        elif any(
            kind == "null" or (not isinstance(kind, str) and "null" in kind) for kind in kinds
        ):
            found[name] = None
    return found


def _problem_of(value: object, schema: Schema) -> str:
    """What in a value does not conform to a schema; "" where nothing does. Nothing that it refers
    to is fetched.

    Raises:
        RecipeError: it is no schema.
    """
    try:
        errors = jsonschema_rs.validator_for(dict(schema), offline=True).iter_errors(value)
        return next((error.message[:200] for error in errors), "")
    except ValueError as error:
        said = str(error).partition("\n")[0][:200]
        raise RecipeError(
            f"the schema of the agent's output is no JSON Schema: {said}", "correct it"
        ) from error
