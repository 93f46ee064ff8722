"""The gold labels of a review, as rules on what its text says.

| field              | rule                                                                                        |
|--------------------|---------------------------------------------------------------------------------------------|
| complaint_category | the topic of the first complaint in the text; `nenhum` when no complaint names a topic      |
| main_complaint     | the literal words that state that complaint, at most 80 characters; NULL with `nenhum`      |
| delivery_issue     | 1 when the text complains about the delivery: late, not delivered, cancelled, in part       |
| product_issue      | 1 when it complains about the product: defective or wrong                                   |
| service_issue      | 1 when it complains about the service                                                       |
| would_recommend    | 1 when it says that the customer recommends or will buy again; 0 when it says that they do  |
|                    | not; NULL when it says neither                                                              |
| sentiment          | only praise: `positivo`; only complaint: `negativo`; both: an explicit recommendation or    |
|                    | refusal decides, else `neutro`; no opinion or lukewarm words: `neutro`; irony: `negativo`   |
| sentiment_score    | from the sentiment and the words, see `sentiment_score`                                     |
| churn_risk         | 1 - score / 5, plus 0.1 for each topic complained about, plus 0.2 for a refusal, minus 0.2  |
|                    | for a recommendation; kept within 0 and 1, one decimal                                      |

The topics:

| category           | the text says that                                                                          |
|--------------------|---------------------------------------------------------------------------------------------|
| entrega_atrasada   | it arrived, but late or after too long a wait                                               |
| nao_entregue       | it has not arrived: nothing, only a part of the order, or the shop cancelled it             |
| produto_defeituoso | it is broken, damaged, incomplete, does not work, or is of poor quality                     |
| produto_errado     | it is another product, model, size or colour, not as advertised, or not genuine             |
| atendimento        | nobody answers or helps, staff is rude, exchange, refund or invoice is refused or missing   |
| preco_frete        | price or freight is too high (in none of the three issue flags)                             |

A complaint without a topic ("não gostei", "péssimo") is displeasure: it makes the sentiment
negative, but no category. A recommendation counts as praise, a refusal as displeasure.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from plumbline_commerce.database.people import fold_accents

Sentiment = Literal["positivo", "neutro", "negativo"]
Category = Literal[
    "entrega_atrasada",
    "nao_entregue",
    "produto_defeituoso",
    "produto_errado",
    "atendimento",
    "preco_frete",
    "nenhum",
]
MAX_SPAN = 80
"""Characters of `main_complaint` at most."""

ANCHORS = {
    "péssimo": 0.5,
    "ruim": 1.5,
    "misto": 2.5,
    "bom com ressalva": 3.5,
    "bom": 4.0,
    "ótimo": 4.8,
}
"""Tone levels of `sentiment_score`."""
INTENSITY = 0.2

STRONG_PRAISE = (
    r"otim[oa]s?|excelentes?|perfeit[oa]s?|perfeitamente|maravilh\w+|incrive(?:l|is)|sensaciona(?:l|is)|impecavel|"
    r"fantastic[oa]|espetacular|amei|amou|amamos|adorei|adorou|adoramos|lind[oa]s?|top|show|nota (?:10|dez|mil)|"
    r"10 com louvor|5 estrelas|melhor compra"
)
STRONG_COMPLAINT = (
    r"pessim[oa]s?|horrive(?:l|is)|terrive(?:l|is)|absurd[oa]|lixo|descaso|vergonh\w+|inadmissivel|inaceitavel|"
    r"nunca mais|jamais|golpe|enganad[oa]|indignad[oa]|revoltad[oa]|ridicul[oa]|palhacada|desrespeito|"
    r"falta de respeito|pior|lamentavel|procon|uma piada"
)
INTENSIFIERS = r"muit[oa]|mto|mta|super|demais|d\+|bastante|totalmente|total"
_PRAISE = re.compile(rf"(?<!\w)(?:{STRONG_PRAISE})(?!\w)".replace(" ", r"\s+"))
_COMPLAINT = re.compile(rf"(?<!\w)(?:{STRONG_COMPLAINT})(?!\w)".replace(" ", r"\s+"))
_INTENSE = re.compile(rf"(?<!\w)(?:{INTENSIFIERS})(?!\w)|!!")

TOPICS: dict[str, Category] = {
    "late": "entrega_atrasada",
    "missing": "nao_entregue",
    "defective": "produto_defeituoso",
    "wrong": "produto_errado",
    "service": "atendimento",
    "price": "preco_frete",
}
"""The category of each topic of complaint."""


@dataclass(frozen=True, slots=True)
class TextLabels:
    """What a text says, in the order in which it says it."""

    complaints: tuple[str, ...] = ()
    """Topics complained about (keys of `TOPICS`), each once, the first-mentioned first."""
    praised: bool = False
    displeased: bool = False
    recommends: bool | None = None
    ironic: bool = False


@dataclass(frozen=True, slots=True)
class ReviewLabels:
    """The labels of one review, named as the columns of `orders_enriched`."""

    sentiment: Sentiment
    sentiment_score: float
    complaint_category: Category
    delivery_issue: int
    product_issue: int
    service_issue: int
    would_recommend: int | None
    main_complaint: str | None
    churn_risk: float


def label(said: TextLabels, text: str, span: str | None) -> ReviewLabels:
    """The gold of a text.

    Args:
        said: what the text says.
        text: the final text, noise included.
        span: the literal words of the first complaint, None without one.
    """
    assert (span is None) == (not said.complaints), (
        "a complaint has a span and a span is a complaint"
    )
    assert span is None or (span in text and 0 < len(span) <= MAX_SPAN), (
        f"not a span of the text: {span!r}"
    )
    feeling = sentiment(said)
    score = sentiment_score(said, text)
    return ReviewLabels(
        sentiment=feeling,
        sentiment_score=score,
        complaint_category=TOPICS[said.complaints[0]] if said.complaints else "nenhum",
        delivery_issue=_any(said.complaints, "late", "missing"),
        product_issue=_any(said.complaints, "defective", "wrong"),
        service_issue=_any(said.complaints, "service"),
        would_recommend=None if said.recommends is None else int(said.recommends),
        main_complaint=span,
        churn_risk=churn_risk(score, len(said.complaints), said.recommends),
    )


def _any(complaints: Sequence[str], *topics: str) -> int:
    return int(any(topic in complaints for topic in topics))


def _sides(said: TextLabels) -> tuple[bool, bool]:
    """Whether anything is praised, and whether anything is complained about."""
    praise = (said.praised and not said.ironic) or said.recommends is True
    complaint = bool(said.complaints) or said.displeased or said.ironic or said.recommends is False
    return praise, complaint


def sentiment(said: TextLabels) -> Sentiment:
    """The feeling that dominates: see the table above."""
    praise, complaint = _sides(said)
    if praise and complaint and not said.ironic:
        return {True: "positivo", False: "negativo", None: "neutro"}[said.recommends]  # type: ignore[return-value]
    if complaint:
        return "negativo"
    return "positivo" if praise else "neutro"


def sentiment_score(said: TextLabels, text: str) -> float:
    """0.0 (worst) to 5.0 (best), one decimal.

    Only complaint: 0.5 with irony or a strong word (`STRONG_COMPLAINT`), else 1.5. Only praise: 4.8
    with a strong word (`STRONG_PRAISE`), else 4.0. Both: 2.5, or 3.5 with a recommendation, or 1.5
    with a refusal. No opinion: 2.5. Where there is only praise or only complaint, a mark of
    intensity (see `is_intense`) moves the score 0.2 away from the middle.
    """
    praise, complaint = _sides(said)
    if praise == complaint:
        level = {True: "bom com ressalva", False: "ruim", None: "misto"}[said.recommends]
        return ANCHORS[level]
    shift = INTENSITY if is_intense(text) else 0.0
    if complaint:
        strong = said.ironic or is_strong_complaint(text)
        return round(ANCHORS["péssimo" if strong else "ruim"] - shift, 1)
    return round(ANCHORS["ótimo" if is_strong_praise(text) else "bom"] + shift, 1)


def is_strong_praise(text: str) -> bool:
    """Whether a word of strong praise stands in the text, accents and case aside."""
    return _PRAISE.search(fold_accents(text)) is not None


def is_strong_complaint(text: str) -> bool:
    """Whether a word of strong complaint stands in the text, accents and case aside."""
    return _COMPLAINT.search(fold_accents(text)) is not None


def is_intense(text: str) -> bool:
    """Whether the text has an intensifier, two exclamation marks in a row, or is written in
    capitals throughout."""
    return _INTENSE.search(fold_accents(text)) is not None or (
        text.isupper() and sum(map(str.isalpha, text)) > 3
    )


def churn_risk(score: float, topics: int, recommends: bool | None) -> float:
    """0.0 to 1.0, one decimal: 1 - score/5, +0.1 a topic of complaint, +0.2 for a refusal, -0.2 if
    they recommend.

    Args:
        score: the sentiment score.
        topics: how many of the six topics the text complains about.
        recommends: whether the text recommends, refuses, or says neither.
    """
    fifths = 50 - round(score * 10)  # in tenths of a fifth, so that rounding is exact
    tenths = fifths / 5 + topics + {True: -2, False: 2, None: 0}[recommends]
    return min(10, max(0, int(tenths + 0.5))) / 10


def shorten(span: str) -> str:
    """The span cut at a word end to at most `MAX_SPAN` characters."""
    if len(span) <= MAX_SPAN:
        return span
    return span[: MAX_SPAN + 1].rsplit(None, 1)[0].rstrip(" ,;")
