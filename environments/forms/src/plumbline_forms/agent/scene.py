"""What a browser agent tells its model of a step, and what the planner is asked for the page that
it tells of.

The state is the text that browser-use (0.13) writes. Its elements are lines
`[7]<input type=text name=city />`, with the page's texts between them, indented by their depth;
what an element is called stands in a text beside it. From these lines a `PageModel` is made, so
that a label means here what it means to every executor. The page becomes a `Form`, too, as if it
had been declared, so `plumbline_forms.prompts` writes the prompt as it does in training.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

from plumbline.errors import DataError
from plumbline.records import Message
from plumbline.tasks.tables import read_table
from plumbline_browser.plans.grammar import folded, loose
from plumbline_forms import prompts
from plumbline_forms.executors.executor import OK, Attempt, Execution
from plumbline_forms.executors.page import Choice, Control, PageModel
from plumbline_forms.site.site import Receipt
from plumbline_forms.suite.declaration import Field, Form, FormPage, Kind, Option

ACTIONS = 4
"""Of a step, where the agent does not say how many it carries out."""
MOST_TEXT = 500_000
"""Characters of a chat that are read; more is refused."""
_TAB = re.compile(r"^Tab (\w{4}): (\S+)", re.MULTILINE)
_LIMIT = re.compile(r"maximum of (\d{1,3}) actions per step")
_PORTUGUESE = frozenset({"o", "os", "do", "da", "em", "no", "na", "não", "para", "com", "que", "é"})
_ENGLISH = frozenset(
    {"the", "in", "at", "and", "it", "to", "of", "is", "what", "with", "for", "this"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One step of an agent, as it tells it."""

    task: str
    history: str
    """Earlier steps: what the model answered, and what became of it."""
    url: str
    page: PageModel
    """Its controls have the agent's numbers as their places; a control is called what the text
    beside it says, else what its own attributes say (aria-label, placeholder)."""
    lines: tuple[str, ...]
    """The texts of the page, in order."""
    after: Mapping[int, Sequence[str]]
    """By the number of a control, the texts between it and the next control."""
    above: float
    below: float
    """Screens of the page that lie outside of what is shown."""
    dialogs: int
    """Dialogs that the page opened and the agent closed."""
    files: Mapping[str, str]
    """Paths of the files that may be attached, by name."""
    most_actions: int
    """Of a step."""


def is_step(messages: Sequence[Message]) -> bool:
    """Whether a chat is a browser agent's step."""
    return any("<browser_state>" in one["content"] for one in messages if one["role"] == "user")


def read_scene(messages: Sequence[Message]) -> Scene:
    """What an agent says in a step.

    Raises:
        DataError: it is no step of a browser agent, or too long.
    """
    if sum(len(one["content"]) for one in messages) > MOST_TEXT:
        raise DataError(
            f"a browser agent's step of over {MOST_TEXT:,} characters",
            "let the agent shorten its state",
        )
    if not is_step(messages):
        raise DataError(
            "this model plans the steps of a browser agent, and the chat holds no <browser_state>",
            "ask the model itself, or turn off what else the agent asks for (use_judge=False)",
        )
    told = next(
        one["content"]
        for one in messages
        if one["role"] == "user" and "<browser_state>" in one["content"]
    )
    instructions = "\n".join(one["content"] for one in messages if one["role"] == "system")
    task = _between(told, "user_request").strip()
    head, _, elements = _between(told, "browser_state", last=True).partition("Interactive elements")
    reading = _read(elements.partition(":\n")[2])
    tabs = dict(_TAB.findall(head))
    current = re.search(r"^Current tab: (\w{4})", head, re.MULTILINE)
    above, below = (
        re.search(rf"(\d+(?:\.\d+)?) pages {side}", head) for side in ("above", "below")
    )
    paths = (
        told.partition("<available_file_paths>")[2]
        .partition("</available_file_paths>")[0]
        .splitlines()
    )
    limit = _LIMIT.search(instructions)
    return Scene(
        task=task,
        history=_between(told, "agent_history"),
        url=tabs.get(current.group(1) if current else "", next(reversed(tabs.values()), "")),
        page=PageModel(language_of(task), " ".join(reading.lines), tuple(reading.controls), ()),
        lines=tuple(reading.lines),
        after=reading.after,
        above=float(above.group(1)) if above else 0.0,
        below=float(below.group(1)) if below else 0.0,
        dialogs=head.partition("Auto-closed JavaScript dialogs:\n")[2]
        .partition("\n\n")[0]
        .count("  - "),
        files={
            re.split(r"[/\\]", path)[-1]: path
            for path in paths
            if path and path != "Use with absolute paths"
        },
        most_actions=max(1, int(limit.group(1))) if limit else ACTIONS,
    )


