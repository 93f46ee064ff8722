"""States, cities and ZIP prefixes of Brazil.

City names, rough coordinates and the prefix range of each state are public facts; how a state's customers and prefixes
are spread over its cities is ours. Customers live in about 120 of Brazil's 5,570 municipalities.
"""

import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from plumbline.tasks.commerce.database.dice import Dice, Weighted
from plumbline.tasks.commerce.database.marginals import STATE_SHARES


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


ZIPS = {
    "SP": (1000, 19999), "RJ": (20000, 28999), "ES": (29000, 29999), "MG": (30000, 39999), "BA": (40000, 48999),
    "SE": (49000, 49999), "PE": (50000, 56999), "AL": (57000, 57999), "PB": (58000, 58999), "RN": (59000, 59999),
    "CE": (60000, 63999), "PI": (64000, 64999), "MA": (65000, 65999), "PA": (66000, 68899), "AP": (68900, 68999),
    "AM": (69000, 69299), "RR": (69300, 69389), "AC": (69900, 69999), "DF": (70000, 72799), "GO": (72800, 76799),
    "RO": (76800, 76999), "TO": (77000, 77999), "MT": (78000, 78899), "MS": (79000, 79999), "PR": (80000, 87999),
    "SC": (88000, 89999), "RS": (90000, 99999),
}  # fmt: skip
"""First and last five-digit prefix of each state."""

