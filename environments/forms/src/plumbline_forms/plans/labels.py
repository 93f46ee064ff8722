"""What two spellings of a label have in common, and what the controls of a form are called."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from plumbline_forms.plans.elements import Element

_MARKS = tuple(f"({word})" for word in ("required", "obrigatório", "optional", "opcional"))
"""What may stand behind a label, beside stars and colons."""
_BETWEEN = re.compile(r"(?:[\s,;/&|+'\"]|\b(?:and|e|as well as|both|bem como)\b)*")
"""What may stand between the items of a list."""
_LONGEST = 500


@lru_cache(maxsize=8192)
def folded(label: str) -> str:
    """A label without stars, colons and capitals, with single blanks."""
    text = " ".join(unicodedata.normalize("NFKC", label).casefold().split())
    while (shorter := text.rstrip(" *:")).endswith(_MARKS):
        text = shorter[: shorter.rindex("(")]
    return shorter


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
    labels: Mapping[str, tuple[str, ...]]
    """The labels of the controls of a kind (its key)."""
    options: Mapping[str, tuple[str, ...]]
    """Labels of the lists and groups that have this option."""
    offers: Mapping[str, tuple[str, ...]]
    """The options of the list or group with this label, as they read."""
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
        """Whether the list or group with this label has this option."""
        return any(loose(one) == loose(label) for one in self.options.get(loose(option), ()))

    def items_of(self, label: str, text: str) -> list[str]:
        """The options of a list or group that a text names, one or several ("A, B and C"); [] where it has other words.

        An option may have an "and" of its own, so the options are looked for and not the signs between them.
        """
        if self.has_option(label, text):
            return [text]
        offered = sorted(self.offers.get(loose(label), ()), key=len, reverse=True)
        if not offered or len(text) > _LONGEST or self.kind(label) not in {"multiselect", "checkboxes"}:
            return []
        each = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, offered))})(?!\w)", re.IGNORECASE)
        return each.findall(text) if _BETWEEN.fullmatch(each.sub("", text)) else []

    def knows(self, text: str) -> bool:
        """Whether a control, a button or an option is called so."""
        return self.has(text) or loose(text) in self.options

    def group_of(self, option: str) -> str:
        """The list or group with this option; "" where none or several have it, or a control is called so."""
        groups = self.options.get(loose(option), ())
        return groups[0] if len(groups) == 1 and not self.has(option) else ""

    def group_of_all(self, text: str) -> str:
        """The list or group whose options a text names, several of them; "" where it is none's, or that of several."""
        if self.has(text) or len(text) > _LONGEST:
            return ""
        groups = [label for labels in self.labels.values() for label in labels if len(self.items_of(label, text)) > 1]
        return groups[0] if len(groups) == 1 else ""

    def only(self, kind: str) -> str:
        """The label of the only control of a kind; "" where there are several or none."""
        labels = self.labels.get(kind, ())
        return labels[0] if len(labels) == 1 else ""


@lru_cache(maxsize=256)
def names_of(elements: tuple[Element, ...]) -> Names:
    """The names of a form's elements (a tuple of them)."""
    fields = [one for one in elements if one.kind != "button"]
    options: dict[str, list[str]] = {}
    offers: dict[str, list[str]] = {}
    labels: dict[str, list[str]] = {}
    for one in fields:
        for option in (one.option, *one.offers):
            if option:
                options.setdefault(loose(option), []).append(one.label)
                offers.setdefault(loose(one.label), []).append(option)
        if one.label not in labels.setdefault(one.kind, []):
            labels[one.kind].append(one.label)
    buttons = [one.label for one in elements if one.kind == "button"]
    return Names(
        {loose(one.label): one.kind for one in fields},
        {kind: tuple(found) for kind, found in labels.items()},
        {option: tuple(dict.fromkeys(groups)) for option, groups in options.items()},
        {label: tuple(texts) for label, texts in offers.items()},
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
