"""The learning rate has run out while steps remain: they cost as much as the others and change nothing."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding, Level
from plumbline.checks.diagnosis.history import History

SPENT = 0.01
"""Of the highest rate: below it a step of AdamW moves a hundredth of what it did."""
TAIL = 0.15
"""Share of the run. A cosine to 0 over all steps is below for its last 6.4 % (arccos(-0.98)/pi), a line for 1 %."""


def look(history: History) -> Iterator[Finding]:
    """The tail of steps whose rate is spent, up to the steps that were planned."""
    rate = history["rate"]
    values = rate.values
    if len(values) < 10 or not np.isfinite(values).all() or values.max() <= 0:
        if len(values) >= 5 and np.isfinite(values).all() and values.max() <= 0:
            yield _finding("fatal", int(rate.steps[0]), 1.0, float(values.max()), int(rate.steps[-1]), history)
        return
    low = values < SPENT * values.max()
    after = int(np.argmax(values))
    low[:after] = False  # a warmup is no end
    if not low[-1]:
        return
    start = int(rate.steps[np.flatnonzero(~low)[-1] + 1])
    planned = max(int(rate.steps[-1]), int(history.settings.get("steps") or 0))
    share = (planned - start + 1) / planned
    if share >= TAIL:
        yield _finding("fatal" if share >= 2 * TAIL else "warning", start, share, float(values.max()), planned, history)


def _finding(level: Level, start: int, share: float, peak: float, planned: int, history: History) -> Finding:
    section = "rl" if history.kind == "rl" else "sft"
    return Finding(
        check="rate-exhausted",
        level=level,
        what=f"from step {start} on the learning rate is below a hundredth of its highest ({peak:.1e}): "
        f"{share:.0%} of {planned} steps change next to nothing"
        if peak > 0
        else f"the learning rate is 0 at all of {len(history['rate'])} logged steps: nothing changes",
        since=start,
        evidence={"share of steps": round(share, 3), "highest": peak, "last": float(history["rate"].values[-1])},
        causes=("a schedule that ends before the run does", "a run resumed past the end of its schedule")
        if peak > 0
        else ("a rate of 0, or a schedule that was made for 0 steps",),
        fix="a constant rate after a short warmup, or a schedule over all of the steps",
        change={f"{section}.optimiser.schedule": "constant", f"{section}.optimiser.warmup": 0.05},
    )


def _stops(history: History, since: int) -> bool:  # noqa: ARG001 - the rates say since when
    """Once a tenth of the run had no rate: one that restarts is below for 3 % of it at most, with two cycles."""
    values = history["rate"].values
    spent = len(values) - 1 - np.flatnonzero(values >= SPENT * values.max())[-1] if values.max() > 0 else len(values)
    return spent >= max(10, 0.1 * (history.settings.get("steps") or 0) * len(values) / history.last_step)


CHECK = Check(
    name="rate-exhausted",
    asks="whether the learning rate ran out while steps remained",
    needs=("rate",),
    look=look,
    kinds=("rl", "sft"),
    explains=("plateau",),
    stops=_stops,
)
