"""Tables that our own SQL computes from the shop's orders, each of another slice; a prompt and a
gold answer for each.

A slice is a period, and a state, a category or another row or none. The gold answer is the oracle's
analysis: sentences of templates, filled with what is true of the table.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from plumbline.seeds import generator
from plumbline_commerce.insights.rubric import judge
from plumbline_commerce.insights.table import (
    ORDERED,
    InsightTable,
    capitalise,
    data,
    find_row,
    measures,
    render_table,
    table_of,
    write_value,
)
from plumbline_commerce.job import (
    Pair,
    Shop,
    brazilian,
    pick,
    rows_of,
    split_evenly,
    split_sizes,
    too_few_error,
)
from plumbline_commerce.options import CommerceOptions

TRIES = 50
"""Gold answers to a table; of a thousand tables, two or three need a second."""
FAR_APART = 1.5
"""From which ratio on "so many times" says more than a percentage."""
LEAST_ORDERS = {"all": 12, "negative": 5}
"""That a row of a table is computed from."""
MOST_ROWS = 7
FEWEST_ROWS = 3
CLEAR = 1.05
"""How many times the lowest value the highest must be, or there is nothing to say about a table."""
SHOP_MONTHS = tuple(f"{year}-{month:02d}" for year in (2017, 2018) for month in range(1, 13))[:20]
"""From January 2017 to August 2018, the months in which orders are many."""


@dataclass(frozen=True, slots=True)
class OrderSlice:
    """Which orders a table is about: months from the first to the last, and a row of another
    dimension or none."""

    months: tuple[str, str]
    within: tuple[str, str] | None
    """The dimension and its row, for example ("estado", "SP")."""

    @property
    def title_text(self) -> str:
        """In Portuguese, for the table's title."""
        told = [f"só {find_row(*self.within).name}"] if self.within else []
        return ", ".join([*told, period(*self.months)])


def period(first: str, last: str) -> str:
    """A span of months in Portuguese: a year, a half, a quarter, or from month to month."""
    (year, begin), (last_year, end) = (
        (int(part) for part in month.split("-")) for month in (first, last)
    )
    if year == last_year and (begin, end) == (1, 12):
        return str(year)
    if year == last_year and begin % 3 == 1 and end - begin == 2:
        return f"{begin // 3 + 1}º trimestre de {year}"
    if year == last_year and begin in (1, 7) and end - begin == 5:
        return f"{begin // 6 + 1}º semestre de {year}"
    months = data("names")["mes"]["months"]
    start = months[begin - 1] + ("" if year == last_year else f" de {year}")
    return f"{start} a {months[end - 1]} de {last_year}"


def pairs(shop: Shop) -> dict[str, list[Pair]]:
    """The pairs of each split. No two are of the same kind and the same slice, and each split has
    its share of kinds.

    The kinds are as even as the shop allows: one table of each in turn, for as long as a kind has
    another.

    Raises:
        DataError: the shop has too few orders for so many tables.
    """
    options, count = shop.options, shop.options.count("insights")
    negative = options.insights_from == "negative"
    names = [
        name
        for name, about in data("kinds").items()
        if not negative or about.get("negative") != "não"
    ]
    order = generator(options.seed, "insights", "kinds").permutation(len(names))
    found: list[tuple[OrderSlice, InsightTable]] = []
    with closing(orders(shop)) as connection:
        left = {names[index]: tables(connection, options, names[index]) for index in order}
        while len(found) < count and left:
            for name, kind in list(left.items()):
                if (table := next(kind, None)) is None:
                    del left[name]
                elif len(found) < count:
                    found.append(table)
                    shop.progress("insights", len(found), count)
    if len(found) < count:
        raise too_few_error(count, f"its orders make {len(found)} different tables")
    kinds, rng = [table.kind for _, table in found], generator(options.seed, "insights", "split")
    dealt = split_evenly(split_sizes(count), kinds, rng)
    return {
        name: [_pair(options, index, *found[index]) for index in members]
        for name, members in dealt.items()
    }


def _pair(options: CommerceOptions, index: int, piece: OrderSlice, table: InsightTable) -> Pair:
    rng = generator(options.seed, "insights", "write", index)
    about = data("kinds")[table.kind]
    only = " (só pedidos com avaliação negativa)" if options.insights_from == "negative" else ""
    question = pick(about["questions"], rng)
    asked = (
        f"{about['title']}{only}, {piece.title_text}\n{render_table(table)}\nPergunta: {question}"
    )
    # Where figures happen to be equal, an answer may read as another claim; it is written again.
    texts = (analysis(table, rng) for _ in range(TRIES))
    gold = next((text for text in texts if judge(table, text)[1].total == 1), None)
    assert gold is not None, f"no gold answer to {table} earns 1"
    return Pair(
        id=f"insights-{index:04d}",
        prompt=[
            {"role": "system", "content": data("phrases")["system"][options.instructions]},
            {"role": "user", "content": asked},
        ],
        gold=gold,
        reference={
            "kind": table.kind,
            "rows": table.rows,
            "measures": table.measures,
            "values": table.values,
        },
        about={"kind": table.kind, "slice": piece.title_text},
    )


