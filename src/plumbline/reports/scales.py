"""From values to places on a chart: scales, ticks at sensible numbers, smoothing and thinning.

Letters in shapes: n points. A value that was not computed is NaN in here; it makes a gap, never a 0.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear map from values to coordinates."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The coordinate; what lies outside is held at the edge."""
        held = min(max(value, self.low), self.high)
        return self.start + (held - self.low) / (self.high - self.low) * (self.end - self.start)


def domain(values: Iterable[float], fixed: tuple[float, float] | None = None) -> tuple[float, float]:
    """The range of an axis: the fixed one, or that of the finite values with some air; never empty."""
    if fixed is not None:
        return fixed
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # a constant: on a scale from 0
        return (0.0, 1.0) if high == 0 else (min(0.0, 1.25 * low), max(0.0, 1.25 * high))
    air = 0.06 * (high - low)
    if 0 <= low < 0.5 * high:
        return 0.0, high + air  # a quantity that cannot be negative is shown from 0 unless that would flatten it
    return low - air, high + air


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most `most` round numbers (1, 2 or 5 times a power of ten) inside the range."""
    span = high - low
    if not math.isfinite(span) or span <= 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(span / most))
    for factor in (1, 2, 5, 10, 20, 50):
        step = factor * power
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [index * step for index in range(first, last + 1)]
    return [low]


def tick_labels(values: Sequence[float]) -> list[str]:
    """Labels with the same number of decimals: 0.0, 0.5, 1.0; thousands as 12,000; very small as 5e-6."""
    if not values:
        return []
    largest = max(abs(value) for value in values)
    step = min((abs(b - a) for a, b in pairwise(values)), default=largest or 1.0)
    if largest and (largest < 1e-3 or largest >= 1e6):
        return _scientific(values, step, math.floor(math.log10(largest) + 1e-9))
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step else 0
    if len(values) == 1:
        decimals = min(decimals + 1, 4)
    return [f"{value:,.{decimals}f}".replace("-", "\u2212") for value in values]


def _scientific(values: Sequence[float], step: float, exponent: int) -> list[str]:
    """Labels with one exponent for all: 0.5e-4, 1.0e-4."""
    digits = max(0, exponent - math.floor(math.log10(step) + 1e-9))
    unit = 10.0**exponent
    return [f"{v / unit:.{digits}f}e{exponent}".replace("-", "\u2212") if v else "0" for v in values]


def whole_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Ticks of an axis that counts steps: whole numbers only."""
    return [tick for tick in ticks(low, high, most) if abs(tick - round(tick)) < 1e-6] or [round(low)]


def numbers_of(values: Iterable[float | None]) -> Values:
    """Values [n] with NaN where there is none."""
    return np.array([math.nan if value is None else float(value) for value in values], dtype=np.float64)


def smooth(values: Values, window: int) -> tuple[Values, Values]:
    """The mean [n] of the `window` values around each, and its 95 % half-width [n] (normal, values independent).

    Gaps are left out of the means and stay gaps; near the ends the window is what there is of it.
    """
    half = window // 2
    finite = np.isfinite(values)
    filled = np.where(finite, values, 0.0)
    n = len(values)
    starts = np.maximum(np.arange(n) - half, 0)
    ends = np.minimum(np.arange(n) + half + 1, n)

    def windowed(array: Values) -> Values:
        total = np.concatenate([[0.0], np.cumsum(array)])
        return np.asarray(total[ends] - total[starts], dtype=np.float64)

    count = windowed(finite.astype(np.float64))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = windowed(filled) / count
        variance = np.maximum(windowed(filled**2) / count - mean**2, 0.0) * count / (count - 1)
        width = 1.96 * np.sqrt(variance / count)
    return np.where(finite, mean, np.nan), np.where(finite & (count > 2), width, np.nan)


def smoothing_window(n: int) -> int:
    """How many steps a smoothed point stands for: about a fifteenth of the run, odd, at least 5."""
    return max(5, n // 15 | 1)


def thin(values: Values, most: int) -> NDArray[np.int64]:
    """Indices of at most `most` points to draw: the least and the greatest of each stretch, so that spikes stay.

    A gap that is as long as a stretch stays a gap, because its first missing point is kept.
    """
    n = len(values)
    if n <= most:
        return np.arange(n, dtype=np.int64)
    kept = {0, n - 1}
    edges = np.linspace(0, n, max(1, most // 2) + 1).astype(int)
    for start, end in pairwise(edges):
        part = values[start:end]
        finite = np.flatnonzero(np.isfinite(part))
        if not len(finite):
            kept.add(int(start))
            continue
        kept |= {int(start + finite[part[finite].argmin()]), int(start + finite[part[finite].argmax()])}
    return np.array(sorted(kept), dtype=np.int64)


def scattered(values: Values, most: int) -> NDArray[np.int64]:
    """Indices of at most `most` finite points, evenly spread so that they look like all of them, and the extremes."""
    finite = np.flatnonzero(np.isfinite(values))
    if len(finite) <= most:
        return finite
    kept = {int(finite[index]) for index in evenly(len(finite), most - 2)}
    kept |= {int(finite[values[finite].argmin()]), int(finite[values[finite].argmax()])}
    return np.array(sorted(kept), dtype=np.int64)


def evenly(n: int, most: int) -> list[int]:
    """At most `most` indices of n, evenly spread, the first and the last among them."""
    if n <= most:
        return list(range(n))
    return sorted({round(index) for index in np.linspace(0, n - 1, most)})


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move labels apart until neighbours are `gap` apart, staying between low and high where they fit."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = list(places)
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + gap)
    if order and moved[order[-1]] > high:
        moved[order[-1]] = high
        for after, before in pairwise(order[::-1]):
            moved[before] = min(moved[before], moved[after] - gap)
    return [max(place, low) if len(places) * gap <= high - low else place for place in moved]
