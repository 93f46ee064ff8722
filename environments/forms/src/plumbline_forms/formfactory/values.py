"""What a gold value comes to in the control that it is for, and how sure that is.

Gold values are what the authors of the benchmark wrote, not what the controls take: dates with slashes, texts of
options with other capitals, amounts where the page has brackets, "No" for a box that stays empty. Each is resolved to
one entry, with the level at which that was possible; what no user could enter is unfillable, with its reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from plumbline_forms.formfactory.brackets import bracket
from plumbline_forms.plans.vocabulary import loose
from plumbline_forms.suite.declaration import CHOSEN, Field, Option, Value
from plumbline_forms.values import is_email, is_url, matches, range_problem, typed, utf16_length

Level = Literal["exact", "folded", "alias", "bucket", "unfillable"]
LEVELS: tuple[Level, ...] = ("exact", "folded", "alias", "bucket", "unfillable")
"""From sure to impossible: the value as it stands; the same but for spelling; another word for it (a table, or the
option's own value); the bracket that an amount or a time lies in; nothing that could be entered."""
_BOOLS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
_NOTHING = frozenset({"", "none", "n/a"})


@dataclass(frozen=True, slots=True)
class Resolved:
    """A gold value as an entry."""

    value: Value
    level: Level
    reason: str = ""
    """Why it is unfillable."""


def resolve_value(one: Field, raw: Any, aliases: Mapping[str, str]) -> Resolved:
    """The entry that a gold value means for a field.

    Args:
        one: the field.
        raw: as the gold file has it.
        aliases: values of this field that mean an option which reads otherwise, to the option's text.
    """
    if isinstance(raw, dict):
        return _unfillable("a record inside the record")
    if raw is None or raw == [] or (isinstance(raw, str) and not raw.strip()):
        return Resolved(None, "exact")
    if one.kind == "file":
        return (
            Resolved(None, "exact") if shown(raw).strip().casefold() in _NOTHING else Resolved((shown(raw),), "exact")
        )
    if one.kind == "checkbox":
        return _box(raw)
    if one.kind in {"checkboxes", "multiselect"}:
        return _several(one, raw if isinstance(raw, list) else [raw], aliases)
    if one.kind in CHOSEN:
        return _choice(one, shown(raw), aliases)
    return _typed(one, raw)


def shown(raw: Any) -> str:
    """A gold value as text: as it is told, and as it is typed where it is not a text already."""
    if isinstance(raw, bool):
        return "yes" if raw else "no"
    if isinstance(raw, list):
        return ", ".join(map(shown, raw))
    return str(raw)


def _unfillable(reason: str) -> Resolved:
    return Resolved(None, "unfillable", reason)


def _box(raw: Any) -> Resolved:
    if isinstance(raw, bool):
        return Resolved(raw, "exact")
    found = _BOOLS.get(shown(raw).strip().casefold())
    return _unfillable("neither yes nor no") if found is None else Resolved(found, "folded")


def _choice(one: Field, text: str, aliases: Mapping[str, str]) -> Resolved:
    """By the option's text, the text but for spelling, the table or the option's value, and its bracket."""
    if option := next((option for option in one.options if option.text == text), None):
        return Resolved(option.value, "exact")
    if option := _like(one.options, text):
        return Resolved(option.value, "folded")
    if option := _like(one.options, aliases.get(text, "")):
        return Resolved(option.value, "alias")
    if option := next((option for option in one.options if loose(option.value) == loose(text)), None):
        return Resolved(option.value, "alias")
    place = bracket(text, [option.text for option in one.options])
    if place is not None:
        return Resolved(one.options[place].value, "bucket")
    return _unfillable(f"none of the {len(one.options)} options")


def _like(options: Sequence[Option], text: str) -> Option | None:
    """The only option that reads so, whatever the capitals and the punctuation."""
    key = loose(text)
    found = [option for option in options if loose(option.text) == key] if key else []
    return found[0] if len(found) == 1 else None


def _several(one: Field, raws: Sequence[Any], aliases: Mapping[str, str]) -> Resolved:
    found = [_choice(one, shown(raw), aliases) for raw in raws]
    if bad := next((each for each in found if each.level == "unfillable"), None):
        return bad
    chosen = {each.value for each in found}
    worst = max((each.level for each in found), key=LEVELS.index)
    return Resolved(tuple(option.value for option in one.options if option.value in chosen), worst)


def _typed(one: Field, raw: Any) -> Resolved:
    """What the control holds after the text was typed, unless it takes no such text or the page would not send it."""
    text = shown(raw)
    entry = typed(one.kind, text, maxlength=one.maxlength)
    if entry.refused:
        return _unfillable(f"no {one.kind}")
    if one.maxlength is not None and utf16_length(text) > one.maxlength:
        return _unfillable(f"longer than {one.maxlength} characters")
    if (one.kind == "email" and not is_email(entry.value)) or (one.kind == "url" and not is_url(entry.value)):
        return _unfillable(f"no valid {one.kind}")
    if one.pattern is not None and not matches(one.pattern, entry.value):
        return _unfillable("not in the format that the page asks for")
    if problem := range_problem(one.kind, entry.value, one.minimum, one.maximum, one.step):
        return _unfillable(f"out of the range of the page ({problem})")
    if one.minlength is not None and utf16_length(entry.value) < one.minlength:
        return _unfillable(f"shorter than {one.minlength} characters")
    as_written = isinstance(raw, str | int | float) and not isinstance(raw, bool) and entry.value == text
    return Resolved(entry.value, "exact" if as_written else "folded")
