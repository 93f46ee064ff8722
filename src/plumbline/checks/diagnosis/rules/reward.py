"""Rewards and their parts: dead, lost, opposed, read wrongly, falling."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from plumbline.checks.check import Finding
from plumbline.checks.diagnosis.facts import (
    RISES,
    compare_part_sum,
    correlate_with_reward,
    count_characters,
    fit_part_weights,
    has_enough_rows,
    list_prompts,
    quote_sample,
    reward_rises,
    sampler_matches,
    unrefuted_causes,
)
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.outcome import measure_outcome
from plumbline.checks.diagnosis.rule import BOTH, rule
from plumbline.checks.diagnosis.rules.data import find_data_order
from plumbline.checks.diagnosis.rules.series import JUMP_ENOUGH, list_jumps
from plumbline.checks.diagnosis.trends import (
    BLOCKS,
    FALL_ENOUGH,
    FALL_SURE,
    ORDERED,
    STRETCHES,
    block_kendall_z,
    compare_ends,
    find_fall,
    fit_trend,
    max_magnitude,
    median,
)
from plumbline.evaluation.statistics import is_surely_over
from plumbline.runs.evaluations import REFERENCE

DEAD_PART_ENOUGH = 10
"""Logged steps from which a part that never moved is called dead; a live part of 64 rollouts a step
moves in one."""
FLAT = 1e-9


@rule("dead-part", "reward/")
def find_dead_part(history: History) -> Iterator[Finding]:
    """A part of the reward that says nothing: its weight is in the total, and no answer ever moves
    it.

    A finding a part. At 0 it is dead; at one value above it is paid for nothing, which is no fault
    of itself.
    """
    names = list(history.parts)
    moving = [name for name in names if np.ptp(_part_values(history, name)) > FLAT]
    for name in names:
        values = _part_values(history, name)
        if (
            len(values) < DEAD_PART_ENOUGH
            or np.ptp(values) > FLAT
            # a mean may stand still by chance
            or max(history[f"reward_std/{name}"].finite_values, default=0.0) > FLAT
        ):
            continue
        value = float(values[0])
        if abs(value) < FLAT:
            yield Finding(
                "warning" if moving else "fatal",
                "zero",
                since=history[f"reward/{name}"].steps[0],
                evidence={
                    "steps": len(values),
                    "parts that move": len(moving),
                    "example": quote_sample(history.samples[::-1]),
                },
                causes=("misread", "not-done"),
                about=name,
            )
        elif len(names) > 1:
            yield Finding(
                "note",
                "constant",
                evidence={"part": name, "value": value, "steps": len(values)},
                causes=("paid-to-all",),
            )


def _part_values(history: History, name: str) -> np.ndarray:
    values = history.parts[name].finite_values
    return values if len(values) else np.zeros(1)


PARTS_OPPOSE_SURE = 5.0
"""Standard errors between the first fifth of the steps and the last, of what falls. Noise whose
neighbours correlate by 0.8 falls by 5 in 0.8 % of simulated runs of 30 steps, and in none of 400 of
200 steps."""
PARTS_OPPOSE_LARGE = 0.3
"""Share of what it had at first that the falling part lost."""
PARTS_OPPOSE_LEAST = 0.05
"""Of the highest value of a part: less is no rise and no fall, whatever its scale."""
PARTS_OPPOSE_ENOUGH = 24
NO_WEIGHT = 0.02
"""Of the largest weight, below which a part is dropped."""
WANTED = re.compile(
    r"(?<![a-z])(accura|correct|right|match|form|valid|success|solve|pass|quality|value|tru|gold|answer|content|helpful|"
    r"task|math|exact)",
    re.IGNORECASE,
)
"""Beginnings of words in the names of parts that nobody charges on purpose."""
MEASURED = re.compile(
    r"penal|error|fail|not_|no_|bad|wrong|cost|len|token|word|char|repe|dup|gram|overlong|verbos|time|latenc|entrop|"
    r"toxi|refus|halluc|hack|cheat|loop|kl|divers|uniq|novel|hint|violat|invalid|unsafe|harm|filler|hedg|spam|noise|"
    r"redund|excess|loss|distance|forbid",
    re.IGNORECASE,
)
"""What is charged on purpose, or is only measured: its fall is no loss."""
LENGTH = re.compile("len|token|word|char|verbos", re.IGNORECASE)
"""What may well grow as answers get better."""


@rule("parts-oppose", "reward/", "reward")
def find_parts_oppose(history: History) -> Iterator[Finding]:
    """A part of the reward falls while the whole rises: it is charged, dropped, or outweighed by
    another part.

    Each part that fell for sure, or whose charge grew, with its weight where the logged reward is a
    weighted sum of the parts.
    """
    known, rose = fit_part_weights(history) or {}, reward_rises(history)
    none = NO_WEIGHT * max(map(abs, known.values()), default=0.0)
    for name, weight in known.items():
        if (weight <= none and rose) or weight < -none:
            yield from _find_unpaid_part(history, name, 0.0 if weight >= -none else weight)
    ends = {
        name: compare_ends(history[name].finite_values)
        for name in history.reward_names
        if has_enough_rows(history[name], PARTS_OPPOSE_ENOUGH)
    }
    if "reward" not in ends or fit_trend(history["reward"].values).t < -2:
        return
    del ends["reward"]
    least = {name: PARTS_OPPOSE_LEAST * max_magnitude(history[name].finite_values) for name in ends}
    paid = {name: known.get(name.removeprefix("reward/"), 1.0) for name in ends}
    rising = {
        name: end
        for name, end in ends.items()
        if paid[name] > none and end[2] > RISES and end[1] - end[0] > least[name]
    }
    up = max(rising, key=lambda name: rising[name][1] - rising[name][0], default="")
    winner = up.removeprefix("reward/")
    for part, (first, last, sure) in ends.items() if up else ():
        name, grew = part.removeprefix("reward/"), paid[part] < -none
        sure = -sure if grew else sure
        if abs(paid[part]) <= none or sure > -PARTS_OPPOSE_SURE:
            continue
        if abs(last - first) <= max(least[part], PARTS_OPPOSE_LARGE * abs(first)):
            continue
        yield Finding(
            "note" if grew and LENGTH.search(name) else "warning",
            "outweighed",
            evidence={
                "first": first,
                "last": last,
                "t": round(float(np.clip(sure, -99, 99)), 1),
                "weight": round(known[name], 4) if name in known else None,
                "grew": grew,
                "rising": winner,
                "rising first": rising[up][0],
                "rising last": rising[up][1],
                "rising t": round(min(rising[up][2], 99.0), 1),
            },
            about=name,
            causes=("cheaper", "weights-say-so"),
        )


def _find_unpaid_part(history: History, name: str, weight: float) -> Iterator[Finding]:
    """A part of no weight, or of one below 0, that fell while the reward rose."""
    series = history[f"reward/{name}"]
    down = measure_outcome(
        replace(history, series={"reward": replace(series, values=-series.values)})
    )
    values = series.finite_values
    sure = compare_ends(values)[2] if has_enough_rows(series, PARTS_OPPOSE_ENOUGH) else 0.0
    if down is None:
        return
    first, last = -down.first, -down.last
    lost = first - last
    fell = lost > PARTS_OPPOSE_LEAST * max_magnitude(values) and (
        down.better or sure < -PARTS_OPPOSE_SURE
    )
    measured = bool(MEASURED.search(name))
    wrong = weight < 0 <= values.min() and bool(WANTED.search(name)) and not measured
    if not (fell and reward_rises(history)) and not wrong:
        return
    # A charge that is logged as a number below 0 is paid under a weight below 0.
    meant = measured and (weight == 0 or first >= 0)
    large = wrong or lost > PARTS_OPPOSE_LARGE * abs(first)
    yield Finding(
        "warning" if large and not meant else "note",
        "charged" if weight else "dropped",
        evidence={
            "change": round(last - first, 4),
            "weight": round(weight, 4),
            "fell": fell,
            "first": first,
            "last": last,
        },
        about=name,
        causes=("wrong-sign", "penalty") if weight else ("not-paid",),
    )


@rule("lost-reward", "reward", "reward/")
def find_lost_reward(history: History) -> Iterator[Finding]:
    """The reward is less than its parts: in TRL a part that is NaN counts as 0 in the sum, and not
    in its own mean.

    Where the reward is the plain sum of its parts at some steps, and at all of them no weighted
    one, the steps at which it is less.
    """
    found = [
        finding
        for name in history.parts
        if (finding := _find_missing_values(history, name)) is not None
    ]
    yield from found
    if found:
        return
    if history.origin == "plumbline":
        return  # our parts are weighted, and a part that was not judged is None
    steps, less, scale = compare_part_sum(history)
    if len(steps) < 5:
        return
    equal, lost = np.abs(less) < scale, less > scale
    if not equal.mean() >= 0.2 or not lost.any() or fit_part_weights(history) is not None:
        return
    yield Finding(
        "warning",
        "less-than-parts",
        since=steps[int(np.argmax(lost))],
        evidence={"steps": lost.sum(), "of": len(steps), "largest": np.nanmax(less)},
        causes=("nan-counts-as-0", "clipped"),
    )


def _find_missing_values(history: History, name: str) -> Finding | None:
    """The completions that a part has no number for. TRL writes NaN where a reward function
    returned None.

    None is allowed for prompts that a function is not for: then it has no number for any of their
    answers.
    """
    values = [(one, one.parts.get(name)) for one in history.samples]
    if history.origin == "plumbline":  # `unjudged` says what could not be judged
        lost = [one for one, value in values if value is not None and np.isnan(value)]
    else:
        lost = [one for one, value in values if value is None or np.isnan(value)]
    if not lost or len(lost) == len(values):
        return None
    prompts, without = Counter(one.prompt for one, _ in values), Counter(one.prompt for one in lost)
    whole = all(count == prompts[prompt] for prompt, count in without.items())
    if whole and min(without.values()) > 1 and len(prompts) > len(without):
        return Finding(
            "note",
            "some-prompts",
            evidence={"completions": len(lost), "prompts": len(without), "of": len(prompts)},
            about=name,
            causes=("not-for-them", "gold-unreadable"),
        )
    return Finding(
        "warning",
        "no-number",
        since=lost[0].step,
        evidence={
            "completions": len(lost),
            "of": len(values),
            "share": round(len(lost) / len(values), 4),
        },
        about=name,
        samples=list_prompts(lost),
        causes=("cannot-judge",),
    )


PARSER_SOME, PARSER_MANY = 0.05, 0.2
"""Of the highest reward, that the strict reading takes away."""


@rule("parser", "reading/")
def find_parser(history: History) -> Iterator[Finding]:
    """A reader of answers that rejects what a lenient one accepts: right answers are charged for
    how they are written.

    The strict reading against the lenient one, where a rubric has both, over the run.
    """
    for name in history.names("reading/"):
        task, _, reading = name.rpartition("/")
        if reading != "strict" or not len(
            lenient := history[f"reading/{task + '/' if task else ''}lenient"]
        ):
            continue
        reward = history[f"task/{task}" if task else "reward"]
        meant, strict = (
            float(np.nanmean(one.values)) for one in (lenient, history[f"reading/{name}"])
        )
        lost = meant - strict
        paid_strictly = len(reward) > 0 and abs(np.nanmean(reward.values) - strict) < 1e-6 < lost
        if lost < PARSER_SOME:
            continue
        yield Finding(
            ("fatal" if lost >= PARSER_MANY else "warning") if paid_strictly else "note",
            evidence={"lenient": meant, "strict": strict},
            about=task,
            causes=("rejects-writing",),
            change={"task.options.reading": "lenient"} if paid_strictly else {},
        )


ORACLE = "oracle"
HALF = 0.5
"""A baseline that earns more leaves less than half of the scale for knowing anything."""


@rule("references", "finals", kinds=BOTH, live=False)
def find_references(history: History) -> Iterator[Finding]:
    """The reward itself, by those that know the answer and those that do not: the oracle and the
    baselines.

    Per task and split: the oracle below 1, and baselines over their limits, or over a half where
    there are none.
    """
    for final in history.finals:
        if final.stage != REFERENCE:
            continue
        mean, where = final.evaluation.mean_reward, final.where
        headline = final.evaluation.headline
        granted = headline.limits.get(final.mode) if headline is not None else None
        limit = HALF if granted is None else granted
        if final.mode == ORACLE and mean < 1 - 1e-6:
            low = [row.id for row in final.evaluation.rows if row.reward < 1 - 1e-6]
            yield Finding(
                "fatal",
                "gold-below-1",
                evidence={
                    "mean": mean,
                    "where": where,
                    "below 1": len(low),
                    "of": len(final.evaluation.rows),
                },
                samples=tuple(low[:3]),
                causes=unrefuted_causes(
                    (
                        "length-paid",
                        correlate_with_reward(history.samples, count_characters)[0] < BY_LENGTH,
                    ),
                    "reader-rejects",
                    "wrong-gold",
                ),
            )
        elif final.mode != ORACLE and is_surely_over(
            final.evaluation.rewards(),
            limit,
            final.evaluation.clusters(),
        ):
            yield Finding(
                "warning",
                "baseline-over-limit",
                evidence={
                    "mean": mean,
                    "where": where,
                    "baseline": final.mode,
                    "limit": limit,
                    "granted": granted,
                },
                causes=("prompt-unread",),
            )


BY_LENGTH = 0.8
"""The correlation within groups, from which on length is what the reward follows."""
UNJUDGED_SOME, UNJUDGED_MANY = 0.02, 0.2
STEADY = 0.5
"""Share of the steps in which some could not be judged: a world that fails comes back."""


@rule("unjudged", "frac_failed")
def find_unjudged(history: History) -> Iterator[Finding]:
    """Completions that nobody could judge: a verifier that fails is no wrong answer.

    The share over the run.
    """
    series = history["frac_failed"]
    share = float(np.nanmean(series.values))
    if share < UNJUDGED_SOME:
        return
    yield Finding(
        "fatal" if share >= UNJUDGED_MANY else "warning",
        since=series.steps[np.argmax(series.values > 0)],
        evidence={"share": round(share, 4), "worst step": np.nanmax(series.values)},
        causes=("verifier-raises", "world-fails")
        if (series.values > 0).mean() > STEADY
        else ("world-fails", "verifier-raises"),
    )


DEAD_TASK_ENOUGH = 10
"""Logged steps, as for a part."""


@rule("dead-task", "task/")
def find_dead_task(history: History) -> Iterator[Finding]:
    """A task whose reward is 0 at every step while other tasks earn some: its rollouts have no
    gradient.

    Where another task earns something; where none does, other checks say so.
    """
    levels = {name: history[f"task/{name}"].finite_values for name in history.names("task/")}
    dead = [
        name
        for name, values in levels.items()
        if len(values) >= DEAD_TASK_ENOUGH and not np.any(np.abs(values) > 1e-9)
    ]
    if not dead or len(dead) == len(levels):
        return
    for name in dead:
        yield Finding(
            "warning",
            since=history[f"task/{name}"].steps[0],
            about=name,
            evidence={"steps": len(levels[name])},
            causes=("too-hard", "verifier-rejects"),
        )


SHARE = 0.95
"""Of the sum of the parts' variances: the others together move the reward by less than a fourth of
what it does."""
MOVES = 1e-3
"""Standard deviation over which a part says something at all; a dead one has a check of its own."""
DOMINANT_PART_ENOUGH = 10


@rule("dominant-part", "reward_std/", "reward", live=False)
def find_dominant_part(history: History) -> Iterator[Finding]:
    """One part of the reward makes all of its spread, whatever the others say.

    Where the reward is the plain sum of its parts, as other weights are not known. It may be meant
    so: a note.
    """
    names, (steps, less, off) = history.names("reward_std/"), compare_part_sum(history)
    if len(names) < 2 or len(steps) < DOMINANT_PART_ENOUGH or not np.nanmedian(np.abs(less)) < off:
        return
    spread = {name: float(np.nanmean(history[f"reward_std/{name}"].values)) for name in names}
    moving = {name: value for name, value in spread.items() if value > MOVES}
    if len(moving) < 2:
        return
    first = max(moving, key=lambda name: moving[name])
    share = moving[first] ** 2 / sum(value**2 for value in moving.values())
    if share >= SHARE:
        yield Finding(
            "note",
            evidence=moving
            | {
                "share": share,
                "part": first,
                "others": [name for name in moving if name != first],
            },
            causes=("scales",),
        )


RARELY = 0.3
"""Of the deviation of single answers, that few rows must fall by."""


@rule("reward-falls", "reward")
def find_reward_falls(history: History) -> Iterator[Finding]:
    """The reward falls: below where it began, or from a height that it had reached.

    The last stretch against the best one before it, in units of the noise that such a stretch has.
    Of few rows that are means of several steps, thirds, where the first line says that it fell.
    """
    series = history["reward"]
    steps, values = series.finite
    came, few = measure_outcome(history), len(values) < FALL_ENOUGH
    if came is None or (few and came.every):
        return
    fall = find_fall(values, came.alike, sure=came.worse, every=came.every)
    if fall is None:
        return
    spread = history["reward_std"].finite_values
    if few and len(spread) and fall.best - fall.last < RARELY * spread.max():
        return  # a reward that is rarely earned is missing in some rows by chance
    entropy, kl = history["entropy"], history["kl"]
    at = int(steps[fall.place])
    jump = next((step for step in list_jumps(series) if step >= at), None)
    forgets = len(entropy) and entropy.values[-1] > 2 * max(np.nanmedian(entropy.values[:10]), 0.1)
    highest_kl = float(np.nanmax(kl.values, initial=0))
    widens = _gap_widens(history)
    opposed = len(values) >= 2 * BLOCKS and block_kendall_z(values) < -ORDERED
    seen = {
        "in-an-order": any(one.level == "warning" for one in find_data_order(history)),
        "data-changed": jump is not None,
        "gap-widens": widens,
        "forgets": forgets,
        "kl": highest_kl > 1,
    }
    below = few or fall.last < fall.first - FALL_SURE * fall.noise
    yield Finding(
        "fatal" if fall.share > (0.5 if below else 0.7) else "warning",
        since=at,
        evidence={
            "best stretch": fall.best,
            "last stretch": fall.last,
            "first": fall.first,
            "noise": fall.noise,
            "jump": jump,
            "highest kl": highest_kl,
        },
        causes=unrefuted_causes(
            *(cause for cause, so in seen.items() if so),
            ("control", not history.settings.get("controls.shuffle_advantages")),
            ("wrong-sign", not opposed or at > steps[len(steps) // 10]),
            "high-rate",
            ("gap", widens or sampler_matches(history)),
            ("reward-changed", len(values) >= JUMP_ENOUGH and jump is None),
        ),
    )


def _gap_widens(history: History) -> bool:
    """Whether sampler and scorer are logged to be further apart than at first."""
    found = [
        one
        for name in ("logprob_gap", "mismatch_kl")
        if len(one := history[name].finite_values) >= FALL_ENOUGH
    ]
    return not sampler_matches(history) and any(
        median(one[-STRETCHES:]) > 2 * median(one[:STRETCHES]) for one in found
    )
