"""A gold record as the values of a form, each with its provenance; what has no place is noted, never just dropped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plumbline_forms.formfactory.table import ALIASES, KEYS, UNPLACED, Row
from plumbline_forms.formfactory.values import Level, resolve_value, shown
from plumbline_forms.plans.vocabulary import folded
from plumbline_forms.prompts import Told
from plumbline_forms.suite.declaration import Field, Value


@dataclass(frozen=True, slots=True)
class Unfillable:
    """A value that no user could enter."""

    gold: str
    reason: str


@dataclass(frozen=True, slots=True)
class Gold:
    """One record."""

    values: Mapping[str, Value]
    """By field; None for what is left alone, and for what is unfillable."""
    levels: Mapping[str, Level]
    """How sure each value is, for the fields that the record has a value for."""
    unfillable: Mapping[str, Unfillable]
    unplaced: Mapping[str, str]
    """Keys that no field takes, with the reason."""
    stubbed: tuple[str, ...]
    """Required file inputs, for which the record has nothing and a stub was made up."""
    told: tuple[Told, ...]
    """What the instructions say, in the record's own words and order; the stubs at the end."""

    @property
    def unknown(self) -> tuple[str, ...]:
        """Keys that are neither placed nor known to have no place: the checkout is not the one that the table knows."""
        return tuple(key for key, reason in self.unplaced.items() if reason == NO_LABEL)

    def lacking(self, fields: Sequence[Field]) -> tuple[str, ...]:
        """Required fields without a value: nobody could send the form with this record."""
        return tuple(one.name for one in fields if one.required and self.values.get(one.name) in {None, False})


NO_LABEL = "no label of the page reads so"


def read_gold(row: Row, fields: Sequence[Field], record: Mapping[str, Any]) -> Gold:
    """Place and resolve every value of a record."""
    by_label = {folded(one.label): one for one in fields if one.kind != "hidden"}
    by_name = {one.name: one for one in fields}
    values: dict[str, Value] = {one.name: None for one in fields if one.kind != "hidden"}
    levels: dict[str, Level] = {}
    unfillable: dict[str, Unfillable] = {}
    unplaced: dict[str, str] = {}
    told: list[Told] = []
    for key, raw in record.items():
        if key in UNPLACED.get(row.id, {}):
            unplaced[key] = UNPLACED[row.id][key]
            continue
        one = by_name.get(KEYS.get(row.id, {}).get(key, "")) or by_label.get(folded(key))
        if one is None or one.name in levels:
            unplaced[key] = NO_LABEL if one is None else f"{one.label} has a value already"
            continue
        resolved = resolve_value(one, raw, ALIASES.get(row.id, {}).get(one.name, {}))
        values[one.name], levels[one.name] = resolved.value, resolved.level
        if resolved.level == "unfillable":
            unfillable[one.name] = Unfillable(shown(raw), resolved.reason)
        told.append(Told(key, shown(raw)))
    stubbed = tuple(one.name for one in fields if one.kind == "file" and one.required and values[one.name] is None)
    for name in stubbed:
        file = stub_name(by_name[name])
        values[name] = (file,)
        told.append(Told(by_name[name].label, file))
    return Gold(values, levels, unfillable, unplaced, stubbed, tuple(told))


def stub_name(one: Field) -> str:
    """The name of the file that is made up for a required input."""
    return one.name + next(iter(one.accept), ".pdf")
