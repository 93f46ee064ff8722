"""What a gold query returns on one database, with what its order and its limit leave open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from plumbline.errors import DataError
from plumbline_commerce.sql_qa.comparison import Tie, matches, normal
from plumbline_commerce.sql_qa.engine import Limits, Refusal, Result, Row, Value, run
from plumbline_commerce.sql_qa.gate import NAMES, Query, read_query

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope

WITHOUT_LIMIT = Limits(steps=100_000_000, seconds=20.0, rows=20_000, result=20_000_000)
"""For gold queries only: all the rows from which LIMIT takes some."""

DATES = ("date", "timestamp", "_at")
"""How the names of columns end that hold a date."""
PARTS = {"%Y": 4, "%G": 4, "%j": 3, "%w": 1, "%u": 1} | dict.fromkeys(
    ("%m", "%d", "%H", "%M", "%S", "%W", "%U", "%V"), 2
)
"""Digits of what strftime cuts."""
CUTS = {("1", "4"): 4} | dict.fromkeys([(start, "2") for start in ("6", "9", "12", "15", "18")], 2) | {("9", ""): 2}
"""Digits of what substr cuts, by start and length: of 2017-08-03 14:05:09."""


@dataclass(frozen=True, slots=True)
class Gold:
    """The result of a gold query on one database."""

    result: Result
    rows: tuple[Row, ...]
    """Its rows, `comparison.normal`."""
    ties: tuple[Tie, ...]
    names: frozenset[str]
    """The schema's tables and columns that the query names."""
    cuts: tuple[int, ...]
    """Which of its columns hold a part of a date (see `comparison.normal`)."""


@lru_cache(maxsize=1 << 14)
def gold_of(database: Path, sql: str) -> Gold:
    """Run a gold query.

    Raises:
        DataError: it does not pass the gate, does not run or returns nothing, or its ORDER BY cannot be taken apart.
    """
    query = read_query(sql)
    result = query if isinstance(query, Refusal) else run(database, query.sql)
    if isinstance(query, Refusal) or isinstance(result, Refusal):
        said = f"{result.cause}: {result.detail}" if isinstance(result, Refusal) else ""
        raise DataError(f"the gold query {sql} gives no result on {database} ({said})", "correct it")
    cuts = date_cuts(query, result.columns)
    rows = normal(result.rows, cuts)
    ties = _ties(database, query, rows, cuts)
    if not matches(rows, ties, ordered=True):
        raise DataError(f"without its LIMIT the gold query {sql} gives other rows", "write its limit or its order anew")
    return Gold(result, rows, ties, query.names, cuts)


def check_gold(sql: str, paths: Sequence[Path]) -> None:
    """Check that a gold query asks something: what it returns is not the same wherever it is asked.

    Raises:
        DataError: it gives no result; or on all databases no row, nothing but NULL, or the same rows.
    """
    golds = [gold_of(path, sql) for path in paths]
    values = [value for gold in golds for row in gold.rows for value in row]
    first, *others = golds
    what = ""
    if not values:
        what = "returns no row"
    elif all(value is None for value in values):
        what = "returns nothing but NULL"
    elif others and all(
        len(other.result.columns) == len(first.result.columns) and matches(other.rows, first.ties, ordered=False)
        for other in others
    ):
        what = "returns the same rows"
    if what:
        fix = "ask for what differs from shop to shop, or leave the record out"
        raise DataError(f"the gold query {sql} {what} on each of {len(paths)} databases: it asks nothing", fix)


def date_cuts(query: Query, columns: Sequence[str]) -> tuple[int, ...]:
    """For each column of a query's result, the digits of the part of a date that it holds, or 0."""
    from sqlglot import exp
    from sqlglot.optimizer.scope import build_scope

    scope = build_scope(query.tree) if query.tree.find(exp.TimeToStr, exp.Substring) else None
    items = query.tree.selects
    if scope is None:
        return (0,) * len(columns)
    if any(item.is_star for item in items):
        items = [exp.column(name) for name in columns]
    return tuple(_digits(item, scope) for item in items)


