"""What evaluations can tell: gain, plateau, noise, baselines, decoding, the end."""

from collections.abc import Iterator
from statistics import NormalDist
from typing import Any

import numpy as np

from plumbline.checks.check import Finding
from plumbline.checks.diagnosis.facts import (
    KL_AT_FIRST,
    NO_GRADIENT,
    WINDOW,
    find_kl_anchor,
    groups_differ_late,
    max_reward,
    policy_moved,
    recent_median,
    reward_rises,
    unrefuted_causes,
    zero_mask,
)
from plumbline.checks.diagnosis.history import Final, History
from plumbline.checks.diagnosis.outcome import MATTERS, RewardOutcome, measure_outcome
from plumbline.checks.diagnosis.rule import BOTH, rule
from plumbline.checks.diagnosis.rules.policy import pair_stage_evaluations
from plumbline.checks.diagnosis.rules.steps import (
    ADAPTERS,
    FULL,
    highest_learning_rate,
    is_adapter_rate_low,
)
from plumbline.checks.diagnosis.trends import (
    block_kendall_z,
    end_means,
    end_medians,
    fit_trend,
    is_moving,
    max_magnitude,
    measure_shift,
    median,
    standard_error_of_mean,
    step_deviation,
    tenth_of,
)
from plumbline.errors import IncomparableError
from plumbline.evaluation.comparison import compare
from plumbline.evaluation.statistics import (
    Interval,
    detectable_difference,
    paired_difference,
    t_quantile,
)
from plumbline.records import FloatArray, clusters_of, group_by_key
from plumbline.runs.evaluations import REFERENCE

FEW = 50
"""Examples or clusters: of fewer a difference of a tenth is rarely more than noise (a team read 25
as a regression)."""


@rule("gain", "finals", kinds=BOTH, live=False)
def find_gain(history: History) -> Iterator[Finding]:
    """What the stage changed, against what its evaluation can tell from noise.

    Each greedy evaluation of this stage against the one before it on the same examples.
    """
    for after, before in pair_stage_evaluations(history):
        try:
            compared = compare(before.evaluation, after.evaluation)
        except IncomparableError as error:
            yield Finding(
                "warning",
                "incomparable",
                evidence={"before": before.stage, "where": after.where, "reason": str(error)},
                causes=("other-metric",),
            )
            continue
        change, way = compared.difference, compared.direction
        evidence = {
            "where": after.where,
            "difference": change.mean,
            "low": change.low,
            "high": change.high,
            "n": change.n,
            "p": compared.p_value,
        }
        if way == "fall":
            causes = unrefuted_causes(
                ("control", not history.settings.get("controls.shuffle_advantages")),
                ("high-rate", reward_rises(history)),
                "other-goal",
            )
            yield Finding("warning", "lower", evidence=evidence, causes=causes)
        elif way == "same":
            scatter = compared.scatter
            few = {
                "detectable": detectable_difference(change),
                "units": scatter.units,
                "unit": scatter.unit,
                "wanted": 4 * scatter.units,
            }
            few = few if scatter.units < FEW else {}
            yield Finding("note", "same", evidence=evidence | few)


LITTLE = 0.02
"""Of the highest value of a series, whatever its scale: less is no change that anybody would call
one."""
CHANCE = 0.01
"""Of one finding in evaluations that only jump about, however many names they have."""
BLOCKS = 12
AFTER, FALLING = 3, 1.7
"""Evaluations after the highest ones, and standard errors of their order, from which a run may be
past its best."""
PLUNGE = 0.6
"""Of the height, lost from the highest evaluation on without a rise: few, but no chance."""
LONGER, SHARE_OF_RISE = 2.0, 0.25
"""Times that answers grew longer by, and the share of the reward's relative rise that an evaluation
rises by if it follows it."""


