"""Which reviews are asked about: of each customer one order, of each text one review.

The complaint categories are as even as the database allows, because at their natural rates most reviews say that all
is well, and an answer that always says so would earn most of the reward.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plumbline.seeds import generator
from plumbline_commerce.extraction import prompt
from plumbline_commerce.extraction.schema import KEYS, MAY_BE_NULL
from plumbline_commerce.job import Pair, Shop, rows_of, split_evenly, split_sizes, too_few
from plumbline_commerce.options import CommerceOptions

NO_COMPLAINT = "nenhum"
NO_COMPLAINT_SHARE = 0.25
"""Of the prompts, where the database has enough complaints."""


def pairs(shop: Shop) -> dict[str, list[Pair]]:
    """The pairs of each split. They share no order, no customer and no review.

    Raises:
        DataError: the database has too few reviews for so many prompts.
    """
    rows = chosen(shop)
    categories = [row["complaint_category"] for row in rows]
    dealt = split_evenly(split_sizes(len(rows)), categories, generator(shop.options.seed, "extraction", "split"))
    return {name: [_pair(rows[index], shop.options) for index in members] for name, members in dealt.items()}


def chosen(shop: Shop) -> list[Mapping[str, Any]]:
    """The rows of `orders_enriched` that extraction asks about, in a seeded order."""
    seed, count = shop.options.seed, shop.options.count("extraction")
    return _choose(_eligible(shop), count, generator(seed, "extraction", "choose"))


def _eligible(shop: Shop) -> list[dict[str, Any]]:
    """Orders with a review text; one for each customer, review and text, in a seeded order."""
    reviews = list(
        rows_of(shop.database, "SELECT * FROM orders_enriched WHERE review_text IS NOT NULL ORDER BY order_id")
    )
    always = {*(shop.options.keys or KEYS), "complaint_category"} - MAY_BE_NULL
    reviews = [row for row in reviews if all(row[key] is not None for key in always)]  # else nobody knows the gold
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


def _choose(rows: Sequence[Mapping[str, Any]], count: int, rng: np.random.Generator) -> list[Mapping[str, Any]]:
    """So many rows, their complaint categories as even as there are rows."""
    if len(rows) < count:
        raise too_few(count, f"the database has {len(rows)} different reviews with a text")
    by_category: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_category[row["complaint_category"]].append(row)
    quota = _quotas({name: len(members) for name, members in by_category.items()}, count)
    chosen = [row for name in sorted(by_category) for row in by_category[name][: quota[name]]]
    return [chosen[index] for index in rng.permutation(len(chosen))]


def _quotas(available: Mapping[str, int], count: int) -> dict[str, int]:
    """How many of each category: complaints evenly, each up to what there is; the rest says that nothing is wrong."""
    quota = dict.fromkeys(available, 0)
    complaints = sorted((name for name in available if name != NO_COMPLAINT), key=lambda name: (available[name], name))
    left = count - min(available.get(NO_COMPLAINT, 0), round(NO_COMPLAINT_SHARE * count))
    for position, name in enumerate(complaints):  # the rarest first, so that the others can make up for it
        quota[name] = min(available[name], left // (len(complaints) - position))
        left -= quota[name]
    quota[NO_COMPLAINT] = count - sum(quota.values())
    return quota


def _pair(row: Mapping[str, Any], options: CommerceOptions) -> Pair:
    keys = options.keys or KEYS
    reference = prompt.reference(row, keys)
    return Pair(
        id=f"extraction-{row['order_id'][:16]}",
        prompt=prompt.messages(row, options.instructions, keys),
        gold=prompt.gold(reference),
        reference={**reference, "review": row["review_text"]},
        about={key: row[key] for key in ("order_id", "customer_id", "customer_unique_id", "review_id")},
    )
