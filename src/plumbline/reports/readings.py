"""The same answers read strictly and leniently: what a strict parser takes away from answers that are right."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from plumbline.evaluation.figures import EARNED
from plumbline.evaluation.statistics import TIE
from plumbline.records import Evaluation, Judged

STRICT, LENIENT, EXACT = "strict", "lenient", "exact"


@dataclass(frozen=True, slots=True)
class Rescued:
    """Answers that strict parsing scores as 0 although they earn something, and those whose content is right."""

    n: int
    earning: int
    right: int | None
    """None where the parts are those of the strict reading, which say nothing about these answers."""


def reading_names(evaluations: Iterable[Evaluation]) -> list[str]:
    """Every reading, strict first, lenient second."""
    names = {name for evaluation in evaluations for row in evaluation.rows for name in row.readings}
    return [*(n for n in (STRICT, LENIENT) if n in names), *sorted(names - {STRICT, LENIENT})]


def reward_reading(evaluations: Iterable[Evaluation]) -> str | None:
    """The reading that the reward is, on every judged answer; None where it is none of them."""
    rows = [row for evaluation in evaluations for row in evaluation.rows if row.readings]
    names = {name for row in rows for name in row.readings}
    same = [n for n in names if all(abs(row.readings.get(n, -1.0) - row.reward) < TIE for row in rows)]
    return next((n for n in (LENIENT, STRICT, *sorted(names)) if n in same), None)


def has_both(evaluation: Evaluation) -> bool:
    """Whether answers were read both ways."""
    return any(STRICT in row.readings and LENIENT in row.readings for row in evaluation.rows)


def rescued(rows: Iterable[Judged], form: Sequence[str]) -> Rescued:
    """Count the answers that only the lenient reading pays; `form` names the parts that are not content."""
    both = [row for row in rows if STRICT in row.readings and LENIENT in row.readings]
    paid = [row for row in both if row.readings[STRICT] <= TIE < row.readings[LENIENT]]
    is_known = all(abs(row.reward - row.readings[LENIENT]) < TIE for row in paid)
    return Rescued(len(both), len(paid), sum(is_right(row, form) for row in paid) if is_known else None)


def is_right(row: Judged, form: Sequence[str]) -> bool:
    """Whether an answer's content is right; what it loses by its form (a code fence, say) does not matter.

    A part named `exact` decides, where there is one: it may allow a number to be a little off.
    """
    content = {name: value for name, value in row.parts.items() if value is not None and name not in form}
    if EXACT in content:
        return content[EXACT] >= EARNED
    return min(content.values()) >= EARNED if content else row.readings.get(LENIENT, row.reward) >= EARNED
