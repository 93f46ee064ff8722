"""The entropy of what is drawn: gone, so that nothing is tried any more, or running away."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.facts import agree, level, likely
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.trends import finite, trend

GONE = 0.005
"""Nats a token: an answer of 100 tokens then differs from the likeliest one in one of two cases."""
SHARE = 0.1
"""Of what it was at first."""
WARM = 0.8
"""A temperature that is none of the causes."""
MUCH = 1.0
"""Nats a token that it rose by; English text has about 2 to 3 under a small model."""


def look(history: History) -> Iterator[Finding]:
    """The first tenth of the steps against the last."""
    values = finite(history["entropy"].values)
    if len(values) < 20 or (values < -1e-6).any():
        return  # a loss term of that name, with its sign
    width = max(3, len(values) // 10)
    first, last = float(np.median(values[:width])), float(np.median(values[-width:]))
    steps = history["entropy"].steps[np.isfinite(history["entropy"].values)]
    reward = history["reward"].values
    rising = len(reward) >= 20 and trend(reward).t > 2
    if last < GONE and last < SHARE * first:
        gone = np.flatnonzero(values < GONE)
        yield Finding(
            check="entropy",
            level="note" if rising else "warning",
            what=f"the entropy fell from {first:.3f} to {last:.4f} nats a token: the answers of a group are nearly "
            "the same",
            since=int(steps[gone[0]]) if len(gone) else None,
            evidence={"first": first, "last": last},
            causes=likely(
                history,
                ("many steps on few prompts", lambda run: 0 < level(run["epoch"]) < 1),
                ("a low temperature", lambda run: run.settings.get("sampling.temperature", 0) >= WARM or first > MUCH),
                ("a clip that lets only likely tokens rise", lambda run: level(run["clip"]) == 0),
                "no penalty that holds the policy near its reference",
            ),
            fix="stop where the evaluation stopped rising; for a longer run raise the upper clip or take more prompts",
        )
    elif last > first + MUCH and last > 2 * first:
        falling = len(reward) >= 20 and trend(reward).t < -2
        yield Finding(
            check="entropy",
            level="fatal" if falling else "warning",
            what=f"the entropy rose from {first:.2f} to {last:.2f} nats a token"
            + (" while the reward fell: the policy is coming apart" if falling else ""),
            since=int(steps[np.argmax(values > first + MUCH)]),
            evidence={"first": first, "last": last},
            causes=likely(
                history,
                "too high a learning rate",
                ("sampler and scorer disagree", agree),
                "an entropy bonus that pays more than the task",
            ),
            fix="go back to a checkpoint before that step, with half the learning rate",
        )


CHECK = Check(
    name="entropy",
    asks="whether the entropy vanished or ran away",
    needs=("entropy",),
    look=look,
)
