"""Measures a database against the figures of `marginals`, and prints them with some reviews.

python -m environments.commerce.tests.measure_shop commerce.db [--reviews 10]
"""

import argparse
import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from plumbline_commerce.database import marginals


@dataclass(frozen=True, slots=True)
class Figure:
    """One marginal: what it should be (None where nothing is aimed at) and what it is."""

    name: str
    target: float | None
    measured: float
    unit: str = "share"
    """share, days, stars, reais, characters, words or count."""


TOPICS = {
    "entrega_atrasada": "delivery",
    "nao_entregue": "delivery",
    "produto_defeituoso": "product",
    "produto_errado": "product",
    "atendimento": "service",
    "preco_frete": "price",
}
"""Group of each complaint category, as in `marginals.COMPLAINT_SHARES`."""


def measure(path: Path) -> list[Figure]:
    """Every figure of `marginals`, and some on the gold, measured on a database."""
    with closing(_open(path)) as connection:
        return [
            *_orders(connection),
            *_scores(connection),
            *_messages(connection),
            *_gold(connection),
        ]


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


def _one(connection: sqlite3.Connection, query: str) -> float:
    value = connection.execute(query).fetchone()[0]
    return float(value) if value is not None else float("nan")


def _column(connection: sqlite3.Connection, query: str) -> list[float]:
    return [row[0] for row in connection.execute(query)]


def _shares(connection: sqlite3.Connection, query: str) -> dict[str | int, float]:
    counts = Counter(row[0] for row in connection.execute(query))
    total = sum(counts.values()) or 1
    return {key: count / total for key, count in counts.items()}


def _orders(connection: sqlite3.Connection) -> list[Figure]:
    states = _shares(connection, "SELECT customer_state FROM customers")
    payments = _shares(connection, "SELECT payment_type FROM order_payments")
    days = _column(
        connection, "SELECT delivery_days FROM orders_enriched WHERE delivery_days IS NOT NULL"
    )
    prices = _column(connection, "SELECT price FROM order_items")
    freight = _column(connection, "SELECT freight_value FROM order_items")
    several = "SELECT AVG(n > 1) FROM (SELECT COUNT(*) n FROM {} GROUP BY {})"
    return [
        *(Figure(f"customers in {name}", marginals.STATE_SHARES[name], states.get(name, 0.0)) for name in _LARGE),
        *(Figure(f"paid by {kind}", share, payments.get(kind, 0.0)) for kind, share in _payment_targets()),
        Figure("orders not delivered", marginals.UNDELIVERED_SHARE,
               _one(connection, "SELECT AVG(order_status <> 'delivered') FROM orders")),
        Figure("late among delivered", marginals.LATE_SHARE,
               _one(connection, "SELECT AVG(delay_days > 0) FROM orders_enriched WHERE delay_days "
                   "IS "
                   "NOT "
                   "NULL")),
        Figure("delivery time, median", marginals.DELIVERY_MEDIAN_DAYS, median(days), "days"),
        Figure("delivery time, mean", None, fmean(days), "days"),
        Figure("delivery time, p99", None, quantile(days, 0.99), "days"),
        Figure("price, median", marginals.PRICE_MEDIAN, median(prices), "reais"),
        Figure("price, mean", marginals.PRICE_MEAN, fmean(prices), "reais"),
        Figure("freight, median", marginals.FREIGHT_MEDIAN, median(freight), "reais"),
        Figure("freight, mean", marginals.FREIGHT_MEAN, fmean(freight), "reais"),
        Figure("orders of several items", marginals.MULTI_ITEM_SHARE,
               _one(connection, several.format("order_items", "order_id"))),
        Figure("people with several orders", marginals.REPEAT_SHARE,
               _one(connection, several.format("customers", "customer_unique_id"))),
    ]  # fmt: skip


_LARGE = tuple(marginals.STATE_SHARES)[:10]


def _payment_targets() -> list[tuple[str, float]]:
    return list(marginals.PAYMENT_SHARES.items())


def _scores(connection: sqlite3.Connection) -> list[Figure]:
    scores = _shares(connection, "SELECT review_score FROM order_reviews")
    mean = "SELECT AVG(review_score) FROM orders_enriched WHERE delay_days {} 0"
    return [
        *(
            Figure(f"score {score}", share, scores.get(score, 0.0))
            for score, share in marginals.SCORE_SHARES.items()
        ),
        Figure(
            "mean score, late",
            marginals.LATE_MEAN_SCORE,
            _one(connection, mean.format(">")),
            "stars",
        ),
        Figure(
            "mean score, on time",
            marginals.ON_TIME_MEAN_SCORE,
            _one(connection, mean.format("=")),
            "stars",
        ),
    ]


