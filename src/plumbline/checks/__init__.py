"""What is wrong: before a run (`preflight`, `refusals`), in its records (`diagnosis`), with a
reward (`audit`)."""

from collections.abc import Iterator
from typing import Any

from plumbline.checks.check import Check


def catalogue() -> Iterator[tuple[str, tuple[str, ...], str]]:
    """All checks: their names, their moments, and the first sentence of what they look for."""
    from plumbline.checks.audit.checks import CHECKS as OF_A_REWARD
    from plumbline.checks.diagnosis.rules import CHECKS as OF_RECORDS
    from plumbline.checks.preflight.report import CHECKS as BEFORE

    every: tuple[Check[Any], ...] = (*BEFORE, *OF_RECORDS, *OF_A_REWARD)
    yield from (
        (
            check.name,
            check.moments,
            " ".join((check.look.__doc__ or "").partition("\n\n")[0].split()),
        )
        for check in every
    )