def language_of(task: str) -> str:
    """Portuguese where the task is written in it, else English."""
    words = re.findall(r"\w+", task.casefold()[:4000])
    return (
        "pt"
        if sum(word in _PORTUGUESE for word in words) > sum(word in _ENGLISH for word in words)
        else "en"
    )


def _between(text: str, tag: str, *, last: bool = False) -> str:
    """What stands in a tag; up to its last closing tag where the text in it may hold one."""
    begin = text.find(f"<{tag}>\n")
    end = text.rfind(f"\n</{tag}>") if last else text.find(f"\n</{tag}>", begin)
    return text[begin + len(tag) + 3 : end] if 0 <= begin < end else ""


# -- lines to controls -----------------------------------------------------------------------------

_ELEMENT = re.compile(
    r"(\t*)(?:\|SHADOW\(\w+\)\|)?\*?(?:\|scroll element)?\[(\d{1,9})\]<([a-zA-Z][\w-]*)(.*)",
    re.DOTALL,
)
_END = re.compile(r"/>(?: \([^()]*\))?$")
_BARE = re.compile(
    r"\|(?:scroll element|IFRAME|FRAME)\||\t*(?:Open Shadow|Closed Shadow|Shadow End)$|\t*\.\.\. \("
    r"|\s*\[(?:Start|End) of page\]\s*$"
)
_KEYS = (
    "title|type|checked|id|name|role|value|placeholder|alt|aria-[a-z]+|data-[a-z-]+|pattern|min|max|minlength|maxlength"
    "|step|accept|multiple|inputmode|autocomplete|list|format|expected_format|contenteditable|pseudo|selected|expanded"
    "|pressed|disabled|invalid|valuemin|valuemax|valuenow|keyshortcuts|haspopup|multiselectable|required|valuetext"
    "|level|busy|live|ax_name|image_[a-z]+|compound_components"
)
_ATTRIBUTE = re.compile(rf" ({_KEYS})=(.*?)(?= (?:{_KEYS})=|$)", re.DOTALL)
_OPTIONS = re.compile(
    r"\(name=Options,role=listbox,count=(\d{1,6}),options=(.{0,400}?)(?:,format=[^(),]*)?\)(?:,\(name=|$)"
)
_MADE_UP = frozenset(
    {"YYYY-MM-DD", "HH:MM", "YYYY-MM-DDTHH:MM", "YYYY-MM", "YYYY-W##", "123-456-7890"}
)
"""Placeholders that the agent adds to controls that have none."""
_MOST_JOINED = 400
"""Lines of one element: values have line breaks."""
_MOST_OPTIONS = 1000
"""Of one list that are read; the agent finds the others by their text."""
LISTS = frozenset({"select", "multiselect"})
INCOMPLETE = "data-incomplete"
"""Set in the attributes of a list of which the agent shows only the first options."""


@dataclass(slots=True)
class _Reading:
    """The page as far as it was read."""

    controls: list[Control] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    after: dict[int, list[str]] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    """Texts since the last control that are nobody's label so far."""
    groups: dict[tuple[str, str], str] = field(default_factory=dict)


def _read(text: str) -> _Reading:
    reading = _Reading()
    before, deep = "", 0  # the kind of the control right before a text, and its depth
    lines = iter(text.split("\n"))
    for line in lines:
        if (found := _ELEMENT.fullmatch(line)) is None:
            shown, depth = line.strip(), len(line) - len(line.lstrip("\t"))
            if not shown or _BARE.match(line):
                continue
            reading.lines.append(shown)
            # What a box, a radio button or a button is called stands right after it.
            is_own = (
                depth > deep
                if before == "button"
                else depth >= deep and before in {"checkbox", "radio"}
            )
            if is_own:
                reading.controls[-1] = replace(
                    reading.controls[-1], label=reading.controls[-1].label or shown
                )
            else:
                reading.pending.append(shown)
                if reading.controls:
                    reading.after.setdefault(reading.controls[-1].index, []).append(shown)
            before = ""
            continue
        whole = [found.group(4)]
        while (
            not _END.search(whole[-1])
            and len(whole) < _MOST_JOINED
            and (more := next(lines, None)) is not None
        ):
            whole.append(more)
        attributes = dict(reversed(_ATTRIBUTE.findall(_END.sub("", "\n".join(whole)).rstrip())))
        tag, before, deep = found.group(3).lower(), "", len(found.group(1))
        if tag == "option":
            _add_option(reading, attributes)
        elif kind := _kind(tag, attributes):
            _add(reading, int(found.group(2)), tag, kind, attributes)
            before = kind
    sizes: dict[str, int] = {}
    for one in reading.controls:
        sizes[one.name] = sizes.get(one.name, 0) + (one.kind == "checkbox")
    reading.controls = [
        replace(one, group="") if one.kind == "checkbox" and sizes[one.name] == 1 else one
        for one in reading.controls
    ]
    return reading


