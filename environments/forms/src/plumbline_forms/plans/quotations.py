"""The quotations of a line: where each argument begins and ends, although a value may hold quotation marks itself."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from plumbline_forms.plans.vocabulary import FILE_BUTTONS

QUOTES = {"'": "'", '"': '"', "“": "”", "‘": "’", "«": "»", "`": "`"}
"""Opening quotes, and what closes them."""
_OPEN = "[" + re.escape("".join(QUOTES)) + "]"
_CLOSE = "[" + re.escape("".join(set(QUOTES.values()))) + "]"
_ANY = "[" + re.escape("".join({*QUOTES, *QUOTES.values()})) + "]"
_NO_QUOTE = rf"(?:(?!{_ANY}).|(?<=\w)['’](?=\w))"
# A gap begins and ends with something that is no letter, so that the apostrophe of O'Dowd ends nothing.
_GAP = re.compile(rf"{_CLOSE}(?=((?!\w){_NO_QUOTE}{{1,120}}?(?<!\w))({_OPEN}))", re.DOTALL)
_FIRST = re.compile(rf"(?<![\w]){_OPEN}")
_LAST = re.compile(rf"{_CLOSE}(?!\w)")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MEANING = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_MOST_GAPS = 100
_MOST_SPLIT = 12
_CURLY = str.maketrans({"“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "‘": "'", "’": "'", "‚": "'", "´": "'"})
_BOLD = re.compile(rf"\*\*((?:(?!\*\*|{_ANY}).)+?)(:?)\*\*(:?)")
_FILE_BUTTON = re.compile(rf"{_OPEN}({'|'.join(map(re.escape, sorted(FILE_BUTTONS, reverse=True)))}){_CLOSE}", re.I)
_BOLD_QUOTE = re.compile(rf"\*{{1,3}}(?={_ANY})|(?<={_ANY[:-1]}])\*{{1,3}}")


@dataclass(frozen=True, slots=True)
class Argument:
    """A label or a value, and where it stands in the line."""

    text: str
    start: int
    end: int


def quotations(text: str) -> Iterator[tuple[Argument, ...]]:
    """Every way to take the quotations of a text apart: all of them, each way to make two, one; () where it has none.

    Between two quotations stand words and no quotation marks. Time grows with the length of the text.
    """
    first = next((match.start() for match in _FIRST.finditer(text) if not _escaped(text, match.start())), -1)
    last = max((match.start() for match in _LAST.finditer(text) if not _escaped(text, match.start())), default=-1)
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
            yield tuple(Argument(unquoted(text[start : end + 1]), start, end + 1) for start, end in pairs)


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
    """The same with straight quotation marks, first with those in place of bold print, then without bold print."""
    text = _BOLD_QUOTE.sub("", text.translate(_CURLY))
    yield _BOLD.sub(r'"\1"\2\3', text)
    yield text.replace("**", "")


def without_file_buttons(text: str, is_label: Callable[[str], bool]) -> str:
    """Without the quotation marks around what browsers write on file fields, which is no label of the form."""

    def plain(match: re.Match[str]) -> str:
        return match.group() if is_label(match.group(1)) else f" {match.group(1)} button "

    return _FILE_BUTTON.sub(plain, text)


def _spare_quotes(text: str) -> bool:
    return re.search(rf"(?<!\w){_ANY}|{_ANY}(?!\w)", text) is not None


def _escaped(text: str, at: int) -> bool:
    """Whether an odd number of backslashes stands before a place."""
    count = 0
    while count < at and text[at - count - 1] == "\\":
        count += 1
    return count % 2 == 1
