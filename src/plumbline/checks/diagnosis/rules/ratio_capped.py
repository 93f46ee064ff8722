"""Importance ratios of which only the cap is seen: how far sampler and scorer are apart, nobody can tell."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History

OFTEN = 0.5


def look(history: History) -> Iterator[Finding]:
    """Where the highest ratio is one and the same number at half of the steps. A cap is no fault; it may hide one."""
    series = history["ratio_max"]
    values = series.values[np.isfinite(series.values)]
    if len(values) < 10 or (top := float(values.max())) < 1.01:
        return
    at_cap = np.abs(values - top) < 1e-6 * top
    if at_cap.mean() < OFTEN:
        return
    yield Finding(
        check="ratio-capped",
        level="note",
        what=f"the highest importance ratio is {top:.4g} in {at_cap.mean():.0%} of the logged steps: it is "
        "logged after it was cut, so a gap that widens would not be seen in it",
        since=int(series.steps[np.isfinite(series.values)][np.argmax(at_cap)]),
        evidence={"cap": top, "share of steps": round(float(at_cap.mean()), 3)},
        causes=("truncated importance sampling",),
        fix="watch the logged difference of the log-probabilities"
        if len(history["gap"]) or len(history["gap_kl"])
        else "log the difference of the log-probabilities as it is, before any cut, and watch that",
    )


CHECK = Check(
    name="ratio-capped",
    asks="whether importance ratios are logged after they were cut",
    needs=("ratio_max",),
    look=look,
    live=False,
)
