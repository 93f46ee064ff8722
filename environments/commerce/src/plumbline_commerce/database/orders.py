"""Orders: when they were bought, what was in them, how they were paid, and when they arrived.

An order is late when it arrives on a later calendar day than estimated. Whether it is late is drawn
first, with a chance that depends on the state and the month, and the days follow from it; so the
share of late orders holds for every seed, while which states and months are worst differs between
seeds.

How orders are paid: mostly by credit card or boleto, sometimes with vouchers, sometimes with
several payments.
"""

import calendar
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from typing import TypeVar

from plumbline_commerce.database.catalogue import Catalogue, Category, Kind, Noun, Product
from plumbline_commerce.database.dice import SHARES, Dice, Weighted, shares
from plumbline_commerce.database.marginals import (
    FIRST_DAY,
    LAST_DAY,
    LATE_SHARE,
    MONTH_WEIGHTS,
    STATE_SHARES,
    UNDELIVERED_SHARE,
    by_month,
)
from plumbline_commerce.database.people import Person


@dataclass(frozen=True, slots=True)
class Payment:
    """One payment of an order, in reais."""

    kind: str
    installments: int
    value: float


def draw_payments(dice: Dice, total: float) -> list[Payment]:
    """Payments that sum to the order's total (to the cent)."""
    kind = dice.weighted(_PAYMENTS)
    if kind == "credit_card":
        return [Payment(kind, _instalments(dice, total), total)]
    if kind == "voucher":
        return _split(dice, total, 1 if dice.chance(0.7) else 2)
    if kind == "card and vouchers":
        card = round(total * (0.35 + 0.5 * dice.random()), 2)
        vouchers = 1 + (dice.chance(0.4)) + (dice.chance(0.15)) + (dice.chance(0.1))
        return [
            Payment("credit_card", _instalments(dice, card), card),
            *_split(dice, round(total - card, 2), vouchers),
        ]
    return [Payment(kind, 1, total)]


def _instalments(dice: Dice, value: float) -> int:
    """No instalment is below ten reais."""
    return min(dice.weighted(_INSTALMENTS), max(1, int(value / 10)))


def _split(dice: Dice, total: float, parts: int) -> list[Payment]:
    rest, payments = total, []
    for left in range(parts - 1, 0, -1):
        value = max(0.01, round(rest / (left + 1) * (0.6 + 0.8 * dice.random()), 2))
        if value + 0.01 * left > rest:
            break
        payments.append(Payment("voucher", 1, value))
        rest = round(rest - value, 2)
    payments.append(Payment("voucher", 1, rest))
    return payments


Key = TypeVar("Key")
BLACK_FRIDAY = date(2017, 11, 24)
FREIGHT_BASE = 14.6
"""Reais; brings the median freight to `marginals.FREIGHT_MEDIAN`."""

_PAYMENTS, _UNDELIVERED, _AFTER_THE_END = (
    shares("payments"),
    shares("undelivered"),
    shares("after_the_end"),
)
_INSTALMENTS, _ITEM_COUNTS, _HOURS = (
    Weighted[int](SHARES[name].items()) for name in ("instalments", "item_counts", "hours")
)
_DAYS: dict[str, float] = SHARES["days"]
_LATENESS: dict[str, float] = SHARES["lateness"]
_FREIGHT: dict[str, float] = SHARES["freight"]
_SLOW_MONTHS = by_month("slow_months")
_MONTHS = Weighted(MONTH_WEIGHTS.items())


@dataclass(frozen=True, slots=True)
class Item:
    """One unit of a product in an order; money in reais."""

    product: Product
    price: float
    freight: float
    shipping_limit: datetime


@dataclass(slots=True)
class Order:
    """Everything about an order but its review."""

    order_id: str
    customer_id: str
    person: Person
    status: str
    purchased: datetime
    estimated: date
    approved: datetime | None = None
    carried: datetime | None = None
    delivered: datetime | None = None
    items: list[Item] = field(default_factory=list)
    payments: list[Payment] = field(default_factory=list)

    @property
    def delivery_days(self) -> int | None:
        """Calendar days from purchase to delivery; None when not delivered."""
        return (self.delivered.date() - self.purchased.date()).days if self.delivered else None

    @property
    def delay_days(self) -> int | None:
        """Calendar days after the estimated date, 0 when on time or early; None when not
        delivered."""
        return max(0, (self.delivered.date() - self.estimated).days) if self.delivered else None

    @property
    def value(self) -> float | None:
        """Sum of the item prices in reais; None without items."""
        return round(sum(item.price for item in self.items), 2) if self.items else None

    @property
    def freight(self) -> float | None:
        """Sum of the items' freight in reais; None without items."""
        return round(sum(item.freight for item in self.items), 2) if self.items else None


