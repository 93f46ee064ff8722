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
MOST = 0.9
"""Share of the steps from which the whole run is without a signal. One group a step is often all right or all wrong
(59 % of the steps of one GRPO run of 2,400, where the rest still taught something)."""
RISEN = 0.5
"""Share of the way from the first tenth of the run to the best step, which a run that learns has gone."""
CHANCE = 1e-3
"""A silent end is none if so many in a row would be met by chance, as often as steps were silent before it."""
LONG = 5
"""Logged steps in a row, from which it is no chance."""
SOLVED = 0.999
"""Of our own rewards, whose scale is known, a value above is everything from the start."""
PATIENCE = 10
"""Logged steps in a row, from which a run that goes on is stopped, where its recipe names no other number."""


def look(history: History) -> Iterator[Finding]:
    """One finding: the longest or the last stretch without a signal, named by what it earned there."""
    silent = _silent(history)
    if silent is None:
        return
    steps, mask, because = silent
    share, longest = float(mask.mean()), runs_of(mask)
    begins = since(steps, mask)
    for_good = begins is not None and not _by_chance(mask)
    if longest < LONG or (share < 0.5 and not for_good):
        return
    begins = begins if for_good else None
    start = begins if begins is not None else int(steps[mask][0])
    reward = history["reward"]
    there = reward.since(start).values
    level = float(np.median(there)) if len(there) else float("nan")
    best = float(np.nanmax(reward.values)) if len(reward) else float("nan")
    earned = np.nanmean(reward.values[: max(1, len(reward) // 10)]) if len(reward) else float("nan")
    # Rewards that rose to where they now stand, at the top of all that was seen: the task is solved, not broken.
    solved = len(there) > 0 and level >= best - EQUAL and level > earned + 0.05 and share < MOST
    solved = solved or (history.origin == "plumbline" and level > SOLVED)
    late = float(np.nanmean(reward.values[-len(reward) // 3 :])) if len(reward) else float("nan")
    if not for_good and share < MOST and late > earned + max(0.05, RISEN * (best - earned)):
        yield Finding(
            check="no-signal",
            level="note",
            what=f"{because} in {share:.0%} of the logged steps; the reward rose to {late:.3f} all the same: ever "
            "more prompts are solved, and teach nothing",
            since=start,
            evidence={"share of steps": round(share, 3), "longest stretch": longest, "reward there": round(level, 4)},
            causes=("few groups a step, most of them solved",),
            fix="take harder prompts, or more groups a step",
        )
        return
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
        level="fatal" if share >= MOST or for_good else "warning",
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


def _by_chance(mask: np.ndarray) -> bool:
    """Whether the silent stretch at the end is no longer than what the share of silent steps before it gives."""
    length, often = _end(mask)
    return length < LONG or often**length * len(mask) > CHANCE


def _end(mask: np.ndarray) -> tuple[int, float]:
    """Silent steps at the end, and the share of silent ones before those."""
    length = int(np.argmin(mask[::-1])) if not mask.all() else len(mask)
    before = mask[: len(mask) - length]
    return length, float(before.mean()) if len(before) else 0.0


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
    length, often = _end(silent[1])
    return length >= (history.settings.get("rl.patience") or PATIENCE) and often**length < CHANCE


CHECK = Check(
    name="no-signal",
    asks="whether whole steps had nothing to learn from: zero gradients, or groups of equal rewards",
    needs=("gradient|zero_std|reward_std",),
    look=look,
    explains=("zero-variance-groups", "dead-part", "small-updates", "plateau", "clip-idle"),
    stops=_stops,
)
