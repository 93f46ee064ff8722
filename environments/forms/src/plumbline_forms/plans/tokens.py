"""A step as words and quotations, its verbs, and how much may be looked at to read it.

Work is counted and not timed, so that every text is read in bounded time, and a verdict is the same on every machine.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from plumbline_forms.plans.vocabulary import FILE_BUTTONS, LONGEST, Argument, PlanToken, words_of

# -- work ----------------------------------------------------------------------------------------------------------

MOST_WORK = 20_000
"""Units for one plan. Plans of oracles take under 400."""


class TooMuchWorkError(Exception):
    """A plan takes more work than `MOST_WORK`."""


class Work:
    """The work on one text. A unit is one way to understand up to a hundred characters, some ten microseconds."""

    def __init__(self) -> None:
        """Nothing is done yet."""
        self.spent = 0
        self.halves: dict[tuple[str, int], Any] = {}
        """What parts of the text were read as, by their depth: they are asked for again and again."""

    def look(self, characters: int, words: int = 0) -> None:
        """Count one look at so many characters, of which so many are cut into words.

        Raises:
            TooMuchWorkError: see there.
        """
        self.spend(1 + characters // 100 + min(words, LONGEST) // 10)

    def spend(self, units: int) -> None:
        """Count units; see `look`."""
        self.spent += units
        if self.spent > MOST_WORK:
            raise TooMuchWorkError


# -- quotations ----------------------------------------------------------------------------------------------------

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
_FILE_BUTTONS = "|".join(map(re.escape, sorted(FILE_BUTTONS, reverse=True)))
_FILE_BUTTON = re.compile(rf"{_OPEN}({_FILE_BUTTONS}){_CLOSE}", re.IGNORECASE)
_BOLD_QUOTE = re.compile(rf"\*{{1,3}}(?={_ANY})|(?<={_ANY[:-1]}])\*{{1,3}}")


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


# -- words and arguments ----------------------------------------------------------------------------------------------

LEADS = frozenset({"seek", "click", "navigate", "use", "select", "press", "clear"})
"""Verbs that may only find the control for the verb that follows: "click on L and type V"."""


def tokens_of(text: str, arguments: Sequence[Argument]) -> list[PlanToken] | None:
    """The text as words and arguments; None where there are too many words between two arguments."""
    tokens: list[PlanToken] = []
    at = 0
    for one in (*arguments, None):
        words = words_of(text[at : len(text) if one is None else one.start])
        if words is None:
            return None
        tokens += [PlanToken(at + word.start, at + word.end, word.text, word.roles, word.is_capital) for word in words]
        if one is not None:
            tokens.append(PlanToken(one.start, one.end, argument=one))
            at = one.end
    return tokens


def verbs_of(tokens: Sequence[PlanToken]) -> list[int]:
    """The verbs: at the beginning of a clause, because elsewhere "input", "check" and "select" are nouns."""
    found: list[int] = []
    begins = True
    # What stands before a verb may be what does it: "L changes to V" tells, "in L, the user types V" asks.
    first = next((token for token in tokens if "adverb" not in token.roles), None)
    subject = first is not None and "link" not in first.roles
    for at, token in enumerate(tokens):
        before = tokens[at - 1] if at else None
        named = before is not None and (before.argument is not None or "noun" in before.roles)
        if token.argument is not None:
            begins = not found  # "in the field L type V"
        elif begins and "verb" in token.roles and not (subject and "told" in token.roles and named):
            found.append(at)
            begins = False
        elif token.is_sign or "join" in token.roles or (token.text in {"->", "→", "=>"} and not found):
            begins = True
        elif token.text in {"to", "para"} and found and tokens[found[-1]].role("verb") in LEADS:
            begins = not may_be_name(tokens, at + 1)  # "use the field to enter ..."
        elif not {"adverb", "refusal"} & token.roles.keys() and not (begins and "noun" in token.roles):
            begins = False
    return found


def may_be_name(tokens: Sequence[PlanToken], at: int) -> bool:
    """Whether a word is the beginning of a text and no verb: "set L to Open day"."""
    if not 0 < at < len(tokens) or tokens[at - 1].argument is not None:
        return False
    return tokens[at].is_capital and not tokens[at - 1].is_capital
