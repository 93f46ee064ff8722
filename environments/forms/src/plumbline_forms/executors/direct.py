"""The direct executor: no browser, no socket. It asks the site for the page, keeps what a browser would, and sends the
request that a browser would send. Tens of times as fast as anything with a browser in it, and checked against one.
"""

import time
from collections.abc import Sequence

from plumbline.records import Failure
from plumbline_forms.executors.executor import OK, Attempt, Case, Execution, Limits
from plumbline_forms.executors.operations import (
    Choose,
    Enter,
    Go,
    Push,
    Put,
    Return,
    Send,
    Tick,
    Touch,
    form_ahead,
    resolve,
)
from plumbline_forms.executors.page import Control, parse_page
from plumbline_forms.executors.request import ELSEWHERE, encode, target_of
from plumbline_forms.executors.visit import NotSentError, Visit
from plumbline_forms.plans.actions import Action, Done, Plan
from plumbline_forms.site.site import Response, Site

_REDIRECTS = 5


class DirectExecutor:
    """See `executor.Executor`. Holds nothing between plans; one may be used by several threads."""

    name = "direct"
    at_once = 1

    def __init__(self, site: Site | None = None, limits: Limits | None = None) -> None:
        self.site = site if site is not None else Site()
        self.limits = limits if limits is not None else Limits()

    def run(self, case: Case, plans: Sequence[Plan]) -> list[Execution | Failure]:
        """See `Executor.run`."""
        return [self._one(case, plan) for plan in plans]

    def close(self) -> None:
        """See `Executor.close`; there is nothing to give back."""

    def visits(self, case: Case, plan: Plan) -> list[tuple[bytes, Visit]]:
        """The pages that a plan came to, as they were served, each with what its controls held when it was left."""
        return self._carried_out(case, plan)[1]

    def _one(self, case: Case, plan: Plan) -> Execution:
        return self._carried_out(case, plan)[0]

    def _carried_out(self, case: Case, plan: Plan) -> tuple[Execution, list[tuple[bytes, Visit]]]:
        episode = self.site.open(case.view)
        try:
            session = _Session(self.site, self.site.address(episode, case.view), case, self.limits)
            attempts, cut = self._carry_out(session, plan)
            receipts = self.site.receipts(episode)
        finally:
            self.site.close(episode)
        return Execution(tuple(attempts), receipts, session.visit.model.text, cut), session.visits

    def _carry_out(self, session: "_Session", plan: Plan) -> tuple[list[Attempt], bool]:
        attempts: list[Attempt] = []
        until = time.monotonic() + self.limits.seconds
        for place, action in enumerate(plan.actions):
            if len(attempts) >= self.limits.steps or time.monotonic() > until:
                return attempts, True
            attempts.append(session.act(plan.actions[place:]))
            if isinstance(action, Done):
                break
        return attempts, False


class _Session:
    """A user at the site: the page that is open, and where it is."""

    def __init__(self, site: Site, address: str, case: Case, limits: Limits) -> None:
        self.site, self.base, self.case, self.limits = site, address, case, limits
        self.path = address
        self.visits: list[tuple[bytes, Visit]] = []
        self._open(address)

    def _open(self, path: str) -> None:
        self._show(path, self.site.handle("GET", path))

    def _show(self, path: str, response: Response) -> None:
        """Follow redirects to a page, and show it."""
        for _ in range(_REDIRECTS):
            if response.status != 303:
                break
            path = response.headers["location"]
            response = self.site.handle("GET", path)
        self.path = path
        self.visit = Visit(parse_page(response.body))
        self.named: Control | None = None
        self.visits.append((response.body, self.visit))

    def act(self, actions: Sequence[Action]) -> Attempt:
        """Carry out the first of the actions that are left."""
        model = self.visit.model
        near = form_ahead(actions, model, self.named)
        found = resolve(actions[0], model, self.case.view.form.path, self.case.files, self.limits, near)
        self.named = getattr(found, "control", self.named)
        match found:
            case Enter():
                return self.visit.enter(found)
            case Choose():
                return self.visit.choose(found)
            case Tick():
                return self.visit.tick(found)
            case Put():
                return self.visit.put(found)
            case Touch():
                return self.visit.touch(found)
            case Push():
                return self.visit.push(found)
            case Send(button):
                return self._send(button)
            case Return():
                return self._return()
            case Go(rest):
                self._open(self.base + rest)
                return OK
            case Attempt():
                return found

    def _send(self, button: Control | None) -> Attempt:
        """Send a form, unless a browser would not."""
        visit = self.visit
        if button is not None and not visit.usable(button):
            return visit.touch(Touch(button))
        form = button.form if button is not None else visit.form_in_use()
        if form is None:
            return Attempt("not found", "there is no form on this page")
        try:
            button = button or visit.default_button(form)
        except NotSentError as error:
            return Attempt("refused", f"not sent, {error}")
        if why := visit.problem(form, button):
            return Attempt("refused", f"not sent, {why}")
        return self._submit(form, button)

    def _submit(self, form: int, button: Control | None) -> Attempt:
        how = self.visit.model.submission(form, button)
        if (path := target_of(how, self.path)) is None:
            return Attempt("refused", ELSEWHERE)
        if how.method == "dialog":
            return OK
        if how.method == "get":
            self._open(path)
            return OK
        kind, body = encode(self.visit.entries(form, button), how.enctype)
        path = self.site.receiver(path, self.path)
        self._show(path, self.site.handle("POST", path, kind, body))
        return OK

    def _return(self) -> Attempt:
        """Enter sends the form from most controls, and breaks the line in a text of several."""
        last = self.visit.last
        if last is None or last.kind in {"select", "multiselect", "file", "color"}:
            return OK
        if last.kind == "button":
            return self.visit.push(Push(last))
        if last.kind == "textarea":
            return self.visit.enter(Enter(last, "\n", clear=False))
        if last.form is None:
            return OK
        try:
            self.visit.default_button(last.form)
        except NotSentError:
            return OK
        return self._send(None)
