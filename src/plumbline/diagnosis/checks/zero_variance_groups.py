"""Groups whose rewards are all equal teach nothing: most of the rollouts may be paid for and thrown away."""

from collections.abc import Iterator

import numpy as np

from plumbline.diagnosis.check import Check
from plumbline.diagnosis.finding import Finding
from plumbline.diagnosis.history import History, Series

MOST = 0.5
"""The commerce log's limit: sustained above it, a run is to be stopped."""
TOP = 0.9
"""Mean reward above which most groups are solved; the scale of other people's rewards is not known."""
WINDOW = 10


def look(history: History) -> Iterator[Finding]:
    """Of the last window of steps; `no-signal` speaks of those that had no group with a signal at all."""
    shares = _from_samples(history)
    if shares is None:
        shares = history["zero_std"]
    window = WINDOW if len(shares) < 4 * WINDOW else 2 * WINDOW
    last = shares.last(window).values
    if len(last) < window or not MOST < np.mean(last) < 1:
        return
    reward = history["reward"]
    level = float(np.nanmean(reward.last(WINDOW).values)) if len(reward) else float("nan")
    # What groups of equal rewards earn, if the others earn a half: of rewards from 0 to 1.
    share = float(np.mean(last))
    unit = len(reward) > 0 and np.nanmin(reward.values) >= 0 and np.nanmax(reward.values) <= 1
    solved = level > TOP or (unit and level - (1 - share) / 2 > TOP * share)
    where = "the top: they are solved" if solved else "the bottom: they are too hard" if level < 0.1 else "one level"
    yield Finding(
        check="zero-variance-groups",
        level="note" if solved else "warning",
        what=f"in the last {window} logged steps {np.mean(last):.0%} of the groups have equal rewards, at {where}",
        since=int(shares.last(window).steps[0]),
        evidence={"share": round(float(np.mean(last)), 3), "reward": round(level, 4)},
        causes=("solved prompts are drawn again",) if solved else ("prompts are too hard", "a reward of few values"),
        fix="take harder prompts" if solved else "raise rl.group_size, or pay parts of an answer",
    )


def _from_samples(history: History) -> Series | None:
    """The share by step as the completions say: what a trainer logs may describe the batch."""
    groups: dict[tuple[int, str], list[float]] = {}
    for sample in history.samples:
        if sample.reward is not None and sample.prompt:
            groups.setdefault((sample.step, sample.prompt), []).append(sample.reward)
    by_step: dict[int, list[bool]] = {}
    for (step, _), rewards in groups.items():
        if len(rewards) > 1:
            by_step.setdefault(step, []).append(max(rewards) - min(rewards) < 1e-6)
    if not by_step:
        return None
    steps = sorted(by_step)
    return Series(np.array(steps), np.array([np.mean(by_step[step]) for step in steps]))


CHECK = Check(
    name="zero-variance-groups",
    asks="whether most groups have equal rewards, and whether that is because they are solved or too hard",
    needs=("zero_std|samples",),
    look=look,
)
