"""Intervals and paired tests over examples; numpy only.

Letters in shapes: n examples, C clusters.

The example is the unit: answers to one prompt are alike, so counting answers would give intervals
that are too narrow. Examples that share a customer, a form or a template are alike, too: where a
task says which, they are a cluster, and clusters are the unit (Cameron and Miller 2015). A mean has
Student's interval, with an error from the sums of clusters and as many degrees of freedom as
clusters of one size would have (Kish 1965); rates have Wilson's, with the number of examples that a
sample without clusters would need for the same error. The paired test flips signs of clusters
(Fisher's randomisation test), which needs no distribution and is exact up to the number of flips.
That there is no difference larger than a margin is two one-sided tests (Schuirmann 1987), each
mended for skewed differences (Hall 1992). `benchmarks/coverage.py` says how far all this holds.
"""

import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.records import FloatArray, IntArray

TIE = 1e-9
"""Rewards that differ by less are the same: sums of parts are rounded in their last digits."""
RESAMPLES = 5000
"""Sign flips, where there are too many to flip in every way."""
AT_ONCE = 50_000
"""Numbers that are drawn together: they stay in a processor's cache. No result depends on it."""
LEVEL = 0.95
SIGNIFICANT = 0.05
"""Below it a p-value, adjusted where it is one of several, speaks of a change."""
POWER = 0.8
"""How often a difference that is called detectable is found, and how often so many units as are
advised decide."""
MOST = 100_000
"""More units than this are not advised: what differs by so little is the same for all purposes."""
Direction = Literal["rise", "fall", "same"]
QUANTILE = 1.959963984540054
"""The normal quantile of `LEVEL`, both sides."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over n examples with its 95 % interval."""

    mean: float
    low: float
    high: float
    n: int

    def __format__(self, form: str) -> str:
        """The mean and the interval, each number in `form` (.3f by default): `+.3f` gives +0.086
        [+0.037, +0.137]."""
        form = form or ".3f"
        return f"{self.mean:{form}} [{self.low:{form}}, {self.high:{form}}]"

    def __str__(self) -> str:
        return format(self)

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval lies on one side of 0."""
        return self.low > 0 or self.high < 0


UNMEASURED = Interval(math.nan, math.nan, math.nan, 0)
"""Of no values."""


def _floats(values: ArrayLike) -> FloatArray:
    return np.asarray(values, dtype=np.float64)


def mean(values: Sequence[float]) -> float | None:
    """The mean of plain numbers; None where there are none."""
    return sum(values) / len(values) if values else None


Clusters = Sequence[str] | None
"""The cluster [n] of each example; None, or equal to nobody else's, for one by itself."""


def mean_interval(values: ArrayLike, clusters: Clusters = None) -> Interval:
    """The mean of `values` [n] and its interval (`rate_interval` where all are 0 or 1); NaN where
    there are none.

    An interval of rewards from 0 to 1 does not leave that range.
    """
    array = _floats(values)
    if not len(array):
        return UNMEASURED
    if np.isin(array, (0.0, 1.0)).all():
        return rate_interval(array, clusters)
    middle, half = float(array.mean()), _standard_error(array, clusters)
    half *= t_quantile(_degrees_of_freedom(len(array), clusters))
    low, high = middle - half, middle + half
    if array.min() >= 0 and array.max() <= 1:
        low, high = max(0.0, low), min(1.0, high)
    return Interval(middle, low, high, len(array))


def _counts(n: int, clusters: Clusters) -> tuple[IntArray, IntArray]:
    """The number [n] of each example's cluster, and how many examples [C] each has."""
    if clusters is None:
        return np.arange(n), np.ones(n, dtype=np.int64)
    if len(clusters) != n:
        raise ValueError(f"{n} values and {len(clusters)} clusters")
    _, place, counts = np.unique(
        np.asarray(clusters, dtype=np.str_), return_inverse=True, return_counts=True
    )
    return place, counts


def _effective_clusters(n: int, clusters: Clusters) -> float:
    """How many clusters of one size would be worth as much as these, were all examples of a cluster
    the same (Kish)."""
    counts = _counts(n, clusters)[1]
    return n * n / float((counts * counts).sum())


def _degrees_of_freedom(n: int, clusters: Clusters) -> int:
    return min(1000, max(1, int(_effective_clusters(n, clusters) - 1 + TIE)))


def _error_of_zero(n: float) -> float:
    """The error of a share of 0: that nothing differed among n examples does not say that nothing
    can."""
    return rate_interval(np.zeros(max(1, int(n + TIE)))).high / QUANTILE


