"""A number that is none: NaN or infinity in what is optimised or measured."""

from collections.abc import Iterator, Mapping

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.facts import likely
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History

WATCHED = ("loss", "gradient", "reward", "kl", "gap", "ratio_mean", "ratio_max", "entropy", "eval/loss", "eval/reward")

FEW = 0.05
"""Share of the steps that a loss scaler may skip: it begins too high, and is raised every 2,000 steps."""
HALF, FEW_GOOD = 0.5, 3
"""Share of batches without a target, up to which the others teach; good steps after the first, which weights of NaN
would not leave."""


def look(history: History) -> Iterator[Finding]:
    """Every watched series that holds one, as one finding: the first to break is the one to look at."""
    found = {}
    for name in (*WATCHED, *(f"part/{part}" for part in history.names("part/"))):
        series = history[name]
        bad = ~np.isfinite(series.values)
        if bad.any():
            found[name] = (int(series.steps[bad][0]), int(bad.sum()), float(series.values[bad][0]))
    if not found:
        return
    first = min(found, key=lambda name: found[name][0])
    step, _, value = found[first]
    others = [name for name in found if name != first]
    measured = all(name.startswith("eval/") for name in found)
    without = _without_target(history, found)
    skipped = set(found) == {"gradient"} and (without or _passing(history["gradient"].values))
    shown = _of_the_log_alone(history, found)
    hidden = first == "gradient" and (written := history["loss"].values[history["loss"].steps == step]).size > 0
    hidden = hidden and bool(written[0] == 0) and bool((history["loss"].values != 0).any())
    # transformers logs a loss that is NaN as 0.0, and only the gradient tells (logging_nan_inf_filter, on by default).
    yield Finding(
        check="not-finite",
        level="warning" if measured or skipped or shown else "fatal",
        what=f"{first} is {value} at step {step}"
        + (f", and so are {', '.join(others)}" if others else "")
        + ("; the loss, which transformers writes as 0 where it is NaN, is 0 there" if hidden else ""),
        since=step,
        evidence={f"{name}: steps that are not finite": count for name, (_, count, _) in found.items()},
        causes=likely(
            history,
            *(
                ("an evaluation in 16 bits, or of rows without a target; what was trained is finite",)
                if measured
                else ("the trainer computes it for the log alone: the loss stays finite after that step",)
                if shown
                else ("batches without a target, whose loss is a mean of nothing",)
                if without
                else ("a loss scaler of 16 bits, or the trainer, that skipped these steps",)
                if skipped
                else ("a reward that is not finite",)
                if first.startswith(("reward", "part/"))
                else (
                    ("too high a learning rate", lambda run: step <= run["loss"].steps[:1].sum()),
                    ("a batch without a target, whose loss is a mean of nothing", lambda run: run.kind == "rl"),
                )
            ),
            ("an overflow in 16 bits", lambda _: without or shown),
            (
                "a division by the length or the spread of an empty or constant group",
                lambda run: run.kind == "sft" or measured or shown,
            ),
        ),
        fix="count the targets of these batches, and leave out rows without any"
        if without
        else "compute it by hand for one batch; where the coefficient of the KL is 0, switch its log off"
        if shown
        else "go back to a checkpoint before that step, look at its batch, then lower the learning rate or use float32",
    )


def _of_the_log_alone(history: History, found: Mapping[str, object]) -> bool:
    """Whether a KL or an entropy is none while losses at and after its steps are numbers other than 0.

    Weights of NaN leave no such loss, and a term of the loss leaves none either.
    """
    if not set(found) <= {"kl", "entropy"}:
        return False
    loss = history["loss"]
    for name in found:
        series = history[name]
        written = loss.values[loss.steps >= series.steps[~np.isfinite(series.values)][0]]
        if len(written) < FEW_GOOD or not written.any():
            return False
    return True


def _without_target(history: History, found: Mapping[str, object]) -> bool:
    """Whether single batches of supervised training have no gradient and a loss of 0, and those after them are good."""
    gradient, loss = history["gradient"], history["loss"]
    if history.kind != "sft" or set(found) != {"gradient"} or not np.array_equal(gradient.steps, loss.steps):
        return False
    bad = ~np.isfinite(gradient.values)
    alone = bool((loss.values[bad] == 0).all() and (loss.values[~bad] != 0).all())
    return alone and bool(bad.mean() < HALF) and int((~bad[np.argmax(bad) :]).sum()) >= FEW_GOOD


def _stops(history: History, since: int) -> bool:  # noqa: ARG001 - a reward that is none has broken the weights at once
    """At once, but for a gradient, which a loss scaler skips where it is none: then three logged ones in a row."""
    names = ("loss", "reward", *(f"part/{part}" for part in history.names("part/")))
    if any((~np.isfinite(history[name].values)).any() for name in names):
        return True
    return any((~np.isfinite(history[name].last(3).values)).all() for name in WATCHED if len(history[name]) >= 3)


def _passing(values: np.ndarray) -> bool:
    """Whether few norms are none and those after them are some: weights of NaN would leave no other."""
    bad = ~np.isfinite(values)
    return bool(bad.mean() <= FEW and not bad[-1])


CHECK = Check(
    name="not-finite",
    asks="whether the loss, the gradient, a reward or a ratio was ever NaN or infinite",
    needs=("loss|gradient|reward",),
    look=look,
    kinds=("rl", "sft"),
    stops=_stops,
    explains=(
        *("no-signal", "reward-falls", "gradient-spikes", "degenerate-output", "truncation", "entropy", "sft-loss"),
        *("length", "jump", "loss-zero"),
    ),
)
