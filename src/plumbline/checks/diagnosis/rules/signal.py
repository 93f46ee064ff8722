"""Whether groups say anything: equal rewards, noise, prompts that teach nothing."""

import re
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from plumbline.checks.check import Finding, Level
from plumbline.checks.diagnosis.facts import (
    EQUAL,
    LONG,
    MOST,
    equal_groups,
    group_samples,
    has_rising_trend,
    is_batch_spread,
    is_every_step,
    is_sustained,
    max_reward,
    quote_sample,
    recent_median,
    reward_rises,
    rewards_differ,
    rewards_of_groups,
    shorten_prompts,
    step_distance,
    unrefuted_causes,
    zero_mask,
)
from plumbline.checks.diagnosis.history import History, Sample, Series
from plumbline.checks.diagnosis.rule import rule
from plumbline.checks.diagnosis.trends import (
    end_means,
    end_medians,
    longest_stretch,
    max_magnitude,
    measure_shift,
    median,
    start_of_last_stretch,
    tenth_of,
)
from plumbline.records import FloatArray, group_by_key

TINY = 1e-10
"""A gradient or a spread below is none: float32 leaves about 1e-7 of equal rewards times their
weights."""
NO_SIGNAL_TOP = 0.95
"""Of the most that can be earned, from which on prompts are solved."""
NO_SIGNAL_MOST = 0.9
"""Share of the steps from which the whole run is without a signal. One group a step is often all
right or all wrong (59 % of the steps of one GRPO run of 2,400, where the rest still taught
something)."""
ROSE = 0.05
"""Of the highest reward that was logged: what rose by less did not rise."""
RISEN = 0.5
"""Share of the way from the first tenth of the run to the best step, which a run that learns has
gone."""
CHANCE = 1e-3
"""A silent end is none if so many in a row would be met by chance, as often as steps were silent
before it."""
NO_SIGNAL_SOLVED = 0.999
"""Of our own rewards, whose scale is known, a value above is everything from the start."""
GRADIENT, GROUPS, REWARDS, STILL = "gradient", "groups", "rewards", "still"
"""What says that steps are silent: the gradient is zero, the groups or all rewards are equal, or the
reward is one number."""
PRINTED, PRINTED_ZERO = 1e-3, 0.05
"""What printing may have changed a reward by that never varies; one that is 0 is printed as 0.0 by
most."""
PATIENCE = 10
"""Logged steps in a row, from which a run that goes on is stopped, where its recipe names no other
number."""


def _silent_steps(history: History) -> tuple[np.ndarray, np.ndarray, str] | None:
    """Steps, whether each was silent, and what says so: the gradient where it is logged, because
    nothing else is sure.

    TRL's frac_reward_zero_std is 0 for equal rewards whose float32 spread is 1e-7, and describes
    the batch and not its groups under scale_rewards="batch"; a gradient of zero is one. Where a row
    stands for several steps, its rewards are their means, and its gradient is that of the last
    alone: zeros in some rows are chance, and those in all may be.
    """
    gradient, spread, share = (
        history["grad_norm"],
        history["reward_std"],
        history["frac_reward_zero_std"],
    )
    reward = history["reward"]
    if len(gradient):
        mask = zero_mask(gradient, TINY)
        equal = share.values[np.isin(share.steps, gradient.steps)]
        chance = (
            len(equal) > 0 and float(np.prod(equal)) > CHANCE
        )  # of groups that are equal at the last of these steps
        if mask.any() and (
            is_every_step(gradient) or (len(mask) >= LONG and mask.all() and not chance)
        ):
            return gradient.steps, mask, GRADIENT
    if len(share) and (share.values >= 1).any():
        return share.steps, share.values >= 1, GROUPS
    if len(spread) and (mask := zero_mask(spread, EQUAL)).any():
        return spread.steps, mask, REWARDS
    unsaid = not (spread.values > 0).any() and not rewards_differ(history)
    printed = PRINTED_ZERO if not reward.values.any() else PRINTED
    covered = len(reward) > 0 and int(np.ptp(reward.steps)) + 1 >= PATIENCE
    if unsaid and covered and reward.rounding <= printed and np.ptp(reward.values) <= EQUAL:
        return reward.steps, np.ones(len(reward), dtype=np.bool_), STILL
    return None


