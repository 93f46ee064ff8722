"""Tables that our own SQL computes from the shop's orders, each of another slice: a period, a state, a category."""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from plumbline.seeds import generator
from plumbline_commerce.insights.table import (
    MONTHS,
    ORDERED,
    Table,
    dimensions,
    kinds,
    measures,
    row_named,
    table_of,
)
from plumbline_commerce.job import Shop, rows_of
from plumbline_commerce.options import CommerceOptions

LEAST_ORDERS = {"all": 12, "negative": 5}
"""That a row of a table is computed from."""
MOST_ROWS = 7
FEWEST_ROWS = 3
CLEAR = 1.05
"""How many times the lowest value the highest must be, or there is nothing to say about a table."""
SHOP_MONTHS = tuple(f"{year}-{month:02d}" for year in (2017, 2018) for month in range(1, 13))[:20]
"""From January 2017 to August 2018, the months in which orders are many."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Which orders a table is about: months from the first to the last, and a row of another dimension or none."""

    months: tuple[str, str]
    within: tuple[str, str] | None
    """The dimension and its row, for example ("estado", "SP")."""

    @property
    def said(self) -> str:
        """In Portuguese, for the table's title."""
        told = [f"só {row_named(*self.within).name}"] if self.within else []
        return ", ".join([*told, period(*self.months)])


def period(first: str, last: str) -> str:
    """A span of months in Portuguese: a year, a half, a quarter, or from month to month."""
    (year, begin), (last_year, end) = ((int(part) for part in month.split("-")) for month in (first, last))
    if year == last_year and (begin, end) == (1, 12):
        return str(year)
    if year == last_year and begin % 3 == 1 and end - begin == 2:
        return f"{begin // 3 + 1}º trimestre de {year}"
    if year == last_year and begin in (1, 7) and end - begin == 5:
        return f"{begin // 6 + 1}º semestre de {year}"
    start = MONTHS[begin - 1] + ("" if year == last_year else f" de {year}")
    return f"{start} a {MONTHS[end - 1]} de {last_year}"


COLUMNS = (
    "customer_state, customer_city, product_category, payment_type, installments, order_date, order_value, "
    "freight_value, delivery_days, delay_days, review_score, sentiment, complaint_category, churn_risk"
)
"""Of `orders_enriched` that figures are computed from."""


def orders(shop: Shop) -> sqlite3.Connection:
    """The orders that count, in memory with the columns that matter: hundreds of queries are six times as fast."""
    scope = " WHERE sentiment = 'negativo'" if shop.options.insights_from == "negative" else ""
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE orders_enriched ({COLUMNS})")
    rows = rows_of(shop.database, f"SELECT {COLUMNS} FROM orders_enriched{scope}")  # noqa: S608 - our own names
    places = ", ".join("?" * len(COLUMNS.split(", ")))
    insert = f"INSERT INTO orders_enriched VALUES ({places})"  # noqa: S608 - question marks
    connection.executemany(insert, (tuple(row.values()) for row in rows))
    connection.row_factory = sqlite3.Row
    return connection


def tables(connection: sqlite3.Connection, options: CommerceOptions, kind: str) -> Iterator[tuple[Slice, Table]]:
    """The tables of one kind in a seeded order, each of another slice, those with too little to say left out."""
    slices = _slices(kind)
    rng = generator(options.seed, "insights", kind)
    for index in rng.permutation(len(slices)):
        query, arguments = _query(kind, slices[index])
        rows = connection.execute(query, [*arguments, LEAST_ORDERS[options.insights_from]]).fetchall()
        if (table := _table(kind, rows, rng)) is not None:
            yield slices[index], table


def _slices(kind: str) -> list[Slice]:
    about = kinds()[kind]
    within: list[tuple[str, str] | None] = [None]
    within += [(name, row) for name in about["narrowed"] for row in list(dimensions()[name]["rows"])[:10]]
    return [Slice(span, choice) for span in _spans(monthly=about["rows"] == "mes") for choice in within]


def _spans(*, monthly: bool) -> list[tuple[str, str]]:
    """Periods: of tables by month four that do not overlap, or two would share rows; else quarters, halves, years."""
    if monthly:
        return [(SHOP_MONTHS[first], SHOP_MONTHS[last]) for first, last in ((0, 3), (4, 9), (10, 14), (15, 19))]
    spans = [(SHOP_MONTHS[0], SHOP_MONTHS[-1])]
    for length in (3, 6, 12):
        begins = range(0, len(SHOP_MONTHS) - length + 1, length)
        spans += [(SHOP_MONTHS[begin], SHOP_MONTHS[begin + length - 1]) for begin in begins]
    return spans


def _query(kind: str, piece: Slice) -> tuple[str, list[str]]:
    """The figures of a slice, a row for each of the table's, and the values of its parameters but the last."""
    about = kinds()[kind]
    dimension = dimensions()[about["rows"]]
    where, arguments = [about["where"], "substr(order_date, 1, 7) BETWEEN ? AND ?"], [*piece.months]
    if piece.within is not None:
        where.append(f"({dimensions()[piece.within[0]]['expression']}) = ?")
        arguments.append(piece.within[1])
    order = dimension.get("sort", "entity" if about["rows"] == "mes" else "orders DESC")
    figures = ", ".join(f"{measures()[key].sql} AS {key}" for key in about["measures"])
    return (
        f"SELECT {dimension['expression']} AS entity, COUNT(*) AS orders, {figures} FROM orders_enriched "  # noqa: S608
        f"WHERE {' AND '.join(where)} GROUP BY entity HAVING orders >= ? ORDER BY {order}, entity"
    ), arguments


def _table(kind: str, found: Sequence[sqlite3.Row], rng: np.random.Generator) -> Table | None:
    """The table of a slice; None where it has too few rows, or rows that are nearly the same."""
    about = kinds()[kind]
    kept = _some([row for row in found if _is_known(about["rows"], row["entity"])], about["rows"], rng)
    rounded = [[_rounded(row[key], measures()[key].decimals) for key in about["measures"]] for row in kept]
    reference = {
        "kind": kind,
        "rows": [row["entity"] for row in kept],
        "measures": about["measures"],
        "values": rounded,
    }
    table = table_of(reference)
    return table if len(kept) >= FEWEST_ROWS and _says_something(table) else None


def _rounded(value: float, decimals: int) -> float:
    return round(value, decimals) if decimals else int(value)


def _is_known(dimension: str, row: str | None) -> bool:
    return dimension == "mes" or row in dimensions()[dimension]["rows"]


def _some(rows: Sequence[sqlite3.Row], dimension: str, rng: np.random.Generator) -> list[sqlite3.Row]:
    """At most seven rows, shuffled unless they have an order: the first one is then no better a guess than another."""
    size = min(len(rows), int(rng.integers(FEWEST_ROWS + 1, MOST_ROWS + 1)))
    if dimension in ORDERED:
        return list(rows[:MOST_ROWS])
    return [rows[index] for index in rng.choice(len(rows), size, replace=False)] if rows else []


def _says_something(table: Table) -> bool:
    """The measure in question has one highest and one lowest row, clearly apart, and nothing is 0."""
    values = sorted(table.column(table.about))
    everything = [value for row in table.values for value in row]
    distinct = values[0] < values[1] and values[-2] < values[-1]
    return min(everything) > 0 and distinct and values[-1] >= CLEAR * values[0]
