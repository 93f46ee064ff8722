"""Which phrases may make a point, given the order's facts."""

from functools import cache

from plumbline.tasks.commerce.database.dice import Dice
from plumbline.tasks.commerce.database.facts import Facts
from plumbline.tasks.commerce.database.phrases import delivery, praise, product, quoted, remarks, sarcasm, service

Bank = tuple[str, ...]
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
        special = product.DEFECTIVE_OF.get(kind, ())
        if kind in ("food", "cosm"):
            return special
        return special if special and dice.chance(0.45) else _fitting(product.DEFECTIVE, kind)
    if point == "wrong":
        special = _wrong(dice, facts)
        return special if special and dice.chance(0.35) else _fitting(product.WRONG, kind)
    if point == "price":
        return _price(facts)
    if point == "praise_product":
        special = praise.PRODUCT_OF.get(kind, ())
        return special if special and dice.chance(0.4) else _fitting(praise.PRODUCT, kind)
    if point == "praise_delivery":
        return _delivery(dice, facts)
    if point == "praise_price":
        return tuple(phrase for phrase in praise.PRICE if "{preco}" not in phrase or (facts.value or 0) < 150)
    if point == "neutral":
        special = remarks.NEUTRAL_OF.get(kind, ())
        return special if special and dice.chance(0.3) else remarks.NEUTRAL_RECEIVED
    return {
        "late": delivery.LATE,
        "service": service.SERVICE if facts.received else _NOTHING_TO_RETURN,
        "displeased": service.DISPLEASED,
        "refuses": service.REFUSES,
        "recommends": praise.RECOMMENDS,
        "praise_service": praise.SERVICE,
        "praise_general": praise.GENERAL,
        "lukewarm": remarks.LUKEWARM,
    }[point]


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
    phrase for phrase in service.SERVICE if "troca" not in phrase and "nota fiscal" not in phrase
)
"""Complaints about the service of somebody who has received nothing."""


@cache
def _fitting(bank: Bank, kind: str) -> Bank:
    unfit = _UNFIT.get(kind, ())
    return tuple(phrase for phrase in bank if not any(word in phrase for word in unfit))


def _missing(dice: Dice, facts: Facts) -> Bank:
    if facts.received:
        return delivery.MISSING_PART
    if facts.cancelled:
        return delivery.MISSING_CANCELLED if dice.chance(0.75) else delivery.MISSING
    if not facts.shipped and dice.chance(0.3):
        return delivery.MISSING_UNSHIPPED
    return delivery.MISSING


def _wrong(dice: Dice, facts: Facts) -> Bank:
    if facts.category is None:
        return ()
    name, kind = facts.category.name, facts.kind
    fitting = {
        "colour": kind in ("linen", "wear", "shoe", "bag", "furn", "home", "elec", "gear"),
        "elec": kind == "elec" and name in _VOLTAGE,
        "size": kind == "wear",
        "shoes": kind == "shoe",
        "bed": facts.noun is not None and facts.noun.word in ("jogo de cama", "lençol", "edredom", "colcha"),
        "measures": kind in ("furn", "linen", "home"),
        "bag": kind == "bag",
        "book": kind == "book",
        "cosm": kind == "cosm",
        "food": kind == "food",
    }
    keys = [key for key, fits in fitting.items() if fits]
    return product.WRONG_OF[dice.pick(keys)] if keys else ()


def _price(facts: Facts) -> Bank:
    """Amounts are named only where they are worth complaining about."""
    value, freight = facts.value or 0.0, facts.freight or 0.0
    near: Bank = service.PRICE_FREIGHT_NEAR * 2 if freight > 0.66 * value else ()
    if freight > value:
        near = service.PRICE_FREIGHT_ABOVE * 4
    dear = freight >= 20 and freight > 0.12 * value
    return near + tuple(
        phrase
        for phrase in service.PRICE
        if ("{frete}" not in phrase or dear) and ("{preco}" not in phrase or value >= 50)
    )


def _delivery(dice: Dice, facts: Facts) -> Bank:
    banks: list[Bank] = [praise.DELIVERY_ANY]
    if facts.early >= 2:
        banks.append(praise.DELIVERY_EARLY)
    if facts.waited <= FAST_DAYS:
        banks += [praise.DELIVERY_FAST, praise.DELIVERY_FAST]
    return dice.pick(banks)


def ironic_bank(point: str, facts: Facts) -> Bank:
    """Ironic phrases for a complaint; empty where irony would not fit the facts."""
    if point == "missing":
        return () if facts.cancelled else sarcasm.SARCASM["part" if facts.received else "missing"]
    if point == "defective" and facts.kind in ("food", "cosm"):
        return ()
    bank = sarcasm.SARCASM[point]
    if point == "price":
        dear = (facts.freight or 0) >= 20
        return tuple(phrase for phrase in bank if "{frete}" not in phrase or dear)
    return bank


def quoted_bank(point: str, facts: Facts) -> Bank:
    """Phrases with a quotation for a point; empty where there is none."""
    if point == "missing":
        key = "part" if facts.received else "cancelled" if facts.cancelled else "missing"
        return quoted.QUOTED[key]
    if point == "praise_delivery" and facts.waited > FAST_DAYS:
        return ()
    if point == "price" and (facts.freight or 0) < 20:
        return quoted.QUOTED[point][::2]
    return quoted.QUOTED.get(point, ())


def more_bank(point: str, facts: Facts, said: str) -> Bank:
    """Phrases that go on about a point without making a new one.

    Args:
        point: the point.
        facts: the order's facts.
        said: the clause that made the point.
    """
    if point == "price" and "frete" in said.lower():
        return service.FREIGHT_MORE
    if point == "praise_product":
        return _fitting(praise.PRODUCT_MORE, facts.kind)
    if point == "missing":
        if facts.cancelled:
            return delivery.MISSING_CANCELLED_MORE
        return delivery.MISSING_PART_MORE if facts.received else delivery.MISSING_MORE
    if point == "late":
        return delivery.LATE_MORE
    return {
        "defective": product.DEFECTIVE_MORE,
        "wrong": product.WRONG_MORE,
        "service": service.SERVICE_MORE,
        "price": service.PRICE_MORE,
    }.get(point, ())


def closing_bank(facts: Facts, side: int) -> Bank:
    """Background that may end a long review.

    Args:
        facts: the order's facts.
        side: 1 for a review in favour, -1 against, 0 neither.
    """
    bank: Bank = remarks.AFTER
    if facts.received:
        bank += remarks.AFTER_RECEIVED * 2
        if side >= 0:
            bank += (remarks.AFTER_KEPT + remarks.AFTER_OF.get(facts.kind, ())) * 2
    return _known(_fitting(bank, facts.kind), priced=facts.value is not None, named=facts.noun is not None)


def opening_bank(facts: Facts) -> Bank:
    """Background that may begin a long review."""
    return _known(remarks.BEFORE, priced=facts.value is not None, named=facts.noun is not None)


@cache
def _known(bank: Bank, *, priced: bool, named: bool) -> Bank:
    """Without phrases about a price that there is not, or about a product that has no name."""
    return tuple(
        phrase
        for phrase in bank
        if (priced or "{preco}" not in phrase) and (named or not ("_p}" in phrase or "{p}" in phrase))
    )
