"""The evaluation stopped rising: since when, and what else ended there."""

from collections.abc import Iterator

import numpy as np

from plumbline.diagnosis.check import Check
from plumbline.diagnosis.finding import Finding
from plumbline.diagnosis.history import History
from plumbline.diagnosis.trends import trend

SHARE = 0.35
"""Of the run, that must lie behind the plateau's beginning."""
ENOUGH = 8


def look(history: History) -> Iterator[Finding]:
    """Of the main evaluation where there are enough, else of the training reward."""
    name = "eval/reward" if len(history["eval/reward"]) >= ENOUGH else "reward"
    series = history[name]
    good = np.isfinite(series.values)
    steps, values = series.steps[good], series.values[good]
    if len(values) < (ENOUGH if name != "reward" else 40):
        return
    parts = np.array_split(np.arange(len(values)), ENOUGH)
    means = np.array([values[part].mean() for part in parts])
    # The earliest stretch after which no line rises, while before it one did.
    for cut in range(2, ENOUGH - 2):
        before, after = trend(values[: parts[cut][0] + 1]), trend(values[parts[cut][0] :])
        rose = means[cut:].mean() - means[0]
        flat = abs(after.last - after.first) < 0.15 * rose
        if before.t > 3 and rose > 0.02 and flat and 1 - cut / ENOUGH >= SHARE:
            at = int(steps[parts[cut][0]])
            causes = list(_causes(history, at, float(means[cut:].mean())))
            yield Finding(
                check="plateau",
                level="note",
                what=f"{name} rose from {means[0]:.3f} to {means[cut:].mean():.3f} until about step {at}, and has "
                "stayed there",
                since=at,
                evidence={
                    "first": float(means[0]),
                    "plateau": float(means[cut:].mean()),
                    "steps since": int(steps[-1] - at),
                },
                causes=tuple(causes) or ("the model's limit on this task, or the reward's",),
                fix="change what the first cause names, and nothing else",
            )
            return


def _causes(history: History, at: int, level: float) -> Iterator[str]:
    rate, epoch, zero, entropy = history["rate"], history["epoch"], history["zero_std"], history["entropy"]
    then = rate.since(at).values
    if len(then) and np.nanmax(then) < 0.4 * np.nanmax(rate.values):
        yield f"the learning rate was down to {np.nanmax(then) / np.nanmax(rate.values):.0%} of its highest by then"
    if level > 0.95:
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
)
