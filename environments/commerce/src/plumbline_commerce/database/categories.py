"""The 73 product categories: names, how often they sell, typical price and weight, and words for what is sold."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from plumbline.tasks.tables import read_table

Kind = Literal["elec", "linen", "wear", "shoe", "bag", "furn", "cosm", "food", "book", "disc", "home", "gear", "any"]
"""Which complaints and praises make sense: of things that switch on, sheets and towels, clothes, shoes, bags,
furniture, cosmetics, food, books, records, things for the kitchen and the walls, hard goods, and anything else."""


@dataclass(frozen=True, slots=True)
class Noun:
    """A word for a product, singular, with its gender."""

    word: str
    feminine: bool
    kind: Kind = "any"


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
    """A category as `categories.yaml` has it; its kind is that of the words that name no other after a colon."""
    english, weight, price, grams, kind, words = written.split(" | ")
    nouns = []
    for entry in words.split(", "):
        word, _, other = entry.partition(":")
        nouns.append(Noun(word[2:], word.startswith("a "), cast(Kind, other or kind)))
    return Category(name, english, float(weight), float(price), int(grams), tuple(nouns))


CATEGORIES = tuple(
    _category(name, written) for name, written in read_table(Path(__file__).with_name("categories.yaml")).items()
)
BY_NAME = {category.name: category for category in CATEGORIES}
