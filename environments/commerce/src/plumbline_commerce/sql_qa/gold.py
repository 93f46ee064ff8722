"""What a gold query returns on one database, with what its order and its limit leave open.

Whether two results say the same, as the Spider test suite has it (Zhong et al. 2020,
arXiv:2010.02840).

Rows are bags, in any order unless the question asks for one; columns may stand in any order; rows
that tie at a boundary of the gold result may stand for one another. Values are equal if they are
near: NULL is NULL, integers are exact among one another, and where one is a float the tolerance
follows its size (`tolerance`). Near is not transitive; results whose values lie that close to one
another are paired in the order of their size.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from plumbline.errors import DataError
from plumbline_commerce.sql_qa.engine import QueryLimits, QueryRefusal, QueryResult, Row, Value, run
from plumbline_commerce.sql_qa.gate import NAMES, Query, read_query

RELATIVE = 1e-4
HALF_CENT = 5e-3
"""Half a unit of the second decimal, to which people round what is 1 or more: money, means,
percentages."""
FRACTION = 5e-5
"""Half a unit of the fourth decimal, to which people round what is below 0.1: shares."""
SMALL = 0.05
"""Of what is so small that the fourth decimal is its first digit: 0 says another thing."""
NOISE = 1e-9
"""What the order of additions leaves of 0."""
TRIES = 400
"""Partial column orders that are tried at least: more than the 325 of five columns."""
WORK = 100_000
"""Rows looked at in all tries together, where they are few."""
PAIRS = 40_000
"""Pairs of rows that are matched one with another; of more, only the order of size is tried."""


@dataclass(frozen=True, slots=True)
class Tie:
    """Rows of a result that may stand for one another, and how many of them it has."""

    rows: tuple[Row, ...]
    take: int


def normalise_rows(rows: Iterable[Row], cuts: Sequence[int]) -> tuple[Row, ...]:
    """Rows as they are compared.

    Args:
        rows: of a result.
        cuts: for each column, the digits of the part of a date that it holds (4 of a year, 2 of a
            month), or 0. Such a text is a number, as a CAST makes it. Any other text of digits is a
            text: 012 is not 12.
    """
    return tuple(tuple(map(_part, row, cuts)) for row in rows) if any(cuts) else tuple(rows)


def _part(value: Value, digits: int) -> Value:
    if (
        digits
        and isinstance(value, str)
        and len(value) == digits
        and value.isascii()
        and value.isdigit()
    ):
        return int(value)
    return value


def tolerance(size: float) -> float:
    """What may lie between two values, of which the larger has this size.

    From 1 on half a cent or a ten-thousandth; below 0.1 half of the fourth decimal, and a twentieth
    at most; between them half a percent.
    """
    if size < 0.1:
        return max(NOISE, min(FRACTION, SMALL * size))
    return HALF_CENT * size if size < 1 else max(HALF_CENT, RELATIVE * size)


def is_near(one: Value, other: Value) -> bool:
    """Whether two values are equal, where one is a float within the tolerance."""
    if one == other:
        return True
    if not (isinstance(one, float) or isinstance(other, float)):
        return False
    if not isinstance(one, float | int) or not isinstance(other, float | int):
        return False
    if math.isinf(one) or math.isinf(other):
        return False
    return abs(one - other) <= (1 + 1e-9) * tolerance(max(abs(one), abs(other)))


def matches(
    rows: Sequence[Row], gold: Sequence[Tie], *, ordered: bool, cuts: Sequence[int] = ()
) -> bool:
    """Whether a result is the gold one.

    Args:
        rows: the result.
        gold: the gold result's ties in its order, `normalise_rows`.
        ordered: whether the ties must come in this order.
        cuts: of the gold result's columns (see `normalise_rows`); none by default.
    """
    if len(rows) != sum(tie.take for tie in gold):
        return False
    if not rows:
        return True
    wide = len(gold[0].rows[0])
    if len(rows[0]) != wide:
        return False
    sections = _ordered(rows, gold) if ordered else [_unordered(rows, gold)]
    cuts = cuts or (0,) * wide
    if all(normalise_rows(section.rows, cuts) == section.sure for section in sections):
        return True
    fitting = [
        [at for at in range(wide) if all(_may_hold(part, column, at, cuts) for part in sections)]
        for column in range(wide)
    ]
    return all(fitting) and _search(sections, fitting, cuts)


@dataclass(frozen=True, slots=True)
class _Section:
    """A stretch of a result: it must have all the sure rows, and its other rows are among the spare
    ones."""

    rows: tuple[Row, ...]
    sure: tuple[Row, ...]
    spare: tuple[Row, ...]


def _ordered(rows: Sequence[Row], gold: Sequence[Tie]) -> list[_Section]:
    sections, start = [], 0
    for tie in gold:
        mine = tuple(rows[start : start + tie.take])
        whole = tie.take == len(tie.rows)
        sections.append(_Section(mine, tie.rows if whole else (), () if whole else tie.rows))
        start += tie.take
    return sections


def _unordered(rows: Sequence[Row], gold: Sequence[Tie]) -> _Section:
    whole = tuple(row for tie in gold if tie.take == len(tie.rows) for row in tie.rows)
    parts = tuple(row for tie in gold if tie.take < len(tie.rows) for row in tie.rows)
    return _Section(tuple(rows), whole, parts)


def _may_hold(part: _Section, column: int, at: int, cuts: Sequence[int]) -> bool:
    """Whether the values at `at` of the rows can be those of a gold column: no more than a first
    sieve."""
    mine, pool = (
        [_part(row[at], cuts[column]) for row in part.rows],
        [row[column] for row in part.sure + part.spare],
    )
    if not any(isinstance(value, float) for value in (*mine, *pool)):
        return Counter(mine) <= Counter(pool)
    numbers, others = _sort_values(mine)
    from_numbers, from_others = _sort_values(pool)
    return others <= from_others and _can_pair(numbers, from_numbers)


def _sort_values(values: Iterable[Value]) -> tuple[list[int | float], Counter[Value]]:
    """The numbers of some values in their order, and how often each other value stands there."""
    numbers, others = [], Counter[Value]()
    for value in values:
        if isinstance(value, int | float):
            numbers.append(value)
        else:
            others[value] += 1
    return sorted(numbers), others


def _can_pair(numbers: Sequence[int | float], pool: Sequence[int | float]) -> bool:
    """Whether each of some numbers has one of the pool for itself that is as near as floats may be;
    both sorted."""
    at = 0
    for number in numbers:
        while at < len(pool) and pool[at] < number and not is_near(float(pool[at]), float(number)):
            at += 1
        if at == len(pool) or not is_near(float(pool[at]), float(number)):
            return False
        at += 1
    return True


def _search(
    sections: Sequence[_Section], fitting: Sequence[Sequence[int]], cuts: Sequence[int]
) -> bool:
    """Look for an order of columns under which the rows agree; the columns with the least choice
    first.

    Every choice is tested on the columns chosen so far. After so many tries the answer is no, which
    only results of six or more columns can come to, where many hold the same values in another
    order.
    """
    wide, length = len(fitting), sum(len(part.rows) for part in sections)
    order = sorted(range(wide), key=lambda column: len(fitting[column]))
    vectors = [tuple(row[at] for part in sections for row in part.rows) for at in range(wide)]
    left = max(TRIES, WORK // (length + 1))
    stack: list[tuple[int, ...]] = [()]
    while stack:
        chosen = stack.pop()
        if len(chosen) == wide:
            return True
        column = order[len(chosen)]
        tried = set()
        for at in fitting[column]:
            if at in chosen or vectors[at] in tried:
                continue
            tried.add(vectors[at])  # of equal columns one is as good as another
            left -= 1
            if left < 0:
                return False
            if all(
                _agree(part, order[: len(chosen) + 1], (*chosen, at), cuts) for part in sections
            ):
                stack.append((*chosen, at))
    return False


def _agree(
    part: _Section, columns: Sequence[int], chosen: Sequence[int], cuts: Sequence[int]
) -> bool:
    """Whether a section's rows agree on some columns."""
    mine = normalise_rows(
        (tuple(row[at] for at in chosen) for row in part.rows), [cuts[column] for column in columns]
    )
    sure = [tuple(row[at] for at in columns) for row in part.sure]
    spare = [tuple(row[at] for at in columns) for row in part.spare]
    rest = _without(mine, sure)
    return rest is not None and _without(spare, rest) is not None


