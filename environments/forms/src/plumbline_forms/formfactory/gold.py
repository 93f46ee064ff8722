"""A gold record as the entries of a form, each with its provenance; what has no place is noted,
never just dropped.

Gold values are what the authors of the benchmark wrote, not what the controls take: dates with
slashes, texts of options with other capitals, amounts where the page has brackets, "No" for a box
that stays empty. Each is resolved to one entry, with the level at which that was possible; what no
user could enter is unfillable, with its reason.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from plumbline_browser.plans.actions import CHOSEN
from plumbline_browser.plans.grammar import folded, loose
from plumbline_forms.formfactory.checkout import BenchmarkForm
from plumbline_forms.prompts import RenderedField
from plumbline_forms.suite.declaration import Field, Value
from plumbline_forms.values import (
    is_email,
    is_url,
    matches,
    range_problem,
    read_number,
    read_time,
    typed,
    utf16_length,
)

Level = Literal["exact", "folded", "alias", "bucket", "unfillable"]
LEVELS: tuple[Level, ...] = ("exact", "folded", "alias", "bucket", "unfillable")
"""From sure to impossible: the value as it stands; the same but for spelling; another word for it
(a table, or the option's own value); the bracket that an amount or a time lies in; nothing that
could be entered."""
NO_LABEL = "no label of the page reads so"

# -- values ----------------------------------------------------------------------------------------

_BOOLS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
_NOTHING = frozenset({"", "none", "n/a"})
_AMOUNTS = re.compile(r"\$?\s*([\d,]+)\s*(?:(?:-|–|to)\s*\$?\s*([\d,]+)|\+)")
_TIMES = re.compile(
    r"(\d{1,2}:\d{2}\s*[AP]M)\s*(?:-|–|to)\s*(\d{1,2}:\d{2}\s*[AP]M)", re.IGNORECASE
)


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
        aliases: values of this field that mean an option which reads otherwise, to the option's
            text.
    """
    text = shown(raw)
    said = text.strip().casefold()
    if isinstance(raw, dict):
        return _unfillable("a record inside the record")
    if raw is None or not said:
        return Resolved(None, "exact")
    if one.kind == "file":
        return Resolved(None if said in _NOTHING else (text,), "exact")
    if one.kind == "checkbox":
        known = Resolved(_BOOLS.get(said), "exact" if isinstance(raw, bool) else "folded")
        return _unfillable("neither yes nor no") if known.value is None else known
    if one.kind in {"checkboxes", "multiselect"}:
        found = [
            _choice(one, shown(each), aliases) for each in (raw if isinstance(raw, list) else [raw])
        ]
        worst = max(found, key=lambda each: LEVELS.index(each.level))
        if worst.level == "unfillable":
            return worst
        chosen = {each.value for each in found}
        return Resolved(
            tuple(option.value for option in one.options if option.value in chosen), worst.level
        )
    if one.kind in CHOSEN:
        return _choice(one, text, aliases)
    entry = typed(one.kind, text, maxlength=one.maxlength)
    if problem := _problem(one, text, entry.value, refused=entry.refused):
        return _unfillable(problem)
    as_written = (
        isinstance(raw, str | int | float) and not isinstance(raw, bool) and entry.value == text
    )
    return Resolved(entry.value, "exact" if as_written else "folded")


def shown(raw: Any) -> str:
    """A gold value as text: as it is told, and as it is typed where it is not a text already."""
    if isinstance(raw, bool):
        return "yes" if raw else "no"
    if isinstance(raw, list):
        return ", ".join(map(shown, raw))
    return str(raw)


def _unfillable(reason: str) -> Resolved:
    return Resolved(None, "unfillable", reason)


def _choice(one: Field, text: str, aliases: Mapping[str, str]) -> Resolved:
    """By the option's text, the text but for spelling, the table or the option's value, and its
    bracket."""
    by_text = {option.text: option.value for option in reversed(one.options)}
    if text in by_text:
        return Resolved(by_text[text], "exact")
    levels: tuple[tuple[Level, str], ...] = (("folded", text), ("alias", aliases.get(text, "")))
    # the only option that reads so, whatever the capitals and the punctuation
    for level, said in levels:
        alike = [
            option.value
            for option in one.options
            if loose(said) and loose(option.text) == loose(said)
        ]
        if len(alike) == 1:
            return Resolved(alike[0], level)
    if named := [option.value for option in one.options if loose(option.value) == loose(text)]:
        return Resolved(named[0], "alias")
    if (place := bracket(text, [option.text for option in one.options])) is not None:
        return Resolved(one.options[place].value, "bucket")
    return _unfillable(f"none of the {len(one.options)} options")


def bracket(text: str, options: Sequence[str]) -> int | None:
    """The place of the first option whose range holds an amount or a time; both ends belong to a
    range.

    Returns:
        None where the text is neither, or lies in none of them.
    """
    number, clock = read_number(text.strip()), read_time(text.strip())
    for place, option in enumerate(options):
        if times := _TIMES.search(option):
            first, last = map(read_time, times.groups())
            if clock and first and first <= clock <= last:
                return place
        elif number and (amounts := _AMOUNTS.fullmatch(option.strip())):
            low, high = (
                float(part.replace(",", "")) if part else math.inf for part in amounts.groups()
            )
            if low <= float(number) <= high:
                return place
    return None


def _problem(one: Field, text: str, value: str, *, refused: bool) -> str:
    """Why the control takes no such text, or the page would not send what it holds then; "" where
    it is well."""
    if refused:
        return f"no {one.kind}"
    if one.maxlength is not None and utf16_length(text) > one.maxlength:
        return f"longer than {one.maxlength} characters"
    if (one.kind == "email" and not is_email(value)) or (one.kind == "url" and not is_url(value)):
        return f"no valid {one.kind}"
    if one.pattern is not None and not matches(one.pattern, value):
        return "not in the format that the page asks for"
    if problem := range_problem(one.kind, value, one.minimum, one.maximum, one.step):
        return f"out of the range of the page ({problem})"
    if one.minlength is not None and utf16_length(value) < one.minlength:
        return f"shorter than {one.minlength} characters"
    return ""


# -- records ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GoldRecord:
    """One record."""

    values: dict[str, Value]
    """By field; None for what is left alone, and for what is unfillable."""
    levels: dict[str, Level] = field(default_factory=dict)
    """How sure each value is, for the fields that the record has a value for."""
    unfillable: dict[str, dict[str, str]] = field(default_factory=dict)
    """Values that no user could enter: `gold`, and the `reason`."""
    unplaced: dict[str, str] = field(default_factory=dict)
    """Keys that no field takes, with the reason."""
    stubbed: list[str] = field(default_factory=list)
    """Required file inputs, for which the record has nothing and a stub was made up."""
    told: list[RenderedField] = field(default_factory=list)
    """What the instructions say, in the record's own words and order; the stubs at the end."""

    @property
    def unknown(self) -> tuple[str, ...]:
        """Keys that are neither placed nor known to have no place: the checkout is not the one that
        the table knows."""
        return tuple(key for key, reason in self.unplaced.items() if reason == NO_LABEL)


def read_gold(row: BenchmarkForm, fields: Sequence[Field], record: Mapping[str, Any]) -> GoldRecord:
    """Place and resolve every value of a record."""
    by_name = {one.name: one for one in fields if one.kind != "hidden"}
    by_label = {folded(one.label): one for one in by_name.values()}
    gold = GoldRecord(dict.fromkeys(by_name))
    for key, raw in record.items():
        one = by_name.get(row.keys.get(key, "")) or by_label.get(folded(key))
        if key in row.unplaced or one is None:
            gold.unplaced[key] = row.unplaced.get(key, NO_LABEL)
            continue
        if one.name in gold.levels:
            gold.unplaced[key] = f"{one.label} has a value already"
            continue
        resolved = resolve_value(one, raw, row.aliases.get(one.name, {}))
        gold.values[one.name], gold.levels[one.name] = resolved.value, resolved.level
        if resolved.level == "unfillable":
            gold.unfillable[one.name] = {"gold": shown(raw), "reason": resolved.reason}
        gold.told.append(RenderedField(key, shown(raw)))
    for one in fields:
        if one.kind == "file" and one.required and gold.values[one.name] is None:
            file = one.name + next(iter(one.accept), ".pdf")
            gold.values[one.name] = (file,)
            gold.stubbed.append(one.name)
            gold.told.append(RenderedField(one.label, file))
    return gold
