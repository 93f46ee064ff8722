"""What evaluations can tell: gain, plateau, noise, baselines, decoding, the end."""

from collections.abc import Iterator
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from plumbline.checks.check import Finding
from plumbline.checks.diagnosis.check import rule
from plumbline.checks.diagnosis.facts import (
    find_kl_anchor,
    max_reward,
    policy_moved,
    recent_median,
    unrefuted_causes,
)
from plumbline.checks.diagnosis.history import Final, History
from plumbline.checks.diagnosis.outcome import MATTERS, RewardOutcome, measure_outcome
from plumbline.checks.diagnosis.rules.policy import pair_stage_evaluations
from plumbline.checks.diagnosis.rules.steps import (
    ADAPTERS,
    FULL,
    adapter_rate_cause,
    highest_learning_rate,
)
from plumbline.checks.diagnosis.trends import (
    finite_values,
    fit_trend,
    kendall_z,
    max_magnitude,
    standard_error_of_mean,
)
from plumbline.errors import IncomparableError
from plumbline.evaluation.comparison import compare
from plumbline.evaluation.statistics import (
    Interval,
    detectable_difference,
    mean_interval,
)
from plumbline.records import clusters_of
from plumbline.runs.evaluations import REFERENCE

FEW = 50
"""Examples or clusters: of fewer a difference of a tenth is rarely more than noise (a team read 25
as a regression)."""


@rule("gain", needs=("finals",), kinds=("rl", "sft"), live=False)
def find_gain(history: History) -> Iterator[Finding]:
    """What the stage changed, against what its evaluation can tell from noise.

    Each greedy evaluation of this stage against the one before it on the same examples.
    """
    for after, before in pair_stage_evaluations(history):
        try:
            compared = compare(before.evaluation, after.evaluation)
        except IncomparableError as error:
            yield Finding(
                level="warning",
                what=(
                    f"{before.stage} and {history.name} cannot be compared on {after.where}: "
                    f"{error}"
                ),
                causes=("the metric or the examples changed between the stages",),
                fix="evaluate both again under one version",
            )
            continue
        change, way = compared.difference, compared.direction
        numbers = {"difference": change.mean, "low": change.low, "high": change.high, "n": change.n}
        evidence = {**numbers, "p": compared.p_value}
        if way == "fall":
            yield Finding(
                level="warning",
                what=f"after {history.name} the greedy reward on {after.where} is lower: "
                f"{change.mean:+.3f} "
                f"[{change.low:+.3f}, {change.high:+.3f}], n = {change.n}",
                evidence=evidence,
                causes=(
                    "too high a learning rate for the signal there is",
                    "what is paid in training is not what is evaluated",
                ),
                fix="compare the parts; lower the learning rate or take more answers a step",
            )
        elif way == "same":
            seen, scatter = detectable_difference(change), compared.scatter
            is_few, there = scatter.units < FEW, f"{scatter.units} {scatter.unit}"
            yield Finding(
                level="note",
                what=f"on {after.where} {history.name} changed nothing that can be told from "
                "noise: "
                f"{change.mean:+.3f} "
                f"[{change.low:+.3f}, {change.high:+.3f}], n = {change.n}, p = "
                f"{compared.p_value:.2g}"
                + (
                    f"; {there} miss differences under {seen:.2f} more than one time in five"
                    if is_few
                    else ""
                ),
                evidence=evidence,
                fix=f"to see a difference of half that size take {4 * scatter.units} {scatter.unit}"
                if is_few
                else "",
            )


LITTLE = 0.02
"""Of the highest value of a series, whatever its scale: less is no change that anybody would call
one."""
CHANCE = 0.01
"""Of one finding in evaluations that only jump about, however many names they have."""
BLOCKS = 12
AFTER, FALLING = 5, 2.3
"""Evaluations after the highest ones, and standard errors of their order, from which a run may be
past its best."""


