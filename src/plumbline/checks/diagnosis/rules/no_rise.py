"""The reward did not rise, and no other finding says why: what the figures make likely."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.facts import level, top
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.outcome import Outcome, outcome
from plumbline.checks.diagnosis.rules.small_updates import ADAPTERS, adapter_rate, highest_rate
from plumbline.checks.diagnosis.trends import finite, noise_of_mean, trend

SHORT, LONG = 30, 100
"""Logged steps: below the first nothing is said, from the second on it is a warning."""
GAIN = 0.1
"""Of the deviation within groups, else of the level: a rise that may be larger than that is not ruled out."""
TOP = 0.9
"""Of the most that can be earned, where that is known: little is left to gain."""
STILL = 1e-3
"""Nats to the reference, below which the policy has hardly moved."""

LATE, SEEN = 5, 0.1
"""Distances between logged steps, and share of all steps, before the first logged one: what came before is unseen."""


def look(history: History) -> Iterator[Finding]:
    """Causes are ranked by what is sure; evaluations that rise refute it."""
    came = outcome(history)
    if came is None or came.better is not False or came.change.n < SHORT:
        return
    highest = top(history)
    if highest is not None and max(came.first, came.last) > TOP * highest:
        return
    if trend(history["eval/reward"].values).t > 3:
        return
    spread = finite(history["reward_std"].values)
    scale = (float(np.median(spread)) if len(spread) else 0.0) or abs(came.first)
    near = highest is None and TOP <= came.first <= 1
    flat = came.change.high < GAIN * scale and not near
    steps = history["reward"].steps
    late = bool(steps[0] > max(LATE * np.median(np.diff(steps)), SEEN * steps[-1]))
    causes = tuple(_causes(history, came))
    if late:
        causes = (f"the log begins at step {steps[0]}: a rise before it is not seen", *causes)
    yield Finding(
        check="no-rise",
        level="warning" if flat and not late and came.change.n >= LONG else "note",
        what=came.said + ("" if flat or near else f": a gain of up to {came.change.high:.3f} is not ruled out"),
        since=int(steps[0]),
        evidence={"first": came.first, "last": came.last, "change": came.change.mean, "high": came.change.high},
        causes=(("little is left to gain, if 1 is the most that can be earned",) if near else ()) + causes
        or ("few answers a step for the signal there is", "a reward that better answers do not raise"),
        fix="change what the first cause names, and nothing else; then score twenty answers by hand",
    )


def _causes(history: History, came: Outcome) -> Iterator[str]:
    highest, share, cut = highest_rate(history), level(history["zero_std"]), level(history["truncated"])
    kl = finite(history["kl"].values)
    yield from (f"{cause}: the rate is {highest:.1e}" for cause in adapter_rate(history))
    if len(kl) and 0 < abs(level(history["kl"])) < STILL:
        yield f"updates that are too small: the KL to the reference is {level(history['kl']):.1g} nats at the end"
    if share > 0.5:
        yield f"{share:.0%} of the groups have equal rewards and teach nothing"
    if cut > 0.3:
        yield f"{cut:.0%} of the answers are cut by the limit"
    noise = noise_of_mean(finite(history["reward"].values), 1)
    if noise > 0.1 * max(abs(came.first), abs(came.last)):
        yield f"few answers a step: its mean reward scatters by {noise:.2g}"
    if highest < ADAPTERS[0] and "model.lora.rank" not in history.settings:
        yield f"a rate of {highest:.1e}, which is too low if an adapter is trained ({ADAPTERS[0]:.0e} and more)"


CHECK = Check(
    name="no-rise",
    asks="whether the reward rose, and what explains it if not",
    needs=("reward",),
    look=look,
    live=False,
    follows=(
        *("no-signal", "rate-exhausted", "small-updates", "gap", "kl", "loss-zero", "reward-falls", "truncation"),
        *("zero-variance-groups", "dead-part", "parts-oppose", "entropy", "length", "degenerate-output"),
        *("identical-samples", "gradient-spikes", "mostly-noise", "clip-idle", "lost-reward", "parser", "references"),
        *("unjudged", "outage", "prompts", "goes-on", "wrong-language", "jump", "untrained", "gain", "not-finite"),
    ),
)
