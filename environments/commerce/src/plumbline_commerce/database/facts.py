"""What a customer knows when writing a review: the order's facts on that day.

The texts are composed from these facts only, so a text cannot contradict its order.
"""

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from plumbline_commerce.database.catalogue import Category, Kind, Noun
from plumbline_commerce.database.dice import Dice
from plumbline_commerce.database.orders import Order
from plumbline_commerce.database.people import Person

LAST_ANSWER = date(2018, 10, 31)
PENDING_FROM_DAYS = 6
"""A review is written before the delivery only where the order will be at least this late."""
CANCELLED = ("canceled", "unavailable")


@dataclass(frozen=True, slots=True)
class Facts:
    """An order as its customer sees it on the day of the review. Days are calendar days, money is in reais."""

    received: bool
    cancelled: bool
    shipped: bool
    overdue: int
    """Days after the estimated date: of the delivery if received, else of the review; 0 when on time."""
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

    The survey goes out on the day after the delivery, or soon after the estimated date when nothing has come.
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
    """Which kind of experience this was, for the law of the scores."""
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
    delivered = order.delivered.date() if order.delivered and order.delivered <= occasion.answered else None
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
    return {"credit_card": "no cartão", "boleto": "no boleto", "debit_card": "no débito"}.get(first.kind, "com vale")
