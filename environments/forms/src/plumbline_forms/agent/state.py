"""What a browser agent tells its model of a step: the task, what became of earlier steps, and the page that is open.

The state is the text that browser-use (0.13) writes. Its elements are lines `[7]<input type=text name=city />`, with
the page's texts between them, indented by their depth; what an element is called stands in a text beside it. From these
lines a `PageModel` is made, so that a label means here what it means to every executor.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from plumbline.errors import DataError
from plumbline.records import Message
from plumbline_forms.executors.page import Choice, Control, PageModel

_ELEMENT = re.compile(
    r"(\t*)(?:\|SHADOW\(\w+\)\|)?\*?(?:\|scroll element)?\[(\d{1,9})\]<([a-zA-Z][\w-]*)(.*)", re.DOTALL
)
_END = re.compile(r"/>(?: \([^()]*\))?$")
_BARE = re.compile(r"\|(?:scroll element|IFRAME|FRAME)\||\t*(?:Open Shadow|Closed Shadow|Shadow End)$|\t*\.\.\. \(")
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
_MADE_UP = frozenset({"YYYY-MM-DD", "HH:MM", "YYYY-MM-DDTHH:MM", "YYYY-MM", "YYYY-W##", "123-456-7890"})
"""Placeholders that the agent adds to controls that have none."""
_TAB = re.compile(r"^Tab (\w{4}): (\S+)", re.MULTILINE)
_LIMIT = re.compile(r"maximum of (\d{1,3}) actions per step")
_PORTUGUESE = frozenset({"o", "os", "do", "da", "em", "no", "na", "não", "para", "com", "que", "é"})
_ENGLISH = frozenset({"the", "in", "at", "and", "it", "to", "of", "is", "what", "with", "for", "this"})
MOST_TEXT = 500_000
"""Characters of a chat that are read; more is refused."""
_MOST_JOINED = 400
"""Lines of one element: values have line breaks."""
_MOST_OPTIONS = 1000
"""Of one list that are read; the agent finds the others by their text."""
INCOMPLETE = "data-incomplete"
"""Set in the attributes of a list of which the agent shows only the first options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One step of an agent, as it tells it."""

    task: str
    history: str
    """Earlier steps: what the model answered, and what became of it."""
    url: str
    page: PageModel
    """Its controls have the agent's numbers as their places; a control is called what the text beside it says."""
    second: PageModel
    """The same controls, called by their own attributes (aria-label, placeholder) before the text beside them."""
    lines: tuple[str, ...]
    """The texts of the page, in order."""
    after: Mapping[int, tuple[str, ...]]
    """By the number of a control, the texts between it and the next control."""
    above: float
    below: float
    """Screens of the page that lie outside of what is shown."""
    dialogs: int
    """Dialogs that the page opened and the agent closed."""
    files: Mapping[str, str]
    """Paths of the files that may be attached, by name."""
    most_actions: int | None
    """Of a step; None where the agent does not say."""


def is_step(messages: Sequence[Message]) -> bool:
    """Whether a chat is a browser agent's step."""
    return any("<browser_state>" in one["content"] for one in messages if one["role"] == "user")


def read_scene(messages: Sequence[Message], language: str | None = None) -> Scene:
    """What an agent says in a step.

    Args:
        messages: its chat.
        language: of the page ("en", "pt"); None goes by the task.

    Raises:
        DataError: it is no step of a browser agent, or too long.
    """
    if sum(len(one["content"]) for one in messages) > MOST_TEXT:
        raise DataError(f"a browser agent's step of over {MOST_TEXT:,} characters", "let the agent shorten its state")
    told = next(
        (one["content"] for one in messages if one["role"] == "user" and "<browser_state>" in one["content"]), ""
    )
    if not told:
        raise DataError(
            "this model plans the steps of a browser agent, and the chat holds no <browser_state>",
            "ask the model itself, or turn off what else the agent asks for (use_judge=False)",
        )
    instructions = "\n".join(one["content"] for one in messages if one["role"] == "system")
    state = _between(told, "browser_state", last=True)
    task = _between(told, "user_request").strip()
    head, _, elements = state.partition("Interactive elements")
    items = _items(elements.partition(":\n")[2])
    tongue = language or language_of(task)
    reading = _read(items)
    pages = [PageModel(tongue, " ".join(reading.lines), tuple(found), ()) for found in (reading.named, reading.second)]
    limit = _LIMIT.search(instructions)
    return Scene(
        task=task,
        history=_between(told, "agent_history"),
        url=_address(head),
        page=pages[0],
        second=pages[1],
        lines=tuple(reading.lines),
        after={index: tuple(texts) for index, texts in reading.after.items()},
        above=_pages(head, "above"),
        below=_pages(head, "below"),
        dialogs=head.partition("Auto-closed JavaScript dialogs:\n")[2].partition("\n\n")[0].count("  - "),
        files=_files(told),
        most_actions=max(1, int(limit.group(1))) if limit else None,
    )


