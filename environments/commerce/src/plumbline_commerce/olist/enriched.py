"""The rows of `orders_enriched` of a database of Olist's tables: derived columns, and the labels of
reviews.

What a review says, read from its words, its stars and its order's dates; where they do not say it,
None.

The rules of the labels are those of the synthetic shop (`database/gold.py`): here only what the
text says, and where it says it first, is found with a lexicon (`lexicon.yaml`) instead of being
known.

- A word of complaint after a negation ("sem defeito") does not count; a word of praise after one
  ("não gostei") is displeasure; "não recomendo" is a refusal.
- What has not come is no delay: where the text says both, or the order had not arrived when the
  review was written, the complaint about the delivery is `nao_entregue`.
- Marks of mockery ("parabéns", "kkk") with a complaint and one or two stars are irony.
- `main_complaint` is the part of the sentence, between marks of punctuation and words such as
  "mas", that holds the first complaint.
- The labels are None where no phrase of the lexicon is found, and where the text contradicts the
  stars: nothing but complaint with five, nothing but praise with one or two, no opinion with one or
  five.
"""

import re
import sqlite3
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from datetime import date
from functools import cache
from itertools import groupby
from pathlib import Path

from plumbline.seeds import derive
from plumbline.tasks import Progress
from plumbline.tasks.tables import read_table
from plumbline_commerce.database.gold import (
    MAX_SPAN,
    TOPICS,
    ReviewLabels,
    TextLabels,
    label,
    shorten,
)
from plumbline_commerce.database.people import MEN, WOMEN
from plumbline_commerce.database.schema import Row

_BETWEEN = r"[^\w.!?;:\n]+"
_NEGATION = re.compile(
    r"\b(?:nao|n|nunca|nem|sem|nenhuma?|jamais|nada)\b(?:[^\w.!?;:,\n]+(?!mas\b|so\b)\w+){0,2}[^\w.!?;:,\n]*$"
)
_NEGATIVE = re.compile(r"(?:nao|n|nunca|nem|sem|nenhuma?|jamais|nada)\b")
_SPELT = {"nao": "nao|n|naum"}
"""How else a word is written."""
_BORDER = re.compile(
    r"[.!?;:,\n]+|(?<!\w)(?:mas|mais so|porem|so que|no entanto|entretanto|contudo|alem disso)(?!\w)"
)
UNHAPPY = {*TOPICS, "displeased", "refuses"}
_OWNERS = {*TOPICS, "refuses", "lukewarm"}
"""Kinds of phrases whose words belong to them, and of which the later of two that overlap does not
count."""
_EXCLUSIVE = {*_OWNERS, "recommends", "praise"}
_READ = 2000
"""Characters of a review that are read: the longest of Olist's has a tenth of them, and time is
bounded so."""
_GREETING = re.compile(r"(?<!\w)(?:bo[am] (?:dia|tarde|noite)|gostaria)(?!\w)")


@dataclass(frozen=True, slots=True)
class Found:
    """A phrase of the lexicon in a text."""

    kind: str
    start: int
    end: int
    negated: bool


def gold_of(text: str, stars: int, arrived: bool) -> ReviewLabels | None:
    """The labels of a review.

    Args:
        text: the message as it was written.
        stars: its score, 1 to 5.
        arrived: whether the order had been delivered when the review was written.

    Returns:
        The labels, or None where the rules do not know.
    """
    bare = _fold_text(text[:_READ])
    found = _phrases(bare)
    kinds = {one.kind for one in found if not one.negated}
    complaints = [one for one in found if one.kind in TOPICS]
    if any(one.kind == "missing" for one in complaints) or not arrived:
        complaints = _as_missing(complaints)
    displeased = "displeased" in kinds or any(one.kind == "praise" and one.negated for one in found)
    unhappy = bool(complaints) or displeased or "refuses" in kinds
    said = TextLabels(
        complaints=tuple(dict.fromkeys(one.kind for one in complaints)),
        praised="praise" in kinds,
        displeased=displeased,
        recommends=False if "refuses" in kinds else True if "recommends" in kinds else None,
        ironic="irony" in kinds and unhappy and stars <= 2,
    )
    happy = (said.praised and not said.ironic) or said.recommends is True
    if not unhappy and not happy and not kinds & {"lukewarm", "neutral"}:
        return None
    if (unhappy and not happy and stars == 5) or (happy and not unhappy and stars <= 2):
        return None
    if not unhappy and not happy and stars in {1, 5}:
        return None
    return label(said, text, _span(text, bare, complaints[0]) if complaints else None)


