"""What no message may do: too long, no Portuguese, a gap left open, an invention, several texts, shouting."""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from plumbline.tasks.text.numbers import read_number
from plumbline_commerce.push.phrases import SEPARATORS, folded, lexicon, words
from plumbline_commerce.push.reading import Message

MOST_TITLE, MOST_BODY = 50, 120
"""Characters."""
MOST_EMOJI = 2
FUNCTION_SHARE = 0.2
"""Of the words at least, that are function words of Portuguese."""

NAME, PRODUCT = "$name", "$product"
"""Stand for the customer's name and the product among the words of a message."""
Number = tuple[float, str]
"""A value and its unit: %, R$, dia, hora, or nothing."""


class Facts(NamedTuple):
    """What the prompt says that a message may repeat."""

    numbers: frozenset[Number]
    codes: frozenset[str]
    """Words with digits, coupons and words in capitals, folded."""
    claims: frozenset[str]
    name: str
    product: tuple[str, ...]
    """Its folded words."""
    forms: frozenset[str]
    """Words that name it."""


@lru_cache(maxsize=1 << 12)
def facts_of(name: str, product: str, told: str, offers: tuple[str, ...]) -> Facts:
    """The facts of a prompt, by its parts."""
    given = " . ".join((told, *offers))
    codes = {folded(word) for word in re.findall(r"\w+", f"{given} {product}") if _is_code(word)}
    named = words(product)
    forms = {form for place, word in enumerate(named) if place == 0 or len(word) > 3 for form in _forms(word)}
    return Facts(
        frozenset(numbers_of(given)),
        frozenset(codes),
        frozenset(claims_of(words(given))),
        folded(name),
        tuple(named),
        frozenset(forms),
    )


def _forms(word: str) -> set[str]:
    """A noun and its plural."""
    plurals = {word + "s", word + "es"}
    if word.endswith("l"):
        plurals.add(word[:-1] + "is")
    if word.endswith("m"):
        plurals.add(word[:-1] + "ns")
    if word.endswith("ao"):
        plurals |= {word[:-2] + "oes", word[:-2] + "aos", word[:-2] + "aes"}
    return {word, *plurals}


def _is_code(word: str) -> bool:
    return len(word) > 1 and (word.isupper() or (any(map(str.isdigit, word)) and not word.isdigit()))


def failed(
    message: Message, said: Sequence[str], faults: Collection[str], facts: Facts, *, titled: bool
) -> dict[str, bool]:
    """Which gates a message failed, by the names of the rubric's parts.

    Args:
        message: what was written.
        said: its words, the title's included, without those of the name and the product (`masked`).
        faults: of the lexicon, that its words have.
        facts: of the prompt.
        titled: whether a title was asked for.
    """
    text = f"{message.title}\n{message.body}" if message.title else message.body
    return {
        "limit": _is_too_long(message, titled=titled),
        "portuguese": not _is_portuguese(said),
        "filled": bool(_GAP(text)) or any(fault.startswith("placeholders") for fault in faults),
        "honest": _invents(text, said, facts),
        "single": _is_several(message, said, titled=titled) or any(fault.startswith("remarks") for fault in faults),
        "calm": _shouts(text, facts),
    }


def _is_too_long(message: Message, *, titled: bool) -> bool:
    if not message.body or len(message.body) > MOST_BODY:
        return True
    return titled and not 0 < len(message.title) <= MOST_TITLE


def _is_portuguese(said: Sequence[str]) -> bool:
    """Whether the function words are those of Portuguese, and are there at all; names and products do not count."""
    counted = [word for word in said if word not in SEPARATORS and word not in (NAME, PRODUCT) and word.isalpha()]
    portuguese, *others = lexicon().languages.values()
    mine = sum(word in portuguese for word in counted)
    foreign = max(sum(word in other and word not in portuguese for word in counted) for other in others)
    return mine >= max(1, FUNCTION_SHARE * len(counted)) and 2 * foreign <= mine


_GAP = re.compile(r"[\[\]{}<>]|_{2,}|%[sd]\b|\$\w+\b(?<!\d)|\bX{2,}\b").search
_ADDRESS = re.compile(r"https?:|www\.|@|\w\.(?:com|br|net|ly|app)\b", re.IGNORECASE).search
_NUMBER = re.compile(
    r"(?P<money>R\$\s*)?(?<![^\W_])(?P<number>\d[\d.,]*+)(?![^\W\d_])"
    r"(?:\s*(?P<unit>%|por cento|off\b|reais|dias?\b|horas?\b|semanas?\b|meses\b|minutos?\b))?",
    re.IGNORECASE,
)
_MIXED = re.compile(r"[^\W_]*(?:\d[^\W\d_]|[^\W\d_]\d)[^\W_]*").findall
_COUPON = re.compile(
    r"(?:cupo[mn]s?|c[óo]digo)\s+(?:promocional\s+)?[\"'“‘]?([A-Z][A-Z0-9]{2,})", re.IGNORECASE
).finditer
_UNITS = {"%": "%", "por cento": "%", "off": "%", "reais": "R$"}