def _standard_error(array: FloatArray, clusters: Clusters) -> float:
    """The standard error of a mean of values [n]; `_error_of_zero` where all are 0."""
    n = len(array)
    place, counts = _counts(n, clusters)
    if not np.any(np.abs(array) > TIE) or (clusters is not None and len(counts) < 2):
        return _error_of_zero(_effective_clusters(n, clusters))
    if np.ptp(array) <= TIE or len(counts) < 2:
        return 0.0
    sums = np.bincount(place, weights=array - array.mean())
    return math.sqrt(len(sums) / (len(sums) - 1) * float(sums @ sums)) / n


def is_surely_over(values: ArrayLike, limit: float, clusters: Clusters = None) -> bool:
    """Whether the mean of `values` [n] is over a limit, and not by chance (see `direction`): the
    one rule by which a baseline is said to earn more than it may. Fewer than 6 values never say so.
    """
    array = _floats(values)
    over = paired_difference(np.full_like(array, limit), array, clusters)
    return over.direction == "rise"


def t_interval(values: ArrayLike) -> Interval:
    """The mean of a few `values` [n] and Student's interval (1908) for draws from one normal
    distribution: that of seeds.

    With n = 1 there is no interval, and its ends are NaN.
    """
    array = _floats(values)
    n, mean_ = len(array), float(array.mean()) if len(array) else math.nan
    if n < 2:
        return Interval(mean_, math.nan, math.nan, n)
    half = t_quantile(n - 1) * float(array.std(ddof=1)) / math.sqrt(n)
    return Interval(mean_, mean_ - half, mean_ + half, n)


def pooled_interval(
    strata: Sequence[ArrayLike],
    seeds: Sequence[Sequence[float]] = (),
    clusters: Sequence[Clusters] = (),
    *,
    levels: bool = False,
) -> Interval:
    """The mean over strata [T] of the mean over each one's examples [n_t], with its interval; n is
    all examples.

    One stratum whose values differ has the interval of an evaluation, or of a paired difference;
    else it is Student's, in which a stratum without any spread counts with the error that Wilson's
    interval gives a share of 0. Which seeds there are adds Student's margin by its own degrees of
    freedom: two margins make one as the sides of a right angle do (Howe 1974), which errs to the
    wide side.

    Args:
        strata: values or paired differences, each already the mean over the seeds.
        seeds: groups of what each seed has come to; of a difference to other runs, two groups. A
            group of one adds nothing, and then the interval says nothing of other seeds.
        clusters: of each stratum; empty where none has any.
        levels: whether the values are rewards or shares from 0 to 1, which the interval does not
            leave; else they are differences.

    Raises:
        ValueError: there are no strata, or one is empty.
    """
    scatter = scatter_of(strata, clusters)
    middle = float(np.mean([_floats(values).mean() for values in strata]))
    below = above = t_quantile(scatter.freedom) * scatter.error
    if len(strata) == 1:
        named = _floats(strata[0]), clusters[0] if clusters else None
        own = mean_interval(*named) if levels else _interval_of_change(*named)[0]
        if own.low < own.high:
            below, above = middle - own.low, own.high - middle
    margins = [(one := t_interval(group)).high - one.mean for group in seeds if len(group) > 1]
    low, high = middle - math.hypot(below, *margins), middle + math.hypot(above, *margins)
    if levels:
        low, high = max(0.0, low), min(1.0, high)
    return Interval(middle, low, high, scatter.n)


@dataclass(frozen=True, slots=True)
class Scatter:
    """How a mean scatters, and over how many units: clusters, or examples that are each their
    own."""

    units: int
    n: int
    """Examples in all of them."""
    freedom: int
    error: float
    """The standard error of the mean; it falls with the root of the units."""
    inside: float = 0.0
    """What of it goes where the same clusters have examples without end."""
    skewness: float = 0.0
    """Of the mean, which falls with the root of the units, too."""
    called: str = "examples"
    """What the units are where they are no clusters."""

    @property
    def unit(self) -> str:
        """What a unit is, and how large: one more is taken to be as large as those there are."""
        if self.units == self.n:
            return self.called
        each = round(self.n / self.units)
        return f"clusters of {each} examples" if each > 1 else "clusters"


NOTHING = Scatter(0, 0, 1, math.nan)


