"""Reward, length or entropy jump at one step together: a resume, other data, another version of the reward."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History, Series

NAMES = ("reward", "length", "entropy", "truncated", "zero_std", "kl")
"""What training changes slowly, and other data or other weights at once."""
BESIDE = 10
"""Steps on both sides that are compared."""
ENOUGH = 40
"""Logged steps: in a run of fewer a quick gain looks like a jump."""
SURE = 4.0
"""Standard deviations of single steps: nine standard errors of the difference."""
BETTER = 0.5
"""Share of the squared error of a straight line, that two levels leave; a jump of four deviations leaves 0.47."""
LARGE = 0.15
"""Share of the level that it jumps by."""
NEAR = 1
"""Steps that jumps of two series may be apart."""


def look(history: History) -> Iterator[Finding]:
    """The step at which most series jump; one series that jumps alone may be anything."""
    jumping = {name: jumps for name in NAMES if (jumps := jumps_of(history[name]))}
    steps = sorted({step for jumps in jumping.values() for step in jumps})
    together = {
        step: {
            name: max((jumps[at] for at in jumps if abs(at - step) <= NEAR), key=lambda run: run[0])
            for name, jumps in jumping.items()
            if any(abs(at - step) <= NEAR for at in jumps)
        }
        for step in steps
    }
    if not together:
        return
    step = max(together, key=lambda run: (len(together[run]), sum(size for size, _, _ in together[run].values())))
    names = together[step]
    if len(names) < 2 or not names.keys() & {"reward", "entropy"}:
        return
    listed = ", ".join(f"{name} {before:.3g} to {after:.3g}" for name, (_, before, after) in names.items())
    every = int(np.median(np.diff(history["reward"].steps))) if len(history["reward"]) > 1 else 1
    rose = "reward" in names and names["reward"][2] > names["reward"][1]
    yield Finding(
        check="jump",
        level="note" if rose and every > 1 else "warning",  # a quick gain may fall between two logged steps
        what=f"{len(names)} series jump at step {step}: {listed}; training alone changes them slowly"
        + (", so this gain may not be learnt" if rose else ""),
        since=step,
        evidence={name: round(after - before, 4) for name, (_, before, after) in names.items()},
        causes=(
            "a resume with other weights, or without the optimiser's state",
            "other data from that step on",
            "another version of the reward, the prompt or the sampler's settings",
        ),
        fix=f"look at what changed at step {step}, and compare answers to the same prompts before and after",
    )


def jumps_of(series: Series) -> dict[int, tuple[float, float, float]]:
    """Steps that begin another level at once: how many standard deviations it is away, and both levels."""
    good = np.isfinite(series.values)
    steps, values = series.steps[good], series.values[good]
    if len(values) < ENOUGH:
        return {}
    windows = np.lib.stride_tricks.sliding_window_view(values, 2 * BESIDE)
    before, after = windows[:, :BESIDE], windows[:, BESIDE:]
    first, last = before.mean(axis=1), after.mean(axis=1)
    change = np.abs(last - first)
    step = ((before - first[:, None]) ** 2).sum(axis=1) + ((after - last[:, None]) ** 2).sum(axis=1)
    scatter = np.maximum((step / (2 * BESIDE - 2)) ** 0.5, max(series.rounding, 1e-9))
    place = np.arange(2 * BESIDE) - BESIDE + 0.5
    line = ((windows - windows.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) - (windows @ place) ** 2 / (place @ place)
    large = change > LARGE * np.maximum(np.abs(first), np.abs(last))
    places = np.flatnonzero((change > SURE * scatter) & (step < BETTER * line) & large)
    return {
        int(steps[at + BESIDE]): (float(change[at] / scatter[at]), float(first[at]), float(last[at]))
        for at in places.tolist()
    }


CHECK = Check(
    name="jump",
    asks="whether reward, length and entropy jump at one step together",
    needs=("reward|entropy",),
    look=look,
)