COLUMNS = (
    "customer_state, customer_city, product_category, payment_type, installments, order_date, "
    "order_value, "
    "freight_value, delivery_days, delay_days, review_score, sentiment, complaint_category, "
    "churn_risk"
)
"""Of `orders_enriched` that figures are computed from."""


def orders(shop: Shop) -> sqlite3.Connection:
    """The orders that count, in memory with the columns that matter: hundreds of queries are six
    times as fast."""
    scope = " WHERE sentiment = 'negativo'" if shop.options.insights_from == "negative" else ""
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE orders_enriched ({COLUMNS})")
    rows = rows_of(shop.database, f"SELECT {COLUMNS} FROM orders_enriched{scope}")  # noqa: S608 - our own names
    places = ", ".join("?" * len(COLUMNS.split(", ")))
    insert = f"INSERT INTO orders_enriched VALUES ({places})"  # noqa: S608 - question marks
    connection.executemany(insert, (tuple(row.values()) for row in rows))
    connection.row_factory = sqlite3.Row
    return connection


def tables(
    connection: sqlite3.Connection, options: CommerceOptions, kind: str
) -> Iterator[tuple[OrderSlice, InsightTable]]:
    """The tables of one kind in a seeded order, each of another slice, those with too little to say
    left out."""
    about = data("kinds")[kind]
    within = [
        None,
        *(
            (name, row)
            for name in about["narrowed"]
            for row in list(data("names")[name]["rows"])[:10]
        ),
    ]
    slices = [
        OrderSlice(span, choice)
        for span in _spans(monthly=about["rows"] == "mes")
        for choice in within
    ]
    rng = generator(options.seed, "insights", kind)
    for index in rng.permutation(len(slices)):
        query, arguments = _query(kind, slices[index])
        rows = connection.execute(
            query, [*arguments, LEAST_ORDERS[options.insights_from]]
        ).fetchall()
        if (table := _table(kind, rows, rng)) is not None:
            yield slices[index], table


def _spans(*, monthly: bool) -> list[tuple[str, str]]:
    """Periods: of tables by month four that do not overlap, or two would share rows; else quarters,
    halves, years."""
    if monthly:
        return [
            (SHOP_MONTHS[first], SHOP_MONTHS[last])
            for first, last in ((0, 3), (4, 9), (10, 14), (15, 19))
        ]
    spans = [(SHOP_MONTHS[0], SHOP_MONTHS[-1])]
    for length in (3, 6, 12):
        begins = range(0, len(SHOP_MONTHS) - length + 1, length)
        spans += [(SHOP_MONTHS[begin], SHOP_MONTHS[begin + length - 1]) for begin in begins]
    return spans


def _query(kind: str, piece: OrderSlice) -> tuple[str, list[str]]:
    """The figures of a slice, a row for each of the table's, and the values of its parameters but
    the last."""
    about = data("kinds")[kind]
    dimension = data("names")[about["rows"]]
    where, arguments = [about["where"], "substr(order_date, 1, 7) BETWEEN ? AND ?"], [*piece.months]
    if piece.within is not None:
        where.append(f"({data('names')[piece.within[0]]['expression']}) = ?")
        arguments.append(piece.within[1])
    order = dimension.get("sort", "entity" if about["rows"] == "mes" else "orders DESC")
    figures = ", ".join(f"{measures()[key].sql} AS {key}" for key in about["measures"])
    return (
        f"SELECT {dimension['expression']} AS entity, COUNT(*) AS orders, {figures} FROM orders_enriched "  # noqa: S608
        f"WHERE {' AND '.join(where)} GROUP BY entity HAVING orders >= ? ORDER BY {order}, entity"
    ), arguments


def _table(
    kind: str, found: Sequence[sqlite3.Row], rng: np.random.Generator
) -> InsightTable | None:
    """The table of a slice; None where it has too few rows, or rows that are nearly the same.

    It has at most seven rows, shuffled unless they have an order: the first one is then no better a
    guess than another. The measure in question has one highest and one lowest row, clearly apart,
    and nothing is 0.
    """
    about = data("kinds")[kind]
    dimension = about["rows"]
    rows = [
        row
        for row in found
        if dimension == "mes" or row["entity"] in data("names")[dimension]["rows"]
    ]
    size = min(len(rows), int(rng.integers(FEWEST_ROWS + 1, MOST_ROWS + 1)))
    if dimension in ORDERED:
        rows = rows[:MOST_ROWS]
    elif rows:
        rows = [rows[index] for index in rng.choice(len(rows), size, replace=False)]
    if len(rows) < FEWEST_ROWS:
        return None
    # int of a count, which rounded to 0 decimals would be a float
    places = {key: measures()[key].decimals or None for key in about["measures"]}
    table = table_of(
        {
            "kind": kind,
            "rows": [row["entity"] for row in rows],
            "measures": about["measures"],
            "values": [[round(row[key], digits) for key, digits in places.items()] for row in rows],
        }
    )
    values = sorted(table.column(table.about))
    distinct = values[0] < values[1] and values[-2] < values[-1] and values[-1] >= CLEAR * values[0]
    return table if distinct and min(map(min, table.values)) > 0 else None


