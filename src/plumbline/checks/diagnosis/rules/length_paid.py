"""Length is what is paid: within groups the reward follows it, and it moves."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History, Sample
from plumbline.checks.diagnosis.trends import finite, trend

STRONG = 0.8
"""The correlation within groups, in both halves of the run: length then explains two thirds of what is learnt from."""
MOVED = 0.2
"""Of the length at first."""
ENOUGH = 64


def look(history: History) -> Iterator[Finding]:
    """A task may want short answers, so it is a note: a reader of the reward must know that it is one of length."""
    half = len(history.samples) // 2
    if half < ENOUGH:
        return
    early, late = _correlation(history.samples[:half]), _correlation(history.samples[half:])
    series = history["length"]
    line = trend(series.values if len(series) else _lengths(history.samples))
    moved = line.last / max(line.first, 1.0) - 1
    if (
        min(abs(early), abs(late)) < STRONG
        or early * late < 0
        or moved * late < 0
        or abs(line.t) < 3
        or abs(moved) < MOVED
    ):
        return
    longer = late > 0
    yield Finding(
        check="length-paid",
        level="note",
        what=f"within groups the reward follows length (correlation {late:+.2f}), and completions became "
        f"{abs(moved):.0%} {'longer' if longer else 'shorter'}",
        evidence={"correlation at first": round(early, 2), "at last": round(late, 2), "length": round(line.last, 1)},
        causes=(f"{'long' if longer else 'short'} answers earn more whatever they say",),
        fix="compare answers of equal length: does the reward tell them apart?",
    )


def _correlation(samples: Sequence[Sample]) -> float:
    """Of length and reward, each less its group's mean; 0 where one of them does not vary."""
    groups: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for one in samples:
        if one.reward is not None and np.isfinite(one.reward):
            groups[one.step, one.prompt].append((len(one.text), one.reward))
    pairs = [np.array(pair) - np.mean(pair, axis=0) for pair in groups.values() if len(pair) > 1]
    if not pairs:
        return 0.0
    length, reward = np.concatenate(pairs).T
    scale = float(np.sqrt((length @ length) * (reward @ reward)))
    return float(length @ reward) / scale if scale > 1e-12 else 0.0


def _lengths(samples: Sequence[Sample]) -> np.ndarray:
    return finite(np.array([len(one.text) for one in samples], dtype=np.float64))


CHECK = Check(
    name="length-paid",
    asks="whether the reward is one of length",
    needs=("samples",),
    look=look,
    live=False,
)
