"""The direct executor: no browser, no socket. It asks the site for the page, keeps what a browser would, and sends the
request that a browser would send. Tens of times as fast as anything with a browser in it, and checked against one.
"""

import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from plumbline.records import Failure
from plumbline.tasks.forms.executors.executor import Attempt, Case, Execution, Limits
from plumbline.tasks.forms.executors.locate import folded, loose
from plumbline.tasks.forms.executors.page import Control, parse_page
from plumbline.tasks.forms.executors.request import encode
from plumbline.tasks.forms.executors.visit import OK, Visit
from plumbline.tasks.forms.plans.actions import (
    Action,
    Attach,
    Check,
    Click,
    Done,
    Navigate,
    Plan,
    Press,
    Select,
    Submit,
    Type,
    Uncheck,
)
from plumbline.tasks.forms.plans.grammar import SUBMIT_WORDS
from plumbline.tasks.forms.site.site import Response, Site

_REDIRECTS = 5
_LOCAL = frozenset({"127.0.0.1", "localhost", ""})
_IDLE_KEYS = frozenset({"tab", "escape", "esc", "shift+tab", "pagedown", "pageup", "end", "home"})


class DirectExecutor:
    """See `executor.Executor`. Holds nothing between plans; one may be used by several threads."""

    name = "direct"

    def __init__(self, site: Site | None = None, limits: Limits | None = None) -> None:
        self.site = site if site is not None else Site()
        self.limits = limits if limits is not None else Limits()

    def run(self, case: Case, plans: Sequence[Plan]) -> list[Execution | Failure]:
        """See `Executor.run`."""
        return [self._one(case, plan) for plan in plans]

    def close(self) -> None:
        """See `Executor.close`; there is nothing to give back."""

    def _one(self, case: Case, plan: Plan) -> Execution:
        episode = self.site.open(case.view)
        try:
            session = _Session(self.site, self.site.address(episode, case.view), case, self.limits)
            attempts, cut = self._carry_out(session, plan)
            receipts = self.site.receipts(episode)
        finally:
            self.site.close(episode)
        return Execution(tuple(attempts), receipts, session.visit.model.text, cut)

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
        self.visit = Visit(parse_page(response.body), self.case.files, self.limits)

    def act(self, action: Action) -> Attempt:
        """Carry out one action."""
        match action:
            case Type():
                return self.visit.type(action)
            case Select():
                return self.visit.select(action)
            case Check() | Uncheck():
                return self.visit.tick(action)
            case Attach():
                return self.visit.attach(action)
            case Click():
                clicked = self.visit.click(action)
                return self._send() if isinstance(clicked, Control) else clicked
            case Submit(label):
                return self._submit(label)
            case Press(keys):
                return self._press(keys)
            case Navigate(url):
                return self._navigate(url)
            case Done():
                return OK

    def _navigate(self, url: str) -> Attempt:
        """Load one of the form's own pages anew; nothing else is let out."""
        try:
            parts = urlsplit(url)
        except ValueError:
            return Attempt("refused", f"{url[:60]!r} is no address")
        rest = parts.path.rstrip("/").removeprefix(self.case.view.form.path)
        own = parts.path.startswith(self.case.view.form.path) and (not rest or rest[1:].isdecimal())
        if parts.scheme not in {"", "http"} or (parts.hostname or "") not in _LOCAL or not own:
            return Attempt("refused", f"{url[:60]!r} is not the address of this form")
        self._open(self.base + rest)
        return OK

    def _submit(self, label: str) -> Attempt:
        buttons = [one for one in self.visit.model.controls if one.kind == "button"]
        if not buttons:
            return Attempt("not found", "there is no button on this page")
        known = any(loose(one.label) == loose(label) for one in buttons)
        if not known and not _is_generic(folded(label)):
            return Attempt("not found", f"no button is called {label[:60]!r}")
        return self._send()

    def _send(self) -> Attempt:
        """Send the form, unless a browser would not."""
        if why := self.visit.problem():
            return Attempt("refused", f"not sent, {why}")
        kind, body = encode(self.visit.entries(), multipart=self.visit.model.multipart)
        self._show(self.path, self.site.handle("POST", self.path, kind, body))
        return OK

    def _press(self, keys: str) -> Attempt:
        key, last = keys.strip().casefold(), self.visit.last
        if key in {"enter", "return"}:
            if last is None or last.kind in {"select", "multiselect", "file"}:
                return OK
            if last.kind == "textarea":
                return self.visit.append(last, "\n")
            return self._send()
        if key in _IDLE_KEYS:
            return OK
        return Attempt("refused", f"the key {keys[:20]!r} does nothing here")


def _is_generic(wanted: str) -> bool:
    """Whether the name of a button only says that it sends: "", "Submit", "Submit form", "the Enviar button"."""
    return not wanted or not SUBMIT_WORDS.isdisjoint(wanted.split())
