"""Steps that teach nothing: every group's rewards are equal, or the gradient is zero though they differ."""

from collections.abc import Iterator, Mapping

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.facts import EQUAL, learns, likely, rewards_differ, spread_of_batch, top, zeros
from plumbline.checks.diagnosis.finding import Finding, Level
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.trends import finite, runs_of, since

TINY = 1e-10
"""A gradient or a spread below is none: float32 leaves about 1e-7 of equal rewards times their weights."""
TOP = 0.95
"""Of the most that can be earned, from which on prompts are solved."""
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
GRADIENT = "the gradient is zero"
NEVER = "the gradient never reaches the weights: they are frozen, or the graph is cut"
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
    evidence = {"share of steps": round(share, 3), "longest stretch": longest}
    if because == GRADIENT and rewards_differ(history, steps[mask]):
        yield _lost(history, share, start, evidence, for_good=for_good)
        return
    reward = history["reward"]
    there = finite(reward.since(start).values)
    level = float(np.median(there)) if len(there) else float("nan")
    values = finite(reward.values)
    best = float(values.max()) if len(values) else float("nan")
    earned = float(values[: max(1, len(values) // 10)].mean()) if len(values) else float("nan")
    evidence |= {"reward there": round(level, 4)}
    # Rewards that rose to where they now stand, at the top of all that was seen: the task is solved, not broken.
    solved = len(there) > 0 and level >= best - EQUAL and level > earned + 0.05 and share < MOST
    solved = solved or (history.origin == "plumbline" and level > SOLVED)
    late = float(values[-len(values) // 3 :].mean()) if len(values) else float("nan")
    if not for_good and share < MOST and late > earned + max(0.05, RISEN * (best - earned)):
        yield Finding(
            check="no-signal",
            level="note",
            what=f"{because} in {share:.0%} of the logged steps; the reward rose to {late:.3f} all the same: ever "
            "more prompts are solved, and teach nothing",
            since=start,
            evidence=evidence,
            causes=("few groups a step, most of them solved",),
            fix="take harder prompts, or more groups a step",
        )
        return
    if solved:
        highest = top(history)
        known = highest is not None and level > TOP * highest
        yield Finding(
            check="no-signal",
            level="note" if known or (highest is None and level > TOP) else "warning",
            what=f"since step {start} every answer earns the most that was ever earned ({level:.3f}): nothing more is "
            "learnt from these prompts",
            since=start,
            evidence=evidence,
            causes=("the prompts are solved",) if known else ("all answers are the same", "the prompts are solved"),
            fix="stop here, or take harder prompts" if known else "read answers: are they right, or all alike?",
        )
        return
    fatal = share >= MOST or for_good
    yield _equal(history, because, start, evidence, "fatal" if fatal else "warning")


def _equal(history: History, because: str, start: int, evidence: Mapping[str, float], how: Level) -> Finding:
    """Rewards that are equal, as far as the series say."""
    share, level = evidence["share of steps"], evidence["reward there"]
    zero, highest = abs(level) < EQUAL, top(history)
    full = highest is not None and level > TOP * highest
    mixed = because == GRADIENT and _some(history) and spread_of_batch(history)
    return Finding(
        check="no-signal",
        level=how,
        what=f"{because} in {share:.0%} of the logged steps (rewards there: {level:.3f}"
        + ("; they differ, within groups or between them" if mixed else "")
        + "): nothing was learnt from them",
        since=start,
        evidence=evidence,
        causes=likely(
            history,
            *(
                ("the reward is 0 for everything: look at completions first, then at what reads them",)
                if zero
                else (
                    *(
                        (NEVER, "all answers to a prompt earn the same, and the logged deviation is the batch's")
                        if mixed
                        else ()
                    ),
                    *(("the prompts are solved, or every answer is paid in full",) if full else ()),
                    ("the reward does not tell answers apart", _spread),
                    (NEVER, lambda run: mixed or _none(run)),
                    ("parts of the reward that cancel one another", lambda run: mixed or len(run.names("part/")) == 1),
                )
            ),
            "groups too small, or answers drawn at too low a temperature, for a reward of 0 and 1",
        ),
        fix="score a few completions by hand; pay parts of an answer; start from a model that sometimes succeeds",
    )


def _lost(history: History, share: float, start: int, evidence: Mapping[str, float], *, for_good: bool) -> Finding:
    """A gradient of 0 where rewards differ within groups: the fault lies between the loss and the weights."""
    equal, spread = finite(history["zero_std"].values), finite(history["reward_std"].values)
    shown = [f"{1 - equal.mean():.0%} of the groups"] if len(equal) and equal.mean() > 0 else []
    shown += [f"deviation {np.median(spread):.3g}"] if len(spread) else []
    rises = learns(history) and (share == 1 or not for_good)
    return Finding(
        check="no-signal",
        level="note" if rises else "fatal" if share >= MOST or for_good else "warning",
        what=f"the gradient is zero in {share:.0%} of the logged steps, and rewards differ within groups"
        + (f" ({', '.join(shown)})" if shown else "")
        + (
            "; the reward rises all the same: the norm that is logged is not that of what is trained"
            if rises
            else ": the gradient never reaches the weights"
        ),
        since=start,
        evidence=evidence,
        causes=("a norm that is read before gradients are summed, or after they are cleared",)
        if rises
        else likely(
            history,
            ("the learning rate is 0", lambda run: bool((run["rate"].values > 0).any())),
            "frozen weights, or an adapter that is not trainable",
            "a graph that is cut: detach, no_grad, or gradient checkpointing without gradients of the inputs",
            "gradients that are lost between processes (DeepSpeed, FSDP), or cleared before the step",
            ("all tokens are masked out of the loss", lambda run: bool((run["truncated"].values < MOST).any())),
        ),
        fix="after one backward pass count the parameters with requires_grad whose gradient is none or 0",
    )


def _none(history: History) -> bool:
    """Whether rewards are logged to be equal, or no gradient is."""
    known = len(history["zero_std"]) or len(history["reward_std"])
    return not len(history["gradient"]) or bool(known and not _some(history))


def _some(history: History) -> bool:
    """Whether a deviation of rewards is logged."""
    spread = finite(history["reward_std"].values)
    return len(spread) > 0 and float(np.median(spread)) > EQUAL


def _spread(history: History) -> bool:
    """Whether rewards do tell answers apart somewhere: of one group, or of different prompts."""
    return rewards_differ(history) or _some(history)


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
        mask = zeros(gradient, TINY)
        if mask.any():
            return gradient.steps, mask, GRADIENT
    if len(share) and (share.values >= 1).any():
        return share.steps, share.values >= 1, "all groups have equal rewards"
    if len(spread) and (mask := zeros(spread, EQUAL)).any():
        return spread.steps, mask, "all rewards are equal"
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
    unless=lambda history: (
        (silent := _silent(history)) is not None
        and silent[2] == GRADIENT
        and rewards_differ(history, silent[0][silent[1]])
    ),
    stops=_stops,
)
