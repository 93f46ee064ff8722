"""Losses of supervised and preference training: rising, standing still, impossible, held-out."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.check import Finding, Level
from plumbline.checks.diagnosis.facts import (
    is_every_step,
    recent_median,
    unrefuted_causes,
    zero_mask,
)
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.outcome import MATTERS
from plumbline.checks.diagnosis.rule import rule
from plumbline.checks.diagnosis.rules.steps import rate_evidence
from plumbline.checks.diagnosis.trends import (
    block_kendall_z,
    end_means,
    end_medians,
    finite_values,
    measure_shift,
    median,
    start_of_last_stretch,
)
from plumbline.records import FloatArray

NO_GRADIENT = 1e-7
"""A norm that is lost in AdamW's epsilon of 1e-8 a weight."""
MOST, ROWS = 0.9, 5
"""Share of the rows without a gradient from which there is none, and rows at the end that are no
chance."""
SOME, FALLS = 0.95, 2.5
"""Times the first third of some rows, and standard errors of the order of eight means, from which a
loss falls."""
LEARNT = 1e-3
"""A loss under which no gradient is to be expected."""


@rule("no-gradient", "grad_norm", "loss", kinds=("sft",))
def find_no_gradient(history: History) -> Iterator[Finding]:
    """Supervised training without a gradient: nothing is trained, whatever the loss is.

    Nearly all logged gradients, or all from a step on; a loss that falls all the same is the
    logger's fault.
    """
    gradient, loss = history["grad_norm"], history["loss"]
    none = zero_mask(gradient, NO_GRADIENT)
    share = float(none.mean())
    start = int(gradient.steps[0]) if share >= MOST else start_of_last_stretch(gradient.steps, none)
    if start is None or none.sum() < ROWS or len(gradient.since(start)) < max(ROWS, len(none) // 5):
        return
    there = loss.since(start).finite_values
    if not len(there) or median(np.abs(there)) < LEARNT:
        return  # `sft-loss` says so
    evidence = {
        "share of steps": round(share, 3),
        "loss there": median(there),
        "logged steps": len(none),
        "from a step on": share < MOST,
    }
    if _is_falling(there):
        yield Finding("note", "only-logged", start, evidence)
        return
    yield Finding("fatal", "not-trained", start, evidence, causes=("frozen", "cut", "skipped"))


def _is_falling(loss: FloatArray) -> bool:
    """Whether a loss falls, by the order of its blocks or by its thirds."""
    third = max(1, len(loss) // 3)
    first, last = end_means(loss, third)
    clear = first - last > FALLS * median(np.abs(np.diff(loss))) / third**0.5
    return (clear and last < SOME * first) or block_kendall_z(loss) < -FALLS


STANDS = 30
"""Logged steps, from which on a loss may be said to stand still."""
AGAIN, FLAT, SURELY = 2.0, 0.01, 50
"""Epochs: who sees its texts twice has a lower loss on them, if it learns; the share that it may
have fallen by all the same, and rows for a warning."""


@rule("no-fall", "loss", kinds=("sft",), live=False)
def find_no_fall(history: History) -> Iterator[Finding]:
    """Supervised training whose loss stands still: no fall of a tenth is possible, and none is
    sure.

    A note, because what a model knows already stands still, too; a warning where the texts came
    twice.
    """
    loss = history["loss"].finite_values
    if len(loss) < STANDS or history.has("preference/") or median(np.abs(loss)) < LEARNT:
        return
    third = len(loss) // 3
    found = measure_shift(loss, third, third)
    if not -MATTERS * abs(
        found.first
    ) < found.interval.low < 0 < found.interval.high or _is_falling(loss):
        return
    epochs = history["epoch"].finite_values
    again = (
        len(loss) >= SURELY
        and len(epochs) > 0
        and bool(epochs[-1] >= AGAIN)
        and found.interval.low > -FLAT * found.first
    )
    yield Finding(
        "warning" if again else "note",
        since=history["loss"].steps[0],
        evidence={
            "first": found.first,
            "last": found.last,
            "logged steps": len(loss),
            "texts came twice": again,
            **rate_evidence(history),
        },
        causes=("low-rate", "frozen", *(() if again else ("known-already",))),
    )


BELOW = 1e-9
SIDES, CLEAR = 1.5, 0.3
"""Standard deviations of a coin, by which fewer values lie below 0 than above, and a loss in the
middle, which those of a policy gradient do not have."""


@rule("below-zero", "loss", kinds=("sft",))
def find_below_zero(history: History) -> Iterator[Finding]:
    """A cross-entropy or a divergence below 0, which none can be.

    A note where nothing says that the loss is one: those of policy gradients and some of pairs have
    no sign.
    """
    names = [name for name in ("loss", "eval/loss") if (history[name].values < -BELOW).any()]
    if not names:
        return
    series = history[names[0]]
    low = series.values < -BELOW
    fewer = low.sum() < len(low) / 2 - SIDES * len(low) ** 0.5
    told = (
        len(history["token_accuracy"]) > 0
        or bool(fewer)
        or float(np.nanmedian(series.values)) > CLEAR
    )
    yield Finding(
        "note" if history.has("preference/") or not told else "warning",
        since=series.steps[low][0],
        evidence={
            "series": names[0],
            "steps": low.sum(),
            "logged steps": len(low),
            "lowest": np.nanmin(series.values),
        },
        causes=(
            *(["wrong-sign"] if low.mean() > MOST else []),
            "16-bits",
            "sampled-divergence",
            "other-loss",
        ),
    )


MULTIPLES = (2, 64)
FITS, KNOWN_FITS = 0.1, 0.2
"""How far the quotient may be off a whole number: one that two evaluations give, and one that the
settings name."""


def ratio_to_held_out(history: History) -> int | None:
    """The whole number of times that the training loss is the held-out one; None where it is about
    one, or nothing."""
    held, loss = history["eval/loss"], history["loss"]
    found = []
    for step, value in zip(held.steps[:2], held.values[:2], strict=True):
        near = finite_values(loss.values[np.argsort(np.abs(loss.steps - step), kind="stable")[:3]])
        if len(near) and 0 < value < np.inf:
            found.append(median(near) / float(value))
    if not found:
        return None
    known = history.settings.get("accumulation")
    if isinstance(known, int) and known > 1 and abs(found[0] / known - 1) < KNOWN_FITS:
        return known
    whole = round(found[0])
    fits = len(found) == 2 and all(abs(one / max(whole, 1) - 1) < FITS for one in found)
    return whole if fits and MULTIPLES[0] <= whole <= MULTIPLES[1] and known != 1 else None


@rule("summed-loss", "loss", "eval/loss", kinds=("sft",))
def find_summed_loss(history: History) -> Iterator[Finding]:
    """A training loss that is a whole number of times the held-out one: a sum over accumulated
    batches.

    Around the first two evaluations.
    """
    times = ratio_to_held_out(history)
    if times is None:
        return
    yield Finding(
        "note",
        since=history["eval/loss"].steps[0],
        evidence={
            "times": times,
            "held-out": history["eval/loss"].values[0],
            "accumulated": history.settings.get("accumulation") == times,
        },
        causes=("logged-as-sum",),
    )


RISING = (
    "accuracy",
    "f1",
    "precision",
    "recall",
    "correlation",
    "rouge",
    "bleu",
    "exact_match",
    "auc",
)
"""What is better the higher it is. A classifier's loss rises while its accuracy does, because it
grows surer."""
SURE = 0.1
"""Nats a token: a text that is known by heart has less."""
BROKEN, FELL = 1.5, 0.7
"""Times the loss of the untouched model, which a whole stretch stays above, and which a loss was
below that had been learning."""
EXPLODED, NATS = 10.0, 3.0
"""Times the first loss, and a loss, above which half of the rows need no test."""
FEW, MANY = {True: 12, False: 8}, 20
"""Rows that are enough for a test of thirds, of single steps and of means over several, and for one
of tenths."""
UP, DOUBLED, LEAST, WILD = 1.2, 2.0, 0.5, 3.0
"""Times that a loss is said to have risen by, times and nats of a jump, and times of a gradient
that jumps with it."""
COIN, AWAY, UNSURE = 1.04, 5.0, 0.65
"""One and a half times ln 2, a way in the units of rewards of pairs, and an accuracy that is hardly
above a coin's."""
LASTS = {True: 8, False: 2}
"""Rows that a jump lasts: of single steps, and of means over several."""
WILD_LASTS = 4
"""Likewise of single steps whose gradient jumps with it: new texts are learnt soon."""


@rule("sft-loss", "loss", kinds=("sft",))
def find_sft_loss(history: History) -> Iterator[Finding]:
    """Supervised training: the loss on held-out text rises, or that of training rises, jumps or is
    0.

    The held-out losses against their best; the training loss against its first step and its first
    rows.
    """
    yield from _find_held_out_rise(history)
    series = history["loss"]
    steps, loss = series.finite
    rate = rate_evidence(history)
    rise = _find_rise(loss, every=is_every_step(series))
    learnt = rise is not None and rise[1] == "broken" and loss.min() < FELL * loss[0]
    if rise and not learnt:
        level, code, evidence = rise
        yield Finding(
            level,
            code,
            since=steps[0],
            evidence=evidence | rate,
            causes=("broke-at-first" if code == "broken" else "high-rate",),
        )
    elif (
        at := _find_break(loss)
        if learnt
        else _find_loss_jump(loss, history["grad_norm"].values, LASTS[is_every_step(series)])
    ) is not None:
        before, peak = float(loss[:at].min()), float(loss[at:].max())
        yield Finding(
            "fatal" if learnt else "warning",
            "jumped",
            since=steps[at],
            evidence={"before": before, "highest": peak, "last": loss[-1], **rate},
            causes=("high-rate", "other-texts")
            if at <= len(loss) // 4
            else ("other-texts", "high-rate"),
        )
    elif strays := _find_stray_policy(history):
        late, way = strays
        yield Finding(
            "warning",
            "astray",
            since=steps[0],
            evidence={"loss": late, "chosen": way, **rate},
            causes=("high-rate",),
        )
    elif len(loss) >= 2 * ROWS and loss.min() >= 0 and median(loss) < LEARNT and loss[0] < LEARNT:
        gradient = history["grad_norm"].finite_values
        moving, dead = bool((gradient != 0).any()), len(gradient) > 0 and not gradient.any()
        yield Finding(
            "fatal" if dead else "warning",
            "zero",
            since=steps[0],
            evidence={"first": loss[0], "last": loss[-1]},
            causes=unrefuted_causes(
                ("masked", moving),
                ("seen", dead or recent_median(history["entropy"]) > SURE),
                ("divided", not moving),
            ),
        )


def _find_stray_policy(history: History) -> tuple[float, float] | None:
    """The loss and the way of the chosen answers' reward, where a policy goes far and pairs are
    told apart no better.

    Of a log whose first row stands for steps that broke the model already.
    """
    loss, chosen, right = (
        history[name].finite_values for name in ("loss", "preference/chosen", "preference/accuracy")
    )
    if min(len(loss), len(chosen), len(right)) < ROWS:
        return None
    late = median(loss[-(len(loss) // 2) :])
    way = float(median(chosen[-(len(chosen) // 3) :]) - chosen[0])
    unsure = float(right[-(len(right) // 2) :].mean()) < UNSURE
    return (late, way) if late > COIN and abs(way) > AWAY and unsure else None


def _find_rise(loss: FloatArray, *, every: bool) -> tuple[Level, str, dict[str, float]] | None:
    """How a loss rose: how bad it is, its code, and its figures."""
    count = len(loss)
    if count < 4 or loss.min() < 0 or loss[0] <= 0:
        return None
    width = max(3, count // 4) if count < MANY else max(5, count // 10)
    begun, (first, last) = float(loss[0]), end_medians(loss, width)
    lowest, half = float(loss[-width:].min()), median(loss[-(count // 2) :])
    # The first batch may be an easy one: twice the factor from step to step is three standard
    # deviations of it.
    factor = float(np.exp(2 * median(np.abs(np.diff(np.log(np.maximum(loss, 1e-9)))))))
    if half > max(EXPLODED * begun, NATS) or (
        count >= (MANY if every else FEW[every]) and lowest > max(BROKEN, factor) * begun
    ):
        figures = {"first step": begun, "last": last, "rows": width, "lowest": lowest}
        return "fatal", "broken", figures
    sure = count >= FEW[every] and measure_shift(loss, width, width).interval.low > 0
    far = count >= MANY and last > max(
        first + 4 * median(np.abs(np.diff(loss))) / width**0.5, factor * first
    )
    if (sure or far) and last > UP * first:
        level: Level = "fatal" if last > DOUBLED * first else "warning"
        return level, "rose", {"first": first, "last": last}
    return None


def _find_break(loss: FloatArray) -> int:
    """From which place on a loss that had fallen is nearer to its last rows than to its lowest."""
    between = (loss.min() * median(loss[-ROWS:])) ** 0.5
    return min(int(np.flatnonzero(loss <= between)[-1]) + 1, len(loss) - 1)


def _find_loss_jump(loss: FloatArray, gradient: FloatArray, lasts: int) -> int | None:
    """The place of a jump that so many rows show, over the lowest level before it; None for none.

    Early in the run, or where the gradient jumps, too: other texts may be harder.
    """
    around = 2 * lasts
    if len(loss) < 2 * around or loss.min() <= 0:
        return None
    factor = max(DOUBLED, float(np.exp(2 * median(np.abs(np.diff(np.log(loss)))))))
    before = np.inf
    for at in range(1, len(loss) - lasts + 1):
        earlier = slice(max(0, at - around), at)
        wild = len(gradient) == len(loss) and gradient[at : at + lasts].max() > WILD * median(
            gradient[earlier]
        )
        # the first batch may be an easy one
        level = median(loss[earlier])
        if at >= lasts - 1:
            before = min(before, level)
            level = before
        elif not wild:
            continue
        rows = min(lasts, WILD_LASTS) if wild and at >= lasts else lasts
        if loss[at : at + rows].min() > max(factor * level, level + LEAST) and (
            wild or at <= len(loss) // 4
        ):
            return at
    return None


OVER, OVER_NATS = 1.1, 0.05
"""Times, and nats above its best, that a held-out loss is said to have risen by."""
ONCE = 1.05
"""Epochs, up to which nearly no text came twice."""


def _find_held_out_rise(history: History) -> Iterator[Finding]:
    """The held-out losses that rose, of one set or of several, as one finding."""
    risen: dict[str, tuple[int, float, float, int]] = {}
    better: dict[str, list[str]] = {}
    sets = {"": history["eval/loss"]} | {
        name: history[f"eval/loss/{name}"] for name in history.names("eval/loss/")
    }
    for name, series in sets.items():
        steps, values = series.finite
        if len(values) < 3:
            continue
        best = int(np.argmin(values))
        over = max(OVER * values[best], values[best] + OVER_NATS)
        if values[-1] <= over:
            continue
        higher = int(steps[best + int(np.argmax(values[best:] > over))])
        risen[name] = (int(steps[best]), float(values[best]), float(values[-1]), higher)
        named = [one for one in history.names("eval/") if one.startswith(f"{name}_") or not name]
        better[name] = [one for one in named if _still_improves(history, one, int(steps[best]))]
    if not risen:
        return
    step = min(one[0] for one in risen.values())
    worst = max(risen, key=lambda name: risen[name][2] / risen[name][1])
    several = sum(len(series) >= 3 for series in sets.values())
    surer = list(dict.fromkeys(one for names in better.values() for one in names))
    yield Finding(
        "note" if all(better.values()) else "warning",
        "held-out-sets-rose" if several > 1 else "held-out-rose",
        since=step,
        evidence={
            f"{name} {which}".strip(): value
            for name, (_, best, last, _) in risen.items()
            for which, value in (("best", best), ("last", last))
        }
        | dict(zip(("best step", "at best", "now"), risen[worst], strict=False))
        | {"sets": several, "worse sets": len(risen), "worst set": worst, "better": surer}
        | rate_evidence(history),
        causes=_held_out_causes(history, step, min(one[3] for one in risen.values())),
    )


def _held_out_causes(history: History, best: int, over: int) -> tuple[str, ...]:
    """Why held-out text got worse between two steps: within one epoch no text came twice.

    Where epochs are not logged, training texts that are learnt by heart have a loss that falls on.
    """
    epoch, loss = history["epoch"], history["loss"]
    epochs, rate = "many-epochs", "high-rate"
    if len(epoch):
        once = float(np.interp(over, epoch.steps, epoch.values)) <= ONCE
        return (rate, "other-kind") if once else (epochs,)
    before, after = (
        finite_values(loss.values[loss.steps <= best]),
        loss.since(best).finite_values,
    )
    if len(before) and len(after) and median(after) > median(before[-ROWS:]):
        return rate, epochs
    return epochs, rate


def _still_improves(history: History, name: str, step: int) -> bool:
    """Whether an accuracy or the like ends above where it was at a step, and near its best."""
    if not any(word in name.lower() for word in RISING):
        return False
    series = history[f"eval/{name}"]
    values, there = series.finite_values, finite_values(series.values[series.steps <= step])
    return (
        len(values) >= 3
        and len(there) > 0
        and values[-1] > there[-1]
        and values[-1] >= values.max() - 0.005
    )