def scatter_of(strata: Sequence[ArrayLike], clusters: Sequence[Clusters] = ()) -> Scatter:
    """How the mean over strata [T] of the mean over each one's examples [n_t] scatters; see
    `pooled_interval`.

    Raises:
        ValueError: there are no strata, or one is empty.
    """
    arrays = list(map(_floats, strata))
    if not arrays or not all(map(len, arrays)):
        raise ValueError("there is nothing to take the mean of")
    named = list(zip(arrays, clusters or [None] * len(arrays), strict=True))
    errors = [
        _standard_error(one, of) or _error_of_zero(_effective_clusters(len(one), of))
        for one, of in named
    ]
    freedom = sum(int(_effective_clusters(len(one), of) - 1 + TIE) for one, of in named)
    return Scatter(
        units=sum(len(_counts(len(one), of)[1]) for one, of in named),
        n=sum(map(len, arrays)),
        freedom=min(1000, max(1, freedom)),
        error=math.hypot(*errors) / len(arrays),
        inside=math.hypot(*itertools.starmap(_error_within_clusters, named)) / len(arrays),
    )


def _error_within_clusters(array: FloatArray, clusters: Clusters) -> float:
    """The error of a mean of values [n] by what lies inside their clusters."""
    n, (place, counts) = len(array), _counts(len(array), clusters)
    off = array - (np.bincount(place, weights=array) / counts)[place]
    return math.sqrt(float(off @ off) / max(1, n - len(counts)) / n)


def _skewness(array: FloatArray, clusters: Clusters) -> float:
    """The skewness of a mean of values [n]: by the sums of its clusters or by their means,
    whichever says less.

    Where one cluster is as large as many, its sum alone looks skewed.
    """
    place, counts = _counts(len(array), clusters)
    sums = np.bincount(place, weights=array - array.mean())
    means = sums / counts
    by_sums, by_means = (
        _cube_share(sums),
        _cube_share(means - means.mean()) * _cube_share(counts) * len(counts) ** 0.5,
    )
    return min(by_sums, by_means, key=abs) if by_sums * by_means > 0 else 0.0


def _cube_share(numbers: NDArray[Any]) -> float:
    """The sum of the cubes of numbers [C] by the cube of their length."""
    length = math.sqrt(float(numbers @ numbers))
    return float((numbers**3).sum()) / length**3 if length > TIE else 0.0


def _skewed_quantile(t: float, skewness: float) -> float:
    """The quantile t on the side to which a mean is skewed, by Hall's transformation; on the other
    side t itself."""
    return (
        t
        if skewness <= TIE
        else 3 / skewness * (1 - float(np.cbrt(1 - skewness * (t + skewness / 6))))
    )


@dataclass(frozen=True, slots=True)
class UnitCount:
    """How many units would decide something, four times in five."""

    number: int | None
    """None: more than `MOST`."""
    unit: str
    needs_other_clusters: bool
    """Whether it takes other clusters: more examples of the same ones do not decide it, however
    many."""

    def __str__(self) -> str:
        return (
            f"no feasible number of {self.unit}"
            if self.number is None
            else f"about {self.number:,} {self.unit}"
        )


BESIDE, WITHIN = (LEVEL, 2 * POWER - 1), (2 * LEVEL - 1, POWER)
"""Levels of two-sided intervals: the one that must not hold a bound, and the one that the mean lies
in where a bound is passed four times in five. That a mean is within a margin is two tests at 5 %,
of which each succeeds nine times in ten.
"""


