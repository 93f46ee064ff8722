"""A step cut into what it is made of: words, quotations, elements by number, points, numbers and signs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from plumbline.tasks.tables import read_table
from plumbline_forms.plans.vocabulary import Argument

WORDS: Mapping[str, Any] = read_table(Path(__file__).with_name("words.yaml"))
_NUMBER = r"-?\d{1,6}(?:\.\d{1,3})?"
_PIECE = re.compile(
    r"\[\s?(?P<ref>\d{1,5})\s?\]"
    rf"|\(?\s?(?:x\s?[=:]\s?)?(?P<x>{_NUMBER})\s?,\s?(?:y\s?[=:]\s?)?(?P<y>{_NUMBER})(?!\w)\s?\)?"
    r"|(?P<nth>\d{1,3})(?:st|nd|rd|th)\b"
    rf"|(?P<number>{_NUMBER})"
    r"|(?P<word>[^\W\d_](?:[\w'’]|[-+](?=\w))*)"
    r"|(?P<sign>[^\w\s]|_)",
    re.IGNORECASE,
)
Kind = Literal["word", "quote", "ref", "point", "nth", "number", "sign"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a step, and where it stands."""

    kind: Kind
    value: Any
    """A word in small letters, what a quotation says, a number, the two of a point, a sign."""
    start: int
    end: int


Between = dict[tuple[int, int], list[Piece]]
"""The pieces between two places of one text."""


def pieces_of(text: str, quoted: Sequence[Argument], known: Between | None = None) -> list[Piece]:
    """The pieces of a text whose quotations are given.

    A text with other quotations has much between them in common: what was cut once is taken from `known`.
    """
    known = {} if known is None else known
    found: list[Piece] = []
    at = 0
    for one in (*quoted, None):
        end = len(text) if one is None else one.start
        if (at, end) not in known:
            known[at, end] = [_piece(match) for match in _PIECE.finditer(text, at, end)]
        found += known[at, end]
        if one is not None:
            found.append(Piece("quote", one.text, one.start, one.end))
            at = one.end
    return found


def _piece(match: re.Match[str]) -> Piece:
    start, end = match.span()
    kind = match.lastgroup or ""
    said = match[kind]
    if kind == "word":
        return Piece("word", said.casefold().replace("’", "'"), start, end)
    if kind == "sign":
        return Piece("sign", said, start, end)
    if kind == "y":
        return Piece("point", (number_of(match["x"]), number_of(said)), start, end)
    if kind == "number":
        return Piece("number", number_of(said), start, end)
    return Piece("ref" if kind == "ref" else "nth", int(said), start, end)


def number_of(text: str) -> float:
    """A number as it is written; whole ones are whole."""
    return float(text) if "." in text else int(text)


class Phrases:
    """Phrases of several words, the longest first."""

    def __init__(self, phrases: Mapping[str, Iterable[str]]) -> None:
        """Take what each phrase stands for, and its spellings."""
        self.meaning = {_words(phrase): name for name, spellings in phrases.items() for phrase in spellings}
        self.longest = max((len(words) for words in self.meaning), default=0)

    def at(self, pieces: Sequence[Piece], start: int) -> tuple[str, int] | None:
        """What the longest phrase that begins there stands for, and where it ends; None where there is none."""
        words: list[str] = []
        for piece in pieces[start : start + self.longest]:
            if piece.kind != "word" and piece.value != "=":
                break
            words.append(piece.value)
        for size in range(len(words), 0, -1):
            if (name := self.meaning.get(tuple(words[:size]))) is not None:
                return name, start + size
        return None

    def whole(self, words: Sequence[str]) -> str | None:
        """What these words stand for, all of them together."""
        return self.meaning.get(tuple(words))


def _words(phrase: str) -> tuple[str, ...]:
    return tuple(phrase.split())
