"""How far a plan has come: what was carried out, what is left, and whether a limit ended it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from plumbline_forms.executors.executor import Attempt, Limits
from plumbline_forms.plans.actions import Action, Done, Plan


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
