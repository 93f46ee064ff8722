"""From free Portuguese text to sentences of tokens: words, the table's rows, numbers with their
units.

One pass of linear expressions over at most `MOST_CHARACTERS`, so no text takes long. Rows are found
before anything else, because "1 a 3 dias de atraso" is a row and no number.
"""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import NamedTuple

from plumbline.tasks.text.numbers import read_number
from plumbline_commerce.insights.table import InsightRow, InsightTable, data

MOST_CHARACTERS = 4000
"""Of an answer that are read; the length that pays is a quarter of that."""
_MARKED = (
    *zip("áàâãäéèêëíìîïóòôõöúùûüçñ", "aaaaaeeeeiiiiooooouuuucn", strict=True),
    *((m, "") for m in '*`#"“”‘’«»'),
)
"""Letters without their accents; marks of emphasis and quotation are taken away."""


def _fold_text(text: str) -> str:
    """In lower case without accents and marks; `str.translate` takes ten times as long for what is
    not ASCII."""
    text = text.casefold()
    for marked, bare in _MARKED:
        text = text.replace(marked, bare)
    return text


class Stated(NamedTuple):
    """A number as the text states it."""

    value: float | None
    """None where it has more than one reading, or is no finite number."""
    step: float
    """One unit of its last decimal: 0.1 for 12,5, 1000 for "12 mil"."""
    unit: str
    """percent, points (percentage points), money, days, times, half (a share or a ratio in words)
    or ""."""
    nearly: str
    """How exactly it is meant: to its last decimal (""), about, over or under; above and below are
    bounds."""
    in_words: bool = False
    """ "o dobro" and the like, which are seldom meant to a decimal."""


class Token(NamedTuple):
    """A piece of a sentence; of `rows` and `number` at most one is set."""

    text: str
    rows: tuple[int, ...] = ()
    """The table's rows that it names, in the order of the text: "SP, RJ e MG" is one token."""
    number: Stated | None = None


class Sentence(NamedTuple):
    """A statement or a question."""

    tokens: list[Token]
    asks: bool
    plain: str
    """Its words, for finding repetitions."""


@cache
def words() -> Mapping[str, frozenset[str]]:
    """The word lists of `words.yaml`."""
    return {name: frozenset(listed) for name, listed in data("words").items()}


NUMERALS, _PARTS, _MULTIPLES = (
    {word: int(value) for word, value in data("numbers")[kind].items()}
    for kind in ("numerals", "parts", "multiples")
)
_NUMBER_WORDS = {*_MULTIPLES, *_PARTS, *NUMERALS, "metade"}
_FILLING = frozenset({"$", "o", "os", "as", "um", "uma"})
_BEFORE_NUMBERS = _FILLING | {"a", "de", "do", "da"}
_RAW = re.compile(r"\x01(\d+)\x02|(\d+(?:[.,]\d+)*)|([a-z]+(?:-[a-z]+)*)|([.!?;\n])|(\S)")
_LIST_MARK = re.compile(r"^[ \t]*(?:\d{1,2}[.)]|[-*•–—+])[ \t]+", re.MULTILINE)
_TABLE_LINE = re.compile(r"^[^\n]*\|[^\n]*$", re.MULTILINE)
_POINTS = re.compile(r"\bp\. ?p\.?(?!\w)|\bpontos? p[eo]rcentua(?:l|is)")
_JOINTS = {",", "/", *words()["joints"]}
_RANGE = frozenset({"a", "ate", "para"})


