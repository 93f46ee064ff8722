"""Where the policy goes: KL, sampler against scorer, entropy, weights that are random or stand
still."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from plumbline.checks.check import Finding
from plumbline.checks.diagnosis.facts import (
    LONG,
    groups_differ_late,
    has_enough_rows,
    max_reward,
    recent_median,
    reward_rises,
    reward_stands,
    sampler_matches,
    unrefuted_causes,
    zero_mask,
)
from plumbline.checks.diagnosis.history import Final, History, Series
from plumbline.checks.diagnosis.outcome import measure_outcome
from plumbline.checks.diagnosis.rule import BOTH, persisted, rule
from plumbline.checks.diagnosis.rules.steps import highest_learning_rate, rate_evidence
from plumbline.checks.diagnosis.trends import (
    block_kendall_z,
    end_means,
    end_medians,
    fit_trend,
    is_moving,
    measure_shift,
    median,
    start_of_last_stretch,
    tenth_of,
)
from plumbline.evaluation.comparison import restrict_to_examples

FIRST = 0.05
"""Nats: before the first update policy and reference are one model; 16 bits leave about 0.001
between two passes."""
APART = 1.0
"""Below, it may be meant: the reference is the model before SFT, or a teacher, as in 12 runs of 2
public projects."""
HUGE = 10.0
AWAY = 0.1
"""Nats a token that the policy went away from the reference, which its samples would show."""
SURE = 2.5
"""Standard errors of the order of eight means: all but two pairs of neighbours ascend."""
TIMES, KL_LONG = 5.0, 40
SAMPLED = ("reward", "completion_length", "entropy", "frac_truncated")
"""What is measured on samples."""


@rule(
    "kl",
    "kl|kl_sum",
    stops=lambda history, since: (
        persisted(10)(history, since) and median(history["kl"].last(10).values) > HUGE
    ),
)
def find_kl(history: History) -> Iterator[Finding]:
    """The KL to the reference: exploding, of the wrong sign, there from the first step, void, or
    unseen by samples.

    In the order of how bad it is; one finding.
    """
    series = history["kl"]
    steps, values = series.finite
    if not len(values):
        negative = list(_find_negative_kl(history["kl_sum"], BELOW, summed=True))
        yield from negative or _find_costly_kl(history)
        return
    began = steps[0] <= 1 and values[0] > APART
    beta = history.settings.get("rl.beta")
    middle = median(values)
    high = values > HUGE
    if high.sum() >= 3 or values[-1] > 100:
        lasts = bool(high[-tenth_of(values) :].mean() > 0.5 or high[-3:].all())
        yield Finding(
            "fatal" if lasts else "warning",
            "explodes-from-start" if began else "explodes",
            since=steps[high][0],
            evidence={
                "highest": values.max(),
                "median": middle,
                "first": values[0],
                "steps": high.sum(),
                "logged steps": len(values),
                "goes back": not lasts,
            },
            causes=unrefuted_causes(
                *((one, not began) for one in TWO_MODELS),
                ("high-rate", began and values.max() < GROWN * values[0]),
                ("read-apart", began),
            ),
        )
    elif steps[0] <= 2 and values[0] > FIRST and not values[0] < 0.2 * middle:
        yield Finding(
            "warning" if values[0] > APART else "note",
            "apart-from-start",
            since=steps[0],
            evidence={"first": values[0], "median": middle},
            causes=TWO_MODELS,
            shown=(came := measure_outcome(history)) is not None and came.better is False,
        )
    elif below := list(_find_negative_kl(series, 0.01)):
        yield from below
    elif len(values) >= 5 and zero_mask(series, 1e-300).all():
        # TRL's own loss has entropy and clip, and a KL only where it is charged; Unsloth's logs a
        # KL of 0 without one.
        own = (
            history.origin == "trl"
            and len(history["entropy"]) > 0
            and len(history["clip_fraction"]) > 0
        )
        wanted = beta > 0 if isinstance(beta, int | float) else own
        still = len(history["grad_norm"]) > 0 and bool(zero_mask(history["grad_norm"], 1e-10).all())
        yield Finding(
            "warning" if wanted else "note",
            "always-zero" if wanted else "not-charged",
            since=steps[0],
            evidence={"beta": beta},
            causes=_zero_kl_causes(history, wanted=wanted, still=still),
        )
    elif _samples_ignore_kl(history):
        yield Finding(
            "warning",
            "unseen-by-samples",
            since=steps[np.argmax(values > AWAY)],
            evidence={"first": values[0], "last": values[-1]},
            causes=("old-weights", "other-name"),
        )
    else:
        yield from _find_drift(history)


FAR, FOURFOLD = 1.0, 4.0
"""Nats a token, at which the policy gives its answers' tokens e times the reference's probability,
and the times that it then grew by while the reward stood."""


def _find_drift(history: History) -> Iterator[Finding]:
    """A KL that grows on and on while the reward gains nothing."""
    steps, values = history["kl"].finite
    last = median(values[-tenth_of(values) :])
    start = start_of_last_stretch(steps, values > last / FOURFOLD)
    if last > FAR and start not in {None, int(steps[0])} and reward_stands(history, start or 0):
        yield Finding(
            "warning",
            "drifts",
            since=start,
            evidence={"first": history["kl"].at(start)[0], "last": last},
            causes=("high-rate", "no-anchor"),
        )


def _find_costly_kl(history: History) -> Iterator[Finding]:
    """A KL whose penalty grows by more than the reward: what is trained for falls for sure."""
    charged, sums = history["reward_after_kl"].finite_values, history["kl_sum"].finite_values
    third = min(len(charged), len(sums)) // 3
    if third < 4:
        return
    found, (first, last) = measure_shift(charged, third, third), end_means(sums, third)
    if found.interval.high < 0 and last > GROWN * max(first, 0.0):
        yield Finding(
            "warning",
            "outgrows-reward",
            since=history["kl_sum"].steps[0],
            evidence={
                "reward first": found.first,
                "reward last": found.last,
                "first": first,
                "last": last,
            },
            causes=("high-rate", "no-anchor"),
        )


TWO_MODELS = ("dropout", "sft-adapter", "other-reference")
GROWN = 10.0
"""Times the first one, from which a KL that was there before the first update grew by training,
too."""
BELOW = 0.5
"""Nats under 0 that the mean KL of whole answers does not have by chance: a hundredth a token of
fifty."""


def _find_negative_kl(series: Series, limit: float, *, summed: bool = False) -> Iterator[Finding]:
    """A KL whose mean is below 0, which none can be."""
    values = series.finite_values
    if len(values) and (values < -limit).mean() > 0.5:
        yield Finding(
            "warning",
            "negative",
            since=series.steps[series.values < -limit][0],
            evidence={"median": median(values), "of answers": summed},
            causes=("wrong-sign", "other-sampling"),
        )


def _zero_kl_causes(history: History, *, wanted: bool, still: bool) -> tuple[str, ...]:
    """Why a KL may be 0 at every step."""
    same = ("reference-is-policy",) if wanted else ()
    if not (wanted or still):
        return ("beta-zero",)
    if reward_rises(history):
        return same
    live = (
        len(history["grad_norm"]) > 0
        and not still
        and bool((history["learning_rate"].values > 0).any())
    )
    return ("other-weights", *same) if live else (*same, "weights-stay")


def _samples_ignore_kl(history: History) -> bool:
    """Whether the KL grows steadily while the reward and the length or the entropy of samples stand
    still."""
    values = history["kl"].finite_values
    if len(values) < KL_LONG or sampler_matches(history):
        return False
    width, up = len(values) // 5, block_kendall_z(values)
    first, last = end_medians(values, width)
    known = [name for name in SAMPLED if len(history[name]) >= KL_LONG]
    return (
        up > SURE
        and last > AWAY
        and last > TIMES * max(first, 1e-3)
        and len(known) >= 2
        and "reward" in known
        and not any(is_moving(history[name].values) for name in known)
    )


LIMIT, LIMIT_KL = 0.1, 0.05
"""Nats a choice: two engines in 16 bits differ by about .01 to .05 (trl#5312 had .015, and .201
with stale weights). Of a KL divergence between them, which is about half the square of what single
tokens differ by: .0005 to .005 there."""
ALWAYS_KL = 0.2
"""Where it was as high at first: filters of the sampler and asynchronous training have some."""
SOME, SOME_KL = 0.05, 0.03
LEAST, LEAST_KL = 0.005, 0.001
"""What it is taken to be at first, if it was less."""
WINDOW = 10
GROWS = 4.0


def _should_stop(history: History, since: int) -> bool:
    """Not below what the recipe allows."""
    allowed = history.settings.get("rl.max_gap") or LIMIT
    stands = (
        recent_median(history["logprob_gap"]) > allowed
        or recent_median(history["mismatch_kl"]) > LIMIT_KL
    )
    return persisted(10)(history, since) and stands


@rule(
    "gap", "logprob_gap|mismatch_kl|importance_ratio_mean|importance_ratio_max", stops=_should_stop
)
def find_gap(history: History) -> Iterator[Finding]:
    """Sampler and scorer are two distributions: temperature, filters, masks, stale weights, or 16
    bits.

    The mean gap now, and whether it widened; the KL divergence; then importance ratios.
    """
    found = (
        _find_cut_sampler(history)
        or _find_wide_gap(history, "logprob_gap", SOME, LIMIT, LEAST)
        or _find_wide_gap(history, "mismatch_kl", SOME_KL, LIMIT_KL, LEAST_KL)
    )
    yield from [found] if found is not None else _find_far_ratios(history)


def _find_wide_gap(
    history: History, name: str, some: float, limit: float, least: float
) -> Finding | None:
    """What a logged difference says of itself."""
    steps, values = history[name].finite
    values = np.abs(values)
    if len(values) < 3:
        return None
    first, last = end_medians(values, WINDOW)
    widened = len(values) >= 2 * WINDOW and last > GROWS * max(first, least) and last > some / 2
    if not (last > some or widened):
        return None
    over = values > (GROWS / 2 * max(first, least) if widened else some)
    return Finding(
        "fatal" if last > (limit if widened or name == "logprob_gap" else ALWAYS_KL) else "warning",
        "widened" if widened else "wide",
        since=steps[np.argmax(over)],
        evidence={"measure": name, "first": first, "last": last, "highest": values.max()},
        causes=unrefuted_causes(
            "old-weights", "stale-cache", ("sharper-policy", _keeps_entropy(history))
        )
        if widened
        else ("old-weights",)  # before the first update they are the same
        if values[0] < some / 2
        else ("other-sampling", "other-template"),
    )


def _keeps_entropy(history: History) -> bool:
    """Whether the entropy is logged and did not fall."""
    values = history["entropy"].finite_values
    return len(values) >= 2 * WINDOW and median(values[-WINDOW:]) > 0.9 * median(values[:WINDOW])


FAR_OFF = 1.5


def _find_far_ratios(history: History) -> Iterator[Finding]:
    """Ratios alone cannot tell another sampler from products over a whole answer; a logged
    difference can."""
    mean, highest = history["importance_ratio_mean"], history["importance_ratio_max"]
    off = np.isfinite(mean.values) & ((mean.values > FAR_OFF) | (mean.values < 1 / FAR_OFF))
    far = len(highest) >= 5 and recent_median(highest) > 100
    in_mean = len(mean) >= 5 and bool(off[-WINDOW:].mean() > 0.5)
    if in_mean:
        found, since = median(mean.values[-WINDOW:]), int(mean.steps[off][0])
    elif far:
        found, since = recent_median(highest), int(highest.steps[np.argmax(highest.values > 100)])
    else:
        return
    most = max(highest.finite_values, default=np.inf)
    matches = sampler_matches(history)
    known = "logprob_gap" if len(history["logprob_gap"]) else "mismatch_kl"
    yield Finding(
        "warning",
        "products" if matches else "far-ratios",
        since=since,
        evidence={
            "ratio": found,
            "in the mean": in_mean,
            "logprob_gap": recent_median(history["logprob_gap"]),
            "KL divergence": recent_median(history["mismatch_kl"]),
            "measure": known,
            "difference": abs(recent_median(history[known])),
            "cut": float(most) if most < 100 else None,
            "far": far,
        },
        causes=("product-of-small",) if matches else ("other-sampler", "product"),
    )


OFF, ASIDE, HALF = 0.03, 0.8, 0.5
"""From 1, of a mean ratio; the share of the steps that it is on that side; and of the last steps'
distance, what the first ones must have."""
ONE_SIDED = (0.5, 2.0)
"""How many times the mean difference of single tokens a mean ratio of tokens is off by, where a
filter makes all of them. Of rounding it is next to none, and of whole answers far more."""


def _find_cut_sampler(history: History) -> Finding | None:
    """A mean ratio that stands off 1.

    Over draws of the sampler q the mean of p / q is the share of p that q can draw, whatever the
    temperature or the weights: below 1 where filters cut q, and above where what was recorded is
    not what was drawn by.
    """
    ratio, gap = history["importance_ratio_mean"], recent_median(history["logprob_gap"])
    values = ratio.finite_values
    if len(values) < LONG or has_filters(history):
        return None
    first, mean = end_medians(values, WINDOW)
    aside = np.sign(mean - 1) * (values - 1) > OFF / 2
    if not abs(mean - 1) > OFF or not 1 / FAR_OFF < mean < FAR_OFF or aside.mean() < ASIDE:
        return None
    # old weights draw apart with time, and their few large ratios are seldom met
    if (first - 1) / (mean - 1) < HALF:
        return None
    times = abs(np.log(mean)) / gap if gap > 0 else np.nan
    if times > ONE_SIDED[1] or times < ONE_SIDED[0]:
        return None
    return Finding(
        "warning",
        "cut" if mean < 1 else "other-record",
        since=ratio.finite[0][np.argmax(aside)],
        evidence={"ratio": mean, "logprob_gap": gap},
        causes=("filters", *(("product",) if np.isnan(times) else ()))
        if mean < 1
        else ("raw-record",),
    )


def has_filters(history: History) -> bool:
    """Whether the settings say that the sampler leaves out what the scorer counts."""
    return history.origin != "plumbline" and bool(_read_filters(history.settings))


def _read_filters(settings: Mapping[str, Any]) -> dict[str, float]:
    """Options that leave some of the distribution out, or bend it, by their names."""
    neutral = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
    found = {}
    for name, none in neutral.items():
        value = settings.get(f"drawn.{name}", settings.get(f"sampling.{name}"))
        if isinstance(value, int | float) and value > 0 and value != none:
            found[name] = value
    return found


@rule("sampling-filters", "filters")
def find_sampling_filters(history: History) -> Iterator[Finding]:
    """Settings by which the sampler draws from another distribution than the loss scores.

    An importance correction divides the whole distribution's probability by the filtered one's: a
    token then weighs what share of the distribution the filter keeps (trl#6789).
    """
    settings = history.settings
    if history.origin == "plumbline":
        return
    drawn, scored = settings.get("drawn.temperature"), settings.get("sampling.temperature", 1.0)
    if isinstance(drawn, int | float) and drawn != scored:
        figures = {"drawn": drawn, "scored": scored}
        yield Finding(
            "warning", "other-temperature", evidence=figures, causes=("options-override",)
        )
    if not (filters := _read_filters(settings)):
        return
    correction = settings.get("correction")
    corrected = correction not in (None, False, "", "null", "none", -1) and settings.get(
        "engine", True
    )
    listed = [f"{name} {value:g}" for name, value in filters.items()]
    if not corrected:
        yield Finding("note", "not-scored", evidence={"filters": listed})
        return
    ratio = recent_median(history["importance_ratio_mean"])
    yield Finding(
        "warning",
        "biased-ratio",
        evidence={
            "filters": listed,
            "ratio": None if np.isnan(ratio) else ratio,
            "least": filters.get("top_p"),
        },
        causes=("filters",),
    )


GONE = 0.005
"""Nats a token: an answer of 100 tokens then differs from the likeliest one in one of two cases."""
SHARE = 0.1
"""Of what it was at first."""
WARM = 0.8
"""A temperature that is none of the causes."""
ENTROPY_ENOUGH = 20
TWENTIETH = 0.05
"""Of the entropy at first: with less for a third of the run, and a reward that stands below what
solves the task while groups may differ, what is tried is what was tried before."""
MUCH = 1.0
"""Nats a token that it rose by; English text has about 2 to 3 under a small model."""


@rule("entropy", "entropy")
def find_entropy(history: History) -> Iterator[Finding]:
    """The entropy of what is drawn: gone, so that nothing is tried any more, or running away.

    The first tenth of the steps against the last.
    """
    steps, values = history["entropy"].finite
    if not has_enough_rows(history["entropy"], ENTROPY_ENOUGH) or (values < -1e-6).any():
        return  # a loss term of that name, with its sign
    width = tenth_of(values)
    first, last = end_medians(values, width)
    third = len(values) // 3
    since = int(steps[-third])
    reward, late = (fit_trend(history["reward"].since(step).values) for step in (0, since))
    top, recent = max_reward(history) or 1.0, recent_median(history["reward"])
    solved = recent > SOLVED * top and (recent <= top or reward.t > 2)
    if last < GONE and last < SHARE * first:
        gone = np.flatnonzero(values < GONE)
        yield Finding(
            "note" if solved or late.t > 2 else "warning",
            "gone",
            since=steps[gone[0]] if len(gone) else None,
            evidence={"first": first, "last": last},
            causes=unrefuted_causes(
                ("few-prompts", 0 < recent_median(history["epoch"]) < 1),
                (
                    "low-temperature",
                    history.settings.get("sampling.temperature", 0) >= WARM or first > MUCH,
                ),
                ("clip", recent_median(history["clip_fraction"]) == 0),
                "no-penalty",
            ),
        )
    elif median(values[-third:]) < TWENTIETH * first and reward_stands(history, since):
        differ = groups_differ_late(history, unknown=True)
        yield Finding(
            "warning" if differ and not solved else "note",
            "spent",
            since=since,
            evidence={"first": first, "last": last},
            causes=("no-penalty", "high-rate"),
        )
    elif last > first + MUCH and last > 2 * first:
        falling = reward.t < -2
        yield Finding(
            "fatal" if falling else "warning",
            "comes-apart" if falling else "rose",
            since=steps[np.argmax(values > first + MUCH)],
            evidence={"first": first, "last": last},
            causes=unrefuted_causes(
                "high-rate", ("sampler-apart", sampler_matches(history)), "entropy-bonus"
            ),
        )


HIGH = 7.0
"""Nats a token: as much as one of 1,100 tokens drawn evenly. Random weights have the logarithm of
the vocabulary (32,000: 10.4; 152,000: 11.9); a pretrained model has 1 to 4 on any text of a
language that it knows."""
BOILS = 4.5
"""Likewise of what a model itself draws, which has less than any text."""
COOL = 1.2
"""A temperature, up to which it is none of the causes."""
MOST = 13.0
"""The logarithm of 440,000: what is higher is no mean over tokens."""
KNOWN = 0.05
"""Share of right next tokens, where that is logged."""


BREAKS = 5e-4
"""A rate that can break a pretrained model before the first logged row, which stands for several
steps."""


@rule("untrained", "loss|entropy", kinds=BOTH)
def find_untrained(history: History) -> Iterator[Finding]:
    """A model that knows nothing at the first step: random weights, or weights that were loaded
    only in part.

    The first loss of supervised training, the first entropy of RL. Who pretrains knows it: then it
    is no fault.
    """
    known = (history["correctness/accuracy"].values[:1] > KNOWN).any()
    if history.name == "base" or history.has("preference/") or known:
        return
    series = history["entropy" if history.kind == "rl" else "loss"]
    values = series.finite_values
    right = history["token_accuracy"].values
    drawn = history.kind == "rl"
    if not len(values) or series.steps[0] > 10:
        return
    first = median(values[:3]) if drawn else float(values[0])
    if not (BOILS if drawn else HIGH) <= first <= MOST:
        return
    if (len(right) and right[0] > KNOWN) or (not drawn and first < HIGH * _scale(history)):
        return
    if not drawn and (history["entropy"].values[:1] < first / 2).any():
        return  # who knows nothing is unsure: this model was trained on other texts
    broke = (
        history.kind == "sft" and series.steps[0] > 1 and highest_learning_rate(history) >= BREAKS
    )
    yield Finding(
        "warning" if len(right) or drawn else "note",
        "boils" if drawn and first < HIGH else "untrained",
        since=series.steps[0],
        evidence={"entropy" if drawn else "loss": first}
        | ({"token_accuracy": right[0]} if len(right) else {})
        | rate_evidence(history),
        causes=unrefuted_causes(
            ("broke-at-first", not broke),
            (
                "high-temperature",
                not drawn or history.settings.get("sampling.temperature", 9) <= COOL,
            ),
            "not-loaded",
            "other-tokenizer",
        ),
    )


def _scale(history: History) -> float:
    """How many times the held-out loss the logged one is at the same step: a sum over batches is no
    mean of tokens."""
    held, loss = history["eval/loss"], history["loss"]
    at = np.isfinite(held.values) & (held.values > 0)
    if history.kind == "rl" or not at.any():
        return 1.0
    near = np.argmin(np.abs(loss.steps - held.steps[at][0]))
    return float(loss.values[near] / held.values[at][0])


SAME = 0.99
ENOUGH = 20
SOLVED = 0.9
"""Share of the most that can be earned, 1 where that is unknown, from which on equal answers are
right ones."""
UNCHANGED_LONG = 20
"""Characters of the median answer: a word may well stay what it was."""


@rule("unchanged", "finals", kinds=BOTH, live=False)
def find_unchanged(history: History) -> Iterator[Finding]:
    """A stage after which every greedy answer is what it was: the weights that are evaluated are
    not the trained ones.

    Each greedy evaluation of the stage against the stage before it, by text.
    """
    for after, before in pair_stage_evaluations(history):
        texts = {row.id: row.completion for row in before.evaluation.rows}
        rows = [row for row in after.evaluation.rows if row.id in texts]
        if len(rows) < ENOUGH or after.evaluation.mean_reward > SOLVED:
            continue
        same = sum(row.completion == texts[row.id] for row in rows)
        lengths = sorted(len(row.completion) for row in rows)
        if same < SAME * len(rows) or lengths[len(lengths) // 2] < UNCHANGED_LONG:
            continue
        yield Finding(
            "warning",
            evidence={
                "same": same,
                "n": len(rows),
                "stage": after.stage,
                "where": after.where,
                "before": before.stage,
            },
            causes=("old-weights", "low-rate"),
        )


def pair_stage_evaluations(history: History) -> Iterator[tuple[Final, Final]]:
    """Greedy evaluations of this stage, each with that of the stage before it on the same split.

    The untrained model may have been asked fewer examples: the other is of these then.
    """
    stages = list(dict.fromkeys(one.stage for one in history.finals if one.stage != "reference"))
    if history.name not in stages or stages.index(history.name) == 0:
        return
    earlier = stages[stages.index(history.name) - 1]
    for after in history.finals:
        if after.stage == history.name and after.mode == "greedy":
            for before in history.finals:
                if (before.stage, before.task, before.split, before.mode) == (
                    earlier,
                    after.task,
                    after.split,
                    "greedy",
                ):
                    of = after.evaluation
                    if earlier == "base":
                        of = restrict_to_examples(of, before.evaluation)
                    yield replace(after, evaluation=of), before
