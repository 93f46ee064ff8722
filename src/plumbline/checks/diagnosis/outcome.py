"""What came of a stage: its reward, pairs or loss, from first to last, and whether that is better
than at first."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from plumbline.checks.diagnosis.history import History, Series
from plumbline.checks.diagnosis.trends import (
    FALL_ENOUGH,
    Shift,
    find_fall,
    find_stairs,
    measure_shift,
    median,
)
from plumbline.evaluation.statistics import Interval
from plumbline.records import FloatArray, IntArray

ENOUGH, ENOUGH_MEANS = 12, 5
"""Logged rows, from which on an interval is believed: of one step each, and of means over several
steps."""
MATTERS = 0.1
"""Of the level, and of the deviation within groups where that is logged: a rise of less would
change no decision. By the larger, since the level of a reward around 0, or of one that is rarely
earned, is no scale."""
LEAST = 1e-6
"""A level: a reward that is 0 throughout stands still."""
ALIKE, ALIKE_ENOUGH = 0.7, 20
"""The correlation of consecutive values, from which on a log may be smoothed, and rows that it can
be told of."""

Name = Literal["reward", "accuracy", "margin", "loss"]
Verdict = Literal["too-few", "rose", "fell", "still", "open"]
PAIRS: tuple[Name, ...] = ("accuracy", "margin")


@dataclass(frozen=True, slots=True)
class RewardOutcome:
    """The last third of the logged steps against the first, or against the first tenth where it
    rose at once."""

    series: Name
    first: float
    last: float
    change: Interval
    """The last less the first, over so many logged steps, with its 95 % interval."""
    every: bool
    """Whether rows are of neighbouring steps; else a row may be the mean of several, as TRL's with
    logging_steps."""
    matters: float
    """The size of a change that matters."""
    alike: float
    """See `Shift`."""
    finer: str
    """What would tell more where few rows stand for several steps each; empty where each is of
    one."""
    peak: tuple[float, int] | None = None
    """A reward's best stretch, and the step at which it ends, where the ends leave it open and it
    fell from there."""

    @property
    def better(self) -> bool | None:
        """Whether the reward rose or the loss fell for sure; None for too few steps."""
        if self.change.n < (ENOUGH if self.every else ENOUGH_MEANS):
            return None
        return self.change.high < 0 if self.series == "loss" else self.change.low > 0

    @property
    def worse(self) -> bool:
        """Whether the reward fell or the loss rose for sure."""
        return self.better is False and (
            self.change.low > 0 if self.series == "loss" else self.change.high < 0
        )

    @property
    def still(self) -> bool:
        """Whether it is not better, and no change for the better of a size that matters is
        possible."""
        most = -self.change.low if self.series == "loss" else self.change.high
        return self.better is False and most < self.matters

    @property
    def verdict(self) -> Verdict:
        """What came of the stage; `open` where it cannot be told whether it became better."""
        if self.better is None:
            return "too-few"
        if self.change.excludes_zero:
            return "rose" if self.change.low > 0 else "fell"
        if self.peak is not None:
            return "fell"
        return "still" if self.still else "open"

    @property
    def summary(self) -> str:
        """What came of the stage, in a line."""
        digits = 5 if 0 < max(abs(self.first), abs(self.last)) < 0.01 else 3
        way, done = ("fall", "fell") if self.series == "loss" else ("rise", "rose")
        verdict = {
            "too-few": "too few to tell",
            "still": f"did not {way}",
            "open": f"cannot be told whether it {done}",
        }.get(self.verdict, self.verdict)
        if self.peak is not None:
            verdict = f"fell from {self.peak[0]:.{digits}f} at step {self.peak[1]}"
        why = ""
        if self.verdict == "open" and self.alike > ALIKE and self.change.n >= ALIKE_ENOUGH:
            why = (
                f": consecutive values are alike (correlation {self.alike:.2f}), as in a "
                "smoothed log"
            )
        if self.verdict in {"too-few", "open"}:
            why += f"; {self.finer}" if self.finer else ""
        steps = "steps" if self.every else "logged steps"
        moved = max(abs(self.change.low), abs(self.change.high)) >= 0.5 * 10.0**-digits
        return (
            (
                f"{self.series} {self.first:.{digits}f} -> {self.last:.{digits}f} over "
                f"{self.change.n} "
                f"{steps}: {verdict}"
            )
            + (
                f" ({self.change:+.{digits}f})"
                if moved and self.better is not None and self.peak is None
                else ""
            )
            + why
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            **asdict(self),
            "better": self.better,
            "verdict": self.verdict,
            "summary": self.summary,
        }


@np.errstate(over="ignore", invalid="ignore")
def measure_outcome(history: History) -> RewardOutcome | None:
    """Of a stage; None where fewer than two values of what is trained for were logged.

    Of preference training the accuracy of its pairs, or their margin where that alone rises for
    sure.
    """
    if history.kind == "rl":
        return _measure_series("reward", history["reward"], history)
    pairs = [_measure_series(name, history[f"preference/{name}"], history) for name in PAIRS]
    found = [one for one in pairs if one is not None]
    return next(
        (one for one in found if one.better),
        found[0] if found else _measure_series("loss", _known_losses(history), history),
    )


def _known_losses(history: History) -> Series:
    """The losses but for those of 0 beside a gradient that is not finite: transformers writes 0 for
    NaN."""
    loss, gradient = history["loss"], history["grad_norm"]
    broken = gradient.steps[~np.isfinite(gradient.values)]
    known = (loss.values != 0) | ~np.isin(loss.steps, broken)
    return Series(loss.steps[known], loss.values[known])


def _measure_series(name: Name, series: Series, history: History) -> RewardOutcome | None:
    steps, values = series.finite
    if len(values) < 2:
        return None
    apart = int(median(np.diff(steps)))
    # of logging_first_step: one step, the others are means
    if steps[0] == 1 < apart and len(values) > ALIKE_ENOUGH:
        steps, values = steps[1:], values[1:]
    third = max(min(2, len(values) // 2), len(values) // 3)
    learnt = find_stairs(
        values,
        _epoch_starts(steps, history["epoch"])
        if history.kind == "sft"
        else np.array([], dtype=np.int64),
    )
    found = _shift_under_stairs(values, third, third, *learnt)
    sign = -1 if name == "loss" else 1
    if len(values) >= ENOUGH and not _is_surely_better(found.interval, sign):
        at_once = _shift_under_stairs(values, max(2, len(values) // 10), third, *learnt)
        found = at_once if _is_surely_better(at_once.interval, sign) else found
    spread = history["reward_std"].finite_values
    level = max(abs(found.first), abs(found.last), median(spread) if len(spread) else 0.0)
    every = apart <= 1
    option = (
        "logging_steps=1"
        if history.origin == "trl" or "num_generations" in history.options.values()
        else "a row for each step"
    )
    finer = (
        f"1 row for {apart} steps: {option} would tell"
        if apart > 1 and len(values) < ALIKE_ENOUGH
        else ""
    )
    matters = MATTERS * max(level, LEAST)
    came = RewardOutcome(
        name, found.first, found.last, found.interval, every, matters, found.alike, finer
    )
    if name != "reward" or came.verdict != "open" or (every and len(values) < FALL_ENOUGH):
        return came
    fall = find_fall(values, found.alike, every=every)
    return came if fall is None else replace(came, peak=(fall.best, int(steps[fall.place])))


def _epoch_starts(steps: IntArray, epoch: Series) -> IntArray:
    """The places at which epochs after the first begin: a text that comes again is known."""
    if not len(epoch):
        return np.array([], dtype=np.int64)
    whole = np.ceil(np.interp(steps, epoch.steps, epoch.values) - 1e-3)
    return np.flatnonzero(np.diff(whole) > 0) + 1


def _shift_under_stairs(
    values: FloatArray, early: int, late: int, learnt: FloatArray, error: float
) -> Shift:
    """The change of a series, whose noise is what stairs leave: with them it looks slow."""
    found = measure_shift(values - learnt, early, late)
    half = float(np.hypot(found.interval.high - found.interval.mean, 2 * error))
    return Shift.between(values, early, late, half, found.alike)


def _is_surely_better(found: Interval, sign: int) -> bool:
    """Whether it is for the better."""
    return (found.low if sign > 0 else -found.high) > 0
