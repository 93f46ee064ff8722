"""How a function over the records of a stage becomes a check."""

from collections.abc import Callable, Iterator
from typing import Any

from plumbline.checks.check import Check, Finding, Moment
from plumbline.checks.check import check as make_check
from plumbline.checks.diagnosis.history import History, Kind

Look = Callable[[History], Iterator[Finding]]


BOTH: tuple[Kind, ...] = ("rl", "sft")
"""Kinds of a check that looks at every stage."""


def rule(
    name: str,
    *needs: str,
    kinds: tuple[Kind, ...] = ("rl",),
    live: bool = True,
    **options: Any,
) -> Callable[[Look], Check[History]]:
    """Make a function the check `name` of a stage's records; see `Check` for the options.

    Args:
        name: of the check.
        needs: names of series (a name that ends with / is any that begins so), `samples`, `prompts`
            (texts, no ids), `golds` (of samples), `evaluated` (samples), `finals`, or `a|b`, one of
            several.
        kinds: of stages that it applies to.
        live: whether it means anything while a run goes on.
        options: of `Check`.
    """
    moments: tuple[Moment, ...] = ("during", "after") if live else ("after",)
    return make_check(*moments, name=name, needs=needs, kinds=kinds, **options)


def persisted(steps: int) -> Callable[[History, int], bool]:
    """A rule of stopping: a fatal finding that every look has had for so many steps."""
    return lambda history, since: history.last_step - since >= steps
