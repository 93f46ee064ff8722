"""Customers and sellers: invented people with common Brazilian first names."""

from dataclasses import dataclass
from pathlib import Path

from plumbline.tasks.tables import read_table
from plumbline_commerce.database.dice import Dice, Weighted, listed
from plumbline_commerce.database.marginals import REPEAT_SHARE, STATE_SHARES
from plumbline_commerce.database.places import City, draw_city, draw_zip

WOMEN, MEN = (listed(names) for names in read_table(Path(__file__).with_name("people.yaml")).values())
_STATES = Weighted(STATE_SHARES.items())
_SELLER_STATES = Weighted(
    {"SP": 60, "PR": 11, "MG": 8, "SC": 6, "RJ": 5.5, "RS": 4, "GO": 1.3, "DF": 1, "ES": 0.7, "BA": 0.6, "CE": 0.4,
     "PE": 0.3, "MT": 0.2, "MS": 0.2, "RN": 0.2, "PB": 0.2}.items()
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who buys, possibly more than once."""

    unique_id: str
    first_name: str
    feminine: bool
    city: City
    zip_prefix: str


@dataclass(frozen=True, slots=True)
class Seller:
    """A shop on the market place."""

    seller_id: str
    city: City
    zip_prefix: str
    popularity: float


def draw_people(dice: Dice, orders: int) -> list[Person]:
    """Who makes each of the orders, in order; about 3 % of the people appear more than once."""
    people: list[Person] = []
    known: list[Person] = []
    for _ in range(orders):
        if known and dice.chance(REPEAT_SHARE * 1.05):
            people.append(dice.pick(known))
            continue
        feminine = dice.chance(0.55)
        # The power makes the first names of the list the common ones.
        names = WOMEN if feminine else MEN
        name = names[int(len(names) * dice.random() ** 1.6)]
        city = draw_city(dice, dice.weighted(_STATES))
        person = Person(dice.identifier(), name, feminine, city, draw_zip(dice, city))
        known.append(person)
        people.append(person)
    return people


def draw_sellers(dice: Dice, orders: int) -> list[Seller]:
    """The shops: about three for every hundred orders, most of them in São Paulo."""
    sellers = []
    for _ in range(max(12, round(0.031 * orders))):
        city = draw_city(dice, dice.weighted(_SELLER_STATES))
        sellers.append(Seller(dice.identifier(), city, draw_zip(dice, city), dice.lognormal(1.0, 1.2)))
    return sellers