def sentences(text: str, table: InsightTable) -> list[Sentence]:
    """The sentences of a text about a table; lines of a copied table are none, and equal ones are
    one object."""
    text = text[:MOST_CHARACTERS].replace("\x01", " ").replace("\x02", " ")
    text = _LIST_MARK.sub("", _TABLE_LINE.sub("", text) if "|" in text else text)
    names = _names(table)
    if names.literal is not None:
        text = names.literal.sub(names.mark, text)
    plain = _fold_text(text).replace("r$", "$").replace("por cento", "%").replace("vs.", "contra")
    plain = names.plain.sub(
        names.mark, _POINTS.sub(" pp ", plain) if "p." in plain or "ponto" in plain else plain
    )
    found: list[Sentence] = []
    read: dict[str, Sentence] = {}
    raw: list[tuple[int, str]] = []
    start = 0
    for match in _RAW.finditer(plain):
        kind = match.lastindex or 0
        if kind != 4:
            raw.append((kind, match[kind]))
            continue
        if raw:
            key = plain[start : match.end()].lstrip()
            if (sentence := read.get(key)) is None:
                sentence = read[key] = _sentence(raw, table, asks=match[4] == "?")
            found.append(sentence)
        raw, start = [], match.end()
    return [*found, _sentence(raw, table, asks=False)] if raw else found


def _sentence(raw: list[tuple[int, str]], table: InsightTable, *, asks: bool) -> Sentence:
    plain = " ".join([text for kind, text in raw if kind != 5])
    tokens: list[Token] = []
    index = 0
    while index < len(raw):
        kind, text = raw[index]
        if kind == 1:
            _add_row(tokens, int(text), ordered=table.ordered)
        elif kind == 2:
            figure, index = _number(raw, index, tokens)
            tokens.append(Token(text, number=figure))
        elif text in _NUMBER_WORDS and (number := _in_words(raw, index, tokens)) is not None:
            tokens.append(Token(text, number=number))
            index += 1 if number.unit == "times" and text in NUMERALS else 0
        else:
            tokens.append(_word(text))
        index += 1
    return Sentence(tokens, asks, plain)


_word = lru_cache(maxsize=1 << 14)(Token)
"""The token of a word: the same few hundred words make most of a text."""


def _add_row(tokens: list[Token], row: int, *, ordered: bool) -> None:
    """Put a row behind the tokens, into one with the rows just before it: "SP, RJ e MG", "de maio a
    julho"."""
    back = len(tokens) - 1
    between: list[str] = []
    while back >= 0 and len(between) < 5 and not tokens[back].rows and tokens[back].text in _JOINTS:
        between.append(tokens[back].text)
        back -= 1
    if back < 0 or not tokens[back].rows or row in tokens[back].rows:
        tokens.append(Token("", rows=(row,)))
    elif "e" in between or "/" in between:
        before = tokens[back].rows
        while back > 1 and tokens[back - 1].text == "," and tokens[back - 2].rows:  # "SP, RJ e MG"
            back -= 2
            before = (*tokens[back].rows, *before)
        tokens[back:] = [Token("", rows=tuple(dict.fromkeys((*before, row))))]
    elif ordered and not _RANGE.isdisjoint(between):
        tokens[back:] = [Token("", rows=(*tokens[back].rows, row))]
    else:
        tokens.append(Token("", rows=(row,)))


def _number(raw: list[tuple[int, str]], index: int, before: list[Token]) -> tuple[Stated, int]:
    """A number with what stands around it, and the index of its last token."""
    value, step = _value(raw[index][1])
    ahead = before[-1].text if before else ""
    unit = "money" if ahead == "$" else ""
    following = raw[index + 1][1] if index + 1 < len(raw) else ""
    if scale := {"mil": 1e3, "milhao": 1e6, "milhoes": 1e6}.get(following):
        value, step, index = None if value is None else value * scale, step * scale, index + 1
        following = raw[index + 1][1] if index + 1 < len(raw) else ""
    found = data("numbers")["units"].get(following, "")
    if found:
        unit, index = found, index + 1
    if ahead == "-" and value is not None:
        value = abs(value)
    return Stated(value, step, unit, _exactness(before)), index


