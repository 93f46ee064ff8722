"""Near neighbours of a query (one thing changed, so that it means another) and rewritings (that
mean the same).

Both are changes of the tree that sqlglot makes of it. Nothing here knows what the query is about,
beyond the tables of sql_reward_errors.yaml.
"""

import re
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path

import yaml
from sqlglot import exp, parse_one

TABLES = yaml.safe_load(Path(__file__).with_name("sql_reward_errors.yaml").read_text())
PARTNERS = [group.split("|") if "|" in group else group.split() for group in TABLES["texts"]]
TWINS = [group.split() for group in TABLES["columns"]]
WHOLE = {"installments", "review_score", "num_items", "delivery_days", "delay_days"}
"""Columns of integers."""
KEY = {"order_reviews": "review_id"}
"""A column that is never NULL, order_id elsewhere."""
COMPARISONS = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ, exp.NEQ)
Change = tuple[str, exp.Expression]


def text_of(tree: exp.Expression) -> str:
    return tree.sql(dialect="sqlite")


def parsed(sql: str) -> exp.Expression:
    return parse_one(sql, dialect="sqlite")


def at(
    tree: exp.Expression, kind: type | tuple[type, ...]
) -> Iterator[tuple[exp.Expression, exp.Expression]]:
    """Each node of a kind in a copy of the tree of its own: (copy, node)."""
    for index, _ in enumerate(list(tree.find_all(kind))):
        copy = tree.copy()
        yield copy, list(copy.find_all(kind))[index]


# Near neighbours


def neighbours(sql: str) -> dict[str, str]:
    """Queries that differ from this one in one thing: text to kind of change."""
    tree, found = parsed(sql), {}
    for source in MUTATIONS:
        for kind, mutant in source(tree):
            found.setdefault(text_of(mutant), kind)
    found.pop(text_of(tree), None)
    return found


def other_aggregate(tree: exp.Expression) -> Iterator[Change]:
    for name in TABLES["aggregates"].split():
        for copy, node in at(tree, (exp.Avg, exp.Sum, exp.Min, exp.Max)):
            if not isinstance(node.this, exp.Case):
                node.replace(exp.func(name, node.this.copy()))
                yield "another aggregate", copy
    for copy, node in at(tree, exp.Count):
        if isinstance(node.this, exp.Distinct):
            node.replace(exp.Count(this=node.this.expressions[0].copy()))
            yield "DISTINCT dropped", copy
    for copy, node in at(tree, (exp.Avg, exp.Sum)):
        if isinstance(node.this, exp.Column) and not isinstance(node.parent, exp.Window):
            node.set("this", exp.Distinct(expressions=[node.this.copy()]))
            yield "DISTINCT added", copy


def other_count(tree: exp.Expression) -> Iterator[Change]:
    if tree.find(exp.Table).name != "orders_enriched":
        return
    for name in TABLES["counted"].split():
        for copy, node in at(tree, exp.Count):
            if isinstance(node.this, exp.Star):
                node.set("this", exp.column(name))
                yield "COUNT of a column", copy
    for name in TABLES["persons"].split():
        for copy, node in at(tree, exp.Count):
            node.set("this", exp.Distinct(expressions=[exp.column(name)]))
            yield "COUNT(DISTINCT)", copy
    for name in ("order_value", "num_items"):
        for copy, node in at(tree, exp.Count):
            node.replace(exp.func("SUM", exp.column(name)))
            yield "another aggregate", copy


def dropped(tree: exp.Expression) -> Iterator[Change]:
    """A filter, a condition of a join, or a clause."""
    for copy, node in at(tree, exp.And):
        node.replace(node.this)
        yield "dropped filter", copy
    for copy, node in at(tree, exp.And):
        node.replace(node.expression)
        yield "dropped filter", copy
    for kind, name in (
        (exp.Where, "dropped filter"),
        (exp.Having, "HAVING dropped"),
        (exp.Limit, "LIMIT dropped"),
    ):
        for copy, node in at(tree, kind):
            node.pop()
            yield name, copy
    for copy, node in at(tree, exp.Join):
        if node.args.get("on") is not None:
            node.set("on", None)
            yield "dropped join condition", copy


