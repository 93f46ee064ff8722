"""One part of the reward rises at the cost of another: form that eats content, two parts that cannot both be had."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.trends import finite, trend

SURE = 5.0
"""Student's t of a line through eight blocks: 0.1 % of noise has more than 6.0, and two lines must have it."""
LARGE = 0.3
"""Share of what it had at first that the falling part lost."""
ENOUGH = 24


def look(history: History) -> Iterator[Finding]:
    """Each part that fell for sure, beside the one that rose most, while the whole did not fall."""
    lines = {
        name: trend(values)
        for name in history.names("part/")
        if len(values := finite(history[f"part/{name}"].values)) >= ENOUGH
    }
    whole = trend(history["reward"].values)
    rising = {name: line for name, line in lines.items() if line.t > SURE and line.last - line.first > 0.05}
    if not rising or whole.t < -2:
        return
    up = max(rising, key=lambda name: rising[name].last - rising[name].first)
    for name, line in lines.items():
        lost = line.first - line.last
        if line.t < -SURE and lost > 0.05 and lost > LARGE * abs(line.first):
            yield Finding(
                check="parts-oppose",
                level="warning",
                what=f"the part {name} of the reward fell from {line.first:.3f} to {line.last:.3f} while {up} rose "
                "from "
                f"{rising[up].first:.3f} to {rising[up].last:.3f}",
                evidence={
                    f"{name}: t": round(float(np.clip(line.t, -99, 99)), 1),
                    f"{up}: t": round(min(rising[up].t, 99.0), 1),
                },
                about=name,
                causes=("the rising part is cheaper to earn, and costs the other", "the weights say it is worth it"),
                fix=f"raise the weight of {name}, or pay {up} only where {name} is earned, too",
            )


CHECK = Check(
    name="parts-oppose",
    asks="whether a part of the reward falls while another rises",
    needs=("part/", "reward"),
    look=look,
)
