"""The prompt of an example: what to enter, as values or in a document, and what the page and the plan look like."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.records import Message
from plumbline.tasks.tables import read_table
from plumbline_forms.executors.executor import Execution
from plumbline_forms.plans.elements import elements_of
from plumbline_forms.plans.oracle import ADDRESS
from plumbline_forms.suite.declaration import Field, Form, Language
from plumbline_forms.telling import Told

_TEXTS: Mapping[Language, Mapping[str, Any]] = read_table(Path(__file__).with_name("prompts.yaml"))
MOST_FAILED, MOST_READ = 8, 400
"""Steps that came to nothing, and characters of the page, that are told before a further attempt."""


def values_text(told: Sequence[Told], aside: str = "") -> str:
    """The values surface: a line for each field."""
    return "\n".join([*(f"- {one.label}: {one.value}" for one in told), *([f"({aside})"] if aside else [])])


def document_text(form: Form, told: Sequence[Told], rng: np.random.Generator) -> str:
    """The document surface: a text in one of several styles, with the form's asides between its sentences.

    Every value stands in it literally, so that the example can be solved.
    """
    styles = _TEXTS[form.language]["styles"]
    style = styles[int(rng.integers(len(styles)))]
    sentences = style["sentences"]
    lines = [
        sentences[int(rng.integers(len(sentences)))].replace("{label}", one.label).replace("{value}", one.value)
        for one in told
    ]
    for aside in form.asides:
        lines.insert(int(rng.integers(len(lines) + 1)), aside)
    return "\n".join([style["opening"], *lines, style["closing"]])


def messages(form: Form, given: str, *, surface: str, plan: str, full: bool) -> list[Message]:
    """The chat of an example, without its answer."""
    words = _TEXTS[form.language]
    parts = [words["ask"].format(form.title, ADDRESS + form.path), f"{words[surface]}\n{given}"]
    if full:
        parts.append(f"{words['page']}\n{_outline(form, plan)}")
    chat: list[Message] = [{"role": "user", "content": "\n\n".join(parts)}]
    if full:
        chat.insert(0, {"role": "system", "content": words[plan]})
    return chat


def again(form: Form, execution: Execution, *, prefilled: bool) -> str:
    """What somebody at the page saw of an attempt that sent nothing complete, and the request for another.

    Only the page, the server's messages and what became of the plan's own steps: nothing of what is right.
    """
    words = _TEXTS[form.language]
    failed = [
        f"- {words['step'].format(number)}: {attempt.reason}"
        for number, attempt in enumerate(execution.attempts, 1)
        if attempt.status != "ok"
    ]
    labels = {one.name: one.label for one in form.fields}
    complaints = execution.receipts[-1].errors if execution.receipts else {}
    seen = [*failed[:MOST_FAILED], *(f"- {labels.get(name, name)}: {said}" for name, said in complaints.items())]
    seen += [] if execution.attempts else [f"- {words['nothing']}"]
    retry = f"{words['refilled' if prefilled else 'empty']} {words['retry']}"
    return "\n".join([words["again"], *seen, f"{words['reads']} {execution.text[:MOST_READ]}", retry])


def _outline(form: Form, plan: str) -> str:
    """The controls of the form, with their kinds and options; numbered where the plan names them by number."""
    if plan == "agent":
        return "\n".join(
            f"[{one.index}] {one.label}: {one.option} ({one.kind})"
            if one.option
            else f"[{one.index}] {one.label} ({_kind(form, one.label, one.kind)})"
            for one in elements_of(form)
        )
    lines = []
    for number, page in enumerate(form.pages, 1):
        lines += [f"- {one.label} ({_kind(form, one.label, one.kind)})" for one in page.fields if one.kind != "hidden"]
        lines += [f"- {one.label} (button)" for one in elements_of(form) if one.kind == "button" and one.page == number]
    return "\n".join(lines)


def _kind(form: Form, label: str, kind: str) -> str:
    """A control in a few words: its kind, its options, and whether it is required."""
    field = _field(form, label)
    if field is None:
        return kind
    options = f": {' | '.join(option.text for option in field.options)}" if field.options else ""
    required = f", {_TEXTS[form.language]['required']}" if field.required else ""
    return kind + options + required


def _field(form: Form, label: str) -> Field | None:
    return next((one for one in form.fields if one.label == label and one.kind != "hidden"), None)
