"""Reads plain-text steps, calls and objects into typed actions. Never raises, whatever the text."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

from plumbline_forms.plans import actions as plan
from plumbline_forms.plans.actions import Action, Element, Fill, Plan
from plumbline_forms.plans.sentences import StepSentence, mentions, sentences
from plumbline_forms.plans.tokens import (
    TooMuchWorkError,
    Work,
    has_quote,
    is_quoted,
    opens,
    plainer,
    quotations,
    tokens_of,
    unquoted,
    verbs_of,
)
from plumbline_forms.plans.vocabulary import (
    KEYS,
    NO,
    SUBMIT_WORDS,
    UNKNOWN,
    YES,
    Names,
    PlanToken,
    folded,
    loose,
    words_of,
)
from plumbline_forms.suite.declaration import TYPED

# -- what a sentence comes to -----------------------------------------------------------------------------------------

URL = re.compile(r"[a-z][a-z0-9+.-]{0,30}://[^\s<>'\"`]+", re.IGNORECASE)
_SELECTS = frozenset({"select", "multiselect", "radio", "checkboxes"})
_SPACE = frozenset({"space", "spacebar", "espaço"})
_LISTS = frozenset({"select", "multiselect"})
_PICKED = frozenset({"date", "time", "number"})
"""Kinds that pages show as something to pick from, and that are typed into all the same."""
_FILE_NAME = re.compile(r"[^/\\]{1,200}\.\w{2,5}")


def actions_of(said: StepSentence, text: str, names: Names) -> list[Action] | None:
    """What a sentence comes to.

    Args:
        said: the sentence.
        text: the whole step; a quotation that is open in it may go on in the next line.
        names: of the form's controls.

    Returns:
        Its actions, [] where there is nothing to do, None where something is missing that it does not say.
    """
    if said.verb == "idle":
        return []
    if said.values:
        return _entries(said, names) if said.label else _of_each(said, text, names)
    if said.verb == "navigate" and URL.fullmatch(said.label):
        return [plan.Navigate(said.label)]
    if said.verb in {"click", "seek", "navigate"}:
        return _click(said, text, names)
    if said.verb == "press":
        return _press(said, text, names)
    if said.verb == "send":
        sends_itself = not said.quoted or "form" in said.nouns
        if loose(said.label) in names.buttons and said.label:
            return [plan.Submit(said.label)]
        return None if "file" in said.nouns else [plan.Submit("" if sends_itself or not said.label else said.label)]
    if not said.label:
        return [] if said.verb in {"set", "type", "use", "clear"} and not opens(text) else None
    kind = names.kind(said.label)
    if said.verb in {"select", "check", "uncheck", "use", "attach"} and (
        "button" in said.nouns or loose(said.label) in names.buttons
    ):
        return None if "state" in said.nouns else [plan.Submit(said.label)]
    if said.verb in {"select", "check", "uncheck", "click"} and (group := names.group_of_all(said.label)):
        return _entries(replace(said, label=group, values=(said.label,)), names)
    if said.verb == "select" or (said.verb in {"set", "use"} and names.group_of(said.label)):
        return _single_choice(said, kind, names)
    if said.verb in {"check", "uncheck"}:
        tick = plan.Check if said.verb == "check" else plan.Uncheck
        group = names.group_of(said.label)
        return [tick(group, said.label) if group and names.kind(group) in _LISTS else tick(said.label)]
    if said.verb == "clear":
        is_box = kind == "checkbox" or (not kind and "checkbox" in said.nouns)
        return (
            [plan.Uncheck(said.label)] if is_box else [plan.Type(said.label, "")] if kind in TYPED or not kind else None
        )
    if said.verb == "attach" and not kind and _FILE_NAME.fullmatch(said.label) and names.only("file"):
        return [plan.Attach(names.only("file"), said.label)]
    return None


def _of_each(said: StepSentence, text: str, names: Names) -> list[Action] | None:
    """The same with each of several boxes or options."""
    found = [actions_of(replace(said, label=value, values=()), text, names) for value in said.values]
    return [action for each in found if each for action in each] if all(found) else None


def _entries(said: StepSentence, names: Names) -> list[Action] | None:
    """What is entered into a control."""
    label, kind = said.label, names.kind(said.label)
    values = [one for value in said.values for one in names.items_of(label, value) or [value]]
    is_file = kind == "file" or (not kind and said.nouns & {"file", "upload"})
    if len(values) > 1 and not (is_file or kind in {"multiselect", "checkboxes", ""}):
        return None
    if said.verb == "type" and not (is_file and "file" in said.nouns):
        return [plan.Type(label, values[0])]
    if said.verb == "append" and not is_file and kind not in _SELECTS and len(values) == 1:
        return [plan.Type(label, values[0], clear=False)]
    if said.verb == "attach" or (said.verb in {"type", "append", "send", "select", "use", "set"} and is_file):
        return [plan.Attach(label, value) for value in values]
    if said.verb in {"select", "check", "use", "set"} and kind in _PICKED:
        return [plan.Type(label, values[0])]
    if said.verb in {"check", "uncheck"}:
        return [(plan.Check if said.verb == "check" else plan.Uncheck)(label, value) for value in values]
    if said.verb == "press":
        if values[0].casefold() not in KEYS:
            return [plan.Type(label, values[0])] if kind in TYPED else None
        return (
            [plan.Click(label, "box")]
            if kind == "checkbox" and values[0].casefold() in _SPACE
            else [plan.Press(values[0])]
        )
    if said.verb == "click" or said.verb == "select":
        return [_ticked(label, value) if kind == "checkbox" else plan.Select(label, value) for value in values]
    if said.verb in {"use", "set", "append"}:
        if kind == "checkbox" or (not kind and "checkbox" in said.nouns):
            return [_ticked(label, value) for value in values]
        chosen = kind in _SELECTS or (not kind and said.nouns & {"choice", "boxes", "option"})
        if len(values) > 1 and not chosen:
            return None
        return [plan.Select(label, value) if chosen else plan.Type(label, value) for value in values]
    return None


def _ticked(label: str, value: str) -> Action:
    """A single box that is said to be so; what is neither yes nor no is left to fail."""
    said = folded(value)
    if said in NO:
        return plan.Uncheck(label)
    return plan.Check(label) if said in YES else plan.Check(label, value)


def _single_choice(said: StepSentence, kind: str, names: Names) -> list[Action]:
    if group := names.group_of(said.label):
        return [(plan.Check if names.kind(group) == "checkboxes" else plan.Select)(group, said.label)]
    offered = loose(said.label) in names.options
    if kind == "checkbox" or (not kind and not offered and "checkbox" in said.nouns):
        return [plan.Check(said.label)]
    return [plan.Click(said.label, _what(said.nouns))]


def _click(said: StepSentence, text: str, names: Names) -> list[Action] | None:
    generic = not said.quoted and said.label.casefold() in SUBMIT_WORDS
    if not said.label:
        if said.verb != "click" or opens(text):
            return None if said.verb == "click" else []
        return [plan.Submit()] if "button" in said.nouns else None
    if generic or "button" in said.nouns:
        return [plan.Submit("" if generic else said.label)]
    if (group := names.group_of(said.label)) and names.kind(group) in _LISTS:  # an open list is clicked, too
        return [plan.Select(group, said.label)]
    return [plan.Click(said.label, _what(said.nouns))]


def _what(nouns: frozenset[str]) -> Literal["", "field", "box"]:
    if nouns & {"checkbox", "option"}:
        return "box"
    return "field" if nouns & {"field", "choice", "boxes", "upload"} else ""


def _press(said: StepSentence, text: str, names: Names) -> list[Action] | None:
    if not said.label:
        return [plan.Submit()] if "button" in said.nouns else None
    label = said.label if said.quoted else said.label.rstrip(".,; ")
    key = label.casefold()
    generic = not said.quoted and key in SUBMIT_WORDS
    if key not in KEYS and (generic or "button" in said.nouns or loose(said.label) in names.buttons):
        return _click(said, text, names)
    return [plan.Press(label)]


# -- calls and objects ------------------------------------------------------------------------------------------------
# Actions that are written as calls or objects: `page.getByLabel("L").fill("V")`, `{"action": "type", "target": "L"}`.
#
# Their names are the verbs of sentences ("select_option", "selectOption"), their parameters say which argument is the
# control. Where neither they nor the form's labels do, nothing is read.

_NAMING = (
    *("action", "action_type", "actionType", "tool", "tool_name", "function", "command", "method", "operation", "op"),
    *("event", "step", "instruction", "type", "name"),
)
"""Keys under which an object says what is to be done; the first that does counts."""
_ENDS = frozenset({"done", "finish", "stop", "complete", "terminate", "end", "answer"})
_INDEX = frozenset({"index", "element_index", "element_id", "id"})
_LABELS = frozenset({"name", "selector", "locator", "placeholder", "in", "into", "on", "from"})
_VALUES = frozenset({"to", "with", "keys", "key", "content", "checked"})
_CONTROLS = frozenset({"field", "choice", "boxes", "checkbox", "button", "upload", "link"})
_TAKES_OPTION = frozenset({"click", "select", "check", "uncheck"})
_ROW = re.compile(r"[|\s]*\**(\w+)\**\s*\|(.+)")
_BETWEEN_PAIRS = re.compile(r"(?<!\s)\s*[|;,]\s*(?=\**[A-Za-z]{2,20}\**:)")
_PAIR = re.compile(r"\**([A-Za-z]{2,20}):?\**:?\s*(.+)", re.DOTALL)
_PREFIX = re.compile(r"(?:(?:await|return|const|let|var)\s+|\w+\s*=\s*)*")
_NAME = re.compile(r"\s{0,4}\.?\s{0,4}([A-Za-z_][\w.]{0,80})\(")
_ARGUMENT = re.compile(
    r"""[\s,{}\[\]]{0,40}(?:["']?(?P<key>[A-Za-z_]\w*)["']?\s*[:=]\s*(?=["'`‘“«\d\[{tTfF-]))?[\s{\[]{0,9}"""
    r"""(?:(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|‘[^’]*’|“[^”]*”|«[^»]*»)|(?P<bare>[\w.+-]+))[\s,{}\[\]]{0,40}"""
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_HUMPS = re.compile(r"(?<=[a-z])(?=[A-Z])|_+")
_MOST_DEPTH = 8
Given = Sequence[tuple[str, str]]
"""What a call is given: parameter ("" where there is none) and text."""


def read_call(text: str, names: Names) -> list[Action] | None:
    """The actions of a call, a chain of calls or a row of a table that begins with a verb; None where it is none.

    Args:
        text: of one line, without its marker.
        names: of the form's controls.
    """
    if (pairs := _pairs(text)) is not None and (named := _named(pairs)) is not None:
        verb = _verb(named[0])
        return None if verb is None else _read(verb, list(_texts(named[1])), names)
    if (row := _ROW.fullmatch(text)) is not None and (verb := _verb(row.group(1))) is not None:
        return _read(verb, [("", cell) for part in row.group(2).split("|") if (cell := part.strip(" '\"`*"))], names)
    return _read_chain(text, names)


def _read_chain(text: str, names: Names) -> list[Action] | None:
    """Calls one on what the other gives: those that are no verb, or only find something, say which control it is."""
    prefix = _PREFIX.match(text)
    assert prefix is not None
    at = prefix.end()
    verb: PlanToken | None = None
    given: list[tuple[str, str]] = []
    while (match := _NAME.match(text, at)) is not None:
        arguments, at = _arguments(text, match.end())
        if arguments is None:
            return None
        said = _verb(_HUMPS.sub(" ", match.group(1).rpartition(".")[2]))
        kind = "seek" if said is None else said.role("verb")
        if kind == "seek":
            given += [("label" if key in {"", "name"} else key, value) for key, value in arguments]
        else:
            given += arguments
            verb = said if verb is None or kind != "clear" else verb
    return None if verb is None or text[at:].strip(" ;`") else _read(verb, given, names)


def _pairs(text: str) -> Mapping[str, str] | None:
    """A line that is written like an object: "Action: type | Target: L | Value: V"; None where it is not."""
    first, *others = _BETWEEN_PAIRS.split(text)
    if not others:
        return None
    parts = [_PAIR.fullmatch(part) for part in (first if ":" in first else f"action: {first}", *others)]
    if ":" not in first and len(words_of(first) or ()) != 1:
        return None
    values = {part.group(1).casefold(): part.group(2).strip(" '\"`*") for part in parts if part is not None}
    return values if len(values) == len(parts) and next(iter(values)) in _NAMING else None


def action_objects(value: Any, depth: int = 0) -> Iterator[Mapping[str, Any] | str]:
    """The objects that say what is to be done, and the sentences, in what was read from JSON."""
    if isinstance(value, str):
        yield value
    if depth > _MOST_DEPTH or not isinstance(value, list | dict):
        return
    inner = value if isinstance(value, list) else [one for one in value.values() if _holds_objects(one)]
    if isinstance(value, dict) and not inner:
        yield value
    for one in inner:
        yield from action_objects(one, depth + 1)


def _holds_objects(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(one, dict) for one in value)


def read_object(item: Mapping[str, Any], elements: Sequence[Element], names: Names) -> list[Action] | None:
    """The actions of an object that names what is to be done; [] where that is nothing, None where it does not say."""
    call = _named(item)
    if call is None:
        return None
    name, parameters = call
    if name.casefold() in _ENDS:
        return [plan.Done(next((text for _, text in _texts(parameters)), ""))]
    verb = _verb(_HUMPS.sub(" ", name))
    if verb is None:
        return None
    given = list(_texts({key: value for key, value in parameters.items() if key not in _INDEX}))
    for key in _INDEX & parameters.keys():
        index = parameters[key]
        if type(index) is int and 1 <= index <= len(elements):
            element = elements[index - 1]
            given += [("label", element.label), *([("option", element.option)] if element.option else [])]
    return _read(verb, given, names)


def _named(item: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """What an object says is to be done, and with what."""
    for key in _NAMING:
        value = item.get(key)
        if isinstance(value, dict) and (call := _named(value)) is not None:
            return call
        if isinstance(value, str) and (value.casefold() in _ENDS or _verb(_HUMPS.sub(" ", value)) is not None):
            return value, {other: given for other, given in item.items() if other != key}
    if len(item) == 1:
        ((name, value),) = item.items()
        return name, value if isinstance(value, dict) else {"": value}
    return None


def _texts(parameters: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, str]]:
    """Parameters and their texts, those of objects and lists in them as well."""
    for key, value in parameters.items():
        if isinstance(value, str) and key in {"arguments", "args", "parameters", "params"}:
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                continue
        if isinstance(value, dict) and depth < _MOST_DEPTH:
            yield from _texts(value, depth + 1)
        elif isinstance(value, list):
            yield from ((key, str(one)) for one in value if isinstance(one, str | int | float))
        elif isinstance(value, str | int | float):
            yield key, str(value)


def _arguments(text: str, at: int) -> tuple[list[tuple[str, str]] | None, int]:
    """The arguments between brackets, and where they end; None where they do not end."""
    given: list[tuple[str, str]] = []
    while at < len(text) and text[at] != ")":
        match = _ARGUMENT.match(text, at)
        if match is None or match.end() == at:
            return None, at
        at = match.end()
        key = (match.group("key") or "").casefold()
        if match.group("quoted") is not None:
            given.append((key, unquoted(match.group("quoted"))))
        elif key or _NUMBER.fullmatch(match.group("bare")):
            given.append((key, match.group("bare")))
    return (given, at + 1) if at < len(text) else (None, at)


def _verb(name: str) -> PlanToken | None:
    """The verb that a name begins with, whatever stands before it ("browser_click", "input_text")."""
    words = words_of(name[:60].replace(".", " ")) or ()
    return next((word for word in words if "verb" in word.roles), None)


def _read(verb: PlanToken, given: Given, names: Names) -> list[Action] | None:
    """What a call comes to: parameters say which argument is the control, or else the form's labels do."""
    labels: list[str] = []
    values: list[str] = []
    others: list[str] = []
    nouns = set()
    for key, text in given:
        noun, part = _noun(text), _part(key)
        if noun in _CONTROLS | {"option"} and not names.knows(text):
            nouns.add(noun)  # getByRole("button", ...)
        elif part or not key:
            (labels if part == "label" else values if part == "value" else others).append(text)
    if others and not labels and len(others) + len(values) > 1:
        labels = [text for text in others if names.has(text)]
        if len(labels) != 1:
            return None
        others.remove(labels[0])
    values += others
    kind = verb.role("verb")
    if values and values[-1].casefold() in KEYS and (kind == "press" or (kind == "type" and not labels)):
        return [plan.Press(values[-1])]
    if len(labels) > 1 and kind in _TAKES_OPTION and not values:
        labels, values = labels[:1], labels[1:]
    if len(labels) > 1:
        return None
    if kind == "check" and labels and len(values) == 1 and values[0].casefold() in {"true", "false"}:
        kind, values = ("check" if values[0].casefold() == "true" else "uncheck"), []
    if not labels:
        labels, values = (values, []) if len(values) == 1 else ([""], values)
    return actions_of(StepSentence(kind, labels[0], tuple(values), frozenset(nouns)), "", names)


def _noun(text: str) -> str:
    words = words_of(text[:60]) or ()
    return words[0].role("noun") if len(words) == 1 else ""


def _part(key: str) -> str:
    """Whether what a parameter is given is the control or what is entered; "" where it is neither."""
    words = words_of(_HUMPS.sub(" ", key)) or ()
    if key in _LABELS or any(word.role("noun") in _CONTROLS for word in words):
        return "label"
    if key in _VALUES or any(word.role("noun") in {"value", "option", "file"} for word in words):
        return "value"
    return ""


# -- lines ------------------------------------------------------------------------------------------------------------

MAX_CHARACTERS = 60_000
"""Of a completion; what is beyond is not read."""
MAX_STEPS = 300
"""Actions of a plan; what is beyond is not read."""
MAX_LINE = 12_000
"""Characters of one step; longer ones are not understood."""
MAX_VALUE = 10_000
"""Characters of one argument; longer ones are not understood."""
_MOST_LINES = 40
"""Line breaks in one quotation at which it may end."""

_MARKER = re.compile(
    r"\s{0,16}(?:\|\s{0,3})?(?:(?:[-*•>→◦▪‣·–—✓✅☐☑+]|#{1,4})\s{1,3})?(?:\[[ xX]?\]\s{1,3})?[*_#]{0,3}\s?"
    r"(?:(?P<word>step|passo|etapa|action|task|ação|acao|tarefa)\b\s{0,2}#?\s?)?"
    r"(?P<number>[(\[]?\d{1,4}(?:\.\d{1,3})?[ºª°]?(?:\s(?:passo|etapa|step)\b)?(?![\w/'\"@])[\ufe0f\u20e3]{0,2})?"
    r"[*_]{0,2}(?:\s{0,2}[:.)\]|–—-]{1,2})?[*_]{0,2}\s{0,4}",
    re.IGNORECASE,
)
"""What may stand before a step; it matches nothing, too."""
_DONE = re.compile(r"(?:done|finish(?:ed)?|concluído|pronto|fim)(?![\w-])(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_FAILED = "without success"
AROUND_URL = "'\"`<>()[]*_.,;“”‘’«»"
"""What stands around an address without quotation marks, and is none of it."""
_OPENING = 500
"""Characters in which a step that goes to an address says so, and of the longest title."""
_MOST_STEPS = 20_000
_TITLE_ROLES = frozenset({"noun", "article", "called", "adverb"})
"""Words that a line may have besides the label of a control, and ask for nothing."""
_FENCE = re.compile(r"`{3,}\w*|`*")


COSTLY = Plan((), "none+costly")
"""A plan that takes more than `tokens.MOST_WORK`."""


def read_steps(text: str, names: Names = UNKNOWN) -> Plan:
    """Read plain-text steps, one to a line; a value in quotes may go on over several lines.

    Markers and numbers may be of any style or missing. What claims to be a step (it has a number, or begins with a
    verb) and is not understood is counted as unread; what says that nothing is to be done is counted as idle.

    Args:
        text: what a model wrote.
        names: of the form's controls, where the form is known.
    """
    try:
        return _read_all(text, names, Work())
    except TooMuchWorkError:
        return COSTLY


def _read_all(text: str, names: Names, work: Work) -> Plan:
    actions: list[Action] = []
    unread = idle = 0
    topic = ""
    steps = _steps(text[:MAX_CHARACTERS], names, work)
    for at, line in enumerate(steps):
        said = read_line(line, names, work)
        if topic and (about := _about(topic, line, said, names, work)) is not None:
            said = about
        elif said == (plan.Submit(),) and at + 1 < len(steps) and _heads(line, steps[at + 1], names, work):
            said = ()
        topic = _topic_after(line, said, topic, names)
        unread += said is None and topic == "" and claims(line)
        idle += said == () or (said is None and topic != "" and claims(line))
        actions += said or ()
        if len(actions) > MAX_STEPS:
            break
    cut = len(text) > MAX_CHARACTERS or len(actions) > MAX_STEPS
    how = "steps" if actions else "none"
    how += ("+unread" if unread else "") + ("+cut" if cut else "")
    return Plan(tuple(actions[:MAX_STEPS]), how, unread, idle)


def _steps(text: str, names: Names, work: Work) -> list[str]:
    """The lines that may be steps, without empty ones; a quotation that is open goes on in the next line."""
    steps: list[str] = []
    pending, lines = "", 0
    for line in cleaned(text).split("\n"):
        # Inside a quotation, or after a step that nobody will understand?
        may_go_on = opens(pending) and len(pending) < MAX_LINE and lines < _MOST_LINES and not _starts(line)
        if may_go_on and read_line(pending, names, work) is None:
            lines += has_quote(line)
            pending += "\n" + line
            continue
        steps.append(pending)
        pending, lines = "" if _FENCE.fullmatch(line.strip()) else line, 0
        if len(steps) > _MOST_STEPS:
            break
    return [one for one in (*steps, pending) if one]


def cleaned(text: str) -> str:
    """Without a thought before the answer, and with one kind of line break."""
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    return text.replace("\r\n", "\n").replace("\r", "\n")


def cut(line: str) -> tuple[re.Match[str], str]:
    """The marker of a line, and what it says."""
    marker = _MARKER.match(line)
    assert marker is not None
    return marker, line[marker.end() :].strip()


def _starts(line: str) -> bool:
    """Whether a line begins a step: with a marker, or with a verb of the table."""
    marker, rest = cut(line)
    marked = marker.group("word") is not None and marker.group("number") is not None
    return marked or _begins_with_verb(rest)


def claims(line: str) -> bool:
    """Whether a line that was not understood claims to be a step."""
    marker, rest = cut(line)
    return bool(rest.strip(" .:-*_`")) and (marker.group("number") is not None or _begins_with_verb(rest))


def _begins_with_verb(text: str) -> bool:
    words = words_of(text[:60])
    for word in words or ():
        if "verb" in word.roles:
            return True
        if "adverb" not in word.roles and not word.is_sign:
            return False
    return False


# -- what the lines around a line say ----------------------------------------------------------------------------


def _heads(line: str, following: str, names: Names, work: Work) -> bool:
    """Whether a line only announces the one below it: "### Submit", "Submit the form:", or with that one indented."""
    indents = [len(one) - len(one.lstrip()) for one in (line, following)]
    return (
        (_is_title(line) or indents[1] > indents[0])
        and not following.lstrip().startswith("#")
        and bool(read_line(following, names, work))
    )


def _is_title(line: str) -> bool:
    return line.lstrip().startswith("#") or line.rstrip(" *_").endswith(":")


def _topic_after(line: str, said: tuple[Action, ...] | None, topic: str, names: Names) -> str:
    """The control that the next line may be about without naming it; "" where there is none.

    It is the one that was just clicked on, or that a line names which asks for nothing ("2. **Full name**").
    """
    if said:
        clicked = said[0].label if len(said) == 1 and isinstance(said[0], plan.Click) else ""
        if names.kind(clicked) not in {"", "checkbox"}:
            return clicked
        return topic if names.kind(topic) in {"multiselect", "checkboxes"} else ""
    if said == ():
        return topic
    named = mentions(cut(line)[1], names)
    if len(named) != 1 or not names.kind(named[0].text):
        return ""
    roles = _TITLE_ROLES | ({"verb", "link"} if _is_title(line) else frozenset())
    tokens = tokens_of(cut(line)[1], named) or []
    only = all(token.argument is not None or token.is_sign or token.roles.keys() & roles for token in tokens)
    return named[0].text if only else ""


def _about(
    topic: str, line: str, said: tuple[Action, ...] | None, names: Names, work: Work
) -> tuple[Action, ...] | None:
    """What a line enters into the control that an earlier one named; None where it says itself what it is about."""
    body = cut(line)[1]
    if said is not None and not (
        len(said) == 1 and isinstance(said[0], plan.Click | plan.Submit) and not names.knows(said[0].label)
    ):
        return None
    if mentions(body, names) or opens(topic):
        return None
    about = read_line(f"'{topic}': {body}", names, work)
    return about if about and all(isinstance(one, Fill) and one.label == topic for one in about) else None


# -- one line ----------------------------------------------------------------------------------------------------


def read_step(line: str) -> Action | None:
    """Read one step by itself; None where it is none, or says more or less than one thing."""
    said = read_line(line)
    return said[0] if said is not None and len(said) == 1 else None


def read_line(line: str, names: Names = UNKNOWN, work: Work | None = None) -> tuple[Action, ...] | None:
    """Read one line.

    Args:
        line: of a plan.
        names: of the form's controls.
        work: of the whole plan, where there is more of it.

    Returns:
        Its actions; () where it says that nothing is to be done; None where it is not understood.

    Raises:
        TooMuchWorkError: the plan takes more than it may; never where `work` is None.
    """
    if len(line) > MAX_LINE:
        return None
    said, spent = _read_body(cut(line)[1], names)
    if work is not None:
        work.spend(spent)
    return said


# A group of rollouts says the same things again and again, whatever their numbers.
@lru_cache(maxsize=8192)
def _read_body(body: str, names: Names) -> tuple[tuple[Action, ...] | None, int]:
    """What a step says, and the work that it takes, which is the same where it is known from before."""
    work = Work()
    said = None
    if len(body) <= _OPENING and names.kind(body.strip("*_:# ")):
        return None, 1  # a title, although a label may begin like a step: "Access needs", "Select topics"
    try:
        for text in dict.fromkeys((body, *plainer(body))):
            said = _read_text(text, names, work)
            if said is not None:
                break
    except TooMuchWorkError:
        pass
    return said, work.spent


def _read_text(text: str, names: Names, work: Work) -> tuple[Action, ...] | None:
    work.look(len(text), words=min(len(text), _OPENING) if "/" in text else 0)
    if (done := _DONE.fullmatch(text)) is not None and (action := _done(done.group("rest"))) is not None:
        return (action,)
    if (url := _navigates(text, names)) is not None:
        return (plan.Navigate(url),)
    if (called := read_call(text, names)) is not None:
        return tuple(called)
    said = sentences(text, names, work)
    if said is None:
        return None
    actions: list[Action] = []
    for one in said:
        entered = actions_of(one, text, names)
        if entered is None:
            return None
        actions += entered
    if any(len(value) > MAX_VALUE for action in actions for value in _texts_of(action)):
        return None
    return tuple(actions)


def _texts_of(action: Action) -> list[str]:
    return [value for name in action.__slots__ if isinstance(value := getattr(action, name), str)]


def _done(rest: str) -> Action | None:
    text = rest.lstrip(":.,;! ")
    if is_quoted(text) or not text:
        return plan.Done(unquoted(text) if text else "")
    failed = text.removeprefix(_FAILED).lstrip(":.,; ")
    if failed != text and (is_quoted(failed) or not failed):
        return plan.Done(unquoted(failed) if failed else "", success=False)
    return None


def _navigates(text: str, names: Names) -> str | None:
    """The address that a step goes to; None where it goes to none."""
    if "/" not in text:
        return None
    tokens = tokens_of(text[:_OPENING], ()) or []
    verbs = verbs_of(tokens)
    url = URL.search(text)
    if url is not None and verbs and any(token.role("noun") == "bar" for token in tokens):
        return url.group().rstrip(AROUND_URL)
    if not verbs or tokens[verbs[0]].role("verb") != "navigate" or len(next(quotations(text), ())) > 1:
        return None
    if any({"refusal", "doubt"} & token.roles.keys() for token in tokens[: verbs[0]]):
        return None
    if any(tokens[at].role("verb") in {"type", "use", "set", "append"} for at in verbs) and mentions(text, names):
        return None  # "go to the field L and type the address"
    rest = text[tokens[verbs[0]].end :].strip()
    if is_quoted(rest):
        return unquoted(rest) if "/" in rest else None
    if url is not None:
        return url.group().rstrip(AROUND_URL)
    last = rest.rsplit(" ", 1)[-1]
    last = unquoted(last) if is_quoted(last) else last.strip(AROUND_URL)
    return last if "/" in last else None
