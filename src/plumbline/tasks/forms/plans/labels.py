"""What two spellings of a label have in common, and what the controls of a form are called."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from plumbline.tasks.forms.plans.elements import Element

_MARKS = re.compile(r"\s*(?:\*+|:|\((?:required|obrigatório|optional|opcional)\))\s*$", re.IGNORECASE)


@lru_cache(maxsize=8192)
def folded(label: str) -> str:
    """A label without stars, colons and capitals, with single blanks."""
    text = " ".join(unicodedata.normalize("NFKC", label).casefold().split())
    while (shorter := _MARKS.sub("", text)) != text:
        text = shorter
    return text


@lru_cache(maxsize=8192)
def loose(label: str) -> str:
    """Letters and digits only, without accents."""
    plain = unicodedata.normalize("NFKD", folded(label))
    return "".join(letter for letter in plain if letter.isalnum())


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """What the controls of a form are called; keys are `loose`. A reader that knows no form has empty ones."""

    kinds: Mapping[str, str]
    """The kind of the control with this label."""
    options: Mapping[str, tuple[str, ...]]
    """Labels of the groups that have this option (of radios and boxes; a list does not show its own)."""
    buttons: frozenset[str]
    mention: re.Pattern[str] | None
    """Finds a label in a text, the longest one that begins at a place."""

    def kind(self, label: str) -> str:
        """The kind of a control; "" where none is called so."""
        return self.kinds.get(loose(label), "")

    def has(self, label: str) -> bool:
        """Whether a control or a button is called so."""
        return loose(label) in self.kinds or loose(label) in self.buttons

    def has_option(self, label: str, option: str) -> bool:
        """Whether the group with this label has this option."""
        return any(loose(one) == loose(label) for one in self.options.get(loose(option), ()))


@lru_cache(maxsize=256)
def names_of(elements: tuple[Element, ...]) -> Names:
    """The names of a form's elements (a tuple of them)."""
    fields = [one for one in elements if one.kind != "button"]
    options: dict[str, list[str]] = {}
    for one in fields:
        if one.option:
            options.setdefault(loose(one.option), []).append(one.label)
    buttons = [one.label for one in elements if one.kind == "button"]
    return Names(
        {loose(one.label): one.kind for one in fields},
        {option: tuple(labels) for option, labels in options.items()},
        frozenset(map(loose, buttons)),
        _mention([*(one.label for one in fields), *buttons]),
    )


def _mention(labels: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted({label for label in labels if label}, key=len, reverse=True)
    if not longest_first:
        return None
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.IGNORECASE)


UNKNOWN = names_of(())
"""Of no form in particular."""
