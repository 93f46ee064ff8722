"""Which fields of a form are wrong, in words: what each should have received, and what it did."""

from collections.abc import Sequence

from plumbline.records import Mistake
from plumbline_forms.canonical import Canonical, canonical
from plumbline_forms.executors.executor import Execution
from plumbline_forms.rubric import Expected
from plumbline_forms.site.receipts import submission_of

NOTHING = "(nothing)"
_MOST_REASONS = 6


def mistakes_of(asked: Sequence[Expected], execution: Execution) -> list[Mistake]:
    """Every field that is wrong; for a form that never arrived whole, what was refused instead."""
    submission = submission_of(execution.receipts)
    if submission is None:
        return [Mistake(what="the form", expected="sent, and accepted", received=_why_not(execution))]
    found = []
    for one in asked:
        source = submission.files if one.field.kind == "file" else submission.entries
        got = canonical(one.field, source.get(one.field.name, ()))
        if got != one.gold:
            found.append(Mistake(what=one.field.label, expected=_text(one.gold), received=_text(got)))
    return found


def _why_not(execution: Execution) -> str:
    """What the server said, else which actions failed."""
    said = [f"{name}: {error}" for receipt in execution.receipts for name, error in receipt.errors.items()]
    failed = [
        f"action {number} {attempt.status}: {attempt.reason}".removesuffix(": ")
        for number, attempt in enumerate(execution.attempts, 1)
        if attempt.status != "ok"
    ]
    reasons = said or failed
    if not reasons:
        return "nothing was sent" if execution.attempts else "no action could be read from the answer"
    left = len(reasons) - _MOST_REASONS
    return "; ".join(reasons[:_MOST_REASONS]) + (f"; and {left} more" if left > 0 else "")


def _text(value: Canonical) -> str:
    return (value if isinstance(value, str) else ", ".join(value)) or NOTHING
