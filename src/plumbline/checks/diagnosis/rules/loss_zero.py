"""A loss of 0: from the first step on in RL it is no fault; at some steps among good ones it is one."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.facts import likely, spread_of_batch, zeros
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.trends import finite, runs_of, since

ZERO = 1e-6
MOVING = 1e-8
"""A gradient over this is one."""
AROUND = 10
"""Steps before and after a dead one, which are alive."""
ALIVE, SMALL = 0.05, 0.2
"""The median loss of these in supervised training, and the share of it that all of them have: where losses of single
batches come near 0, one that is printed as 0 is learnt by heart."""
FEW, SHARE = 3, 0.01
"""Dead steps, and their share, from which on it is no single bad batch."""


def look(history: History) -> Iterator[Finding]:
    """Dead steps among good ones; else a loss that is 0 at first, with a gradient that is none of 0."""
    dead, names = _dead(history)
    if dead.sum() >= max(FEW, SHARE * len(dead)):
        yield _some(history, dead, names)
    elif history.kind == "sft":
        yield from _since(history)
    else:
        yield from _at_first(history)


def _dead(history: History) -> tuple[np.ndarray, list[str]]:
    """Which logged steps of the loss taught nothing though steps around did, and the series that are 0 there.

    In RL groups of equal rewards have no gradient either: the entropy is 0 in a dead step, too, or rewards differ.
    """
    loss = history["loss"]
    found = np.abs(loss.values) < max(1e-12, loss.rounding)
    names = ["the loss"]
    for name, said in (("gradient", "the gradient"), ("entropy", "the entropy")):
        series = history[name]
        if not np.array_equal(series.steps, loss.steps):
            continue
        at = zeros(series, 1e-10)
        if name == "entropy" and not (at & found).any():
            continue  # of another batch, or over the prompt
        found &= at
        names.append(said)
    if history.kind == "rl" and "the entropy" not in names:
        found &= ("the gradient" in names) & (_differ(history, loss.steps) if _scaled(history) else _regular(found))
    all_found = found.copy()
    for step in np.flatnonzero(all_found):
        near = slice(max(0, int(step) - AROUND), int(step) + AROUND + 1)
        alive = finite(np.abs(loss.values[near][~all_found[near]]))
        gradient = history["gradient"].values
        others = finite(np.abs(gradient[near][~all_found[near]])) if len(gradient) == len(loss) else alive
        still = history.kind == "sft" and not (len(alive) and alive.min() > SMALL * np.median(alive) > SMALL * ALIVE)
        row = runs_of(all_found[near])
        if still or row > AROUND // 2 or not (len(others) and np.median(others) > MOVING) or len(alive) < AROUND // 2:
            found[step] = False
    return found, names


def _scaled(history: History) -> bool:
    """Whether it is logged if rewards differ within groups."""
    return len(history["zero_std"]) > 0 or len(history["reward_std"]) > 0


def _differ(history: History, steps: np.ndarray) -> np.ndarray:
    """The steps at which they do."""
    spread, share = history["reward_std"], history["zero_std"]
    if not len(spread) or spread_of_batch(history):
        return np.isin(steps, share.steps[(share.values > 0) & (share.values < 1)])
    return np.isin(steps, spread.steps[spread.values > ZERO])


def _regular(dead: np.ndarray) -> bool:
    """Whether they come again after the same number of steps, which groups of equal rewards do not."""
    apart = np.diff(np.flatnonzero(dead))
    return len(apart) >= 2 and bool((apart == apart[0]).all()) and apart[0] > 1


def _some(history: History, dead: np.ndarray, names: list[str]) -> Finding:
    steps = history["loss"].steps[dead]
    apart = np.diff(np.flatnonzero(dead))
    regular = _regular(dead)
    listed = f"{', '.join(names[:-1])} and {names[-1]} are" if len(names) > 1 else f"{names[0]} is"
    return Finding(
        check="loss-zero",
        level="warning",
        what=f"{listed} exactly 0 in {dead.mean():.0%} of the logged steps ({int(dead.sum())} of {len(dead)}"
        + (f", every {apart[0]} steps" if regular else "")
        + "), among steps that are good: these batches teach nothing",
        since=int(steps[0]),
        evidence={"share of steps": round(float(dead.mean()), 3), "steps": steps[:10].tolist()},
        causes=likely(
            history,
            "no token of these batches is a target: answers that are cut off by the longest length, or masked",
            ("a loss of NaN, which transformers writes as 0", lambda run: len(run["gradient"]) > 0),
            ("an empty batch, as at the end of an epoch", lambda _: not regular),
        )
        if history.kind == "sft"
        else (
            "all answers of these batches are masked out of the loss (cut ones, or by the mask of tools)",
            "a process without answers of its own at these steps",
        ),
        fix="count the targets of these batches; leave out rows without any, or raise the longest length",
    )


def _since(history: History) -> Iterator[Finding]:
    """A loss of 0 from a step on, which none that is learnt comes to at once."""
    loss = history["loss"]
    start = since(loss.steps, np.abs(loss.values) < max(1e-12, loss.rounding))
    before = finite(loss.values[loss.steps < (start or 0)])[-AROUND:]
    if start is None or len(loss.since(start)) < AROUND or len(before) < FEW:
        return
    if not before[-FEW:].min() > np.median(before) / 2 > ALIVE:
        return
    yield Finding(
        check="loss-zero",
        level="fatal",
        what=f"the loss is exactly 0 since step {start}; just before it was {np.median(before[-FEW:]):.3g}",
        since=start,
        evidence={"steps": len(loss.since(start)), "before": float(np.median(before[-FEW:]))},
        causes=(
            "a loss of NaN, which transformers writes as 0",
            "an overflow in 16 bits",
            "no target in these batches",
        ),
        fix=f"go back to a checkpoint before step {start}, and look at the loss of that batch in float32",
    )


def _at_first(history: History) -> Iterator[Finding]:
    """Where there is no gradient, `no-signal` says so."""
    loss = history["loss"]
    values, norms = finite(loss.values), finite(history["gradient"].values)
    if len(values) < 10 or len(norms) < 10 or not (np.abs(values[:3]) < max(ZERO, loss.rounding)).all():
        return
    if not np.median(norms) > MOVING:
        return
    rises = float(np.abs(values[-max(3, len(values) // 10) :]).mean()) > 10 * ZERO
    yield Finding(
        check="loss-zero",
        level="note",
        what="the loss is 0 at first"
        + (" and rises with the distance to the reference" if rises else " and stays about there")
        + ": that is no fault, the gradient is not 0",
        since=int(loss.steps[0]),
        evidence={"gradient": float(np.median(norms))},
        causes=(
            "advantages sum to 0, and where a batch is used once the ratio is 1: the value of the loss says nothing",
        ),
        fix="judge by the reward and the evaluation",
    )


CHECK = Check(
    name="loss-zero",
    asks="whether the loss is 0, at first or at some steps among good ones",
    needs=("loss",),
    look=look,
    kinds=("rl", "sft"),
)
