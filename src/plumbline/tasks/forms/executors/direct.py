"""The direct executor: no browser, no socket. It asks the site for the page, keeps what a browser would, and sends the
request that a browser would send. Tens of times as fast as anything with a browser in it, and checked against one.
"""

import time
from collections.abc import Sequence

from plumbline.records import Failure
from plumbline.tasks.forms.executors.executor import OK, Attempt, Case, Execution, Limits
from plumbline.tasks.forms.executors.operations import Choose, Enter, Go, Put, Return, Send, Tick, Touch, resolve
from plumbline.tasks.forms.executors.page import parse_page
from plumbline.tasks.forms.executors.request import encode
from plumbline.tasks.forms.executors.visit import Visit
from plumbline.tasks.forms.plans.actions import Action, Done, Plan
from plumbline.tasks.forms.site.site import Response, Site

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
        for action in plan.actions:
            if len(attempts) >= self.limits.steps or time.monotonic() > until:
                return attempts, True
            attempts.append(session.act(action))
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
        self.visits.append((response.body, self.visit))

    def act(self, action: Action) -> Attempt:
        """Carry out one action."""
        found = resolve(action, self.visit.model, self.case.view.form.path, self.case.files, self.limits)
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
            case Send():
                return self._send()
            case Return():
                return self._return()
            case Go(rest):
                self._open(self.base + rest)
                return OK
            case Attempt():
                return found

    def _send(self) -> Attempt:
        """Send the form, unless a browser would not."""
        if why := self.visit.problem():
            return Attempt("refused", f"not sent, {why}")
        kind, body = encode(self.visit.entries(), multipart=self.visit.model.multipart)
        self._show(self.path, self.site.handle("POST", self.path, kind, body))
        return OK

    def _return(self) -> Attempt:
        """Enter sends the form from most controls, and breaks the line in a text of several."""
        last = self.visit.last
        if last is None or last.kind in {"select", "multiselect", "file"}:
            return OK
        if last.kind == "textarea":
            return self.visit.enter(Enter(last, "\n", clear=False))
        return self._send()
