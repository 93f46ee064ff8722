"""An evaluation that moves more from one time to the next than it rose: it cannot say which checkpoint is the best."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.trends import finite

ENOUGH = 6
SURE = 2.0
"""Times the scatter of a point, that the last third must be above the first: both are means of two points or more."""


def look(history: History) -> Iterator[Finding]:
    """Of the main evaluation: how far its last third is above its first, in standard deviations of a point."""
    values = finite(history["eval/reward"].values)
    if len(values) < ENOUGH:
        return
    third = len(values) // 3
    rise = float(values[-third:].mean() - values[:third].mean())
    noise = float(np.median(np.abs(np.diff(values))) / 0.6745 / 2**0.5)
    if noise < 0.005 or abs(rise) > SURE * noise or values.max() - np.median(values) < noise:
        return
    yield Finding(
        check="eval-noise",
        level="note",
        what=f"eval/reward scatters by {noise:.3f} from one evaluation to the next and rose by "
        f"{rise:+.3f} in all: its best point ({values.max():.3f}) is the luckiest, not the best",
        evidence={"scatter": noise, "rise": rise, "points": len(values)},
        causes=("too few examples", "answers that are drawn instead of greedy ones"),
        fix="evaluate greedily and on more examples: four times as many halve the scatter",
    )


CHECK = Check(
    name="eval-noise",
    asks="whether the evaluation scatters more than it rose",
    needs=("eval/reward",),
    look=look,
    live=False,
)