def _kind(tag: str, attributes: Mapping[str, str]) -> str:
    """The kind of an element's control; "" for what is none."""
    kind = attributes.get("type", "text").lower()
    if tag == "input":
        return (
            "button" if kind in {"submit", "image", "button"} else "" if kind == "reset" else kind
        )
    if tag == "select":
        return "multiselect" if attributes.get("multiselectable") == "true" else "select"
    if tag == "textarea":
        return "textarea"
    return "button" if tag == "button" or attributes.get("role") == "button" else ""


def _add(reading: _Reading, index: int, tag: str, kind: str, attributes: dict[str, str]) -> None:
    aria, placeholder = attributes.get("aria-label", ""), attributes.get("placeholder", "")
    own = aria or ("" if placeholder in _MADE_UP else placeholder)
    hint = reading.controls[-1].attributes.get("title") if own and reading.controls else None
    beside = next((text for text in reversed(reading.pending) if text != hint), "")
    name = attributes.get("name") or attributes.get("id") or f"#{index}"
    group = ""
    choices: tuple[Choice, ...] = ()
    if kind in {"checkbox", "radio"}:
        group = reading.groups.setdefault((kind, name), beside)
        own, beside = aria, ""
    elif kind == "button":
        own, beside = aria, attributes.get("value", "") if tag == "input" else ""
    if "Files Selected" in attributes.get("compound_components", ""):
        attributes["multiple"] = ""
    if kind in LISTS and (found := _OPTIONS.search(attributes.get("compound_components", ""))):
        # The agent shows four options at most, thirty characters each.
        texts = [text for text in found.group(2).split("|") if not text.endswith("...")]
        choices = tuple(Choice(text, text) for text in texts)
        if len(texts) != int(found.group(1)):
            attributes[INCOMPLETE] = ""
    reading.controls.append(
        Control(
            index,
            kind,
            name,
            beside or own or attributes.get("title", ""),
            group,
            attributes.get("value", "on" if kind in {"checkbox", "radio"} else ""),
            attributes.get("checked") == "true",
            choices,
            attributes=attributes,
            disabled=attributes.get("disabled") == "true",
            aliases=(own,) if own and beside else (),
        )
    )
    reading.pending.clear()


def _add_option(reading: _Reading, attributes: Mapping[str, str]) -> None:
    """An option that stands by itself, as those of open lists do: its value, and whether it is
    chosen.

    The agent shows them without their texts, which are known of the first ones alone.
    """
    if not reading.controls or (listed := reading.controls[-1]).kind not in LISTS:
        return
    number = int(listed.attributes.get("data-options", "0"))
    if number >= _MOST_OPTIONS:
        return
    value = attributes.get("value", "")
    text = listed.choices[number].text if number < len(listed.choices) else value
    reading.controls[-1] = replace(
        listed,
        choices=(
            *listed.choices[:number],
            Choice(value or text, text),
            *listed.choices[number + 1 :],
        ),
        chosen=(*listed.chosen, number) if attributes.get("selected") == "true" else listed.chosen,
        attributes={**listed.attributes, "data-options": str(number + 1)},
    )


# -- what the planner is asked ---------------------------------------------------------------------

Surface = Literal["values", "document"]
_WORDS = read_table(Path(prompts.__file__).with_name("prompts.yaml"))
_TOLD = re.compile(r"^- [^:\n]+: .", re.MULTILINE)
_KINDS: Mapping[str, Kind] = {kind: kind for kind in get_args(Kind)}
_GROUPS = {"radio": "radio", "checkbox": "checkboxes"}


