"""How often intervals of 95 % hold the truth, how often equals are told apart, and what "did not
change" is worth.

    python benchmarks/coverage.py              # as in docs/statistics.md; four minutes of one core
    python benchmarks/coverage.py --tries 5000

Each cell is the worst of equal and of unequal clusters (the largest has about 40 % of the
examples), with 0, 0.1 and 0.5 of the variance between clusters. Beside Plumbline's stand two
others, written here again: the standard error CR2 with the degrees of freedom of Bell and McCaffrey
(2002), and the clustered error with a normal quantile of Miller (2024, arXiv:2411.00640).
"""

import argparse
import math
from collections.abc import Callable, Iterator
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from plumbline.evaluation.statistics import (
    count_units_within,
    direction,
    mean_interval,
    paired_difference,
    t_quantile,
)

Values = NDArray[np.float64]
Numbers = NDArray[np.int64]
Kind = Callable[[Values], Values]
NORMAL = NormalDist()
ALIKE = (0.0, 0.1, 0.5)
_GRID = np.linspace(-6, 6, 4001)
_BELOW = np.array([NORMAL.cdf(one) for one in _GRID])
_UNIT = np.linspace(0, 1, 4001)


def over(share: float) -> float:
    """The normal quantile that a share lies over."""
    return NORMAL.inv_cdf(1 - share)


def beta_low(share: Values) -> Values:
    """Quantiles of Beta(1/2, 4)."""
    below = _UNIT - _UNIT**3 + 3 * _UNIT**5 / 5 - _UNIT**7 / 7
    return np.interp(share, below / below[-1], _UNIT**2)


def beta_middle(share: Values) -> Values:
    """Quantiles of Beta(2, 2)."""
    return np.interp(share, 3 * _UNIT**2 - 2 * _UNIT**3, _UNIT)


def below(latent: Values) -> Values:
    """The share of the normal distribution under each value."""
    return np.interp(latent, _GRID, _BELOW)


REWARDS: dict[str, tuple[Kind, float]] = {
    "right, .5": (lambda z: (z < 0).astype(float), 0.5),
    "right, .1": (lambda z: (z > over(0.1)).astype(float), 0.1),
    "graded": (lambda z: 1 / (1 + np.exp(-z)), 0.5),
    "skewed": (lambda z: beta_low(below(z)), 1 / 9),
    "zero-inflated": (lambda z: beta_middle(np.clip((below(z) - 0.7) / 0.3, 0, 1)), 0.15),
}
"""Rewards by a normal latent value, and their mean: Beta(1/2, 4), and 70 % zeros with Beta(2, 2)
for the rest."""
DIFFERENCES: dict[str, Kind] = {
    "normal": lambda z: 0.12 * z,
    "won and lost (10 % each)": lambda z: (
        (z > over(0.1)).astype(float) - (z < -over(0.1)).astype(float)
    ),
    "few large wins (10 %)": lambda z: np.where(z > over(0.1), 0.9, -0.1),
    "few big losses (3 %)": lambda z: np.where(z > over(0.03), -0.97, 0.03),
    "log-normal": lambda z: (np.exp(z) - math.exp(0.5)) / 10,
}
"""Differences with mean 0."""
DESIGNS = ((3, 30), (8, 64), (8, 240), (20, 240), (60, 240), (60, 60))
"""Clusters, and examples of all of them."""