def _should_stop(history: History, since: int) -> bool:  # noqa: ARG001 - the steps say since when
    """Where the last stretch is long, and long beside what there was before: few prompts a step are
    often silent."""
    silent = _silent_steps(history)
    if silent is None:
        return False
    steps, mask, _ = silent
    length, often = _silent_end(mask)
    covered = length * step_distance(steps) if mask.all() else length
    return covered >= (history.settings.get("rl.patience") or PATIENCE) and often**length < CHANCE


@rule("no-signal", "grad_norm|frac_reward_zero_std|reward_std|reward", stops=_should_stop)
def find_no_signal(history: History) -> Iterator[Finding]:
    """Steps that teach nothing: every group's rewards are equal, or the gradient is zero though
    they differ.

    One finding: the longest or the last stretch without a signal, named by what it earned there.
    """
    silent = _silent_steps(history)
    if silent is None:
        return
    steps, mask, because = silent
    share, longest = float(mask.mean()), longest_stretch(mask)
    begins = start_of_last_stretch(steps, mask)
    for_good = begins is not None and not _is_chance(mask)
    if not is_sustained(steps, longest) or (share < 0.5 and not for_good):
        return
    begins = begins if for_good else None
    start = begins if begins is not None else int(steps[mask][0])
    evidence = {"sign": because, "share of steps": round(share, 3), "longest stretch": longest}
    if because == GRADIENT and rewards_differ(history, steps[mask]):
        yield _lost_gradient_finding(history, share, start, evidence, for_good=for_good)
        return
    reward = history["reward"]
    there = reward.since(start).finite_values
    level = median(there) if len(there) else float("nan")
    values = reward.finite_values
    best = float(values.max()) if len(values) else float("nan")
    earned = float(values[: max(1, len(values) // 10)].mean()) if len(values) else float("nan")
    evidence |= {"reward there": round(level, 4)}
    # Rewards that rose to where they now stand, at the top of all that was seen: the task is
    # solved, not broken.
    solved = (
        len(there) > 0
        and level >= best - EQUAL
        and level > earned + ROSE * abs(best)
        and share < NO_SIGNAL_MOST
    )
    solved = solved or (history.origin == "plumbline" and level > NO_SIGNAL_SOLVED)
    late = float(values[-len(values) // 3 :].mean()) if len(values) else float("nan")
    if (
        not for_good
        and share < NO_SIGNAL_MOST
        and late > earned + max(ROSE * abs(best), RISEN * (best - earned))
    ):
        yield Finding(
            "note",
            "rises",
            since=start,
            evidence=evidence | {"last third": round(late, 4)},
            causes=("few-groups",),
        )
        return
    if solved:
        highest = max_reward(history)
        known = highest is not None and level > NO_SIGNAL_TOP * highest
        yield Finding(
            "note" if known or (highest is None and level > NO_SIGNAL_TOP) else "warning",
            "solved" if known else "at-its-top",
            since=start,
            evidence=evidence,
            causes=("solved",) if known else ("all-the-same", "solved"),
        )
        return
    fatal = share >= NO_SIGNAL_MOST or for_good
    yield _equal_rewards_finding(history, start, evidence, "fatal" if fatal else "warning")


def _equal_rewards_finding(
    history: History, start: int, evidence: dict[str, Any], how: Level
) -> Finding:
    """Rewards that are equal, as far as the series say."""
    level = evidence["reward there"]
    zero, highest = abs(level) < EQUAL, max_reward(history)
    full = highest is not None and level > NO_SIGNAL_TOP * highest
    mixed = evidence["sign"] == GRADIENT and _has_spread(history) and is_batch_spread(history)
    rewards, shares = (
        history["reward"].since(start).finite_values,
        history["frac_reward_zero_std"].since(start).finite_values,
    )
    varies = len(rewards) > 0 and float(np.ptp(rewards)) > EQUAL
    stored = [one for one in history.samples if one.step >= start]
    known = equal_groups(stored)
    apart = known is not None and _texts_differ(stored)
    found = [shares] if known is None else [shares, known.values]
    equal = any(len(one) > 0 and float(one.mean()) >= MOST for one in found)
    cancel = not varies and _parts_move(history)
    if cancel:
        causes: tuple[str | tuple[str, bool], ...] = ("parts-cancel",)
    elif zero:
        causes = ("too-hard",) if varies else ("always-zero",)
    else:
        causes = (
            *(("by-prompt",) if _pays_prompts(history.samples) else ()),
            *(("paid-in-full",) if full else ()),
            (
                "not-trained",
                equal or not (mixed or (varies and not _has_no_spread(history))),
            ),
            ("alike-in-batch" if mixed else "alike", full or not varies or apart),
            (
                "tells-nothing-apart",
                not apart and (varies or rewards_differ(history) or _has_spread(history)),
            ),
            ("not-trained", equal or mixed or varies or _has_no_spread(history)),
        )
    return Finding(
        how,
        "zero-rewards" if zero else "equal-rewards",
        since=start,
        evidence=evidence
        | {"mixed": mixed, "example": quote_sample(_samples_earning(history, start, level))},
        causes=unrefuted_causes(*causes, "small-groups"),
    )


def _texts_differ(samples: Sequence[Sample]) -> bool:
    """Whether most groups have different texts."""
    groups = [{one.text for one in group} for group in group_samples(samples).values()]
    return 2 * sum(len(texts) > 1 for texts in groups) > len(groups)


PAID_PROMPTS = 8
"""Prompts whose answers differ, from which it is no chance that each has one reward."""


def _pays_prompts(samples: Sequence[Sample]) -> bool:
    """Whether the prompt alone says what is earned: all answers to one, however they differ, earn
    the same at all steps, and answers to others something else."""
    prompts = group_by_key((one.prompt, one) for one in samples)
    rewards = [
        {one.reward for one in drawn}
        for drawn in prompts.values()
        if len({one.text for one in drawn}) > 1 < len({one.step for one in drawn})
    ]
    single = {paid for one in rewards if len(one) == 1 for paid in one}
    return (
        len(rewards) >= PAID_PROMPTS and len(single) > 1 and all(len(one) == 1 for one in rewards)
    )


def _parts_move(history: History) -> bool:
    """Whether several parts of the reward are not the same in all steps."""
    parts = [part.finite_values for part in history.parts.values()]
    return sum(len(values) > 0 and bool(np.ptp(values) > EQUAL) for values in parts) > 1


def _samples_earning(history: History, start: int, level: float) -> list[Sample]:
    """The answers that earned this."""
    known = [(one, one.reward) for one in history.samples[::-1] if one.step >= start]
    return [one for one, reward in known if reward is not None and abs(reward - level) < EQUAL]


def _lost_gradient_finding(
    history: History, share: float, start: int, evidence: dict[str, Any], *, for_good: bool
) -> Finding:
    """A gradient of 0 where rewards differ within groups: the fault lies between the loss and the
    weights."""
    equal, spread = (
        history["frac_reward_zero_std"].finite_values,
        history["reward_std"].finite_values,
    )
    evidence = evidence | {
        "share with a spread": round(1 - float(equal.mean()), 3)
        if len(equal) and equal.mean() > 0
        else None,
        "deviation": median(spread) if len(spread) else None,
    }
    if has_rising_trend(history) and (share == 1 or not for_good):
        return Finding("note", "other-gradient", start, evidence, causes=("norm-misread",))
    return Finding(
        "fatal" if share >= NO_SIGNAL_MOST or for_good else "warning",
        "gradient-lost",
        since=start,
        evidence=evidence,
        causes=unrefuted_causes(
            ("rate-zero", bool((history["learning_rate"].values > 0).any())),
            "frozen",
            "graph-cut",
            "lost-between-processes",
            (
                "all-masked",
                bool((history["frac_truncated"].values < NO_SIGNAL_MOST).any()),
            ),
        ),
    )


def _has_no_spread(history: History) -> bool:
    """Whether rewards are logged to be equal, or no gradient is."""
    known = len(history["frac_reward_zero_std"]) or len(history["reward_std"])
    return not len(history["grad_norm"]) or bool(known and not _has_spread(history))


def _has_spread(history: History) -> bool:
    """Whether a deviation of rewards is logged."""
    spread = history["reward_std"].finite_values
    return len(spread) > 0 and median(spread) > EQUAL


def _is_chance(mask: np.ndarray) -> bool:
    """Whether the silent stretch at the end is no longer than what the share of silent steps before
    it gives."""
    length, often = _silent_end(mask)
    return length < LONG or often**length * len(mask) > CHANCE


def _silent_end(mask: np.ndarray) -> tuple[int, float]:
    """Silent steps at the end, and the share of silent ones before those."""
    length = int(np.argmin(mask[::-1])) if not mask.all() else len(mask)
    before = mask[: len(mask) - length]
    return length, float(before.mean()) if len(before) else 0.0


ZERO_VARIANCE_GROUPS_MOST = 0.5
"""One team's log's limit: sustained above it, a run is to be stopped."""
ZERO_VARIANCE_GROUPS_TOP, LOW = 0.9, 0.1
"""Of the most that can be earned: equal groups that earn more are solved, and too hard where they
earn less."""
WINDOW = 10
TAUGHT, ALWAYS = 0.75, 0.9
"""A share of equal groups that pairs have while a reward of 0 and 1
rises, and one at first and at last that leaves nothing to learn."""


@rule("zero-variance-groups", "frac_reward_zero_std|samples|reward_std")
def find_zero_variance_groups(history: History) -> Iterator[Finding]:
    """Groups whose rewards are all equal teach nothing: most of the rollouts may be paid for and
    thrown away.

    Of the last window of steps; `no-signal` speaks of those that had no group with a signal at all.
    Where no share is logged, rewards whose deviation is gone.
    """
    shares = equal_groups(history.samples)
    if shares is None or (shares.values >= 1).all():  # few of the steps may be stored
        shares = history["frac_reward_zero_std"]
    if not len(shares):
        yield from _find_saturation(history)
    window = WINDOW if len(shares) < 4 * WINDOW else 2 * WINDOW
    last = shares.last(window).values
    if len(last) < window or not ZERO_VARIANCE_GROUPS_MOST < np.mean(last) < 1:
        return
    share, earned = float(np.mean(last)), history["reward"].last(WINDOW).finite_values
    level = float(earned.mean()) if len(earned) else float("nan")
    highest = max_reward(history)
    code, causes = _locate_groups(history, share, level, highest)
    solved = code == "solved" or "solved-if-1" in causes
    at_first = float(shares.values[:window].mean())
    lost = float(np.nansum(shares.values))
    always = min(share, at_first) > ALWAYS or lost > max(LOST, LOST_SHARE * len(shares))
    pairs = at_first > PAIRS
    taught = pairs and share < TAUGHT and code != "too-hard" and reward_rises(history)
    yield Finding(
        "note" if taught or (solved and not always) else "warning",
        code,
        since=shares.last(window).steps[0],
        evidence={
            "steps": window,
            "share": round(share, 3),
            "reward": round(level, 4),
            "highest": highest,
            "lost": round(lost),
            "of": len(shares),
        },
        causes=causes,
    )


LOST, LOST_SHARE = 150, 0.4
"""Steps' worth of groups that taught nothing, and their share of the run: who solved his prompts
should have stopped."""
PAIRS = 0.4
"""Share of equal groups that pairs of a reward of 0 and 1 have at least, and larger groups do not
at first."""
SATURATED, SATURATED_FOR, MOSTLY, DRIFT = 0.05, 1 / 3, 0.8, 0.5
"""Share of its first third's level, below which a deviation is gone; share of the run that it must
be, and of the steps since then; nats of KL."""


def _find_saturation(history: History) -> Iterator[Finding]:
    """Rewards that hardly differ any more, near their highest; a warning where the policy drifts on
    all the same."""
    spread, reward, kl = history["reward_std"], history["reward"], history["kl"]
    if len(spread) < 2 * WINDOW or not np.isfinite(spread.values).all():
        return
    first = median(spread.values[: len(spread) // 3])
    gone = spread.values < SATURATED * first
    late = np.cumsum(gone[::-1])[::-1] / np.arange(len(gone), 0, -1)
    place = int(np.argmax(gone & (late >= MOSTLY)))
    if not gone[place] or len(gone) - place < SATURATED_FOR * len(gone):
        return
    start = int(spread.steps[place])
    after = reward.since(start).finite_values
    if not len(after) or median(after) < NO_SIGNAL_TOP * max_magnitude(reward.finite_values):
        return
    moved = kl.since(start).finite_values
    drifts = len(moved) > 0 and moved[-1] > DRIFT and moved[-1] > 2 * moved[0]
    yield Finding(
        "warning" if drifts else "note",
        "saturated",
        since=start,
        evidence={
            "share": round(len(after) / len(spread), 3),
            "steps": len(after),
            "of": len(spread),
            "reward": round(median(after), 4),
            "deviation at first": first,
            "deviation": median(spread.since(start).values),
            "drifts": drifts,
            "kl at first": moved[0] if drifts else None,
            "kl": moved[-1] if drifts else None,
        },
        causes=("solved", "cheat"),
    )


def _locate_groups(
    history: History, share: float, level: float, highest: float | None
) -> tuple[str, tuple[str, ...]]:
    """Where groups of equal rewards stand, as far as completions, parts or the scale of the reward
    tell it: what was found, and its causes."""
    few, stands = "few-values", _locate_stored_groups(history.samples)
    parts = list(map(recent_median, history.parts.values()))
    if stands is None and len(parts) > 1 and 0 <= min(parts) <= max(parts) <= 1:
        ends = {one < LOW for one in parts if one < LOW or one > ZERO_VARIANCE_GROUPS_TOP}
        whole = all(one < LOW or one > ZERO_VARIANCE_GROUPS_TOP for one in parts)
        stands = ("too-hard" if True in ends else "solved") if whole else None
    if stands == "solved" or (highest is not None and _is_near_top(level / highest, share)):
        return "solved", ("drawn-again",)
    if stands == "too-hard" or (
        not (history["reward"].values < 0).any() and level < LOW * (highest or 1.0)
    ):
        return "too-hard", ("hard", few)
    if highest is not None or stands == "between":
        return "between", ("hard-and-solved", few)
    return "unknown-scale", ("solved-if-1" if _is_near_top(level, share) else "hard-or-solved", few)


ONE_SIDE = 0.8


def _locate_stored_groups(samples: Sequence[Sample]) -> str | None:
    """At which end of all stored rewards those of recent groups of equal rewards lie; None where
    none are stored."""
    known = [rewards for *_, rewards in sorted(rewards_of_groups(samples), key=itemgetter(0))]
    levels = [group[0] for group in known[-len(known) // 3 :] if max(group) - min(group) < EQUAL]
    lowest = min((min(group) for group in known), default=0.0)
    top = max((max(group) for group in known), default=0.0)
    if len(levels) < ENOUGH or top - lowest < EQUAL:
        return None
    right, wrong = (sum(abs(one - end) < EQUAL for one in levels) for end in (top, lowest))
    most = ONE_SIDE * len(levels)
    return "solved" if right > most else "too-hard" if wrong > most else "between"


def _is_near_top(level: float, share: float) -> bool:
    """Whether groups of equal rewards earn nearly all, if the others earn a half."""
    return level <= 1 and level - (1 - share) / 2 > ZERO_VARIANCE_GROUPS_TOP * share


ADVANTAGE_GONE = 0.1
"""Of what its deviation was at first, and at most."""


@rule("advantages", "advantage_std", "reward_std")
def find_no_advantages(history: History) -> Iterator[Finding]:
    """Advantages that are nearly 0 though rewards differ within groups: what divides them, or a
    mask, takes the signal.

    The first tenth of the steps against the last.
    """
    steps, values = history["advantage_std"].finite
    tenth = tenth_of(values)
    spread = history["reward_std"].finite_values
    if min(len(values), len(spread)) < 2 * WINDOW:
        return
    first, last = end_medians(values, tenth)
    before, now = end_medians(spread, tenth)
    if last < ADVANTAGE_GONE * min(1.0, first) and now > before / 2:
        yield Finding(
            "warning",
            since=steps[np.argmax(values < first / 2)],
            evidence={"first": first, "last": last, "deviation": now},
            causes=("divided", "masked"),
        )


GAINED, STANDS, HALF = 0.3, 0.05, 0.5
"""Of a part's range from 0 to 1: what one gained, what another gained at most meanwhile, and the
level under which that had room to rise."""
FORM = re.compile("(?<!per)form|xml|tag|style|length|brev|json|think|fluen|repet")
RIGHT = re.compile("corr|acc(?!ept)|answer|exact|right|solv|match|success|math|result")


@rule("part-alone", "reward/", live=False)
def find_part_alone(history: History) -> Iterator[Finding]:
    """A part of the reward that pays for form rises, and the part that says what is right stands.

    Over the whole run or its second half, by the parts' names, which lie between 0 and 1.
    """
    parts = {
        name: (steps, values)
        for name, (steps, values) in ((name, part.finite) for name, part in history.parts.items())
        if len(values) >= 4 * WINDOW and values.min() > -STANDS and values.max() < 1 + STANDS
    }
    right = [name for name in parts if RIGHT.search(name) and not FORM.search(name)]
    for name in right:
        steps, values = parts[name]
        for start in (0, len(values) // 2):
            there, third = values[start:], (len(values) - start) // 3
            if there[-third:].mean() > HALF:
                continue
            change = measure_shift(there, third, third).interval
            if not -STANDS < change.mean < change.high < STANDS:
                continue  # of one that falls parts-oppose speaks
            for form in (one for one in parts if FORM.search(one)):
                paid = parts[form][1][parts[form][0] >= steps[start]]
                tenth = max(3, len(paid) // 20)
                first, last = end_means(paid, tenth)
                if last - first > GAINED:
                    yield Finding(
                        "warning",
                        about=form,
                        since=steps[start],
                        evidence={
                            "first": first,
                            "last": last,
                            "right": name,
                            "right first": there[:third].mean(),
                            "right last": there[-third:].mean(),
                        },
                        causes=("cheaper", "too-hard"),
                    )
                    return


LOOK = 20
"""Steps between looks at whether they go anywhere."""
DIRECTION = 1.0
"""The t-value from which on there is a sign of a direction."""


@rule("mostly-noise", "reward", "grad_signal", "grad_noise")
def find_mostly_noise(history: History) -> Iterator[Finding]:
    """Neither gradients nor rewards point anywhere: AdamW's steps are then a random walk, and
    unlearn what SFT taught.

    Where at two looks in a row neither the gradients nor the rewards so far point anywhere.

    Two t-values are looked at: of the mean of the gradient's signal, whose estimate is unbiased and
    falls around 0 where there is none, and of the slope of a straight line through the steps' mean
    rewards (prompts differ from step to step, so single values say nothing). With true advantages
    one of them rises above `DIRECTION` as evidence gathers, though not always within `LOOK` steps;
    dealt at random, neither does in seven of ten looks (0.84 squared). AdamW moves every weight by
    about the rate whatever the gradient's size.
    """
    names = ("reward", "grad_signal", "grad_noise")
    columns = [
        dict(zip(history[name].steps.tolist(), history[name].values, strict=True)) for name in names
    ]
    steps = sorted(set(columns[0]) & set(columns[1]) & set(columns[2]))
    table = np.array([[column[step] for step in steps] for column in columns])
    end = table.shape[-1] // LOOK * LOOK
    if end < 2 * LOOK or not np.isfinite(table).all():
        return
    (_, _), (signal, slope) = found = [_directions(table[:2, :at]) for at in (end - LOOK, end)]
    if max(max(pair) for pair in found) >= DIRECTION:
        return
    ratio = float(table[1, :end].sum() / table[2, :end].sum()) if table[2, :end].sum() > 0 else 0.0
    rate = history["learning_rate"].values
    yield Finding(
        "warning",
        since=steps[0],
        evidence={
            "steps": end,
            "signal t": signal,
            "reward t": slope,
            "signal / noise": ratio,
            "rate": rate[-1] if len(rate) else None,
        },
        causes=unrefuted_causes(
            ("control", not history.settings.get("controls.shuffle_advantages")),
            "few-answers",
            "long-sft",
            "high-rate",
        ),
    )


def _directions(table: FloatArray) -> tuple[float, float]:
    """The t of the mean of the signal, and of the slope of the rewards, of [reward, signal] by
    steps [2, n]."""
    spread = float(table[1].std(ddof=1))
    return float(
        table[1].mean() / (spread / table.shape[1] ** 0.5)
    ) if spread > 0 else 0.0, slope_t(table[0])


def slope_t(values: FloatArray) -> float:
    """Student's t of the least-squares slope of values over their places (any textbook of
    regression)."""
    array = values - np.mean(values)
    place = np.arange(len(array)) - (len(array) - 1) / 2
    slope = place @ array / (place @ place)
    left = array - slope * place
    error = (left @ left / (len(array) - 2) / (place @ place)) ** 0.5
    if error < 1e-12:
        return float(np.sign(slope)) * np.inf if abs(slope) > 1e-12 else 0.0
    return float(slope / error)


STUCK_PROMPTS_MOST = 0.5
VISITS = 3
ENOUGH = 10
STUCK_PROMPTS_EQUAL = 1e-6


@rule("stuck-prompts", "samples", live=False)
def find_stuck_prompts(history: History) -> Iterator[Finding]:
    """Prompts that never taught anything: at every visit all of their answers earned the same.

    Of the prompts that were visited three times or more. It costs rollouts and breaks nothing: a
    note.
    """
    groups = rewards_of_groups(history.samples)
    visits = group_by_key((prompt, rewards) for _, prompt, rewards in groups)
    often = {prompt: groups for prompt, groups in visits.items() if len(groups) >= VISITS}
    stuck = {
        prompt: groups[-1][0]
        for prompt, groups in often.items()
        if all(max(rewards) - min(rewards) < STUCK_PROMPTS_EQUAL for rewards in groups)
    }
    if len(often) < ENOUGH or len(stuck) < STUCK_PROMPTS_MOST * len(often):
        return
    low = [prompt for prompt, reward in stuck.items() if reward < STUCK_PROMPTS_EQUAL]
    yield Finding(
        "note",
        evidence={"prompts": len(often), "without a spread": len(stuck), "at 0": len(low)},
        samples=shorten_prompts(list(stuck)),
        causes=("too-hard",) if 2 * len(low) > len(stuck) else ("solved",),
    )


SURE = 6.0
"""Standard deviations of the steps around, that 0 lies below them: with a chance of 10^-9 of a
normal distribution, and small batches of rewards of 0 and 1 never come to more than 4."""
LEAST = 0.02
"""Of the highest value, that this standard deviation is taken to be at least."""
AROUND = 20
"""Steps to compare with."""
RARE = 0.2
"""Share of the steps; what fails more often is no outage, and other checks see it."""


@rule("outage", "reward")
def find_outage(history: History) -> Iterator[Finding]:
    """Steps in which everything earned exactly 0, between steps in which it did not: what judges
    was away.

    The reward and its parts; a stretch of zeros to the end is none (it may be a collapse).
    """
    for name in history.reward_names:
        away = _outage_steps(
            history[name],
            history["reward_std" if name == "reward" else name.replace("reward/", "reward_std/")],
        )
        if not len(away):
            continue
        yield Finding(
            "warning",
            since=away[0],
            evidence={
                "part": name.partition("/")[2],
                "steps": len(away),
                "first": away[:5].tolist(),
                "more": len(away) > 5,
            },
            causes=("judge-away",),
        )
        return


def _outage_steps(series: Series, spread: Series) -> np.ndarray:
    """The steps. A mean of 0 is one of zeros if nothing is below 0, and where a spread was logged
    there is none."""
    steps, values = series.finite
    mixed = set(spread.steps[spread.values > 1e-6].tolist())
    zero = np.array(
        [at for at in np.flatnonzero(np.abs(values) < 1e-12) if int(steps[at]) not in mixed],
        dtype=np.int64,
    )
    if (values < 0).any() and not len(spread):
        return zero[:0]
    if (
        len(values) < AROUND
        or not len(zero)
        or len(zero) > RARE * len(values)
        or zero[-1] == len(values) - 1
    ):
        return np.array([], dtype=np.int64)
    found, least = [], LEAST * max_magnitude(values)
    for at in zero:
        near = values[max(0, at - AROUND // 2) : at + AROUND // 2 + 1]
        near = near[np.abs(near) > 1e-12]
        if len(near) < AROUND // 2:
            continue
        middle = median(near)
        if middle > SURE * max(float(np.std(near, ddof=1)), least):
            found.append(steps[at])
    return np.array(found, dtype=np.int64)