def other_comparison(tree: exp.Expression) -> Iterator[Change]:
    for kind in COMPARISONS:
        for copy, node in at(tree, COMPARISONS):
            if type(node) is not kind and not isinstance(node.parent, exp.Join):
                node.replace(kind(this=node.this, expression=node.expression))
                yield "another comparison", copy
    for copy, node in at(tree, exp.And):
        node.replace(exp.Or(this=node.this, expression=node.expression))
        yield "OR for AND", copy
    for copy, node in at(tree, exp.Is):
        (
            node.parent.replace(node)
            if isinstance(node.parent, exp.Not)
            else node.replace(exp.Not(this=node.copy()))
        )
        yield "IS NULL reversed", copy
    for low, high in ((exp.GT, exp.LTE), (exp.GTE, exp.LT), (exp.GT, exp.LT)):
        for copy, node in at(tree, exp.Between):
            column = node.this
            node.replace(
                exp.Paren(
                    this=exp.And(
                        this=low(this=column.copy(), expression=node.args["low"]),
                        expression=high(this=column.copy(), expression=node.args["high"]),
                    )
                )
            )
            yield "another comparison", copy


def other_literal(tree: exp.Expression) -> Iterator[Change]:
    for index, literal in enumerate(list(tree.find_all(exp.Literal))):
        for kind, text in _others(literal):
            copy = tree.copy()
            node = list(copy.find_all(exp.Literal))[index]
            node.replace(exp.Literal(this=text, is_string=literal.is_string))
            yield kind, copy


def _others(literal: exp.Expression) -> Iterator[tuple[str, str]]:
    text = literal.name
    parent = literal.parent
    if isinstance(parent, exp.Limit):
        yield from (("LIMIT changed", str(int(text) + step)) for step in (-1, 1))
    elif not literal.is_string:
        if re.fullmatch(r"\d+", text):
            steps = (-10, -1, 1, 10) if int(text) >= 50 else (-1, 1)
            yield from (("off by one", str(int(text) + step)) for step in steps)
        elif text == "100.0":
            yield "integer division", "100"
        elif text == "1.0":
            yield "integer division", "1"
    elif re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        day = date.fromisoformat(text)
        for step in (-1, 1):
            yield "off-by-one date", (day + timedelta(days=step)).isoformat()
        yield "another date", text.replace("2017", "2016").replace("2018", "2017")
    elif re.fullmatch(r"\d{4}-\d\d", text):
        year, month = int(text[:4]), int(text[5:])
        yield "another month", f"{year}-{month % 12 + 1:02d}"
        yield "another month", f"{2018 if year == 2017 else 2017}-{month:02d}"
    elif re.fullmatch(r"201\d", text):
        yield from (("another year", str(int(text) + step)) for step in (-1, 1))
    else:
        group = next((group for group in PARTNERS if text in group), [])
        yield from (("another text", other) for other in group if other != text)


def other_column(tree: exp.Expression) -> Iterator[Change]:
    for group in TWINS:
        for name in group:
            for other in group:
                if other == name:
                    continue
                everywhere, places = tree.copy(), 0
                for index, column in enumerate(list(tree.find_all(exp.Column))):
                    if column.name != name:
                        continue
                    places += 1
                    copy = tree.copy()
                    for target in (copy, everywhere):
                        list(target.find_all(exp.Column))[index].set(
                            "this", exp.to_identifier(other)
                        )
                    yield "another column", copy
                if places > 1:
                    yield "another column", everywhere


def other_order(tree: exp.Expression) -> Iterator[Change]:
    for copy, node in at(tree, exp.Ordered):
        node.set("desc", not node.args.get("desc"))
        yield "ORDER reversed", copy
    for copy, node in at(tree, exp.Order):
        node.pop()
        yield "ORDER dropped", copy


def other_join(tree: exp.Expression) -> Iterator[Change]:
    for copy, node in at(tree, exp.Join):
        node.set("side", "LEFT")
        yield "LEFT JOIN", copy
    for copy, node in at(tree, exp.EQ):
        if isinstance(node.parent, exp.Join) and node.this.name == "order_id":
            node.this.set("this", exp.to_identifier("rowid"))
            node.expression.set("this", exp.to_identifier("rowid"))
            yield "joined on another column", copy


def added_filter(tree: exp.Expression) -> Iterator[Change]:
    select = next(
        (part for part in tree.find_all(exp.Select) if part.args.get("where") is not None), None
    )
    if select is None:
        return
    for table in (
        tree_table
        for tree_table in select.find_all(exp.Table)
        if tree_table.name in TABLES["filters"]
    ):
        for condition in TABLES["filters"][table.name]:
            copy = tree.copy()
            target = next(
                part for part in copy.find_all(exp.Select) if part.args.get("where") is not None
            )
            added = parsed(f"SELECT 1 WHERE {condition}").find(exp.Where).this
            if table.alias:
                for column in added.find_all(exp.Column):
                    column.set("table", exp.to_identifier(table.alias))
            target.where(added, copy=False)
            yield "added filter", copy


