"""Builds the database: draws people, products, orders and reviews, and writes them to one SQLite
file.

The rows of `orders_enriched`: one for each order, with its review and the review's gold.

Review scores and who writes a message, so that the shares hold over the whole database.

Bad experiences have their own score distributions; ordinary orders get what is left of the
published shares. The same goes for messages: who is still waiting nearly always writes one.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import datetime
from pathlib import Path

from plumbline.tasks import silent
from plumbline_commerce.database.catalogue import CATEGORIES, Catalogue
from plumbline_commerce.database.dice import SHARES, Dice, Weighted
from plumbline_commerce.database.gold import ReviewLabels
from plumbline_commerce.database.marginals import MESSAGE_SHARES, SCORE_SHARES
from plumbline_commerce.database.orders import (
    Courier,
    Occasion,
    Order,
    draw_occasion,
    draw_order,
    draw_purchases,
    facts_of,
    situation,
)
from plumbline_commerce.database.people import draw_people, draw_sellers, geolocation_rows
from plumbline_commerce.database.reviews import draw_title, write_review
from plumbline_commerce.database.schema import TABLES, Row, write_database


@dataclass(frozen=True, slots=True)
class OrderReview:
    """A review as stored."""

    review_id: str
    occasion: Occasion
    score: int
    title: str | None
    message: str | None
    gold: ReviewLabels | None
    """None without a message."""


def enriched_row(order: Order, review: OrderReview | None) -> Row:
    """The row of an order; review columns are NULL without a review, gold columns without a
    message."""
    person = order.person
    category = order.items[0].product.category if order.items else None
    main = max(order.payments, key=lambda payment: payment.value)
    gold = review.gold if review else None
    return (
        order.order_id,
        order.customer_id,
        person.unique_id,
        person.first_name,
        person.city.plain,
        person.city.state,
        category.name if category else None,
        len(order.items),
        order.value,
        order.freight,
        main.kind,
        main.installments,
        order.status,
        order.purchased.date().isoformat(),
        order.estimated.isoformat(),
        order.delivered.date().isoformat() if order.delivered else None,
        order.delivery_days,
        order.delay_days,
        *(
            (review.review_id, review.score, review.title, review.message)
            if review
            else (None,) * 4
        ),
        *(astuple(gold) if gold else (None,) * len(fields(ReviewLabels))),
    )


SCORES = tuple(SCORE_SHARES)
BAD_EXPERIENCES = {
    experience: tuple(table.values()) for experience, table in SHARES["scores"].items()
}
"""Share of each score, 1 to 5, by experience (see `orders.situation`)."""
EAGER = 0.93
"""Share of messages where a late or missing order got one or two stars."""
CATEGORY_SPREAD = 0.25
"""How much more or less often (deviation of the logarithm) a category disappoints than the
average."""


def draw_scores(
    dice: Dice, situations: Sequence[str], categories: Sequence[str | None]
) -> list[int]:
    """A score for each review.

    Args:
        dice: where they are drawn from.
        situations: the experience of each.
        categories: the category of each; some disappoint more than others, differently for each
            database.
    """
    count = Counter(situations)
    total, ordinary = len(situations), max(1, count["single"])
    rest = []
    for place, score in enumerate(SCORES):
        taken = sum(
            count[situation] * shares[place] for situation, shares in BAD_EXPERIENCES.items()
        )
        rest.append(max(0.002, (SCORE_SHARES[score] * total - taken) / ordinary))
    experiences = {
        situation: _weigh_scores(shares) for situation, shares in BAD_EXPERIENCES.items()
    }
    numbers = Counter(
        category or ""
        for situation, category in zip(situations, categories, strict=True)
        if situation == "single"
    )
    factors = {
        name: dice.lognormal(1.0, CATEGORY_SPREAD)
        for name in sorted({name or "" for name in categories})
    }
    mean = sum(factors[name] * number for name, number in numbers.items()) / ordinary or 1.0
    by_category = {}
    for name, factor in factors.items():
        bad = [share * factor / mean for share in rest[:3]]
        by_category[name] = _weigh_scores(
            (*bad, *(share * (sum(rest) - sum(bad)) / sum(rest[3:]) for share in rest[3:]))
        )
    return [
        dice.weighted(
            experiences[situation] if situation in experiences else by_category[category or ""]
        )
        for situation, category in zip(situations, categories, strict=True)
    ]


def _weigh_scores(shares: Sequence[float]) -> Weighted[int]:
    return Weighted(zip(SCORES, shares, strict=True))


def draw_messages(dice: Dice, situations: Sequence[str], scores: Sequence[int]) -> list[bool]:
    """Whether each review has a message."""
    number = Counter(scores)
    eager = Counter(
        score
        for situation, score in zip(situations, scores, strict=True)
        if _eager(situation, score)
    )
    share = {}
    for score in SCORES:
        others = max(1, number[score] - eager[score])
        share[score] = max(
            0.05, (MESSAGE_SHARES[score] * number[score] - EAGER * eager[score]) / others
        )
    return [
        dice.chance(EAGER if _eager(situation, score) else share[score])
        for situation, score in zip(situations, scores, strict=True)
    ]


def _eager(situation: str, score: int) -> bool:
    return score <= 2 and situation not in ("single", "several")


Progress = Callable[[str, int, int], None]
REVIEWED_SHARE = 0.992
SHARED_REVIEW_SHARE = 0.35
"""Of a person's later orders without a message: how many repeat the id and score of the earlier
review."""
EVERY = 1000
"""Orders between two calls of `progress`."""


@dataclass(frozen=True, slots=True)
class BuildSummary:
    """What was written: the file, how it was made, and the rows of each table."""

    path: Path
    orders: int
    seed: int
    messages: int
    """Reviews with a message."""
    rows: Mapping[str, int]


def build_database(
    path: Path, *, orders: int = 20_000, seed: int = 42, progress: Progress | None = None
) -> BuildSummary:
    """Write a synthetic shop's database.

    Equal seeds and numbers give equal rows in equal order, and on one machine equal files.

    Args:
        path: the SQLite file; an old one is replaced only when the new one is whole.
        orders: how many orders, at least 1.
        seed: which database of this size.
        progress: told what is being drawn or written, how many are done, and of how many.

    Raises:
        ValueError: `orders` is less than 1.
        StorageError: the disk is full or the folder cannot be written; an old file is untouched.
    """
    if orders < 1:
        raise ValueError(f"a database has at least one order, not {orders}")
    tell = progress or silent
    tables = draw_tables(orders, seed, tell)
    messages = sum(1 for row in tables["order_reviews"] if row[4] is not None)
    tell("writing commerce.db", 0, 1)
    write_database(path, lambda name, _: tables[name])
    tell("writing commerce.db", 1, 1)
    return BuildSummary(path, orders, seed, messages, {name: len(tables[name]) for name in TABLES})


def draw_tables(orders: int, seed: int, tell: Progress) -> dict[str, list[Row]]:
    """The rows of every table, in the order in which they are stored."""
    sellers = draw_sellers(Dice(seed, "sellers"), orders)
    catalogue = Catalogue(Dice(seed, "products"), sellers, orders)
    people = draw_people(Dice(seed, "people"), orders)
    purchases = draw_purchases(Dice(seed, "purchases"), orders)
    dice = Dice(seed, "orders")
    courier = Courier(dice)
    drawn: list[Order] = []
    for person, purchased in zip(people, purchases, strict=True):
        drawn.append(draw_order(dice, courier, catalogue, person, purchased))
        if len(drawn) % EVERY == 0:
            tell("drawing orders", len(drawn), orders)
    reviews = _draw_reviews(seed, drawn, tell)
    places = {person.zip_prefix: person.city for person in people}
    places |= {seller.zip_prefix: seller.city for seller in sellers}
    return {
        "product_category_name_translation": [
            (category.name, category.english) for category in CATEGORIES
        ],
        "geolocation": [*geolocation_rows(Dice(seed, "geolocation"), places)],
        "customers": [_customer(order) for order in drawn],
        "sellers": [
            (seller.seller_id, seller.zip_prefix, seller.city.plain, seller.city.state)
            for seller in sellers
        ],
        "products": [product.row() for product in catalogue.products],
        "orders": [_order(order) for order in drawn],
        "order_items": [row for order in drawn for row in _items(order)],
        "order_payments": [row for order in drawn for row in _payments(order)],
        "order_reviews": [
            _review(order, review)
            for order, review in zip(drawn, reviews, strict=True)
            if review is not None
        ],
        "orders_enriched": [
            enriched_row(order, review) for order, review in zip(drawn, reviews, strict=True)
        ],
    }


def _draw_reviews(seed: int, orders: list[Order], tell: Progress) -> list[OrderReview | None]:
    """A review or None for each order: first all scores, so that their shares hold, then the
    texts."""
    dice = Dice(seed, "reviews")
    occasions: list[Occasion | None] = [
        draw_occasion(dice, order) if dice.chance(REVIEWED_SHARE) else None for order in orders
    ]
    reviewed = [
        (order, occasion) for order, occasion in zip(orders, occasions, strict=True) if occasion
    ]
    situations = [situation(order, occasion) for order, occasion in reviewed]
    categories = [
        order.items[0].product.category.name
        if order.items and order.items[0].product.category
        else None
        for order, _ in reviewed
    ]
    scores = draw_scores(dice, situations, categories)
    written = draw_messages(dice, situations, scores)
    judged = iter(zip(scores, written, strict=True))
    wordless: dict[str, OrderReview] = {}
    reviews: list[OrderReview | None] = []
    for order, occasion in zip(orders, occasions, strict=True):
        if occasion is None:
            reviews.append(None)
        else:
            score, speaks = next(judged)
            text = write_review(dice, facts_of(dice, order, occasion), score) if speaks else None
            gold = text.gold if text else None
            title = draw_title(dice, gold, score)
            review = OrderReview(
                dice.identifier(), occasion, score, title, text.text if text else None, gold
            )
            earlier = wordless.get(order.person.unique_id)
            if (
                text is None
                and earlier
                and earlier.score == score
                and dice.chance(SHARED_REVIEW_SHARE)
            ):
                review = OrderReview(earlier.review_id, occasion, score, earlier.title, None, None)
            if text is None:
                wordless[order.person.unique_id] = review
            reviews.append(review)
        if len(reviews) % EVERY == 0:
            tell("writing reviews", len(reviews), len(orders))
    return reviews


def _moment(moment: datetime | None) -> str | None:
    return moment.isoformat(" ") if moment else None


def _customer(order: Order) -> Row:
    person = order.person
    return (
        order.customer_id,
        person.unique_id,
        person.zip_prefix,
        person.city.plain,
        person.city.state,
    )


def _order(order: Order) -> Row:
    return (
        order.order_id,
        order.customer_id,
        order.status,
        _moment(order.purchased),
        _moment(order.approved),
        _moment(order.carried),
        _moment(order.delivered),
        f"{order.estimated.isoformat()} 00:00:00",
    )


def _items(order: Order) -> Iterable[Row]:
    for number, item in enumerate(order.items, 1):
        product = item.product
        limit = _moment(item.shipping_limit)
        yield (
            order.order_id,
            number,
            product.product_id,
            product.seller.seller_id,
            limit,
            item.price,
            item.freight,
        )


def _payments(order: Order) -> Iterable[Row]:
    for number, payment in enumerate(order.payments, 1):
        yield (order.order_id, number, payment.kind, payment.installments, payment.value)


def _review(order: Order, review: OrderReview) -> Row:
    occasion = review.occasion
    times = (_moment(occasion.created), _moment(occasion.answered))
    return (review.review_id, order.order_id, review.score, review.title, review.message, *times)
