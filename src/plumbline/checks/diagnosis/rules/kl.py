"""The KL to the reference: exploding, of the wrong sign, there from the first step, void, or unseen by samples."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check, stood
from plumbline.checks.diagnosis.facts import agree, learns, likely, zeros
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.trends import BLOCKS, finite, moves, order

FIRST = 0.05
"""Nats: before the first update policy and reference are one model; 16 bits leave about 0.001 between two passes."""
APART = 1.0
"""Below, it may be meant: the reference is the model before SFT, or a teacher, as in 12 runs of 2 public projects."""
HUGE = 10.0
AWAY = 0.1
"""Nats a token that the policy went away from the reference, which its samples would show."""
SURE = 2.5
"""Standard errors of the order of eight means: all but two pairs of neighbours ascend."""
TIMES, LONG = 5.0, 40
SAMPLED = ("reward", "length", "entropy", "truncated")
"""What is measured on samples."""


def look(history: History) -> Iterator[Finding]:
    """In the order of how bad it is; one finding."""
    series = history["kl"]
    good = np.isfinite(series.values)
    steps, values = series.steps[good], series.values[good]
    if not len(values):
        return
    beta = history.settings.get("rl.beta")
    middle = float(np.median(values))
    high = values > HUGE
    if high.sum() >= 3 or values[-1] > 100:
        lasts = bool(high[-max(3, len(values) // 10) :].mean() > 0.5)
        yield Finding(
            check="kl",
            level="fatal" if lasts else "warning",
            what=f"the KL to the reference goes up to {values.max():.3g} nats"
            + ("" if lasts else f" in {int(high.sum())} of {len(values)} logged steps, and back"),
            since=int(steps[high][0]),
            evidence={"highest": float(values.max()), "median": middle},
            causes=("too high a learning rate", "policy and reference are read by different templates or weights"),
            fix="go back to a checkpoint before that step; lower the learning rate or raise rl.beta",
        )
    elif steps[0] <= 2 and values[0] > FIRST and not values[0] < 0.2 * middle:
        yield Finding(
            check="kl",
            level="warning" if values[0] > APART else "note",
            what=f"the KL to the reference is {values[0]:.3g} at step {steps[0]}, before the policy can have moved",
            since=int(steps[0]),
            evidence={"first": float(values[0]), "median": middle},
            causes=(
                "the policy starts from an adapter of SFT, and the reference is the model without it",
                "dropout is on when one of the two reads",
                "the reference is another model, or another dtype",
            ),
            fix="merge the adapter of SFT before RL; set dropout to 0, and give both the same weights and dtype",
        )
    elif (values < -0.01).mean() > 0.5:
        yield Finding(
            check="kl",
            level="warning",
            what=f"the KL to the reference is negative ({middle:.3g} in the middle); its mean cannot be",
            since=int(steps[values < -0.01][0]),
            evidence={"median": middle},
            causes=("its sign is wrong, so the policy is paid for leaving the reference",),
            fix="look at the estimator: k3 = exp(-d) - 1 + d for d = log p - log q is never negative",
        )
    elif len(values) >= 5 and zeros(series, 1e-300).all():
        wanted = isinstance(beta, int | float) and beta > 0
        still = len(history["gradient"]) > 0 and bool(zeros(history["gradient"], 1e-10).all())
        yield Finding(
            check="kl",
            level="warning" if wanted else "note",
            what="the KL to the reference is exactly 0 at every step"
            + (f", although it is charged (beta {beta})" if wanted else ": without a penalty it has no meaning"),
            since=int(steps[0]),
            evidence={"beta": beta},
            causes=likely(
                history,
                *(("the reference is the policy itself",) if wanted else ()),
                ("the weights do not change", learns),
            )
            if wanted or still
            else ("beta is 0",),
            fix="look at what the reference is" if wanted else "read nothing into it",
        )
    elif _unseen(history):
        yield Finding(
            check="kl",
            level="warning",
            what=f"the KL to the reference grows from {values[0]:.2g} to {values[-1]:.2g} nats, and nothing that is "
            "measured on samples moves: what is sampled does not follow the policy",
            since=int(steps[np.argmax(values > AWAY)]),
            evidence={"first": float(values[0]), "last": float(values[-1])},
            causes=(
                "the sampler has old weights, or the base model without the adapter",
                "weights that are published under a name the sampler does not load",
            ),
            fix="draw one greedy answer from the sampler and from the trained weights, and compare them",
        )


def _unseen(history: History) -> bool:
    """Whether the KL grows steadily while the reward and the length or the entropy of samples stand still."""
    values = finite(history["kl"].values)
    if len(values) < LONG or agree(history):
        return False
    width, up = len(values) // 5, order(np.array([block.mean() for block in np.array_split(values, BLOCKS)]))
    first, last = float(np.median(values[:width])), float(np.median(values[-width:]))
    known = [name for name in SAMPLED if len(history[name]) >= LONG]
    return (
        up > SURE
        and last > AWAY
        and last > TIMES * max(first, 1e-3)
        and len(known) >= 2
        and "reward" in known
        and not any(moves(history[name].values) for name in known)
    )


CHECK = Check(
    name="kl",
    asks="whether the KL explodes, is negative, too high at first, void, or grows while samples stay as they are",
    needs=("kl",),
    look=look,
    stops=lambda history, since: stood(10)(history, since) and bool(np.median(history["kl"].last(10).values) > HUGE),
)
