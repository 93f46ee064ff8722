"""What the rules that label Olist's reviews are worth: against the gold of synthetic shops, which
is known.

    python experiments/olist_rules.py [orders of each shop]

Two shops by seeds that the lexicon was not written by. An upper bound: the synthetic reviews are
more regular than people's, and the lexicon and their phrases were written under the same rules.
"""

import sqlite3
import sys
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path

from plumbline.evaluation.statistics import mean_interval, rate_interval
from plumbline.tasks import silent
from plumbline_commerce.database import build_database
from plumbline_commerce.olist.enriched import LABELS, enriched_rows

SEEDS = (101, 102)


def main() -> None:
    orders = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS:
            database = Path(folder) / f"{seed}.db"
            build_database(database, orders=orders, seed=seed)
            with closing(sqlite3.connect(database)) as connection:
                gold = connection.execute(
                    f"SELECT {', '.join(LABELS)} FROM orders_enriched"
                ).fetchall()
                ours = [row[-len(LABELS) :] for row in enriched_rows(connection, silent)]
            pairs += [
                (mine, theirs)
                for mine, theirs in zip(ours, gold, strict=True)
                if theirs[0] is not None
            ]
    known = [(mine, theirs) for mine, theirs in pairs if mine[0] is not None]
    print("| label | agrees | n |\n|---|---|---|")
    _row("labelled at all", [mine[0] is not None for mine, _ in pairs])
    for place, name in enumerate(LABELS):
        _row(name, [mine[place] == theirs[place] for mine, theirs in known])
    _row("all nine", [mine == theirs for mine, theirs in known])
    _row(
        "complaint_category, where there is one",
        [m[2] == t[2] for m, t in known if t[2] != "nenhum"],
    )
    spans = [(mine[7] or "", theirs[7]) for mine, theirs in known if theirs[7] is not None]
    _row("main_complaint, where there is one", [mine == theirs for mine, theirs in spans])
    overlap = mean_interval([_f1(mine.split(), theirs.split()) for mine, theirs in spans])
    print(f"| F1 of its words, where there is one | {overlap} | {overlap.n:,} |")


def _f1(ours: list[str], theirs: list[str]) -> float:
    common = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * common / (len(ours) + len(theirs))


def _row(name: str, flags: list[bool]) -> None:
    rate = rate_interval(flags)
    print(f"| {name} | {rate:.1%} | {rate.n:,} |")


if __name__ == "__main__":
    main()