def language_of(task: str) -> str:
    """Portuguese where the task is written in it, else English."""
    words = re.findall(r"\w+", task.casefold()[:4000])
    portuguese = sum(
        word in {"o", "os", "do", "da", "em", "no", "na", "não", "para", "com", "que", "é"} for word in words
    )
    english = sum(
        word in {"the", "in", "at", "and", "it", "to", "of", "is", "what", "with", "for", "this"} for word in words
    )
    return "pt" if portuguese > english else "en"


def _between(text: str, tag: str, *, last: bool = False) -> str:
    """What stands in a tag; up to its last closing tag where the text in it may hold one."""
    begin = text.find(f"<{tag}>\n")
    end = text.rfind(f"\n</{tag}>") if last else text.find(f"\n</{tag}>", begin)
    return text[begin + len(tag) + 3 : end] if 0 <= begin < end else ""


def _address(head: str) -> str:
    tabs = dict(_TAB.findall(head))
    current = re.search(r"^Current tab: (\w{4})", head, re.MULTILINE)
    if current and current.group(1) in tabs:
        return str(tabs[current.group(1)])
    return str(next(reversed(tabs.values()))) if tabs else ""


def _pages(head: str, side: str) -> float:
    found = re.search(rf"(\d+(?:\.\d+)?) pages {side}", head)
    return float(found.group(1)) if found else 0.0


def _files(told: str) -> dict[str, str]:
    begin, end = told.find("<available_file_paths>"), told.find("</available_file_paths>")
    paths = told[begin + len("<available_file_paths>") : end].splitlines() if 0 <= begin < end else []
    return {
        path.replace("\\", "/").rpartition("/")[2]: path for path in paths if path and path != "Use with absolute paths"
    }


# -- lines to controls -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Item:
    """A text of the page, or (with a tag) an element of it."""

    depth: int
    text: str = ""
    index: int = 0
    tag: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


def _items(text: str) -> list[_Item]:
    items: list[_Item] = []
    lines = iter(text.split("\n"))
    for line in lines:
        if (found := _ELEMENT.fullmatch(line)) is not None:
            whole = [found.group(4)]
            while not _END.search(whole[-1]) and len(whole) < _MOST_JOINED and (more := next(lines, None)) is not None:
                whole.append(more)
            body = "\n".join(whole)
            attributes = dict(reversed(_ATTRIBUTE.findall(_END.sub("", body).rstrip())))
            tag = found.group(3).lower()
            items.append(_Item(len(found.group(1)), "", int(found.group(2)), tag, attributes))
        elif (shown := line.strip()) and not _BARE.match(line) and shown not in {"[Start of page]", "[End of page]"}:
            items.append(_Item(len(line) - len(line.lstrip("\t")), shown))
    return items


@dataclass(slots=True)
class _Reading:
    """The page as far as it was read."""

    named: list[Control] = field(default_factory=list)
    second: list[Control] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    after: dict[int, list[str]] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    """Texts since the last control that are nobody's label so far."""
    groups: dict[tuple[str, str], str] = field(default_factory=dict)


def _read(items: Sequence[_Item]) -> _Reading:
    reading = _Reading()
    for place, item in enumerate(items):
        if not item.tag:
            reading.lines.append(item.text)
            if _is_own_text(items, place):
                _call(reading, item.text)
            else:
                reading.pending.append(item.text)
                if reading.named:
                    reading.after.setdefault(reading.named[-1].index, []).append(item.text)
        elif item.tag == "option":
            _add_option(reading, item)
        elif (kind := _kind(item)) is not None:
            _add(reading, item, kind)
    sizes: dict[tuple[str, str], int] = {}
    for control in reading.named:
        sizes[control.kind, control.name] = sizes.get((control.kind, control.name), 0) + 1
    for controls in (reading.named, reading.second):
        controls[:] = [
            replace(one, group="") if one.kind == "checkbox" and sizes[one.kind, one.name] == 1 else one
            for one in controls
        ]
    return reading


