"""The words of plain-text steps (`words.yaml`), and how a text is cut into them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

_DATA: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text(encoding="utf-8"))
_WORD = re.compile(r"[^\W_]+(?:['’+-][^\W_]+)*|->|=>|[^\w\s]|_+")
_MOST_WORDS = 5
"""Of a phrase in the table."""
_LONGEST = 1_000
"""Characters between two quotations that are looked at word by word."""
SUBMIT_WORDS = frozenset(_DATA["submits"])
"""A button named by one of these words is the one that sends the page, whatever it reads."""
YES, NO = frozenset(_DATA["yes"]), frozenset(_DATA["no"])
"""What is said of a single box that is to be ticked, or not to be."""
KEYS = frozenset(_DATA["keys"])


def _table() -> dict[str, dict[str, str]]:
    """For each phrase what it may be: roles, and which verb, noun or link it is."""
    table: dict[str, dict[str, str]] = {}
    for role in ("verb", "noun", "link"):
        for name, phrases in _DATA[role + "s"].items():
            for phrase in phrases:
                table.setdefault(phrase, {})[role] = name
    for role, key in (
        *(("article", "articles"), ("called", "called"), ("adverb", "adverbs"), ("join", "joins")),
        *(("refusal", "refusals"), ("doubt", "doubts")),
    ):
        for phrase in _DATA[key]:
            table.setdefault(phrase, {})[role] = ""
    return table


_TABLE = _table()


@dataclass(frozen=True, slots=True)
class Word:
    """A word, a phrase of the table or a sign."""

    start: int
    end: int
    text: str
    roles: Mapping[str, str]
    """What it may be; empty for a word that the table does not have."""

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
    if len(text) > _LONGEST:
        return None
    plain = [(found.start(), found.end(), found.group().casefold()) for found in _WORD.finditer(text)]
    words: list[Word] = []
    at = 0
    while at < len(plain):
        for size in range(min(_MOST_WORDS, len(plain) - at), 0, -1):
            phrase = " ".join(word for _, _, word in plain[at : at + size])
            if size == 1 or phrase in _TABLE:
                roles = _TABLE.get(phrase, _NOTHING)
                words.append(Word(plain[at][0], plain[at + size - 1][1], phrase, roles))
                at += size
                break
    return tuple(words)
