"""The figures that the database is made to match.

Where they come from: public descriptions of the Brazilian E-Commerce data set by Olist (99,441 orders of 2016 to 2018,
described in many public notebooks and in the data set's own page), rounded. They are facts about that data set; no
row and no sentence of it is in this package. `describe` measures each of them on a built database, and the tests hold
them within a tolerance at 20,000 orders.
"""

from datetime import date

SCORE_SHARES = {1: 0.115, 2: 0.032, 3: 0.082, 4: 0.193, 5: 0.578}
"""Share of reviews with each score."""

MESSAGE_SHARES = {1: 0.76, 2: 0.68, 3: 0.43, 4: 0.31, 5: 0.36}
"""Share of the reviews with a score that have a message."""

MESSAGE_SHARE = 0.41
"""Share of all reviews that have a message."""

PAYMENT_SHARES = {"credit_card": 0.74, "boleto": 0.19, "voucher": 0.055, "debit_card": 0.015}
"""Share of payment rows of each type."""

STATE_SHARES = {
    "SP": 0.420,
    "RJ": 0.129,
    "MG": 0.117,
    "RS": 0.055,
    "PR": 0.051,
    "SC": 0.037,
    "BA": 0.034,
    "DF": 0.0215,
    "ES": 0.0204,
    "GO": 0.0203,
    "PE": 0.0166,
    "CE": 0.0134,
    "PA": 0.0098,
    "MT": 0.0091,
    "MA": 0.0075,
    "MS": 0.0072,
    "PB": 0.0054,
    "PI": 0.0050,
    "RN": 0.0049,
    "AL": 0.0042,
    "SE": 0.0035,
    "TO": 0.0028,
    "RO": 0.0025,
    "AM": 0.0015,
    "AC": 0.0008,
    "AP": 0.0007,
    "RR": 0.0005,
}
"""Share of customers (one per order) in each state."""

UNDELIVERED_SHARE = 0.03
"""Share of orders whose status is not `delivered`."""

LATE_SHARE = 0.08
"""Share of delivered orders that arrived on a later calendar day than estimated."""

DELIVERY_MEDIAN_DAYS = 10
"""Median of the days from purchase to delivery."""

LATE_MEAN_SCORE = 2.6
ON_TIME_MEAN_SCORE = 4.29
"""Mean review score of delivered orders. Late orders are described with 2.6; given the score shares and the shares of
late and undelivered orders, the mean of the others follows."""

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

MONTH_WEIGHTS = {
    (2016, 9): 4,
    (2016, 10): 324,
    (2016, 12): 1,
    (2017, 1): 800,
    (2017, 2): 1780,
    (2017, 3): 2680,
    (2017, 4): 2400,
    (2017, 5): 3700,
    (2017, 6): 3250,
    (2017, 7): 4030,
    (2017, 8): 4330,
    (2017, 9): 4290,
    (2017, 10): 4630,
    (2017, 11): 7540,
    (2017, 12): 5670,
    (2018, 1): 7270,
    (2018, 2): 6730,
    (2018, 3): 7210,
    (2018, 4): 6940,
    (2018, 5): 6870,
    (2018, 6): 6170,
    (2018, 7): 6290,
    (2018, 8): 6510,
    (2018, 9): 16,
    (2018, 10): 4,
}
"""Orders bought in each month."""
