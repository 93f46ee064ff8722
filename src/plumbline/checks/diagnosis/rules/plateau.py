"""The evaluation stopped rising: since when, and what else ended there."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.facts import top
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History

SHARE = 0.35
"""Of the run, that must lie behind the plateau's beginning."""
ENOUGH = 8
QUICK, SURE = 8, 6.0
"""Values of a rise that few of them may make by chance, and standard deviations that it must then be."""
GROWTH = 0.1
"""Of the rise before: what grows by more since then does not stand still."""
TOP = 0.95
"""Of the most that can be earned, where that is known."""


def look(history: History) -> Iterator[Finding]:
    """Of the main evaluation where there are enough, else of the training reward: two lines that meet at a step, the
    first rising, the second flat, where the first one, drawn on, leaves the values far below it.
    """
    name = "eval/reward" if len(history["eval/reward"]) >= ENOUGH else "reward"
    series = history[name]
    good = np.isfinite(series.values)
    steps, values = series.steps[good], series.values[good]
    if len(values) < (ENOUGH if name != "reward" else 5 * ENOUGH):
        return
    places = np.arange(len(values))
    found = min(range(3, round((1 - SHARE) * len(values))), key=lambda cut: _error(places, values, cut), default=None)
    if found is None:
        return
    slope, start = np.polyfit(places[:found], values[:found], 1)
    noise = float((_error(places, values, found) / max(len(values) - 4, 1)) ** 0.5)
    after = values[found:]
    rose, missing = float(slope * found), start + slope * places[found:] - after
    growth = float(np.polyfit(places[found:], after, 1)[0]) * len(after)
    if rose < max(0.02, 4 * noise) or missing.mean() < 4 * noise / len(after) ** 0.5 + 0.25 * rose:
        return
    if abs(growth) > 0.25 * slope * len(after) or growth > GROWTH * rose:
        return
    at, level = int(steps[found]), float(after.mean())
    if found < QUICK and level - start < SURE * noise:
        return
    yield Finding(
        check="plateau",
        level="note",
        what=f"{name} rose from {start:.3f} to {level:.3f} until about step {at}, and has stayed there",
        since=at,
        evidence={"first": float(start), "plateau": level, "steps since": int(steps[-1] - at)},
        causes=tuple(_causes(history, at, level)) or ("the model's limit on this task, or the reward's",),
        fix="change what the first cause names, and nothing else",
    )


def _error(places: NDArray[np.int64], values: NDArray[np.float64], cut: int) -> float:
    """The squared error of a line before a place and another from it on."""
    total = 0.0
    for part in (slice(None, cut), slice(cut, None)):
        line = np.polyfit(places[part], values[part], 1)
        total += float(((np.polyval(line, places[part]) - values[part]) ** 2).sum())
    return total


def _causes(history: History, at: int, level: float) -> Iterator[str]:
    rate, epoch, zero, entropy = history["rate"], history["epoch"], history["zero_std"], history["entropy"]
    then = rate.since(at).values
    if len(then) and np.nanmax(then) < 0.4 * np.nanmax(rate.values):
        yield f"the learning rate was down to {np.nanmax(then) / np.nanmax(rate.values):.0%} of its highest by then"
    if (highest := top(history)) is not None and level > TOP * highest:
        yield "the reward is at its ceiling"
    if len(epoch) and 0 < epoch.values[-1] < 0.3:
        yield f"only {epoch.values[-1]:.0%} of the prompts were seen"
    if len(zero) and np.nanmean(zero.since(at).values) > 0.5:
        yield f"{np.nanmean(zero.since(at).values):.0%} of the groups have equal rewards"
    if len(entropy) and 0 <= np.nanmedian(entropy.since(at).values) < 0.01:
        yield "answers are hardly varied any more (entropy)"


CHECK = Check(
    name="plateau",
    asks="since when the reward has stood still, and what ended there",
    needs=("reward",),
    look=look,
    live=False,
)