def _as_missing(complaints: list[Found]) -> list[Found]:
    """Complaints of an order that has not come, or of which the text says so."""
    delivery = [one for one in complaints if one.kind in {"missing", "late"}]
    if not delivery:
        return complaints
    said = next((one for one in delivery if one.kind == "missing"), delivery[0])
    others = [one for one in complaints if one not in delivery]
    return sorted([replace(said, kind="missing"), *others], key=lambda one: one.start)


@cache
def _letter(letter: str) -> str:
    bare = "".join(
        part
        for part in unicodedata.normalize("NFD", letter.lower())
        if not unicodedata.combining(part)
    )
    return bare if len(bare) == 1 else letter


def _fold_text(text: str) -> str:
    """Lower case without accents, letter by letter, so that places stay what they are."""
    bare = "".join(map(_letter, text))
    return _GREETING.sub(lambda match: " " * len(match[0]), bare)


@cache
def _lexicon() -> dict[str, re.Pattern[str]]:
    written = read_table(Path(__file__).with_name("lexicon.yaml"))
    return {kind: re.compile(_any_of(phrases.splitlines())) for kind, phrases in written.items()}


def _any_of(phrases: Sequence[str]) -> str:
    """The regular expression of any of these phrases, at the start of a word. By first letters,
    which is faster."""
    by_letter: dict[str, list[str]] = defaultdict(list)
    for phrase in phrases:
        first, *others = phrase.split()
        for letter, choices in groupby(sorted(first.split("/")), key=lambda choice: choice[0]):
            by_letter[letter].append(_pattern(["/".join(choices), *others]))
    return (
        r"(?<!\w)(?:"
        + "|".join(f"(?={letter})(?:{'|'.join(same)})" for letter, same in by_letter.items())
        + ")"
    )


def _pattern(words: Sequence[str]) -> str:
    """The regular expression of a phrase; how it is written stands in `lexicon.yaml`."""
    parts = []
    for place, word in enumerate(words):
        before = _BETWEEN if place else ""
        choices = "|".join(
            _SPELT.get(choice, choice.replace("*", r"\w*")) for choice in word.split("/") if choice
        )
        part = rf"(?:{before}\w+){{0,4}}?" if word == "..." else rf"(?:{before}(?:{choices})(?!\w))"
        parts.append(part + "?" if word.startswith("/") else part)
    return "".join(parts)


def _phrases(bare: str) -> list[Found]:
    """The phrases in a text, the first first; no word belongs to two complaints."""
    found: list[Found] = []
    for kind, pattern in _lexicon().items():
        for match in pattern.finditer(bare):
            start, end = match.span()
            negated = (
                not _NEGATIVE.match(bare, start)
                and _NEGATION.search(bare, max(0, start - 40), start) is not None
            )
            if negated and kind in UNHAPPY:
                continue  # "sem defeito", "não atrasou"
            if kind in _EXCLUSIVE and any(
                one.start < end and start < one.end and one.kind in _OWNERS for one in found
            ):
                continue
            found.append(Found(kind, start, end, negated))
    return sorted(found, key=lambda one: one.start)


