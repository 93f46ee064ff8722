"""Supervised training: the loss on held-out text rises, or the loss does not fall at all."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.facts import level, likely
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.trends import finite

RISING = ("accuracy", "f1", "precision", "recall", "correlation", "rouge", "bleu", "exact_match", "auc")
"""What is better the higher it is. A classifier's loss rises while its accuracy does, because it grows surer."""
SURE = 0.1
"""Nats a token: a text that is known by heart has less."""
BROKEN = 1.5
"""Times the loss of the untouched model, which a whole stretch stays above."""


def look(history: History) -> Iterator[Finding]:
    """The held-out loss against its best, and the last tenth of the training loss against the first."""
    held, loss = history["eval/loss"], finite(history["loss"].values)
    values = finite(held.values)
    if len(values) >= 3:
        best = int(np.argmin(values))
        if best < len(values) - 1 and values[-1] > 1.1 * values[best] and values[-1] > values[best] + 0.05:
            better = [name for name in history.names("eval/") if _still_better(history, name, int(held.steps[best]))]
            yield Finding(
                check="sft-loss",
                level="note" if better else "warning",
                what=f"the held-out loss was {values[best]:.3f} at step {held.steps[best]} and is {values[-1]:.3f} now"
                + (f"; {', '.join(better)} rose since: surer, and not worse" if better else ""),
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
    # The first batch may be an easy one: twice the factor from step to step is three standard deviations of it.
    factor = float(np.exp(2 * np.median(np.abs(np.diff(np.log(np.maximum(loss, 1e-9)))))))
    if begun > 0 and loss[-width:].min() > max(BROKEN, factor) * begun:
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
    elif max(abs(last), abs(first)) < 1e-3 and loss.min() >= 0:  # a loss below 0 is none of supervised training
        gradient = finite(history["gradient"].values)
        moving, dead = bool((gradient != 0).any()), len(gradient) > 0 and not gradient.any()
        yield Finding(
            check="sft-loss",
            level="fatal" if dead else "warning",
            what=f"the loss is {last:.1e} from the start: there is nothing to learn, or no target",
            since=int(history["loss"].steps[0]),
            evidence={"first": first, "last": last},
            causes=likely(
                history,
                ("all targets are masked", lambda _: moving),
                ("the model has seen this text", lambda run: dead or level(run["entropy"]) > SURE),
                ("a loss that is divided by too much", lambda _: not moving),
            ),
            fix="look at which tokens the loss is taken over",
        )


def _still_better(history: History, name: str, step: int) -> bool:
    """Whether an accuracy or the like ends above where it was at a step, and near its best."""
    if not any(word in name.lower() for word in RISING):
        return False
    series = history[f"eval/{name}"]
    values, there = finite(series.values), finite(series.values[series.steps <= step])
    return len(values) >= 3 and len(there) > 0 and values[-1] > there[-1] and values[-1] >= values.max() - 0.005


CHECK = Check(
    name="sft-loss",
    asks="whether the loss rises, on held-out text or in training",
    needs=("loss",),
    look=look,
    kinds=("sft",),
)
