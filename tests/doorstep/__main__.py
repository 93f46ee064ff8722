"""Print how many inputs of each kind get the right answer:
`python -m tests.doorstep [KIND ...] [-v]`."""

import argparse
from collections import Counter

from tests.doorstep import corpus


def main() -> None:
    """Grade the kinds that are asked for; with -v say of each input that is not right why."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "kinds", nargs="*", metavar="KIND", help=f"of {', '.join(corpus.KINDS)}; all without one"
    )
    parser.add_argument("-v", action="store_true", help="say why, of each input that is not right")
    asked = parser.parse_args()
    table: dict[str, Counter[str]] = {}
    for kind in asked.kinds or corpus.KINDS:
        table[kind] = Counter()
        for name in corpus.names(kind):
            verdict, why = corpus.grade(kind, name)
            table[kind][verdict] += 1
            if asked.v and verdict != "right":
                print(f"{kind}/{name}: {verdict}: {why}", flush=True)
    print(f"{'':10}" + "".join(f"{verdict:>16}" for verdict in corpus.VERDICTS))
    table["all"] = sum(table.values(), Counter())
    for kind, found in table.items():
        print(f"{kind:10}" + "".join(f"{found[verdict]:16}" for verdict in corpus.VERDICTS))


if __name__ == "__main__":
    main()
