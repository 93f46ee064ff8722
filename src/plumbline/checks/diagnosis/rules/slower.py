"""Steps that take ever longer for the same work."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.trends import finite

TIMES = 3.0
ENOUGH = 20


def look(history: History) -> Iterator[Finding]:
    """The second tenth of the steps (the first one warms up) against the last, a token where lengths are known.

    What else ran on the machine is not known, so it is a note.
    """
    seconds = finite(history["seconds"].values)
    if len(seconds) < ENOUGH:
        return
    width = max(3, len(seconds) // 10)
    grew = float(np.median(seconds[-width:]) / max(float(np.median(seconds[width : 2 * width])), 1e-9))
    length = finite(history["length"].values)
    if len(length) >= ENOUGH:
        grew /= max(1.0, float(np.median(length[-width:]) / max(float(np.median(length[width : 2 * width])), 1.0)))
    if grew < TIMES:
        return
    yield Finding(
        check="slower",
        level="note",
        what=f"steps take {grew:.1f} times as long as at first" + (", a token" if len(length) >= ENOUGH else ""),
        evidence={"times": round(grew, 2), "seconds": float(np.median(seconds[-width:]))},
        causes=("memory that is not given back", "workers of the verifier or the sampler that died", "other work"),
        fix="look at memory and at how many workers live",
    )


CHECK = Check(
    name="slower",
    asks="whether steps take ever longer",
    needs=("seconds",),
    look=look,
    kinds=("rl", "sft"),
    live=False,
)
