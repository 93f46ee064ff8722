"""The products: each has a category, a seller, a price and a size.

The 73 product categories: names, how often they sell, typical price and weight, and words for what
is sold.
"""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from plumbline.tasks.tables import read_table
from plumbline_commerce.database.dice import Dice, Weighted
from plumbline_commerce.database.people import Seller

Kind = Literal[
    "elec",
    "linen",
    "wear",
    "shoe",
    "bag",
    "furn",
    "cosm",
    "food",
    "book",
    "disc",
    "home",
    "gear",
    "any",
]
"""Which complaints and praises make sense: of things that switch on, sheets and towels, clothes,
shoes, bags, furniture, cosmetics, food, books, records, things for the kitchen and the walls, hard
goods, and anything else."""


@dataclass(frozen=True, slots=True)
class Noun:
    """A word for a product, singular, with its gender."""

    word: str
    feminine: bool
    kind: Kind = "any"


def noun(written: str, kind: str = "any") -> Noun:
    """A word with its article, o or a, and where that is not `kind` its kind behind a colon."""
    word, _, other = written.partition(":")
    return Noun(word[2:], word.startswith("a "), cast(Kind, other or kind))


@dataclass(frozen=True, slots=True)
class Category:
    """A product category."""

    name: str
    english: str
    weight: float
    """Items sold, on the scale of Olist's counts."""
    price: float
    """Median price in reais, before a factor common to all."""
    grams: int
    nouns: tuple[Noun, ...]


def _category(name: str, written: str) -> Category:
    """A category as `categories.yaml` has it; its kind is that of the words that name no other
    after a colon."""
    english, weight, price, grams, kind, words = written.split(" | ")
    nouns = tuple(noun(word, kind) for word in words.split(", "))
    return Category(name, english, float(weight), float(price), int(grams), nouns)


CATEGORIES = tuple(
    _category(name, written)
    for name, written in read_table(Path(__file__).with_name("categories.yaml")).items()
)
BY_NAME = {category.name: category for category in CATEGORIES}


PRICE_FACTOR = 0.99
"""Brings the median price of the sold items to `marginals.PRICE_MEDIAN`."""
PRICE_SIGMA = 0.90
NO_CATEGORY_SHARE = 0.0185
"""Products without category, name, description and photos, as in Olist."""


@dataclass(frozen=True, slots=True)
class Product:
    """Something for sale."""

    product_id: str
    category: Category | None
    seller: Seller
    price: float
    name_length: int | None
    description_length: int | None
    photos: int | None
    grams: int
    size: tuple[int, int, int]
    """Length, height, width in centimetres."""
    popularity: float

    def row(self) -> tuple[str | int | None, ...]:
        """The row of the `products` table."""
        name = self.category.name if self.category else None
        sizes = (self.grams, *self.size)
        return (
            self.product_id,
            name,
            self.name_length,
            self.description_length,
            self.photos,
            *sizes,
        )


class Catalogue:
    """All products, drawn by category and then by popularity.

    Args:
        dice: where they are drawn from.
        sellers: who sells them.
        orders: how many orders the database has; there is about one product for every three.
    """

    def __init__(self, dice: Dice, sellers: list[Seller], orders: int) -> None:
        total = sum(category.weight for category in CATEGORIES)
        by_popularity = Weighted([(seller, seller.popularity) for seller in sellers])
        self.products: list[Product] = []
        grouped: dict[str, list[Product]] = defaultdict(list)
        for category in CATEGORIES:
            for _ in range(max(1, round(0.33 * orders * category.weight / total))):
                product = _draw_product(dice, category, dice.weighted(by_popularity))
                self.products.append(product)
                grouped[category.name].append(product)
        self._groups = {
            name: Weighted([(product, product.popularity) for product in products])
            for name, products in grouped.items()
        }
        self._categories = Weighted([(category.name, category.weight) for category in CATEGORIES])

    def draw(self, dice: Dice) -> Product:
        """A product that somebody buys."""
        return dice.weighted(self._groups[dice.weighted(self._categories)])


def _draw_product(dice: Dice, category: Category, seller: Seller) -> Product:
    described = not dice.chance(NO_CATEGORY_SHARE)
    price = max(3.9, dice.lognormal(category.price * PRICE_FACTOR, PRICE_SIGMA))
    grams = int(min(30000, max(50, dice.lognormal(category.grams, 0.7))))
    edge = max(7.0, (grams * 4.0) ** (1 / 3))  # a parcel of about 0.25 g for each cubic centimetre
    length = int(min(105, max(16, edge * dice.lognormal(1.5, 0.3))))
    height = int(min(105, max(2, edge * dice.lognormal(0.7, 0.4))))
    width = int(min(105, max(8, edge * dice.lognormal(1.1, 0.3))))
    return Product(
        product_id=dice.identifier(),
        category=category if described else None,
        seller=seller,
        price=_shop_price(dice, price),
        name_length=min(64, max(8, int(dice.normal(48.5, 10)))) if described else None,
        description_length=int(min(3990, max(20, dice.lognormal(600, 0.75))))
        if described
        else None,
        photos=1 + int(min(8, dice.lognormal(0.9, 0.9))) if described else None,
        grams=grams,
        size=(length, height, width),
        popularity=dice.lognormal(1.0, 1.0),
    )


def _shop_price(dice: Dice, price: float) -> float:
    """A price as shops write it: most end in 90 or 99 cents."""
    whole = int(price)
    ending = dice.random()
    if ending < 0.45:
        return whole + 0.90
    if ending < 0.70:
        return whole + 0.99
    if ending < 0.82:
        return float(whole)
    return round(whole + dice.between(1, 98) / 100, 2)
