"""Writes typed actions as plain-text steps, in English or Portuguese, such that reading gives the same actions."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plumbline.tasks.text.json_values import values_in, whole
from plumbline_forms.plans.actions import (
    Action,
    Attach,
    Check,
    Click,
    Done,
    Element,
    Navigate,
    Plan,
    Press,
    Select,
    Submit,
    Type,
    Uncheck,
)
from plumbline_forms.plans.reader import (
    AROUND_URL,
    COSTLY,
    MAX_CHARACTERS,
    MAX_STEPS,
    MAX_VALUE,
    action_objects,
    read_line,
    read_object,
    read_step,
    read_steps,
)
from plumbline_forms.plans.sentences import TooMuchWorkError, Work
from plumbline_forms.plans.vocabulary import DATA, SUBMIT_WORDS, Names, names_of
from plumbline_forms.suite.declaration import Language

# -- write ---------------------------------------------------------------------------------------------------------

Quote = Callable[[str], str]
_TEMPLATES: Mapping[Language, Mapping[str, str]] = DATA["steps"]


def write_steps(actions: Sequence[Action], language: Language = "en") -> str:
    """The actions as numbered steps, one to a line."""
    marker = _TEMPLATES[language]["marker"]
    return "\n".join(marker.format(number) + write_step(action, language) for number, action in enumerate(actions, 1))


def write_step(action: Action, language: Language = "en") -> str:
    """One step without its number.

    Quotes inside a value stay as they are unless that would be read as something else; then they are escaped.
    """
    plain = _sentence(action, language, _plain)
    return plain if read_step(plain) == action else _sentence(action, language, _escaped)


def _plain(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + "'"


def _escaped(text: str) -> str:
    inner = _plain(text)[1:-1].replace("'", "\\'").replace('"', '\\"')
    return f"'{inner}'"


def _sentence(action: Action, language: Language, quote: Quote) -> str:
    words = _TEMPLATES[language]
    match action:
        case Navigate(url):
            simple = "/" in url and url.isascii() and url.isprintable() and not set(url) & set(" '\"`*\\")
            return words["navigate"].format(url if simple and url == url.strip(AROUND_URL) else quote(url))
        case Type(label, text, clear):
            return words["type" if clear else "append"].format(quote(text), quote(label))
        case Select(label, option):
            return words["select"].format(quote(option), quote(label))
        case Check(label, option):
            return _boxed(words, "check", label, option, quote)
        case Uncheck(label, option):
            return _boxed(words, "uncheck", label, option, quote)
        case Attach(label, file):
            return words["attach"].format(quote(file), quote(label))
        case Click(label, what):
            return words[f"click {what}" if what else "click"].format(quote(label))
        case Submit(label):
            return words["button"].format(quote(label)) if label else words["submit"]
        case Press(keys):
            return words["press"].format(quote(keys))
        case Done(text, success):
            state = "Done" if success else "Done without success"
            return f"{state}: {quote(text)}" if text else state


def _boxed(words: Mapping[str, str], verb: str, label: str, option: str, quote: Quote) -> str:
    if option:
        return words[f"{verb} option"].format(quote(option), quote(label))
    return words[verb].format(quote(label))


# -- agent ---------------------------------------------------------------------------------------------------------

ACTIONS_PER_OUTPUT = 4
"""How many actions browser agents carry out at once; they drop what is beyond without a word."""
_NAMES = {
    "go_to_url": "navigate",
    "open_url": "navigate",
    "click_element": "click",
    "click_element_by_index": "click",
    "input_text": "input",
    "select_dropdown_option": "select_dropdown",
}
"""Older names of the same actions, accepted when reading."""
_IDLE = frozenset({"wait", "scroll", "screenshot", "dropdown_options", "find_text", "get_dropdown_options"})
"""Actions that change nothing on a page: no fault, unless there are more of them than a form could need."""


def write_agent(
    actions: Sequence[Action],
    elements: Sequence[Element],
    language: Language = "en",
    per_output: int = ACTIONS_PER_OUTPUT,
) -> str:
    """The actions as a JSON list of AgentOutput objects.

    Raises:
        ValueError: an action names a control that is not among the elements.
    """
    outputs = []
    for first in range(0, len(actions), per_output):
        batch = actions[first : first + per_output]
        outputs.append(
            {
                "thinking": None,
                "evaluation_previous_goal": "" if first == 0 else "Success",
                "memory": f"{first} of {len(actions)} actions done",
                "next_goal": "\n".join(write_step(action, language) for action in batch),
                "action": [_project(action, elements) for action in batch],
            }
        )
    return "[\n" + ",\n".join(json.dumps(output, ensure_ascii=False) for output in outputs) + "\n]"


def read_plan(text: str, elements: Sequence[Element]) -> Plan:
    """Read a completion in either language; a text that holds no AgentOutput is read as steps. Never raises."""
    text = whole(text)
    names = names_of(tuple(elements))
    values = values_in(text[:MAX_CHARACTERS], MAX_STEPS)
    outputs = [value for value in values if _is_output(value)]
    try:
        read = _read_outputs(outputs, elements) if outputs else _read_objects(values, elements, names, Work())
    except TooMuchWorkError:
        return COSTLY
    if read is None:
        return read_steps(text, names)
    actions, unread, idle = read
    cut = len(text) > MAX_CHARACTERS or len(actions) > MAX_STEPS
    how = "json" if actions else "none"
    return Plan(tuple(actions[:MAX_STEPS]), how + ("+unread" if unread else "") + ("+cut" if cut else ""), unread, idle)


def _read_outputs(outputs: Sequence[Mapping[str, Any]], elements: Sequence[Element]) -> tuple[list[Action], int, int]:
    """The actions of AgentOutput objects, and how many were not understood and how many change nothing."""
    actions: list[Action] = []
    unread = idle = 0
    names = names_of(tuple(elements))
    for output in outputs:
        given = output["action"]
        items = [item for item in (given if isinstance(given, list) else [given]) if isinstance(item, dict)]
        goal = output.get("next_goal")
        sentences = _sentences(goal if isinstance(goal, str) else "", len(items))
        for item, sentence in zip(items, sentences, strict=True):
            if sentence is not None and _stands_for(sentence, item, elements):
                actions.append(sentence)
                continue
            read = _read(item, elements)
            found = [read] if read is not None else [] if _IDLE.issuperset(item) else read_object(item, elements, names)
            idle, unread = idle + (found == []), unread + (found is None and bool(item))
            actions += found or []
    return actions, unread, idle


def _read_objects(
    values: Sequence[Any], elements: Sequence[Element], names: Names, work: Work
) -> tuple[list[Action], int, int] | None:
    """The actions of other objects, and of sentences in a list; None where there is none."""
    actions: list[Action] = []
    unread = idle = 0
    for item in action_objects(values):
        if isinstance(item, str):
            found = read_line(item, names, work)
        else:
            action = _read(item, elements)
            found = (action,) if action is not None else _spoken(item, names, work)
            if not found and (called := read_object(item, elements, names)) is not None:
                found = tuple(called)
        idle, unread = idle + (found == ()), unread + (found is None)
        actions += found or ()
        if len(actions) > MAX_STEPS:
            break
    return (actions, unread, idle) if actions else None


def _spoken(item: Mapping[str, Any], names: Names, work: Work) -> tuple[Action, ...] | None:
    """The actions of the sentence that an object holds: {"step": 1, "action": "Type 'Ann' into the 'Name' field"}."""
    texts = [value for value in item.values() if isinstance(value, str) and " " in value.strip()]
    return read_line(texts[0], names, work) if len(texts) == 1 else None


def _is_output(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("action"), list | dict)


def _sentences(goal: str, count: int) -> list[Action | None]:
    """The steps that a goal spells out, one for each action; None for each where their numbers differ."""
    lines = goal.split("\n")
    return [read_step(line) for line in lines] if goal and len(lines) == count else [None] * count


# -- from steps to actions with numbers --------------------------------------------------------------------------


def _project(action: Action, elements: Sequence[Element]) -> dict[str, Any]:
    match action:
        case Navigate(url):
            return {"navigate": {"url": url, "new_tab": False}}
        case Type(label, text, clear):
            return {"input": {"index": _index(elements, label), "text": text, "clear": clear}}
        case Select(label, option):
            index = _index(elements, label, option)
            if _at(elements, index).option:  # of a radio group: clicked, not chosen from a list
                return {"click": {"index": index}}
            return {"select_dropdown": {"index": index, "text": option}}
        case Check(label, option) | Uncheck(label, option):
            return {"click": {"index": _index(elements, label, option)}}
        case Attach(label, file):
            return {"upload_file": {"index": _index(elements, label), "path": file}}
        case Click(label):
            return {"click": {"index": _index(elements, label)}}
        case Submit(label):
            return {"click": {"index": _button(elements, label)}}
        case Press(keys):
            return {"send_keys": {"keys": keys}}
        case Done(text, success):
            return {"done": {"text": text, "success": success, "files_to_display": []}}


def _index(elements: Sequence[Element], label: str, option: str = "") -> int:
    """The first element with this label, or the one of its options that is meant."""
    for element in elements:
        if element.label == label and (not option or element.option in {"", option}):
            return element.index
    raise ValueError(f"no element is named {label!r} {option!r}: an agent can only act on what it sees")


def _button(elements: Sequence[Element], label: str) -> int:
    buttons = [element for element in elements if element.kind == "button"]
    for element in buttons:
        if element.label == label:
            return element.index
    if label.casefold() in {"", *SUBMIT_WORDS}:
        return buttons[-1].index
    raise ValueError(f"no button is named {label!r}: an agent can only act on what it sees")


def _at(elements: Sequence[Element], index: int) -> Element:
    return elements[index - 1]


# -- from actions with numbers to steps --------------------------------------------------------------------------


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
    texts = {key: value for key, value in values.items() if isinstance(value, str) and len(value) <= MAX_VALUE}
    if name == "navigate":
        return Navigate(texts["url"]) if "url" in texts else None
    if name == "send_keys":
        return Press(texts["keys"]) if texts.get("keys") else None
    if name == "done":
        return Done(texts.get("text", ""), values.get("success") is not False)
    index = values.get("index")
    if isinstance(index, str) and index.isascii() and index.isdecimal() and len(index) < 6:
        index = int(index)
    if type(index) is not int or not 1 <= index <= len(elements):
        return None
    element = _at(elements, index)
    if name == "click":
        return _click(element)
    if name == "input" and "text" in texts:
        return Type(element.label, texts["text"], clear=values.get("clear") is not False)
    if name == "select_dropdown" and "text" in texts:
        return Select(element.label, texts["text"])
    if name == "upload_file" and "path" in texts:
        return Attach(element.label, texts["path"])
    return None


def _click(element: Element) -> Action:
    if element.kind == "button":
        return Submit(element.label)
    if element.kind == "radio":
        return Select(element.label, element.option)
    if element.kind == "checkboxes":
        return Check(element.label, element.option)
    return Click(element.label, "box" if element.kind == "checkbox" else "field")
