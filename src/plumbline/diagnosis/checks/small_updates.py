"""A learning rate so low that the weights cannot have gone anywhere."""

from collections.abc import Iterator

import numpy as np

from plumbline.diagnosis.check import Check
from plumbline.diagnosis.finding import Finding
from plumbline.diagnosis.history import History

FAR = 1e-5
"""The sum of the rates over all steps. A step of AdamW moves a weight by about the rate (Kingma and Ba 2015, section
2.1), so no weight has moved further; 100 steps at 1e-6, the least that papers report for full weights, make 1e-4."""
LOW = 1e-7
"""A rate that is too low however few steps there are; at a usual one few steps are only a short run."""
ENOUGH = 20
"""Steps, below which nobody expects anything."""


def look(history: History) -> Iterator[Finding]:
    """The whole of what was trained."""
    rate = history["rate"]
    values = rate.values[np.isfinite(rate.values)]
    if len(values) < 2 or (steps := int(rate.steps[-1] - rate.steps[0]) + 1) < ENOUGH:
        return
    left = max(0, (history.settings.get("steps") or 0) - int(rate.steps[-1])) if history.finished is False else 0
    travelled = float(values.mean() * steps + values.max() * left)
    if travelled <= 0 or travelled >= FAR or (steps < 50 and values.max() > LOW):
        return
    section = "rl" if history.kind == "rl" else "sft"
    yield Finding(
        check="small-updates",
        level="warning",
        what=f"the learning rates of all {steps + left} steps add up to {travelled:.1e}: no weight can have moved "
        "further, and 16-bit weights of usual size round such steps away",
        since=int(rate.steps[0]),
        evidence={"sum of rates": travelled, "highest rate": float(values.max())},
        causes=("a rate for another optimiser or another loss (a factor on the loss does not change AdamW's steps)",),
        fix="raise the learning rate: 1e-6 to 5e-6 for full weights, 1e-5 to 1e-4 for adapters",
        change={f"{section}.optimiser.learning_rate": 1e-5},
    )


CHECK = Check(
    name="small-updates",
    asks="whether the learning rate was too low for the weights to move",
    needs=("rate",),
    look=look,
    kinds=("rl", "sft"),
)
