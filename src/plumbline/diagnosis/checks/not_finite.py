"""A number that is none: NaN or infinity in what is optimised or measured."""

from collections.abc import Iterator

import numpy as np

from plumbline.diagnosis.check import Check
from plumbline.diagnosis.finding import Finding
from plumbline.diagnosis.history import History

WATCHED = ("loss", "gradient", "reward", "kl", "gap", "ratio_mean", "ratio_max", "entropy", "eval/loss", "eval/reward")

FEW = 0.05
"""Share of the steps that a loss scaler may skip: it begins too high, and is raised every 2,000 steps."""


def look(history: History) -> Iterator[Finding]:
    """Every watched series that holds one, as one finding: the first to break is the one to look at."""
    found = {}
    for name in (*WATCHED, *(f"part/{part}" for part in history.names("part/"))):
        series = history[name]
        bad = ~np.isfinite(series.values)
        if bad.any():
            found[name] = (int(series.steps[bad][0]), int(bad.sum()), float(series.values[bad][0]))
    if not found:
        return
    first = min(found, key=lambda name: found[name][0])
    step, _, value = found[first]
    others = [name for name in found if name != first]
    measured = all(name.startswith("eval/") for name in found)
    skipped = set(found) == {"gradient"} and _passing(history["gradient"].values)
    # transformers logs a loss that is NaN as 0.0, and only the gradient tells (logging_nan_inf_filter, on by default).
    yield Finding(
        check="not-finite",
        level="warning" if measured or skipped else "fatal",
        what=f"{first} is {value} at step {step}" + (f", and so are {', '.join(others)}" if others else ""),
        since=step,
        evidence={f"{name}: steps that are not finite": count for name, (_, count, _) in found.items()},
        causes=(
            "an evaluation in 16 bits, or of rows without a target; what was trained is finite"
            if measured
            else "a loss scaler of 16 bits, or the trainer, that skipped these steps"
            if skipped
            else "a reward that is not finite"
            if first.startswith(("reward", "part/"))
            else "too high a learning rate",
            "an overflow in 16 bits",
            "a division by the length or the spread of an empty or constant group",
        ),
        fix="go back to a checkpoint before that step, look at its batch, then lower the learning rate or use float32",
    )


def _stops(history: History, since: int) -> bool:  # noqa: ARG001 - a reward that is none has broken the weights at once
    """At once, but for a gradient, which a loss scaler skips where it is none: then three logged ones in a row."""
    names = ("loss", "reward", *(f"part/{part}" for part in history.names("part/")))
    if any((~np.isfinite(history[name].values)).any() for name in names):
        return True
    return any((~np.isfinite(history[name].last(3).values)).all() for name in WATCHED if len(history[name]) >= 3)


def _passing(values: np.ndarray) -> bool:
    """Whether few norms are none and those after them are some: weights of NaN would leave no other."""
    bad = ~np.isfinite(values)
    return bool(bad.mean() <= FEW and not bad[-1])


CHECK = Check(
    name="not-finite",
    asks="whether the loss, the gradient, a reward or a ratio was ever NaN or infinite",
    needs=("loss|gradient|reward",),
    look=look,
    kinds=("rl", "sft"),
    stops=_stops,
    explains=("no-signal", "reward-falls", "gradient-spikes", "degenerate-output", "truncation", "entropy", "sft-loss"),
)
