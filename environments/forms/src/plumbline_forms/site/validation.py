"""What the server checks before it accepts a page: every declared constraint, and the rules across fields.

Browsers check most of this before they send anything; a server that trusted them would accept anything.
"""

from collections.abc import Callable, Mapping

from plumbline_forms.characters import UnreadPatternError
from plumbline_forms.constraints import (
    is_email,
    is_time,
    is_url,
    matches,
    range_problem,
    read_decimal,
    utf16_length,
)
from plumbline_forms.site.receipts import Entries
from plumbline_forms.suite.declaration import Field, Form, InOrder, Language, Page, is_date

_TEXTS: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "missing": "Please fill in this field.",
        "kind": "This is not a valid entry.",
        "option": "Please choose one of the options.",
        "once": "Only one entry is possible here.",
        "length": "The text is too short or too long.",
        "range": "The value is out of range.",
        "ending": "Files of this type are not accepted.",
        "order": "This lies before the earlier entry.",
        "sum": "The total does not add up.",
        "unknown": "The form has no such field.",
    },
    "pt": {
        "missing": "Preencha este campo.",
        "kind": "O valor não é válido.",
        "option": "Escolha uma das opções.",
        "once": "Só é possível um valor aqui.",
        "length": "O texto é curto ou longo demais.",
        "range": "O valor está fora do intervalo.",
        "ending": "Arquivos deste tipo não são aceitos.",
        "order": "Fica antes do valor anterior.",
        "sum": "O total não fecha.",
        "unknown": "O formulário não tem este campo.",
    },
}

_VALID: Mapping[str, Callable[[str], bool]] = {
    "email": is_email,
    "url": is_url,
    "date": is_date,
    "time": is_time,
    "number": lambda text: read_decimal(text) is not None,
}


def check_page(form: Form, page: Page, entries: Entries, files: Entries) -> dict[str, str]:
    """Messages by field name for what is wrong with a page's entries; empty where it is accepted."""
    texts = _TEXTS[form.language]
    fields = {one.name: one for one in page.fields}
    errors = {name: texts["unknown"] for name in (*entries, *files) if name not in fields}
    for one in page.fields:
        problem = _problem(one, entries, files)
        if problem:
            errors[one.name] = texts[problem]
    if not errors:
        single = {name: values[0] for name, values in entries.items() if values}
        for rule in form.rules:
            if rule.names()[-1] in fields and not rule.holds(single):
                errors[rule.names()[-1]] = texts["order" if isinstance(rule, InOrder) else "sum"]
    return errors


def shown_by(one: Field, entries: Entries) -> bool:
    """Whether a page with these entries shows the field."""
    if one.shown_if is None:
        return True
    return any(value in one.shown_if.values for value in entries.get(one.shown_if.name, ()))


def _problem(one: Field, entries: Entries, files: Entries) -> str:
    """The key of the message for one field; empty where there is nothing to complain about."""
    if one.kind == "file":
        return _file_problem(one, entries, files)
    values = entries.get(one.name, ())
    if one.kind == "hidden":
        return "" if values == (one.default,) else "kind"
    if one.name in files:
        return "kind"
    if not shown_by(one, entries):
        return "unknown" if values else ""
    filled = tuple(value for value in values if value)
    if not filled:
        return "missing" if one.required else ""
    if one.options:
        if (len(values) > 1 and one.kind not in {"multiselect", "checkboxes"}) or len(set(values)) != len(values):
            return "once"
        return "" if {option.value for option in one.options}.issuperset(values) else "option"
    if len(values) > 1:
        return "once"
    if one.kind == "checkbox":
        return "" if values == ("on",) else "kind"
    return _typed_problem(one, filled[0].replace("\r\n", "\n"))


def _typed_problem(one: Field, value: str) -> str:
    valid = _VALID.get(one.kind)
    if valid is not None and not valid(value):
        return "kind"
    if one.kind != "textarea" and ("\n" in value or "\r" in value):
        return "kind"
    length = utf16_length(value)
    if length < (one.minlength or 0) or (one.maxlength is not None and length > one.maxlength):
        return "length"
    try:
        if one.pattern is not None and not matches(one.pattern, value):
            return "kind"
    except UnreadPatternError:  # too much work to accept the value
        return "kind"
    return "range" if range_problem(one.kind, value, one.minimum, one.maximum, one.step) else ""


def _file_problem(one: Field, entries: Entries, files: Entries) -> str:
    names = files.get(one.name, ())
    if entries.get(one.name):
        return "kind"  # a text where a file should be
    if not names or not shown_by(one, entries):
        return "missing" if one.required and shown_by(one, entries) else ""
    if len(names) > 1 and not one.multiple:
        return "once"
    return "" if all(name.lower().endswith(one.accept) for name in names) or not one.accept else "ending"