def other_window(tree: exp.Expression) -> Iterator[Change]:
    for copy, node in at(tree, exp.Window):
        if node.args.get("partition_by"):
            node.set("partition_by", [])
            yield "PARTITION BY dropped", copy
    for old, new in (("RANK", "ROW_NUMBER"), ("RANK", "DENSE_RANK"), ("LAG", "LEAD")):
        if f"{old}(" in text_of(tree):
            yield f"{new} for {old}", parsed(text_of(tree).replace(f"{old}(", f"{new}("))


def other_arithmetic(tree: exp.Expression) -> Iterator[Change]:
    for kind in (exp.Add, exp.Sub, exp.Mul, exp.Div):
        for copy, node in at(tree, (exp.Add, exp.Sub, exp.Mul, exp.Div)):
            if type(node) is not kind:
                node.replace(kind(this=node.this, expression=node.expression))
                yield "another operation", copy
    for copy, node in at(tree, exp.If):
        case = node.parent
        if isinstance(case, exp.Case) and case.args.get("default") is not None:
            node.args["true"].replace(exp.Literal.number(0))
            case.args["default"].replace(exp.Literal.number(1))
            yield "CASE reversed", copy
    for copy, node in at(tree, exp.Sub):
        node.replace(exp.Sub(this=node.expression, expression=node.this))
        yield "another operation", copy


def distinct_rows(tree: exp.Expression) -> Iterator[Change]:
    for copy, node in at(tree, exp.Select):
        if node.args.get("distinct") is None:
            node.set("distinct", exp.Distinct())
            yield "SELECT DISTINCT", copy


def other_output(tree: exp.Expression) -> Iterator[Change]:
    select = tree.find(exp.Select)
    if len(select.expressions) > 1:
        for index in range(len(select.expressions)):
            copy = tree.copy()
            copy.find(exp.Select).expressions.pop(index)
            yield "a column less", copy
    if select.args.get("group") is not None and isinstance(tree, exp.Select):
        copy = tree.copy()
        copy.set("group", None)
        yield "GROUP BY dropped", copy
    copy = tree.copy()
    first = copy.selects[0].unalias().copy() if isinstance(copy, exp.Select) else None
    if first is not None:
        copy.select(first, copy=False)
        yield "a column more", copy


MUTATIONS: tuple[Callable[[exp.Expression], Iterator[Change]], ...] = (
    other_aggregate,
    other_count,
    dropped,
    other_comparison,
    other_literal,
    other_column,
    other_order,
    other_join,
    added_filter,
    other_window,
    other_arithmetic,
    distinct_rows,
    other_output,
)


# Rewritings


def rewritings(sql: str, *, ordered: bool) -> dict[str, str]:
    """Queries that mean the same as this one: text to kind of change."""
    tree, found = parsed(sql), {}
    for source in REWRITINGS:
        for kind, same in source(tree):
            found.setdefault(same if isinstance(same, str) else text_of(same), kind)
    if not ordered:
        for kind, same in wrapped(tree):
            found.setdefault(text_of(same), kind)
    found.pop(sql, None)
    return found


def spelling(tree: exp.Expression) -> Iterator[tuple[str, str]]:
    text = text_of(tree)
    yield "spelling", tree.sql(dialect="sqlite", pretty=True)
    yield (
        "spelling",
        re.sub(r"\b[A-Z]{2,}\b(?=(?:[^']*'[^']*')*[^']*$)", lambda word: word[0].lower(), text)
        + ";",
    )
    yield "spelling", tree.sql(dialect="sqlite", identify=True)
    yield "spelling", text.replace(" <> ", " != ")


def renamed(tree: exp.Expression) -> Iterator[Change]:
    copy = tree.copy()
    names = {item.alias: f"{item.alias}_x" for item in copy.find_all(exp.Alias)}
    for item in copy.find_all(exp.Alias):
        item.set("alias", exp.to_identifier(names[item.alias]))
    for column in copy.find_all(exp.Column):
        if column.name in names:
            column.set("this", exp.to_identifier(names[column.name]))
    if names:
        yield "other names of columns", copy
    if len(list(tree.find_all(exp.Table))) == 1 and not tree.find(exp.Subquery):
        copy = tree.copy()
        table = copy.find(exp.Table)
        own = {item.alias for item in copy.find_all(exp.Alias)}
        table.set("alias", exp.TableAlias(this=exp.to_identifier("oe")))
        for column in copy.find_all(exp.Column):
            if column.name not in own:
                column.set("table", exp.to_identifier("oe"))
        yield "alias of the table", copy


