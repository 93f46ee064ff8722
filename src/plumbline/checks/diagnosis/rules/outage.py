"""Steps in which everything earned exactly 0, between steps in which it did not: what judges was away."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History, Series

SURE = 6.0
"""Standard deviations of the steps around, that 0 lies below them: with a chance of 10^-9 of a normal law, and small
batches of rewards of 0 and 1 never come to more than 4."""
LEAST = 0.02
"""Of that standard deviation."""
AROUND = 20
"""Steps to compare with."""
RARE = 0.2
"""Share of the steps; what fails more often is no outage, and other checks see it."""


def look(history: History) -> Iterator[Finding]:
    """The reward and its parts; a stretch of zeros to the end is none (it may be a collapse)."""
    for name in ("reward", *(f"part/{one}" for one in history.names("part/"))):
        away = _away(history[name], history["reward_std" if name == "reward" else name.replace("part/", "part_std/")])
        if not len(away):
            continue
        yield Finding(
            check="outage",
            level="warning",
            what=f"{name.replace('part/', 'the part ')} was exactly 0 for every answer in {len(away)} step"
            f"{'s' if len(away) > 1 else ''} ({', '.join(map(str, away[:5]))}{', ...' if len(away) > 5 else ''}), and "
            "far from it before and after",
            since=int(away[0]),
            evidence={"steps": len(away)},
            causes=("a sandbox, browser, database or judge that did not answer, and was paid as a wrong answer",),
            fix="give such answers no reward (None), and draw them again",
        )
        return


def _away(series: Series, spread: Series) -> np.ndarray:
    """The steps. A mean of 0 is one of zeros if nothing is below 0, and where a spread was logged there is none."""
    good = np.isfinite(series.values)
    steps, values = series.steps[good], series.values[good]
    mixed = set(spread.steps[spread.values > 1e-6].tolist())
    zero = np.array(
        [at for at in np.flatnonzero(np.abs(values) < 1e-12) if int(steps[at]) not in mixed], dtype=np.int64
    )
    if (values < 0).any() and not len(spread):
        return zero[:0]
    if len(values) < AROUND or not len(zero) or len(zero) > RARE * len(values) or zero[-1] == len(values) - 1:
        return np.array([], dtype=np.int64)
    found = []
    for at in zero:
        near = values[max(0, at - AROUND // 2) : at + AROUND // 2 + 1]
        near = near[np.abs(near) > 1e-12]
        if len(near) < AROUND // 2:
            continue
        middle = float(np.median(near))
        if middle > SURE * max(float(np.std(near, ddof=1)), LEAST):
            found.append(steps[at])
    return np.array(found, dtype=np.int64)


CHECK = Check(
    name="outage",
    asks="whether single steps earned exactly 0 because nobody could judge them",
    needs=("reward",),
    look=look,
)