def draw_purchases(dice: Dice, orders: int) -> list[datetime]:
    """When each order was bought, in order of time."""
    moments: list[datetime] = []
    while len(moments) < orders:
        year, month = dice.weighted(_MONTHS)
        day = date(year, month, dice.between(1, calendar.monthrange(year, month)[1]))
        if (year, month) == (2017, 11) and dice.chance(0.14):
            day = BLACK_FRIDAY
        if not FIRST_DAY <= day <= LAST_DAY or (day.weekday() >= 5 and dice.chance(0.25)):
            continue
        clock = time(dice.weighted(_HOURS), dice.between(0, 59), dice.between(0, 59))
        moments.append(datetime.combine(day, clock))
    return sorted(moments)


class Courier:
    """Decides when orders arrive, with habits of its own in each state (drawn once per
    database)."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        self._state = {
            state: _LATENESS.get(state, 1.0) * dice.lognormal(1.0, 0.15) for state in STATE_SHARES
        }
        self._month = {
            month: _SLOW_MONTHS.get(month, 0.8) * dice.lognormal(1.0, 0.1)
            for month in MONTH_WEIGHTS
        }
        self._scale = LATE_SHARE / (
            _mean(self._state, STATE_SHARES) * _mean(self._month, MONTH_WEIGHTS)
        )

    def lateness(self, state: str, day: date) -> float:
        """The chance that an order of this state and day arrives late."""
        return min(0.6, self._scale * self._state[state] * self._month[(day.year, day.month)])

    def promise(self, state: str) -> int:
        """Days that the shop promises: about twice what it usually takes."""
        usual = _DAYS.get(state, 18.0)
        return max(6, round(self._dice.normal(13 + 1.05 * usual, 4.5)))

    def days(self, state: str, day: date, promised: int) -> int:
        """Days from purchase to delivery."""
        dice = self._dice
        if dice.chance(self.lateness(state, day)):
            return promised + min(170, max(1, round(dice.lognormal(6.0, 1.0))))
        for _ in range(6):
            days = max(1, round(dice.lognormal(_DAYS.get(state, 18.0), 0.48)))
            if days <= promised:
                return days
        return max(1, promised - dice.between(0, 3))


def _mean(values: Mapping[Key, float], weights: Mapping[Key, float]) -> float:
    return sum(values[key] * weight for key, weight in weights.items()) / sum(weights.values())


def draw_order(
    dice: Dice, courier: Courier, catalogue: Catalogue, person: Person, purchased: datetime
) -> Order:
    """One order of a person at a moment: status, dates, items and payments."""
    day, state = purchased.date(), person.city.state
    promised = courier.promise(state)
    order = Order(
        order_id=dice.identifier(),
        customer_id=dice.identifier(),
        person=person,
        status="delivered",
        purchased=purchased,
        estimated=day + timedelta(days=promised),
    )
    days = courier.days(state, day, promised)
    if day > date(2018, 8, 31):
        order.status = dice.weighted(_AFTER_THE_END)
    elif dice.chance(UNDELIVERED_SHARE * 0.97):
        order.status = dice.weighted(_UNDELIVERED)
    elif day + timedelta(days=days) > LAST_DAY:
        order.status = "shipped"
    if order.status != "unavailable" or dice.chance(0.02):
        order.items = _draw_items(dice, catalogue, state, purchased)
    total = sum(item.price + item.freight for item in order.items) or round(
        dice.lognormal(105, 0.8), 2
    )
    order.payments = draw_payments(dice, round(total, 2))
    _set_times(dice, order, days)
    return order


def _draw_items(dice: Dice, catalogue: Catalogue, state: str, purchased: datetime) -> list[Item]:
    product = catalogue.draw(dice)
    items = []
    limit = (purchased + timedelta(days=dice.between(2, 8))).replace(microsecond=0)
    for number in range(dice.weighted(_ITEM_COUNTS)):
        if number and dice.chance(0.25):
            product = catalogue.draw(dice)
        freight = (
            FREIGHT_BASE
            * _FREIGHT.get(state, 1.75)
            * (product.grams / 800) ** 0.20
            * dice.lognormal(1.0, 0.48)
        )
        items.append(Item(product, product.price, round(min(409.0, max(2.9, freight)), 2), limit))
    return items


def _set_times(dice: Dice, order: Order, days: int) -> None:
    """Fill in the timestamps that the status implies, always in the order purchase, approval,
    carrier, delivery."""
    slow = order.payments[0].kind == "boleto"
    waited = (
        timedelta(hours=dice.between(10, 60))
        if slow
        else timedelta(minutes=min(2880, dice.lognormal(18, 1.5)))
    )
    if order.status == "delivered":
        arrives = order.purchased.date() + timedelta(days=days)
        moment = datetime.combine(
            arrives, time(dice.between(9, 21), dice.between(0, 59), dice.between(0, 59))
        )
        order.delivered = max(moment, order.purchased + timedelta(hours=2))
        whole = order.delivered - order.purchased
        order.approved = _second(order.purchased + min(waited, whole * 0.4))
        order.carried = _second(
            order.approved + (order.delivered - order.approved) * (0.08 + 0.35 * dice.random())
        )
        return
    if order.status == "created":
        return
    if order.status != "canceled" or dice.chance(0.8):
        order.approved = _second(order.purchased + waited)
    if order.approved and (
        order.status == "shipped" or (order.status == "canceled" and dice.chance(0.12))
    ):
        order.carried = _second(order.approved + timedelta(hours=dice.between(12, 140)))


def _second(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)


# What a customer knows when writing a review: the order's facts on that day. The texts are composed
# from these facts only, so a text cannot contradict its order.


LAST_ANSWER = date(2018, 10, 31)
PENDING_FROM_DAYS = 6
"""A review is written before the delivery only where the order will be at least this late."""
CANCELLED = ("canceled", "unavailable")


@dataclass(frozen=True, slots=True)
class Facts:
    """An order as its customer sees it on the day of the review. Days are calendar days, money is
    in reais."""

    received: bool
    cancelled: bool
    shipped: bool
    overdue: int
    """Days after the estimated date: of the delivery if received, else of the review; 0 when on
    time."""
    waited: int
    """Days from purchase to delivery, or to the review if nothing came."""
    owned: int
    """Days from delivery to the review; 0 if nothing came."""
    promised: int
    early: int
    """Days that the delivery came before the estimated date; 0 when it did not."""
    items: int
    category: Category | None
    noun: Noun | None
    """What the customer calls the product, where it has a category."""
    value: float | None
    freight: float | None
    purchased: date
    estimated: date
    delivered: date | None
    payment: str
    """How it was paid, in the customer's words."""
    person: Person

    @property
    def kind(self) -> Kind:
        """What kind of thing was bought."""
        return self.noun.kind if self.noun else "any"

    @property
    def late(self) -> bool:
        """Whether it arrived after the estimated date."""
        return self.received and self.overdue > 0


