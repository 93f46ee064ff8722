"""Two readings of a score: with the values that nobody could enter, and without them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from plumbline.records import Score
from plumbline_forms import rubric
from plumbline_forms.executors.executor import Execution
from plumbline_forms.plans.actions import Plan
from plumbline_forms.rubric import Expected
from plumbline_forms.site.page import View
from plumbline_forms.suite.declaration import Value

STRICT, FILLABLE = "strict", "fillable"


def fillable(asked: Sequence[Expected], reference: Mapping[str, Any]) -> tuple[Expected, ...]:
    """What is asked for without the fields whose gold value nobody could enter: they neither pay nor cost."""
    return tuple(one for one in asked if one.field.name not in reference["unfillable"])


def strict(view: View, values: Mapping[str, Value], reference: Mapping[str, Any]) -> tuple[Expected, ...]:
    """What is asked for as the gold has it: a value that nobody could enter is missed by everybody."""
    return rubric.expected(view, {**values, **{name: one["gold"] for name, one in reference["unfillable"].items()}})


def two_readings(asked: Sequence[Expected], raw: Sequence[Expected], plan: Plan, execution: Execution) -> Score:
    """The fillable score, with both beside it.

    Args:
        asked: see `fillable`.
        raw: see `strict`.
        plan: what was carried out.
        execution: the facts.
    """
    found = rubric.score(asked, plan, execution)
    other = rubric.score(raw, plan, execution).total
    return replace(found, readings={STRICT: other, FILLABLE: found.total})
