"""The checks of a run's records. A new one is a function with the decorator `rule` in a module
here."""

from plumbline.checks.check import Check
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.rules import (
    answers,
    data,
    evaluations,
    gold,
    hacking,
    losses,
    policy,
    preference,
    reward,
    rows,
    series,
    signal,
    steps,
)

CHECKS: tuple[Check[History], ...] = tuple(
    dict.fromkeys(
        one
        for module in (
            series,
            signal,
            reward,
            gold,
            rows,
            steps,
            policy,
            answers,
            hacking,
            evaluations,
            data,
            preference,
            losses,
        )
        for one in vars(module).values()
        if isinstance(one, Check)
    )
)
"""What follows from what: `checks/consequences.yaml`."""
