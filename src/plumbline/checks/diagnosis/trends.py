"""Numbers that say whether a series rose, fell or stayed, under the noise that it has."""

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from functools import cache

import numpy as np

from plumbline.evaluation.statistics import Interval, t_quantile
from plumbline.records import BoolArray, FloatArray, IntArray

BLOCKS = 8
"""Means of so many stretches are compared: within a stretch neighbouring steps may depend on one
another."""

ORDERED = 2.0
"""Standard errors of the order of eight means: 23 of 28 pairs ascend. A rise that ends early ends
with equal ones."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A straight line through the means of the stretches of a series."""

    first: float
    """Where the line begins, and where it ends."""
    last: float
    t: float
    """Student's t of its slope; inf or -inf where the line goes through every point."""


def finite_values(values: FloatArray) -> FloatArray:
    """The values that are neither NaN nor infinite."""
    return values[np.isfinite(values)]


def median(values: FloatArray | Sequence[float]) -> float:
    """As a plain number; NaN for none."""
    return float(np.median(values))


def tenth_of(values: Sized) -> int:
    """How many a tenth of a series is, three at least."""
    return max(3, len(values) // 10)


def max_magnitude(values: FloatArray) -> float:
    """The largest absolute value: the scale of a series that has no known one; 0 for none."""
    return float(np.abs(values).max(initial=0.0))


def end_medians(values: FloatArray, width: int) -> tuple[float, float]:
    """The medians of the first and of the last so many values."""
    return median(values[:width]), median(values[-width:])


def end_means(values: FloatArray, width: int) -> tuple[float, float]:
    """The means of the first and of the last so many values."""
    return float(values[:width].mean()), float(values[-width:].mean())


def block_means(values: FloatArray, blocks: int = BLOCKS) -> FloatArray:
    """The means of a series' stretches: of so many, or of each value where it has fewer."""
    return np.array([block.mean() for block in np.array_split(values, min(blocks, len(values)))])


def fit_trend(values: FloatArray) -> Trend:
    """The line of least squares through block means (any textbook of regression); t is 0 for fewer
    than 4 values."""
    values = finite_values(values)
    if len(values) < 4:
        middle = float(values.mean()) if len(values) else 0.0
        return Trend(middle, middle, 0.0)
    means = block_means(values)
    place = np.arange(len(means)) - (len(means) - 1) / 2
    slope = float(place @ (means - means.mean()) / (place @ place))
    left = means - means.mean() - slope * place
    error = float((left @ left / (len(means) - 2) / (place @ place)) ** 0.5)
    middle, half = float(means.mean()), slope * (len(means) - 1) / 2
    t = slope / error if error > 1e-12 else np.sign(slope) * np.inf if abs(slope) > 1e-12 else 0.0
    return Trend(middle - half, middle + half, float(t))


PIECES = 40
"""Means of so many stretches show how alike neighbours are, whatever the length of a series."""
STEEP = (4, 8, 16, 32, 64)
"""Of S-curves, in units of 1 / the series' length."""
OUTLIER = 2.5
"""Times the median distance to the curve, beyond which a distance counts as that: one wild value
hides how alike others are."""


@dataclass(frozen=True, slots=True)
class Shift:
    """The mean of the last values of a series less that of the first."""

    first: float
    last: float
    interval: Interval
    alike: float
    """The correlation of neighbours around the trend, where it is so high that the series may be
    one that wanders at random, or that was smoothed; else 0."""

    @classmethod
    def between(
        cls, values: FloatArray, early: int, late: int, half: float, alike: float
    ) -> "Shift":
        """Of the means of the first and of the last so many values, give or take `half`."""
        first, last = float(values[:early].mean()), float(values[-late:].mean())
        change = last - first
        interval = Interval(change, change - half, change + half, len(values))
        return cls(first, last, interval, alike)


def measure_shift(values: FloatArray, early: int, late: int) -> Shift:
    """The mean of `late` values at the end less that of `early` at the start, with its 95 %
    interval.

    Noise is what the best S-curve or step leaves; its first autocorrelation (of `PIECES` means at
    most) says how alike neighbours are. Where a random walk would leave one that is so high (the
    test of Dickey and Fuller 1979: count times 1 - it is small), the interval is as wide as random
    walks need, whatever it is (the idea of Vogelsang 1998). Else it is Student's for AR(1) noise,
    with as many degrees of freedom as independent values would have, and the correlation corrected
    for its bias (Kendall 1954). Perron and Yabu (2009) choose between both like this for a line.
    Limits are simulated for these curves: `python benchmarks/power.py --still` has what comes of
    them.
    """
    count = min(PIECES, len(values))
    means = block_means(values, PIECES)
    left = means - means.mean()
    shapes = _s_curves(count)
    best = shapes[np.argmax(np.abs(shapes @ left))]
    left = left - best * (best @ left)
    cut = OUTLIER * median(np.abs(left))
    inner = np.clip(left, -cut, cut)
    size = float(inner[:-1] @ inner[:-1])
    found = float(inner[1:] @ inner[:-1]) / size if 0 < size < np.inf else 0.0
    alike = min(max((count * found + 5) / max(count - 10, 1), 0.0), 0.98)
    wide = 3.7 + 8 / count
    wanders = count * (1 - found) < 25 + 5 * count / len(values) - 160 / count
    if not wanders:
        student = t_quantile(max(3, int(count * (1 - alike) / (1 + alike)) - 2))
        wide = min(wide, student * ((1 + alike) / (1 - alike) / max(count - 6, 1)) ** 0.5)
    half = max(
        wide * float(left @ left) ** 0.5 * ((1 / early + 1 / late) * len(values) / count) ** 0.5,
        1e-9,
    )
    half = half if len(values) > 3 else np.inf
    alike = alike ** (count / len(values)) if wanders else 0.0
    return Shift.between(values, early, late, half, alike)


@cache
def _s_curves(count: int) -> FloatArray:
    """S-curves and steps over so many places, each less its mean and of length 1; some S-curves are
    nearly lines, or their middle lies outside. None is flat, and none is all of a single place,
    which may be a wild one."""
    places = (np.arange(count) + 0.5) / count
    middles = np.linspace(-0.25, 1.25, 25)
    smooth = [1 / (1 + np.exp(-steep * (places - middle))) for middle in middles for steep in STEEP]
    curves = np.array([*smooth, *np.triu(np.ones((count, count)), 1)[1:]])
    curves -= curves.mean(axis=1, keepdims=True)
    sizes = np.linalg.norm(curves, axis=1)
    curves = curves[sizes > 1e-3] / sizes[sizes > 1e-3, None]
    return curves[np.abs(curves).max(axis=1) < 0.75]


BESIDE = 10
"""Values on both sides of a place, at most, by whose means it is looked for a stair."""
STAIR = 4.0
"""Standard errors of what other places have, from which stairs are sure."""


def find_stairs(values: FloatArray, edges: IntArray) -> tuple[FloatArray, float]:
    """The stairs [n] of a series at places that are known before, as where an epoch begins, and
    their standard error.

    They are 0 where not all go one way, or where they are not surely larger than what other places
    have: whatever the noise, a place that is known before is like any other.
    """
    none = np.zeros(len(values))
    ends = np.concatenate([[0], edges, [len(values)]])
    beside = min(BESIDE, int(np.diff(ends).min()) // 4) if len(edges) else 0
    if beside < 2:
        return none, 0.0
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(beside, len(values) - beside + 1)
    steps = (sums[at + beside] - 2 * sums[at] + sums[at - beside]) / beside
    other = np.abs(at[:, None] - edges[None, :]).min(axis=1) >= beside
    error = median(np.abs(steps[other])) / 0.6745 * len(edges) ** 0.5
    found = steps[edges - beside]
    if abs(float(found.sum())) < STAIR * error or np.ptp(np.sign(found)) > 0:
        return none, 0.0
    none[edges] = found
    return np.cumsum(none), error


def is_moving(values: FloatArray) -> bool:
    """Whether a series goes somewhere: a line that is sure, or ends that are far apart beside
    single values."""
    values = finite_values(values)
    if len(values) < 8:
        return False
    line, fifth = fit_trend(values), max(2, len(values) // 5)
    first, last = end_means(values, fifth)
    change, scatter = abs(last - first), step_deviation(values) / 2**0.5
    sure = change > 3 * standard_error_of_mean(values, fifth) * 2**0.5
    return change > 1e-9 and (
        (abs(line.t) > 4 and change > 0.5 * scatter) or (sure and change > scatter)
    )


def kendall_z(values: FloatArray) -> float:
    """The z of Kendall's rank correlation between a series and time, without a trend as the null
    hypothesis; 0 for fewer than 3 values.

    For few values [n] that may move at once and then stand still, where a line fits badly; of five
    values none can be beyond 2.45, of four 2.04. Ties are taken off the variance (Kendall 1970,
    chapter 4).
    """
    values, count = finite_values(values), len(finite_values(values))
    if count < 3:
        return 0.0
    signs = np.sign(values[None, :] - values[:, None])[np.triu_indices(count, 1)]
    ties = np.unique(values, return_counts=True)[1]
    variance = (
        count * (count - 1) * (2 * count + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()
    ) / 18
    return float(signs.sum() / variance**0.5) if variance > 0 else 0.0


def block_kendall_z(values: FloatArray) -> float:
    """The order of the means of a series' eight blocks, in standard errors; see `kendall_z`."""
    return kendall_z(block_means(values))


def compare_ends(values: FloatArray) -> tuple[float, float, float]:
    """The means of the first and the last fifth, and their difference in its standard errors; 0
    without an order.

    For values that may rise or fall early and then stand still, where a straight line fits badly.
    Fewer than 12 have no scatter that can be told: their thirds, and twice the standard errors of
    their order.
    """
    if len(values) < 12:
        third = max(1, len(values) // 3)
        return *end_means(values, third), 2 * kendall_z(values)
    fifth, places = max(4, len(values) // 5), np.linspace(-1, 1, len(values))
    first, last = end_means(values, fifth)
    # Less a curve: a fall that ends early would look like noise of neighbours that are alike.
    left = values - np.polyval(np.polyfit(places, values, 3), places)
    scatter = float(np.hypot(left[:fifth].std(ddof=1), left[-fifth:].std(ddof=1)) / fifth**0.5)
    error = max(scatter, standard_error_of_mean(left, fifth) * 2**0.5, 1e-9)
    ordered = block_kendall_z(values)
    sure = ordered * (last - first) > 0 and abs(ordered) > ORDERED
    return first, last, (last - first) / error if sure else 0.0


def standard_error_of_mean(values: FloatArray, count: int, most: float = 0.8) -> float:
    """The standard error of the mean of `count` neighbouring values of a series [n] whose
    neighbours may be alike.

    For AR(1) noise with standard deviation s and correlation r the differences over k steps have
    the variance 2 s^2 (1 - r^k), so those over one and over four give r (1 + r + r^2 + r^3 is their
    ratio) and s, and the mean of m values has the variance s^2 (1 + r) / (1 - r) / m (Box and
    Jenkins 1970). Medians of the differences, because one fall or rise must not count as noise; no
    more correlation than `most` is believed: a slow rise would look like it.
    """
    one, four = np.square([step_deviation(values, step) for step in (1, 4)])
    # most neighbours are equal: a reward that is rarely earned, or one that does not move
    if one == 0:
        return float(values.std() / count**0.5)
    places = np.linspace(0, most, 98)
    correlation = float(places[np.argmin(np.abs(1 + places + places**2 + places**3 - four / one))])
    variance = one / 2 / (1 - correlation)
    return float(np.sqrt(variance * min(1.0, (1 + correlation) / (1 - correlation) / count)))


def step_deviation(values: FloatArray, over: int = 1) -> float:
    """The standard deviation of differences by their median, which is 0.6745 of them for a normal
    sampling distribution."""
    return median(np.abs(values[over:] - values[:-over])) / 0.6745


FALL_ENOUGH, MEANS_ENOUGH, STRETCHES = 24, 9, 10
"""Values from which a fall from the best stretch is told by itself, such that are means of several
steps, and the stretches of a series that is looked at."""
FALL_SURE = 4.0
"""Standard errors between two stretches: of 45 pairs, noise alone has one as far apart in three of
a thousand runs."""
FALL_LARGE, MOST = 0.3, 0.6
"""Share of the height that was lost, from which it is called a fall, and from which a standard
error less will do."""
SLOW, WALK = 0.98, 2.0
"""The highest correlation of neighbours that noise may have, and standard deviations of a random
walk: where neighbours are that alike, both are what a fall may be by chance, and the smaller one
counts."""


@dataclass(frozen=True, slots=True)
class Fall:
    """The last stretch of a series below the best one before it."""

    first: float
    best: float
    last: float
    share: float
    """Of the best one's height that was lost: above 0, or above the lowest value where that is
    below 0."""
    place: int
    """Where the best stretch ends."""
    noise: float
    """The standard error of the mean of the last stretch."""


def find_fall(
    values: FloatArray, alike: float, *, sure: bool = False, every: bool = True
) -> Fall | None:
    """The fall of a series [n] from its best stretch; None where it is small, or may be chance.

    Args:
        values: finite ones.
        alike: see `Shift`.
        sure: whether it is known that the series fell: then its thirds will do, or its halves. Few
            values that may not have fallen need twice the errors, and to be means.
        every: whether values are of single steps, and not means of several, which are less alike.
    """
    few = len(values) < FALL_ENOUGH
    if few and not sure and len(values) < MEANS_ENOUGH:
        return None
    count = min(3, len(values) // 2) if few and sure else min(STRETCHES, max(3, len(values) // 4))
    stretches = np.array_split(values, count)
    means = np.array([stretch.mean() for stretch in stretches])
    best = int(np.argmax(means[:-1]))
    error = float(
        np.hypot(*(one.std(ddof=1) / len(one) ** 0.5 for one in (stretches[best], stretches[-1])))
    )
    noise = standard_error_of_mean(values, len(stretches[-1]))
    lost = float(means[best] - means[-1])
    share = lost / max(means[best] - min(0.0, float(values.min())), 1e-9)
    errors = 2**0.5 * (FALL_SURE if share < MOST else FALL_SURE - 1)
    apart = len(values) * (count - 1 - best) / count
    slow = min(
        errors * standard_error_of_mean(values, len(stretches[-1]), SLOW),
        WALK * step_deviation(values) * apart**0.5,
    )
    by_chance = max(errors * max(noise, 1e-6), slow if alike else 0.0, 2 * error)
    if share < FALL_LARGE:
        return None
    walk = WALK * apart**0.5 if every else 0.0
    if not is_turn(values, means, best, walk) and (
        (lost < by_chance and not few)
        or (few and not sure and (share < MOST or lost < 2 * FALL_SURE * error))
    ):
        return None
    place = sum(len(stretch) for stretch in stretches[: best + 1]) - 1
    return Fall(float(means[0]), float(means[best]), float(means[-1]), share, place, noise)


TURN_ENOUGH, TURN_SURE, TURN_LARGE = 12, 2.5, 6.0
"""Values from which a turn is told; standard errors of the order on both of its sides, and of its
height."""


def is_turn(values: FloatArray, means: FloatArray, best: int, walk: float) -> bool:
    """Whether a series [n] rises to its best stretch and falls far from it.

    Both in order by Kendall's rank correlation, and by far more than single values scatter around
    a line through their neighbours: a rise and a fall are no noise of neighbours that are alike.

    Args:
        values: finite ones.
        means: of its stretches.
        best: of these.
        walk: steps of a random walk by which it must have fallen. Such a step is what the variance
            of differences keeps without their covariance, which is what noise gives them.
    """
    if len(values) < TURN_ENOUGH:
        return False
    bend = median(np.abs(np.diff(values, n=2))) / 0.6745
    error = bend / 6**0.5 * (2 / (len(values) // len(means))) ** 0.5
    height = means[best] - means[[0, -1]].max()
    differences = np.diff(values)
    square = float(np.mean(differences**2) + 2 * np.mean(differences[1:] * differences[:-1]))
    step = min(max(0.0, square) ** 0.5, bend / 2**0.5)
    if height < max(TURN_LARGE * error, walk * step):
        return False
    top = int(np.argmax(np.convolve(values, np.ones(3) / 3, "same")))
    return kendall_z(values[: top + 1]) > TURN_SURE and kendall_z(values[top:]) < -TURN_SURE


def start_of_last_stretch(steps: IntArray, mask: BoolArray) -> int | None:
    """The step at which the last unbroken stretch of True began; None where the series does not end
    with one."""
    if not len(mask) or not mask[-1]:
        return None
    broken = np.flatnonzero(~mask)
    return int(steps[broken[-1] + 1 if len(broken) else 0])


def longest_stretch(mask: BoolArray) -> int:
    """The longest unbroken stretch of True."""
    longest = now = 0
    for true in mask:
        now = now + 1 if true else 0
        longest = max(longest, now)
    return longest
