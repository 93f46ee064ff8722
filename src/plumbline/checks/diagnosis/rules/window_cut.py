"""A resume within a window of rollouts: what was drawn for several steps is lost, and drawn anew by other weights."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History

USUAL = 0.6
"""Share of the windows that must have one length."""


def look(history: History) -> Iterator[Finding]:
    """TRL logs a reward where it draws, and in the steps that use the same rollouts again only the loss.

    With every step logged, the steps with a reward are so many apart; a resume begins a window anew, wherever it is.
    """
    loss, reward = history["loss"].steps, history["reward"].steps
    if history.origin != "trl" or len(reward) < 4 or len(loss) < 2 or (np.diff(loss) != 1).any():
        return
    apart = np.diff(reward)
    lengths, counts = np.unique(apart, return_counts=True)
    usual = int(lengths[np.argmax(counts)])
    short = np.flatnonzero(apart < usual)
    if usual < 2 or counts.max() < USUAL * len(apart) or not len(short):
        return
    at = [int(reward[one + 1]) for one in short]
    yield Finding(
        check="window-cut",
        level="warning",
        what=f"each batch of rollouts is used in {usual} steps, but that of step {int(reward[short[0]])} only in "
        f"{int(apart[short[0]])}: the run was resumed at step {at[0]}, within a window",
        since=at[0],
        evidence={"window": usual, "cut": len(at)},
        causes=("a checkpoint that was saved within a window (save_steps is no multiple of it)",),
        fix=f"save every {usual} steps or a multiple: resumed elsewhere, a run goes another way than an unbroken one",
    )


CHECK = Check(
    name="window-cut",
    asks="whether the run was resumed within a window of rollouts",
    needs=("reward", "loss"),
    look=look,
)
