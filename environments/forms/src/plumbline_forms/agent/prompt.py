"""What a planner is asked for the page that a browser agent sees: the prompt that it was trained on, to the word.

The page becomes a `Form`, as if it had been declared, so `tasks.forms.prompts` writes the prompt and the request for a
further attempt as it does in training. The values stand in the agent's task, under the heading that prompts have
("What to enter:") or as the task as a whole.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

from plumbline.records import Message
from plumbline.tasks.tables import read_table
from plumbline_forms import prompts
from plumbline_forms.agent.state import Scene
from plumbline_forms.executors.executor import OK, Attempt, Execution
from plumbline_forms.executors.page import Control
from plumbline_forms.plans.vocabulary import folded, loose
from plumbline_forms.site.site import Receipt
from plumbline_forms.suite.declaration import Field, Form, Kind, Language, Option, Page

Surface = Literal["values", "document"]
_WORDS = read_table(Path(prompts.__file__).with_name("prompts.yaml"))
_TOLD = re.compile(r"^- [^:\n]+: .", re.MULTILINE)
_KINDS = frozenset(get_args(Kind))
_GROUPS = {"radio": "radio", "checkbox": "checkboxes"}


def given_of(task: str) -> tuple[str, Surface]:
    """What to enter, out of an agent's task, and how it is told.

    Below one of the headings of the forms task's prompts, up to its list of controls; a task without them is taken as
    a whole, as values where it has lines "- label: value".
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
        if one.kind in {"button", "hidden"} or folded(label) in seen or (grouped and one is not group[0]):
            continue
        seen.add(folded(label))
        fields.append(_field(one, label, group if grouped else (), f"{one.name}-{len(fields)}"))
    buttons = [one for one in scene.page.controls if one.kind == "button"]
    sending = [one for one in buttons if one.attributes.get("type") == "submit"] or buttons
    parts = [part for part in urlsplit(scene.url).path.split("/") if part and not part.isdecimal()]
    domain, name = ["", "", *parts][-2:]
    language: Language = "pt" if scene.page.language == "pt" else "en"
    title = scene.lines[0] if scene.lines else ""
    button = sending[-1].label if sending else ""
    return Form(name=name, domain=domain, title=title, pages=(Page(tuple(fields)),), button=button, language=language)


def _field(one: Control, label: str, group: Sequence[Control], name: str) -> Field:
    kind = _GROUPS[one.kind] if group else one.kind
    if group:
        options = tuple(Option(member.value, member.label or member.value) for member in group)
    else:
        options = tuple(Option(choice.value, choice.text) for choice in one.choices if loose(choice.text))
    if kind in {"select", "multiselect"} and not options:
        options = (Option("", "..."),)  # a list of which the agent shows nothing
    wanted = any("true" in {m.attributes.get("required"), m.attributes.get("invalid")} for m in group or (one,))
    known: Kind = kind if kind in _KINDS else "text"  # type: ignore[assignment]
    unique = tuple({option.value: option for option in options}.values())
    return Field(name=name, label=label, kind=known, draw=lambda _: None, required=wanted, options=unique)


def first_prompt(scene: Scene, form: Form, *, plan: str, full: bool) -> list[Message]:
    """The chat that asks for a plan for the page."""
    given, surface = given_of(scene.task)
    return prompts.messages(form, given, surface=surface, plan=plan, full=full)


def further_prompt(
    scene: Scene, form: Form, attempts: Sequence[str], before: frozenset[str], *, prefilled: bool
) -> Message:
    """What became of a plan that sent nothing complete, and the request for another.

    Args:
        scene: the page after it.
        form: the same page, as a form.
        attempts: for each action that was carried out why it came to nothing, "" where it did not.
        before: the texts that the page had before.
        prefilled: whether the form came filled in.
    """
    errors: dict[str, str] = {}
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
    """The first control for which a browser keeps a form back, as executors say it; "" where none is seen."""
    for one in scene.page.controls:
        if one.kind in {"button", "hidden", "radio", "checkbox"} or one.value:
            continue
        if one.attributes.get("required") == "true" and one.kind not in {"password", "multiselect", "file"}:
            return f"not sent, {one.called}: missing"
    wrong = next((one for one in scene.page.controls if one.attributes.get("invalid") == "true"), None)
    return "" if wrong is None else f"not sent, {wrong.called}: missing or not valid"
