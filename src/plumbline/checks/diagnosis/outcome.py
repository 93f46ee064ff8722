"""What came of a stage: its reward, or its loss, from first to last, and whether that is better than at first."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.trends import noise_of_mean
from plumbline.evaluation.statistics import Interval

ENOUGH = 12
"""Logged steps, from which on an interval is believed."""
WIDE = 0.5
"""Of the reward or the loss itself: an interval that goes so far beyond 0 leaves open whether anything happened."""
Z = 1.96


@dataclass(frozen=True, slots=True)
class RewardOutcome:
    """The last third of the logged steps against the first, or against the first tenth where it rose at once."""

    series: Literal["reward", "loss"]
    first: float
    last: float
    change: Interval
    """The last less the first, over so many logged steps, with its 95 % interval."""
    every: bool
    """Whether every step was logged."""

    @property
    def better(self) -> bool | None:
        """Whether the reward rose or the loss fell for sure; None for too few steps."""
        if self.change.n < ENOUGH:
            return None
        return self.change.low > 0 if self.series == "reward" else self.change.high < 0

    @property
    def said(self) -> str:
        """In a line."""
        digits = 3 if max(abs(self.first), abs(self.last)) >= 0.01 else 5
        way = {"reward": "rise", "loss": "fall"}[self.series]
        done = {"reward": "rose", "loss": "fell"}[self.series]
        verdict = {None: "too few to tell", True: done, False: f"did not {way}"}[self.better]
        size, most = max(abs(self.first), abs(self.last)), max(-self.change.low, self.change.high)
        if self.better is False and self.change.low < 0 < self.change.high and most > WIDE * size:
            verdict = f"cannot be told whether it {done}"
        steps = "steps" if self.every else "logged steps"
        return (
            f"{self.series} {self.first:.{digits}f} -> {self.last:.{digits}f} over {self.change.n} {steps}: {verdict}"
            + ("" if self.better is None else f" ({self.change:+.{digits}f})")
        )

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {**asdict(self), "better": self.better, "said": self.said}


@np.errstate(over="ignore", invalid="ignore")
def outcome(history: History) -> RewardOutcome | None:
    """Of a stage; None where fewer than four values of what is trained for were logged."""
    name: Literal["reward", "loss"] = "reward" if history.kind == "rl" else "loss"
    good = np.isfinite(history[name].values)
    steps, values = history[name].steps[good], history[name].values[good]
    if len(values) < 4:
        return None
    third = max(2, len(values) // 3)
    whole = _change(values, third, third)
    at_once = _change(values, max(2, len(values) // 10), third)
    sign = 1 if name == "reward" else -1
    first, last, change = (
        max(whole, at_once, key=lambda ends: _surely(ends[2], sign)) if len(values) >= ENOUGH else whole
    )
    every = int(steps[-1] - steps[0]) + 1 == len(values)
    return RewardOutcome(name, first, last, change, every)


def _change(values: NDArray[np.float64], early: int, late: int) -> tuple[float, float, Interval]:
    """The means at both ends and their difference; its error is the larger of what neighbours and what ends show."""
    first, last = values[:early], values[-late:]
    places = np.arange(len(values))
    # Without the line: a slow rise would look like noise of neighbours that are alike.
    left = values - np.polyval(np.polyfit(places, values, 1), places)
    scatter = float(np.hypot(left[:early].std(ddof=1) / early**0.5, left[-late:].std(ddof=1) / late**0.5))
    noise = float(np.hypot(noise_of_mean(left, early), noise_of_mean(left, late))) if len(values) > 4 else 0.0
    change, error = float(last.mean() - first.mean()), Z * max(scatter, noise)
    return float(first.mean()), float(last.mean()), Interval(change, change - error, change + error, len(values))


def _surely(change: Interval, sign: int) -> bool:
    """Whether it is for the better; of two that are, or are not, the first counts."""
    return (change.low if sign > 0 else -change.high) > 0
