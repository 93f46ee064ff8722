"""One of several tasks that never earns anything: its prompts are paid for and teach nothing."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.trends import finite

ENOUGH = 10
"""Logged steps, as for a part."""


def look(history: History) -> Iterator[Finding]:
    """Where another task earns something; where none does, other checks say so."""
    levels = {name: finite(history[f"task/{name}"].values) for name in history.names("task/")}
    dead = [name for name, values in levels.items() if len(values) >= ENOUGH and not np.any(np.abs(values) > 1e-9)]
    if not dead or len(dead) == len(levels):
        return
    for name in dead:
        yield Finding(
            check="dead-task",
            level="warning",
            what=f"the task {name} earned 0 in all of {len(levels[name])} logged steps, and others did not",
            since=int(history[f"task/{name}"].steps[0]),
            evidence={"steps": len(levels[name])},
            causes=("the model cannot do it at all", "its verifier rejects everything (score its gold answers)"),
            fix=f"show {name} in SFT first, or leave it out: its rollouts have no gradient",
        )


CHECK = Check(name="dead-task", asks="whether one of several tasks never earned anything", needs=("task/",), look=look)