def sizes(clusters: int, n: int, is_equal: bool, rng: np.random.Generator) -> Numbers:
    """How many examples each cluster has, at least one."""
    if is_equal:
        return np.full(clusters, n // clusters) + (np.arange(clusters) < n % clusters)
    weights = rng.gamma(0.7, size=clusters) + 0.05
    found = np.maximum(1, np.floor(weights / weights.sum() * n)).astype(np.int64)
    found[np.argmax(found)] += n - found.sum()
    return found if found.min() > 0 else sizes(clusters, n, is_equal, rng)


def draw(
    clusters: int, n: int, alike: float, is_equal: bool, rng: np.random.Generator
) -> tuple[Values, Numbers]:
    """Normal values [n], of whose variance a share lies between clusters, and the number of each
    one's cluster."""
    place = np.repeat(np.arange(clusters), sizes(clusters, n, is_equal, rng))
    shared, own = rng.standard_normal(clusters)[place], rng.standard_normal(n)
    return alike**0.5 * shared + (1 - alike) ** 0.5 * own, place


def settings(clusters: int, n: int) -> Iterator[tuple[float, bool]]:
    """The settings whose worst a cell shows."""
    yield from (
        ((alike, equal) for equal in (True, False) for alike in ALIKE)
        if clusters < n
        else [(0.0, True)]
    )


def named(place: Numbers) -> list[str] | None:
    """The clusters as names; None where each example is its own."""
    return None if place[-1] + 1 == len(place) else [str(one) for one in place]


def by_cr2(values: Values, place: Numbers) -> float:
    """Half of the 95 % interval of a mean by CR2 and the degrees of freedom of Bell and
    McCaffrey."""
    n, counts = len(values), np.bincount(place).astype(float)
    sums = np.bincount(place, weights=values - values.mean())
    weights = 1 / (n * n * (1 - counts / n))
    root = np.sqrt(weights)
    spread = root[:, None] * (np.diag(counts) - np.outer(counts, counts) / n) * root
    freedom = max(1.0, float(np.trace(spread) ** 2 / (spread**2).sum()))
    low = math.floor(freedom)
    quantile = t_quantile(low) + (freedom - low) * (t_quantile(low + 1) - t_quantile(low))
    return quantile * math.sqrt(float((weights * sums * sums).sum()))


def by_miller(values: Values, place: Numbers) -> float:
    """Half of the 95 % interval of a mean by Miller's clustered error."""
    sums = np.bincount(place, weights=values - values.mean())
    return NORMAL.inv_cdf(0.975) * math.sqrt(float(sums @ sums)) / len(values)


def covered(kind: Kind, truth: float, design: tuple[int, int], tries: int, seed: int) -> Values:
    """How often the truth is held: by Plumbline, CR2, Miller, and as if examples were alone; the
    worst settings."""
    worst = np.ones(4)
    for alike, is_equal in settings(*design):
        rng, hits = np.random.default_rng((seed, *design)), np.zeros(4)
        for _ in range(tries):
            latent, place = draw(*design, alike, is_equal, rng)
            values = kind(latent)
            ours, alone = mean_interval(values, named(place)), mean_interval(values)
            off = abs(values.mean() - truth) - 1e-12
            hits += (
                ours.low - 1e-12 <= truth <= ours.high + 1e-12,
                off <= by_cr2(values, place),
                off <= by_miller(values, place),
                alone.low <= truth <= alone.high,
            )
        worst = np.minimum(worst, hits / tries)
    return worst


def alarms(kind: Kind, design: tuple[int, int], tries: int, seed: int) -> Values:
    """How often equals are called different: by Plumbline, with p < .01, by CR2, Miller; the worst
    settings."""
    worst = np.zeros(4)
    for alike, is_equal in settings(*design):
        rng, false = np.random.default_rng((seed, *design)), np.zeros(4)
        for _ in range(tries):
            latent, place = draw(*design, alike, is_equal, rng)
            values = kind(latent)
            ours, off = (
                paired_difference(np.zeros(len(values)), values, named(place)),
                abs(values.mean()),
            )
            is_different = direction(ours.difference, ours.p_value) != "same"
            is_sure = is_different and ours.p_value < 0.01
            false += (
                is_different,
                is_sure,
                off > by_cr2(values, place),
                off > by_miller(values, place),
            )
        worst = np.maximum(worst, false / tries)
    return worst


def equivalence(kind: Kind, design: tuple[int, int], tries: int, seed: int) -> Values:
    """How often "did not change" is said at the margin (more often than 5 % is an error), and of no
    difference.

    The margin is 3.5 standard errors, so that the second is about .9 by the normal distribution;
    the worst settings.
    """
    worst = np.array([0.0, 1.0])
    for alike, is_equal in settings(*design):
        rng = np.random.default_rng((seed, *design))
        found = [draw(*design, alike, is_equal, rng) for _ in range(tries)]
        drawn = [(kind(latent), place) for latent, place in found]
        margin = 3.5 * float(np.std([values.mean() for values, _ in drawn]))
        said = np.zeros(3)
        for values, place in drawn:
            zeros, clusters = np.zeros(len(values)), named(place)
            said += [
                paired_difference(zeros, values + by, clusters).within <= margin
                for by in (margin, -margin, 0.0)
            ]
        said /= tries
        worst = np.array([max(worst[0], said[0], said[1]), min(worst[1], said[2])])
    return worst


def advised(
    kind: Kind, units: int, each: int, margin: float, tries: int, seed: int
) -> tuple[float, float]:
    """How many units are advised (the median), and how often so many say that there is no
    difference."""

    def changes(
        units: int, count: int, rng: np.random.Generator
    ) -> Iterator[tuple[Values, list[str] | None]]:
        for _ in range(count):
            latent, place = draw(units, units * each, 0.3 if each > 1 else 0.0, True, rng)
            yield kind(latent), named(place)

    rng = np.random.default_rng((seed, units, each))
    first = [
        paired_difference(np.zeros(len(values)), values, of)
        for values, of in changes(units, 101, rng)
    ]
    number = int(np.median([count_units_within(one, margin).number or math.inf for one in first]))
    said = [
        paired_difference(np.zeros(len(v)), v, of).within <= margin
        for v, of in changes(number, tries, rng)
    ]
    return number, float(np.mean(said))


def show(title: str, name: str, columns: list[str]) -> None:
    print(f"\n{title}\n\n| {name} | " + " | ".join(columns) + " |")
    print("|---|" + "--:|" * len(columns), flush=True)


def cell(figures: Values) -> str:
    return "/".join(f"{one:.3f}".lstrip("0") for one in figures)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tries", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tries, seed = options.tries, options.seed
    columns = [f"{n} alone" if clusters == n else f"{clusters} of {n}" for clusters, n in DESIGNS]
    show("Coverage: Plumbline, CR2, Miller, as if alone", "rewards", columns)
    for name, (kind, truth) in REWARDS.items():
        print(
            f"| {name} | "
            + " | ".join(cell(covered(kind, truth, one, tries, seed)) for one in DESIGNS)
            + " |",
            flush=True,
        )
    show(
        "Equals called different: Plumbline, with p < .01, CR2, Miller", "differences", columns[1:]
    )
    for name, null in DIFFERENCES.items():
        cells = [cell(alarms(null, one, tries, seed)) for one in DESIGNS[1:]]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    show("Said to be the same: at the margin, and of no difference", "differences", columns[1:])
    for name, null in DIFFERENCES.items():
        cells = [cell(equivalence(null, one, tries, seed)) for one in DESIGNS[1:]]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    trials = ((240, 1, 0.02), (20, 6, 0.03), (60, 4, 0.02))
    columns = [
        f"{units} of {units * each}" if each > 1 else f"{units} alone" for units, each, _ in trials
    ]
    show(
        "Advised units, and how often so many say that there is no difference",
        "differences",
        columns,
    )
    for name, null in DIFFERENCES.items():
        found = [
            advised(null, units, each, margin, tries // 2, seed) for units, each, margin in trials
        ]
        print(
            f"| {name} | "
            + " | ".join(f"{number:,} {cell(np.array([said]))}" for number, said in found)
            + " |",
            flush=True,
        )


if __name__ == "__main__":
    main()
