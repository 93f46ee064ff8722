"""Gradients far above what is usual: steps in random directions, even where the norm is clipped."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History

SPIKE = 10.0
"""Times the median of the steps with a signal."""
AROUND = 10
"""Steps before and after one that it is compared with."""
HIGH = 2.0
"""One team's log's limit of the norm, below which no spike is counted."""
CLIP = 1.0
"""The clip of trainers that say nothing else (TRL, transformers)."""


def look(history: History) -> Iterator[Finding]:
    """Spikes, and norms that the clip cuts nearly all the time."""
    series = history["gradient"]
    values = np.where(np.isfinite(series.values), series.values, 0.0)
    signal = (values > 1e-10) & ~np.isin(series.steps, _silent(history))
    used = values[signal]
    if len(used) < 10:
        return
    middle = float(np.median(used))
    # A norm that is high for a while, as at first, is no spike: those around it are high, too.
    around = np.array([np.median(used[max(0, at - AROUND) : at + AROUND + 1]) for at in range(len(used))])
    spikes = np.zeros(len(values), dtype=bool)
    spikes[signal] = used > np.maximum(SPIKE * np.maximum(around, middle), HIGH)
    spikes[: max(3, len(values) // 10)] = False  # a new head, an adapter or random weights begin far off
    clip = float(history.settings.get(f"{history.kind}.optimiser.max_grad_norm") or CLIP)
    if spikes.sum() >= max(3, 0.02 * len(values)) or (spikes & (values > 100 * max(middle, HIGH))).any():
        yield Finding(
            check="gradient-spikes",
            level="warning",
            what=f"the gradient's norm is over {SPIKE:.0f} times its median ({middle:.2g}) in {int(spikes.sum())} "
            "steps, "
            f"up to {values.max():.3g}",
            since=int(series.steps[spikes][0]),
            evidence={"steps": int(spikes.sum()), "highest": float(values.max()), "median": middle},
            causes=("too high a learning rate", "a few answers of extreme length or probability"),
            fix="lower the learning rate, and look at the completions of these steps",
        )
    elif middle > SPIKE * clip and history.kind == "rl":
        yield Finding(
            check="gradient-spikes",
            level="warning",
            what=f"the gradient's norm is {middle:.3g} in the middle, {middle / clip:.0f} times the clip of {clip:g}: "
            "its length says nothing, and steps with a strong signal count no more than others",
            since=int(series.steps[0]),
            evidence={"median": middle, "clip": clip},
            causes=("a loss summed over tokens instead of averaged", "a very low probability of the answers"),
            fix="look at the loss's denominator; raise the clip or lower the rate",
        )


def _silent(history: History) -> np.ndarray:
    """Steps whose groups all had equal rewards: what moves the weights there is the KL alone, and small."""
    shares = history["zero_std"]
    return shares.steps[shares.values >= 1]


CHECK = Check(
    name="gradient-spikes",
    asks="whether gradients spike, or are clipped at nearly every step",
    needs=("gradient",),
    look=look,
    kinds=("rl", "sft"),
)
