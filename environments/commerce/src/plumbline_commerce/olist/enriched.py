"""The rows of `orders_enriched` of a database of Olist's tables: derived columns, and the labels of reviews.

The labels are those of the rules (`rules.py`), or of a file of the user's own, which go over them.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, fields
from datetime import date
from pathlib import Path

from plumbline.errors import DataError
from plumbline.seeds import derive
from plumbline.tasks import Progress
from plumbline_commerce.database.enriched import Row
from plumbline_commerce.database.gold import MAX_SPAN, Gold
from plumbline_commerce.database.people import MEN, WOMEN
from plumbline_commerce.extraction.schema import CATEGORIES, ISSUES, SENTIMENTS
from plumbline_commerce.olist.files import amount
from plumbline_commerce.olist.rows import LeftOut, header_of, read_rows
from plumbline_commerce.olist.rules import gold_of

LABELS = tuple(field.name for field in fields(Gold))
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

Labels = Mapping[str, Mapping[str, str | int | float | None]]
"""Some labels of some orders, by order and column."""


def enriched_rows(connection: sqlite3.Connection, given: Labels, progress: Progress) -> Iterator[Row]:
    """A row for each order, in the order of `orders`.

    Args:
        connection: a database whose other tables are filled.
        given: labels that go over those of the rules.
        progress: told of orders.
    """
    what, total = "labelling reviews", connection.execute("SELECT COUNT(*) FROM orders").fetchone()[0]
    for done, order in enumerate(connection.execute(_ORDERS), 1):
        order_id, customer_id, person, city, state, category, items, value, freight, payment, instalments = order[:11]
        status, bought, estimated, delivered, *review, arrived = order[11:]
        _, score, _, message = review
        gold = gold_of(message, score, bool(arrived)) if message is not None else None
        labels = dict(zip(LABELS, astuple(gold) if gold else (None,) * len(LABELS), strict=True))
        labels |= given.get(order_id, {})
        yield (
            *(order_id, customer_id, person, first_name(person), city, state, category, items),
            *(None if sum_ is None else round(sum_, 2) for sum_ in (value, freight)),
            *(payment, instalments, status, bought, estimated, delivered),
            _days(bought, delivered),
            None if delivered is None else max(0, _days(estimated, delivered) or 0),
            *review,
            *labels.values(),
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


def _one_of(values: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in values:
            raise ValueError(f"not one of {', '.join(values)}")
        return text

    return read


def _flag(text: str) -> int:
    if text.lower() not in {"0", "1", "false", "true"}:
        raise ValueError("not 0 or 1")
    return int(text.lower() in {"1", "true"})


def _up_to(most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        if (number := amount(text)) > most:
            raise ValueError(f"above {most:g}")
        return number

    return read


_READERS: dict[str, Callable[[str], str | int | float]] = {
    "sentiment": _one_of(SENTIMENTS),
    "sentiment_score": _up_to(5),
    "complaint_category": _one_of(CATEGORIES),
    **dict.fromkeys((*ISSUES, "would_recommend"), _flag),
    "churn_risk": _up_to(1),
    "main_complaint": str,
}


def check_labels(path: Path) -> list[str]:
    """The columns of a file of labels.

    Raises:
        DataError: there is no such file, or it has other columns than `order_id` and some of `LABELS`.
    """
    columns = header_of(path)
    unknown = [name for name in columns if name not in {"order_id", *LABELS}]
    if unknown or "order_id" not in columns or len(columns) < 2 or len(set(columns)) < len(columns):
        raise DataError(
            f"{path} begins with {','.join(columns)[:200]!r}",
            f"name its columns in the first line: order_id, and any of {', '.join(LABELS)}, each once",
        )
    return columns


def read_labels(path: Path, connection: sqlite3.Connection, left_out: LeftOut, progress: Progress) -> Labels:
    """The labels of a user's file, by order; an empty field is NULL.

    Raises:
        DataError: see `check_labels` and `read_rows`.
    """
    columns = check_labels(path)
    messages = {order[0]: order[18] for order in connection.execute(_ORDERS)}
    labels: dict[str, dict[str, str | int | float | None]] = {}

    def read(row: Sequence[str]) -> Row:
        values: dict[str, str | int | float | None] = {}
        texts = dict(zip(columns, row, strict=True))
        order_id = texts.pop("order_id")
        if order_id not in messages:
            raise ValueError(f"order_id {order_id[:40]!r} is the id of no order")
        if order_id in labels:
            raise ValueError("order_id of an earlier row, too")
        for name, text in texts.items():
            try:
                values[name] = _READERS[name](text) if text.strip() else None
            except ValueError as error:
                raise ValueError(f"{name} is {text[:40]!r}, {error}") from None
        complaint = values.get("main_complaint")
        if isinstance(complaint, str) and (len(complaint) > MAX_SPAN or complaint not in (messages[order_id] or "")):
            raise ValueError(f"main_complaint is no literal part of the review of at most {MAX_SPAN} characters")
        labels[order_id] = values
        return (order_id,)

    for _ in read_rows(path, len(columns), read, left_out, progress):
        pass
    return labels
