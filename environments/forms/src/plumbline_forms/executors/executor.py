"""What an executor is: many plans for one form in, for each what happened and what the server
received out.

The direct executor (direct.py) and those that drive a browser (browser/) differ in nothing that a
rubric could see: all follow `operations.py` for what an action comes to, and `values.py` for what a
typed text becomes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from plumbline.records import Failure
from plumbline_browser.plans.actions import Plan
from plumbline_forms.site.page import FormView
from plumbline_forms.site.site import Receipt, Site

Status = Literal["ok", "not found", "refused"]


STEPS, VALUE, SECONDS = 200, 10_000, 20.0
"""What one plan may use up: actions (the rest of a longer plan is not carried out), characters of a
typed text (a longer one is refused), and seconds."""


@dataclass(frozen=True, slots=True)
class FormCase:
    """One form as one example meets it."""

    view: FormView
    files: frozenset[str] = frozenset()
    """Names of the files that there are to attach; nothing else can be, whatever a plan names."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of one action."""

    status: Status
    reason: str = ""
    """Why it was refused or not found."""


OK = Attempt("ok")


@dataclass(frozen=True, slots=True)
class Execution:
    """The facts of one plan: nothing here is a judgement, and nothing is what the plan says about
    itself."""

    attempts: tuple[Attempt, ...]
    """One for each action that was carried out, in order."""
    receipts: tuple[Receipt, ...]
    """What the server received, in order."""
    text: str
    """What the last page reads."""
    cut: bool = False
    """Whether a limit ended it."""
    notes: tuple[str, ...] = field(default=())
    """What else happened (a dialog that was dismissed, a request that was not let out); browsers
    only."""


class Executor(Protocol):
    """Carries out plans. A plan can do nothing that raises; a broken executor gives a `Failure` for
    that plan alone."""

    name: str
    at_once: int
    """Calls that gain from running beside one another."""
    site: Site
    """Where the forms are."""

    def run(self, case: FormCase, plans: Sequence[Plan]) -> list[Execution | Failure]:
        """Carry out each plan on a fresh visit of the form; one result for each plan, in order."""
        ...

    def close(self) -> None:
        """Give back what it holds (browsers, sockets); calling it twice does no harm."""
        ...
