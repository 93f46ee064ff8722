"""The figures that the database is made to match.

Where they come from: public descriptions of the Brazilian E-Commerce data set by Olist (99,441
orders of 2016 to 2018, described in many public notebooks and in the data set's own page), rounded.
They are facts about that data set; no row and no sentence of it is in this package. `describe`
measures each of them on a built database, and the tests hold them within a tolerance at 20,000
orders.
"""

from datetime import date

from plumbline_commerce.database.dice import SHARES


def by_month(name: str) -> dict[tuple[int, int], float]:
    """A table of `shares.yaml` by year and month."""
    return {(int(month[:4]), int(month[5:])): number for month, number in SHARES[name].items()}


SCORE_SHARES = {1: 0.115, 2: 0.032, 3: 0.082, 4: 0.193, 5: 0.578}
"""Share of reviews with each score."""

MESSAGE_SHARES = {1: 0.76, 2: 0.68, 3: 0.43, 4: 0.31, 5: 0.36}
"""Share of the reviews with a score that have a message."""

MESSAGE_SHARE = 0.41
"""Share of all reviews that have a message."""

PAYMENT_SHARES = {"credit_card": 0.74, "boleto": 0.19, "voucher": 0.055, "debit_card": 0.015}
"""Share of payment rows of each type."""

STATE_SHARES: dict[str, float] = SHARES["states"]
"""Share of customers (one per order) in each state."""

UNDELIVERED_SHARE = 0.03
"""Share of orders whose status is not `delivered`."""

LATE_SHARE = 0.08
"""Share of delivered orders that arrived on a later calendar day than estimated."""

DELIVERY_MEDIAN_DAYS = 10
"""Median of the days from purchase to delivery."""

LATE_MEAN_SCORE = 2.6
ON_TIME_MEAN_SCORE = 4.29
"""Mean review score of delivered orders. Late orders are described with 2.6; given the score shares
and the shares of late and undelivered orders, the mean of the others follows."""

PRICE_MEDIAN, PRICE_MEAN = 75.0, 120.0
FREIGHT_MEDIAN, FREIGHT_MEAN = 16.3, 20.0
"""Per item, in reais."""

MULTI_ITEM_SHARE = 0.10
"""Share of orders with more than one item."""

REPEAT_SHARE = 0.03
"""Share of people (customer_unique_id) with more than one order."""

MESSAGE_MEDIAN_CHARS = 68
MESSAGE_MEDIAN_WORDS = 12
MESSAGE_P90_CHARS = 188
MESSAGE_P99_CHARS = 200
MESSAGE_MAX_CHARS = 204
"""Length of review messages."""

NEWLINE_SHARE = 0.105
QUOTE_SHARE = 0.007
"""Share of messages with a raw newline, and with a double quote."""

COMPLAINT_SHARES = {"delivery": 0.59, "product": 0.11, "service": 0.11, "price": 0.11}
"""Main complaint of messages with one or two stars; the rest names no topic."""

FIRST_DAY = date(2016, 9, 4)
LAST_DAY = date(2018, 10, 17)
"""First purchase, and the day after which nothing is recorded as delivered."""

MONTH_WEIGHTS = by_month("months")
"""Orders bought in each month."""