def _in_words(raw: list[tuple[int, str]], index: int, before: list[Token]) -> Stated | None:
    """ "o dobro", "metade", "dois terços", "três vezes"; None where the word is no number that is
    checked."""
    text = raw[index][1]
    if text in _MULTIPLES:
        return Stated(float(_MULTIPLES[text]), 0.3, "times", _exactness(before), in_words=True)
    if text == "metade":
        return Stated(0.5, 0.08, "half", _exactness(before), in_words=True)
    if text in _PARTS and before and before[-1].text in NUMERALS and len(raw) > index + 1:
        return Stated(
            NUMERALS[before[-1].text] * (1 / _PARTS[text]),
            0.06,
            "half",
            _exactness(before[:-1]),
            in_words=True,
        )
    if (
        text in NUMERALS
        and text not in {"um", "uma"}
        and len(raw) > index + 1
        and raw[index + 1][1] == "vezes"
    ):
        return Stated(float(NUMERALS[text]), 0.3, "times", _exactness(before), in_words=True)
    return None


def _exactness(before: list[Token]) -> str:
    """How exactly a number is meant, by the words before it."""
    said = [token.text for token in before[-4:] if token.text not in _BEFORE_NUMBERS][-1:]
    word = said[0] if said else ""
    if word in words()["almost"]:
        return "under"
    if word in words()["approx"]:
        return "about"
    texts = [token.text for token in before[-5:]]
    while texts and texts[-1] in _FILLING:
        del texts[-1]
    pair = texts[-2:] if texts and texts[-1] in {"que", "de", "da", "do", "a", "dos", "das"} else []
    return data("numbers")["bounds"].get(pair[0], "") if pair else ""


@lru_cache(maxsize=1 << 14)
def _value(body: str) -> tuple[float | None, float]:
    """A number and one unit of its last decimal; a lone 1.234 is a Brazilian's 1234."""
    if len(body) > 20:
        return None, 1.0
    read = read_number(f"R$ {body}")
    if read is None or read.value is None:
        return None, 1.0
    decimals = len(re.split("[.,]", body)[-1]) if isinstance(read.value, float) else 0
    return float(read.value), 10.0**-decimals


@lru_cache(maxsize=1 << 14)
def _canonical(name: str) -> str:
    return " ".join(
        word for word in re.findall(r"\w+", _fold_text(name).replace("_", " ")) if word != "e"
    )


class _Names(NamedTuple):
    """What finds the table's rows in a text."""

    literal: re.Pattern[str] | None
    """Codes in capitals, and names that without accents are other words; before the text is made
    plain."""
    plain: re.Pattern[str]
    """The other names; in lower case without accents, whatever stands between their words."""
    rows: Mapping[str, int]

    def mark(self, found: re.Match[str]) -> str:
        """What stands for a row in the text that is split into tokens."""
        before = found.string[found.start() - 1 : found.start()]
        return found[0] if before.isalnum() else f" \x01{self.rows[_canonical(found[0])]}\x02 "


@lru_cache(maxsize=4096)
def _names(table: InsightTable) -> _Names:
    said = [(alias, row) for row, named in enumerate(table.named) for alias in _ways(named)]
    said.sort(key=lambda pair: -len(pair[0]))
    literal = [re.escape(alias.lstrip("=")) for alias, _ in said if _is_literal(alias)]
    plain = [
        r"[\s,_/-]{1,2}(?:e\s)?".join(_canonical(alias).split())
        for alias, _ in said
        if not _is_literal(alias)
    ]
    rows = {_canonical(alias): row for alias, row in reversed(said)}
    return _Names(_any_of(literal) if literal else None, _any_of(plain), rows)


def _is_literal(alias: str) -> bool:
    return alias.startswith("=") or alias.isupper()


def _any_of(expressions: list[str]) -> re.Pattern[str]:
    # What stands before a name is looked at in `mark`: an expression that begins with its letters
    # is found faster.
    return re.compile("(?:" + "|".join(dict.fromkeys(expressions)) + r")(?!\w)")


def _ways(named: InsightRow) -> list[str]:
    """The name, what stands behind its article or preposition ("faixa de 2 a 3 parcelas"), and the
    aliases."""
    phrases = [
        phrase.split(" ", 1)[1]
        for phrase in (named.o, named.em)
        if phrase.split(" ")[0] in _ARTICLES
    ]
    return list(dict.fromkeys([named.name, *phrases, *named.aliases]))


_ARTICLES = frozenset({"o", "a", "em", "no", "na", "nas"})