def analysis(table: InsightTable, rng: np.random.Generator) -> str:
    """Three to five statements in prose or as a list: both ends, the gap, what puts it in
    proportion, what to do."""
    slots, column = facts(table), table.column(table.about)
    together = rng.random() < 0.35
    names = ["ends"] if together else ["high", "low"] if rng.random() < 0.5 else ["low", "high"]
    if rng.random() < 0.5:
        names.append("difference")
    elif max(column) / min(column) >= FAR_APART:
        names.append("ratio")
    else:
        names.append("difference" if table.columns[table.about].unit == "percent" else "percentage")
    # Rows with an order went from the first to the last, where that is not the gap over again.
    ends = {table.high(table.about), table.low(table.about)}
    moved = table.ordered and column[0] != column[-1] and ends != {0, len(column) - 1}
    names.append("trend" if moved and rng.random() < 0.7 else "mean")
    if together and "share" in slots:
        names.append("share")
    sentences = [pick(data("phrases")[name], rng).format(**slots) for name in names]
    advice = pick(data("phrases")["advice"], rng)
    # What to do where the measure in question is worst; now and then what to learn from where it is
    # best.
    which, row = ("like", "best") if rng.random() < 0.2 else ("at", "worst")
    action = pick(data("kinds")[table.kind][which], rng).format(em=slots[f"em_{row}"], o=slots[row])
    said = [*map(capitalise, sentences), capitalise(advice.format(action=action))]
    return "\n".join(f"- {sentence}" for sentence in said) if rng.random() < 0.5 else " ".join(said)


def facts(table: InsightTable) -> dict[str, str]:
    """What the templates may say of a table, by slot."""
    measure, column = table.columns[table.about], table.column(table.about)
    high, low, mean = table.high(table.about), table.low(table.about), sum(column) / len(column)
    odd = max(range(len(column)), key=lambda row: abs(column[row] - mean))
    best, worst = (high, low) if measure.good == "high" else (low, high)
    rows = {
        "hi": high,
        "lo": low,
        "best": best,
        "worst": worst,
        "first": 0,
        "last": len(column) - 1,
        "odd": odd,
    }
    slots = {
        "m": measure.name,
        "the": measure.the,
        "da": f"d{measure.the}",
        "na": f"n{measure.the}",
    }
    for slot, row in rows.items():
        name = table.named[row]
        slots |= {
            slot: name.o,
            f"em_{slot}": name.em,
            f"v_{slot}": write_value(column[row], measure, prose=True),
        }
        slots |= {
            f"do_{slot}": _contract_preposition("de", name.o),
            f"ao_{slot}": _contract_preposition("a", name.o),
        }
    slots |= {
        "mean": write_value(mean, measure, prose=True),
        "gap": _difference(column[high] - column[low], table),
        "times": f"{brazilian(column[high] / column[low], 1)} vezes",
        "percent": f"{brazilian(100 * (column[high] / column[low] - 1), 0)}%",
        "step": _difference(abs(column[-1] - column[0]), table),
        "side": "acima" if column[odd] > mean else "abaixo",
    }
    slots["moved"], slots["move"] = (
        ("subiu", "alta") if column[-1] > column[0] else ("caiu", "queda")
    )
    for index, counted in enumerate(table.columns):
        # the largest row of the table's first count or sum, and its share of the whole
        if counted.additive:
            values, name = table.column(index), table.named[table.high(index)]
            slots |= {
                "large": name.o,
                "em_large": name.em,
                "v_large": write_value(max(values), counted, prose=True),
            }
            slots["share"] = f"{brazilian(100 * max(values) / sum(values), 0)}%"
            slots["total"] = write_value(sum(values), counted, prose=True)
            return slots | {"c": counted.counted or counted.name, "c_name": counted.name}
    return slots


def _contract_preposition(preposition: str, name: str) -> str:
    """A preposition, de or a, before a name that may have an article: "do RJ", "à faixa", "de
    SP"."""
    article, _, rest = name.partition(" ")
    joined = {("de", "o"): "do", ("de", "a"): "da", ("a", "o"): "ao", ("a", "a"): "à"}.get(
        (preposition, article)
    )
    return f"{joined} {rest}" if joined else f"{preposition} {name}"


def _difference(gap: float, table: InsightTable) -> str:
    measure = table.columns[table.about]
    number = brazilian(gap, measure.decimals)
    # "1,3 ponto"
    points = ("ponto", "ponto percentual") if gap < 2 else ("pontos", "pontos percentuais")
    units = {"percent": f"{number} {points[1]}", "mean": f"{number} {points[0]}"}
    return units.get(measure.unit) or write_value(gap, measure, prose=True)