def _messages(connection: sqlite3.Connection) -> list[Figure]:
    figures = [
        Figure("reviews with a message", marginals.MESSAGE_SHARE,
               _one(connection, "SELECT AVG(review_comment_message IS NOT NULL) FROM order_reviews"))
    ]  # fmt: skip
    by_score = dict(
        connection.execute(
            "SELECT review_score, AVG(review_comment_message IS NOT NULL) FROM order_reviews GROUP "
            "BY review_score"
        )
    )
    for score, share in marginals.MESSAGE_SHARES.items():
        figures.append(Figure(f"message at score {score}", share, by_score.get(score, 0.0)))
    texts = [
        text
        for (text,) in connection.execute(
            "SELECT review_text FROM orders_enriched WHERE review_text <> ''"
        )
    ]
    lengths, counts = [len(text) for text in texts], [len(text.split()) for text in texts]
    worded = [text for text, count in zip(texts, counts, strict=True) if count >= 5]
    return [
        *figures,
        Figure(
            "message length, median", marginals.MESSAGE_MEDIAN_CHARS, median(lengths), "characters"
        ),
        Figure(
            "message length, median words", marginals.MESSAGE_MEDIAN_WORDS, median(counts), "words"
        ),
        Figure(
            "message length, p90",
            marginals.MESSAGE_P90_CHARS,
            quantile(lengths, 0.90),
            "characters",
        ),
        Figure(
            "message length, p99",
            marginals.MESSAGE_P99_CHARS,
            quantile(lengths, 0.99),
            "characters",
        ),
        Figure("message length, most", marginals.MESSAGE_MAX_CHARS, max(lengths), "characters"),
        Figure(
            "messages with a line break",
            marginals.NEWLINE_SHARE,
            fmean("\n" in text for text in texts),
        ),
        Figure(
            "messages with a double quote",
            marginals.QUOTE_SHARE,
            fmean('"' in text for text in texts),
        ),
        Figure("distinct among messages of 5+ words", None, len(set(worded)) / len(worded)),
    ]


def _gold(connection: sqlite3.Connection) -> list[Figure]:
    categories = _shares(
        connection,
        "SELECT complaint_category FROM orders_enriched WHERE review_score <= 2 AND review_text IS "
        "NOT NULL",
    )
    topics: Counter[str] = Counter()
    for category, share in categories.items():
        topics[TOPICS.get(str(category), "none")] += share  # type: ignore[assignment]
    feelings = _shares(
        connection, "SELECT sentiment FROM orders_enriched WHERE sentiment IS NOT NULL"
    )
    every = _shares(
        connection,
        "SELECT complaint_category FROM orders_enriched WHERE complaint_category IS NOT NULL",
    )
    says = _one(
        connection,
        "SELECT AVG(would_recommend IS NOT NULL) FROM orders_enriched WHERE review_text IS NOT NULL",
    )
    return [
        *(
            Figure(f"main complaint at 1-2 stars: {topic}", share, topics[topic])
            for topic, share in marginals.COMPLAINT_SHARES.items()
        ),
        *(
            Figure(f"sentiment {name}", None, feelings.get(name, 0.0))
            for name in ("positivo", "neutro", "negativo")
        ),
        *(Figure(f"category {name}", None, every.get(name, 0.0)) for name in (*TOPICS, "nenhum")),
        Figure("says whether to recommend", None, says),
    ]


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def samples(path: Path, number: int) -> list[dict[str, object]]:
    """Reviews with their gold and the facts they rest on, spread evenly over the database."""
    with closing(_open(path)) as connection:
        connection.row_factory = sqlite3.Row
        rows = connection.execute(
            "SELECT product_category, num_items, order_status, delivery_days, delay_days, "
            "review_score, review_text, "
            "sentiment, sentiment_score, complaint_category, delivery_issue, product_issue, "
            "service_issue, "
            "would_recommend, main_complaint, churn_risk FROM orders_enriched WHERE review_text IS "
            "NOT NULL"
        ).fetchall()
    step = max(1, len(rows) // max(1, number))
    return [dict(row) for row in rows[step // 2 :: step][:number]]


def written(value: float | None, unit: str) -> str:
    """A figure as the table shows it: one decimal, a dash for None."""
    if value is None:
        return "-"
    return f"{100 * value:.1f} %" if unit == "share" else f"{value:.1f} {unit}"


def main() -> None:
    """Print the figures as a Markdown table, then the reviews as JSON lines."""
    parser = argparse.ArgumentParser(description="Measure a commerce database against its targets.")
    parser.add_argument("database", type=Path)
    parser.add_argument(
        "--reviews", type=int, default=0, help="print so many reviews with their gold"
    )
    options = parser.parse_args()
    print("| figure | target | measured |\n|---|---|---|")
    for figure in measure(options.database):
        target, measured = (written(one, figure.unit) for one in (figure.target, figure.measured))
        print(f"| {figure.name} | {target} | {measured} |")
    for review in samples(options.database, options.reviews) if options.reviews else ():
        print(json.dumps(review, ensure_ascii=False))


if __name__ == "__main__":
    main()
