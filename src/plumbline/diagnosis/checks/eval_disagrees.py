"""The training reward rises and the evaluation falls: what is paid is not what is wanted, or not where it is wanted."""

from collections.abc import Iterator

import numpy as np

from plumbline.diagnosis.check import Check
from plumbline.diagnosis.finding import Finding
from plumbline.diagnosis.history import History
from plumbline.diagnosis.trends import finite, trend


def look(history: History) -> Iterator[Finding]:
    """Evaluations are few, so it is their trend that counts, and a loss of a tenth of the height."""
    train = trend(history["reward"].values)
    if train.t < 3 or train.last - train.first < 0.02:
        return
    for name in history.names("eval/"):
        if name == "loss" or "loss" in name or "length" in name or "/" in name:
            continue
        series = history[f"eval/{name}"]
        values = finite(series.values)
        if len(values) < 4:
            continue
        line = trend(values)
        best = int(np.argmax(values))
        lost = float(values[best] - values[-1])
        if line.t < -3 and lost > max(0.1 * abs(values[best]), 0.02):
            yield Finding(
                check="eval-disagrees",
                level="warning",
                what=f"the training reward rises ({train.first:.3f} to {train.last:.3f}) and eval/{name} falls "
                f"({values[best]:.3f} to {values[-1]:.3f})",
                since=int(series.steps[best]),
                evidence={"training: t": round(min(train.t, 99.0), 1), "evaluation: t": round(max(line.t, -99.0), 1)},
                about=name,
                causes=("a cheat that the reward pays", "the training prompts are learnt by heart"),
                fix=f"take the checkpoint of step {series.steps[best]}; read completions with the highest rewards",
            )


CHECK = Check(
    name="eval-disagrees",
    asks="whether the evaluation falls while the training reward rises",
    needs=("reward", "eval/"),
    look=look,
)