def reordered(tree: exp.Expression) -> Iterator[Change]:
    if isinstance(tree, exp.Select) and len(tree.expressions) > 1:
        copy = tree.copy()
        copy.set("expressions", list(reversed(copy.expressions)))
        yield "column order", copy
    for copy, node in at(tree, exp.And):
        left, right = node.this.copy(), node.expression.copy()
        node.set("this", right)
        node.set("expression", left)
        yield "conjuncts reordered", copy
    for copy, node in at(tree, exp.EQ):
        node.replace(exp.EQ(this=node.expression, expression=node.this))
        yield "sides swapped", copy


def bracketed(tree: exp.Expression) -> Iterator[Change]:
    for copy, node in at(tree, exp.Where):
        node.set("this", exp.Paren(this=exp.Paren(this=node.this)))
        yield "brackets", copy


def conditions(tree: exp.Expression) -> Iterator[Change]:
    for copy, node in at(tree, exp.EQ):
        if isinstance(node.expression, exp.Literal) and not isinstance(node.parent, exp.Join):
            node.replace(exp.In(this=node.this, expressions=[node.expression]))
            yield "IN", copy
    for copy, node in at(tree, exp.EQ):
        if isinstance(node.expression, exp.Literal):
            node.replace(exp.Paren(this=exp.Or(this=node.copy(), expression=node.copy())))
            yield "OR", copy
    for copy, node in at(tree, exp.Between):
        column = node.this
        low = exp.GTE(this=column.copy(), expression=node.args["low"])
        node.replace(
            exp.Paren(
                this=exp.And(
                    this=low, expression=exp.LTE(this=column, expression=node.args["high"])
                )
            )
        )
        yield "BETWEEN", copy
    for kind, turned in (
        (exp.GT, exp.LTE),
        (exp.GTE, exp.LT),
        (exp.LT, exp.GTE),
        (exp.LTE, exp.GT),
    ):
        for copy, node in at(tree, kind):
            node.replace(
                exp.Not(this=exp.Paren(this=turned(this=node.this, expression=node.expression)))
            )
            yield "NOT", copy
    for kind, step, other in (
        (exp.GT, 1, exp.GTE),
        (exp.LTE, 1, exp.LT),
        (exp.GTE, -1, exp.GT),
        (exp.LT, -1, exp.LTE),
    ):
        for copy, node in at(tree, kind):
            counted = isinstance(node.this, exp.Count) or node.this.name in WHOLE
            if counted and isinstance(node.expression, exp.Literal):
                near = exp.Literal.number(int(node.expression.name) + step)
                node.replace(other(this=node.this, expression=near))
                yield "the next integer", copy


