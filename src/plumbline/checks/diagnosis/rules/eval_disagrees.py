"""The training reward rises and the evaluation falls: what is paid is not what is wanted, or not where it is wanted."""

from collections.abc import Iterator
from statistics import NormalDist

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.facts import level, likely
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.trends import finite, order, trend

CHANCE = 0.01
"""Of one finding in evaluations that only jump about, however many names they have."""
BLOCKS = 12


def look(history: History) -> Iterator[Finding]:
    """Evaluations are few and fall at once or slowly, so it is their order that counts, and a tenth of the height."""
    train = trend(history["reward"].values)
    if train.t < 3 or train.last - train.first < 0.02:
        return
    names = [name for name in history.names("eval/") if not ("loss" in name or "length" in name or "/" in name)]
    sure = NormalDist().inv_cdf(1 - CHANCE / max(1, len(names)))
    for name in names:
        series = history[f"eval/{name}"]
        values = finite(series.values)
        if len(values) < 4:
            continue
        down = order(np.array([block.mean() for block in np.array_split(values, min(BLOCKS, len(values)))]))
        best = int(np.argmax(values))
        lost = float(values[best] - values[-1])
        if down < -sure and lost > max(0.1 * abs(values[best]), 0.02):
            yield Finding(
                check="eval-disagrees",
                level="warning",
                what=f"the training reward rises ({train.first:.3f} to {train.last:.3f}) and eval/{name} falls "
                f"({values[best]:.3f} to {values[-1]:.3f})",
                since=int(series.steps[best]),
                evidence={"training: t": round(min(train.t, 99.0), 1), "evaluation: z of its order": round(down, 1)},
                about=name,
                causes=likely(
                    history,
                    "a cheat that the reward pays",
                    ("the training prompts are learnt by heart", lambda run: 0 < level(run["epoch"]) < 1),
                    ("other prompts than those of the evaluation", lambda run: not 0 < level(run["epoch"]) < 1),
                ),
                fix=f"take the checkpoint of step {series.steps[best]}; read completions with the highest rewards",
            )


CHECK = Check(
    name="eval-disagrees",
    asks="whether the evaluation falls while the training reward rises",
    needs=("reward", "eval/"),
    look=look,
)
