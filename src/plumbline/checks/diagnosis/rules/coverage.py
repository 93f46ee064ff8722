"""How much of the data a run has seen: a plateau on a seventh of the prompts is no ceiling."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History

LITTLE = 0.2
"""Of an epoch; one team's log stopped at 0.135."""


def look(history: History) -> Iterator[Finding]:
    """At the last step, of each task where there are several. Whether more would help nobody knows, so it is a note."""
    planned = history.settings.get("steps")
    if history.last_step < 20 or (isinstance(planned, int) and history.last_step < 0.9 * planned):
        return
    for task in history.names("epoch/") or [""]:
        series = history[f"epoch/{task}" if task else "epoch"]
        values = series.values[np.isfinite(series.values)]
        if not len(values) or values[-1] >= LITTLE:
            continue
        whole = round(history.last_step / max(float(values[-1]), 1e-9))
        yield Finding(
            check="coverage",
            level="note",
            what=f"{values[-1]:.1%} of the training prompts{f' of {task}' if task else ''} were seen in "
            f"{history.last_step} steps",
            since=int(series.steps[-1]),
            evidence={"epochs": float(values[-1]), "steps for an epoch": whole},
            causes=("few steps, or few prompts a step, for this much data",),
            fix=f"before a plateau is called the model's limit, train longer: {whole} steps see each prompt once",
            change={"rl.steps": whole},
        )


CHECK = Check(
    name="coverage", asks="what share of the training prompts was seen", needs=("epoch",), look=look, live=False
)
