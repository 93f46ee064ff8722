"""Numbers of a log: not finite, zero, jumping, taking longer."""

from collections.abc import Iterator, Mapping

import numpy as np

from plumbline.checks.check import Finding, Level
from plumbline.checks.diagnosis.facts import (
    is_batch_spread,
    is_every_step,
    step_distance,
    unrefuted_causes,
    zero_mask,
)
from plumbline.checks.diagnosis.history import History, Series
from plumbline.checks.diagnosis.rule import BOTH, rule
from plumbline.checks.diagnosis.trends import (
    end_medians,
    finite_values,
    longest_stretch,
    median,
    start_of_last_stretch,
    tenth_of,
)

WATCHED = (
    "loss",
    "grad_norm",
    "reward",
    "kl",
    "logprob_gap",
    "importance_ratio_mean",
    "importance_ratio_max",
    "entropy",
    "eval/loss",
    "eval/reward",
)

PAID = "reward"
CALM = 10.0
"""Times the median gradient that a run whose rate is too high comes to before its loss is none."""
NOT_FINITE_FEW = 0.05
"""Share of the steps that a loss scaler may skip: it begins too high, and is raised every 2,000
steps."""
HALF, FEW_GOOD = 0.5, 3
"""Share of batches without a target, up to which the others teach; good steps after the first,
which weights of NaN would not leave."""


def _should_stop(history: History, since: int) -> bool:  # noqa: ARG001 - a reward that is none has broken the weights at once
    """At once, but for a gradient, which a loss scaler skips where it is none: then three logged
    ones in a row."""
    names = ("loss", *history.reward_names)
    if any((~np.isfinite(history[name].values)).any() for name in names):
        return True
    return any(
        (~np.isfinite(history[name].last(3).values)).all()
        for name in WATCHED
        if len(history[name]) >= 3
    )


@rule("not-finite", "loss|grad_norm|reward", kinds=BOTH, stops=_should_stop)
def find_not_finite(history: History) -> Iterator[Finding]:
    """A number that is none: NaN or infinity in what is optimised or measured.

    Every watched series that holds one, as one finding: the first to break is the one to look at.
    """
    found = {}
    for name in (*WATCHED, *history.reward_names[1:]):
        series = history[name]
        bad = ~np.isfinite(series.values)
        if bad.any():
            found[name] = (int(series.steps[bad][0]), int(bad.sum()), float(series.values[bad][0]))
    if not found:
        return
    # What is paid breaks the loss of its step, and a loss breaks what is paid from the next step
    # on.
    first = min(found, key=lambda name: (found[name][0], not name.startswith(PAID)))
    step, _, value = found[first]
    code = (
        "evaluation"
        if all(name.startswith("eval/") for name in found)
        else "log-only"
        if _is_log_only(history, found)
        else "no-target"
        if _has_empty_batches(history, found)
        else "skipped"
        if set(found) == {"grad_norm"} and _is_passing(history["grad_norm"].values)
        else "part"
        if all(name.startswith("reward/") and np.isnan(one[2]) for name, one in found.items())
        else "reward"
        if first.startswith(PAID)
        else "training"
    )
    level, causes = NOT_FINITE[code]
    refuted = {"no-target" if history.kind == "rl" else "division"}
    gradients = finite_values(history["grad_norm"].values[history["grad_norm"].steps < step])
    if len(gradients) and gradients.max() < CALM * max(1.0, median(gradients)):
        causes = tuple(sorted(causes, key="high-rate".__eq__))
    if step <= history["loss"].steps[:1].sum():
        refuted.add("high-rate")
    # transformers logs a loss that is NaN as 0.0, and only the gradient tells
    # (logging_nan_inf_filter, on by default).
    loss = history["loss"]
    hidden = first == "grad_norm" and (loss.at(step) == 0).any() and (loss.values != 0).any()
    yield Finding(
        level,
        code,
        since=step,
        evidence={
            "series": first,
            "value": value,
            "also": [name for name in found if name != first],
            "steps": {name: count for name, (_, count, _) in found.items()},
            "loss hidden": hidden,
        },
        causes=tuple(cause for cause in causes if cause not in refuted),
    )


