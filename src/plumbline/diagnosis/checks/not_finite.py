"""A number that is none: NaN or infinity in what is optimised or measured."""

from collections.abc import Iterator

import numpy as np

from plumbline.diagnosis.check import Check
from plumbline.diagnosis.finding import Finding
from plumbline.diagnosis.history import History

WATCHED = ("loss", "gradient", "reward", "kl", "gap", "ratio_mean", "ratio_max", "entropy", "eval/loss", "eval/reward")


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
    # transformers logs a loss that is NaN as 0.0, and only the gradient tells (logging_nan_inf_filter, on by default).
    yield Finding(
        check="not-finite",
        level="warning" if measured else "fatal",
        what=f"{first} is {value} at step {step}" + (f", and so are {', '.join(others)}" if others else ""),
        since=step,
        evidence={f"{name}: steps that are not finite": count for name, (_, count, _) in found.items()},
        causes=(
            "an evaluation in 16 bits, or of rows without a target; what was trained is finite"
            if measured
            else "a reward that is not finite"
            if first.startswith(("reward", "part/"))
            else "too high a learning rate",
            "an overflow in 16 bits",
            "a division by the length or the spread of an empty or constant group",
        ),
        fix="go back to a checkpoint before that step, look at its batch, then lower the learning rate or use float32",
    )


CHECK = Check(
    name="not-finite",
    asks="whether the loss, the gradient, a reward or a ratio was ever NaN or infinite",
    needs=("loss|gradient|reward",),
    look=look,
    kinds=("rl", "sft"),
    explains=("no-signal", "reward-falls", "gradient-spikes", "degenerate-output", "truncation", "entropy", "sft-loss"),
)