@rule("eval-disagrees", needs=("reward", "eval/"))
def find_eval_disagrees(history: History) -> Iterator[Finding]:
    """The training reward rises and the evaluation falls: what is paid is not what is wanted, or
    not there.

    Evaluations are few and fall at once or slowly, so it is their order that counts, of all or of
    those after the highest ones, and a tenth of the height.
    """
    train, came = fit_trend(history["reward"].values), measure_outcome(history)
    wanders = came is not None and came.alike > 0 and not came.better
    if (
        train.t < 3
        or wanders
        or train.last - train.first < LITTLE * max(abs(train.first), abs(train.last))
    ):
        return
    names = [
        name
        for name in history.names("eval/")
        if not ("loss" in name or "length" in name or "/" in name)
    ]
    sure = NormalDist().inv_cdf(1 - CHANCE / max(1, len(names)))
    for name in names:
        series = history[f"eval/{name}"]
        values = finite_values(series.values)
        if len(values) < 4:
            continue
        down = _block_kendall_z(values)
        best = int(np.argmax(values))
        lost = float(values[best] - values[-1])
        if (down < -sure or _is_past_peak(values, sure)) and lost > max(
            0.1 * abs(values[best]), LITTLE * max_magnitude(values)
        ):
            yield Finding(
                level="warning",
                what=f"the training reward rises ({train.first:.3f} to {train.last:.3f}) and "
                f"eval/{name} falls "
                f"({values[best]:.3f} to {values[-1]:.3f})",
                since=int(series.steps[best]),
                evidence={
                    "training: t": round(min(train.t, 99.0), 1),
                    "evaluation: z of its order": round(down, 1),
                },
                about=name,
                causes=unrefuted_causes(
                    history,
                    "a cheat that the reward pays",
                    (
                        "the training prompts are learnt by heart",
                        lambda run: 0 < recent_median(run["epoch"]) < 1,
                    ),
                    (
                        "other prompts than those of the evaluation",
                        lambda run: not 0 < recent_median(run["epoch"]) < 1,
                    ),
                ),
                fix=(
                    f"take the checkpoint of step {series.steps[best]}; read completions with the "
                    "highest rewards"
                ),
            )


def _block_kendall_z(values: NDArray[np.float64]) -> float:
    return kendall_z(
        np.array([block.mean() for block in np.array_split(values, min(BLOCKS, len(values)))])
    )


def _is_past_peak(values: NDArray[np.float64], sure: float) -> bool:
    """Whether the last three are `sure` standard errors below the best three, and what lies between
    falls."""
    means = np.convolve(values, np.full(3, 1 / 3), mode="valid")
    after = values[int(np.argmax(means)) + 3 :]
    if len(after) < AFTER:
        return False
    places = np.linspace(-1, 1, len(values))
    error = 2**0.5 * standard_error_of_mean(
        values - np.polyval(np.polyfit(places, values, 3), places), 3
    )
    return _block_kendall_z(after) < -FALLING and float(means.max() - means[-1]) > max(
        sure * error, 1e-9
    )


FAR = 0.1


@rule("decoding", needs=("finals",), kinds=("rl", "sft"), live=False)
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
        if min(abs(change.low), abs(change.high)) > FAR and change.low * change.high > 0:
            better = "sampled" if change.mean > 0 else "greedy"
            yield Finding(
                level="warning" if better == "sampled" else "note",
                what=f"on {f'{task} {split}'.strip()} {better} answers earn {abs(change.mean):.3f} "
                f"[{min(abs(change.low), abs(change.high)):.3f}, "
                f"{max(abs(change.low), abs(change.high)):.3f}] more "
                "than "
                f"the others (n = {change.n})",
                evidence={
                    "greedy": greedy.evaluation.mean_reward,
                    "sampled": sampled.evaluation.mean_reward,
                },
                causes=(
                    "greedy answers repeat themselves or end at once",
                    "the likeliest answer is a wrong default",
                )
                if better == "sampled"
                else ("a high temperature: few sampled answers are the likeliest one",),
                fix="deploy the sampling distribution that was evaluated; say which one a "
                " figure is of",
            )
    yield from _compare_sampling(history)


