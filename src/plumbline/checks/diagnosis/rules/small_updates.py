"""A learning rate so low that the weights cannot have gone anywhere."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.outcome import outcome
from plumbline.checks.diagnosis.trends import finite

FAR = 1e-5
"""The sum of the rates over all steps. A step of AdamW moves a weight by about the rate (Kingma and Ba 2015, section
2.1), so no weight has moved further; 100 steps at 1e-6, the least that papers report for full weights, make 1e-4."""
LOW = 1e-7
"""A rate that is too low however few steps there are; at a usual one few steps are only a short run."""
ENOUGH = 20
"""Steps, below which nobody expects anything."""
FULL, ADAPTERS = (1e-6, 5e-6), (1e-5, 1e-4)
"""Rates of RL that papers and logs report for all weights (TRL's default 1e-6, one team's 2e-6 and 5e-6), and
for adapters: about ten times as high (Schulman et al. 2025, "LoRA Without Regret"; docs/grpo-on-real-models.md)."""
FAR_OFF = 10.0
"""Times under the usual rates, from which a rate is too low by itself."""


def look(history: History) -> Iterator[Finding]:
    """The whole of what was trained."""
    rate = history["rate"]
    values = rate.values[np.isfinite(rate.values)]
    if len(values) < 2 or (steps := int(rate.steps[-1] - rate.steps[0]) + 1) < ENOUGH:
        return
    left = max(0, (history.settings.get("steps") or 0) - int(rate.steps[-1])) if history.finished is False else 0
    travelled = float(values.mean() * steps + values.max() * left)
    section = "rl" if history.kind == "rl" else "sft"
    highest = highest_rate(history)
    adapter = adapter_rate(history)
    if 0 < travelled < FAR and not (steps < 50 and values.max() > LOW):
        what = f"the learning rates of all {steps + left} steps add up to {travelled:.1e}: no weight can have moved "
        what += "further, and 16-bit weights of usual size round such steps away"
        causes = ["a rate for another optimiser or another loss (a factor on the loss does not change AdamW's steps)"]
    elif adapter and highest < ADAPTERS[0] / FAR_OFF and not ((came := outcome(history)) and came.better):
        what = f"the learning rate is {highest:.1e} at most, and an adapter is trained: usual are {ADAPTERS[0]:.0e} to "
        what += f"{ADAPTERS[1]:.0e}" + (f"; {came.said}" if came else "")
        causes = []
    else:
        return
    yield Finding(
        check="small-updates",
        level="warning",
        what=what,
        since=int(rate.steps[0]),
        evidence={"sum of rates": travelled, "highest rate": highest},
        causes=(*adapter, *causes),
        fix="raise the learning rate: 1e-6 to 5e-6 for full weights, 1e-5 to 1e-4 for adapters",
        change={f"{section}.optimiser.learning_rate": ADAPTERS[0]},
    )


def highest_rate(history: History) -> float:
    """The highest rate that was logged or planned: a warmup may not be over; NaN where none is known."""
    logged, planned = finite(history["rate"].values), history.settings.get(f"{history.kind}.optimiser.learning_rate")
    rates = [*logged.tolist(), *([float(planned)] if isinstance(planned, int | float) else [])]
    return max(rates, default=float("nan"))


def adapter_rate(history: History) -> tuple[str, ...]:
    """The cause that a rate is for all weights, where an adapter is known to be trained."""
    if history.settings.get("model.lora.rank") is None or not highest_rate(history) < ADAPTERS[0] / 2:
        return ()
    return (f"a rate for all weights ({FULL[0]:.0e} to {FULL[1]:.0e}), given to an adapter",)


CHECK = Check(
    name="small-updates",
    asks="whether the learning rate was too low for the weights to move",
    needs=("rate",),
    look=look,
    kinds=("rl", "sft"),
)
