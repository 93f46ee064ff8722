"""A plan's actions on the page that a browser agent sees, as the agent's own actions.

What a label means is decided where executors decide it (`tasks.forms.executors.operations`), and what is typed is what
they type. The agent's actions go by the element: `input`, `select_dropdown`, `click`, `upload_file`, `send_keys`.
Two things its actions cannot do are done by a fixed script (`evaluate`), where it has that: several options of one list
(its `select_dropdown` takes back what was chosen before), and several files for one control.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from plumbline_forms.agent.output import Act
from plumbline_forms.agent.state import INCOMPLETE, Scene
from plumbline_forms.executors.executor import Attempt, Limits
from plumbline_forms.executors.operations import (
    Choose,
    Enter,
    Go,
    Operation,
    Push,
    Put,
    Return,
    Send,
    Target,
    Tick,
    Touch,
    find,
    resolve,
)
from plumbline_forms.executors.page import Control, PageModel
from plumbline_forms.plans.actions import Action, Attach, Click, Select, Submit
from plumbline_forms.plans.vocabulary import loose
from plumbline_forms.values import typed

MARK = "Plumbline:"
"""What a script's result begins with when it did what it was to do."""
_LISTS = frozenset({"select", "multiselect"})
_SHOWN = 100
"""Characters of a value that the agent shows."""
_FIND = "var c=document.getElementById(w.id)||document.getElementsByName(w.name)[0];"
_CHOOSE = (
    "(function(){var w=JSON.parse(decodeURIComponent('%s'));"
    + _FIND
    + "if(!c||!c.options)return 'there is no such list';"
    "var n=0;for(var i=0;i<c.options.length;i++){var o=c.options[i];var hit=w.texts.some(function(t){"
    "return o.text.trim().toLowerCase()===t.toLowerCase()||o.value.toLowerCase()===t.toLowerCase()});"
    "if(hit){o.selected=true;n++}}"
    "c.dispatchEvent(new Event('input',{bubbles:true}));c.dispatchEvent(new Event('change',{bubbles:true}));"
    "return (n===w.texts.length?'" + MARK + " ':'only ')+n+' options chosen'})()"
)
_COLLECT = (
    "(function(){var w=JSON.parse(decodeURIComponent('%s'));" + _FIND + "if(!c||!c.files)return 'no control';"
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
    model = scene.page
    found = resolve(first, model, "/", frozenset(scene.files), Limits())
    if isinstance(found, Attempt) and found.status == "not found":
        model = scene.second
        second = resolve(first, model, "/", frozenset(scene.files), Limits())
        found = found if isinstance(second, Attempt) and second.status == "not found" else second
    if isinstance(found, Attempt) and found.status == "not found" and isinstance(first, Select):
        found = _unlisted(first, scene) or found
    if isinstance(found, Attempt):
        return found
    if isinstance(found, Choose) and found.control.kind == "multiselect":
        return _several(actions, found, scene, has_script=has_script)
    if isinstance(found, Put) and not prepared and (several := _collected(actions, found, has_script=has_script)):
        return several
    return _single(found, first, scene, model)


def _unlisted(action: Select, scene: Scene) -> Choose | None:
    """A choice of a list that the agent shows in part: its own action looks the option up."""
    target = next(
        (
            one
            for one in (find(page, action.label, _LISTS) for page in (scene.page, scene.second))
            if isinstance(one, Target)
        ),
        None,
    )
    if target is None or target.kind not in _LISTS or INCOMPLETE not in target.members[0].attributes:
        return None
    return Choose(target.members[0], -1, on=True)


def _single(operation: Operation, action: Action, scene: Scene, model: PageModel) -> Acted | Attempt:
    match operation:
        case Enter(control, text, clear):
            entered = typed(control.kind, text, model.language)
            if entered.refused:
                return Attempt("refused", f"{control.called} takes no such {control.kind}")
            holds = control.value if len(control.value) < _SHOWN else None
            if clear and control.kind != "password" and holds == entered.value:
                return Acted(None)
            return Acted({"input": {"index": control.index, "text": entered.value, "clear": clear}})
        case Choose(control, place):
            option = control.choices[place].text if place >= 0 else getattr(action, "option", "")
            return Acted({"select_dropdown": {"index": control.index, "text": option}})
        case Tick(control, on):
            if on is not None and control.checked == on:
                return Acted(None)
            return Acted({"click": {"index": control.index}})
        case Put(control, name):
            return Acted({"upload_file": {"index": control.index, "path": scene.files[name]}})
        case Touch(control) | Push(control):
            return Acted({"click": {"index": control.index}})
        case Send():
            return _send(action, model)
        case Return():
            return Acted({"send_keys": {"keys": "Enter"}}, ends=True)
        case Go():
            raise AssertionError("where a plan goes is decided by who knows the task's address")


def _send(action: Action, model: PageModel) -> Acted:
    """The button with the action's name, else the last one that sends the form."""
    label = action.label if isinstance(action, Submit | Click) else ""
    buttons = [one for one in model.controls if one.kind == "button"]
    called = [one for one in buttons if loose(one.label) == loose(label)]
    sending = [one for one in buttons if one.attributes.get("type") == "submit"]
    return Acted({"click": {"index": (called or sending or buttons)[-1].index}}, ends=True)


def _several(actions: Sequence[Action], first: Choose, scene: Scene, *, has_script: bool) -> Acted | Attempt:
    """All choices of one list that stand together in the plan, as one action."""
    control, texts, taken = first.control, [], 0
    for action in actions:
        found = first if taken == 0 else resolve(action, scene.page, "/", frozenset(), Limits())
        if isinstance(found, Attempt) and isinstance(action, Select):
            found = _unlisted(action, scene) or found
        if not isinstance(found, Choose) or found.control.index != control.index or found.on != first.on:
            break
        texts.append(control.choices[found.place].text if found.place >= 0 else getattr(action, "option", ""))
        taken += 1
    others = {control.choices[place].text for place in control.chosen} - set(texts)
    if len(texts) == 1 and not others and first.on:
        return Acted({"select_dropdown": {"index": control.index, "text": texts[0]}})
    if not has_script or not first.on:
        return Attempt("refused", f"the agent cannot choose several options of {control.called}")
    return Acted(_script(_CHOOSE, control, texts=texts), taken, ends=True)


def _collected(actions: Sequence[Action], first: Put, *, has_script: bool) -> Acted | None:
    """A script before the first of several files for one control."""
    label = actions[0].label if isinstance(actions[0], Attach) else ""
    files = [one for one in actions if isinstance(one, Attach) and loose(one.label) == loose(label)]
    if len(files) < 2 or "multiple" not in first.control.attributes or not has_script:
        return None
    return Acted(_script(_COLLECT, first.control), taken=0, ends=True, prepares=True)


def _script(source: str, control: Control, **data: Any) -> Act:
    """A script with its data, which is encoded such that no sign of it can be read as part of the script."""
    attributes = control.attributes
    where = {"id": attributes.get("id", ""), "name": attributes.get("name", attributes.get("id", ""))}
    return {"evaluate": {"code": source % quote(json.dumps({**where, **data}), safe="")}}