def _compare_sampling(history: History) -> Iterator[Finding]:
    stages: dict[tuple[str, str, str], list[Final]] = {}
    for one in history.finals:
        if one.evaluation.sampling:
            stages.setdefault((one.task, one.split, one.mode), []).append(one)
    for (task, split, mode), found in stages.items():
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
                level="warning",
                what=f"{mode} answers to {f'{task} {split}'.strip()} were drawn in two ways: "
                f"{', '.join(differing)} "
                "differ "
                f"between {' and '.join(one.stage for one in found)}",
                evidence={
                    one.stage: str({key: sampling.get(key) for key in differing})
                    for one, sampling in zip(found, settings, strict=True)
                },
                causes=("the settings of the evaluation changed between the stages",),
                fix="evaluate both again under one sampling distribution",
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
            level="note",
            what=(
                f"training draws in {trained} denoising steps, evaluations in "
                f"{', '.join(sorted(map(str, used)))}"
            ),
            evidence={"training": trained},
            causes=("evaluation.steps",),
            fix="what is trained is the sampling distribution with the steps of training",
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


@rule("plateau", needs=("reward",), live=False)
def find_plateau(history: History) -> Iterator[Finding]:
    """The evaluation stopped rising: since when, and what else ended there.

    Of the main evaluation where there are enough, else of the training reward: two lines that meet
    at a step, the first rising, the second flat, where the first one, drawn on, leaves the values
    far below it.
    """
    name = "eval/reward" if len(history["eval/reward"]) >= PLATEAU_ENOUGH else "reward"
    series = history[name]
    steps, values = series.finite
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
    if found < QUICK and level - start < PLATEAU_SURE * noise:
        return
    yield Finding(
        level="note",
        what=(
            f"{name} rose from {start:.3f} to {level:.3f} until about step {at}, and has stayed "
            "there"
        ),
        since=at,
        evidence={"first": float(start), "plateau": level, "steps since": int(steps[-1] - at)},
        causes=tuple(_plateau_causes(history, at, level))
        or ("the model's limit on this task, or the reward's",),
        fix="change what the first cause names, and nothing else",
    )


