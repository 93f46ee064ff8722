"""How orders are paid: mostly by credit card or boleto, sometimes with vouchers, sometimes with several payments."""

from dataclasses import dataclass

from plumbline_commerce.database.dice import Dice, Weighted

_KINDS = Weighted(
    [("credit_card", 75.0), ("boleto", 19.7), ("voucher", 1.6), ("debit_card", 1.5), ("card and vouchers", 2.1)]
)
"""How an order is paid. The shares of payment rows follow from it: a mixed order has two to five rows."""
_INSTALMENTS = Weighted(
    [(1, 33), (2, 16), (3, 13.6), (4, 9.2), (5, 6.8), (6, 5.1), (7, 2.1), (8, 5.5), (9, 0.8), (10, 6.9), (12, 0.3)]
)


@dataclass(frozen=True, slots=True)
class Payment:
    """One payment of an order, in reais."""

    kind: str
    installments: int
    value: float


def draw_payments(dice: Dice, total: float) -> list[Payment]:
    """Payments that sum to the order's total (to the cent)."""
    kind = dice.weighted(_KINDS)
    if kind == "credit_card":
        return [Payment(kind, _instalments(dice, total), total)]
    if kind == "voucher":
        return _split(dice, total, 1 if dice.chance(0.7) else 2)
    if kind == "card and vouchers":
        card = round(total * (0.35 + 0.5 * dice.random()), 2)
        vouchers = 1 + (dice.chance(0.4)) + (dice.chance(0.15)) + (dice.chance(0.1))
        return [Payment("credit_card", _instalments(dice, card), card), *_split(dice, round(total - card, 2), vouchers)]
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