def _without(pool: Sequence[Row], taken: Sequence[Row]) -> list[Row] | None:
    """What is left of a pool of rows after each of some rows took one that is near it; None where
    one finds none."""
    if not taken:
        return list(pool)
    wide = range(len(taken[0]))
    loose = [
        at
        for at in wide
        if any(isinstance(row[at], float) for rows in (pool, taken) for row in rows)
    ]
    if not loose:
        left = Counter(pool)
        left.subtract(taken)
        return None if min(left.values()) < 0 else list(left.elements())
    exact = [at for at in wide if at not in loose]
    of_pool, of_taken = _by_key(pool, exact), _by_key(taken, exact)
    for key, rows in of_taken.items():
        rest = _without_by_floats(of_pool[key], rows)
        if rest is None:
            return None
        of_pool[key] = rest
    return [row for rows in of_pool.values() for row in rows]


def _by_key(rows: Iterable[Row], exact: Sequence[int]) -> dict[Row, list[Row]]:
    groups: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[at] for at in exact)].append(row)
    return groups


def _without_by_floats(pool: list[Row], taken: list[Row]) -> list[Row] | None:
    """`_without` for rows that differ in their floats alone: by size, or else by augmenting
    paths."""
    if len(taken) > len(pool):
        return None
    by_size, mine = sorted(pool, key=_size), sorted(taken, key=_size)
    if len(mine) == len(by_size) and all(map(_near_rows, mine, by_size)):
        return []
    if len(pool) * len(taken) > PAIRS:
        return None
    near_by = [[at for at, other in enumerate(by_size) if _near_rows(row, other)] for row in mine]
    owner: dict[int, int] = {}
    if not all(_give(row, near_by, owner, set()) for row in range(len(mine))):
        return None
    return [row for at, row in enumerate(by_size) if at not in owner]


