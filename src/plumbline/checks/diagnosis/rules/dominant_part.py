"""One part of the reward makes all of its spread, whatever the others say."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.facts import sums
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History

SHARE = 0.95
"""Of the sum of the parts' variances: the others together move the reward by less than a fourth of what it does."""
MOVES = 1e-3
"""Standard deviation over which a part says something at all; a dead one has a check of its own."""
ENOUGH = 10


def look(history: History) -> Iterator[Finding]:
    """Where the reward is the plain sum of its parts, as other weights are not known. It may be meant so: a note."""
    names, (steps, less, off) = history.names("part_std/"), sums(history)
    if len(names) < 2 or len(steps) < ENOUGH or not np.nanmedian(np.abs(less)) < off:
        return
    spread = {name: float(np.nanmean(history[f"part_std/{name}"].values)) for name in names}
    moving = {name: value for name, value in spread.items() if value > MOVES}
    if len(moving) < 2:
        return
    first = max(moving, key=lambda name: moving[name])
    share = moving[first] ** 2 / sum(value**2 for value in moving.values())
    if share >= SHARE:
        others = ", ".join(name for name in moving if name != first)
        yield Finding(
            check="dominant-part",
            level="note",
            what=f"{share:.0%} of the variance of the parts of the reward is that of {first}: {others} "
            f"hardly count{'s' if len(moving) == 2 else ''}",
            evidence=moving,
            causes=("parts of different scales, added with equal weights",),
            fix="bring all parts to the range from 0 to 1, and say with weights what counts more",
        )


CHECK = Check(
    name="dominant-part",
    asks="whether one part of the reward makes all of its spread",
    needs=("part_std/", "reward"),
    look=look,
    live=False,
)
