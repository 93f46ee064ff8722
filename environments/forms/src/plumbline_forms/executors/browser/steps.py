"""A plan's actions on one page as the steps that `hand.js` carries out, and what became of them as attempts."""

import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from plumbline_forms.executors import operations as does
from plumbline_forms.executors.direct import stub
from plumbline_forms.executors.executor import Attempt, Case, Limits
from plumbline_forms.executors.operations import Operation, form_ahead, resolve
from plumbline_forms.executors.page import Control, PageModel
from plumbline_forms.plans.actions import Action, Done, Plan
from plumbline_forms.values import typed

# -- course --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Course:
    """A plan under way."""

    plan: Plan
    limits: Limits
    attempts: list[Attempt] = field(default_factory=list)
    cut: bool = False

    @property
    def rest(self) -> Sequence[Action]:
        """The actions that are still to be carried out."""
        ended = self.cut or (self.attempts and isinstance(self.plan.actions[len(self.attempts) - 1], Done))
        return () if ended else self.plan.actions[len(self.attempts) : self.limits.steps]

    def add(self, attempts: Sequence[Attempt], *, cut: bool) -> None:
        """Note what became of the next actions, and whether the time was up after them."""
        self.attempts += attempts
        full = len(self.attempts) >= self.limits.steps and len(self.plan.actions) > self.limits.steps
        done = self.attempts and isinstance(self.plan.actions[len(self.attempts) - 1], Done)
        self.cut = cut or (full and not done)


# -- steps ---------------------------------------------------------------------------------------------------------

Step = dict[str, Any]
"""As `hand.js` reads it."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Actions that can be carried out on one page in one call, and how the page is left after them."""

    settled: tuple[Attempt | None, ...]
    """One for each action: how it ended without the page, or None where a step tells."""
    steps: tuple[Step, ...]
    go: does.Go | None
    """Where the last action loads a page anew; it counts among the settled ones."""
    last: Control | None = None
    """The control that the plan named last."""

    def attempts(self, told: Sequence[Sequence[str]], *, sent: bool) -> list[Attempt]:
        """What became of the actions so far, in order.

        Args:
            told: status and reason of the steps that were carried out.
            sent: whether the next step sends the form, which ends the stretch there.
        """
        found: list[Attempt] = []
        rest = iter(told)
        for one in self.settled:
            if one is not None:
                found.append(one)
            elif (step := next(rest, None)) is not None:
                found.append(Attempt(*step))  # type: ignore[arg-type]  # the hand knows these three words alone
            else:
                # What follows a sent form was settled for a page that is gone; it is looked at on the next one.
                return [*found, Attempt("ok")] if sent else found
        return found


def stretch(
    actions: Sequence[Action],
    model: PageModel,
    case: Case,
    limits: Limits,
    last: Control | None = None,
    *,
    pauses: bool = False,
) -> Stretch:
    """The steps of the actions that lie on this page: up to the first that loads a page, or ends the plan.

    Args:
        actions: the rest of a plan.
        model: of the page that is open.
        case: the form.
        limits: of the plan.
        last: the control that the plan named last.
        pauses: whether a button that may change the page ends the stretch.
    """
    settled: list[Attempt | None] = []
    steps: list[Step] = []
    for place, action in enumerate(actions):
        near = form_ahead(actions[place:], model, last)
        found = resolve(action, model, case.view.form.path, case.files, limits, near)
        if isinstance(found, does.Go):
            return Stretch((*settled, Attempt("ok")), tuple(steps), found)
        if isinstance(found, Attempt):
            settled.append(found)
            if isinstance(action, Done):
                break
            continue
        settled.append(None)
        steps.append(step_of(found, model))
        last = getattr(found, "control", last)
        if pauses and isinstance(found, does.Push):
            break
    return Stretch(tuple(settled), tuple(steps), None, last)


def step_of(operation: Operation, model: PageModel) -> Step:
    """An operation as the hand reads it; a reason that it gives calls controls what the direct executor calls them."""
    called = [one.called for one in model.controls]
    match operation:
        case does.Send(button):
            return {"op": "send", "button": button.index if button is not None else None, "called": called}
        case does.Return():
            return {"op": "return", "called": called}
        case does.Go():
            raise AssertionError("loading a page is no step on it")
    control = operation.control
    at = {"op": type(operation).__name__.lower(), "index": control.index, "called": control.called}
    match operation:
        case does.Enter(_, text, clear):
            # Length is the browser's business; what a date or a number means on this page is the law of typing.
            entered = typed(control.kind, text, model.language)
            return {**at, "text": entered.value, "clear": clear, "refused": entered.refused}
        case does.Choose(_, place, on):
            return {**at, "place": place, "on": on}
        case does.Tick(_, on):
            return {**at, "on": on}
        case does.Put(_, name):
            kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
            return {**at, "name": name, "type": kind, "content": stub(name).decode("utf-8", "replace")}
    return at