def _give(
    row: int, near_by: Sequence[Sequence[int]], owner: dict[int, int], seen: set[int]
) -> bool:
    """Find a place for a row, moving others that have one (Kuhn's augmenting path)."""
    for at in near_by[row]:
        if at not in seen:
            seen.add(at)
            if at not in owner or _give(owner[at], near_by, owner, seen):
                owner[at] = row
                return True
    return False


def _near_rows(one: Row, other: Row) -> bool:
    return all(map(is_near, one, other))


def _size(row: Row) -> tuple[tuple[int, float | str], ...]:
    """An order of rows of any values."""
    return tuple(
        (0, 0.0)
        if value is None
        else (1, value)
        if isinstance(value, int | float)
        else (2, str(value))
        for value in row
    )


if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.optimizer.scope import Scope

WITHOUT_LIMIT = QueryLimits(steps=100_000_000, seconds=20.0, rows=20_000, result=20_000_000)
"""For gold queries only: all the rows from which LIMIT takes some."""

DATES = ("date", "timestamp", "_at")
"""How the names of columns end that hold a date."""
PARTS = {"%Y": 4, "%G": 4, "%j": 3, "%w": 1, "%u": 1} | dict.fromkeys(
    ("%m", "%d", "%H", "%M", "%S", "%W", "%U", "%V"), 2
)
"""Digits of what strftime cuts."""
CUTS = (
    {("1", "4"): 4}
    | dict.fromkeys([(start, "2") for start in ("6", "9", "12", "15", "18")], 2)
    | {("9", ""): 2}
)
"""Digits of what substr cuts, by start and length: of 2017-08-03 14:05:09."""


@dataclass(frozen=True, slots=True)
class GoldResult:
    """The result of a gold query on one database."""

    result: QueryResult
    rows: tuple[Row, ...]
    """Its rows, `normalise_rows`."""
    ties: tuple[Tie, ...]
    names: frozenset[str]
    """The schema's tables and columns that the query names."""
    cuts: tuple[int, ...]
    """Which of its columns hold a part of a date (see `normalise_rows`)."""


@lru_cache(maxsize=1 << 14)
def gold_of(database: Path, sql: str) -> GoldResult:
    """Run a gold query.

    Raises:
        DataError: it does not pass the gate, does not run or returns nothing, or its ORDER BY
            cannot be taken apart.
    """
    query = read_query(sql)
    result = query if isinstance(query, QueryRefusal) else run(database, query.sql)
    if isinstance(query, QueryRefusal) or isinstance(result, QueryRefusal):
        said = f"{result.cause}: {result.detail}" if isinstance(result, QueryRefusal) else ""
        raise DataError(
            f"the gold query {sql} gives no result on {database} ({said})", "correct it"
        )
    cuts = date_cuts(query, result.columns)
    rows = normalise_rows(result.rows, cuts)
    ties = _ties(database, query, rows, cuts)
    if not matches(rows, ties, ordered=True):
        raise DataError(
            f"without its LIMIT the gold query {sql} gives other rows",
            "correct its limit or its order",
        )
    return GoldResult(result, rows, ties, query.names, cuts)


