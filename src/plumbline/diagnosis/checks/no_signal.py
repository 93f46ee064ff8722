"""Steps that teach nothing: every group's rewards are equal, or the gradient is zero though they are not."""

from collections.abc import Iterator

import numpy as np

from plumbline.diagnosis.check import Check
from plumbline.diagnosis.finding import Finding
from plumbline.diagnosis.history import History
from plumbline.diagnosis.trends import runs_of, since

TINY = 1e-10
"""A gradient or a spread below is none: float32 leaves about 1e-7 of equal rewards times their weights."""
EQUAL = 1e-6
TOP = 0.95
"""A reward above is taken for everything that can be earned; the scale of other people's rewards is not known."""
LONG = 5
"""Logged steps in a row, from which it is no chance."""
SOLVED = 0.999
"""Of our own rewards, whose scale is known, a value above is everything from the start."""
PATIENCE = 10
"""Logged steps in a row, from which a run that goes on is stopped, where its recipe names no other number."""
CHANCE = 1e-3
"""That steps that are silent as often as those before are so all this while."""


def look(history: History) -> Iterator[Finding]:
    """One finding: the longest or the last stretch without a signal, named by what it earned there."""
    silent = _silent(history)
    if silent is None:
        return
    steps, mask, because = silent
    share, longest = float(mask.mean()), runs_of(mask)
    if longest < LONG or (share < 0.5 and since(steps, mask) is None):
        return
    begins = since(steps, mask)
    start = begins if begins is not None else int(steps[mask][0])
    reward = history["reward"]
    there = reward.since(start).values
    level = float(np.median(there)) if len(there) else float("nan")
    best = float(np.nanmax(reward.values)) if len(reward) else float("nan")
    earned = np.nanmean(reward.values[: max(1, len(reward) // 10)]) if len(reward) else float("nan")
    # Rewards that rose to where they now stand, at the top of all that was seen: the task is solved, not broken.
    solved = len(there) > 0 and level >= best - EQUAL and level > earned + 0.05 and share < 0.9
    solved = solved or (history.origin == "plumbline" and level > SOLVED)
    evidence = {"share of steps": round(share, 3), "longest stretch": longest, "reward there": round(level, 4)}
    if solved:
        yield Finding(
            check="no-signal",
            level="note" if level > TOP else "warning",
            what=f"since step {start} every answer earns the most that was ever earned ({level:.3f}): nothing more is "
            "learnt from these prompts",
            since=start,
            evidence=evidence,
            causes=("the prompts are solved",)
            if level > TOP
            else ("all answers are the same", "the prompts are solved"),
            fix="stop here, or take harder prompts" if level > TOP else "read answers: are they right, or all alike?",
        )
        return
    zero = abs(level) < EQUAL
    yield Finding(
        check="no-signal",
        level="fatal" if share >= 0.5 or begins is not None else "warning",
        what=f"{because} in {share:.0%} of the logged steps (rewards there: {level:.3f}): nothing was learnt from them",
        since=start,
        evidence=evidence,
        causes=(
            ("the reward is 0 for everything: look at completions first, then at what reads them",)
            if zero
            else ("the reward does not tell answers apart", "parts of the reward that cancel one another")
        )
        + ("groups too small, or answers drawn at too low a temperature, for a reward of 0 and 1",),
        fix="score a few completions by hand; pay parts of an answer; start from a model that sometimes succeeds",
    )


def _silent(history: History) -> tuple[np.ndarray, np.ndarray, str] | None:
    """Steps, whether each was silent, and what says so: the gradient where it is logged, because nothing else is sure.

    TRL's frac_reward_zero_std is 0 for equal rewards whose float32 spread is 1e-7, and describes the batch and not its
    groups under scale_rewards="batch"; a gradient of zero is one.
    """
    gradient, spread, share = history["gradient"], history["reward_std"], history["zero_std"]
    if len(gradient):
        mask = np.abs(gradient.values) < TINY
        if mask.any():
            return gradient.steps, mask, "the gradient is zero"
    if len(share) and (share.values >= 1).any():
        return share.steps, share.values >= 1, "all groups have equal rewards"
    if len(spread) and (spread.values < EQUAL).any():
        return spread.steps, spread.values < EQUAL, "all rewards are equal"
    return None


def _stops(history: History, since: int) -> bool:  # noqa: ARG001 - the steps say since when
    """Where the last stretch is long, and long beside what there was before: few prompts a step are often silent."""
    silent = _silent(history)
    if silent is None:
        return False
    _, mask, _ = silent
    heard = np.flatnonzero(~mask)
    length = len(mask) - 1 - int(heard[-1]) if len(heard) else len(mask)
    before = float(mask[: len(mask) - length].mean()) if length < len(mask) else 0.0
    return length >= (history.settings.get("rl.patience") or PATIENCE) and before**length < CHANCE


CHECK = Check(
    name="no-signal",
    asks="whether whole steps had nothing to learn from: zero gradients, or groups of equal rewards",
    needs=("gradient|zero_std|reward_std",),
    look=look,
    explains=("zero-variance-groups", "dead-part", "small-updates", "plateau", "clip-idle"),
    stops=_stops,
)
