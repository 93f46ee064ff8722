"""The prompt of an example: what to enter, as values or in a document, and what the page and the
plan look like."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.records import Message
from plumbline.tasks.tables import read_table
from plumbline_browser.plans.actions import Language
from plumbline_forms.executors.executor import Execution
from plumbline_forms.options import FormNoise
from plumbline_forms.plans.oracle import ADDRESS, elements_of
from plumbline_forms.suite.catalogue import is_shown
from plumbline_forms.suite.declaration import Field, Form, Value
from plumbline_forms.values import MONTHS

# -- how a value is told ---------------------------------------------------------------------------

_BOOLS: Mapping[Language, tuple[str, str]] = {"en": ("no", "yes"), "pt": ("não", "sim")}


@dataclass(frozen=True, slots=True)
class RenderedField:
    """One field as the instructions have it."""

    label: str
    value: str


def tell(
    form: Form,
    values: Mapping[str, Value],
    noise: FormNoise,
    rng: np.random.Generator,
    *,
    stars: bool,
) -> list[RenderedField]:
    """Every field that a record fills in, or says no to, in the order of the page or another."""
    told = []
    for one in form.fields:
        value = values.get(one.name)
        if one.kind == "hidden" or value is None or not is_shown(one, values):
            continue
        label = one.alias if one.alias and rng.random() < noise.labels else one.label
        star = " *" if stars and one.required else ""
        told.append(RenderedField(label + star, _value(one, value, form.language, noise, rng)))
    if rng.random() < noise.order:
        told = [told[index] for index in rng.permutation(len(told))]
    return told


def _value(
    one: Field, value: Value, language: Language, noise: FormNoise, rng: np.random.Generator
) -> str:
    if isinstance(value, bool):
        return _BOOLS[language][value]
    if isinstance(value, tuple):
        texts = value if one.kind == "file" else tuple(one.text_of(option) for option in value)
        return "; ".join(
            _choice(text, noise, rng) if one.kind != "file" else text for text in texts
        )
    text = value or ""
    if one.options:
        return _choice(one.text_of(text), noise, rng)
    if one.kind == "date" and rng.random() < noise.dates:
        return _date(text, language, rng)
    if one.kind == "number" and rng.random() < noise.numbers:
        return _number(text, language)
    if one.kind == "text" and ", " in text and rng.random() < noise.newlines:
        return text.replace(", ", ",\n", 1)
    return text


def _choice(text: str, noise: FormNoise, rng: np.random.Generator) -> str:
    if rng.random() >= noise.options:
        return text
    return (text.lower(), text.upper(), text.replace("-", " "))[int(rng.integers(3))]


def _date(text: str, language: Language, rng: np.random.Generator) -> str:
    day = datetime.date.fromisoformat(text)
    month = MONTHS[language][day.month - 1]
    styles: tuple[str, ...]
    if language == "pt":
        styles = (f"{day:%d/%m/%Y}", f"{day.day} de {month} de {day.year}", f"{day:%d.%m.%Y}")
    else:
        styles = (
            *(
                f"{day:%m/%d/%Y}",
                f"{month} {day.day}, {day.year}",
                f"{day.day} {month[:3]} {day.year}",
            ),
            f"{day:%Y/%m/%d}",
        )
    return styles[int(rng.integers(len(styles)))]


def _number(text: str, language: Language) -> str:
    whole, point, cents = text.partition(".")
    grouped = f"{int(whole):,}"
    if language == "pt":
        return grouped.replace(",", ".") + ("," + cents if point else "")
    return grouped + point + cents


# -- prompts ---------------------------------------------------------------------------------------

_TEXTS: Mapping[Language, Mapping[str, Any]] = read_table(Path(__file__).with_name("prompts.yaml"))
MOST_FAILED, MOST_READ = 8, 400
"""Steps that came to nothing, and characters of the page, that are told before a further
attempt."""


def values_text(told: Sequence[RenderedField], aside: str = "") -> str:
    """The values surface: a line for each field."""
    return "\n".join(
        [*(f"- {one.label}: {one.value}" for one in told), *([f"({aside})"] if aside else [])]
    )


def document_text(form: Form, told: Sequence[RenderedField], rng: np.random.Generator) -> str:
    """The document surface: a text in one of several styles, with the form's asides between its
    sentences.

    Every value stands in it literally, so that the example can be solved.
    """
    styles = _TEXTS[form.language]["styles"]
    style = styles[int(rng.integers(len(styles)))]
    sentences = style["sentences"]
    lines = [
        sentences[int(rng.integers(len(sentences)))]
        .replace("{label}", one.label)
        .replace("{value}", one.value)
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
    """What somebody at the page saw of an attempt that sent nothing complete, and the request for
    another.

    Only the page, the server's messages and what became of the plan's own steps: nothing of what is
    right.
    """
    words = _TEXTS[form.language]
    failed = [
        f"- {words['step'].format(number)}: {attempt.reason}"
        for number, attempt in enumerate(execution.attempts, 1)
        if attempt.status != "ok"
    ]
    labels = {one.name: one.label for one in form.fields}
    complaints = execution.receipts[-1].errors if execution.receipts else {}
    seen = [
        *failed[:MOST_FAILED],
        *(f"- {labels.get(name, name)}: {said}" for name, said in complaints.items()),
    ]
    seen += [] if execution.attempts else [f"- {words['nothing']}"]
    retry = f"{words['refilled' if prefilled else 'empty']} {words['retry']}"
    return "\n".join(
        [words["again"], *seen, f"{words['reads']} {execution.text[:MOST_READ]}", retry]
    )


def _outline(form: Form, plan: str) -> str:
    """The controls of the form, with their kinds and options; numbered where the plan names them by
    number."""
    if plan == "agent":
        return "\n".join(
            f"[{one.index}] {one.label}: {one.option} ({one.kind})"
            if one.option
            else f"[{one.index}] {one.label} ({_kind(form, one.label, one.kind)})"
            for one in elements_of(form)
        )
    lines = []
    for number, page in enumerate(form.pages, 1):
        lines += [
            f"- {one.label} ({_kind(form, one.label, one.kind)})"
            for one in page.fields
            if one.kind != "hidden"
        ]
        lines += [
            f"- {one.label} (button)"
            for one in elements_of(form)
            if one.kind == "button" and one.page == number
        ]
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
