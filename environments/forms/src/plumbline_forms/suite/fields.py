"""Short constructors, so that a declaration reads like the form it declares."""

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from plumbline_forms.suite.declaration import Condition, Draw, Field, Option
from plumbline_forms.suite.drawing import agreed, flag, one_of, some_of


def slug(text: str) -> str:
    """A name for a text: lower case, digits, underscores."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().casefold()
    return re.sub(r"[^a-z0-9]+", "_", plain).strip("_")


def options(texts: str) -> tuple[Option, ...]:
    """Options from "Red|Dark blue" (sent as red, dark_blue) or "r=Red|b=Dark blue"."""
    pairs = [text.split("=", 1) if "=" in text else (slug(text), text) for text in texts.split("|")]
    return tuple(Option(value, text) for value, text in pairs)


def shown(name: str, *values: str) -> Condition:
    """Shown while the field has one of these values; without values, while the box is ticked."""
    return Condition(name, values or ("on",))


def text(label: str, draw: Draw, **more: Any) -> Field:
    """A line of text."""
    return Field(**{"name": slug(label), "label": label, "kind": "text", "draw": draw, **more})


def area(label: str, draw: Draw, **more: Any) -> Field:
    """Several lines of text."""
    return text(label, draw, kind="textarea", **more)


def email(label: str, draw: Draw, **more: Any) -> Field:
    """An e-mail address."""
    return text(label, draw, kind="email", **more)


def tel(label: str, draw: Draw, **more: Any) -> Field:
    """A telephone number."""
    return text(label, draw, kind="tel", **more)


def url(label: str, draw: Draw, **more: Any) -> Field:
    """A web address."""
    return text(label, draw, kind="url", **more)


def number(label: str, draw: Draw, minimum: str | None = None, maximum: str | None = None, **more: Any) -> Field:
    """A number; whole unless a step says otherwise."""
    return text(label, draw, kind="number", minimum=minimum, maximum=maximum, **more)


def money(label: str, draw: Draw, **more: Any) -> Field:
    """An amount with cents, at least 0."""
    return number(label, draw, "0", step="0.01", **more)


def date(label: str, draw: Draw, **more: Any) -> Field:
    """A date."""
    return text(label, draw, kind="date", **more)


def time(label: str, draw: Draw, **more: Any) -> Field:
    """A time of day."""
    return text(label, draw, kind="time", **more)


def password(label: str, draw: Draw, **more: Any) -> Field:
    """A password."""
    return text(label, draw, kind="password", **more)


def select(label: str, texts: str, **more: Any) -> Field:
    """A drop-down list whose first, empty option asks for a choice."""
    given = {"blank": "-", "draw": one_of(), **more}
    return text(label, kind="select", options=options(texts), **given)


def multiselect(label: str, texts: str, **more: Any) -> Field:
    """A list of which several entries may be chosen."""
    return text(label, kind="multiselect", options=options(texts), **{"draw": some_of(1, 3), **more})


def radio(label: str, texts: str, **more: Any) -> Field:
    """A group of which one is chosen."""
    return text(label, kind="radio", options=options(texts), **{"draw": one_of(), **more})


def boxes(label: str, texts: str, **more: Any) -> Field:
    """A group of boxes."""
    return text(label, kind="checkboxes", options=options(texts), **{"draw": some_of(1, 3), **more})


def box(label: str, chance: float = 0.5, **more: Any) -> Field:
    """A box that is ticked in so many records."""
    return text(label, kind="checkbox", **{"draw": flag(chance), **more})


def consent(label: str, **more: Any) -> Field:
    """A box without which the form cannot be sent."""
    return box(label, required=True, **{"draw": agreed(), **more})


def file(label: str, draw: Draw, **more: Any) -> Field:
    """A file to attach."""
    return text(label, draw, kind="file", **more)


def hidden(name: str, default: str) -> Field:
    """A value that the page sends by itself."""
    return Field(name=name, label=name, kind="hidden", default=default)


_KINDS: tuple[Callable[..., Field], ...] = (
    text, area, email, tel, url, number, money, date, time, password, select, multiselect, radio, boxes, box, consent,
    file, hidden,
)  # fmt: skip
FIELDS: Mapping[str, Callable[..., Field]] = {kind.__name__: kind for kind in _KINDS}
"""By the names that the files of `domains` call them."""
