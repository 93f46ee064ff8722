"""A loss of about 0 in RL, which worries people and is no fault."""

from collections.abc import Iterator

import numpy as np

from plumbline.diagnosis.check import Check
from plumbline.diagnosis.finding import Finding
from plumbline.diagnosis.history import History

ZERO = 1e-6
MOVING = 1e-8
"""A gradient over this is one."""


def look(history: History) -> Iterator[Finding]:
    """At the first steps, with a gradient that is none of 0: where there is none, `no-signal` says so."""
    loss, gradient = history["loss"], history["gradient"]
    values = loss.values[np.isfinite(loss.values)]
    if len(values) < 10 or len(gradient) < 10 or not (np.abs(values[:3]) < ZERO).all():
        return
    if not np.nanmedian(gradient.values) > MOVING:
        return
    rises = float(np.abs(values[-max(3, len(values) // 10) :]).mean()) > 10 * ZERO
    yield Finding(
        check="loss-zero",
        level="note",
        what="the loss is 0 at first"
        + (" and rises with the distance to the reference" if rises else " and stays about there")
        + ": that is no fault, the gradient is not 0",
        since=int(loss.steps[0]),
        evidence={"gradient": float(np.nanmedian(gradient.values))},
        causes=(
            "advantages sum to 0, and where a batch is used once the ratio is 1: the value of the loss says nothing",
        ),
        fix="judge by the reward and the evaluation",
    )


CHECK = Check(
    name="loss-zero",
    asks="whether the loss is 0 and that is no fault",
    needs=("loss", "gradient"),
    look=look,
    live=False,
)
