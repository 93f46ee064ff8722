"""Which tables are asked about: the kinds as even as the shop allows, each table of another slice of its orders."""

from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np

from plumbline.seeds import generator
from plumbline_commerce.insights import gold, prompt, rubric
from plumbline_commerce.insights.figures import Slice, orders, tables
from plumbline_commerce.insights.table import Table, kinds
from plumbline_commerce.job import Pair, Shop, split_evenly, split_sizes, too_few
from plumbline_commerce.options import CommerceOptions

TRIES = 50
"""Gold answers to a table; of a thousand tables, two or three need a second."""
Chosen = tuple[Slice, Table]


def pairs(shop: Shop) -> dict[str, list[Pair]]:
    """The pairs of each split. No two are of the same kind and the same slice, and each split has its share of kinds.

    Raises:
        DataError: the shop has too few orders for so many tables.
    """
    found = chosen(shop)
    dealt = split_evenly(
        split_sizes(len(found)), [table.kind for _, table in found], generator(shop.options.seed, "insights", "split")
    )
    return {name: [_pair(shop, index, *found[index]) for index in members] for name, members in dealt.items()}


def chosen(shop: Shop) -> list[Chosen]:
    """As many tables as are asked for, one of each kind in turn, for as long as a kind has another."""
    count = shop.options.count("insights")
    with closing(orders(shop)) as connection:
        left = {kind: tables(connection, shop.options, kind) for kind in _kinds(shop.options)}
        found = _in_turn(left, count, shop.progress)
    if len(found) < count:
        raise too_few(count, f"its orders make {len(found)} different tables")
    return found


def _in_turn(left: dict[str, Iterator[Chosen]], count: int, progress: Callable[[str, int, int], None]) -> list[Chosen]:
    found: list[Chosen] = []
    while len(found) < count and left:
        for name, kind in list(left.items()):
            if (table := next(kind, None)) is None:
                del left[name]
            elif len(found) < count:
                found.append(table)
                progress("insights", len(found), count)
    return found


def _kinds(options: CommerceOptions) -> list[str]:
    """The kinds of tables, in a seeded order."""
    negative = options.insights_from == "negative"
    names = [name for name, about in kinds().items() if not negative or about.get("negative") != "não"]
    return [names[index] for index in generator(options.seed, "insights", "kinds").permutation(len(names))]


def _pair(shop: Shop, index: int, piece: Slice, table: Table) -> Pair:
    rng = generator(shop.options.seed, "insights", "write", index)
    about = kinds()[table.kind]
    only = " (só pedidos com avaliação negativa)" if shop.options.insights_from == "negative" else ""
    title = f"{about['title']}{only}, {piece.said}"
    question = about["questions"][int(rng.integers(len(about["questions"])))]
    reference = {"kind": table.kind, "rows": table.rows, "measures": table.measures, "values": table.values}
    return Pair(
        id=f"insights-{index:04d}",
        prompt=prompt.messages(table, title, question, shop.options.instructions),
        gold=_written(table, rng),
        reference=reference,
        about={"kind": table.kind, "slice": piece.said},
    )


def _written(table: Table, rng: np.random.Generator) -> str:
    """The gold answer, written anew where figures that happen to be equal make it read as another claim."""
    for _ in range(TRIES):
        text = gold.analysis(table, rng)
        if rubric.judge(table, text)[1].total == 1:
            return text
    raise AssertionError(f"no gold answer to {table} earns 1: {text}")