NOT_FINITE: Mapping[str, tuple[Level, tuple[str, ...]]] = {
    "evaluation": ("warning", ("evaluated-so", "overflow")),
    "log-only": ("warning", ("for-the-log",)),
    "no-target": ("warning", ("no-target",)),
    "skipped": ("warning", ("loss-scaler", "overflow", "division")),
    "part": ("note", ("not-for-these",)),
    "reward": ("fatal", ("reward-function",)),
    "training": ("fatal", ("high-rate", "no-target", "overflow", "division")),
}
"""The level and the likely causes of what was found."""


def _is_log_only(history: History, found: Mapping[str, object]) -> bool:
    """Whether a KL or an entropy is none while losses at and after its steps are numbers other than
    0.

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


def _has_empty_batches(history: History, found: Mapping[str, object]) -> bool:
    """Whether single batches of supervised training have no gradient and a loss of 0, and those
    after them are good."""
    gradient, loss = history["grad_norm"], history["loss"]
    if (
        history.kind != "sft"
        or set(found) != {"grad_norm"}
        or not np.array_equal(gradient.steps, loss.steps)
    ):
        return False
    bad = ~np.isfinite(gradient.values)
    alone = bool((loss.values[bad] == 0).all() and (loss.values[~bad] != 0).all())
    return alone and bool(bad.mean() < HALF) and int((~bad[np.argmax(bad) :]).sum()) >= FEW_GOOD


def _is_passing(values: np.ndarray) -> bool:
    """Whether few norms are none and those after them are some: weights of NaN would leave no
    other."""
    bad = ~np.isfinite(values)
    return bool(bad.mean() <= NOT_FINITE_FEW and not bad[-1])


ZERO = 1e-6
MOVING = 1e-8
"""A gradient over this is one."""
AROUND = 10
"""Steps before and after a dead one, which are alive."""
ALIVE, SMALL = 0.05, 0.2
"""The median loss of these in supervised training, and the share of it that all of them have: where
losses of single batches come near 0, one that is printed as 0 is learnt by heart."""
LOSS_ZERO_FEW, SHARE = 3, 0.01
"""Dead steps, and their share, from which on it is no single bad batch."""


@rule("loss-zero", "loss", kinds=BOTH)
def find_loss_zero(history: History) -> Iterator[Finding]:
    """A loss of 0: from the first step on in RL it is no fault; at some steps among good ones it is
    one.

    Dead steps among good ones; else a loss that is 0 at first, with a gradient that is none of 0.
    """
    dead, names = _dead_steps(history)
    if dead.sum() >= max(LOSS_ZERO_FEW, SHARE * len(dead)):
        yield _dead_steps_finding(history, dead, names)
    elif history.kind == "sft":
        yield from _find_zero_from_step(history)
    else:
        yield from _find_zero_at_start(history)


def _dead_steps(history: History) -> tuple[np.ndarray, list[str]]:
    """Which logged steps of the loss taught nothing though steps around did, and the series that
    are 0 there.

    In RL groups of equal rewards have no gradient either: the entropy is 0 in a dead step, too, or
    rewards differ. Where rows are of several steps, the gradient is that of the last one, and says
    nothing of the others.
    """
    loss = history["loss"]
    found = np.abs(loss.values) < max(1e-12, loss.rounding)
    names = ["loss"]
    for name in ("grad_norm", "entropy"):
        series = history[name]
        if not np.array_equal(series.steps, loss.steps):
            continue
        at = zero_mask(series, 1e-10)
        if name == "entropy" and not (at & found).any():
            continue  # of another batch, or over the prompt
        found &= at
        names.append(name)
    if history.kind == "rl" and "entropy" not in names:
        found &= ("grad_norm" in names) & (
            _steps_with_spread(history, loss.steps)
            if len(history["frac_reward_zero_std"]) or len(history["reward_std"])
            else _is_regular(found)
        )
        found &= is_every_step(loss)
    all_found = found.copy()
    for step in np.flatnonzero(all_found):
        near = slice(max(0, int(step) - AROUND), int(step) + AROUND + 1)
        alive = finite_values(np.abs(loss.values[near][~all_found[near]]))
        gradient = history["grad_norm"].values
        others = (
            finite_values(np.abs(gradient[near][~all_found[near]]))
            if len(gradient) == len(loss)
            else alive
        )
        still = history.kind == "sft" and not (
            len(alive) and alive.min() > SMALL * median(alive) > SMALL * ALIVE
        )
        row = longest_stretch(all_found[near])
        if (
            still
            or row > AROUND // 2
            or not (len(others) and median(others) > MOVING)
            or len(alive) < AROUND // 2
        ):
            found[step] = False
    return found, names


def _steps_with_spread(history: History, steps: np.ndarray) -> np.ndarray:
    """The steps at which they do."""
    spread, share = history["reward_std"], history["frac_reward_zero_std"]
    if not len(spread) or is_batch_spread(history):
        return np.isin(steps, share.steps[(share.values > 0) & (share.values < 1)])
    return np.isin(steps, spread.steps[spread.values > ZERO])


def _is_regular(dead: np.ndarray) -> bool:
    """Whether they come again after the same number of steps, which groups of equal rewards do
    not."""
    apart = np.diff(np.flatnonzero(dead))
    return len(apart) >= 2 and bool((apart == apart[0]).all()) and apart[0] > 1


def _dead_steps_finding(history: History, dead: np.ndarray, names: list[str]) -> Finding:
    steps = history["loss"].steps[dead]
    apart = np.diff(np.flatnonzero(dead))
    regular = _is_regular(dead)
    return Finding(
        "warning",
        "dead-steps",
        since=steps[0],
        evidence={
            "series": names,
            "share of steps": round(float(dead.mean()), 3),
            "steps": steps[:10].tolist(),
            "dead steps": len(steps),
            "logged steps": len(dead),
            "every": apart[0] if regular else None,
        },
        causes=unrefuted_causes(
            "no-target",
            ("nan-as-zero", len(history["grad_norm"]) > 0),
            ("empty-batch", not regular),
        )
        if history.kind == "sft"
        else ("masked-answers", "idle-process"),
    )


def _find_zero_from_step(history: History) -> Iterator[Finding]:
    """A loss of 0 from a step on, which none that is learnt comes to at once."""
    loss = history["loss"]
    start = start_of_last_stretch(loss.steps, np.abs(loss.values) < max(1e-12, loss.rounding))
    before = finite_values(loss.values[loss.steps < (start or 0)])[-AROUND:]
    if start is None or len(loss.since(start)) < AROUND or len(before) < LOSS_ZERO_FEW:
        return
    if not before[-LOSS_ZERO_FEW:].min() > median(before) / 2 > ALIVE:
        return
    yield Finding(
        "fatal",
        "zero-from-step",
        since=start,
        evidence={
            "steps": len(loss.since(start)),
            "before": median(before[-LOSS_ZERO_FEW:]),
        },
        causes=("nan-as-zero", "overflow", "batches-without-target"),
    )


def _find_zero_at_start(history: History) -> Iterator[Finding]:
    """Where there is no gradient, `no-signal` says so."""
    loss = history["loss"]
    values, norms = loss.finite_values, history["grad_norm"].finite_values
    if (
        len(values) < 10
        or len(norms) < 10
        or not (np.abs(values[:3]) < max(ZERO, loss.rounding)).all()
    ):
        return
    if not median(norms) > MOVING:
        return
    rises = float(np.abs(values[-tenth_of(values) :]).mean()) > 10 * ZERO
    yield Finding(
        "note",
        "zero-at-first",
        since=loss.steps[0],
        evidence={"grad_norm": median(norms), "rises": rises},
        causes=("advantages-cancel",),
    )


NAMES = ("reward", "completion_length", "entropy", "frac_truncated", "frac_reward_zero_std", "kl")
"""What training changes slowly, and other data or other weights at once."""
BESIDE = 10
"""Steps on both sides that are compared."""
JUMP_ENOUGH = 40
"""Logged steps: in a run of fewer a quick gain looks like a jump."""
SURE = 4.0
"""Standard deviations of single steps: nine standard errors of the difference."""
BETTER = 0.5
"""Share of the squared error of a straight line, that two levels leave; a jump of four deviations
leaves 0.47."""
LARGE = 0.15
"""Share of the level that it jumps by."""
NEAR = 1
"""Steps that jumps of two series may be apart."""


@rule("jump", "reward|entropy")
def find_jump(history: History) -> Iterator[Finding]:
    """Reward, length or entropy jump at one step together: a resume, other data, another version of
    the reward.

    The step at which most series jump; one series that jumps alone may be anything.
    """
    jumping = {name: jumps for name in NAMES if (jumps := list_jumps(history[name]))}
    steps = sorted({step for jumps in jumping.values() for step in jumps})
    together = {
        step: {
            name: max((jumps[at] for at in near), key=lambda run: run[0])
            for name, jumps in jumping.items()
            if (near := [at for at in range(step - NEAR, step + NEAR + 1) if at in jumps])
        }
        for step in steps
    }
    if not together:
        return
    step = max(
        together,
        key=lambda run: (len(together[run]), sum(size for size, _, _ in together[run].values())),
    )
    names = together[step]
    if len(names) < 2 or not names.keys() & {"reward", "entropy"}:
        return
    every = step_distance(history["reward"].steps)
    rose = "reward" in names and names["reward"][2] > names["reward"][1]
    yield Finding(
        # a quick gain may fall between two logged steps
        "note" if rose and every > 1 else "warning",
        "reward-jumps-up" if rose else "reward-drops" if "reward" in names else "jump",
        since=step,
        evidence={name: round(after - before, 4) for name, (_, before, after) in names.items()},
        causes=("resume", "other-data", "other-version"),
    )


def list_jumps(series: Series) -> dict[int, tuple[float, float, float]]:
    """Steps that begin another level at once: how many standard deviations it is away, and both
    levels."""
    steps, values = series.finite
    if len(values) < JUMP_ENOUGH:
        return {}
    windows = np.lib.stride_tricks.sliding_window_view(values, 2 * BESIDE)
    before, after = windows[:, :BESIDE], windows[:, BESIDE:]
    first, last = before.mean(axis=1), after.mean(axis=1)
    change = np.abs(last - first)
    step = ((before - first[:, None]) ** 2).sum(axis=1) + ((after - last[:, None]) ** 2).sum(axis=1)
    scatter = np.maximum((step / (2 * BESIDE - 2)) ** 0.5, max(series.rounding, 1e-9))
    place = np.arange(2 * BESIDE) - BESIDE + 0.5
    line = ((windows - windows.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) - (
        windows @ place
    ) ** 2 / (place @ place)
    large = change > LARGE * np.maximum(np.abs(first), np.abs(last))
    places = np.flatnonzero((change > SURE * scatter) & (step < BETTER * line) & large)
    return {
        int(steps[at + BESIDE]): (
            float(change[at] / scatter[at]),
            float(first[at]),
            float(last[at]),
        )
        for at in places.tolist()
    }


REPEATS, REPEATS_TIMES, REPETITION_ENOUGH = 0.3, 3.0, 20
"""Share of a text that repeats, times what it was at first, and logged steps."""


@rule("repetition", "repetition")
def find_repetition(history: History) -> Iterator[Finding]:
    """Answers that repeat themselves ever more, as the trainer measures it.

    The first tenth of the steps against the last.
    """
    steps, values = history["repetition"].finite
    tenth = tenth_of(values)
    if len(values) < REPETITION_ENOUGH:
        return
    first, last = end_medians(values, tenth)
    if last > max(REPEATS, REPEATS_TIMES * first):
        yield Finding(
            "warning",
            since=steps[np.argmax(values > REPEATS)],
            evidence={"first": first, "last": last},
            causes=("paid", "high-rate"),
        )
