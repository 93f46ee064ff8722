"""What the optimiser does: learning rates, gradients, clips."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.check import Finding, Level
from plumbline.checks.diagnosis.facts import recent_median, unrefuted_causes, zero_mask
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.outcome import measure_outcome
from plumbline.checks.diagnosis.rule import BOTH, rule
from plumbline.checks.diagnosis.trends import end_medians, median, tenth_of

SPENT = 0.01
"""Of the highest rate: below it a step of AdamW moves a hundredth of what it did."""
TAIL = 0.15
"""Share of the run. A cosine to 0 over all steps is below for its last 6.4 % (arccos(-0.98)/pi), a
line for 1 %."""


def _should_stop(history: History, since: int) -> bool:  # noqa: ARG001 - the rates say since when
    """Once a tenth of the run had no rate: one that restarts is below for 3 % of it at most, with
    two cycles."""
    values = history["learning_rate"].values
    spent = (
        len(values) - 1 - np.flatnonzero(values >= SPENT * values.max())[-1]
        if values.max() > 0
        else len(values)
    )
    return spent >= max(
        10, 0.1 * (history.settings.get("steps") or 0) * len(values) / history.last_step
    )


@rule("rate-exhausted", "learning_rate", kinds=BOTH, stops=_should_stop)
def find_rate_exhausted(history: History) -> Iterator[Finding]:
    """The learning rate has run out while steps remain: they cost as much as the others and change
    nothing.

    The tail of steps whose rate is spent, up to the steps that were planned.
    """
    rate = history["learning_rate"]
    values = rate.values
    none = bool((values <= 0).all())
    if len(values) < (5 if none else 10) or not np.isfinite(values).all():
        return
    if none:
        yield _exhausted_finding(
            "fatal", int(rate.steps[0]), 1.0, float(values.max()), int(rate.steps[-1]), history
        )
        return
    low = values < SPENT * values.max()
    after = int(np.argmax(values))
    low[:after] = False  # a warmup is no end
    if not low[-1]:
        return
    start = int(rate.steps[np.flatnonzero(~low)[-1] + 1])
    planned = max(int(rate.steps[-1]), int(history.settings.get("steps") or 0))
    share = (planned - start + 1) / planned
    if share >= TAIL:
        yield _exhausted_finding(
            "fatal" if share >= 2 * TAIL else "warning",
            start,
            share,
            float(values.max()),
            planned,
            history,
        )


def _exhausted_finding(
    level: Level, start: int, share: float, peak: float, planned: int, history: History
) -> Finding:
    section = f"{history.kind}.optimiser"
    return Finding(
        level,
        "runs-out" if peak > 0 else "always-zero",
        since=start,
        evidence={
            "share of steps": round(share, 3),
            "highest": peak,
            "last": history["learning_rate"].values[-1],
            "planned steps": planned,
            "logged steps": len(history["learning_rate"]),
        },
        causes=("schedule-too-short", "resumed-past-schedule") if peak > 0 else ("no-rate",),
        change={f"{section}.schedule": "constant", f"{section}.warmup": 0.05},
    )


FAR = 1e-5
"""The sum of the rates over all steps. A step of AdamW moves a weight by about the rate (Kingma and
Ba 2015, section 2.1), so no weight has moved further; 100 steps at 1e-6, the least that papers
report for full weights, make 1e-4."""
LOW = 1e-7
"""A rate that is too low however few steps there are; at a usual one few steps are only a short
run."""
ENOUGH = 20
"""Steps, below which nobody expects anything."""
FULL, ADAPTERS = (1e-6, 5e-6), (1e-5, 1e-4)
"""Rates of RL that papers and logs report for all weights (TRL's default 1e-6, one team's 2e-6 and
5e-6), and for adapters: about ten times as high (Schulman et al. 2025, "LoRA Without Regret";
docs/research/grpo-on-real-models.md)."""
FAR_OFF = 10.0
"""Times under the usual rates, from which a rate is too low by itself."""


@rule("small-updates", "learning_rate", kinds=BOTH)
def find_small_updates(history: History) -> Iterator[Finding]:
    """A learning rate so low that the weights cannot have gone anywhere.

    The whole of what was trained.
    """
    rate = history["learning_rate"]
    values = rate.finite_values
    if len(values) < 2:
        return
    # a row may stand for the steps before it
    apart, first = int(median(np.diff(rate.steps))), int(rate.steps[0])
    if (steps := int(rate.steps[-1]) - first + (apart if first <= apart else 1)) < ENOUGH:
        return
    left = (
        max(0, (history.settings.get("steps") or 0) - int(rate.steps[-1]))
        if history.finished is False
        else 0
    )
    travelled = float(values.mean() * steps + values.max() * left)
    highest, adapter, came = (
        highest_learning_rate(history),
        is_adapter_rate_low(history),
        measure_outcome(history),
    )
    low = highest < ADAPTERS[0] / FAR_OFF and not (came and came.better)
    if 0 < travelled < FAR and not (steps < 50 and values.max() > LOW):
        code = "no-way"
    elif low and (
        adapter or (history.kind == "rl" and came and 0 < highest <= 1.001 * FULL[0] / FAR_OFF)
    ):
        code = "unusual-rate"
    else:
        return
    usual = FULL[1] if history.settings.get("model.lora.rank") is None else ADAPTERS[0]
    yield Finding(
        "warning",
        code,
        since=rate.steps[0],
        evidence={
            "sum of learning rates": travelled,
            "highest learning rate": highest,
            "steps": steps + left,
            "adapter": adapter,
        },
        causes=("rate-for-all-weights",) * adapter + ("slip",) * (code == "no-way"),
        change={f"{history.kind}.optimiser.learning_rate": usual},
    )


HIGHEST = 1e-2
"""Models of a million weights learn by RL at 1e-3; no run is known that does above."""


@rule("high-rate", "learning_rate", live=False)
def find_high_rate(history: History) -> Iterator[Finding]:
    """A learning rate far above any that RL bears, and no rise: what else broke follows from it.

    The highest that was logged or planned.
    """
    highest, came = highest_learning_rate(history), measure_outcome(history)
    if highest > HIGHEST and came is not None and came.better is False:
        yield Finding(
            "warning",
            since=history["learning_rate"].steps[0],
            evidence={"highest learning rate": highest, "usual": ADAPTERS[1]},
            causes=("slip",),
        )


def highest_learning_rate(history: History) -> float:
    """The highest rate that was logged or planned: a warmup may not be over; NaN where none is
    known."""
    logged, planned = (
        history["learning_rate"].finite_values,
        history.settings.get(f"{history.kind}.optimiser.learning_rate"),
    )
    rates = [*logged.tolist(), *([float(planned)] if isinstance(planned, int | float) else [])]
    return max(rates, default=float("nan"))


def rate_evidence(history: History) -> dict[str, float]:
    """The figure of the causes that name the highest rate, where one is known."""
    highest = highest_learning_rate(history)
    return {"rate": highest} if np.isfinite(highest) else {}


def is_adapter_rate_low(history: History) -> bool:
    """Whether a rate is one for all weights, where an adapter is known to be trained."""
    adapter = history.settings.get("model.lora.rank") is not None
    return adapter and highest_learning_rate(history) < ADAPTERS[0] / 2


SPIKE, HUGE = 10.0, 50.0
"""Times the median of the steps with a signal: many such steps are a fault, and three of the
second kind."""
AROUND = 10
"""Steps before and after one that it is compared with."""
HIGH = 2.0
"""One team's log's limit of the norm, below which no spike is counted."""
CLIP = 1.0
"""The clip of trainers that say nothing else (TRL, transformers)."""


@rule("gradient-spikes", "grad_norm", kinds=BOTH)
def find_gradient_spikes(history: History) -> Iterator[Finding]:
    """Gradients far above what is usual: steps in random directions, even where the norm is
    clipped.

    Spikes, and norms that the clip cuts nearly all the time.
    """
    series = history["grad_norm"]
    values = np.where(np.isfinite(series.values), series.values, 0.0)
    signal = (values > 1e-10) & ~np.isin(series.steps, _steps_without_signal(history))
    used = values[signal]
    if len(used) < 10:
        return
    middle = median(used)
    # A norm that is high for a while, as at first, is no spike: those around it are high, too.
    around = _running_median(used, AROUND)
    spikes = np.zeros(len(values), dtype=bool)
    spikes[signal] = used > np.maximum(SPIKE * np.maximum(around, middle), HIGH)
    # a new head, an adapter or random weights begin far off
    spikes[: tenth_of(values)] = False
    clip = history.settings.get(f"{history.kind}.optimiser.max_grad_norm")
    clip = clip if isinstance(clip, int | float) and clip else CLIP
    huge = int((spikes & (values > HUGE * middle)).sum())
    several = spikes.sum() >= max(3, 0.02 * len(values)) or huge >= 3
    if several or huge:
        yield Finding(
            "warning" if several or (spikes & (values > 100 * max(middle, HIGH))).any() else "note",
            "spikes",
            since=series.steps[spikes][0],
            evidence={"steps": spikes.sum(), "highest": values.max(), "median": middle},
            causes=("extreme-answers", "high-rate")
            if (came := measure_outcome(history)) and came.better
            else ("high-rate", "extreme-answers"),
        )
    elif middle > SPIKE * clip and history.kind == "rl":
        yield Finding(
            "warning",
            "far-above-clip",
            since=series.steps[0],
            evidence={"median": middle, "max_grad_norm": clip, "times": middle / clip},
            causes=("summed-loss", "unlikely-answers"),
        )


def _running_median(values: np.ndarray, beside: int) -> np.ndarray:
    """The median [n] of each value and so many on both sides of it, of what is there near the
    ends."""
    places, width = range(len(values)), 2 * beside + 1
    if len(values) < width:
        return np.array([median(values[max(0, at - beside) : at + beside + 1]) for at in places])
    inside = np.median(np.lib.stride_tricks.sliding_window_view(values, width), axis=1)
    first = [median(values[: at + beside + 1]) for at in places[:beside]]
    last = [median(values[at - beside :]) for at in places[-beside:]]
    return np.concatenate([first, inside, last])


def _steps_without_signal(history: History) -> np.ndarray:
    """Steps whose groups all had equal rewards: what moves the weights there is the KL alone, and
    small."""
    shares = history["frac_reward_zero_std"]
    return shares.steps[shares.values >= 1]


MOVED = 0.01
"""Nats to the reference: the rate moves the policy."""


@rule("clip-idle", "clip_fraction", live=False)
def find_clip_idle(history: History) -> Iterator[Finding]:
    """A clip that never acts, where it could.

    With one update a batch the ratio is 1 by construction: that is no fault, and often taken for
    one.
    """
    values = history["clip_fraction"].values
    if len(values) < 10 or not zero_mask(history["clip_fraction"], 1e-300).all():
        return
    epochs = history.settings.get("rl.inner_epochs")
    evidence = {"steps": len(values), "uses of a batch": epochs}
    if not (isinstance(epochs, int) and epochs > 1):
        yield Finding("note", "ratio-is-1", evidence=evidence)
        return
    yield Finding(
        "warning",
        "old-are-new",
        evidence=evidence,
        causes=unrefuted_causes(
            "recomputed",
            ("low-rate", recent_median(history["kl"]) > MOVED),
        ),
    )


CLIPPED, CLIMBED = 0.3, 2.0
"""Share of the terms that have no gradient when they are clipped, and times what it was at first.
Ratios of whole answers are clipped as often from the first step on, and no worse for it."""


@rule("clip-high", "clip_fraction")
def find_clip_high(history: History) -> Iterator[Finding]:
    """A clip that takes the gradient from much of what was drawn: updates go further than the ratio
    allows.

    The first tenth of the steps against the last.
    """
    steps, values = history["clip_fraction"].finite
    tenth = tenth_of(values)
    if len(values) < 20:
        return
    first, last = end_medians(values, tenth)
    if last > CLIPPED:
        yield Finding(
            "warning" if last > CLIMBED * first else "note",
            since=steps[np.argmax(values > CLIPPED)],
            evidence={"first": first, "last": last},
            causes=("high-rate", "many-updates", "old-samples"),
        )


OFTEN = 0.5


@rule("ratio-capped", "importance_ratio_max", live=False)
def find_ratio_capped(history: History) -> Iterator[Finding]:
    """Importance ratios of which only the cap is seen: how far sampler and scorer are apart, nobody
    can tell.

    Where the highest ratio is one and the same number at half of the steps. A cap is no fault; it
    may hide one.
    """
    steps, values = history["importance_ratio_max"].finite
    if len(values) < 10 or (top := float(values.max())) < 1.01:
        return
    at_cap = np.abs(values - top) < 1e-6 * top
    if at_cap.mean() < OFTEN:
        return
    yield Finding(
        "note",
        since=steps[np.argmax(at_cap)],
        evidence={
            "cap": top,
            "share of steps": round(float(at_cap.mean()), 3),
            "difference logged": len(history["logprob_gap"]) + len(history["mismatch_kl"]) > 0,
        },
        causes=("truncated",),
    )
