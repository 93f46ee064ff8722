"""Preference training, of policies and reward models: pairs that teach nothing, are swapped, or
lose probability."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.check import Finding
from plumbline.checks.diagnosis.facts import is_every_step, unrefuted_causes, zero_mask
from plumbline.checks.diagnosis.history import History, Series
from plumbline.checks.diagnosis.rule import rule
from plumbline.checks.diagnosis.rules.losses import FEW
from plumbline.checks.diagnosis.rules.steps import highest_learning_rate
from plumbline.checks.diagnosis.trends import (
    block_kendall_z,
    end_means,
    kendall_z,
    measure_shift,
    median,
    standard_error_of_mean,
)
from plumbline.records import BoolArray, FloatArray

GUESS = float(np.log(2))
"""The loss of a pair that a coin decides, where the loss is the logarithm of a sigmoid: DPO's, a
reward model's."""
ZERO = 1e-6
"""A margin below is none."""
EXACT, ABOUT = 1e-4, (-0.015, 0.08)
"""Nats that a loss may be off it: printed with four digits, and in the middle of rows: noise adds
to it."""
ROUNDED = 1e-6
"""A rate above moves some 16-bit weights."""
MOST, ROWS, SINGLE = 0.9, 5, 10
"""Share of the rows; rows that are means of several steps, and rows of single steps, which a warmup
may silence."""
LONG = 16
"""Rows, from which on pairs that are not told apart may be said to be learnt nothing of."""
ORDERED, SURE = 2.5, 3.0
"""Standard errors: of the order of eight means, of an accuracy below a half, of a margin above
0."""
COIN = 0.05
"""An accuracy's distance from a half."""


RIGHT = ("preference/accuracy", "correctness/accuracy", "correctness/acc")


def read_margin(history: History) -> Series:
    """The logged margin, or what chosen and rejected answers differ by."""
    margin, chosen, rejected = (
        history[f"preference/{name}"] for name in ("margin", "chosen", "rejected")
    )
    if len(margin) or not np.array_equal(chosen.steps, rejected.steps):
        return margin
    return Series(
        chosen.steps, chosen.values - rejected.values, chosen.rounding + rejected.rounding
    )


def read_accuracy(history: History) -> FloatArray:
    """The accuracy of the pairs; TRL's reward models, NeMo-RL and OpenRLHF write it without a
    prefix."""
    return next(
        (found for name in RIGHT if len(found := history[name].finite_values)), np.array([])
    )


