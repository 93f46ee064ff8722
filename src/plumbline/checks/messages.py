"""The sentences of findings: one table, `messages/*.yaml`, and how a sentence is made of it.

    CHECK:
      figures: {NAME: its unit or meaning}      what the evidence of this check holds
      terms: {NAME: {CODE: words}}              of figures that are codes
      causes: {CODE: sentence}
      found: {CODE: {what: sentence, fix: sentence}}

`shared` holds what several checks have. In a sentence `{NAME:.3f}` is a figure of the evidence,
`{NAME|step}` a count with its noun, and `{key:rl.beta}` a key in the words of whose log it is. `[...]`
is left out where a figure in it is missing, false or empty; `{?NAME}` and `{!NAME}` write nothing,
and keep their brackets where a figure is true, or is not. `[[` and `]]` are brackets.
"""

import re
from collections.abc import Mapping
from functools import cache
from numbers import Number
from pathlib import Path
from types import MappingProxyType
from typing import Any

from plumbline.config.overrides import read_package_yaml

FOLDER = Path(__file__).parent / "messages"
SHARED = "shared"
_PIECE = re.compile(r"\[\[|\]\]|\[|\]|\{([^{}]+)\}")
_UNCHANGED: Mapping[str, str] = MappingProxyType({})


@cache
def read_messages() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """The table: checks by name, each with `figures`, `causes` and `found`."""
    return {
        name: entry
        for path in sorted(FOLDER.glob("*.yaml"))
        for name, entry in read_package_yaml(path).items()
    }


def find_message(check: str, code: str) -> Mapping[str, str]:
    """What was found and its remedy: the templates `what`, and `fix` where there is one.

    Raises:
        KeyError: neither the check nor `shared` has it.
    """
    message: Mapping[str, str] = _find_entry(check, code, "found")
    return message


def find_cause(check: str, code: str) -> str:
    """The template of a cause.

    Raises:
        KeyError: neither the check nor `shared` has it.
    """
    sentence: str = _find_entry(check, code, "causes")
    return sentence


def _find_entry(check: str, code: str, kind: str) -> Any:
    own = read_messages().get(check, {}).get(kind, {})
    return own[code] if code in own else read_messages()[SHARED][kind][code]


def name_terms(check: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures with those that are codes in words."""
    terms: Mapping[str, Mapping[str, str]] = read_messages().get(check, {}).get("terms", {})
    return {
        name: terms[name][value] if name in terms and value else value
        for name, value in figures.items()
    }


def render_message(
    template: str, figures: Mapping[str, Any], options: Mapping[str, str] = _UNCHANGED
) -> str:
    """A sentence of the table with its figures.

    Args:
        template: see the module.
        figures: by name.
        options: what the trainer whose log it is calls keys of a recipe.

    Raises:
        KeyError: a figure outside of brackets is missing.
    """
    levels: list[tuple[list[str], list[bool]]] = [([], [])]
    end = 0
    for match in _PIECE.finditer(template):
        texts, conditions = levels[-1]
        texts.append(template[end : match.start()])
        end = match.end()
        if match[0] == "[":
            levels.append(([], []))
        elif match[0] == "]":
            levels.pop()
            levels[-1][0].extend(texts if all(conditions) else ())
        elif match[1] is None:
            texts.append(match[0][0])
        elif match[1][0] in "?!":
            conditions.append(_is_given(figures.get(match[1][1:])) == (match[1][0] == "?"))
        else:
            texts.append(_render_field(match[1], figures, options, conditions, len(levels) > 1))
    return "".join(levels[0][0]) + template[end:]


def _render_field(
    field: str,
    figures: Mapping[str, Any],
    options: Mapping[str, str],
    conditions: list[bool],
    optional: bool,
) -> str:
    """A key or a figure; whether the figure is given becomes a condition of the brackets around
    it."""
    name, _, form = field.partition(":")
    if name == "key" and form:
        return options.get(form, form)
    name, _, noun = name.partition("|")
    if optional:
        conditions.append(_is_given(figures.get(name)))
        if not conditions[-1]:
            return ""
    value = figures[name]
    if isinstance(value, list | tuple):
        return ", ".join(format(one, form) for one in value)
    if value is None or isinstance(value, str):  # JSON has no NaN
        form = ""
    text = format(value, form or (".4g" if isinstance(value, float) else ""))
    return f"{text} {noun}{'' if value == 1 else 's'}" if noun else text


def _is_given(value: Any) -> bool:
    """Whether a figure is there and neither false nor empty; 0 is a figure."""
    return bool(value) or (isinstance(value, Number) and not isinstance(value, bool))