def _two_line_errors(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The squared error [n] of a line before each place and another from it on, by sums up to
    there."""
    level = values - values.mean()
    return np.append(0.0, _line_errors(level)[:-1]) + _line_errors(level[::-1])[::-1]


def _line_errors(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The squared error [n] of a line through the values up to each, that one among them."""
    places = np.arange(len(values), dtype=np.float64)
    count, total = places + 1, np.cumsum(values)
    across = np.cumsum(places * values) - places / 2 * total
    spread = np.maximum(count * (count**2 - 1) / 12, 1.0)
    return np.maximum(np.cumsum(values**2) - total**2 / count - across**2 / spread, 0.0)


def _plateau_causes(history: History, at: int, level: float) -> Iterator[str]:
    rate, epoch, zero, entropy = (
        history["learning_rate"],
        history["epoch"],
        history["frac_reward_zero_std"],
        history["entropy"],
    )
    then = rate.since(at).values
    if len(then) and np.nanmax(then) < 0.4 * np.nanmax(rate.values):
        yield (
            f"the learning rate was down to {np.nanmax(then) / np.nanmax(rate.values):.0%} of its "
            "highest by then"
        )
    if (highest := max_reward(history)) is not None and level > PLATEAU_TOP * highest:
        yield "the reward is at its ceiling"
    if len(epoch) and 0 < epoch.values[-1] < 0.3:
        yield f"only {epoch.values[-1]:.0%} of the prompts were seen"
    if len(zero) and np.nanmean(zero.since(at).values) > 0.5:
        yield f"{np.nanmean(zero.since(at).values):.0%} of the groups have equal rewards"
    if len(entropy) and 0 <= np.nanmedian(entropy.since(at).values) < 0.01:
        yield "answers are hardly varied any more (entropy)"


EVAL_NOISE_ENOUGH = 6
STILL_NOISE = 0.005
"""Of the highest value: evaluations that scatter by less say which checkpoint is the best."""
EVAL_NOISE_SURE = 2.0
"""Times the scatter of a point, that the last third must be above the first: both are means of two
points or more."""


@rule("eval-noise", needs=("eval/reward",), live=False)
def find_eval_noise(history: History) -> Iterator[Finding]:
    """An evaluation that moves more from one time to the next than it rose: it cannot say which
    checkpoint is the best.

    Of the main evaluation: how far its last third is above its first, in standard deviations of a
    point.
    """
    values = finite_values(history["eval/reward"].values)
    if len(values) < EVAL_NOISE_ENOUGH:
        return
    third = len(values) // 3
    rise = float(values[-third:].mean() - values[:third].mean())
    noise = float(np.median(np.abs(np.diff(values))) / 0.6745 / 2**0.5)
    if (
        noise < STILL_NOISE * max_magnitude(values)
        or abs(rise) > EVAL_NOISE_SURE * noise
        or values.max() - np.median(values) < noise
    ):
        return
    yield Finding(
        level="note",
        what=f"eval/reward scatters by {noise:.3f} from one evaluation to the next and rose by "
        f"{rise:+.3f} in all: its best point ({values.max():.3f}) is the luckiest, not the best",
        evidence={"scatter": noise, "rise": rise, "points": len(values)},
        causes=("too few examples", "answers that are drawn instead of greedy ones"),
        fix="evaluate greedily and on more examples: four times as many halve the scatter",
    )


NO_BETTER_ENOUGH = 20
HALF = 0.5
"""Of what the baseline earns, under which it is warned of: a baseline may know much of a form and a
weak model little."""


@rule("no-better", needs=("finals",), kinds=("rl", "sft"), live=False)
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
            level="warning" if less else "note",
            what=f"on {final.where} the model earns "
            f"{'less than' if gap.high < 0 else 'no more than'} the baseline "
            f"{best}, which does not know the answer: {gap:+.3f}, n = {gap.n}",
            evidence={"difference": gap.mean, "low": gap.low, "high": gap.high, "baseline": best},
            causes=(
                "the model has not learnt the task",
                "the weights that were evaluated are not the trained ones",
            ),
            fix="read its answers; if they are no answers at all, begin with SFT or a larger model",
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
                above[one.mode] = mean_interval(
                    [mine[row.id] - row.reward for row in rows], clusters_of(rows)
                )
    if not above:
        return None
    best = min(above, key=lambda name: above[name].mean)
    return best, above[best]


PART_LOST_SURE = 4.0
"""Standard errors below 0 of the paired difference: a chance of 3 in 10^5, so that a dozen parts
may be looked at."""
LARGE = 0.1
PART_LOST_ENOUGH = 20


@rule("part-lost", needs=("finals",), kinds=("rl", "sft"), live=False)
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
                level="warning",
                what=f"on {after.where} {after.stage} raised the reward by {rose.mean:+.3f} and "
                "the "
                f"part {name} "
                f"fell by {-mean:.3f} (n = {n})",
                evidence={"reward": rose.mean, name: mean, "n": n},
                causes=(
                    "the parts that rose are cheaper to earn, and cost this one",
                    "a cheat that the reward pays",
                ),
                fix=f"read answers that lost {name}; raise its weight",
            )


SHORT, LONG = 30, 100
"""Logged steps: below the first nothing is said, from the second on it is a warning."""
NO_RISE_TOP = 0.9
"""Of the most that can be earned, where that is known: little is left to gain."""
STILL = 1e-3
"""Nats to the reference, below which the policy has hardly moved."""

LATE, SEEN = 5, 0.1
"""Distances between logged steps, and share of all steps, before the first logged one: what came
before is unseen."""


EXPLAIN = (
    *(
        "no-signal",
        "rate-exhausted",
        "small-updates",
        "gap",
        "kl",
        "loss-zero",
        "reward-falls",
        "truncation",
    ),
    *(
        "zero-variance-groups",
        "dead-part",
        "parts-oppose",
        "entropy",
        "length",
        "degenerate-output",
    ),
    *(
        "identical-samples",
        "gradient-spikes",
        "mostly-noise",
        "clip-idle",
        "lost-reward",
        "parser",
        "references",
    ),
    *(
        "gold-unpaid",
        "unjudged",
        "outage",
        "prompts",
        "goes-on",
        "wrong-language",
        "jump",
        "untrained",
        "gain",
        "not-finite",
    ),
)
"""Checks whose findings say why a reward did not rise."""


