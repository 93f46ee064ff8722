"""The reward rose on held-out examples, and one of its parts fell: what was won was paid with something else."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.rules.unchanged import pairs
from plumbline.errors import IncomparableError
from plumbline.evaluation.comparison import compare

SURE = 4.0
"""Standard errors below 0 of the paired difference: a chance of 3 in 10^5, so that a dozen parts may be looked at."""
LARGE = 0.1
ENOUGH = 20


def look(history: History) -> Iterator[Finding]:
    """Every part of every greedy evaluation of the stage, on the examples that have it both times."""
    for after, before in pairs(history):
        try:
            rose = compare(before.evaluation, after.evaluation).difference
        except IncomparableError:
            continue  # `gain` says so
        if rose.low <= 0:
            continue
        first = {row.id: row.parts for row in before.evaluation.rows}
        changes: dict[str, list[float]] = {}
        for row in after.evaluation.rows:
            for name, value in row.parts.items():
                old = first.get(row.id, {}).get(name)
                if value is not None and old is not None:
                    changes.setdefault(name, []).append(value - old)
        for name, found in changes.items():
            mean, n = float(np.mean(found)), len(found)
            error = float(np.std(found, ddof=1)) / n**0.5 if n > 1 else np.inf
            if n < ENOUGH or mean > -LARGE or mean > -SURE * error:
                continue
            where = f"{after.task} {after.split}".strip()
            yield Finding(
                check="part-lost",
                level="warning",
                what=f"on {where} {after.stage} raised the reward by {rose.mean:+.3f} and the part {name} fell by "
                f"{-mean:.3f} (n = {n})",
                evidence={"reward": rose.mean, name: mean, "n": n},
                causes=("the parts that rose are cheaper to earn, and cost this one", "a cheat that the reward pays"),
                fix=f"read answers that lost {name}; raise its weight",
            )


CHECK = Check(
    name="part-lost",
    asks="whether a part of the reward fell on held-out examples while the reward rose",
    needs=("finals",),
    look=look,
    kinds=("rl", "sft"),
    live=False,
)
