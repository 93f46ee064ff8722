"""The figures of an evaluation: nonzero rate, mean reward and what the task puts first; whole, and by what it names.

Every figure is a mean over examples. What is only ever 0 or 1 has Wilson's interval, all else the bootstrap's.
"""

from collections.abc import Sequence

from plumbline.evaluation.statistics import TIE, Interval, mean_interval, rate_interval
from plumbline.records import Evaluation, Figure, Headline, Judged

NONZERO, REWARD = "nonzero_rate", "mean_reward"
TITLES = {NONZERO: "Nonzero rate", REWARD: "Mean reward"}
ACCURACY, RIGHT = "accuracy", "all_right_rate"
EARNED = 0.999
"""A reward from here on is everything that can be earned."""


def titles(headline: Headline | None) -> dict[str, str]:
    """The figures' keys and their names for people, in the order of the tables."""
    return {**TITLES, **{figure.key: figure.title for figure in (headline.figures if headline else ())}}


def figures(rows: Sequence[Judged], headline: Headline | None) -> dict[str, Interval]:
    """The figures of some rows, in the order of `titles`.

    An answer that could not be judged is no row, and no figure counts it. A row without a part is left out of the means
    of that part, and their n says so.
    """
    found = {
        NONZERO: rate_interval([row.reward > 0 for row in rows]),
        REWARD: mean_interval([row.reward for row in rows]),
    }
    return found | {figure.key: _figure(rows, figure) for figure in (headline.figures if headline else ())}


def by_stratum(evaluation: Evaluation) -> dict[str, dict[str, Interval]]:
    """The figures of every stratum; empty where there is only one."""
    names = sorted({row.stratum for row in evaluation.rows})
    if len(names) < 2:
        return {}
    return {
        name: figures([row for row in evaluation.rows if row.stratum == name], evaluation.headline) for name in names
    }


def by_prefix(evaluation: Evaluation) -> dict[str, dict[str, Interval]]:
    """For each part under the headline's prefix: its mean, and how often it is 1, over the examples that have it."""
    headline = evaluation.headline
    if headline is None or not headline.prefix:
        return {}
    values: dict[str, list[float]] = {}
    for row in evaluation.rows:
        for part, value in row.parts.items():
            if part.startswith(headline.prefix) and value is not None:
                values.setdefault(part.removeprefix(headline.prefix), []).append(value)
    return {
        name: {ACCURACY: mean_interval(found), RIGHT: rate_interval([value >= 1 - TIE for value in found])}
        for name, found in sorted(values.items())
    }


def _figure(rows: Sequence[Judged], figure: Figure) -> Interval:
    values = [value for row in rows if (value := row.parts.get(figure.part)) is not None]
    if not figure.rate:
        return mean_interval(values)
    assert all(value in {0.0, 1.0} for value in values), f"{figure.part} is declared a rate, and is not 0 or 1"
    return rate_interval(values)