@rule("eval-disagrees", "reward", "eval/")
def find_eval_disagrees(history: History) -> Iterator[Finding]:
    """The evaluation falls and the training reward does not: what is paid is not what is wanted, or
    not there.

    Evaluations are few and fall at once or slowly, so it is their order that counts, of all or of
    those after the highest ones, and a tenth of the height. Where they only stand still, the
    answers must have grown longer, too: the reward then pays length.
    """
    train, came = fit_trend(history["reward"].values), measure_outcome(history)
    wanders = came is not None and came.alike > 0 and not came.better
    gain = (train.last - train.first) / max(abs(train.first), abs(train.last), 1e-9)
    rises = train.t >= 3 and not wanders and gain >= LITTLE
    names = [
        name
        for name in history.names("eval/")
        if not ("loss" in name or "length" in name or "/" in name)
    ]
    chance, stands = CHANCE / max(1, len(names)), []
    for name in names:
        steps, values = history[f"eval/{name}"].finite
        if len(values) < 4:
            continue
        best, third = int(np.argmax(values)), len(values) // 3
        order = block_kendall_z(values)
        lost = float(values[best] - values[-1])
        plunges = lost > PLUNGE * abs(values[best]) and (np.diff(values[best:]) < 0).all()
        fell = (
            order < -NormalDist().inv_cdf(1 - chance)
            or _is_past_peak(values, chance)
            or (plunges and len(values) - best > AFTER)
        )
        evidence = {
            "training t": round(min(train.t, 99.0), 1),
            "training first": train.first,
            "training last": train.last,
            "order z": round(order, 1),
            "best step": steps[best],
            "best": values[best],
            "last": values[-1],
        }
        after = fit_trend(history["reward"].since(int(steps[best])).values)
        held = came is not None and not came.alike and not came.worse and after.t > -2
        if fell and lost > max(0.1 * abs(values[best]), LITTLE * max_magnitude(values)):
            if rises or held:
                yield Finding(
                    "warning",
                    "eval-disagrees" if rises else "falls-alone",
                    since=steps[best],
                    evidence=evidence,
                    about=name,
                    causes=unrefuted_causes(
                        "cheat",
                        ("learnt-by-heart", 0 < recent_median(history["epoch"]) < 1),
                        ("other-prompts", not 0 < recent_median(history["epoch"]) < 1),
                    ),
                )
            stands.append(False)
            continue
        noise = _step_scatter(values) * (2 / max(third, 1)) ** 0.5
        first, last = end_means(values, third)
        stands.append(third > 2 and last - first + 2 * noise < SHARE_OF_RISE * gain * abs(last))
    length = history["completion_length"].finite_values
    tenth = tenth_of(length)
    if rises and stands and all(stands) and len(length) > 2 * tenth:
        short, long = end_medians(length, tenth)
        if (times := long / max(short, 1.0)) > LONGER:
            yield Finding(
                "warning",
                "longer-only",
                since=steps[third],
                evidence=evidence | {"longer": times, "first": float(first), "last": float(last)},
                about=name,
                causes=("length-paid",),
            )


def _step_scatter(values: FloatArray) -> float:
    """The standard deviation of single values around what is straight for three of them."""
    return float(np.sqrt(np.mean(np.diff(values, 2) ** 2) / 6))


