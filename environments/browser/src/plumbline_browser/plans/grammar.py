"""What the steps of forms and of MiniWoB++ share: lines, quotations, words, numbers and signs, and
tables of phrases.

Each has a table of its words (`words.yaml`) and a function for each verb; nothing here knows what a
verb does. No line is completed by what it does not say: a word that no table has makes it unread,
which is counted.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

# -- work ------------------------------------------------------------------------------------------
# Work is counted and not timed, so that every text is read in bounded time, and a verdict is the
# same on every machine.

MOST_WORK = 20_000
"""Units for one plan. Plans of oracles take under 400."""


class TooMuchWorkError(Exception):
    """A plan takes more work than `MOST_WORK`."""


class Work:
    """The work on one text. A unit is one way to understand up to a hundred characters, some ten
    microseconds."""

    def __init__(self) -> None:
        """Nothing is done yet."""
        self.spent = 0

    def look(self, characters: int) -> None:
        """Count one look at so many characters.

        Raises:
            TooMuchWorkError: see there.
        """
        self.spend(1 + characters // 100)

    def spend(self, units: int) -> None:
        """Count units; see `look`."""
        self.spent += units
        if self.spent > MOST_WORK:
            raise TooMuchWorkError


# -- names -----------------------------------------------------------------------------------------

_MARKS = tuple(f"({word})" for word in ("required", "obrigatório", "optional", "opcional"))
"""What may stand behind a label, beside stars and colons."""


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


# -- lines -----------------------------------------------------------------------------------------

_MARKER = re.compile(
    r"\s{0,16}(?:\|\s{0,3})?(?:(?:[-*•>→◦▪‣·–—✓✅☐☑+]|#{1,4})\s{1,3})?(?:\[[ xX]?\]\s{1,3})?[*_#]{0,3}\s?"
    r"(?:(?P<word>step|passo|etapa|action|task|ação|acao|tarefa)\b\s{0,2}#?\s?)?"
    r"(?P<number>[(\[]?\d{1,4}(?:\.\d{1,3})?[ºª°]?(?:\s(?:passo|etapa|step)\b)?(?![\w/'\"@])[\ufe0f\u20e3]{0,2})?"
    r"[*_]{0,2}(?:\s{0,2}[:.)\]|–—-]{1,2})?[*_]{0,2}\s{0,4}",
    re.IGNORECASE,
)
"""What may stand before a step; it matches nothing, too."""


def cleaned(text: str) -> str:
    """Without a thought before the answer, and with one kind of line break."""
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    return text.replace("\r\n", "\n").replace("\r", "\n")


def cut(line: str) -> tuple[re.Match[str], str]:
    """The marker of a line, and what it says."""
    marker = _MARKER.match(line)
    assert marker is not None
    return marker, line[marker.end() :].strip()


def claims(line: str, begins: Callable[[Sequence["Piece"]], bool]) -> bool:
    """Whether a line that was not understood claims to be a step: by a number, or by a verb at its
    start."""
    marker, rest = cut(line)
    return bool(rest.strip(" .:-*_`")) and (
        marker.group("number") is not None or begins(pieces_of(rest[:60], ()))
    )


# -- quotations ------------------------------------------------------------------------------------

QUOTES = {"'": "'", '"': '"', "“": "”", "‘": "’", "«": "»", "`": "`"}
"""Opening quotes, and what closes them."""
_OPEN = "[" + re.escape("".join(QUOTES)) + "]"
_CLOSE = "[" + re.escape("".join(set(QUOTES.values()))) + "]"
_ANY = "[" + re.escape("".join({*QUOTES, *QUOTES.values()})) + "]"
_NO_QUOTE = rf"(?:(?!{_ANY}).|(?<=\w)['’](?=\w))"
# A gap begins and ends with something that is no letter, so that the apostrophe of O'Dowd ends
# nothing.
_GAP = re.compile(rf"{_CLOSE}(?=((?!\w){_NO_QUOTE}{{1,120}}?(?<!\w))({_OPEN}))", re.DOTALL)
_FIRST = re.compile(rf"(?<![\w]){_OPEN}")
_LAST = re.compile(rf"{_CLOSE}(?!\w)")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MEANING = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_MOST_GAPS = 100
_MOST_SPLIT = 12
_CURLY = str.maketrans(
    {"“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "‘": "'", "’": "'", "‚": "'", "´": "'"}
)
_BOLD = re.compile(rf"\*\*((?:(?!\*\*|{_ANY}).)+?)(:?)\*\*(:?)")
_BOLD_QUOTE = re.compile(rf"\*{{1,3}}(?={_ANY})|(?<={_ANY[:-1]}])\*{{1,3}}")


@dataclass(frozen=True, slots=True)
class Quotation:
    """What stands in quotation marks, and where in the line, with the marks."""

    text: str
    start: int
    end: int


def quotations(text: str) -> Iterator[tuple[Quotation, ...]]:
    """Every way to take the quotations of a text apart: all of them, each way to make two, one; ()
    where it has none.

    Between two quotations stand words and no quotation marks. Time grows with the length of the
    text.
    """
    first = next(
        (match.start() for match in _FIRST.finditer(text) if not _escaped(text, match.start())), -1
    )
    last = max(
        (match.start() for match in _LAST.finditer(text) if not _escaped(text, match.start())),
        default=-1,
    )
    if first < 0 or last <= first:
        if first < 0:
            yield ()
        return
    if _spare_quotes(text[:first]) or _spare_quotes(text[last + 1 :]):
        return
    gaps = [
        (match.start(), match.start(2))
        for match in _GAP.finditer(text, first + 1, last)
        if not _escaped(text, match.start()) and not _escaped(text, match.start(2))
    ]
    gaps = gaps[-_MOST_GAPS:]
    splits = [gaps] if 2 <= len(gaps) <= _MOST_SPLIT else []
    for split in (*splits, *([gap] for gap in reversed(gaps)), []):
        edges = [first, *(edge for gap in split for edge in gap), last]
        pairs = list(zip(edges[::2], edges[1::2], strict=True))
        if all(start < end and QUOTES.get(text[start]) == text[end] for start, end in pairs):
            yield tuple(
                Quotation(unquoted(text[start : end + 1]), start, end + 1) for start, end in pairs
            )


def is_quoted(text: str) -> bool:
    """Whether a text is one quotation from end to end."""
    return len(text) > 1 and QUOTES.get(text[0]) == text[-1] and not _escaped(text, len(text) - 1)


def unquoted(text: str) -> str:
    """What a quotation says."""
    return _ESCAPE.sub(lambda match: _MEANING.get(match.group(1), match.group()), text[1:-1])


def opens(text: str) -> bool:
    """Whether a quotation may begin somewhere, so that the text may go on in the next line."""
    return _FIRST.search(text) is not None


def has_quote(text: str) -> bool:
    """Whether there is any sign that may close a quotation."""
    return re.search(_CLOSE, text) is not None


def plainer(text: str) -> Iterator[str]:
    """The same with straight quotation marks, first with those in place of bold print, then without
    bold print."""
    text = _BOLD_QUOTE.sub("", text.translate(_CURLY))
    yield _BOLD.sub(r'"\1"\2\3', text)
    yield text.replace("**", "")


def _spare_quotes(text: str) -> bool:
    return re.search(rf"(?<!\w){_ANY}|{_ANY}(?!\w)", text) is not None


def _escaped(text: str, at: int) -> bool:
    """Whether an odd number of backslashes stands before a place."""
    count = 0
    while count < at and text[at - count - 1] == "\\":
        count += 1
    return count % 2 == 1


# -- pieces ----------------------------------------------------------------------------------------

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


def pieces_of(text: str, quoted: Sequence[Quotation], known: Between | None = None) -> list[Piece]:
    """The pieces of a text whose quotations are given.

    A text with other quotations has much between them in common: what was cut once is taken from
    `known`.
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
        self.meaning = {
            tuple(phrase.split()): name for name, each in phrases.items() for phrase in each
        }
        self.longest = max((len(words) for words in self.meaning), default=0)

    def at(self, pieces: Sequence[Piece], start: int) -> tuple[str, int] | None:
        """What the longest phrase that begins there stands for, and where it ends; None where there
        is none."""
        words: list[str] = []
        for piece in pieces[start : start + self.longest]:
            if piece.kind not in {"word", "sign"}:
                break
            words.append(piece.value)
        for size in range(len(words), 0, -1):
            if (name := self.meaning.get(tuple(words[:size]))) is not None:
                return name, start + size
        return None

    def whole(self, words: Sequence[str]) -> str | None:
        """What these words stand for, all of them together."""
        return self.meaning.get(tuple(words))


def action_objects(value: Any, depth: int = 8) -> Iterator[Mapping[str, Any] | str]:
    """The objects that say what is to be done, and the sentences, in what was read from JSON."""
    if isinstance(value, str):
        yield value
    if depth == 0 or not isinstance(value, list | dict):
        return
    lists = (
        [
            one
            for one in value.values()
            if isinstance(one, list) and any(isinstance(each, dict) for each in one)
        ]
        if isinstance(value, dict)
        else value
    )
    if isinstance(value, dict) and not lists:
        yield value
    for one in lists:
        yield from action_objects(one, depth - 1)