@dataclass(frozen=True, slots=True)
class Occasion:
    """When the survey was sent and answered."""

    created: datetime
    answered: datetime


def draw_occasion(dice: Dice, order: Order) -> Occasion | None:
    """When the customer is asked and answers; None when that is after the data ends.

    The survey goes out on the day after the delivery, or soon after the estimated date when nothing
    has come.
    """
    clock = time(dice.between(8, 23), dice.between(0, 59), dice.between(0, 59))
    late = order.delay_days or 0
    before_delivery = late >= PENDING_FROM_DAYS and dice.chance(0.4)
    if order.delivered and not before_delivery:
        created = order.delivered.date() + timedelta(days=1)
        answered = created + timedelta(days=int(min(60, dice.lognormal(1.4, 1.0))))
    else:
        overdue = 2 + int(min(40, dice.lognormal(2.2, 0.9)))
        if before_delivery:
            overdue = max(3, min(overdue, late - 1))
        answered = order.estimated + timedelta(days=overdue)
        created = order.estimated + timedelta(days=min(2, overdue))
    if answered > LAST_ANSWER:
        return None
    return Occasion(datetime.combine(created, time()), datetime.combine(answered, clock))


def situation(order: Order, occasion: Occasion) -> str:
    """Which kind of experience this was, for the distribution of the scores."""
    if order.delivered is None:
        return "undelivered"
    if order.delivered > occasion.answered:
        return "pending"
    late = order.delay_days or 0
    if late:
        return "late_small" if late <= 3 else "late_middle" if late <= 8 else "late_big"
    return "several" if len(order.items) > 1 else "single"


def facts_of(dice: Dice, order: Order, occasion: Occasion) -> Facts:
    """The facts on the day of the review; what the product is called is drawn."""
    today, bought = occasion.answered.date(), order.purchased.date()
    delivered = (
        order.delivered.date() if order.delivered and order.delivered <= occasion.answered else None
    )
    end = delivered or today
    category = order.items[0].product.category if order.items else None
    return Facts(
        received=delivered is not None,
        cancelled=order.status in CANCELLED,
        shipped=order.carried is not None,
        overdue=max(0, (end - order.estimated).days),
        waited=(end - bought).days,
        owned=(today - delivered).days if delivered else 0,
        promised=(order.estimated - bought).days,
        early=max(0, (order.estimated - end).days) if delivered else 0,
        items=len(order.items),
        category=category,
        noun=dice.pick(category.nouns) if category else None,
        value=order.value,
        freight=order.freight,
        purchased=bought,
        estimated=order.estimated,
        delivered=delivered,
        payment=_payment(order),
        person=order.person,
    )


def _payment(order: Order) -> str:
    first = order.payments[0]
    if len(order.payments) > 1 and first.kind == "credit_card":
        return "com cartão e vale"
    if first.kind == "credit_card" and first.installments > 1:
        return f"no cartão em {first.installments}x"
    return {"credit_card": "no cartão", "boleto": "no boleto", "debit_card": "no débito"}.get(
        first.kind, "com vale"
    )