def _is_past_peak(values: FloatArray, chance: float) -> bool:
    """Whether the last two or three are below the best ones, by more than the choice of the best
    gives, and what lies between falls."""
    width = 2 if len(values) < 9 else 3
    means = np.convolve(values, np.full(width, 1 / width), mode="valid")
    best = int(np.argmax(means))
    if len(values) - best - width < AFTER:
        return False
    places = np.linspace(-1, 1, len(values))
    left = values - np.polyval(np.polyfit(places, values, 3), places)
    error = max(_step_scatter(values), standard_error_of_mean(left, 1))
    errors = t_quantile(max(2, 3 * (len(values) - 2) // 5), 1 - 2 * chance / len(means))
    return block_kendall_z(values[best:]) < -FALLING and float(means[best] - means[-1]) > max(
        errors * error * (2 / width) ** 0.5, 1e-9
    )


WORSE, TEXTS_ENOUGH, TEXTS_SURE = 0.4, 5, 2.0
"""Nats a token, which make a perplexity half as high again; evaluations, and standard errors of
their order."""


@rule("perplexity", "text_nll", "reward")
def find_worse_texts(history: History) -> Iterator[Finding]:
    """Texts that are no training texts become less likely while the reward does not fall: what is
    learnt costs the language.

    The last two evaluations against the best one.
    """
    steps, values = history["text_nll"].finite
    came = measure_outcome(history)
    if len(values) < TEXTS_ENOUGH or came is None or came.worse:
        return
    best = int(np.argmin(values))
    if values[-2:].min() > values[best] + WORSE and block_kendall_z(values) > TEXTS_SURE:
        yield Finding(
            "warning",
            since=steps[best],
            evidence={
                "best": np.exp(values[best]),
                "last": np.exp(values[-1]),
                "training first": came.first,
                "training last": came.last,
            },
            causes=("cheat", "far-off"),
        )


FAR = 0.1


@rule("decoding", "finals", kinds=BOTH, live=False)
def find_decoding(history: History) -> Iterator[Finding]:
    """What is sampled and what is greedy tell two stories, or stages were asked in two ways.

    Of the last stage, greedy against sampled; of each split and mode, the sampling distributions of its stages.
    """
    mine = {
        (one.task, one.split, one.mode): one for one in history.finals if one.stage == history.name
    }
    for (task, split, mode), sampled in mine.items():
        greedy = mine.get((task, split, "greedy"))
        if mode != "sampled" or greedy is None:
            continue
        try:
            change = compare(greedy.evaluation, sampled.evaluation).difference
        except IncomparableError:
            continue
        low, high = sorted(map(abs, (change.low, change.high)))
        if low > FAR and change.excludes_zero:
            better = change.mean > 0
            yield Finding(
                "warning" if better else "note",
                "sampled-earns-more" if better else "greedy-earns-more",
                evidence={
                    "where": sampled.where,
                    "greedy": greedy.evaluation.mean_reward,
                    "sampled": sampled.evaluation.mean_reward,
                    "difference": abs(change.mean),
                    "low": low,
                    "high": high,
                    "n": change.n,
                },
                causes=("greedy-ends", "wrong-default") if better else ("high-temperature",),
            )
    yield from _compare_sampling(history)


def _compare_sampling(history: History) -> Iterator[Finding]:
    stages = group_by_key(
        ((one.task, one.split, one.mode), one) for one in history.finals if one.evaluation.sampling
    )
    for (*_, mode), found in stages.items():
        settings = [one.evaluation.sampling for one in found]
        differing = sorted(
            {
                key
                for one in settings
                for key in one
                if any(other.get(key) != one[key] for other in settings)
            }
        )
        if differing:
            yield Finding(
                "warning",
                "two-ways",
                evidence={
                    "mode": mode,
                    "where": found[0].where,
                    "keys": differing,
                    "stages": [one.stage for one in found],
                }
                | {
                    one.stage: str({key: sampling.get(key) for key in differing})
                    for one, sampling in zip(found, settings, strict=True)
                },
                causes=("settings-changed",),
            )
    trained, used = (
        history.settings.get("sampling.steps"),
        {
            steps
            for one in history.finals
            if isinstance(steps := one.evaluation.sampling.get("steps"), int)
        },
    )
    if isinstance(trained, int) and used and used != {trained}:
        yield Finding(
            "note",
            "other-steps",
            evidence={"training": trained, "evaluations": sorted(used)},
            causes=("evaluation-steps",),
        )


SHARE = 0.35
"""Of the run, that must lie behind the plateau's beginning."""
PLATEAU_ENOUGH = 8
QUICK, PLATEAU_SURE = 8, 6.0
"""Values of a rise that few of them may make by chance, and standard deviations that it must then
be."""
GROWTH = 0.1
"""Of the rise before: what grows by more since then does not stand still."""
PLATEAU_TOP = 0.95
"""Of the most that can be earned, where that is known."""


@rule("plateau", "reward", live=False)
def find_plateau(history: History) -> Iterator[Finding]:
    """The evaluation stopped rising: since when, and what else ended there.

    Of the main evaluation where there are enough, else of the training reward: two lines that meet
    at a step, the first rising, the second flat, where the first one, drawn on, leaves the values
    far below it.
    """
    name = "eval/reward" if len(history["eval/reward"]) >= PLATEAU_ENOUGH else "reward"
    steps, values = history[name].finite
    if len(values) < (PLATEAU_ENOUGH if name != "reward" else 5 * PLATEAU_ENOUGH):
        return
    places = np.arange(len(values))
    errors = _two_line_errors(values)[3 : round((1 - SHARE) * len(values))]
    if not len(errors):
        return
    found = 3 + int(np.argmin(errors))
    slope, start = np.polyfit(places[:found], values[:found], 1)
    noise = float((errors[found - 3] / max(len(values) - 4, 1)) ** 0.5)
    after = values[found:]
    rose, missing = float(slope * found), start + slope * places[found:] - after
    growth = float(np.polyfit(places[found:], after, 1)[0]) * len(after)
    if (
        rose <= max(LITTLE * max_magnitude(values), 4 * noise)
        or missing.mean() < 4 * noise / len(after) ** 0.5 + 0.25 * rose
    ):
        return
    if abs(growth) > 0.25 * slope * len(after) or growth > GROWTH * rose:
        return
    at, level = int(steps[found]), float(after.mean())
    if level <= start or (found < QUICK and level - start < PLATEAU_SURE * noise):
        return
    figures = dict(_plateau_causes(history, at, level))
    yield Finding(
        "note",
        since=at,
        evidence={
            "series": name,
            "first": float(start),
            "plateau": level,
            "steps since": steps[-1] - at,
            **figures,
        },
        causes=tuple(figures) or ("limit",),
    )


def _two_line_errors(values: FloatArray) -> FloatArray:
    """The squared error [n] of a line before each place and another from it on, by sums up to
    there."""
    level = values - values.mean()
    return np.append(0.0, _line_errors(level)[:-1]) + _line_errors(level[::-1])[::-1]


def _line_errors(values: FloatArray) -> FloatArray:
    """The squared error [n] of a line through the values up to each, that one among them."""
    places = np.arange(len(values), dtype=np.float64)
    count, total = places + 1, np.cumsum(values)
    across = np.cumsum(places * values) - places / 2 * total
    spread = np.maximum(count * (count**2 - 1) / 12, 1.0)
    return np.maximum(np.cumsum(values**2) - total**2 / count - across**2 / spread, 0.0)


def _plateau_causes(history: History, at: int, level: float) -> Iterator[tuple[str, float]]:
    """Codes of what ended there, each with its figure."""
    rate, epoch, zero, entropy = (
        history["learning_rate"],
        history["epoch"],
        history["frac_reward_zero_std"],
        history["entropy"],
    )
    then = rate.since(at).values
    if len(then) and np.nanmax(then) < 0.4 * np.nanmax(rate.values):
        yield "rate-down", float(np.nanmax(then) / np.nanmax(rate.values))
    if (highest := max_reward(history)) is not None and level > PLATEAU_TOP * highest:
        yield "at-ceiling", highest
    if len(epoch) and 0 < epoch.values[-1] < 0.3:
        yield "few-prompts-seen", float(epoch.values[-1])
    if len(zero) and np.nanmean(zero.since(at).values) > 0.5:
        yield "equal-groups", float(np.nanmean(zero.since(at).values))
    if len(entropy) and 0 <= np.nanmedian(entropy.since(at).values) < 0.01:
        yield "low-entropy", float(np.nanmedian(entropy.since(at).values))


EVAL_NOISE_ENOUGH = 6
STILL_NOISE = 0.005
"""Of the highest value: evaluations that scatter by less say which checkpoint is the best."""
EVAL_NOISE_SURE = 2.0
"""Times the scatter of a point, that the last third must be above the first: both are means of two
points or more."""


@rule("eval-noise", "eval/reward", live=False)
def find_eval_noise(history: History) -> Iterator[Finding]:
    """An evaluation that moves more from one time to the next than it rose: it cannot say which
    checkpoint is the best.

    Of the main evaluation: how far its last third is above its first, in standard deviations of a
    point.
    """
    values = history["eval/reward"].finite_values
    if len(values) < EVAL_NOISE_ENOUGH:
        return
    third = len(values) // 3
    first, last = end_means(values, third)
    rise, noise = last - first, step_deviation(values) / 2**0.5
    if (
        noise < STILL_NOISE * max_magnitude(values)
        or abs(rise) > EVAL_NOISE_SURE * noise
        or values.max() - median(values) < noise
    ):
        return
    yield Finding(
        "note",
        evidence={
            "scatter": noise,
            "rise": rise,
            "points": len(values),
            "best": values.max(),
        },
        causes=("few-examples", "sampled-answers"),
    )


NO_BETTER_ENOUGH = 20
HALF = 0.5
"""Of what the baseline earns, under which it is warned of: a baseline may know much of a form and a
weak model little."""


@rule("no-better", "finals", kinds=BOTH, live=False)
def find_no_better(history: History) -> Iterator[Finding]:
    """A trained model that earns no more than a baseline that knows nothing.

    Greedy answers of the last stage, paired with the best baseline on the same examples.

    A task that it does better on some split was learnt, and what it does on others is a note.
    """
    if history.name == "base" or (
        history.kind == "sft" and any(key.startswith("rl.") for key in history.settings)
    ):
        return  # it is not the last
    beside = [
        (one, *found)
        for one in history.finals
        if (found := _compare_with_baselines(one, history)) is not None
    ]
    learnt = {final.task for final, _, gap in beside if gap.low > 0}
    for final, best, gap in beside:
        if gap.low > 0:
            continue
        mine = final.evaluation.mean_reward
        less = gap.high < 0 and mine < HALF * (mine - gap.mean) and final.task not in learnt
        yield Finding(
            "warning" if less else "note",
            "less" if gap.high < 0 else "no-more",
            evidence={
                "where": final.where,
                "baseline": best,
                "difference": gap.mean,
                "low": gap.low,
                "high": gap.high,
                "n": gap.n,
            },
            causes=("not-learnt", "other-weights"),
        )


def _compare_with_baselines(final: Final, history: History) -> tuple[str, Interval] | None:
    """The baseline that is the best on an evaluation's examples, and how far the model is above
    it."""
    if (final.stage, final.mode) != (history.name, "greedy"):
        return None
    mine = {row.id: row.reward for row in final.evaluation.rows}
    above = {}
    for one in history.finals:
        if (one.stage, one.task, one.split) == (
            REFERENCE,
            final.task,
            final.split,
        ) and one.mode != "oracle":
            rows = [row for row in one.evaluation.rows if row.id in mine]
            if len(rows) >= NO_BETTER_ENOUGH:
                above[one.mode] = paired_difference(
                    [row.reward for row in rows], [mine[row.id] for row in rows], clusters_of(rows)
                ).difference
    if not above:
        return None
    best = min(above, key=lambda name: above[name].mean)
    return best, above[best]


PART_LOST_SURE = 4.0
"""Standard errors below 0 of the paired difference: a chance of 3 in 10^5, so that a dozen parts
may be looked at."""
LARGE = 0.1
PART_LOST_ENOUGH = 20


@rule("part-lost", "finals", kinds=BOTH, live=False)
def find_part_lost(history: History) -> Iterator[Finding]:
    """The reward rose on held-out examples, and one of its parts fell: what was won was paid with
    something else.

    Every part of every greedy evaluation of the stage, on the examples that have it both times.
    """
    for after, before in pair_stage_evaluations(history):
        try:
            rose = compare(before.evaluation, after.evaluation).difference
        except IncomparableError:
            continue  # `gain` says so
        if rose.low <= 0:
            continue
        first = {row.id: row.parts for row in before.evaluation.rows}
        changes: dict[str, list[float]] = {}
        for row in after.evaluation.rows:
            for name, value in row.parts.items():
                old = first.get(row.id, {}).get(name)
                if value is not None and old is not None:
                    changes.setdefault(name, []).append(value - old)
        for name, found in changes.items():
            mean, n = float(np.mean(found)), len(found)
            error = float(np.std(found, ddof=1)) / n**0.5 if n > 1 else np.inf
            if n < PART_LOST_ENOUGH or mean > -LARGE or mean > -PART_LOST_SURE * error:
                continue
            yield Finding(
                "warning",
                about=name,
                evidence={
                    name: mean,
                    "where": after.where,
                    "stage": after.stage,
                    "reward": rose.mean,
                    "lost": -mean,
                    "n": n,
                },
                causes=("cheaper-parts", "cheat"),
            )


SHORT, LONG = 30, 100
"""Logged steps: below the first nothing is said, from the second on it is a warning."""
NO_RISE_TOP = 0.9
"""Of the most that can be earned, where that is known: little is left to gain."""
STILL = 1e-3
"""Nats to the reference, below which the policy has hardly moved."""

STANDSTILL = {"entropy": 0.05, "completion_length": 0.1}
"""Shares of their level that no change of these can be above, where nothing moves."""
STANDSTILL_LONG, STANDSTILL_REWARD = 40, (-0.5, 0.25)
"""Logged steps, and what the reward may have changed by, in its deviation within groups."""
ROUNDED = 1e-5
"""A rate that most weights of bfloat16 round away: one of 0.02 changes from 4e-5 on."""

LATE, SEEN = 5, 0.1
"""Distances between logged steps, and share of all steps, before the first logged one: what came
before is unseen."""


@rule("no-rise", "reward", live=False)
def find_no_rise(history: History) -> Iterator[Finding]:
    """The reward did not rise, and no other finding says why: what the figures make likely.

    Causes are ranked by what is sure; evaluations that rise refute it.
    """
    came = measure_outcome(history)
    if came is None or came.better is not False or came.change.n < SHORT:
        return
    if came.change.mean > came.matters and find_kl_anchor(history) is None:
        return  # a rise that noise alone leaves open is none that fails
    highest = max_reward(history)
    if highest is not None and max(came.first, came.last) > NO_RISE_TOP * highest:
        return
    if fit_trend(history["eval/reward"].values).t > 3:
        return
    spread = history["reward_std"].finite_values
    scale = (median(spread) if len(spread) else 0.0) or abs(came.first)
    near = highest is None and NO_RISE_TOP <= came.first <= 1
    flat = came.change.high < MATTERS * scale and not near
    steps = history["reward"].steps
    late = bool(steps[0] > max(LATE * median(np.diff(steps)), SEEN * steps[-1]))
    seen, possible = dict(_causes_seen(history)), dict(_causes_possible(history, came))
    still = {} if near or late else _find_standstill(history, came, scale)
    yield Finding(
        "warning" if still or (flat and not late and came.change.n >= LONG) else "note",
        "nothing-moves" if still else "no-rise",
        since=steps[0],
        evidence={
            "first": came.first,
            "last": came.last,
            "change": came.change.mean,
            "low": came.change.low,
            "high": came.change.high,
            "n": came.change.n,
            "open": came.change.high > came.matters and not (flat or near),
            **still,
            **seen,
            **possible,
        },
        causes=(
            *(("little-left",) if near else ()),
            *(("late-log",) if late else ()),
            *(code for code in seen if code != KL_AT_FIRST),
            *(("weights-stay",) if still and not seen else ()),
            *possible,
        )
        or ("few-answers", "reward-blind"),
        shown=not (late or near) and (flat or bool(seen)),
    )


def _find_standstill(history: History, came: RewardOutcome, scale: float) -> dict[str, float]:
    """The entropy and the length of answers, where neither they nor the reward can have changed by
    much, though groups differ and have a gradient; empty where something may move."""
    low, high = STANDSTILL_REWARD
    gradient = history["grad_norm"]
    if (
        came.change.n < STANDSTILL_LONG
        or not low * scale < came.change.low < came.change.high < high * scale
        or not (~zero_mask(gradient, NO_GRADIENT)).sum() > len(gradient) / 2
        or not groups_differ_late(history)
        or policy_moved(history)
        or (is_moving(history["kl"].values) and find_kl_anchor(history) is None)
    ):
        return {}
    levels = {}
    for name, most in STANDSTILL.items():
        values = history[name].finite_values
        if len(values) >= STANDSTILL_LONG:
            third, levels[name] = len(values) // 3, float(values.mean())
            change = measure_shift(values, third, third).interval
            if max(-change.low, change.high) > most * levels[name]:
                return {}
    return levels if "entropy" in levels else {}


def _has_bfloat16_norms(history: History) -> bool:
    """Whether all gradient norms are numbers of bfloat16: so are gradients, and their weights."""
    values = history["grad_norm"].finite_values
    single = values.astype(np.float32)
    exact = (single == values) & (single.view(np.uint32) & 0xFFFF == 0)
    return len(set(values.tolist())) >= WINDOW and bool(exact.all())


def _causes_seen(history: History) -> Iterator[tuple[str, Any]]:
    """Codes of what the log shows, the surest first, each with its figure."""
    highest, share, cut = (
        highest_learning_rate(history),
        recent_median(history["frac_reward_zero_std"]),
        recent_median(history["frac_truncated"]),
    )
    if (anchor := find_kl_anchor(history)) is not None:
        yield from anchor.items()
    elif not policy_moved(history):
        of_weights = is_adapter_rate_low(history)
        if of_weights:
            yield "rate-for-weights", highest
        if highest < ROUNDED and _has_bfloat16_norms(history):
            yield "rounded-away", highest
        if 0 < abs(recent_median(history["kl"])) < STILL:
            yield "kl-still", recent_median(history["kl"])
        if highest < FULL[0] and not of_weights:
            yield "low-rate", highest
    if share > 0.5:
        yield "equal-groups", share
    if cut > 0.3:
        yield "cut", cut


def _causes_possible(history: History, came: RewardOutcome) -> Iterator[tuple[str, float]]:
    """Codes of what may be so in sound runs, too, each with its figure."""
    highest = highest_learning_rate(history)
    noise = standard_error_of_mean(history["reward"].finite_values, 1)
    if noise > 0.1 * max(abs(came.first), abs(came.last)):
        yield "scatter", noise
    if (
        FULL[0] <= highest < ADAPTERS[0]
        and "model.lora.rank" not in history.settings
        and not policy_moved(history)
    ):
        yield "rate-if-adapter", highest


@rule("unfinished", "loss|reward|learning_rate", kinds=BOTH, live=False)
def find_unfinished(history: History) -> Iterator[Finding]:
    """A run that ended before its steps did.

    Where the planned number of steps is known. It may still be going on, so it is a note.
    """
    planned = history.settings.get("steps")
    if isinstance(planned, int) and not history.finished and history.last_step < planned - 1:
        yield Finding(
            "note",
            since=history.last_step,
            evidence={"share": round(history.last_step / planned, 3), "steps": planned},
            causes=("running", "stopped"),
        )
