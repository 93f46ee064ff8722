"""How often the reward of sql_qa takes a wrong query for right, and a right one for wrong, by its
number of databases.

    python experiments/sql_reward_errors.py --out experiments/sql_reward_errors.json    # about 5 minutes on one core

Of gold queries of all families, each near neighbour (one thing changed, `sql_neighbours.py`) that
gives another result on any of twelve further shops should not be taken for right, and each
rewriting that means the same should. Neighbours that give the gold result on all twelve are left
out as equal in meaning; those that the gate refuses, as no query.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from sql_neighbours import neighbours, rewritings

from plumbline.evaluation.statistics import rate_interval
from plumbline.seeds import derive, generator
from plumbline.storage import write_json
from plumbline_commerce.database.build import build_database
from plumbline_commerce.sql_qa.engine import (
    ORDERS,
    QueryLimits,
    QueryRefusal,
    QueryResult,
    build_shop,
    databases,
    run,
)
from plumbline_commerce.sql_qa.gate import read_query
from plumbline_commerce.sql_qa.gold import gold_of
from plumbline_commerce.sql_qa.pairs import SIFTED_ON, SqlQuestion, families, sift_questions
from plumbline_commerce.sql_qa.rubric import judge

NUMBERS = (1, 2, 3, 5)
"""Of databases that the reward may run a query on."""
PATIENT = QueryLimits(steps=200_000_000, seconds=10.0, rows=200_000, result=50_000_000)
SHOWN = 60


@dataclass
class Tally:
    """What became of the queries of one side."""

    taken: dict[int, list[bool]] = field(default_factory=lambda: {number: [] for number in NUMBERS})
    """Whether the reward took each query for right, by number of databases."""
    golds: list[str] = field(default_factory=list)
    """The gold query of each: queries that are close to one gold query are alike."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Of those that the reward got wrong on three databases."""
    of_kinds: Counter[str] = field(default_factory=Counter)
    wrong: list[dict[str, str]] = field(default_factory=list)

    def add(
        self, question: SqlQuestion, sql: str, kind: str, taken: Mapping[int, bool], *, right: bool
    ) -> None:
        self.golds.append(question.sql)
        self.of_kinds[kind] += 1
        for number in NUMBERS:
            self.taken[number].append(taken[number])
        if taken[3] != right:
            self.kinds[kind] += 1
            self.wrong.append(
                {"family": question.family.name, "kind": kind, "gold": question.sql, "query": sql}
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--each", type=int, default=8, help="gold queries of each family")
    parser.add_argument(
        "--most", type=int, default=30, help="near neighbours of each gold query, drawn at random"
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--family", nargs="*", help="only these")
    parser.add_argument(
        "--unplanted", action="store_true", help="on shops as they are drawn, for comparison"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options)
    print(table(found))
    if options.out:
        write_json(options.out, found)


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    planted = paths = databases(folder, max(NUMBERS))
    if options.unplanted:
        paths = tuple(folder / f"drawn-{number}.db" for number in range(1, max(NUMBERS) + 1))
        for number, path in enumerate(paths, 1):
            build_database(path, orders=ORDERS, seed=derive("sql_qa", "shop", number))
    further = further_shops(folder)
    shop = folder / "shop.db"
    build_database(shop, orders=3000, seed=options.seed)
    accepted, kept = Tally(), Tally()
    gold_queries = equal = refused = 0
    fewest = {"neighbours": 10**6, "rewritings": 10**6}
    for family in families(shop):
        if options.family and family.name not in options.family:
            continue
        for question in islice(
            sift_questions(family, options.seed, planted[:SIFTED_ON]), options.each
        ):
            if not gold_of(paths[0], question.sql).rows:
                continue  # as a shop that was only drawn may have it
            gold_queries += 1
            near = neighbours(question.sql)
            names = sorted(near)
            order = generator(options.seed, question.sql).permutation(len(names))
            mine = 0
            for sql in [names[at] for at in order]:
                if mine == options.most:
                    break
                if isinstance(read_query(sql), QueryRefusal):
                    refused += 1
                    continue
                taken = verdicts(question, sql, paths)
                if taken[1] and not differs(question, sql, further):
                    equal += 1
                    continue
                mine += 1
                accepted.add(question, sql, near[sql], taken, right=False)
            same = rewritings(question.sql, ordered=family.ordered)
            for sql, kind in same.items():
                kept.add(question, sql, kind, verdicts(question, sql, paths), right=True)
            fewest = {
                "neighbours": min(fewest["neighbours"], mine),
                "rewritings": min(fewest["rewritings"], len(same)),
            }
        at_each = [
            f"{[sum(of.taken[number]) for number in NUMBERS]} of {len(of.golds)}"
            for of in (accepted, kept)
        ]
        print(f"{family.name}: {', '.join(at_each)}", flush=True)
    return {
        "gold_queries": gold_queries,
        "fewest_of_a_gold_query": fewest,
        "neighbours_equal_in_meaning": equal,
        "neighbours_refused_by_the_gate": refused,
        "rows": [row(number, accepted, kept) for number in NUMBERS],
        "false_accepts_by_kind_at_3": {
            kind: [n, accepted.of_kinds[kind]] for kind, n in accepted.kinds.most_common()
        },
        "false_rejects_by_kind_at_3": {
            kind: [n, kept.of_kinds[kind]] for kind, n in kept.kinds.most_common()
        },
        "false_accepts_at_3": accepted.wrong[:SHOWN],
        "false_rejects_at_3": kept.wrong[:SHOWN],
    }


def further_shops(folder: Path) -> list[Path]:
    """Six shops that were changed as the reward's were, five as they were drawn, and a large
    one."""
    changed = [folder / f"further-{number}.db" for number in range(101, 107)]
    for number, path in zip(range(101, 107), changed, strict=True):
        build_shop(path, number)
    plain = [folder / f"plain-{number}.db" for number in range(6)]
    for number, path in enumerate(plain):
        build_database(
            path, orders=20_000 if number == 5 else 2000, seed=derive("sql-reward-errors", number)
        )
    return changed + plain


def verdicts(question: SqlQuestion, sql: str, paths: Sequence[Path]) -> dict[int, bool]:
    """Whether the reward calls the result of a query right, by how many databases it is run on."""
    reference = {"question": question.text, "sql": question.sql, "ordered": question.family.ordered}
    completion = f"```sql\n{sql}\n```\n{question.sentence}"
    right = dict.fromkeys(NUMBERS, False)
    for number in NUMBERS:
        right[number] = judge(reference, completion, paths[:number])[1].parts["result"] == 1
        if not right[number]:  # nor on more databases
            break
    return right


def differs(question: SqlQuestion, sql: str, further: Sequence[Path]) -> bool:
    for path in further:
        gold, other = run(path, question.sql, PATIENT), run(path, sql, PATIENT)
        assert isinstance(gold, QueryResult), gold
        if isinstance(other, QueryRefusal) or listed(gold, question) != listed(other, question):
            return True
    return False


def listed(result: QueryResult, question: SqlQuestion) -> list[tuple[Any, ...]]:
    """The rows, exact but for what the order of additions leaves in the last digits."""
    rows = [
        tuple(round(value, 6) if isinstance(value, float) else value for value in row)
        for row in result.rows
    ]
    return rows if question.family.ordered else sorted(rows, key=repr)


def row(number: int, accepted: Tally, kept: Tally) -> dict[str, Any]:
    return {
        "databases": number,
        "false_accepts": share(accepted.taken[number], accepted.golds),
        "false_rejects": share([not right for right in kept.taken[number]], kept.golds),
    }


def share(flags: Sequence[bool], golds: Sequence[str]) -> dict[str, float]:
    interval = rate_interval(np.asarray(flags), golds)
    return {"count": sum(flags), "n": len(flags), "low": interval.low, "high": interval.high}


def table(found: Mapping[str, Any]) -> str:
    lines = [
        "| databases | wrong queries taken for right | right queries taken for wrong |",
        "|---|---|---|",
    ]
    for each in found["rows"]:
        cells = [
            f"{100 * of['count'] / of['n']:.2f} % [{100 * of['low']:.2f}, {100 * of['high']:.2f}] "
            f"({of['count']} of {of['n']:,})"
            for of in (each["false_accepts"], each["false_rejects"])
        ]
        lines.append(f"| {each['databases']} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