_CITIES = {
    "SP": "São Paulo -23.55 -46.63 370, Guarulhos -23.45 -46.53 30, Campinas -22.91 -47.06 36, "
    "São Bernardo do Campo -23.69 -46.56 24, Santo André -23.66 -46.53 20, Osasco -23.53 -46.79 19, "
    "Santos -23.96 -46.33 18, São José dos Campos -23.18 -45.88 17, Sorocaba -23.50 -47.46 16, "
    "Jundiaí -23.19 -46.88 14, Ribeirão Preto -21.18 -47.81 13, São José do Rio Preto -20.81 -49.38 11, "
    "Barueri -23.51 -46.88 11, Mogi das Cruzes -23.52 -46.19 10, Piracicaba -22.73 -47.65 10, "
    "Bauru -22.31 -49.06 7, Taubaté -23.03 -45.56 7, São Carlos -22.01 -47.89 6, Diadema -23.69 -46.62 8, "
    "Praia Grande -24.01 -46.40 9, Indaiatuba -23.09 -47.21 7, Franca -20.54 -47.40 6, Limeira -22.56 -47.40 6, "
    "Marília -22.21 -49.95 5, Cotia -23.60 -46.92 8",
    "RJ": "Rio de Janeiro -22.91 -43.20 340, Niterói -22.88 -43.10 42, Nova Iguaçu -22.76 -43.45 22, "
    "São Gonçalo -22.83 -43.05 21, Duque de Caxias -22.79 -43.31 18, Petrópolis -22.51 -43.18 14, "
    "Campos dos Goytacazes -21.75 -41.33 11, Volta Redonda -22.52 -44.10 11, Macaé -22.37 -41.79 10, "
    "Cabo Frio -22.88 -42.02 7, Nova Friburgo -22.28 -42.53 6, Teresópolis -22.41 -42.97 6",
    "MG": "Belo Horizonte -19.92 -43.94 140, Contagem -19.93 -44.05 22, Juiz de Fora -21.76 -43.35 22, "
    "Uberlândia -18.92 -48.28 23, Betim -19.97 -44.20 11, Montes Claros -16.73 -43.86 9, Uberaba -19.75 -47.93 9, "
    "Ipatinga -19.47 -42.54 8, Divinópolis -20.14 -44.88 6, Poços de Caldas -21.79 -46.56 6, Varginha -21.55 -45.43 5",
    "RS": "Porto Alegre -30.03 -51.22 70, Caxias do Sul -29.17 -51.18 14, Canoas -29.92 -51.18 12, "
    "Pelotas -31.77 -52.34 9, Novo Hamburgo -29.68 -51.13 9, Santa Maria -29.68 -53.81 9, Gravataí -29.94 -50.99 7, "
    "Passo Fundo -28.26 -52.41 6",
    "PR": "Curitiba -25.43 -49.27 80, Londrina -23.31 -51.16 16, Maringá -23.42 -51.94 14, "
    "Ponta Grossa -25.09 -50.16 9, Cascavel -24.96 -53.46 9, São José dos Pinhais -25.53 -49.21 8, "
    "Foz do Iguaçu -25.55 -54.59 7",
    "SC": "Florianópolis -27.60 -48.55 30, Joinville -26.30 -48.85 22, Blumenau -26.92 -49.07 14, "
    "São José -27.61 -48.64 10, Itajaí -26.91 -48.66 9, Criciúma -28.68 -49.37 6, Chapecó -27.10 -52.62 6, "
    "Balneário Camboriú -26.99 -48.63 7",
    "BA": "Salvador -12.97 -38.50 70, Feira de Santana -12.27 -38.97 10, Lauro de Freitas -12.90 -38.33 7, "
    "Vitória da Conquista -14.86 -40.84 6, Ilhéus -14.79 -39.05 4, Porto Seguro -16.45 -39.06 4",
    "DF": "Brasília -15.79 -47.88 100",
    "ES": "Vitória -20.32 -40.34 25, Vila Velha -20.33 -40.29 25, Serra -20.13 -40.31 20, Cariacica -20.26 -40.42 10, "
    "Linhares -19.39 -40.07 5",
    "GO": "Goiânia -16.68 -49.25 70, Anápolis -16.33 -48.95 12, Aparecida de Goiânia -16.82 -49.25 12, "
    "Rio Verde -17.80 -50.92 4",
    "PE": "Recife -8.05 -34.88 60, Jaboatão dos Guararapes -8.11 -35.01 12, Olinda -8.01 -34.86 9, "
    "Caruaru -8.28 -35.98 7, Petrolina -9.39 -40.50 6",
    "CE": "Fortaleza -3.73 -38.53 75, Caucaia -3.73 -38.66 4, Juazeiro do Norte -7.21 -39.32 4, Sobral -3.69 -40.35 3",
    "PA": "Belém -1.46 -48.50 55, Ananindeua -1.37 -48.37 10, Santarém -2.44 -54.71 5, Parauapebas -6.07 -49.90 5",
    "MT": "Cuiabá -15.60 -56.10 40, Várzea Grande -15.65 -56.13 9, Rondonópolis -16.47 -54.64 8, Sinop -11.86 -55.50 6",
    "MA": "São Luís -2.53 -44.30 50, Imperatriz -5.52 -47.48 10, Timon -5.09 -42.83 3",
    "MS": "Campo Grande -20.45 -54.62 50, Dourados -22.22 -54.81 10, Três Lagoas -20.79 -51.70 5",
    "PB": "João Pessoa -7.12 -34.86 50, Campina Grande -7.23 -35.88 20",
    "PI": "Teresina -5.09 -42.80 55, Parnaíba -2.91 -41.78 6",
    "RN": "Natal -5.79 -35.21 50, Mossoró -5.19 -37.34 12, Parnamirim -5.92 -35.26 8",
    "AL": "Maceió -9.67 -35.74 60, Arapiraca -9.75 -36.66 7",
    "SE": "Aracaju -10.91 -37.07 60, Lagarto -10.92 -37.65 4",
    "TO": "Palmas -10.18 -48.33 40, Araguaína -7.19 -48.21 12, Gurupi -11.73 -49.07 5",
    "RO": "Porto Velho -8.76 -63.90 40, Ji-Paraná -10.88 -61.95 10, Vilhena -12.74 -60.15 6",
    "AM": "Manaus -3.12 -60.02 95, Parintins -2.63 -56.74 3",
    "AC": "Rio Branco -9.97 -67.81 90, Cruzeiro do Sul -7.63 -72.67 5",
    "AP": "Macapá 0.03 -51.07 90, Santana -0.06 -51.18 10",
    "RR": "Boa Vista 2.82 -60.67 100",
}


def _cities(state: str) -> list[City]:
    """The state's cities, each with its share of the state's prefixes."""
    rows = [entry.strip().rsplit(" ", 3) for entry in _CITIES[state].split(",")]
    total = sum(float(row[3]) for row in rows)
    first, last = ZIPS[state]
    cities, start = [], float(first)
    for name, latitude, longitude, weight in rows:
        end = start + (last - first + 1) * float(weight) / total
        block = (int(start), max(int(start), int(end) - 1))
        cities.append(City(name, state, float(latitude), float(longitude), float(weight), block, plain(name)))
        start = end
    return cities


CITIES = {state: _cities(state) for state in STATE_SHARES}
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
