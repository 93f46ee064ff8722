"""The prompt of an example: what to enter, as values or in a document, and what the page and the plan look like."""

from collections.abc import Mapping, Sequence

import numpy as np

from plumbline.records import Message
from plumbline.tasks.forms.plans.elements import elements_of
from plumbline.tasks.forms.plans.oracle import ADDRESS
from plumbline.tasks.forms.suite.declaration import Field, Form, Language
from plumbline.tasks.forms.telling import Told

_SYSTEM: Mapping[tuple[str, Language], str] = {
    ("steps", "en"): (
        "You fill in web forms. Write the steps, numbered, one to a line, and nothing else.\n"
        "Steps look like these: Navigate to ADDRESS · Type 'text' into the 'Label' field · Select 'Option' from the "
        "'Label' field · Check the 'Label' checkbox · Check 'Option' in the 'Label' group · Attach 'file' to the "
        "'Label' field · Click the 'Name' button. Write a line break in a text as \\n. Leave alone what you are told "
        "nothing about. Each page ends with its button."
    ),
    ("steps", "pt"): (
        "Você preenche formulários na web. Escreva os passos, numerados, um por linha, e nada mais.\n"
        "Os passos são assim: Acesse ENDEREÇO · Digite 'texto' no campo 'Rótulo' · Selecione 'Opção' no campo "
        "'Rótulo' · Marque a caixa 'Rótulo' · Marque 'Opção' no grupo 'Rótulo' · Anexe 'arquivo' ao campo 'Rótulo' · "
        "Clique no botão 'Nome'. Escreva uma quebra de linha como \\n. Não mexa no que não foi informado. Cada página "
        "termina com o seu botão."
    ),
    ("agent", "en"): (
        "You fill in web forms. Answer with a JSON list of objects with the keys thinking, evaluation_previous_goal, "
        "memory, next_goal and action, and nothing else. action is a list of up to four of: "
        '{"navigate": {"url", "new_tab"}}, {"click": {"index"}}, {"input": {"index", "text", "clear"}}, '
        '{"select_dropdown": {"index", "text"}}, {"upload_file": {"index", "path"}}, {"send_keys": {"keys"}}, '
        '{"done": {"text", "success", "files_to_display"}}. Leave alone what you are told nothing about.'
    ),
    ("agent", "pt"): (
        "Você preenche formulários na web. Responda com uma lista JSON de objetos com as chaves thinking, "
        "evaluation_previous_goal, memory, next_goal e action, e nada mais. action é uma lista de até quatro de: "
        '{"navigate": {"url", "new_tab"}}, {"click": {"index"}}, {"input": {"index", "text", "clear"}}, '
        '{"select_dropdown": {"index", "text"}}, {"upload_file": {"index", "path"}}, {"send_keys": {"keys"}}, '
        '{"done": {"text", "success", "files_to_display"}}. Não mexa no que não foi informado.'
    ),
}
_ASK: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "ask": "Fill in the form '{}' at {} and send it.",
        "values": "What to enter:",
        "document": "What to enter is in this text:",
        "page": "The controls of the form:",
        "required": "required",
    },
    "pt": {
        "ask": "Preencha o formulário '{}' em {} e envie.",
        "values": "O que informar:",
        "document": "O que informar está neste texto:",
        "page": "Os controles do formulário:",
        "required": "obrigatório",
    },
}
# Four ways to write a document; {label} and {value} stand for one field.
_STYLES: Mapping[Language, tuple[tuple[str, tuple[str, ...], str], ...]] = {
    "en": (
        (
            "Hello,\n\nthank you for doing this for me.",
            ("{label}: that would be {value}.", "For {label}, please put {value}.", "As {label} I have {value}."),
            "Call me if anything is unclear.\nBest wishes",
        ),
        (
            "Notes from the call.",
            ("- {label} = {value}", "- {label}: {value}", "- asked for {label}, answer: {value}"),
            "End of the call.",
        ),
        (
            "From: front desk\nSubject: the form we spoke about\n",
            ("{label} should read {value}.", "Under {label} we need {value}.", "{label} is {value}."),
            "Please send it today.",
        ),
        (
            "Q: Ready? A: Yes, go ahead.",
            ("Q: {label}? A: {value}.", "Q: And {label}? A: That is {value}.", "Q: What about {label}? A: {value}."),
            "Q: Anything else? A: No.",
        ),
    ),
    "pt": (
        (
            "Olá,\n\nobrigado por cuidar disso para mim.",
            ("{label}: seria {value}.", "Em {label}, coloque {value}.", "Como {label} tenho {value}."),
            "Ligue se algo não estiver claro.\nAbraços",
        ),
        (
            "Anotações da ligação.",
            ("- {label} = {value}", "- {label}: {value}", "- perguntei {label}, resposta: {value}"),
            "Fim da ligação.",
        ),
        (
            "De: recepção\nAssunto: o formulário de que falamos\n",
            ("{label} deve ser {value}.", "Em {label} precisamos de {value}.", "{label} é {value}."),
            "Favor enviar hoje.",
        ),
        (
            "P: Podemos começar? R: Sim.",
            ("P: {label}? R: {value}.", "P: E {label}? R: É {value}.", "P: Qual é {label}? R: {value}."),
            "P: Mais alguma coisa? R: Não.",
        ),
    ),
}


def values_text(told: Sequence[Told], aside: str = "") -> str:
    """The values surface: a line for each field."""
    return "\n".join([*(f"- {one.label}: {one.value}" for one in told), *([f"({aside})"] if aside else [])])


def document_text(form: Form, told: Sequence[Told], rng: np.random.Generator) -> str:
    """The document surface: a text in one of four styles, with sentences between that have nothing to do with the form.

    Every value stands in it literally, so that the example can be solved.
    """
    opening, sentences, closing = _STYLES[form.language][int(rng.integers(4))]
    lines = [
        sentences[int(rng.integers(len(sentences)))].replace("{label}", one.label).replace("{value}", one.value)
        for one in told
    ]
    for aside in form.asides:
        lines.insert(int(rng.integers(len(lines) + 1)), aside)
    return "\n".join([opening, *lines, closing])


def messages(form: Form, given: str, *, surface: str, plan: str, full: bool) -> list[Message]:
    """The chat of an example, without its answer."""
    words = _ASK[form.language]
    parts = [words["ask"].format(form.title, ADDRESS + form.path), f"{words[surface]}\n{given}"]
    if full:
        parts.append(f"{words['page']}\n{_outline(form, plan)}")
    chat: list[Message] = [{"role": "user", "content": "\n\n".join(parts)}]
    if full:
        chat.insert(0, {"role": "system", "content": _SYSTEM[plan, form.language]})
    return chat


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
    required = f", {_ASK[form.language]['required']}" if field.required else ""
    return kind + options + required


def _field(form: Form, label: str) -> Field | None:
    return next((one for one in form.fields if one.label == label and one.kind != "hidden"), None)