@rule("no-margin", "preference/|loss", kinds=("sft",))
def find_no_margin(history: History) -> Iterator[Finding]:
    """Pairs of which nothing is learnt: the margin is 0 and the loss ln 2 throughout, or about so
    (a warning).

    A margin of exactly 0 has a cause that no step mends; one that only stands may be of labels that
    say nothing.
    """
    margin, loss = read_margin(history), history["loss"]
    needed = ROWS if not is_every_step(loss) or not is_every_step(margin) else SINGLE
    if max(len(margin), len(loss)) < LONG and _is_warming_up(history["learning_rate"].values):
        return
    none = _is_nearly_always(zero_mask(margin, ZERO), needed)
    guess = _is_nearly_always(np.abs(loss.values - GUESS) < EXACT + loss.rounding, SINGLE)
    if none or guess:
        series = margin if none else loss
        yield Finding(
            "fatal" if none or not len(margin) else "warning",
            "zero-margin" if none else "equal-loss",
            since=series.steps[0],
            evidence={
                "loss": round(float(np.nanmedian(loss.values)), 4) if len(loss) else None,
                "logged steps": len(series),
                "loss is ln 2": guess,
            },
            causes=_no_margin_causes(history)
            if none or not len(margin)
            else ("low-rate", "beta-near-zero"),
        )
        return
    right, values, margins = (
        read_accuracy(history),
        loss.finite_values,
        margin.finite_values,
    )
    late, apart = right[-(len(right) // 2) :], margins[-(len(margins) // 2) :]
    if (
        len(right) >= LONG
        and len(values) >= LONG
        and ABOUT[0] < median(values[-(len(values) // 2) :]) - GUESS < ABOUT[1]
        and abs(float(late.mean()) - 0.5) < COIN
        and not (
            len(margins) >= LONG
            and apart.mean() > SURE * standard_error_of_mean(margins, len(apart))
        )
        and not any(
            _is_rising(series, every=is_every_step(loss)) for series in (right, margins, -values)
        )
    ):
        yield Finding(
            "warning",
            "coin",
            since=loss.steps[0],
            evidence={
                "accuracy": round(float(late.mean()), 3),
                "loss": median(values),
                "logged steps": len(right),
            },
            causes=("random-labels", "low-rate-or-beta", "cut-early"),
        )


def _is_nearly_always(mask: BoolArray, needed: int) -> bool:
    """Whether nearly all rows are so, the last among them, and there are enough."""
    return len(mask) >= needed and bool(mask[-1]) and float(mask.mean()) >= MOST


def _is_warming_up(rates: FloatArray) -> bool:
    """Whether the rate is rising still."""
    return len(rates) > 1 and bool(rates[-1] == rates.max() > 1.5 * rates[0])


def _is_rising(values: FloatArray, *, every: bool) -> bool:
    """Whether a series rises for sure: its thirds, or of a curve the order of its blocks."""
    if len(values) < FEW[every]:
        return False
    third = len(values) // 3
    return measure_shift(values, third, third).interval.low > 0 or block_kendall_z(values) > ORDERED


def _no_margin_causes(history: History) -> tuple[str, ...]:
    """By what is logged: equal texts have equal log-probabilities, and rewards of 0 are those of
    the reference."""
    chosen, rejected = history["preference/logps_chosen"], history["preference/logps_rejected"]
    known = len(chosen) > 0 and np.array_equal(chosen.steps, rejected.steps)
    same = known and bool(np.allclose(chosen.values, rejected.values, rtol=1e-6, atol=1e-6))
    rewards = [history[f"preference/{name}"] for name in ("chosen", "rejected")]
    paid = any(len(one) and not zero_mask(one, ZERO).mean() >= MOST for one in rewards)
    gradient = history["grad_norm"].finite_values
    moves = len(gradient) > 0 and bool((gradient > ZERO).any())
    frozen = len(gradient) > 0 and not moves
    causes = unrefuted_causes(
        ("same-texts", moves or (known and not same)),
        ("reference-is-policy", paid or frozen or same),
        ("beta-zero", paid or moves or same),
        ("frozen", moves or same),
        ("no-rate", paid or same or highest_learning_rate(history) > ROUNDED),
    )
    return causes or ("same-column",)


LOW, HIGH = 0.45, 0.75
"""An accuracy below a half, and one of pairs that were learnt."""


@rule("swapped-pairs", "preference/", "|".join(RIGHT), kinds=("sft",))
def find_swapped_pairs(history: History) -> Iterator[Finding]:
    """Pairs that go the wrong way: their accuracy falls below a half, in training or on held-out
    pairs alone.

    The last third of training; held-out accuracies that fall, or that stay a guess, where
    training's is high.
    """
    right, steps = read_accuracy(history), history["loss"].steps
    margin = read_margin(history).finite_values
    third = max(2, len(right) // 3)
    if len(right) >= FEW[False]:
        late, error = float(right[-third:].mean()), float(right[-third:].std(ddof=1)) / third**0.5
        falls = _is_rising(-right, every=is_every_step(history["loss"])) or (
            len(margin) and _is_rising(-margin, every=False)
        )
        if late < min(LOW, 0.5 - SURE * error) and falls:
            yield Finding(
                "fatal" if late < 1 - HIGH else "warning",
                "fell",
                since=steps[-third] if len(steps) >= third else None,
                evidence={"first": right[:third].mean(), "last": late},
                causes=("swapped", "high-rate"),
            )
            return
    series = history["eval/preference/accuracy"]
    series = series if len(series) else history["eval/accuracy"]
    held = series.finite_values
    if len(held) < 3 or not len(right) or right[-third:].mean() < HIGH:
        return
    if held[-1] < LOW and held[-2] < LOW and kendall_z(held) <= 0:
        code, cause = "held-out-fell", "one-swapped"
    elif np.abs(held - 0.5).max() < COIN:
        code, cause = "held-out-coin", "random-labels"
    else:
        return
    yield Finding(
        "warning",
        code,
        since=series.steps[0],
        evidence={
            "held-out": held[-1],
            "held-out at first": held[0],
            "training": right[-third:].mean(),
        },
        causes=(cause, "other-kind"),
    )


LESS = 0.1
"""Of its size at first, by which a log-probability falls if that is to be said."""
WHOLE = 5.0
"""Nats: a log-probability below is one of a whole answer, and not a mean over its tokens."""


@rule("less-likely", "preference/logps_chosen", kinds=("sft",))
def find_less_likely(history: History) -> Iterator[Finding]:
    """The chosen answers lose probability, too, while margins grow: what is learnt is only what to
    avoid.

    Common in DPO, and a note; a warning where a whole answer's log-probability doubles.
    """
    chosen, rejected = (
        history[f"preference/logps_{name}"].finite_values for name in ("chosen", "rejected")
    )
    margin, every = (
        read_margin(history).finite_values,
        is_every_step(history["preference/logps_chosen"]),
    )
    if not _is_rising(-chosen, every=every) or (
        len(rejected) and not _is_rising(-rejected, every=every)
    ):
        return
    third = max(2, len(chosen) // 3)
    first, last = end_means(chosen, third)
    if first - last < LESS * abs(first) or (len(margin) and not _is_rising(margin, every=every)):
        return
    begun = float(chosen[: max(1, len(chosen) // 10)].mean())
    yield Finding(
        "warning" if last < 2 * begun < -2 * WHOLE else "note",
        since=history["preference/logps_chosen"].steps[0],
        evidence={"first": begun, "last": last},
        causes=("pairs-alike", "foreign-answers", "low-beta-or-high-rate"),
    )
