"""Neither gradients nor rewards point anywhere: AdamW's steps are then a random walk, and unlearn what SFT taught."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History

LOOK = 20
"""Steps between looks at whether they go anywhere."""
DIRECTION = 1.0
"""The t-value from which on there is a sign of a direction."""


def look(history: History) -> Iterator[Finding]:
    """Where at two looks in a row neither the gradients nor the rewards so far point anywhere.

    Two t-values are looked at: of the mean of the gradient's signal, whose estimate is unbiased and falls around 0
    where there is none, and of the slope of a straight line through the steps' mean rewards (prompts differ from step
    to step, so single values say nothing). With true advantages one of them rises above `DIRECTION` as evidence
    gathers, though not always within `LOOK` steps; dealt at random, neither does in seven of ten looks (0.84 squared).
    AdamW moves every weight by about the rate whatever the gradient's size.
    """
    names = ("reward", "signal", "noise")
    columns = [dict(zip(history[name].steps.tolist(), history[name].values, strict=True)) for name in names]
    steps = sorted(set(columns[0]) & set(columns[1]) & set(columns[2]))
    table = np.array([[column[step] for step in steps] for column in columns])
    end = table.shape[-1] // LOOK * LOOK
    if end < 2 * LOOK or not np.isfinite(table).all():
        return
    (_, _), (signal, slope) = found = [_directions(table[:2, :at]) for at in (end - LOOK, end)]
    if max(max(pair) for pair in found) >= DIRECTION:
        return
    ratio = float(table[1, :end].sum() / table[2, :end].sum()) if table[2, :end].sum() > 0 else 0.0
    rate = history["rate"].values
    yield Finding(
        check="mostly-noise",
        level="warning",
        what=f"after {end} steps nothing points anywhere: the gradient's signal is {ratio:.2f} of its noise "
        f"(t = {signal:.1f}), the rewards' trend has t = {slope:.1f}"
        + (f"; at a rate of {rate[-1]:.1e} the weights then move mostly by noise" if len(rate) else ""),
        since=steps[0],
        evidence={"signal: t": signal, "reward: t": slope, "signal / noise": ratio},
        causes=("few answers a step", "an SFT that left little to choose", "a rate too high for the signal"),
        fix="take more answers a step (rl.prompts_per_step), or start from a shorter SFT, which leaves more to choose; "
        "controls.shuffle_advantages: true shows what noise alone does at this rate",
    )


def _directions(table: NDArray[np.float64]) -> tuple[float, float]:
    """The t of the mean of the signal, and of the slope of the rewards, of [reward, signal] by steps [2, n]."""
    spread = float(table[1].std(ddof=1))
    return float(table[1].mean() / (spread / table.shape[1] ** 0.5)) if spread > 0 else 0.0, t_of_slope(table[0])


def t_of_slope(values: NDArray[np.float64]) -> float:
    """Student's t of the least-squares slope of values over their places (any textbook of regression)."""
    array = values - np.mean(values)
    place = np.arange(len(array)) - (len(array) - 1) / 2
    slope = place @ array / (place @ place)
    left = array - slope * place
    error = (left @ left / (len(array) - 2) / (place @ place)) ** 0.5
    if error < 1e-12:
        return float(np.sign(slope)) * np.inf if abs(slope) > 1e-12 else 0.0
    return float(slope / error)


CHECK = Check(
    name="mostly-noise",
    asks="whether neither gradients nor rewards point anywhere",
    needs=("reward", "signal", "noise"),
    look=look,
)
