"""The rows of `orders_enriched` of a database of Olist's tables: derived columns, and the labels of reviews.

The labels are those of the rules (`rules.py`).
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import astuple, fields
from datetime import date

from plumbline.seeds import derive
from plumbline.tasks import Progress
from plumbline_commerce.database.enriched import Row
from plumbline_commerce.database.gold import Gold
from plumbline_commerce.database.people import MEN, WOMEN
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


def enriched_rows(connection: sqlite3.Connection, progress: Progress) -> Iterator[Row]:
    """A row for each order, in the order of `orders`.

    Args:
        connection: a database whose other tables are filled.
        progress: told of orders.
    """
    what, total = "labelling reviews", connection.execute("SELECT COUNT(*) FROM orders").fetchone()[0]
    for done, order in enumerate(connection.execute(_ORDERS), 1):
        order_id, customer_id, person, city, state, category, items, value, freight, payment, instalments = order[:11]
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
