"""What a query says, before it is run: one SELECT over the shop's tables, and nothing that only
SQLite lets pass.

SQLite takes a column that is not there for a text where it stands in double quotes, and of a column
that stands beside an aggregate without being grouped any row's value. Both run and mean nothing, so
both are errors here. The first is left to SQLite: double quotes are replaced by backquotes, which
mean a name and only a name. The second is found in the tree that sqlglot makes of the text. Safety
does not depend on this file; `engine.py` has walls of its own.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from plumbline.config.imports import missing_module_error
from plumbline_commerce.sql_qa.engine import COLUMNS, QueryRefusal

if TYPE_CHECKING:
    from sqlglot import exp

LONGEST = 4000
"""Characters of a query."""
MOST_TOKENS = 800
DEEPEST = 25
"""Brackets in brackets."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
KEYS = {
    "product_category_name_translation": "product_category_name",
    "customers": "customer_id",
    "sellers": "seller_id",
    "products": "product_id",
    "orders": "order_id",
    "orders_enriched": "order_id",
}
"""Columns that decide all others of their table: grouped by one, the others are not bare."""
NAMES = frozenset(COLUMNS) | frozenset().union(*COLUMNS.values())


@dataclass(frozen=True, slots=True)
class Query:
    """A query that may be run."""

    sql: str
    """As SQLite is given it."""
    tree: "exp.Query"
    names: frozenset[str]
    """The schema's tables and columns that it names."""


@lru_cache(maxsize=1 << 8)
def read_query(text: str) -> Query | QueryRefusal:
    """Read a text as one SELECT.

    Raises:
        ModelError: sqlglot is not installed.
    """
    try:
        from sqlglot import exp
        from sqlglot.errors import SqlglotError
    except ImportError as error:
        raise missing_module_error("the job sql_qa", error) from error
    if len(text) > LONGEST or _CONTROL.search(text):
        return QueryRefusal(
            "syntax", f"over {LONGEST} characters, or a character that no query holds"
        )
    try:
        read = _tree(text)
        if isinstance(read, QueryRefusal):
            return read
        tree, sql = read
        nodes = list(tree.walk())
        fault = next(_faults(nodes), None)
        if fault:
            return QueryRefusal("gate", fault)
        named = frozenset(
            node.name.lower() for node in nodes if isinstance(node, exp.Table | exp.Column)
        )
        return Query(sql, tree, named & NAMES)
    except (
        SqlglotError,
        RecursionError,
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
    ) as error:
        # Of these sqlglot raises the first where a text is no SQL, and the others where its parser
        # did not expect it.
        return QueryRefusal("syntax", str(error)[:200])


def _tree(text: str) -> tuple["exp.Query", str] | QueryRefusal:
    """The tree of one statement, and its text with names in backquotes."""
    from sqlglot import TokenType, exp
    from sqlglot.dialects import SQLite

    dialect = SQLite()
    tokens = dialect.tokenize(text)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    depth = deepest = 0
    for token in tokens:
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        deepest = max(deepest, depth)
    if len(tokens) > MOST_TOKENS or deepest > DEEPEST:
        return QueryRefusal(
            "syntax", f"over {MOST_TOKENS} words, or {DEEPEST} brackets in one another"
        )
    if any(token.token_type == TokenType.SEMICOLON for token in tokens):
        return QueryRefusal("gate", "more than one statement")
    if not tokens or tokens[0].token_type not in (TokenType.SELECT, TokenType.WITH):
        return QueryRefusal("gate", "no SELECT")
    trees = dialect.parser().parse(tokens, text)
    if len(trees) != 1 or not isinstance(trees[0], exp.Select | exp.SetOperation):
        return QueryRefusal("gate", "no SELECT")
    sql = text
    for token in reversed(tokens):
        if token.token_type == TokenType.IDENTIFIER and text[token.start] == '"':
            name = text[token.start + 1 : token.end]
            if "`" in name or '"' in name:
                return QueryRefusal("gate", "a quotation mark in a name")
            sql = f"{sql[: token.start]}`{name}`{sql[token.end + 1 :]}"
    return trees[0], sql


