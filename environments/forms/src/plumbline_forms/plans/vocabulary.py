"""The words of plain-text steps (`words.yaml`), and how a text is cut into them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from plumbline.tasks.tables import read_table
from plumbline_forms.plans.inflection import by_forms, due_forms, plain_forms, told_forms
from plumbline_forms.plans.work import LONGEST

_DATA: Mapping[str, Any] = read_table(Path(__file__).with_name("words.yaml"))
_WORD = re.compile(
    r"[a-z][a-z0-9+.-]{0,30}://[^\s<>'\"`|]*[^\W_]/?"  # an address, a name with dots, a time: nothing in them is a word
    r"|[^\W_]+(?:['’+_-][^\W_]+|[@.][^\W_]+|(?<=\d):\d+)*|->|=>|[^\w\s]|_+",
    re.IGNORECASE,
)
SUBMIT_WORDS = frozenset(_DATA["submits"])
"""A button named by one of these words is the one that sends the page, whatever it reads."""
YES, NO = frozenset(_DATA["yes"]), frozenset(_DATA["no"])
"""What is said of a single box that is to be ticked, or not to be."""
KEYS = frozenset(_DATA["keys"])
FILE_BUTTONS = frozenset(_DATA["file_buttons"])
"""What browsers write on the button of a file field."""
BE = frozenset({"is", "are", "was", "be", "ser", "é", "são", "foi", "está"})
"""Words with which something is told."""
OWN = frozenset({"your", "their", "his", "her", "my", "our", "seu", "sua", "teu", "tua", "meu", "minha"})
"""Words after which something is described and not given."""
ASKING = frozenset(_DATA["asking"])
"""Words that a question begins with."""


def _table() -> dict[str, dict[str, str]]:
    """For each phrase what it may be: roles, and which verb, noun or link it is."""
    table: dict[str, dict[str, str]] = {}
    verbs = [
        (name, phrase, language)
        for name, languages in _DATA["verbs"].items()
        for language, phrases in languages.items()
        for phrase in phrases
    ]
    for name, phrase, language in verbs:
        for form in told_forms(phrase, language):
            table[form] = {"verb": name, "told": ""}
        for form in due_forms(phrase, language):
            table[form] = {"verb": name, "due": ""}
    for forms in (plain_forms, lambda phrase, _: (phrase,)):  # what is listed comes before what is derived
        for name, phrase, language in verbs:
            table |= {form: {"verb": name} for form in forms(phrase, language)}
    for name, phrase, language in verbs:
        for form in by_forms(phrase, language):
            table.setdefault(form, {}).update(link="value", means=name)
    for role in ("noun", "link"):
        for name, phrases in _DATA[role + "s"].items():
            for phrase in phrases:
                table.setdefault(phrase, {})[role] = name
    conditions = [
        f"{first} {state}" for one in _DATA["already"].values() for first in one["before"] for state in one["states"]
    ]
    for role, phrases in (
        *(("article", _DATA["articles"]), ("called", _DATA["called"]), ("join", _DATA["joins"])),
        *(("refusal", _DATA["refusals"]), ("doubt", _DATA["doubts"]), ("adverb", [*_DATA["adverbs"], *conditions])),
    ):
        for phrase in phrases:
            table.setdefault(phrase, {})[role] = ""
    return table


_TABLE = _table()
_MOST_WORDS: dict[str, int] = {}
"""Of the phrases in the table that begin with a word."""
for _phrase in _TABLE:
    _first, *_others = _phrase.split(" ")
    _MOST_WORDS[_first] = max(_MOST_WORDS.get(_first, 1), 1 + len(_others))


@dataclass(frozen=True, slots=True)
class Word:
    """A word, a phrase of the table or a sign."""

    start: int
    end: int
    text: str
    roles: Mapping[str, str]
    """What it may be; empty for a word that the table does not have."""
    is_capital: bool = False

    def name(self, role: str) -> str:
        """Which verb, noun or link it is; "" where it is none."""
        return self.roles.get(role, "")

    @property
    def is_sign(self) -> bool:
        """Whether it is punctuation."""
        return not self.roles and not self.text[0].isalnum()


_NOTHING: Mapping[str, str] = {}


@lru_cache(maxsize=8192)
def words_of(text: str) -> tuple[Word, ...] | None:
    """The words of a text, the longest phrases of the table first; None where it is too long to be looked at."""
    if len(text) > LONGEST:
        return None
    plain = list(_WORD.finditer(text))
    read = [found.group().casefold() for found in plain]
    words: list[Word] = []
    at = 0
    while at < len(plain):
        for size in range(min(_MOST_WORDS.get(read[at], 1), len(plain) - at), 0, -1):
            phrase = " ".join(read[at : at + size])
            if size == 1 or phrase in _TABLE:
                roles = _TABLE.get(phrase, _NOTHING)
                start, end = plain[at].start(), plain[at + size - 1].end()
                words.append(Word(start, end, phrase, roles, text[start].isupper()))
                at += size
                break
    return tuple(words)