def least_distance(scatter: Scatter, units: int, levels: tuple[float, float] = BESIDE) -> float:
    """How far from a bound a mean must lie for so many units to show it four times in five."""
    root = math.sqrt(scatter.units / units)
    freedom = min(1000, max(1, scatter.freedom * units // scatter.units))
    sure, mean = (t_quantile(freedom, level) for level in levels)
    return (_skewed_quantile(sure, abs(scatter.skewness) * root) + mean) * scatter.error * root


def count_units(
    scatter: Scatter, distance: float, levels: tuple[float, float] = BESIDE
) -> UnitCount:
    """How many units show, four times in five, that a mean lies so far from a bound."""
    counted = range(scatter.units, MOST + 1)
    at = bisect_left(
        counted, True, key=lambda units: least_distance(scatter, units, levels) <= distance
    )
    endless = replace(scatter, error=math.sqrt(max(0.0, scatter.error**2 - scatter.inside**2)))
    needs_other_clusters = (
        scatter.units < scatter.n and least_distance(endless, scatter.units, levels) > distance
    )
    return UnitCount(counted[at] if at < len(counted) else None, scatter.unit, needs_other_clusters)


@cache
def t_quantile(freedom: int, level: float = LEVEL) -> float:
    """How many standard errors `level` of Student's distribution with so many degrees of freedom
    lies within.

    By bisection of its closed form for whole degrees (Abramowitz and Stegun 1964, 26.7.3 and
    26.7.4).
    """
    low, high = 0.0, 20.0  # of one degree, 19 in 20 lie within 12.7
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_within(middle, freedom) < level else (low, middle)
    return high


def _t_within(t: float, freedom: int) -> float:
    """The probability that |T| is under t."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= k / (k + 1) * cosine**2
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def rate_interval(flags: ArrayLike, clusters: Clusters = None) -> Interval:
    """The share of `flags` [n] that are set, and its score interval (Wilson 1927); NaN where there
    are none.

    With clusters it is that of the number of examples which, were they independent, would have the
    same error: no more than there are, and no fewer than clusters of one size; the quantile is
    Student's.
    """
    array = _floats(flags)
    n = len(array)
    if not n:
        return UNMEASURED
    rate, worth, quantile = float(array.mean()), float(n), QUANTILE
    if (fewest := _effective_clusters(n, clusters)) < n:
        chance = rate * (1 - rate)
        worth = (
            fewest
            if chance == 0
            else min(n, max(fewest, chance / max(_standard_error(array, clusters), TIE) ** 2))
        )
        quantile = t_quantile(_degrees_of_freedom(n, clusters))
    shrink = 1 + quantile**2 / worth
    middle = (rate + quantile**2 / (2 * worth)) / shrink
    half = (
        quantile / shrink * math.sqrt(rate * (1 - rate) / worth + quantile**2 / (4 * worth * worth))
    )
    # At the ends the formula gives the rate itself, but for the last digit.
    return Interval(rate, min(rate, max(0.0, middle - half)), max(rate, min(1.0, middle + half)), n)


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The mean difference of two evaluations of the same examples, its interval, and how likely
    chance alone is."""

    difference: Interval
    p_value: float
    """Two-sided: the share of random sign flips whose mean difference is at least as large."""
    wins: int
    losses: int
    ties: int
    before: float
    """The mean of the first; NaN where there is nothing to compare."""
    after: float
    """The mean of the second."""
    within: float = math.nan
    """The least margin that two one-sided tests at 5 % say the difference is smaller than, up or
    down."""
    scatter: Scatter = NOTHING
    p_holm: float | None = None
    """Adjusted, where it is one of several; see `adjust_together`."""
    detectable: float | None = None
    """Then the least difference that these examples show four times in five; None where no pair
    differs, or their clusters are too few for any."""

    @property
    def p(self) -> float:
        """What speaks of a change."""
        return self.p_value if self.p_holm is None else self.p_holm

    @property
    def direction(self) -> Direction:
        """Whether the second is better, worse, or not shown to differ."""
        return direction(self.difference, self.p)


def paired_difference(
    before: ArrayLike, after: ArrayLike, clusters: Clusters = None, seed: int = 0
) -> PairedDifference:
    """Compare two rewards [n] of the same examples in the same order.

    Raises:
        ValueError: the lengths differ.
    """
    first, second = _floats(before), _floats(after)
    if first.shape != second.shape:
        raise ValueError(f"{len(first)} and {len(second)} rewards cannot be paired")
    difference = second - first
    place, _ = _counts(len(difference), clusters)
    sums = _floats(np.bincount(place, weights=difference))
    change = _interval_of_change(difference, clusters)
    return PairedDifference(
        difference=change[0],
        p_value=_sign_flip_p(sums, np.random.default_rng(seed)),
        wins=int((difference > TIE).sum()),
        losses=int((difference < -TIE).sum()),
        ties=int((np.abs(difference) <= TIE).sum()),
        before=float(first.mean()) if len(first) else math.nan,
        after=float(second.mean()) if len(second) else math.nan,
        within=change[1],
        scatter=change[2],
    )


def _interval_of_change(
    difference: FloatArray, clusters: Clusters
) -> tuple[Interval, float, Scatter]:
    """The mean of differences [n] with its interval, how far from 0 the interval of 90 % goes, and
    the scatter.

    Of right answers that are won and lost, one more pair of each kind is thought of in half
    (Agresti and Min 2005): few that moved say little of how many can. Of others the interval of 90
    % is mended on the side that they are skewed to.
    """
    n = len(difference)
    if not n:
        return UNMEASURED, math.nan, NOTHING
    middle, error = float(difference.mean()), _standard_error(difference, clusters)
    scatter = scatter_of([difference], [clusters])
    if not np.isin(difference, (-1.0, 0.0, 1.0)).all():
        scatter = replace(scatter, skewness=_skewness(difference, clusters))
    elif difference.any():
        unseen = (n * _effective_clusters(n, clusters)) ** -0.5
        error = math.hypot(error, unseen)
        # Of more examples less is unseen.
        scatter = replace(scatter, error=math.hypot(scatter.error, unseen / math.sqrt(2)))
    half, one_sided = (t_quantile(scatter.freedom, level) for level in (LEVEL, 2 * LEVEL - 1))
    half *= error
    error = max(error, scatter.error)  # which is not 0 where all differ by the same
    up, down = (
        _skewed_quantile(one_sided, sign * scatter.skewness) * error + sign * middle
        for sign in (1, -1)
    )
    low, high = middle - half, middle + half
    if np.abs(difference).max() <= 1:  # rewards and shares
        low, high = max(-1.0, low), min(1.0, high)
    return Interval(middle, low, high, n), max(up, down), scatter


def _sign_flip_p(difference: FloatArray, rng: np.random.Generator) -> float:
    """Of sums [C] (1 + flips at least as extreme) / (1 + flips): never 0, so never more certain
    than flips allow."""
    moved = difference[np.abs(difference) > TIE]
    if not len(moved):
        return 1.0
    observed = abs(moved.sum())
    if len(moved) <= 12:  # few enough to flip in every way
        signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * len(moved))).reshape(len(moved), -1)
        return float((np.abs(moved @ signs) >= observed - TIE).mean())
    extreme, chunk = 0, max(1, AT_ONCE // len(moved))
    for start in range(0, RESAMPLES, chunk):
        size = min(chunk, RESAMPLES - start)
        kept = rng.integers(0, 2, size=(size, len(moved))).astype(np.float64)
        # What is not kept has its sign flipped: the sum is twice that of the kept, less all of it.
        extreme += int((np.abs(2 * (kept @ moved) - moved.sum()) >= observed - TIE).sum())
    return (1 + extreme) / (1 + RESAMPLES)


def direction(difference: Interval, p: float) -> Direction:
    """What counts as a change: the interval of the paired difference excludes 0, and the (adjusted)
    p is below 0.05.

    The interval alone does not do: of 4 examples between which nothing differs it lies below 0 one
    time in ten.
    """
    if p >= SIGNIFICANT or not difference.excludes_zero:
        return "same"
    return "rise" if difference.low > 0 else "fall"


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values adjusted for their number, in the same order (Holm 1979, Scandinavian Journal of
    Statistics 6).

    Whatever the dependence between the tests, the chance of calling any of those different that are
    not stays below the level that they are held against.
    """
    adjusted, worst = list(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(adjusted)), key=lambda one: p_values[one])):
        worst = max(worst, min(1.0, p_values[index] * (len(adjusted) - rank)))
        adjusted[index] = worst
    return adjusted


def adjust_together(changes: Sequence[PairedDifference]) -> list[PairedDifference]:
    """Differences that are shown together, each with its p-value adjusted for all of them."""
    tests, found = len(changes), []
    for one, p in zip(changes, holm([one.p_value for one in changes]), strict=True):
        # of flips, where all differ the same way
        least_p = 2.0 ** (1 - one.scatter.units)
        can_differ = one.ties < one.difference.n and least_p * tests < SIGNIFICANT
        detectable = detectable_difference(one.difference, tests) if can_differ else None
        found.append(replace(one, p_holm=p, detectable=detectable))
    return found


def count_units_within(change: PairedDifference, margin: float) -> UnitCount:
    """How many units would say, four times in five, that no difference is larger than a margin, if
    there is none."""
    return count_units(change.scatter, margin, WITHIN)


def detectable_difference(difference: Interval, tests: int = 1) -> float:
    """The least difference that so many examples show four times in five, by the normal distribution of
    their mean.

    Args:
        difference: of the pairs, whose interval says how much they scatter.
        tests: how many are made together; the level is divided by it, as Holm's first step does.
    """
    normal = NormalDist()
    width = normal.inv_cdf(1 - SIGNIFICANT / (2 * tests)) + normal.inv_cdf(POWER)
    return width / QUANTILE * (difference.high - difference.low) / 2


def skill(mean: float, floor: float, ceiling: float) -> float | None:
    """Chance-corrected reward: 0 at the best baseline, 1 at the oracle (Cohen's kappa, with a
    baseline as chance)."""
    return (mean - floor) / (ceiling - floor) if ceiling > floor else None
