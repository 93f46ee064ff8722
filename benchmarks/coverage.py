"""How often intervals of 95 % hold the truth, where examples share a cluster, and how often equals are told apart.

    python benchmarks/coverage.py              # as in docs/statistics.md; two minutes of one core
    python benchmarks/coverage.py --tries 5000

Clusters have one to six examples. `alike` is the share of the variance that lies between clusters (the intra-cluster
correlation). "As if alone" counts examples as the unit, which is what an interval without clusters does.
"""

import argparse
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from plumbline.evaluation.statistics import Interval, direction, mean_interval, paired, rate_interval

SIZES, COUNTS, ALIKE = (1, 2, 3, 4, 6), (20, 60, 240), (0.0, 0.1, 0.3, 0.5)
Latent = NDArray[np.float64]


def graded(latent: Latent) -> NDArray[np.float64]:
    """Rewards between 0 and 1, most of them high."""
    return 1 / (1 + np.exp(-(1.5 * latent + 0.5)))


def change(latent: Latent) -> NDArray[np.float64]:
    """Of right answers: 15 % are won and 10 % lost."""
    return (latent > NormalDist().inv_cdf(0.85)).astype(float) - (latent < NormalDist().inv_cdf(0.10))


def right(latent: Latent) -> NDArray[np.float64]:
    """Four answers in five are right."""
    return (latent < NormalDist().inv_cdf(0.8)).astype(float)


def rare(latent: Latent) -> NDArray[np.float64]:
    """One answer in ten is right."""
    return (latent < NormalDist().inv_cdf(0.1)).astype(float)


def difference(values: NDArray[np.float64], clusters: list[str] | None) -> Interval:
    """The interval of a paired difference."""
    return paired(np.zeros(len(values)), values, clusters).difference


KINDS: dict[str, tuple[Callable[[Latent], NDArray[np.float64]], Callable[..., Interval], float | None]] = {
    "graded reward": (graded, mean_interval, None),
    "change of right answers": (change, difference, 0.05),
    "right, .8": (right, rate_interval, 0.8),
    "right, .1": (rare, rate_interval, 0.1),
}


def latent(count: int, alike: float, rng: np.random.Generator) -> tuple[Latent, list[str]]:
    """Normal values [n] and their clusters."""
    clusters = np.repeat(np.arange(count), rng.choice(SIZES, size=count))[:count]
    shared, own = rng.standard_normal(count)[clusters], rng.standard_normal(count)
    return alike**0.5 * shared + (1 - alike) ** 0.5 * own, [str(one) for one in clusters]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    mean_graded = float(graded(np.random.default_rng(1).standard_normal(4_000_000)).mean())
    print("| what | n | " + " | ".join(f"alike {alike:g}" for alike in ALIKE) + " | as if alone, alike .5 |")
    print("|---|--:|" + "--:|" * (len(ALIKE) + 1), flush=True)
    for name, (kind, interval, truth) in KINDS.items():
        for count in COUNTS:
            cells = []
            for alike, known in [*((alike, True) for alike in ALIKE), (0.5, False)]:
                rng, hits = np.random.default_rng((options.seed, count)), 0
                for _ in range(options.tries):
                    values, clusters = latent(count, alike, rng)
                    found = interval(kind(values), clusters if known else None)
                    hits += found.low <= (mean_graded if truth is None else truth) <= found.high
                cells.append(f"{hits / options.tries:.3f}")
            print(f"| {name} | {count} | " + " | ".join(cells) + " |", flush=True)
    print("\n| equals called different | " + " | ".join(f"n = {count}" for count in (3, 4, 6, 10, 20, 60)) + " |")
    print("|---|" + "--:|" * 6)
    for alike in (0.0, 0.5):
        cells = []
        for count in (3, 4, 6, 10, 20, 60):
            rng, false = np.random.default_rng((options.seed, count)), 0
            for _ in range(options.tries):
                values, clusters = latent(count, alike, rng)
                said = paired(np.zeros(count), values, clusters)
                false += direction(said.difference, said.p_value) != "same"
            cells.append(f"{false / options.tries:.3f}")
        print(f"| alike {alike:g} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
