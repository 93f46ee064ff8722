"""How a value is told to whoever fills in the form: as it is, or as people write such things."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from plumbline_forms.options import Noise
from plumbline_forms.suite.declaration import Field, Form, Language, Value
from plumbline_forms.suite.records import is_shown

_MONTHS: Mapping[Language, tuple[str, ...]] = {
    "en": (
        *("January", "February", "March", "April", "May", "June", "July"),
        *("August", "September", "October", "November", "December"),
    ),
    "pt": (
        *("janeiro", "fevereiro", "março", "abril", "maio", "junho", "julho"),
        *("agosto", "setembro", "outubro", "novembro", "dezembro"),
    ),
}
_BOOLS: Mapping[Language, tuple[str, str]] = {"en": ("no", "yes"), "pt": ("não", "sim")}


@dataclass(frozen=True, slots=True)
class Told:
    """One field as the instructions have it."""

    label: str
    value: str


def tell(form: Form, values: Mapping[str, Value], noise: Noise, rng: np.random.Generator, *, stars: bool) -> list[Told]:
    """Every field that a record fills in, or says no to, in the order of the page or another."""
    told = []
    for one in form.fields:
        value = values.get(one.name)
        if one.kind == "hidden" or value is None or not is_shown(one, values):
            continue
        label = one.alias if one.alias and rng.random() < noise.labels else one.label
        star = " *" if stars and one.required else ""
        told.append(Told(label + star, _value(one, value, form.language, noise, rng)))
    if rng.random() < noise.order:
        told = [told[index] for index in rng.permutation(len(told))]
    return told


def _value(one: Field, value: Value, language: Language, noise: Noise, rng: np.random.Generator) -> str:
    if isinstance(value, bool):
        return _BOOLS[language][value]
    if isinstance(value, tuple):
        texts = value if one.kind == "file" else tuple(one.text_of(option) for option in value)
        return "; ".join(_choice(text, noise, rng) if one.kind != "file" else text for text in texts)
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


def _choice(text: str, noise: Noise, rng: np.random.Generator) -> str:
    if rng.random() >= noise.options:
        return text
    return (text.lower(), text.upper(), text.replace("-", " "))[int(rng.integers(3))]


def _date(text: str, language: Language, rng: np.random.Generator) -> str:
    day = datetime.date.fromisoformat(text)
    month = _MONTHS[language][day.month - 1]
    styles: tuple[str, ...]
    if language == "pt":
        styles = (f"{day:%d/%m/%Y}", f"{day.day} de {month} de {day.year}", f"{day:%d.%m.%Y}")
    else:
        styles = (
            *(f"{day:%m/%d/%Y}", f"{month} {day.day}, {day.year}", f"{day.day} {month[:3]} {day.year}"),
            f"{day:%Y/%m/%d}",
        )
    return styles[int(rng.integers(len(styles)))]


def _number(text: str, language: Language) -> str:
    whole, point, cents = text.partition(".")
    grouped = f"{int(whole):,}"
    if language == "pt":
        return grouped.replace(",", ".") + ("," + cents if point else "")
    return grouped + point + cents
