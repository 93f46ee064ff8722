"""Customers and sellers: invented people with common Brazilian first names.

States, cities and ZIP prefixes of Brazil: about 120 of its 5,570 municipalities, see `places.yaml`.
"""

import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from plumbline.tasks.tables import read_table
from plumbline_commerce.database.dice import Dice, Weighted, shares, split_list
from plumbline_commerce.database.marginals import REPEAT_SHARE


@dataclass(frozen=True, slots=True)
class City:
    """A city, with the block of ZIP prefixes that its people live under."""

    name: str
    """As people write it, with accents."""
    state: str
    latitude: float
    longitude: float
    weight: float
    zips: tuple[int, int]
    plain: str
    """As the tables have it: lower case, no accents."""


@lru_cache(maxsize=1 << 14)
def fold_accents(text: str) -> str:
    """Lower case without accents: "São Paulo" becomes "sao paulo"."""
    decomposed = unicodedata.normalize("NFD", text.lower())
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


def _cities(state: str, zips: str, cities: str) -> list[City]:
    """The state's cities as `places.yaml` has them, each with its share of the state's prefixes."""
    rows = [line.rsplit(" ", 3) for line in cities.splitlines()]
    total = sum(float(row[3]) for row in rows)
    first, last = map(int, zips.split())
    listed, start = [], float(first)
    for name, latitude, longitude, weight in rows:
        end = start + (last - first + 1) * float(weight) / total
        block = (int(start), max(int(start), int(end) - 1))
        listed.append(
            City(
                name,
                state,
                float(latitude),
                float(longitude),
                float(weight),
                block,
                fold_accents(name),
            )
        )
        start = end
    return listed


CITIES = {
    state: _cities(state, **written)
    for state, written in read_table(Path(__file__).with_name("places.yaml")).items()
}
_BY_WEIGHT = {
    state: Weighted([(city, city.weight) for city in cities]) for state, cities in CITIES.items()
}


def draw_city(dice: Dice, state: str) -> City:
    """A city of a state, by weight."""
    return dice.weighted(_BY_WEIGHT[state])


def draw_zip(dice: Dice, city: City) -> str:
    """A five-digit ZIP prefix of a city; low ones are more common, so that neighbours share
    them."""
    first, last = city.zips
    return f"{first + int((last - first + 1) * dice.random() ** 2):05d}"


def geolocation_rows(dice: Dice, used: dict[str, City]) -> list[tuple[str, float, float, str, str]]:
    """One to five points near the city's centre for each used prefix, with repeats as in Olist.

    Args:
        dice: where the points are drawn from.
        used: the city of each prefix that a customer or a seller has.
    """
    rows = []
    for prefix in sorted(used):
        city = used[prefix]
        for _ in range(dice.between(1, 5)):
            latitude = round(city.latitude + dice.normal(0, 0.04), 6)
            longitude = round(city.longitude + dice.normal(0, 0.04), 6)
            rows.append((prefix, latitude, longitude, city.plain, city.state))
    return rows


WOMEN, MEN = (
    split_list(names) for names in read_table(Path(__file__).with_name("people.yaml")).values()
)
_STATES = shares("states")
_SELLER_STATES = shares("seller_states")


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
        sellers.append(
            Seller(dice.identifier(), city, draw_zip(dice, city), dice.lognormal(1.0, 1.2))
        )
    return sellers