def _faults(nodes: Sequence["exp.Expr"]) -> Iterator[str]:
    """What keeps a query from being run, by all nodes of its tree."""
    from sqlglot import exp

    own = {node.alias.lower() for node in nodes if isinstance(node, exp.CTE)}
    for node in nodes:
        if isinstance(node, exp.Table):
            known = (
                isinstance(node.this, exp.Identifier) and node.name.lower() in COLUMNS.keys() | own
            )
            if not known or node.args.get("db"):
                yield f"no table {node.sql(dialect='sqlite')[:80]}"
        elif isinstance(node, exp.Into | exp.Parameter | exp.Placeholder):
            yield f"no place for {type(node).__name__.lower()}"
        elif isinstance(node, exp.Select):
            yield from (f"{name} is neither grouped nor aggregated" for name in _bare(node))


def _bare(select: "exp.Select") -> Iterator[str]:
    """Columns of a SELECT that stand beside aggregates or a GROUP BY, and are not decided by it."""
    from sqlglot import exp

    group = select.args.get("group")
    asked: list[exp.Expr] = list(select.expressions)
    asked += [select.args[key] for key in ("having", "order") if select.args.get(key) is not None]
    if group is None and not any(_aggregates(node) for node in asked):
        return
    aliases = {
        item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)
    }
    grouped = (
        [_resolved(item, select, aliases) for item in group.expressions]
        if group is not None
        else []
    )
    decided = {item.name.lower() for item in grouped if isinstance(item, exp.Column)}
    tables = {
        table.alias_or_name.lower(): table.name.lower() for table in select.find_all(exp.Table)
    }
    decided |= {
        column
        for table in set(tables.values())
        if KEYS.get(table) in decided
        for column in COLUMNS[table]
    }
    decided |= set(aliases)
    for node in asked:
        for column in _plain_columns(node, grouped):
            if isinstance(column, exp.Star) or column.name.lower() not in decided:
                yield column.name or "*"


def _resolved(item: "exp.Expr", select: "exp.Select", aliases: dict[str, "exp.Expr"]) -> "exp.Expr":
    """What an element of GROUP BY stands for: a number or an alias is an expression of the SELECT
    list."""
    from sqlglot import exp

    if (
        isinstance(item, exp.Literal)
        and item.this.isdigit()
        and 0 < int(item.this) <= len(select.expressions)
    ):
        chosen: exp.Expr = select.expressions[int(item.this) - 1]
        return chosen.unalias()
    if isinstance(item, exp.Column) and not item.table and item.name.lower() not in NAMES:
        return aliases.get(item.name.lower(), item)
    return item


def _plain_columns(node: "exp.Expr", grouped: list["exp.Expr"]) -> Iterator["exp.Expr"]:
    """The columns and stars under a node that are outside of aggregates, subqueries and grouped
    expressions."""
    from sqlglot import exp

    if _is_aggregate(node) or isinstance(node, exp.Query | exp.Subquery) or node in grouped:
        return
    if isinstance(node, exp.Column | exp.Star):
        yield node
        return
    inside = node
    # what it is over is computed of the groups; its own function aggregates none
    if isinstance(node, exp.Window):
        inside = node.this.this if isinstance(node.this, exp.Filter) else node.this
        others = [child for child in node.iter_expressions() if child is not node.this]
        for child in [*inside.iter_expressions(), *others]:
            yield from _plain_columns(child, grouped)
        return
    for child in inside.iter_expressions():
        yield from _plain_columns(child, grouped)


def _aggregates(node: "exp.Expr") -> bool:
    """Whether there is an aggregate under a node, outside of subqueries and not over a window."""
    from sqlglot import exp

    if _is_aggregate(node):
        return True
    if isinstance(node, exp.Query | exp.Subquery):
        return False
    children = node.iter_expressions()
    if isinstance(node, exp.Window):
        return any(_aggregates(child) for child in node.this.iter_expressions())
    return any(_aggregates(child) for child in children)


def _is_aggregate(node: "exp.Expr") -> bool:
    """Whether a node is an aggregate function; `total` is SQLite's own. (Of several values, max is
    no exp.Max.)"""
    from sqlglot import exp

    if isinstance(node, exp.Filter):
        return _is_aggregate(node.this)
    return isinstance(node, exp.AggFunc) or (
        isinstance(node, exp.Anonymous) and node.name.lower() == "total"
    )
