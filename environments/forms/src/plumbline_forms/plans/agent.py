"""Writes typed actions as the JSON of browser agents, and reads what a model wrote in it or as
plain-text steps.

Reading gives the same actions as were written.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from plumbline.tasks.text.lenient_json import drop_surrogates, values_in
from plumbline_browser.plans import actions as plan
from plumbline_browser.plans.actions import Action, Element, Language, Plan
from plumbline_browser.plans.grammar import TooMuchWorkError, Work, action_objects
from plumbline_browser.plans.reader import (
    COSTLY,
    MAX_CHARACTERS,
    MAX_STEPS,
    MAX_VALUE,
    SUBMIT_WORDS,
    names_of,
    read_line,
    read_step,
    read_steps,
)
from plumbline_browser.plans.writer import write_outputs, write_step

# -- agents' JSON ----------------------------------------------------------------------------------
# The JSON of browser agents (AgentOutput) and its bridge to the plain-text steps, without loss both
# ways.
#
# An agent's actions name elements by number, and say `click` for a box, a radio and a button alike.
# So a step is not always to be had back from its action. What keeps the bridge exact is
# `next_goal`: each output carries the sentences of its actions there. Reading believes a sentence
# only if it stands for exactly the action beside it; if not, the action counts as it is. So foreign
# JSON is read by its actions alone, and nothing can be claimed in prose.

_NAMES = {
    **dict.fromkeys(("go_to_url", "open_url"), "navigate"),
    **dict.fromkeys(("click_element", "click_element_by_index"), "click"),
    "input_text": "input",
    "select_dropdown_option": "select_dropdown",
}
"""Older names of the same actions, accepted when reading."""
_IDLE = frozenset(
    {"wait", "scroll", "screenshot", "dropdown_options", "find_text", "get_dropdown_options"}
)
"""Actions that change nothing on a page: no fault, unless there are more of them than a form could
need."""


def write_agent(
    actions: Sequence[Action], elements: Sequence[Element], language: Language = "en"
) -> str:
    """The actions as a JSON list of AgentOutput objects.

    Raises:
        ValueError: an action names a control that is not among the elements.
    """
    steps = [write_step(action, language) for action in actions]
    return write_outputs(steps, [_project(action, elements) for action in actions])


def read_plan(text: str, elements: Sequence[Element]) -> Plan:
    """Read a completion in either language; a text that holds no AgentOutput is read as steps.
    Never raises."""
    text = drop_surrogates(text)
    names = names_of(tuple(elements))
    values = values_in(text[:MAX_CHARACTERS], MAX_STEPS)
    outputs = [
        value
        for value in values
        if isinstance(value, dict) and isinstance(value.get("action"), list | dict)
    ]
    items: Sequence[tuple[Any, Action | None]] = [(one, None) for one in action_objects(values)]
    items = _of_outputs(outputs) if outputs else items
    actions: list[Action] = []
    unread, idle, work = 0, 0, Work()
    found: tuple[Action, ...] | None
    try:
        for item, claimed in items:
            if claimed is not None and _stands_for(claimed, item, elements):
                found = (claimed,)
            elif isinstance(item, str):
                found = read_line(item, names, work)
            elif (action := _read(item, elements)) is not None:
                found = (action,)
            elif outputs and _IDLE.issuperset(item):
                found = ()
            else:
                found = None
            idle, unread = idle + (found == ()), unread + (found is None)
            actions += found or ()
            if len(actions) > MAX_STEPS:
                break
    except TooMuchWorkError:
        return COSTLY
    if not outputs and not actions:
        return read_steps(text, names)
    how = ("json" if actions else "none") + ("+unread" if unread else "")
    how += "+cut" if len(text) > MAX_CHARACTERS or len(actions) > MAX_STEPS else ""
    return Plan(tuple(actions[:MAX_STEPS]), how, unread, idle)


def _of_outputs(outputs: Sequence[Mapping[str, Any]]) -> list[tuple[Any, Action | None]]:
    """The actions of AgentOutput objects, each with the step that the goal spells out where their
    numbers agree."""
    found: list[tuple[Any, Action | None]] = []
    for output in outputs:
        given, goal = output["action"], output.get("next_goal")
        items = [
            item
            for item in (given if isinstance(given, list) else [given])
            if isinstance(item, dict)
        ]
        lines = goal.split("\n") if isinstance(goal, str) and goal else []
        steps = (
            [read_step(line) for line in lines] if len(lines) == len(items) else [None] * len(items)
        )
        found += zip(items, steps, strict=True)
    return found


# -- from steps to actions with numbers ------------------------------------------------------------


def _project(action: Action, elements: Sequence[Element]) -> dict[str, Any]:
    match action:
        case plan.Navigate(url):
            return {"navigate": {"url": url, "new_tab": False}}
        case plan.Type(label, text, clear):
            return {"input": {"index": _index(elements, label), "text": text, "clear": clear}}
        case plan.Select(label, option):
            index = _index(elements, label, option)
            if elements[index - 1].option:  # of a radio group: clicked, not chosen from a list
                return {"click": {"index": index}}
            return {"select_dropdown": {"index": index, "text": option}}
        case plan.Check(label, option) | plan.Uncheck(label, option):
            return {"click": {"index": _index(elements, label, option)}}
        case plan.Attach(label, file):
            return {"upload_file": {"index": _index(elements, label), "path": file}}
        case plan.Click(label):
            return {"click": {"index": _index(elements, label)}}
        case plan.Submit(label):
            return {"click": {"index": _button(elements, label)}}
        case plan.Press(keys):
            return {"send_keys": {"keys": keys}}
        case plan.Done(text, success):
            return {"done": {"text": text, "success": success, "files_to_display": []}}


def _index(elements: Sequence[Element], label: str, option: str = "") -> int:
    """The first element with this label, or the one of its options that is meant."""
    for element in elements:
        if element.label == label and (not option or element.option in {"", option}):
            return element.index
    raise ValueError(
        f"no element is named {label!r} {option!r}: an agent can only act on what it sees"
    )


def _button(elements: Sequence[Element], label: str) -> int:
    buttons = {
        element.label: element.index for element in reversed(elements) if element.kind == "button"
    }
    if label in buttons:
        return buttons[label]
    if label.casefold() in {"", *SUBMIT_WORDS}:
        return max(buttons.values())
    raise ValueError(f"no button is named {label!r}: an agent can only act on what it sees")


# -- from actions with numbers to steps ------------------------------------------------------------


def _stands_for(sentence: Action, item: Mapping[str, Any], elements: Sequence[Element]) -> bool:
    try:
        return _project(sentence, elements) == item
    except ValueError:
        return False


def _read(item: Mapping[str, Any], elements: Sequence[Element]) -> Action | None:
    """One agent action by itself; None where it is malformed, unknown, or about no element."""
    if len(item) != 1:
        return None
    ((name, values),) = item.items()
    if not isinstance(values, dict):
        return None
    name = _NAMES.get(name, name)
    texts = {
        key: value
        for key, value in values.items()
        if isinstance(value, str) and len(value) <= MAX_VALUE
    }
    if name == "navigate":
        return plan.Navigate(texts["url"]) if "url" in texts else None
    if name == "send_keys":
        return plan.Press(texts["keys"]) if texts.get("keys") else None
    if name == "done":
        return plan.Done(texts.get("text", ""), values.get("success") is not False)
    index = values.get("index")
    if isinstance(index, str) and index.isascii() and index.isdecimal() and len(index) < 6:
        index = int(index)
    if type(index) is not int or not 1 <= index <= len(elements):
        return None
    element = elements[index - 1]
    if name == "click":
        return _click(element)
    if name == "input" and "text" in texts:
        return plan.Type(element.label, texts["text"], clear=values.get("clear") is not False)
    if name == "select_dropdown" and "text" in texts:
        return plan.Select(element.label, texts["text"])
    if name == "upload_file" and "path" in texts:
        return plan.Attach(element.label, texts["path"])
    return None


def _click(element: Element) -> Action:
    if element.kind == "button":
        return plan.Submit(element.label)
    if element.kind == "radio":
        return plan.Select(element.label, element.option)
    if element.kind == "checkboxes":
        return plan.Check(element.label, element.option)
    return plan.Click(element.label, "box" if element.kind == "checkbox" else "field")
