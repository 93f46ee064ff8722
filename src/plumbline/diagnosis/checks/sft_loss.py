"""Supervised training: the loss on held-out text rises, or the loss does not fall at all."""

from collections.abc import Iterator

import numpy as np

from plumbline.diagnosis.check import Check
from plumbline.diagnosis.finding import Finding
from plumbline.diagnosis.history import History
from plumbline.diagnosis.trends import finite

BROKEN = 1.5
"""Times the loss of the untouched model, which a whole stretch stays above."""


def look(history: History) -> Iterator[Finding]:
    """The held-out loss against its best, and the last tenth of the training loss against the first."""
    held, loss = history["eval/loss"], finite(history["loss"].values)
    values = finite(held.values)
    if len(values) >= 3:
        best = int(np.argmin(values))
        if best < len(values) - 1 and values[-1] > 1.1 * values[best] and values[-1] > values[best] + 0.05:
            yield Finding(
                check="sft-loss",
                level="warning",
                what=f"the held-out loss was {values[best]:.3f} at step {held.steps[best]} and is {values[-1]:.3f} now",
                since=int(held.steps[best]),
                evidence={"best": float(values[best]), "last": float(values[-1])},
                causes=("more epochs than the data bears",),
                fix=f"take the checkpoint of step {held.steps[best]}, or train for fewer epochs",
            )
    if len(loss) < 20:
        return
    width = max(5, len(loss) // 10)
    first, last = float(np.median(loss[:width])), float(np.median(loss[-width:]))
    noise = float(np.median(np.abs(np.diff(loss)))) / width**0.5
    begun = float(loss[0])  # of the weights as they were given
    if loss[-width:].min() > BROKEN * begun:
        yield Finding(
            check="sft-loss",
            level="fatal",
            what=f"the loss was {begun:.3f} at the first step, and none of the last {width} is below "
            f"{loss[-width:].min():.3f}",
            since=int(history["loss"].steps[0]),
            evidence={"first step": begun, "last": last},
            causes=("too high a learning rate: the first steps broke the model",),
            fix="lower the learning rate tenfold",
        )
    elif last > first + 4 * noise and last > 1.2 * first:
        yield Finding(
            check="sft-loss",
            level="fatal" if last > 2 * first else "warning",
            what=f"the loss rose from {first:.3f} to {last:.3f}",
            since=int(history["loss"].steps[0]),
            evidence={"first": first, "last": last},
            causes=("too high a learning rate",),
            fix="lower the learning rate tenfold",
        )
    elif last < 1e-3 and first < 1e-3:
        yield Finding(
            check="sft-loss",
            level="warning",
            what=f"the loss is {last:.1e} from the start: there is nothing to learn, or no target",
            since=int(history["loss"].steps[0]),
            evidence={"first": first, "last": last},
            causes=("all targets are masked", "the model has seen this text"),
            fix="look at which tokens the loss is taken over",
        )


CHECK = Check(
    name="sft-loss",
    asks="whether the loss rises, on held-out text or in training",
    needs=("loss",),
    look=look,
    kinds=("sft",),
)
