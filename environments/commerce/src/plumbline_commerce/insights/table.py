"""A small table of figures: what its rows and measures are called, and how its values are written
in Portuguese."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from plumbline.tasks.tables import read_table
from plumbline_commerce.job import brazilian

HERE = Path(__file__).parent
ORDERED = frozenset({"mes", "faixa", "parcelas"})
"""Rows that have an order of their own, so that one may say of them that a figure rises or
falls."""


@dataclass(frozen=True, slots=True)
class InsightRow:
    """What one row is called."""

    name: str
    """As in the table."""
    em: str
    """With its preposition: "no RJ"."""
    o: str
    """As the subject of a sentence: "o RJ"."""
    aliases: tuple[str, ...]
    """Other ways to say it; one in capitals, or with capitals and accents, is meant literally."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A column of figures: a row of `measures.yaml`."""

    head: str
    """Over its column."""
    name: str
    """In prose, without its article."""
    the: str
    """Its article, o or a."""
    sql: str
    unit: str
    """count, money, percent, days or mean."""
    decimals: int
    good: str
    """high or low."""
    additive: bool
    """Whether the sum of its rows, and a row's share of it, mean something."""
    counted: str = ""
    """What a count counts."""
    words: tuple[str, ...]
    """Beginnings of the words by which people mean it; lower case, no accents."""


@dataclass(frozen=True, eq=False)
class InsightTable:
    """Rows, measures and rounded values; what is true of them is computed from these.

    Equal tables are one object (`table_of`), so that what is looked up of a table is looked up by
    identity.
    """

    kind: str
    rows: tuple[str, ...]
    measures: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    """Of each row, one for each measure."""

    @cached_property
    def dimension(self) -> str:
        """What its rows are: estado, mes ..."""
        return str(data("kinds")[self.kind]["rows"])

    @cached_property
    def about(self) -> int:
        """The index of the measure that the question is about."""
        return self.measures.index(data("kinds")[self.kind]["about"])

    @cached_property
    def named(self) -> tuple[InsightRow, ...]:
        """What its rows are called."""
        return tuple(find_row(self.dimension, key) for key in self.rows)

    @cached_property
    def columns(self) -> tuple[Measure, ...]:
        """What its measures are."""
        return tuple(measures()[key] for key in self.measures)

    @cached_property
    def column(self) -> Callable[[int], tuple[float, ...]]:
        """The values of one measure, by row."""
        return tuple(zip(*self.values, strict=True)).__getitem__

    def high(self, measure: int) -> int:
        """The row with the highest value, the first of them where there are several."""
        values = self.column(measure)
        return values.index(max(values))

    def low(self, measure: int) -> int:
        """The row with the lowest value, the first of them where there are several."""
        values = self.column(measure)
        return values.index(min(values))

    @cached_property
    def ordered(self) -> bool:
        """Whether its rows have an order, as months do."""
        return self.dimension in ORDERED


def table_of(reference: Mapping[str, Any]) -> InsightTable:
    """The table of an example's reference."""
    values = tuple(map(tuple, reference["values"]))
    return _table(reference["kind"], tuple(reference["rows"]), tuple(reference["measures"]), values)


@lru_cache(maxsize=1 << 14)
def column_means(table: InsightTable, measure: int) -> tuple[float, ...]:
    """The mean over the rows, and where the table has counts the mean over what they count."""
    column = table.column(measure)
    plain = sum(column) / len(column)
    counts = next(
        (table.column(index) for index, other in enumerate(table.columns) if other.unit == "count"),
        None,
    )
    if counts is None or table.columns[measure].additive or sum(counts) <= 0:
        return (plain,)
    return (
        plain,
        sum(value * count for value, count in zip(column, counts, strict=True)) / sum(counts),
    )


_table = lru_cache(maxsize=4096)(InsightTable)


@cache
def data(name: str) -> Mapping[str, Any]:
    """A table of this folder: `kinds` of tables, `names` of rows by dimension, `phrases` of gold
    answers, `words`."""
    found: Mapping[str, Any] = read_table(HERE / f"{name}.yaml")
    return found