def _digits(item: "exp.Expr", scope: "Scope") -> int:
    """The digits of the part of a date that an expression is, or 0; SQLite has dates as texts."""
    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope

    item = item.unalias()
    if isinstance(item, exp.Paren | exp.Cast | exp.Min | exp.Max | exp.Coalesce | exp.Window | exp.Lag | exp.Lead):
        return _digits(item.this, scope)
    if isinstance(item, exp.Add | exp.Mul) and item.expression.is_int:  # + 0 and * 1 make a number of a text
        return _digits(item.this, scope)
    if isinstance(item, exp.TimeToStr):
        return PARTS.get(item.text("format"), 0)
    if isinstance(item, exp.Substring):
        cut = (item.text("start"), item.text("length"))
        dated = any(column.name.lower().endswith(DATES) for column in item.this.find_all(exp.Column))
        return CUTS.get(cut, 0) if dated else 0
    if isinstance(item, exp.Column):
        inner = [scope.sources[item.table]] if item.table in scope.sources else scope.sources.values()
        return max((_digits_named(item.name, source) for source in inner if isinstance(source, Scope)), default=0)
    return 0


def _digits_named(name: str, source: "Scope") -> int:
    """The digits of the part of a date that a column of a subquery is, or 0."""
    from sqlglot import exp

    select = source.expression
    while isinstance(select, exp.SetOperation):  # its first SELECT names the columns
        select = select.this
    if not isinstance(select, exp.Select):
        return 0
    names = source.outer_columns or [item.alias_or_name for item in select.selects]
    found = 0
    for item, known in zip(select.selects, names, strict=False):
        if known.lower() == name.lower():
            return _digits(item, source)
        if item.is_star:
            found = max(found, _digits(exp.column(name), source))
    return found


def _ties(database: Path, query: Query, rows: tuple[Row, ...], cuts: Sequence[int]) -> tuple[Tie, ...]:
    """The rows of a result, those that its ORDER BY cannot tell apart together."""
    if not rows:
        return ()
    tree = query.tree.copy()
    order, limit, offset = (tree.args.get(name) for name in ("order", "limit", "offset"))
    wide = len(rows[0])
    keys = _keys(tree, [item.this for item in order.expressions], wide) if order is not None else []
    if limit is None and not keys:
        return (Tie(rows, len(rows)),)
    for clause in ("limit", "offset"):
        tree.set(clause, None)
    everything = run(database, tree.sql(dialect="sqlite"), WITHOUT_LIMIT)
    if isinstance(everything, Refusal):
        raise DataError(f"{query.sql} cannot be run without its limit: {everything.detail}", "write it more simply")
    start = int(offset.expression.name) if offset is not None and offset.expression.is_int else 0
    end, at, ties = start + len(rows), 0, []
    for _, tied in groupby(everything.rows, key=lambda row: tuple(_rounded(row[key]) for key in keys)):
        members = normal((row[:wide] for row in tied), cuts)
        take = min(end, at + len(members)) - max(start, at)
        if take > 0:
            ties.append(Tie(members, take))
        at += len(members)
    return tuple(ties)


def _rounded(value: Value) -> Value:
    """A sort key without what the order of additions leaves in its last digits."""
    return float(f"{value:.9g}") if isinstance(value, float) else value


def _keys(tree: "exp.Query", ordered_by: Sequence["exp.Expr"], wide: int) -> list[int]:
    """Where the values stand that a query is ordered by; those that it does not return are added at its end."""
    from sqlglot import exp

    items = list(tree.selects)
    names = [item.alias_or_name.lower() for item in items]
    plain = [item.unalias() for item in items]
    starred = any(item.is_star for item in items)
    places = []
    for key in ordered_by:
        if isinstance(key, exp.Literal) and not key.is_string:
            places.append(int(key.name) - 1)
        elif not starred and isinstance(key, exp.Column) and not key.table and key.name.lower() in names:
            places.append(names.index(key.name.lower()))
        elif not starred and key in plain:
            places.append(plain.index(key))
        elif isinstance(tree, exp.Select) and tree.args.get("distinct") is None:
            aliased = dict(zip(names, plain, strict=True))
            tree.select(exp.alias_(key.transform(_written_out, aliased), f"key_{wide}"), copy=False)
            places.append(wide)
            wide += 1
        else:
            raise DataError(f"{tree.sql(dialect='sqlite')} is ordered by what it does not return", "return it as well")
    return places


def _written_out(node: "exp.Expr", aliased: Mapping[str, "exp.Expr"]) -> "exp.Expr":
    """What an alias stands for, where a node is one: ORDER BY knows those of the SELECT list, and the list does not."""
    from sqlglot import exp

    is_alias = isinstance(node, exp.Column) and not node.table and node.name.lower() not in NAMES
    return aliased[node.name.lower()].copy() if is_alias and node.name.lower() in aliased else node