def _span(text: str, bare: str, complaint: Found) -> str:
    """The part of the sentence that holds a complaint, at most `MAX_SPAN` characters."""
    start = max((border.end() for border in _BORDER.finditer(bare, 0, complaint.start)), default=0)
    after = _BORDER.search(bare, complaint.end)
    part = text[start : after.start() if after else len(text)].strip(" \"'()-\n\t")
    if len(part) > MAX_SPAN:
        part = shorten(text[complaint.start : after.start() if after else len(text)].strip())
    return part[:MAX_SPAN].strip()


LABELS = tuple(field.name for field in fields(ReviewLabels))
"""The labels, which are the last columns of `orders_enriched`."""
_EVERY = 2000
"""Orders between two calls of the progress."""
_ORDERS = """
    WITH item AS (
        SELECT order_id, COUNT(*) AS n, SUM(price) AS value, SUM(freight_value) AS freight,
            MIN(order_item_id) AS first
        FROM order_items GROUP BY order_id
    ), payment AS (
        SELECT order_id, payment_type, payment_installments, ROW_NUMBER() OVER (
            PARTITION BY order_id ORDER BY payment_value DESC, payment_sequential
        ) AS place FROM order_payments
    ), review AS (
        SELECT *, ROW_NUMBER() OVER (
            PARTITION BY order_id ORDER BY review_answer_timestamp DESC, review_id
        ) AS place FROM order_reviews
    )
    SELECT o.order_id, o.customer_id, customer_unique_id, customer_city, customer_state, product_category_name,
        COALESCE(item.n, 0), item.value, item.freight, payment_type, payment_installments, order_status,
        DATE(order_purchase_timestamp), DATE(order_estimated_delivery_date), DATE(order_delivered_customer_date),
        review_id, review_score, review_comment_title, review_comment_message,
        order_delivered_customer_date <= review_answer_timestamp
    FROM orders AS o JOIN customers AS c ON c.customer_id = o.customer_id
    LEFT JOIN item ON item.order_id = o.order_id
    LEFT JOIN order_items AS i ON i.order_id = o.order_id AND i.order_item_id = item.first
    LEFT JOIN products AS p ON p.product_id = i.product_id
    LEFT JOIN payment ON payment.order_id = o.order_id AND payment.place = 1
    LEFT JOIN review ON review.order_id = o.order_id AND review.place = 1
    ORDER BY o.rowid
"""


def enriched_rows(connection: sqlite3.Connection, progress: Progress) -> Iterator[Row]:
    """A row for each order, in the order of `orders`.

    Args:
        connection: a database whose other tables are filled.
        progress: told of orders.
    """
    what, total = (
        "labelling reviews",
        connection.execute("SELECT COUNT(*) FROM orders").fetchone()[0],
    )
    for done, order in enumerate(connection.execute(_ORDERS), 1):
        (
            order_id,
            customer_id,
            person,
            city,
            state,
            category,
            items,
            value,
            freight,
            payment,
            instalments,
        ) = order[:11]
        status, bought, estimated, delivered, *review, arrived = order[11:]
        _, score, _, message = review
        gold = gold_of(message, score, bool(arrived)) if message is not None else None
        yield (
            *(order_id, customer_id, person, first_name(person), city, state, category, items),
            *(None if sum_ is None else round(sum_, 2) for sum_ in (value, freight)),
            *(payment, instalments, status, bought, estimated, delivered),
            _days(bought, delivered),
            None if delivered is None else max(0, _days(estimated, delivered) or 0),
            *review,
            *(astuple(gold) if gold else (None,) * len(LABELS)),
        )
        if done % _EVERY == 0 or done == total:
            progress(what, done, total)


def first_name(customer_unique_id: str) -> str:
    """A first name for a customer; Olist has none. Always the same for the same customer."""
    names = (*WOMEN, *MEN)
    return names[derive("first name", customer_unique_id) % len(names)]


def _days(start: str, end: str | None) -> int | None:
    """Calendar days between two ISO dates; None without an end."""
    return None if end is None else (date.fromisoformat(end) - date.fromisoformat(start)).days
