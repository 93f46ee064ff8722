"""The reward itself, by those that know the answer and those that do not: the oracle and the controls."""

from collections.abc import Iterator

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.evaluation.statistics import surely_over
from plumbline.runs.evaluations import REFERENCE

ORACLE = "oracle"
HALF = 0.5
"""A control that earns more leaves less than half of the scale for knowing anything."""


def look(history: History) -> Iterator[Finding]:
    """Per task and split: the oracle below 1, and controls over their limits, or over a half where there are none."""
    for final in history.finals:
        if final.stage != REFERENCE:
            continue
        mean, where = final.evaluation.mean_reward, f"{final.task} {final.split}".strip()
        headline = final.evaluation.headline
        limit = headline.limits.get(final.mode) if headline is not None else None
        if final.mode == ORACLE and mean < 1 - 1e-6:
            low = [row.id for row in final.evaluation.rows if row.reward < 1 - 1e-6]
            yield Finding(
                check="references",
                level="fatal",
                what=f"gold answers earn {mean:.3f} on {where}: {len(low)} of {len(final.evaluation.rows)} earn less "
                "than 1",
                evidence={"mean": mean, "below 1": len(low)},
                samples=tuple(low[:3]),
                causes=("the reader of answers rejects right ones", "wrong gold answers"),
                fix="judge one of them part by part: no training is worth its time before that is 1",
            )
        elif final.mode != ORACLE and surely_over(final.evaluation.rewards(), HALF if limit is None else limit):
            yield Finding(
                check="references",
                level="warning",
                what=f"the control {final.mode} earns {mean:.3f} on {where}"
                + ("" if limit is None else f", more than the {limit:g} that its task grants it"),
                evidence={"mean": mean, "limit": HALF if limit is None else limit},
                causes=("the reward pays what can be had without reading the prompt",),
                fix="look at what it earns, part by part, and pay that less",
            )


CHECK = Check(
    name="references",
    asks="whether gold answers earn everything, and cheats little",
    needs=("finals",),
    look=look,
    kinds=("rl", "sft"),
    live=False,
)
