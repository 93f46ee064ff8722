"""The reward is less than its parts: in TRL a part that is NaN counts as 0 in the sum, and not in its own mean."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.facts import sums
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History


def look(history: History) -> Iterator[Finding]:
    """Where the reward is the plain sum of its parts at most steps, the steps at which it is less."""
    unknown = [one for one in history.samples if any(v is not None and np.isnan(v) for v in one.parts.values())]
    if unknown:
        yield Finding(
            check="lost-reward",
            level="warning",
            what=f"a reward function gave NaN for {len(unknown)} of {len(history.samples)} completions",
            since=unknown[0].step,
            evidence={"completions": len(unknown)},
            samples=tuple(one.prompt[:80] for one in unknown[:3]),
            causes=("the function cannot judge them, and they are counted as 0",),
            fix="a reward that is not known is no reward of 0: leave such completions out, or judge them",
        )
        return
    if history.origin == "plumbline":
        return  # our parts are weighted, and a part that was not judged is None
    steps, less, scale = sums(history)
    if len(steps) < 5:
        return
    equal = np.abs(less) < scale
    lost = less > scale
    if not equal.mean() >= 0.2 or not lost.any():  # under weights other than 1 no step is equal
        return
    yield Finding(
        check="lost-reward",
        level="warning",
        what=f"in {int(lost.sum())} of {len(steps)} logged steps the reward is less than the sum of its parts, by up "
        "to "
        f"{np.nanmax(less):.3g}",
        since=steps[int(np.argmax(lost))],
        evidence={"steps": int(lost.sum()), "largest": float(np.nanmax(less))},
        causes=("a reward function returned NaN or None for some completions, which count as 0 in the sum",),
        fix="find the completions for which a reward function returns NaN; a reward that is not known is no reward "
        "of 0",
    )


CHECK = Check(
    name="lost-reward",
    asks="whether rewards that are not numbers were counted as 0",
    needs=("reward", "part/"),
    look=look,
)