@cache
def measures() -> Mapping[str, Measure]:
    """The measures by their keys."""
    found = {}
    for key, row in read_table(HERE / "measures.yaml").items():
        row |= {
            "decimals": int(row["decimals"]),
            "additive": row["unit"] == "count" or "additive" in row,
        }
        found[key] = Measure(**{**row, "words": tuple(row["words"])})
    return found


@cache
def find_row(dimension: str, key: str) -> InsightRow:
    """What a row is called.

    Raises:
        KeyError: there is no such row in tables of this dimension.
    """
    if dimension == "mes":
        year, number = key.split("-")
        month = data("names")["mes"]["months"][int(number) - 1]
        name = f"{month} de {year}"
        short = f"{month[:3]}/{year}"
        aliases = (
            short,
            f"{month[:3]}/{year[2:]}",
            f"{month}/{year}",
            f"{month}/{year[2:]}",
            f"{number}/{year}",
        )
        return InsightRow(name, f"em {name}", name, (*aliases, key, f"{month} {year}", month))
    row = data("names")[dimension]["rows"][key]
    name = row.get("name", key)
    return InsightRow(name, row["em"], row.get("o", name), tuple(row["aliases"]))


def write_value(value: float, measure: Measure, *, prose: bool = False) -> str:
    """A value of a measure with its unit; in prose a count says what it counts."""
    counts = {"days": " dias", "count": f" {measure.counted}"} if prose else {}
    around = {"money": ("R$ ", ""), "percent": ("", "%")}
    before, behind = around.get(measure.unit, ("", counts.get(measure.unit, "")))
    return f"{before}{brazilian(value, measure.decimals)}{behind}"


def capitalise(text: str) -> str:
    """A sentence, its first letter a capital."""
    return text[0].upper() + text[1:]


def render_table(table: InsightTable) -> str:
    """The table as a prompt shows it: a line of heads, a line for each row, columns apart by a
    bar."""
    head = " | ".join(
        [data("names")[table.dimension]["column"], *(measure.head for measure in table.columns)]
    )
    lines = [
        " | ".join([row.name, *map(write_value, values, table.columns)])
        for row, values in zip(table.named, table.values, strict=True)
    ]
    return "\n".join([head, *lines])


def check(reference: Mapping[str, Any]) -> None:
    """See `plumbline_commerce.job.Job.check`."""
    kind, rows, columns, values = (
        reference.get(key) for key in ("kind", "rows", "measures", "values")
    )
    if not isinstance(kind, str) or kind not in data("kinds"):
        raise ValueError(
            f"the reference's kind is {kind!r}; it should be one of {', '.join(data('kinds'))}"
        )
    if (
        not isinstance(columns, Sequence)
        or not set(columns) <= set(measures())
        or data("kinds")[kind]["about"] not in columns
    ):
        raise ValueError(
            f"the reference's measures are {columns!r}; tables of {kind} have "
            f"{data('kinds')[kind]['measures']}"
        )
    dimension = data("kinds")[kind]["rows"]
    try:
        for row in rows if isinstance(rows, Sequence) else ():
            find_row(dimension, row)
    except (KeyError, ValueError, IndexError, AttributeError, TypeError):
        known = ", ".join(data("names")[dimension]["rows"]) or "months such as 2018-03"
        raise ValueError(
            f"the reference's row {row!r} is no {dimension}; there are {known}"
        ) from None
    well_formed = (
        isinstance(rows, Sequence)
        and isinstance(values, Sequence)
        and len(set(rows)) == len(rows) == len(values) >= 2
        and all(isinstance(row, Sequence) and len(row) == len(columns) for row in values)
        and all(
            isinstance(value, int | float) and abs(value) < 1e12 for row in values for value in row
        )
    )
    if not well_formed:
        raise ValueError(
            "the reference needs at least two different rows, and a number for each row and measure"
        )
