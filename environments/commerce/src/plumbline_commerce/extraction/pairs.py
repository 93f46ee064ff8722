"""Which reviews are asked about: of each customer one order, of each text one review.

The complaint categories are as even as the database allows, because at their natural rates most
reviews say that all is well, and an answer that always says so would earn most of the reward.

From a row of `orders_enriched` to a chat in Portuguese and its gold answer.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from plumbline.records import Message
from plumbline.seeds import generator
from plumbline.tasks.tables import read_table
from plumbline_commerce.database.gold import MAX_SPAN
from plumbline_commerce.extraction.schema import CATEGORIES, ISSUES, KEYS, MAY_BE_NULL
from plumbline_commerce.job import (
    Pair,
    Shop,
    brazilian,
    rows_of,
    split_evenly,
    split_sizes,
    too_few_error,
)
from plumbline_commerce.options import CommerceOptions

NO_COMPLAINT = "nenhum"
NO_COMPLAINT_SHARE = 0.25
"""Of the prompts, where the database has enough complaints."""


def pairs(shop: Shop) -> dict[str, list[Pair]]:
    """The pairs of each split. They share no order, no customer and no review.

    Raises:
        DataError: the database has too few reviews for so many prompts.
    """
    rows = choose_reviews(shop)
    categories = [row["complaint_category"] for row in rows]
    dealt = split_evenly(
        split_sizes(len(rows)), categories, generator(shop.options.seed, "extraction", "split")
    )
    return {
        name: [_pair(rows[index], shop.options) for index in members]
        for name, members in dealt.items()
    }


def choose_reviews(shop: Shop) -> list[Mapping[str, Any]]:
    """The rows of `orders_enriched` that extraction asks about, in a seeded order."""
    seed, count = shop.options.seed, shop.options.count("extraction")
    return _choose(_eligible(shop), count, generator(seed, "extraction", "choose"))


def _eligible(shop: Shop) -> list[dict[str, Any]]:
    """Orders with a review text; one for each customer, review and text, in a seeded order."""
    reviews = list(
        rows_of(
            shop.database,
            "SELECT * FROM orders_enriched WHERE review_text IS NOT NULL ORDER BY order_id",
        )
    )
    always = {*(shop.options.keys or KEYS), "complaint_category"} - MAY_BE_NULL
    # else nobody knows the gold
    reviews = [row for row in reviews if all(row[key] is not None for key in always)]
    order = generator(shop.options.seed, "extraction", "order").permutation(len(reviews))
    rows = []
    seen: set[tuple[str, str]] = set()
    for index in order:
        row = reviews[index]
        marks = {
            ("customer", row["customer_unique_id"]),
            ("review", row["review_id"]),
            ("text", " ".join(row["review_text"].casefold().split())),
        }
        if seen.isdisjoint(marks):
            seen |= marks
            rows.append(row)
    return rows


def _choose(
    rows: Sequence[Mapping[str, Any]], count: int, rng: np.random.Generator
) -> list[Mapping[str, Any]]:
    """So many rows, their complaint categories as even as there are rows."""
    if len(rows) < count:
        raise too_few_error(count, f"the database has {len(rows)} different reviews with a text")
    by_category: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_category[row["complaint_category"]].append(row)
    quota = _quotas({name: len(members) for name, members in by_category.items()}, count)
    chosen = [row for name in sorted(by_category) for row in by_category[name][: quota[name]]]
    return [chosen[index] for index in rng.permutation(len(chosen))]


def _quotas(available: Mapping[str, int], count: int) -> dict[str, int]:
    """How many of each category: complaints evenly, each up to what there is; the rest says that
    nothing is wrong."""
    quota = dict.fromkeys(available, 0)
    complaints = sorted(
        (name for name in available if name != NO_COMPLAINT),
        key=lambda name: (available[name], name),
    )
    left = count - min(available.get(NO_COMPLAINT, 0), round(NO_COMPLAINT_SHARE * count))
    # the rarest first, so that the others can make up for it
    for position, name in enumerate(complaints):
        quota[name] = min(available[name], left // (len(complaints) - position))
        left -= quota[name]
    quota[NO_COMPLAINT] = count - sum(quota.values())
    return quota


def _pair(row: Mapping[str, Any], options: CommerceOptions) -> Pair:
    keys = options.keys or KEYS
    reference = reference_of(row, keys)
    return Pair(
        id=f"extraction-{row['order_id'][:16]}",
        prompt=messages(row, options.instructions, keys),
        gold=json.dumps(reference, ensure_ascii=False),
        reference={**reference, "review": row["review_text"]},
        about={
            key: row[key] for key in ("order_id", "customer_id", "customer_unique_id", "review_id")
        },
    )


_PROMPT: dict[str, Any] = read_table(Path(__file__).with_name("prompt.yaml"))
EXPLAINED = {
    key: text.format(categories=", ".join(CATEGORIES), issues=", ".join(ISSUES), most=MAX_SPAN)
    for key, text in _PROMPT["explained"].items()
}
"""What the prompt says of the keys; the three flags together."""


def messages(
    row: Mapping[str, Any], instructions: Literal["full", "short"], keys: Sequence[str] = KEYS
) -> list[Message]:
    """The prompt: what to do, the order's facts, the review as it was written."""
    explained = "\n".join(
        [_PROMPT["opening"], *(EXPLAINED[key] for key in keys if key in EXPLAINED)]
    )
    return [
        {"role": "system", "content": explained if instructions == "full" else _PROMPT["short"]},
        {
            "role": "user",
            "content": f"{_facts(row, instructions)}\nAvaliação: {row['review_text']}",
        },
    ]


def _facts(row: Mapping[str, Any], instructions: Literal["full", "short"]) -> str:
    if row["delay_days"] is None:
        delivery = "não entregue"
    elif row["delay_days"] == 0:
        delivery = f"entregue em {row['delivery_days']} dias, no prazo"
    else:
        delivery = f"entregue em {row['delivery_days']} dias, com {row['delay_days']} de atraso"
    if instructions == "short":
        return f"Entrega: {delivery}"
    return (
        f"Pedido: {_order(row)}, para {row['customer_city']} ({row['customer_state']})\nEntrega: "
        f"{delivery}"
    )


def _order(row: Mapping[str, Any]) -> str:
    """What was bought and for how much; an order that was cancelled early has neither."""
    category = (row["product_category"] or "sem categoria").replace("_", " ")
    if row["order_value"] is None:
        return "sem itens"
    freight = brazilian(row["freight_value"] or 0.0, 2)
    return f"{category}, R$ {brazilian(row['order_value'], 2)} mais R$ {freight} de frete"


def reference_of(row: Mapping[str, Any], keys: Sequence[str] = KEYS) -> dict[str, Any]:
    """The gold values of a row, typed (SQLite has no booleans)."""
    flags = {*ISSUES, "would_recommend"}
    return {
        key: bool(row[key]) if key in flags and row[key] is not None else row[key] for key in keys
    }