def aggregates(tree: exp.Expression) -> Iterator[Change]:
    for copy, node in at(tree, exp.Count):
        if isinstance(node.this, exp.Star):
            node.set("this", exp.Literal.number(1))
            yield "COUNT(1)", copy
    table = tree.find(exp.Table)
    of_a_table = (
        isinstance(tree, exp.Select)
        and "from_" in tree.args
        and isinstance(tree.args["from_"].this, exp.Table)
    )
    if of_a_table and not tree.args.get("with_"):
        for copy, node in at(tree, exp.Count):
            if isinstance(node.this, exp.Star):
                node.set("this", exp.column(KEY.get(table.name, "order_id"), table.alias or None))
                yield "COUNT of the key", copy
    for copy, node in at(tree, exp.Avg):
        total = exp.Mul(
            this=exp.Literal.number("1.0"), expression=exp.func("SUM", node.this.copy())
        )
        node.replace(
            exp.Paren(this=exp.Div(this=total, expression=exp.Count(this=node.this.copy())))
        )
        yield "SUM by COUNT", copy
    for copy, node in at(tree, exp.Sum):
        if isinstance(node.this, exp.Case):
            condition = node.this.args["ifs"][0].this
            node.replace(
                exp.Count(
                    this=exp.Case(ifs=[exp.If(this=condition.copy(), true=exp.Literal.number(1))])
                )
            )
            yield "COUNT(CASE)", copy
    if "CASE WHEN" in text_of(tree):
        yield (
            "IIF",
            parsed(re.sub(r"CASE WHEN (.+?) THEN 1 ELSE 0 END", r"IIF(\1, 1, 0)", text_of(tree))),
        )
        yield (
            "FILTER",
            parsed(
                re.sub(
                    r"SUM\(CASE WHEN (.+?) THEN 1 ELSE 0 END\)",
                    r"COUNT(*) FILTER(WHERE \1)",
                    text_of(tree),
                )
            ),
        )
    for node in tree.find_all(exp.Count):
        if isinstance(node.this, exp.Distinct) and isinstance(tree, exp.Select):
            column = node.this.expressions[0].copy()
            inner = exp.select(column.copy()).distinct().from_("orders_enriched")
            inner.set("where", tree.args["where"].copy())
            inner = inner.where(exp.Not(this=exp.Is(this=column, expression=exp.null())))
            yield "SELECT DISTINCT within", exp.select("COUNT(*) AS n").from_(inner.subquery("d"))
    single = of_a_table and len(tree.expressions) == 1 and not tree.args.get("joins")
    counted = single and tree.selects[0].unalias()
    if isinstance(counted, exp.Count) and isinstance(counted.this, exp.Star):
        case = f"SUM(CASE WHEN {text_of(tree.args['where'].this)} THEN 1 ELSE 0 END)"
        yield "SUM(CASE)", parsed(f"SELECT {case} AS n FROM {text_of(table)}")


def rounded(tree: exp.Expression) -> Iterator[Change]:
    if isinstance(tree, exp.Select):
        for index, item in enumerate(tree.selects):
            if item.unalias().find(exp.Avg, exp.Div) and not item.find(exp.Window):
                copy = tree.copy()
                value = copy.selects[index].unalias()
                value.replace(exp.func("ROUND", value.copy(), exp.Literal.number(2)))
                yield "ROUND to cents", copy


def hundredfold(tree: exp.Expression) -> Iterator[Change]:
    for copy, node in at(tree, exp.Mul):
        node.replace(exp.Mul(this=node.expression, expression=node.this))
        yield "factors swapped", copy


