"""The reward falls: below where it began, or from a height that it had reached."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.facts import agree, likely
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.rules.jump import ENOUGH as LONG
from plumbline.checks.diagnosis.rules.jump import jumps_of
from plumbline.checks.diagnosis.trends import finite, noise_of_mean

ENOUGH = 24
PARTS = 10
"""The run is looked at in so many stretches."""
SURE = 4.0
"""Standard errors between two stretches: of 45 pairs, noise alone has one as far apart in three of a thousand runs."""
LARGE, MOST = 0.3, 0.6
"""Share of the height that was lost, from which it is called a fall, and from which a standard error less will do."""


def look(history: History) -> Iterator[Finding]:
    """The last stretch against the best one before it, in units of the noise that such a stretch has."""
    series = history["reward"]
    good = np.isfinite(series.values)
    steps, values = series.steps[good], series.values[good]
    if len(values) < ENOUGH:
        return
    stretches = np.array_split(values, min(PARTS, len(values) // 4))
    means = np.array([stretch.mean() for stretch in stretches])
    best = int(np.argmax(means[:-1]))
    error = float(np.hypot(*(one.std(ddof=1) / len(one) ** 0.5 for one in (stretches[best], stretches[-1]))))
    noise = noise_of_mean(values, len(stretches[-1]))
    lost = float(means[best] - means[-1])
    floor = min(0.0, float(values.min()))
    share = lost / max(means[best] - floor, 1e-9)
    sure = SURE if share < MOST else SURE - 1
    if share < LARGE or lost < sure * max(noise, 1e-6) * 2**0.5 or lost < 2 * error:
        return
    entropy, kl = history["entropy"], history["kl"]
    at = int(steps[sum(len(stretch) for stretch in stretches[: best + 1]) - 1])
    sudden = [step for step in jumps_of(series) if step >= at]
    causes = [f"other data, weights or another reward from step {sudden[0]} on (see jump)"] if sudden else list[str]()
    if _drifts(history):
        causes.append("sampler and scorer drift apart (see gap)")
    if len(entropy) and entropy.values[-1] > 2 * max(np.nanmedian(entropy.values[:10]), 0.1):
        causes.append("the entropy rose: the policy forgets how to write")
    if len(kl) and np.nanmax(kl.values) > 1:
        causes.append(f"the policy ran away from its reference (KL up to {np.nanmax(kl.values):.3g})")
    yield Finding(
        check="reward-falls",
        level="fatal" if share > (0.5 if means[-1] < means[0] - SURE * noise else 0.7) else "warning",
        what=f"the reward fell from {means[best]:.3f} to {means[-1]:.3f} after step {at}",
        since=at,
        evidence={
            "best stretch": float(means[best]),
            "last stretch": float(means[-1]),
            "first": float(means[0]),
            "noise": noise,
        },
        causes=likely(
            history,
            *causes,
            "too high a learning rate for this model",
            ("sampler and scorer disagree (see gap)", lambda run: agree(run) or _drifts(run)),
            ("a reward that changed during the run", lambda _: len(values) >= LONG and not sudden),
        ),
        fix=f"take the checkpoint of about step {at}; begin again from there with half the learning rate or less",
    )


def _drifts(history: History) -> bool:
    """Whether sampler and scorer are logged to be further apart than at first."""
    found = [one for name in ("gap", "gap_kl") if len(one := finite(history[name].values)) >= ENOUGH]
    return not agree(history) and any(np.median(one[-PARTS:]) > 2 * np.median(one[:PARTS]) for one in found)


CHECK = Check(
    name="reward-falls",
    asks="whether the training reward fell from where it was",
    needs=("reward",),
    look=look,
)
