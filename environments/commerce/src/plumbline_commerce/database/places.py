"""States, cities and ZIP prefixes of Brazil: about 120 of its 5,570 municipalities, see `places.yaml`."""

import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from plumbline.tasks.tables import read_table
from plumbline_commerce.database.dice import Dice, Weighted


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
def plain(text: str) -> str:
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
        listed.append(City(name, state, float(latitude), float(longitude), float(weight), block, plain(name)))
        start = end
    return listed


CITIES = {
    state: _cities(state, **written) for state, written in read_table(Path(__file__).with_name("places.yaml")).items()
}
_BY_WEIGHT = {state: Weighted([(city, city.weight) for city in cities]) for state, cities in CITIES.items()}


def draw_city(dice: Dice, state: str) -> City:
    """A city of a state, by weight."""
    return dice.weighted(_BY_WEIGHT[state])


def draw_zip(dice: Dice, city: City) -> str:
    """A five-digit ZIP prefix of a city; low ones are more common, so that neighbours share them."""
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