def numbers_of(text: str) -> set[Number]:
    """The numbers of a text; one that cannot be read is no number, and equal to none."""
    numbers = set()
    for match in _NUMBER.finditer(text):
        read = read_number(match["number"].rstrip(".,"), quoted=bool(match["money"]))
        value = float("nan") if read is None or read.value is None else _finite(read.value)
        unit = folded(match["unit"] or "")
        numbers.add((value, "R$" if match["money"] else _UNITS.get(unit, unit.rstrip("s"))))
    return numbers


def _finite(value: float) -> float:
    return float(value) if abs(value) < 1e12 else float("nan")


def _invents(text: str, said: Sequence[str], facts: Facts) -> bool:
    """Whether a number, a coupon, an address or a claim is not the prompt's."""
    known = {value for value, _ in facts.numbers}
    if any(
        number not in facts.numbers and (number[1] or number[0] not in known) for number in numbers_of(text)
    ) or _ADDRESS(text):
        return True
    codes = [*_MIXED(text), *(match[1] for match in _COUPON(text) if match[1].isupper())]
    if any(folded(code) not in facts.codes for code in codes):
        return True
    return not claims_of(said) <= facts.claims


def claims_of(said: Sequence[str]) -> set[str]:
    """What a text claims; that the freight is free does not say that anything else is."""
    spans = list(lexicon().claims.spans(said))
    freight = {place for claim, start, end in spans if claim == "free shipping" for place in range(start, end)}
    return {claim for claim, start, _ in spans if claim != "free" or start not in freight}


_BULLET = re.compile(r"\s*(?:[-*•–—·]|\d+[.)])\s").match
_OR = re.compile(r"\s[|/]\s|\bou:").search


def _is_several(message: Message, said: Sequence[str], *, titled: bool) -> bool:
    """Whether it is a list, or a choice of messages: more lines than asked for, or the customer greeted twice."""
    names = said.count(NAME)
    return (
        message.lines > (3 if titled else 2)
        or names > (2 if titled else 1)
        or bool(_BULLET(message.body))
        or bool(_OR(message.body))
    )


_LETTERS = re.compile(r"[^\W\d_]{2,}").findall
_EMOJI = re.compile(
    "(?:[\U0001f1e6-\U0001f1ff]{2}|[\U0001f300-\U0001faff\u2600-\u27bf\u2b00-\u2bff\u23e9-\u23fa\u3030\u303d])"
    "[\ufe0f\U0001f3fb-\U0001f3ff]*(?:\u200d[\U0001f300-\U0001faff\u2600-\u27bf][\ufe0f\U0001f3fb-\U0001f3ff]*)*"
).findall


def _shouts(text: str, facts: Facts) -> bool:
    """Whether it is written in capitals, or in more than two emoji."""
    found = [word for word in _LETTERS(text) if folded(word) not in facts.codes]
    shouted = sum(word.isupper() for word in found)
    return shouted >= 3 or 2 * shouted > max(len(found), 1) or len(_EMOJI(text)) > MOST_EMOJI


def facts_for(reference: Mapping[str, Any]) -> Facts:
    """The facts of an example's reference."""
    return facts_of(reference["name"], reference["product"], reference["told"], tuple(reference["offers"]))


def masked(said: Sequence[str], facts: Facts, copied: Collection[int] = ()) -> list[str]:
    """A message's words, one word of ours for each naming of the customer or the product.

    They say nothing of the situation, and may look like words that do ("telefone sem fio", "maiô").

    Args:
        said: its words.
        facts: of the prompt.
        copied: places of further words that say nothing.
    """
    text: list[str] = []
    place, whole = 0, list(facts.product)
    while place < len(said):
        if len(whole) > 1 and said[place] == whole[0] and list(said[place : place + len(whole)]) == whole:
            text.append(PRODUCT)
            place += len(whole)
            continue
        word = said[place]
        text.append(PRODUCT if word in facts.forms else NAME if word == facts.name or place in copied else word)
        place += 1
    return text
