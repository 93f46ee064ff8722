"""Words of plain-text steps (`words.yaml`) with their forms, how a text is cut into them, and names of controls."""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from plumbline.tasks.tables import read_table
from plumbline_forms.plans.actions import Element

DATA: Mapping[str, Any] = read_table(Path(__file__).with_name("words.yaml"))
SUBMIT_WORDS, YES, NO, KEYS, FILE_BUTTONS, ASKING, BE, OWN = (
    frozenset(DATA[name]) for name in ("submits", "yes", "no", "keys", "file_buttons", "asking", "be", "own")
)
"""Lists of words; `words.yaml` says what each is for."""
LONGEST = 1_000
"""Characters that are looked at word by word."""

# -- forms of verbs ---------------------------------------------------------------------------------------------------
# By patterns of regular verbs, and lists of the others. A form that nobody writes does no harm: it is a row of a table
# that is never looked up.


def _forms(phrase: str, language: str) -> dict[str, list[str]]:
    """The forms of a verb in steps, by what they say.

    plain: how somebody is told to do it, and what is said of oneself. told: what is said of somebody else ("the user
    types"), which in Portuguese is the familiar imperative too. due: what is to be done ("should be typed"). by: how
    something else is done by it ("by typing").
    """
    verb, blank, rest = phrase.partition(" ")
    rest = blank + rest
    irregular = DATA["irregular"]
    due = DATA["due"][language] if len(phrase.split()) < 3 else []
    if language == "en":
        gerund = _inflected(verb, "gerund")
        past = irregular["en"].get(verb) or _inflected(verb, "past")
        return {
            "plain": [phrase, gerund + rest],
            "told": [_inflected(verb, "present") + rest],
            "due": [f"{one} {past}{rest}" for one in due],
            "by": [f"by {gerund}{rest}"],
        }
    if verb[-2:] not in {"ar", "er", "ir", "ôr"} or (len(verb) < 4 and verb not in irregular["pt"]):
        return {"plain": [phrase], "told": [], "due": [], "by": []}
    regular = [_inflected(verb, form) for form in ("imperativo", "presente", "primeira pessoa")]
    imperative, told, own = irregular["pt"].get(verb, regular)
    gerund = _inflected(verb, "gerúndio")
    past = irregular["past"].get(verb) or _inflected(verb, "particípio")
    return {
        "plain": [phrase, *(form + rest for form in (imperative, own, gerund))],
        "told": [told + rest],
        "due": [f"{one} {past[:-1]}{last}{rest}" for one in due for last in ("o", "a", "os", "as")],
        "by": [gerund + rest, f"ao {phrase}"],
    }


def _inflected(verb: str, form: str) -> str:
    """A form of a regular verb, by the first of its patterns that fits."""
    rules = DATA["inflections"][form].items()
    return next(re.sub(pattern, ending, verb, count=1) for pattern, ending in rules if re.search(pattern, verb))


def _table() -> dict[str, dict[str, str]]:
    """For each phrase what it may be: roles, and which verb, noun or link it is."""
    table: dict[str, dict[str, str]] = {}
    verbs = [
        (name, phrase, _forms(phrase, language))
        for name, languages in DATA["verbs"].items()
        for language, phrases in languages.items()
        for phrase in phrases
    ]
    for name, _, forms in verbs:
        for kind in ("told", "due"):
            table |= {form: {"verb": name, kind: ""} for form in forms[kind]}
    table |= {form: {"verb": name} for name, _, forms in verbs for form in forms["plain"]}
    table |= {phrase: {"verb": name} for name, phrase, _ in verbs}  # what is listed goes before what is derived
    for name, _, forms in verbs:
        for form in forms["by"]:
            table.setdefault(form, {}).update(link="value", means=name)
    for role in ("noun", "link"):
        for name, phrases in DATA[role + "s"].items():
            for phrase in phrases:
                table.setdefault(phrase, {})[role] = name
    conditions = [
        f"{first} {state}" for one in DATA["already"].values() for first in one["before"] for state in one["states"]
    ]
    lists = {"article": "articles", "called": "called", "join": "joins", "refusal": "refusals", "doubt": "doubts"}
    for role, key in {**lists, "adverb": "adverbs"}.items():
        for phrase in (*DATA[key], *(conditions if role == "adverb" else ())):
            table.setdefault(phrase, {})[role] = ""
    return table


_TABLE = _table()
_MOST_WORDS: dict[str, int] = {}
"""Of the phrases in the table that begin with a word."""
for _phrase in _TABLE:
    _first, *_others = _phrase.split(" ")
    _MOST_WORDS[_first] = max(_MOST_WORDS.get(_first, 1), 1 + len(_others))

# -- words ------------------------------------------------------------------------------------------------------------

_WORD = re.compile(
    r"[a-z][a-z0-9+.-]{0,30}://[^\s<>'\"`|]*[^\W_]/?"  # an address, a name with dots, a time: nothing in them is a word
    r"|[^\W_]+(?:['’+_-][^\W_]+|[@.][^\W_]+|(?<=\d):\d+)*|->|=>|[^\w\s]|_+",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Argument:
    """A label or a value, and where it stands in the line."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PlanToken:
    """A word, a phrase of the table, a sign, or an argument (whose own text is "")."""

    start: int
    end: int
    text: str = ""
    roles: Mapping[str, str] = field(default_factory=dict)
    """What it may be; empty for a word that the table does not have."""
    is_capital: bool = False
    argument: Argument | None = None

    def role(self, role: str) -> str:
        """Which verb, noun or link it is; "" where it is none."""
        return self.roles.get(role, "")

    @property
    def is_sign(self) -> bool:
        """Whether it is punctuation."""
        return self.text != "" and not self.roles and not self.text[0].isalnum()


_NOTHING: Mapping[str, str] = {}


@lru_cache(maxsize=8192)
def words_of(text: str) -> tuple[PlanToken, ...] | None:
    """The words of a text, the longest phrases of the table first; None where it is too long to be looked at."""
    if len(text) > LONGEST:
        return None
    plain = list(_WORD.finditer(text))
    read = [found.group().casefold() for found in plain]
    words: list[PlanToken] = []
    at = 0
    while at < len(plain):
        for size in range(min(_MOST_WORDS.get(read[at], 1), len(plain) - at), 0, -1):
            phrase = " ".join(read[at : at + size])
            if size == 1 or phrase in _TABLE:
                start, end = plain[at].start(), plain[at + size - 1].end()
                words.append(PlanToken(start, end, phrase, _TABLE.get(phrase, _NOTHING), text[start].isupper()))
                at += size
                break
    return tuple(words)


# -- names of controls -------------------------------------------------------------------------------------------------

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
    called = sorted({one.label for one in elements if one.label}, key=len, reverse=True)
    mention = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, called))})(?!\w)", re.IGNORECASE) if called else None
    return Names(
        {loose(one.label): one.kind for one in fields},
        {kind: tuple(found) for kind, found in labels.items()},
        {option: tuple(dict.fromkeys(groups)) for option, groups in options.items()},
        {label: tuple(texts) for label, texts in offers.items()},
        frozenset(map(loose, buttons)),
        mention,
    )


UNKNOWN = names_of(())
"""Of no form in particular."""
