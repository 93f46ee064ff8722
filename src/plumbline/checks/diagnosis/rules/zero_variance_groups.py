"""Groups whose rewards are all equal teach nothing: most of the rollouts may be paid for and thrown away."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.facts import equal_groups, top
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.trends import finite

MOST = 0.5
"""One team's log's limit: sustained above it, a run is to be stopped."""
TOP, LOW = 0.9, 0.1
"""Of the most that can be earned: equal groups that earn more are solved, and too hard where they earn less."""
WINDOW = 10
SOLVED, UNKNOWN = ", at the top: they are solved", ", of a scale that is not known"


def look(history: History) -> Iterator[Finding]:
    """Of the last window of steps; `no-signal` speaks of those that had no group with a signal at all."""
    shares = equal_groups(history.samples)
    if shares is None:
        shares = history["zero_std"]
    window = WINDOW if len(shares) < 4 * WINDOW else 2 * WINDOW
    last = shares.last(window).values
    if len(last) < window or not MOST < np.mean(last) < 1:
        return
    share, earned = float(np.mean(last)), finite(history["reward"].last(WINDOW).values)
    level = float(earned.mean()) if len(earned) else float("nan")
    where, causes, fix = _where(history, share, level)
    solved = where == SOLVED
    yield Finding(
        check="zero-variance-groups",
        level="note" if solved or (where == UNKNOWN and _high(level, share)) else "warning",
        what=f"in the last {window} logged steps {share:.0%} of the groups have equal rewards"
        + (f" (mean reward {level:.3g})" if where == UNKNOWN else where),
        since=int(shares.last(window).steps[0]),
        evidence={"share": round(share, 3), "reward": round(level, 4)},
        causes=causes,
        fix=fix,
    )


def _where(history: History, share: float, level: float) -> tuple[str, tuple[str, ...], str]:
    """Where groups of equal rewards stand, as far as the scale of the reward is known; their causes and what to do."""
    highest = top(history)
    more = "raise rl.group_size, or pay parts of an answer"
    if highest is not None and _high(level / highest, share):
        return SOLVED, ("solved prompts are drawn again",), "take harder prompts"
    if not (history["reward"].values < 0).any() and level < LOW * (highest or 1.0):
        return ", at the bottom: they are too hard", ("prompts are too hard", "a reward of few values"), more
    if highest is not None:
        said = f", in the mean {level:.3g} of {highest:g}"
        return said, ("some prompts are too hard, and others solved", "a reward of few values"), more
    return (
        UNKNOWN,
        ("prompts are too hard, or solved: what can be earned is not known", "a reward of few values"),
        (f"read the rewards of some groups; {more}"),
    )


def _high(level: float, share: float) -> bool:
    """Whether groups of equal rewards earn nearly all, if the others earn a half."""
    return level <= 1 and level - (1 - share) / 2 > TOP * share


CHECK = Check(
    name="zero-variance-groups",
    asks="whether most groups have equal rewards, and whether that is because they are solved or too hard",
    needs=("zero_std|samples",),
    look=look,
)