def dates(tree: exp.Expression) -> Iterator[Change]:
    text = text_of(tree)
    month = r"SUBSTRING\(order_date, 1, 7\) = '(\d{4})-(\d\d)'"
    if (found := re.search(month, text)) is not None:
        year, number = int(found[1]), int(found[2])
        first, after = date(year, number, 1), date(year + number // 12, number % 12 + 1, 1)
        last = after - timedelta(days=1)
        for same in (
            f"strftime('%Y-%m', order_date) = '{year}-{number:02d}'",
            f"order_date >= '{first}' AND order_date < '{after}'",
            f"order_date BETWEEN '{first}' AND '{last}'",
            f"order_date LIKE '{year}-{number:02d}%'",
            f"strftime('%Y', order_date) = '{year}' AND strftime('%m', order_date) = '{number:02d}'",
            f"date(order_date, 'start of month') = '{first}'",
        ):
            yield "dates", parsed(re.sub(month, same, text))
    for pattern, same in (
        (r"SUBSTRING\(order_date, 1, 7\)", "strftime('%Y-%m', order_date)"),
        (r"SUBSTRING\(order_date, 1, 4\)", "strftime('%Y', order_date)"),
        (r"SUBSTRING\(order_date, 1, 4\) = '(\d+)'", r"order_date LIKE '\1-%'"),
        (r"STRFTIME\('%m', order_date\)", "substr(order_date, 6, 2)"),
        (r"STRFTIME\('%Y', order_date\)", "substr(order_date, 1, 4)"),
        (r"order_date >= '", "date(order_date) >= '"),
        (r"order_date BETWEEN '", "date(order_date) BETWEEN '"),
    ):
        if re.search(pattern, text):
            yield "dates", parsed(re.sub(pattern, same, text))


def orders(tree: exp.Expression) -> Iterator[Change]:
    if not isinstance(tree, exp.Select) or tree.args.get("order") is None:
        return
    names = [item.alias_or_name for item in tree.selects]
    copy = tree.copy()
    for item in copy.args["order"].expressions:
        if item.this.name in names:
            item.this.replace(exp.Literal.number(names.index(item.this.name) + 1))
    yield "ORDER BY a number", copy
    copy = tree.copy()
    for item in copy.args["order"].expressions:
        if item.this.name in names:
            item.this.replace(tree.selects[names.index(item.this.name)].unalias().copy())
    if not tree.find(exp.Window):
        yield "ORDER BY the expression", copy
    if tree.args.get("limit") is not None:
        yield "OFFSET 0", tree.copy().offset(0)


def groups(tree: exp.Expression) -> Iterator[Change]:
    if not isinstance(tree, exp.Select) or tree.args.get("group") is None:
        return
    names = [item.alias_or_name for item in tree.selects]
    copy = tree.copy()
    for item in copy.args["group"].expressions:
        if item.name in names:
            item.replace(exp.Literal.number(names.index(item.name) + 1))
    yield "GROUP BY a number", copy
    having = tree.args.get("having")
    if having is not None and tree.args.get("order") is None and "pedidos" in names:
        inner = tree.copy()
        inner.set("having", None)
        condition = text_of(having.this).replace("COUNT(*)", "pedidos")
        yield (
            "subquery for HAVING",
            parsed(f"SELECT * FROM ({text_of(inner)}) AS g WHERE {condition}"),
        )


def sources(tree: exp.Expression) -> Iterator[Change]:
    """The same rows from elsewhere: a common table expression, a subquery, another table that says
    the same."""
    if not isinstance(tree, exp.Select) or tree.args.get("with_") or tree.args.get("where") is None:
        return
    source = tree.args["from_"].this
    if isinstance(source, exp.Table) and not tree.args.get("joins"):
        where = text_of(tree.args["where"].this)
        rest = tree.copy()
        rest.set("where", None)
        filtered = f"SELECT * FROM {text_of(source)} WHERE {where}"
        outer = rest.copy()
        outer.args["from_"].this.replace(exp.to_table("base"))
        yield "CTE", parsed(f"WITH base AS ({filtered}) {text_of(outer)}")
        outer = rest.copy()
        outer.args["from_"].this.replace(parsed(filtered).subquery("base"))
        yield "subquery", outer
        if "(SELECT" not in where:
            copy = rest.copy()
            yield (
                "IN (SELECT)",
                copy.where(f"order_id IN (SELECT order_id FROM {text_of(source)} WHERE {where})"),
            )
        for name, table, key in (
            ("customer_state", "customers", "customer_id"),
            ("customer_city", "customers", "customer_id"),
        ):
            equal = next(
                (e for e in tree.args["where"].find_all(exp.EQ) if e.this.name == name), None
            )
            if equal is not None and "(SELECT" not in where:
                copy = tree.copy()
                same = next(e for e in copy.args["where"].find_all(exp.EQ) if e.this.name == name)
                same.replace(
                    parsed(
                        f"SELECT 1 WHERE {key} IN (SELECT {key} FROM {table} WHERE "
                        f"{text_of(equal)})"
                    )
                    .find(exp.Where)
                    .this
                )
                yield "another table", copy
    joins = tree.args.get("joins") or []
    if joins and all(join.args.get("on") is not None for join in joins):
        copy = tree.copy()
        for join in copy.args["joins"]:
            condition = join.args["on"].copy()
            join.set("on", None)
            copy.where(condition, copy=False)
        yield "conditions of joins in WHERE", copy
        copy = tree.copy()
        for join in copy.args["joins"]:
            join.set("kind", "INNER")
        yield "INNER", copy
        copy = tree.copy()
        first, last = copy.args["from_"].this, copy.args["joins"][0]
        if len(joins) == 1:
            table = last.this.copy()
            last.set("this", first.copy())
            first.replace(table)
            yield "joined the other way round", copy
        copy = tree.copy()
        for join in copy.args["joins"]:
            condition = join.args["on"]
            condition.replace(exp.EQ(this=condition.expression, expression=condition.this))
        yield "sides swapped", copy


def wrapped(tree: exp.Expression) -> Iterator[Change]:
    """For results in any order: the whole query within another."""
    if tree.args.get("with_") is None:
        yield "subquery around", exp.select("*").from_(tree.copy().subquery("r"))
        yield "CTE around", parsed(f"WITH r AS ({text_of(tree)}) SELECT * FROM r")


REWRITINGS: tuple[Callable[[exp.Expression], Iterator[tuple[str, exp.Expression | str]]], ...] = (
    spelling,
    renamed,
    reordered,
    bracketed,
    conditions,
    aggregates,
    rounded,
    hundredfold,
    dates,
    orders,
    groups,
    sources,
)