def given_of(task: str) -> tuple[str, Surface]:
    """What to enter, out of an agent's task, and how it is told.

    Below one of the headings of the forms task's prompts, up to its list of controls; a task
    without them is taken as a whole, as values where it has lines "- label: value".
    """
    for words in _WORDS.values():
        for surface in get_args(Surface):
            _, heading, rest = task.partition(words[surface] + "\n")
            if heading:
                return rest.partition("\n\n" + words["page"])[0].strip(), surface
    return task.strip(), "values" if len(_TOLD.findall(task)) > 1 else "document"


def form_of(scene: Scene) -> Form:
    """The page as a declared form: its controls in order, each label once."""
    fields: list[Field] = []
    seen: set[str] = set()
    members: dict[tuple[str, str], list[Control]] = {}
    for one in scene.page.controls:
        members.setdefault((one.kind, one.name), []).append(one)
    for one in scene.page.controls:
        group = members[one.kind, one.name]
        grouped = one.kind in _GROUPS and (len(group) > 1 or one.kind == "radio")
        label = (one.group if grouped else one.label) or one.name
        if (
            one.kind in {"button", "hidden"}
            or folded(label) in seen
            or (grouped and one is not group[0])
        ):
            continue
        seen.add(folded(label))
        fields.append(_field(one, label, group if grouped else (), f"{one.name}-{len(fields)}"))
    buttons = [one for one in scene.page.controls if one.kind == "button"]
    sending = [one for one in buttons if one.attributes.get("type") == "submit"] or buttons
    parts = [part for part in urlsplit(scene.url).path.split("/") if part and not part.isdecimal()]
    domain, name = ["", "", *parts][-2:]
    return Form(
        name=name,
        domain=domain,
        title=scene.lines[0] if scene.lines else "",
        pages=(FormPage(tuple(fields)),),
        button=sending[-1].label if sending else "",
        language="pt" if scene.page.language == "pt" else "en",
    )


def _field(one: Control, label: str, group: Sequence[Control], name: str) -> Field:
    kind = _KINDS.get(_GROUPS[one.kind] if group else one.kind, "text")
    if group:
        options = [Option(member.value, member.label or member.value) for member in group]
    else:
        options = [
            Option(choice.value, choice.text) for choice in one.choices if loose(choice.text)
        ]
    if kind in LISTS and not options:
        options = [Option("", "...")]  # a list of which the agent shows nothing
    wanted = any(
        "true" in {m.attributes.get("required"), m.attributes.get("invalid")}
        for m in group or (one,)
    )
    unique = tuple({option.value: option for option in options}.values())
    return Field(
        name=name, label=label, kind=kind, draw=lambda _: None, required=wanted, options=unique
    )


def further_prompt(
    scene: Scene, attempts: Sequence[str], before: frozenset[str], *, prefilled: bool
) -> Message:
    """What became of a plan that sent nothing complete, and the request for another.

    Args:
        scene: the page after it.
        attempts: for each action that was carried out why it came to nothing, "" where it did not.
        before: the texts that the page had before.
        prefilled: whether the form came filled in.
    """
    form, errors = form_of(scene), {}
    names = {folded(one.label): one.name for one in form.fields}
    for control in scene.page.controls:
        said = [text for text in scene.after.get(control.index, ()) if text not in before]
        if said and (name := names.get(folded(control.group or control.label or control.name))):
            errors[name] = said[0]
    done = tuple(Attempt("refused", reason) if reason else OK for reason in attempts)
    receipt = Receipt(1, 1, {}, {}, errors, complete=False)
    shown = Execution(done, (receipt,), " ".join(scene.lines))
    return {"role": "user", "content": prompts.again(form, shown, prefilled=prefilled)}


def why_not_sent(scene: Scene) -> str:
    """The first control for which a browser keeps a form back, as executors say it; "" where none
    is seen."""
    for one in scene.page.controls:
        if one.kind in {"button", "hidden", "radio", "checkbox"} or one.value:
            continue
        if one.attributes.get("required") == "true" and one.kind not in {
            "password",
            "multiselect",
            "file",
        }:
            return f"not sent, {one.called}: missing"
    wrong = next(
        (one for one in scene.page.controls if one.attributes.get("invalid") == "true"), None
    )
    return "" if wrong is None else f"not sent, {wrong.called}: missing or not valid"
