"""Pairs of evaluations that are shown together: each one's difference, and how certain all of them are.

Every comparison of a table is one question of several, so their p-values are adjusted together (Holm). A comparison is
of two trained models on these examples: what another seed would do, it does not say.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from plumbline.errors import IncomparableError, PlumblineError
from plumbline.evaluation.comparison import compare
from plumbline.evaluation.statistics import Direction, Paired, detectable, direction, holm
from plumbline.records import Evaluation
from plumbline.runs.evaluations import EvaluationKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """One evaluation against another: the paired difference, or why there is none."""

    run: str
    against: str
    asked: str
    """Task, split and mode."""
    paired: Paired | None = None
    error: PlumblineError | None = None
    """Why the two are not comparable."""
    remark: str = ""
    """What else differs between the two but the model."""
    p: float = math.nan
    """Adjusted for all comparisons of the table."""
    detectable: float | None = None
    """The least difference that these examples show four times in five, so adjusted; None where no pair differs."""

    @property
    def direction(self) -> Direction:
        """Whether the second is better, worse, or not shown to differ."""
        return "same" if self.paired is None else direction(self.paired.difference, self.p)

    def remarked(self, said: str) -> "Pairing":
        """The same with a further remark; with none where that is empty."""
        return replace(self, remark="; ".join(one for one in (self.remark, said) if one))


def name_of(key: EvaluationKey) -> str:
    """What a pairing calls an evaluation of a run: task, split and mode."""
    return f"{key.task} {key.split} {key.mode}".strip()


def paired_with(pairing: Pairing, before: Evaluation, after: Evaluation) -> Pairing:
    """The pairing with its difference, or with why there is none."""
    law = after.sampling
    drawn = [f"{key} {old} → {law[key]}" for key, old in before.sampling.items() if law.get(key, old) != old]
    pairing = pairing.remarked(f"drawn otherwise: {', '.join(drawn)}" if drawn else "")
    try:
        return replace(pairing, paired=compare(before, after))
    except IncomparableError as error:
        return replace(pairing, error=error)


def adjusted(pairings: Sequence[Pairing]) -> tuple[Pairing, ...]:
    """The pairings with p-values and detectable differences adjusted for how many there are."""
    tested = [one.paired for one in pairings if one.paired is not None]
    p_values = iter(holm([one.p_value for one in tested]))
    found = []
    for one in pairings:
        if one.paired is not None:
            difference = one.paired.difference
            least = detectable(difference, len(tested)) if difference.high > difference.low else None
            one = replace(one, p=next(p_values), detectable=least)
        found.append(one)
    return tuple(found)


def plain_pairing(one: Pairing) -> dict[str, Any]:
    """A pairing as JSON values: the paired difference, or `not_comparable`."""
    if one.paired is None:
        return {"not_comparable": one.error.cause if one.error is not None else ""}
    more = {"p_holm": one.p, "detectable": one.detectable, "direction": one.direction, "remark": one.remark}
    return asdict(one.paired) | more