def _kind(item: _Item) -> str | None:
    kind = item.attributes.get("type", "text").lower()
    if item.tag == "input":
        return "button" if kind in {"submit", "image", "button"} else None if kind == "reset" else kind
    if item.tag == "select":
        return "multiselect" if item.attributes.get("multiselectable") == "true" else "select"
    if item.tag == "textarea":
        return "textarea"
    return "button" if item.tag == "button" or item.attributes.get("role") == "button" else None


def _is_own_text(items: Sequence[_Item], place: int) -> bool:
    """Whether a text is what the box, radio button or button right before it is called."""
    before = items[place - 1] if place else _Item(0)
    kind = _kind(before) if before.tag else None
    if kind == "button":
        return items[place].depth > before.depth
    return kind in {"checkbox", "radio"} and items[place].depth >= before.depth


def _call(reading: _Reading, text: str) -> None:
    for controls in (reading.named, reading.second):
        controls[-1] = replace(controls[-1], label=controls[-1].label or text)


def _add(reading: _Reading, item: _Item, kind: str) -> None:
    attributes = dict(item.attributes)
    own = attributes.get("aria-label") or _placeholder(attributes)
    hint = reading.named[-1].attributes.get("title") if reading.named else None
    texts = [text for text in reading.pending if text != hint] if own else reading.pending
    beside = texts[-1] if texts else ""
    name = attributes.get("name") or attributes.get("id") or f"#{item.index}"
    if "Files Selected" in attributes.get("compound_components", ""):
        attributes["multiple"] = ""
    group = ""
    if kind in {"checkbox", "radio"}:
        group = reading.groups.setdefault((kind, name), beside)
        own, beside = attributes.get("aria-label", ""), ""
    elif kind == "button":
        own, beside = attributes.get("aria-label", ""), attributes.get("value", "") if item.tag == "input" else ""
    choices, complete = _choices(attributes) if kind in {"select", "multiselect"} else ((), True)
    if not complete:
        attributes[INCOMPLETE] = ""
    value = attributes.get("value", "on" if kind in {"checkbox", "radio"} else "")
    control = Control(
        item.index,
        kind,
        name,
        beside or own or attributes.get("title", ""),
        group,
        value,
        attributes.get("checked") == "true",
        choices,
        (),
        attributes,
        (),
        attributes.get("disabled") == "true",
    )
    reading.named.append(control)
    reading.second.append(replace(control, label=own or control.label))
    reading.pending.clear()


def _placeholder(attributes: Mapping[str, str]) -> str:
    shown = attributes.get("placeholder", "")
    return "" if shown in _MADE_UP else shown


def _choices(attributes: Mapping[str, str]) -> tuple[tuple[Choice, ...], bool]:
    """The options that the agent shows of a list (four at most, thirty characters each), and whether they are all."""
    found = _OPTIONS.search(attributes.get("compound_components", ""))
    if found is None:
        return (), False
    texts = found.group(2).split("|")
    whole = [text for text in texts if not text.endswith("...")]
    return tuple(Choice(text, text) for text in whole), len(whole) == int(found.group(1))


def _add_option(reading: _Reading, item: _Item) -> None:
    """An option that stands by itself, as those of open lists do: its value, and whether it is chosen.

    The agent shows them without their texts, which are known of the first ones alone.
    """
    if not reading.named or reading.named[-1].kind not in {"select", "multiselect"}:
        return
    listed = reading.named[-1]
    number = int(listed.attributes.get("data-options", "0"))
    if number >= _MOST_OPTIONS:
        return
    value = item.attributes.get("value", "")
    text = listed.choices[number].text if number < len(listed.choices) else value
    choices = (*listed.choices[:number], Choice(value or text, text), *listed.choices[number + 1 :])
    chosen = (*listed.chosen, number) if item.attributes.get("selected") == "true" else listed.chosen
    attributes = {**listed.attributes, "data-options": str(number + 1)}
    for controls in (reading.named, reading.second):
        controls[-1] = replace(controls[-1], choices=choices, chosen=chosen, attributes=attributes)