@rule("no-rise", needs=("reward",), live=False)
def find_no_rise(history: History) -> Iterator[Finding]:
    """The reward did not rise, and no other finding says why: what the figures make likely.

    Causes are ranked by what is sure; evaluations that rise refute it.
    """
    came = measure_outcome(history)
    if came is None or came.better is not False or came.change.n < SHORT:
        return
    if came.change.mean > came.matters and not find_kl_anchor(history):
        return  # a rise that noise alone leaves open is none that fails
    highest = max_reward(history)
    if highest is not None and max(came.first, came.last) > NO_RISE_TOP * highest:
        return
    if fit_trend(history["eval/reward"].values).t > 3:
        return
    spread = finite_values(history["reward_std"].values)
    scale = (float(np.median(spread)) if len(spread) else 0.0) or abs(came.first)
    near = highest is None and NO_RISE_TOP <= came.first <= 1
    flat = came.change.high < MATTERS * scale and not near
    steps = history["reward"].steps
    late = bool(steps[0] > max(LATE * np.median(np.diff(steps)), SEEN * steps[-1]))
    causes = tuple(_causes_seen(history))
    seen = bool(causes)
    causes = (*causes, *_causes_possible(history, came))
    if late:
        causes = (f"the log begins at step {steps[0]}: a rise before it is not seen", *causes)
    yield Finding(
        level="warning" if flat and not late and came.change.n >= LONG else "note",
        what=came.summary
        + ("" if flat or near else f": a gain of up to {came.change.high:.3f} is not ruled out"),
        since=int(steps[0]),
        evidence={
            "first": came.first,
            "last": came.last,
            "change": came.change.mean,
            "high": came.change.high,
        },
        causes=(("little is left to gain, if 1 is the most that can be earned",) if near else ())
        + causes
        or (
            "few answers a step for the signal there is",
            "a reward that better answers do not raise",
        ),
        fix="change what the first cause names, and nothing else; then score twenty answers by hand",
        follows=EXPLAIN,
        shown=not (late or near) and (flat or seen),
    )


def _causes_seen(history: History) -> Iterator[str]:
    """What the log shows, the surest first."""
    highest, share, cut = (
        highest_learning_rate(history),
        recent_median(history["frac_reward_zero_std"]),
        recent_median(history["frac_truncated"]),
    )
    if why := find_kl_anchor(history):
        yield f"the KL term outweighs the reward: {why}"
    elif not policy_moved(history):
        yield from (
            f"{cause}: the learning rate is {highest:.1e}" for cause in adapter_rate_cause(history)
        )
        if 0 < abs(recent_median(history["kl"])) < STILL:
            yield (
                "updates that are too small: the KL to the reference is "
                f"{recent_median(history['kl']):.1g} nats at the end"
            )
        if highest < FULL[0] and not adapter_rate_cause(history):
            usual = f"{FULL[0]:.0e} to {FULL[1]:.0e} for all weights, more for adapters"
            yield f"a learning rate of {highest:.1e}: usual are {usual}"
    if share > 0.5:
        yield f"{share:.0%} of the groups have equal rewards and teach nothing"
    if cut > 0.3:
        yield f"{cut:.0%} of the answers are cut by the limit"


def _causes_possible(history: History, came: RewardOutcome) -> Iterator[str]:
    """What may be so in sound runs, too."""
    highest = highest_learning_rate(history)
    noise = standard_error_of_mean(finite_values(history["reward"].values), 1)
    if noise > 0.1 * max(abs(came.first), abs(came.last)):
        yield f"few answers a step: its mean reward scatters by {noise:.2g}"
    if (
        FULL[0] <= highest < ADAPTERS[0]
        and "model.lora.rank" not in history.settings
        and not policy_moved(history)
    ):
        yield (
            f"a learning rate of {highest:.1e}, which is too low if an adapter is trained "
            f"({ADAPTERS[0]:.0e} and more)"
        )


@rule("unfinished", needs=("loss|reward|learning_rate",), kinds=("rl", "sft"), live=False)
def find_unfinished(history: History) -> Iterator[Finding]:
    """A run that ended before its steps did.

    Where the planned number of steps is known. It may still be going on, so it is a note.
    """
    planned = history.settings.get("steps")
    if isinstance(planned, int) and not history.finished and history.last_step < planned - 1:
        yield Finding(
            level="note",
            what=f"the records end at step {history.last_step} of {planned}",
            since=history.last_step,
            evidence={"share": round(history.last_step / planned, 3)},
            causes=("the run is going on", "it was stopped"),
            fix="figures are of what was done so far",
        )
