"""A part of the reward that says nothing: its weight is in the total, and no answer ever moves it."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History

ENOUGH = 10
"""Logged steps from which a part that never moved is called dead; a live part of 64 rollouts a step moves in one."""
FLAT = 1e-9


def look(history: History) -> Iterator[Finding]:
    """A finding a part. At 0 it is dead; at one value above it is paid for nothing, which is no fault of itself."""
    names = history.names("part/")
    moving = [name for name in names if np.ptp(_values(history, name)) > FLAT] if names else []
    for name in names:
        values = _values(history, name)
        if len(values) < ENOUGH or np.ptp(values) > FLAT or _spread(history, name) > FLAT:
            continue
        value = float(values[0])
        if abs(value) < FLAT:
            yield Finding(
                check="dead-part",
                level="warning" if moving else "fatal",
                what=f"the part {name} of the reward was 0 in all of {len(values)} logged steps",
                since=int(history[f"part/{name}"].steps[0]),
                evidence={"steps": len(values), "parts that move": len(moving)},
                causes=(
                    "what it looks for is read wrongly, or never there (score a gold answer: it must earn it)",
                    "the model never does it: there is nothing to reinforce until it sometimes does",
                ),
                about=name,
                fix=f"score gold answers; if they earn {name}, show it in SFT first, or pay steps towards it",
            )
        elif len(names) > 1:
            yield Finding(
                check="dead-part",
                level="note",
                what=f"the part {name} of the reward is {value:.3g} for every answer of all {len(values)} logged steps",
                evidence={"steps": len(values)},
                causes=("it is solved, or paid without being earned",),
            )


def _values(history: History, name: str) -> np.ndarray:
    values = history[f"part/{name}"].values
    return values[np.isfinite(values)] if np.isfinite(values).any() else np.zeros(1)


def _spread(history: History, name: str) -> float:
    """The largest spread within a step, where that is logged: a mean may stand still by chance."""
    values = history[f"part_std/{name}"].values
    values = values[np.isfinite(values)]
    return float(values.max()) if len(values) else 0.0


CHECK = Check(
    name="dead-part",
    asks="whether a part of the reward was 0, or one value, for every answer",
    needs=("part/",),
    look=look,
)