def check_gold(sql: str, paths: Sequence[Path]) -> None:
    """Check that a gold query asks something: what it returns is not the same wherever it is asked.

    Raises:
        DataError: it gives no result; or on all databases no row, nothing but NULL, or the same
            rows.
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
        len(other.result.columns) == len(first.result.columns)
        and matches(other.rows, first.ties, ordered=False)
        for other in others
    ):
        what = "returns the same rows"
    if what:
        fix = "ask for what differs from shop to shop, or leave the record out"
        raise DataError(
            f"the gold query {sql} {what} on each of {len(paths)} databases: it asks nothing", fix
        )


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
    if isinstance(
        item,
        exp.Paren | exp.Cast | exp.Min | exp.Max | exp.Coalesce | exp.Window | exp.Lag | exp.Lead,
    ):
        return _digits(item.this, scope)
    # + 0 and * 1 make a number of a text
    if isinstance(item, exp.Add | exp.Mul) and item.expression.is_int:
        return _digits(item.this, scope)
    if isinstance(item, exp.TimeToStr):
        return PARTS.get(item.text("format"), 0)
    if isinstance(item, exp.Substring):
        cut = (item.text("start"), item.text("length"))
        dated = any(
            column.name.lower().endswith(DATES) for column in item.this.find_all(exp.Column)
        )
        return CUTS.get(cut, 0) if dated else 0
    if isinstance(item, exp.Column):
        inner = (
            [scope.sources[item.table]] if item.table in scope.sources else scope.sources.values()
        )
        return max(
            (_digits_named(item.name, source) for source in inner if isinstance(source, Scope)),
            default=0,
        )
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


def _ties(
    database: Path, query: Query, rows: tuple[Row, ...], cuts: Sequence[int]
) -> tuple[Tie, ...]:
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
    if isinstance(everything, QueryRefusal):
        raise DataError(
            f"{query.sql} cannot be run without its limit: {everything.detail}",
            "write it more simply",
        )
    start = int(offset.expression.name) if offset is not None and offset.expression.is_int else 0
    end, at, ties = start + len(rows), 0, []
    for _, tied in groupby(
        everything.rows, key=lambda row: tuple(_rounded(row[key]) for key in keys)
    ):
        members = normalise_rows((row[:wide] for row in tied), cuts)
        take = min(end, at + len(members)) - max(start, at)
        if take > 0:
            ties.append(Tie(members, take))
        at += len(members)
    return tuple(ties)


def _rounded(value: Value) -> Value:
    """A sort key without what the order of additions leaves in its last digits."""
    return float(f"{value:.9g}") if isinstance(value, float) else value


def _keys(tree: "exp.Query", ordered_by: Sequence["exp.Expr"], wide: int) -> list[int]:
    """Where the values stand that a query is ordered by; those that it does not return are added at
    its end."""
    from sqlglot import exp

    items = list(tree.selects)
    names = [item.alias_or_name.lower() for item in items]
    plain = [item.unalias() for item in items]
    starred = any(item.is_star for item in items)
    places = []
    for key in ordered_by:
        if isinstance(key, exp.Literal) and not key.is_string:
            places.append(int(key.name) - 1)
        elif (
            not starred
            and isinstance(key, exp.Column)
            and not key.table
            and key.name.lower() in names
        ):
            places.append(names.index(key.name.lower()))
        elif not starred and key in plain:
            places.append(plain.index(key))
        elif isinstance(tree, exp.Select) and tree.args.get("distinct") is None:
            aliased = dict(zip(names, plain, strict=True))
            tree.select(exp.alias_(key.transform(_written_out, aliased), f"key_{wide}"), copy=False)
            places.append(wide)
            wide += 1
        else:
            raise DataError(
                f"{tree.sql(dialect='sqlite')} is ordered by what it does not return",
                "return it as well",
            )
    return places


def _written_out(node: "exp.Expr", aliased: Mapping[str, "exp.Expr"]) -> "exp.Expr":
    """What an alias stands for, where a node is one: ORDER BY knows those of the SELECT list, and
    the list does not."""
    from sqlglot import exp

    is_alias = isinstance(node, exp.Column) and not node.table and node.name.lower() not in NAMES
    return aliased[node.name.lower()].copy() if is_alias and node.name.lower() in aliased else node
