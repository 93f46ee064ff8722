"""What a customer wants to say, decided before any word is chosen.

A plan is a list of points (topics of complaint, praise, remarks, a recommendation). It depends on
the score and on the order's facts: nobody complains about a late delivery that was on time, praises
what has not come, or praises and complains about the same thing.

The phrase banks in Brazilian Portuguese (`phrases/*.yaml`), and which of them may make a point of
an order.

How to read a phrase:

    [ ... ]     the literal span of the complaint (one in every phrase of a complaint)
    <a|b|>      one of the alternatives, possibly none; may be nested
    {slot}      filled in by `words.Words`: a product word, days, dates, money, a shop, a name
    @           o or a, by the gender of the product word of this clause
    §           o or a, by the gender of the customer
    + at the start: for a strong tone only (it holds a word of `gold.STRONG_PRAISE` or `gold.STRONG_COMPLAINT`)

Clauses start in lower case and have no final full stop, so that they can stand first, last, or
after "mas". A bank is named by the point that it makes; `defective.elec` holds what fits one kind
of product only, `late_more` what goes on about a point.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from plumbline.tasks.tables import read_tables
from plumbline_commerce.database.dice import SHARES, Dice, Weighted, shares_by
from plumbline_commerce.database.gold import TOPICS, TextLabels
from plumbline_commerce.database.orders import Facts

Bank = tuple[str, ...]
BANKS: dict[str, Bank] = {
    name: tuple(phrases.splitlines())
    for banks in read_tables(Path(__file__).with_name("phrases")).values()
    for name, phrases in banks.items()
}
SHIPMENT_POINTS = ("late", "missing", "praise_delivery", "neutral")
"""Points at which the thing may be called a parcel or an order."""
_VOLTAGE = ("eletroportateis", "eletrodomesticos", "eletrodomesticos_2", "climatizacao", "portateis_casa_forno_e_cafe",
            "portateis_cozinha_e_preparadores_de_alimentos")  # fmt: skip
FAST_DAYS = 9
"""A delivery in so many days may be called fast."""


def bank_of(dice: Dice, point: str, facts: Facts) -> Bank:
    """The phrases for a point; which of several banks is drawn."""
    kind = facts.kind
    if point == "missing":
        return _missing(dice, facts)
    if point == "defective":
        special = BANKS.get(f"defective.{kind}", ())
        if kind in ("food", "cosm"):
            return special
        return special if special and dice.chance(0.45) else _fitting("defective", kind)
    if point == "wrong":
        special = _wrong(dice, facts)
        return special if special and dice.chance(0.35) else _fitting("wrong", kind)
    if point == "price":
        return _price(facts)
    if point == "praise_product":
        special = BANKS.get(f"praise_product.{kind}", ())
        return special if special and dice.chance(0.4) else _fitting("praise_product", kind)
    if point == "praise_delivery":
        return _delivery(dice, facts)
    if point == "praise_price":
        return tuple(
            phrase
            for phrase in BANKS["praise_price"]
            if "{preco}" not in phrase or (facts.value or 0) < 150
        )
    if point == "neutral":
        special = BANKS.get(f"neutral.{kind}", ())
        return special if special and dice.chance(0.3) else BANKS["neutral"]
    return _NOTHING_TO_RETURN if point == "service" and not facts.received else BANKS[point]


_SIZED = ("modelo", "medidas", "tamanho", "acabamento")
_BUILT = ("peça", "material", "mal <", "acessório")
_UNFIT = {
    "food": (*_SIZED, "usando", "foto", "top de linha", "menor", "ao vivo"),
    "cosm": (*_SIZED, "top de linha", "ao vivo"),
    "book": (*_SIZED, *_BUILT, "usando", "frágil", "ao vivo"),
    "disc": (*_SIZED, *_BUILT, "usando", "frágil", "ao vivo"),
    "linen": ("peça", "modelo", "acessório", "batid@"),
    "wear": ("peça", "acessório", "batid@"),
    "shoe": ("peça", "acessório", "batid@"),
    "bag": ("peça", "acessório", "batid@"),
    "any": ("peça", "acessório", "batid@"),
}
"""Words that do not fit a kind of product."""


_NOTHING_TO_RETURN = tuple(
    phrase for phrase in BANKS["service"] if "troca" not in phrase and "nota fiscal" not in phrase
)
"""Complaints about the service of somebody who has received nothing."""


@cache
def _fitting(name: str, kind: str) -> Bank:
    """The phrases of a bank that fit a kind of product."""
    unfit = _UNFIT.get(kind, ())
    return tuple(phrase for phrase in BANKS[name] if not any(word in phrase for word in unfit))


def _missing(dice: Dice, facts: Facts) -> Bank:
    if facts.received:
        return BANKS["missing_part"]
    if facts.cancelled:
        return BANKS["missing_cancelled" if dice.chance(0.75) else "missing"]
    if not facts.shipped and dice.chance(0.3):
        return BANKS["missing_unshipped"]
    return BANKS["missing"]


def _wrong(dice: Dice, facts: Facts) -> Bank:
    if facts.category is None:
        return ()
    name, kind = facts.category.name, facts.kind
    fitting = {
        "colour": kind in ("linen", "wear", "shoe", "bag", "furn", "home", "elec", "gear"),
        "elec": kind == "elec" and name in _VOLTAGE,
        "size": kind == "wear",
        "shoes": kind == "shoe",
        "bed": facts.noun is not None
        and facts.noun.word in ("jogo de cama", "lençol", "edredom", "colcha"),
        "measures": kind in ("furn", "linen", "home"),
        "bag": kind == "bag",
        "book": kind == "book",
        "cosm": kind == "cosm",
        "food": kind == "food",
    }
    keys = [key for key, fits in fitting.items() if fits]
    return BANKS[f"wrong.{dice.pick(keys)}"] if keys else ()


def _price(facts: Facts) -> Bank:
    """Amounts are named only where they are worth complaining about."""
    value, freight = facts.value or 0.0, facts.freight or 0.0
    near: Bank = BANKS["price_freight_near"] * 2 if freight > 0.66 * value else ()
    if freight > value:
        near = BANKS["price_freight_above"] * 4
    dear = freight >= 20 and freight > 0.12 * value
    return near + tuple(
        phrase
        for phrase in BANKS["price"]
        if ("{frete}" not in phrase or dear) and ("{preco}" not in phrase or value >= 50)
    )


def _delivery(dice: Dice, facts: Facts) -> Bank:
    names = ["praise_delivery"]
    if facts.early >= 2:
        names.append("praise_delivery_early")
    if facts.waited <= FAST_DAYS:
        names += ["praise_delivery_fast"] * 2
    return BANKS[dice.pick(names)]


def ironic_bank(point: str, facts: Facts) -> Bank:
    """Ironic phrases for a complaint; empty where irony would not fit the facts."""
    if point == "missing":
        return (
            () if facts.cancelled else BANKS["ironic.part" if facts.received else "ironic.missing"]
        )
    if point == "defective" and facts.kind in ("food", "cosm"):
        return ()
    bank = BANKS[f"ironic.{point}"]
    if point == "price":
        dear = (facts.freight or 0) >= 20
        return tuple(phrase for phrase in bank if "{frete}" not in phrase or dear)
    return bank


def quoted_bank(point: str, facts: Facts) -> Bank:
    """Phrases with a quotation for a point; empty where there is none."""
    if point == "missing":
        return BANKS[
            f"quoted.{'part' if facts.received else 'cancelled' if facts.cancelled else 'missing'}"
        ]
    if point == "praise_delivery" and facts.waited > FAST_DAYS:
        return ()
    if point == "price" and (facts.freight or 0) < 20:
        return BANKS["quoted.price"][::2]
    return BANKS.get(f"quoted.{point}", ())


def more_bank(point: str, facts: Facts, said: str) -> Bank:
    """Phrases that go on about a point without making a new one.

    Args:
        point: the point.
        facts: the order's facts.
        said: the clause that made the point.
    """
    if point == "price" and "frete" in said.lower():
        return BANKS["freight_more"]
    if point == "praise_product":
        return _fitting("praise_product_more", facts.kind)
    if point == "missing":
        point = (
            "missing_cancelled"
            if facts.cancelled
            else "missing_part"
            if facts.received
            else "missing"
        )
    return BANKS.get(f"{point}_more", ())


def closing_bank(facts: Facts, side: int) -> Bank:
    """Background that may end a long review.

    Args:
        facts: the order's facts.
        side: 1 for a review in favour, -1 against, 0 neither.
    """
    names = ["after"]
    if facts.received:
        names += ["after_received"] * 2
        if side >= 0:
            names += ["after_kept", f"after_kept.{facts.kind}"] * 2
    bank = tuple(phrase for name in names if name in BANKS for phrase in _fitting(name, facts.kind))
    return _known(bank, priced=facts.value is not None, named=facts.noun is not None)


def opening_bank(facts: Facts) -> Bank:
    """Background that may begin a long review."""
    return _known(BANKS["before"], priced=facts.value is not None, named=facts.noun is not None)


@cache
def _known(bank: Bank, *, priced: bool, named: bool) -> Bank:
    """Without phrases about a price that there is not, or about a product that has no name."""
    return tuple(
        phrase
        for phrase in bank
        if (priced or "{preco}" not in phrase)
        and (named or not ("_p}" in phrase or "{p}" in phrase))
    )


PRAISES = ("praise_product", "praise_delivery", "praise_price", "praise_service", "praise_general")


@dataclass(frozen=True, slots=True)
class ReviewPlan:
    """Points in the order in which the text makes them, and its tone."""

    points: tuple[str, ...]
    """Topics of complaint (keys of `gold.TOPICS`), `PRAISES`, or displeased, lukewarm, neutral,
    recommends, refuses."""
    strong: bool
    ironic: bool = False

    def text_labels(self) -> TextLabels:
        """What a text that makes these points says."""
        recommends = {"recommends": True, "refuses": False}
        return TextLabels(
            complaints=tuple(dict.fromkeys(point for point in self.points if point in TOPICS)),
            praised=any(point in PRAISES for point in self.points),
            displeased="displeased" in self.points,
            recommends=next(
                (recommends[point] for point in self.points if point in recommends), None
            ),
            ironic=self.ironic,
        )


_FEELINGS, _TOPICS, _ALSO = shares_by("feelings"), shares_by("topics"), shares_by("also")


def draw_plan(dice: Dice, facts: Facts, score: int) -> ReviewPlan:
    """What a customer with this order and this score says."""
    if facts.received:
        feeling = dice.weighted(_FEELINGS[score])
    else:
        feeling = "bad" if dice.chance(SHARES["pending_complaint"][score]) else "good"
    if feeling == "neutral":
        return ReviewPlan(("neutral",) if dice.chance(0.55) else ("lukewarm",), strong=False)
    return {"bad": _bad, "mixed": _mixed, "good": _good}[feeling](dice, facts, score)


def _main_complaint(dice: Dice, facts: Facts) -> str:
    if not facts.received:
        return dice.weighted(_TOPICS["nothing"])
    if facts.late:
        return dice.weighted(_TOPICS["late"])
    topic = dice.weighted(_TOPICS["several" if facts.items > 1 else "single"])
    # Dear freight invites the complaint; where it is cheap, half of those who would complain do so
    # about the product.
    if (
        topic == "price"
        and facts.freight
        and facts.value
        and facts.freight < 0.12 * facts.value
        and dice.chance(0.5)
    ):
        return "defective"
    return topic


def _fits(topic: str, facts: Facts) -> bool:
    """Whether a further complaint agrees with the facts."""
    if topic in ("defective", "wrong"):
        return facts.received
    return topic != "price" or facts.value is not None


def _bad(dice: Dice, facts: Facts, score: int) -> ReviewPlan:
    main = _main_complaint(dice, facts)
    strong = dice.chance(SHARES["strong_blame"][score])
    if not main:
        alone = dice.random()
        if alone < 0.25:
            return ReviewPlan(("refuses",), strong)
        return ReviewPlan(("displeased", "refuses") if alone < 0.5 else ("displeased",), strong)
    points = [main]
    ironic = dice.chance(0.075) and bool(ironic_bank(main, facts))
    if dice.chance(SHARES["second_complaint"][score]):
        also = dice.weighted(_ALSO[main])
        if _fits(also, facts):
            points.append(also)
            third = dice.weighted(_ALSO[main])
            if third not in points and _fits(third, facts) and dice.chance(0.15):
                points.append(third)
    if not ironic and dice.chance(0.16):
        points.insert(0 if dice.chance(0.5) else len(points), "displeased")
    if dice.chance(0.17 if score == 1 else 0.10):
        points.insert(0 if dice.chance(0.12) and not ironic else len(points), "refuses")
    return ReviewPlan(tuple(points), strong, ironic)


def _praises(dice: Dice, facts: Facts, without: tuple[str, ...], most: int) -> list[str]:
    """Topics to praise that agree with the facts, at least one and at most `most`."""
    if not facts.received:
        without += ("praise_product", "praise_general", "praise_delivery", "praise_price")
    if facts.overdue:
        without += ("praise_delivery",)
    if facts.value is None:
        without += ("praise_price",)
    open_topics = {
        topic: weight for topic, weight in SHARES["praised"].items() if topic not in without
    }
    chosen: list[str] = []
    while open_topics and len(chosen) < most:
        topic = dice.weighted(Weighted(open_topics.items()))
        del open_topics[topic]
        if not (topic == "praise_general" and chosen and dice.chance(0.5)):
            chosen.append(topic)
    return chosen


def _good(dice: Dice, facts: Facts, score: int) -> ReviewPlan:
    strong = dice.chance(SHARES["strong_praise"][score])
    if dice.chance(0.05):
        return ReviewPlan(("recommends",), strong)
    many = dice.random()
    points = _praises(dice, facts, (), 1 if many < 0.53 else 2 if many < 0.89 else 3)
    if (
        facts.received
        and not {"praise_product", "praise_general"} & set(points)
        and dice.chance(0.25)
    ):
        points.append("neutral")
    if dice.chance(0.22) or not points:
        points.insert(0 if dice.chance(0.15) else len(points), "recommends")
    return ReviewPlan(tuple(points), strong)


def _mixed(dice: Dice, facts: Facts, score: int) -> ReviewPlan:
    main = _main_complaint(dice, facts) or "service"
    good = {"late": "delivery", "missing": "delivery", "defective": "product", "wrong": "product"}
    clashing = (f"praise_{good.get(main, main)}", "praise_general")
    praise = _praises(dice, facts, clashing, 1 if dice.chance(0.8) else 2)
    strong = dice.chance(0.3)
    points = [*praise, main] if dice.chance(0.68) else [main, *praise]
    verdict = dice.random()
    if verdict < (0.12 if score >= 4 else 0.04):
        points.append("recommends")
    elif verdict > (0.97 if score >= 3 else 0.88):
        points.append("refuses")
    return ReviewPlan(tuple(points), strong)
