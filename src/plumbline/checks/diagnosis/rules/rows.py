"""Rewards against the texts that they are stored with: whose rewards these are."""

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import mode

import numpy as np

from plumbline.checks.check import Finding
from plumbline.checks.diagnosis.facts import part_names, samples_by_step
from plumbline.checks.diagnosis.history import History, Sample
from plumbline.checks.diagnosis.rule import rule
from plumbline.checks.diagnosis.rules.gold import read_reward
from plumbline.records import BoolArray, FloatArray, group_by_key

ENOUGH = 160
"""Completions: each half of their steps teaches what is paid, and the other half is asked."""
LOOKED_AT = 2000
SIGNS, FEATURES, RIDGE = 400, 48, 10.0
"""Of so many signs of a text pairs are counted in so many classes; what their weights are held
by."""
FITS, SURE = 0.25, 5.0
"""The correlation with the texts of other rows, and standard errors that it is above that with the
own ones: of healthy runs none has 0.2, of shifted ones all have 0.3."""
PAIRS, ALIKE = 40, 0.8
"""Pairs of equal answers to one prompt, and the share of the usual spread from which on they earn
as differently as any two."""


@rule("reward-rows", "samples", live=False)
def find_reward_rows(history: History) -> Iterator[Finding]:
    """Rewards that belong to other rows: the texts of a neighbour, or of the next group, explain
    them, and the own texts do not; or equal answers to one prompt earn as differently as any two.

    Each part, or the reward where there are none, less its mean of the step.
    """
    steps = _whole_steps(history.samples)
    rows = [one for step in steps for one in step]
    for name in part_names(rows) if len(rows) >= ENOUGH else ():
        values = [[read_reward(one, name) for one in step] for step in steps]
        paid = np.concatenate([np.array(of) - np.mean(of) for of in values])
        if not np.isfinite(paid).all() or paid.std() < 1e-9:
            continue
        if (shift := _find_shift(steps, paid)) is not None:
            own, other, by = shift
            evidence = {"own": own, "other": other, "rows": by}
            yield Finding("fatal", "shifted", evidence=evidence, about=name, causes=("order-lost",))
        elif (spread := _spread_of_equals(steps, paid)) is not None:
            evidence = {"spread": spread[0], "pairs": spread[1]}
            causes = ("order-lost", "random-verdicts")
            yield Finding("warning", "unrelated", evidence=evidence, about=name, causes=causes)


def _whole_steps(samples: Sequence[Sample]) -> list[list[Sample]]:
    """The completions of each step in their stored order, of steps that have as many as most."""
    by_step = samples_by_step(samples)
    usual = mode(map(len, by_step.values()))
    steps = [step for step in by_step.values() if len(step) == usual > 3]
    return steps[:: -(-len(samples) // LOOKED_AT)]


def _find_shift(
    steps: Sequence[Sequence[Sample]], paid: FloatArray
) -> tuple[float, float, int] | None:
    """How well the own texts predict rewards, how well those of other rows do, and how many rows
    these are away; None unless the others do for sure."""
    count = len(steps[0])
    size = mode(max(Counter(one.prompt for one in step).values()) for step in steps)
    texts = np.array([_count_signs(one.text) for step in steps for one in step])
    keys = [(one.prompt, one.text) for step in steps for one in step]
    places = np.arange(len(paid)).reshape(len(steps), count)
    even = (places // count % 2 == 0).ravel()
    fits: dict[int, float] = {}
    for by in dict.fromkeys((0, 1, -1, size, -size)):
        if abs(by) < count:
            earned = paid[np.roll(places, by, 1).ravel()]
            predicted = np.zeros((2, len(paid)))
            for taught in (even, ~even):
                predicted[0, ~taught] = _predict_by_signs(texts, earned, taught)
                predicted[1, ~taught] = _predict_by_equals(keys, earned, taught)
            fits[by] = max(_correlate(one, earned) for one in predicted)
    best = max(fits, key=lambda by: fits[by])
    sure = (fits[best] - max(fits[0], 0.0)) * len(paid) ** 0.5
    if fits[best] < FITS or fits[best] < 2 * fits[0] or sure < SURE:
        return None
    return fits[0], fits[best], best


def _count_signs(text: str) -> FloatArray:
    """The pairs of signs of a text in classes, and its length: too short and too long may both be
    worse."""
    found = np.zeros(FEATURES)
    for one, other in pairwise(text[:SIGNS]):
        found[zlib.crc32((one + other).encode()) % FEATURES] += 1
    size = np.log1p(len(text))
    return np.array([*np.sqrt(found), len(text), size, size**2])


def _predict_by_signs(texts: FloatArray, earned: FloatArray, taught: BoolArray) -> FloatArray:
    """What texts [n, signs] that were not taught earn by ridge regression on those that were."""
    scaled = (texts - texts.mean(axis=0)) / np.maximum(texts.std(axis=0), 1e-9)
    known = scaled[taught]
    held = known.T @ known + RIDGE * np.eye(texts.shape[1])
    weights = np.linalg.solve(held, known.T @ earned[taught])
    return scaled[~taught] @ weights


def _predict_by_equals(
    keys: Sequence[tuple[str, str]], earned: FloatArray, taught: BoolArray
) -> FloatArray:
    """The mean of what equal answers to the same prompt earn, 0 for new ones."""
    rows = zip(keys, earned, taught, strict=True)
    known = group_by_key((key, float(value)) for key, value, one in rows if one)
    asked = (key for key, one in zip(keys, taught, strict=True) if not one)
    return np.array([np.mean(known.get(key, [0.0])) for key in asked])


def _correlate(one: FloatArray, other: FloatArray) -> float:
    return float(np.corrcoef(one, other)[0, 1]) if one.std() > 1e-9 < other.std() else 0.0


def _spread_of_equals(
    steps: Sequence[Sequence[Sample]], paid: FloatArray
) -> tuple[float, int] | None:
    """The share of the usual spread of a step that equal answers to one prompt have, and of how
    many pairs; None unless it is nearly all of it."""
    equals: list[float] = []
    others: list[float] = []
    for step, values in zip(steps, paid.reshape(len(steps), -1), strict=True):
        by_key = group_by_key(
            ((one.prompt, one.text), value)
            for one, value in zip(step, values.tolist(), strict=True)
        )
        same = [some for some in by_key.values() if len(some) > 1]
        equals += [float(np.var(some, ddof=1)) for some in same for _ in some[1:]]
        others += [float(values.var(ddof=1))] if same else []
    if len(equals) < PAIRS or not (usual := float(np.mean(others))):
        return None
    share = float(np.mean(equals)) / usual
    return (share, len(equals)) if share > ALIKE else None
