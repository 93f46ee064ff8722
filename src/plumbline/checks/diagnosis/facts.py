"""What the series of a run show for sure: it refutes causes, and gives rewards of other trainers a
scale."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from plumbline.checks.diagnosis.history import EMPTY, History, Sample, Series
from plumbline.checks.diagnosis.outcome import measure_outcome
from plumbline.checks.diagnosis.trends import (
    compare_ends,
    end_medians,
    finite_values,
    fit_trend,
    is_moving,
    max_magnitude,
    measure_shift,
    median,
)
from plumbline.records import BoolArray, FloatArray, IntArray, group_by_key

EQUAL = 1e-6
"""Rewards that differ by less are equal: float32 leaves about 1e-7 between sums."""
AGREE, AGREE_KL = 0.05, 0.01
"""Nats a token, below which sampler and scorer are one distribution: two engines in 16 bits differ
by .01 to .05, and their KL is about half the square of what single tokens differ by."""
FINE = 1e-4
"""A printed 0 is one where printing changed a value by less: norms and deviations are far above."""
WINDOW = 10
LONG, LONG_STEPS = 5, 20
"""See `is_sustained`."""
MOST = 0.99
"""Share of equal groups, up to which there are others."""


def unrefuted_causes(*causes: str | tuple[str, bool]) -> tuple[str, ...]:
    """Those causes that no logged series refutes, in their order; beside a cause stands whether one
    does."""
    pairs = [(cause, False) if isinstance(cause, str) else cause for cause in causes]
    return tuple(cause for cause, refuted in pairs if not refuted)


def is_every_step(series: Series) -> bool:
    """Whether neighbouring rows are of neighbouring steps; else a row may stand for several, as
    with logging_steps."""
    return series.counted and step_distance(series.steps) <= 1


def step_distance(steps: IntArray) -> int:
    """How many steps are between neighbouring rows."""
    return int(median(np.diff(steps))) if len(steps) > 1 else 1


def is_sustained(steps: IntArray, rows: int) -> bool:
    """Whether so many rows in a row are many: five, or fewer that stand for twenty steps
    together."""
    return rows >= LONG or rows * step_distance(steps) >= LONG_STEPS


def has_enough_rows(series: Series, count: int) -> bool:
    """Whether it has so many rows; a quarter of them will do where each is the mean of several
    steps."""
    return len(series.finite_values) >= (count if is_every_step(series) else count // 4)


def recent_median(series: Series) -> float:
    """The median of its last steps; NaN for none."""
    values = series.last(WINDOW).finite_values
    return median(values) if len(values) else float("nan")


def sampler_matches(history: History) -> bool:
    """Whether a logged difference between sampler and scorer is small: no other weights,
    temperature or template."""
    gap, kl = history["logprob_gap"], history["mismatch_kl"]
    if len(gap):
        return recent_median(gap) < AGREE
    return len(kl) > 0 and abs(recent_median(kl)) < AGREE_KL


def rewards_differ(history: History, steps: IntArray | None = None) -> bool:
    """Whether rewards are known to differ within groups (at some steps): by completions, shares,
    deviations.

    TRL's share of equal groups is 0, and its deviation that of the batch, where rewards are scaled
    by the batch.
    """

    def logged(series: Series) -> FloatArray:
        return finite_values(
            series.values if steps is None else series.values[np.isin(series.steps, steps)]
        )

    shares = equal_groups(history.samples)
    if shares is not None and len(known := logged(shares)):
        return float(np.mean(known)) < 1
    share, spread = logged(history["frac_reward_zero_std"]), logged(history["reward_std"])
    if len(share) and np.mean(share) > 0:
        return float(np.mean(share)) < MOST
    return len(spread) > 0 and median(spread) > EQUAL and not is_batch_spread(history)


def is_batch_spread(history: History) -> bool:
    """Whether the logged deviation may be that of the batch: it is above 0 where all groups are
    equal, or equals that of the only part, over all completions."""
    shares, logged = history["frac_reward_zero_std"], history["reward_std"]
    names, spread = history.names("reward_std/"), logged.values
    if (spread[np.isin(logged.steps, shares.steps[shares.values >= 1])] > EQUAL).any():
        return True
    if len(names) != 1 or len(own := history[f"reward_std/{names[0]}"].values) != len(spread):
        return not names and bool((shares.values == 0).all())
    good = np.isfinite(own) & np.isfinite(spread)
    off, size = np.abs(own[good] - spread[good]), np.abs(spread[good])
    return len(off) > 0 and median(off) < 0.01 * median(size)


def equal_groups(samples: Sequence[Sample]) -> Series | None:
    """The share of groups with equal rewards by step, as the completions say; None where groups are
    unknown."""
    by_step = group_by_key(
        (step, max(rewards) - min(rewards) < EQUAL)
        for step, _, rewards in rewards_of_groups(samples)
    )
    return Series.of_means(by_step) if by_step else None


NO_GRADIENT = 1e-10
LEAST_LOST = 1 / 60
"""Hours that are worth a word."""
ENDS = 2
"""Steps at a rate of 0 that a warmup or a decay ends in."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What of the steps, and of the time, taught something: RL learns from groups whose rewards
    differ."""

    steps: int
    taught: float
    """Share of the logged steps with a gradient; of the groups, where a row is of several steps."""
    every: bool
    """Whether rows are of single steps."""
    hours: float | None
    """What the logged steps took; None where no times are logged."""
    lost: float | None
    """Hours for groups without a gradient."""

    @property
    def summary(self) -> str:
        """For the line that says what came of a stage."""
        share = (
            f"{round(self.taught * self.steps)} of {self.steps} steps had a gradient"
            if self.every
            else f"{self.taught:.0%} of the groups had a gradient"
        )
        if not self.hours or not self.lost or self.lost < LEAST_LOST:
            return share
        unit, size = ("hours", 1.0) if self.hours >= 1 else ("minutes", 60.0)
        return f"{share}; {self.lost * size:.1f} of {self.hours * size:.1f} {unit} went to groups that taught nothing"


def measure_spent(history: History) -> Spent | None:
    """The share of the steps that carried a gradient and the hours of those that did not; None where
    nothing says it.

    A group without one has equal rewards, by the stored completions, the logged share, or the
    spread within groups. A step has none where its gradient is 0 or no number, or its learning rate
    is 0.
    """
    if history.kind != "rl":
        return None
    idle: dict[int, float] = {}
    spread, gradient = history["reward_std"], history["grad_norm"]
    # a mean over several steps hides those of them that are 0
    known = Series(spread.steps, (np.abs(spread.values) < EQUAL).astype(float))
    for shares in (
        known if is_every_step(spread) else EMPTY,
        history["frac_reward_zero_std"],
        equal_groups(history.samples) or EMPTY,
    ):
        steps, values = shares.finite
        idle |= dict(zip(steps.tolist(), np.clip(values, 0, 1).tolist(), strict=True))
    rate = history["learning_rate"]
    none = gradient.steps[~np.isfinite(gradient.values) | zero_mask(gradient, NO_GRADIENT)]
    if is_every_step(gradient):
        idle = (
            dict.fromkeys(gradient.steps.tolist(), 0.0) | idle | dict.fromkeys(none.tolist(), 1.0)
        )
    still = rate.steps[rate.values == 0]
    if len(still) > ENDS:
        idle |= dict.fromkeys(set(still.tolist()) & set(idle), 1.0)
    if not idle:
        return None
    steps, shares_ = np.array(sorted(idle)), np.array([idle[step] for step in sorted(idle)])
    every = step_distance(steps) <= 1
    hours, lost = None, None
    seconds = history["step_time"]
    if len(seconds.finite_values):
        times = np.interp(steps, *seconds.finite) * step_distance(steps)
        hours, lost = float(times.sum()) / 3600, float(times @ shares_) / 3600
    elif isinstance(total := history.settings.get("seconds"), int | float) and total > 0:
        hours, lost = total / 3600, total / 3600 * float(shares_.mean())
    taught = float((shares_ < 1).mean() if every else 1 - shares_.mean())
    return Spent(len(steps), taught, every, hours, lost)


def group_samples(samples: Iterable[Sample]) -> dict[tuple[int, str], list[Sample]]:
    """The completions of each prompt at each step."""
    return group_by_key(((one.step, one.prompt), one) for one in samples)


def rewards_of_groups(samples: Iterable[Sample]) -> Iterator[tuple[int, str, list[float]]]:
    """The step, the prompt and the rewards of each group of a known prompt that has two at least."""
    for (step, prompt), group in group_samples(samples).items():
        rewards = [one.reward for one in group if one.reward is not None]
        if prompt and len(rewards) > 1:
            yield step, prompt, rewards


def samples_by_step(samples: Iterable[Sample]) -> dict[int, list[Sample]]:
    """The completions of each step."""
    return group_by_key((one.step, one) for one in samples)


def correlate_with_reward(
    samples: Iterable[Sample], value: Callable[[Sample], float]
) -> tuple[float, float]:
    """Within groups: the correlation of a value of the text and the reward, and the reward of one
    more of it; 0 where one of them does not vary."""
    known = [one for one in samples if np.isfinite(np.nan if one.reward is None else one.reward)]
    groups = [
        [(value(one), one.reward or 0.0) for one in group]
        for group in group_samples(known).values()
    ]
    pairs = [np.array(pair) - np.mean(pair, axis=0) for pair in groups if len(pair) > 1]
    if not pairs:
        return 0.0, 0.0
    values, rewards = np.concatenate(pairs).T
    both, own, paid = float(values @ rewards), float(values @ values), float(rewards @ rewards)
    return (both / (own * paid) ** 0.5, both / own) if own * paid > EQUAL**2 else (0.0, 0.0)


def count_characters(one: Sample) -> float:
    """Of its text."""
    return float(len(one.text))


def shorten_prompts(prompts: Sequence[str]) -> tuple[str, ...]:
    """The first three, for people."""
    return tuple(dict.fromkeys(prompt[:80] for prompt in prompts[:3]))


def list_prompts(samples: Sequence[Sample]) -> tuple[str, ...]:
    """Of the first three, for people."""
    return shorten_prompts([one.prompt for one in samples])


def has_rising_trend(history: History) -> bool:
    """Whether the reward rises for sure, which nothing but trained weights explains."""
    reward = fit_trend(history["reward"].values)
    return reward.t > 5 and reward.last - reward.first > 0.05 * max(
        abs(reward.first), abs(reward.last)
    )


RISES = 3.0
"""Standard errors between the first fifth of the steps and the last."""


def reward_rises(history: History) -> bool:
    """Whether the reward rises by any of three tests: of few steps, or early and then no more,
    too."""
    values, found = history["reward"].finite_values, measure_outcome(history)
    return (
        has_rising_trend(history)
        or (found is not None and found.better is True)
        or (len(values) >= 12 and compare_ends(values)[2] > RISES)
    )


STANDS, STANDS_ENOUGH = 0.1, 10
"""Of its level, that a reward which stands gains at most, and rows that say so."""


def reward_stands(history: History, since: int) -> bool:
    """Whether a tenth is more than the reward can have gained from a step on."""
    values = history["reward"].since(since).finite_values
    if len(values) < STANDS_ENOUGH:
        return False
    third = len(values) // 3
    return measure_shift(values, third, third).interval.high < STANDS * abs(float(values.mean()))


def groups_differ_late(history: History, *, unknown: bool = False) -> bool:
    """Whether most groups have rewards that differ, in the last third of the run; `unknown` where
    nothing says it."""
    share, spread = history["frac_reward_zero_std"], history["reward_std"].values
    if len(share):
        return float(np.nanmean(share.last(len(share) // 3 + 1).values)) < 0.5
    if not (third := len(spread) // 3):
        return unknown
    return bool(np.nanmedian(spread[-third:]) > 0.2 * np.nanmedian(spread[:third]))


CUT = 0.8
"""Share of cut answers from which on next to none was seen whole."""


def is_cut_from_start(history: History) -> bool:
    """Whether the limit cut nearly all answers from the first step on."""
    values = history["frac_truncated"].finite_values
    return len(values) > 0 and min(float(values.mean()), float(values[:WINDOW].mean())) > CUT


SHIFTED, TURNED, CLIPPED = 0.01, 1e-3, 1e-3
"""Nats a token that the policy went from its reference, and that an update turned it by; the share
of terms clipped."""


def policy_moved(history: History) -> bool:
    """Whether the learning rate is seen to move the policy: its KL grew, updates have one of their
    own, or the entropy moves. Before the first update a KL is that of another reference.
    """
    kl, total = history["kl"], history["kl_sum"]
    grew = [
        recent_median(one) - (one.values[0] if len(one) and one.steps[0] <= 1 else 0.0)
        for one in (kl, total)
    ]
    return (
        grew[0] > SHIFTED
        or grew[1] > 1
        or recent_median(history["kl_update"]) > TURNED
        or recent_median(history["clip_fraction"]) > CLIPPED
        or is_moving(history["entropy"].values)
    )


PULL = 0.5
"""What a nat of KL costs, five times what is usual at most (0.001 to 0.1)."""
ALIKE, OFF = 0.5, 0.2
"""How the loss must follow a KL that is most of it: their correlation, and how far single values
are off."""
BACK = 2.0
"""Times what it is in the last third, that a KL is in the first where a penalty takes the policy
back."""


KL_AT_FIRST = "kl at first"
"""The figure beside `kl-taken-back`."""


def find_kl_anchor(history: History) -> dict[str, float] | None:
    """What shows that the KL term keeps the policy at its reference whatever the reward says: a
    figure under the code of a cause, and others; None for nothing.

    Its coefficient, as it was set or as the loss over the KL has it; or a KL that falls again.
    """
    beta, kl, loss = history.settings.get("rl.beta"), history["kl"], history["loss"]
    both = np.isfinite(kl.values) & (kl.values > 0) & np.isin(kl.steps, loss.steps)
    x, y = kl.values[both], loss.values[np.isin(loss.steps, kl.steps[both])]
    if policy_moved(history) or len(x) < WINDOW or len(x) != len(y):
        return None
    ratio, third = median(y / x), len(x) // 3
    if isinstance(beta, int | float):
        return {"kl-costs": beta} if beta > PULL else None
    near = ratio > PULL and median(np.abs(y - ratio * x)) < OFF * median(np.abs(y))
    if near and np.ptp(x) > 0 and np.corrcoef(x, y)[0, 1] > ALIKE:
        return {"loss-is-kl": ratio}
    first, last = end_medians(x, third)
    if first > BACK * last:
        return {"kl-taken-back": last, KL_AT_FIRST: first}
    stands = len(x) > 2 * WINDOW and BACK * x[0] < first and first > 0.8 * last
    if (
        stands
        and recent_median(history["learning_rate"])
        > max_magnitude(history["learning_rate"].finite_values) / 2
    ):
        return {"kl-stands": last}
    return None


def part_names(samples: Iterable[Sample]) -> list[str]:
    """The parts that stored rewards have; one without a name, the whole reward, where they have
    none."""
    return sorted({name for one in samples for name in one.parts}) or [""]


def quote_sample(samples: Sequence[Sample]) -> str:
    """One of the user's own completions, both ends of a long one, of those that hold their gold
    answer where some do; empty where all are blank."""
    known = [one for one in samples if one.text.strip()]
    if not known:
        return ""
    one = max(known, key=lambda one: bool(one.gold) and one.gold in one.text)
    text = one.text.strip()
    short = text if len(text) <= QUOTED else f"{text[: QUOTED // 2]} ... {text[-QUOTED // 2 :]}"
    return repr(short) + (f" (gold: {one.gold[:QUOTED]!r})" if one.gold else "")


QUOTED = 100
"""Characters of it."""


def zero_mask(series: Series, tiny: float) -> BoolArray:
    """Where a series is 0: below `tiny`, or printed as 0 with digits that are fine beside its other
    values."""
    values = np.abs(series.values)
    if series.rounding > FINE:
        some = values[values > series.rounding]
        if not len(some) or series.rounding > 1e-3 * median(some):
            return np.zeros(len(values), dtype=np.bool_)
    return values < max(tiny, series.rounding)


def compare_part_sum(history: History) -> tuple[list[int], FloatArray, float]:
    """Steps at which the reward and all of its parts are logged, the parts' sum less the reward,
    and what that may be off by: float32, and half a unit of each printed digit."""
    reward, parts = history["reward"], history.parts.values()
    by_step = [dict(zip(part.steps.tolist(), part.values.tolist(), strict=True)) for part in parts]
    total = dict(zip(*(column.tolist() for column in reward.finite), strict=True))
    steps = [step for step in total if by_step and all(step in part for part in by_step)]
    less = np.array([sum(part[step] for part in by_step) - total[step] for step in steps])
    size = median(np.abs(list(total.values()))) if total else 0.0
    printed = reward.rounding + sum(part.rounding for part in parts)
    return steps, less, 1e-4 * max(1.0, size) + 1.01 * printed


def fit_part_weights(history: History) -> dict[str, float] | None:
    """The weights of the parts that vary in the logged reward, by least squares; None where it is
    not their weighted sum, to the digits that were logged, and empty where several sets of weights
    give it."""
    steps, less, off = compare_part_sum(history)
    names = list(history.parts)
    if not steps:
        return None
    columns = history.parts.values()
    parts = np.array([column.values[np.isin(column.steps, steps)] for column in columns]).T
    total = parts.sum(axis=1) - less
    good = np.isfinite(parts).all(axis=1) & np.isfinite(total)
    parts, total = parts[good], total[good]
    if len(parts) < len(names) + 4:
        return None
    found, _, rank, _ = np.linalg.lstsq(parts, total, rcond=1e-6)
    if np.abs(parts @ found - total).max() > off * max(1.0, float(np.abs(found).max())):
        return None
    if rank < int((np.abs(parts) > EQUAL).any(axis=0).sum()):
        return {}
    varies = np.ptp(parts, axis=0) > EQUAL
    return {
        name: float(weight) for name, weight, some in zip(names, found, varies, strict=True) if some
    }


def has_logged_means(
    stored: Sequence[Sample], step: int, series: Mapping[str, Series]
) -> bool | None:
    """Whether the completions that are stored of a step have the means that were logged; None where
    nothing says it."""
    parts = [name for part in stored[0].parts if (name := f"reward/{part}") in series]
    # The stored reward may be the plain sum of its parts, and the logged one a weighted one.
    for name in parts or ("reward",):
        part = name.partition("/")[2]
        known = [one.parts.get(part) if part else one.reward for one in stored]
        values = [value for value in known if value is not None and np.isfinite(value)]
        logged = series.get(name, EMPTY)
        at = logged.at(step)
        if values and len(at):
            return bool(
                abs(float(np.mean(values)) - at[0]) < 1e-4 * max(1.0, abs(at[0])) + logged.rounding
            )
    return None


def max_reward(history: History) -> float | None:
    """The most that a completion can earn; None where that is not known, as of most rewards of
    other trainers.

    Ours is 1. A part that is 0 or 1 says so by its deviation, and one whose mean was exactly 1
    again and again, and never more, by that; a reward that is the plain sum of such parts has their
    number as its highest.
    """
    if history.origin == "plumbline":
        return 1.0
    names = list(history.parts)
    if len(names) > 1:
        _, less, off = compare_part_sum(history)
        if len(less) and np.mean(np.abs(less) < off) > 0.5:
            tops = [
                _is_unit_scale(part, history[f"reward_std/{name}"])
                for name, part in history.parts.items()
            ]
            return float(len(tops)) if all(tops) else None
    spread = history[f"reward_std/{names[0]}"] if len(names) == 1 else history["reward_std/"]
    return 1.0 if _is_unit_scale(history["reward"], spread) else None


def _is_unit_scale(series: Series, spread: Series) -> bool:
    """Whether single values lie between 0 and 1, and 1 is among them."""
    values = series.finite_values
    if not len(values) or values.min() < 0 or values.max() > 1 + EQUAL + series.rounding:
        return False
    if int((values >= 1 - EQUAL).sum()) >= 3:
        return True
    if len(spread) != len(series) or not np.isfinite(series.values).all():
        return False
    mean = series.values
    binary = np.sqrt(mean * (1 - mean))
    return bool(np.nanmedian(spread.values) > 0.02) and bool(
        np.nanmedian(np.abs(spread.values - binary)) < 0.05 + spread.rounding
    )
