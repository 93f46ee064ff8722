"""The direct executor: no browser, no socket. It asks the site for the page, keeps what a browser
would, and sends the request that a browser would send. Tens of times as fast as anything with a
browser in it, and checked against one.
"""

import mimetypes
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote_plus, urljoin, urlsplit

from plumbline.records import Failure
from plumbline_browser.plans.actions import Action, Plan
from plumbline_forms.executors import operations as does
from plumbline_forms.executors.executor import OK, SECONDS, STEPS, Attempt, Execution, FormCase
from plumbline_forms.executors.operations import form_ahead, resolve
from plumbline_forms.executors.page import (
    PLAIN,
    URLENCODED,
    Control,
    FormOwner,
    PageModel,
    parse_page,
)
from plumbline_forms.site.site import Site
from plumbline_forms.values import PICKED, TYPED, held, invalid, typed

# -- the request that a browser sends --------------------------------------------------------------

_REDIRECTS = 5
_BOUNDARY = "----PlumblineFormBoundary"


@dataclass(frozen=True, slots=True)
class FormEntry:
    """One entry of a form: a value, or the name of a file ("" for a file control that was left
    empty)."""

    name: str
    value: str
    is_file: bool = False


def stub(name: str) -> bytes:
    """The content of a file of this name: no file is ever read, because a plan names it."""
    return f"Plumbline stub for {name}\n".encode("utf-8", "replace")


def encode(entries: Sequence[FormEntry], enctype: str = URLENCODED) -> tuple[str, bytes]:
    """Content type and body: urlencoded, multipart or plain."""
    if enctype == PLAIN:
        return PLAIN, "".join(f"{entry.name}={_crlf(entry.value)}\r\n" for entry in entries).encode(
            "utf-8", "replace"
        )
    if enctype != "multipart/form-data":
        pairs = (f"{_form(entry.name)}={_form(_crlf(entry.value))}" for entry in entries)
        return "application/x-www-form-urlencoded", "&".join(pairs).encode("ascii")
    boundary = _BOUNDARY
    while any(boundary in entry.value for entry in entries):
        boundary += "x"
    body = bytearray()
    for entry in entries:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{_part(entry.name)}"'
        content = _crlf(entry.value).encode("utf-8", "replace")
        if entry.is_file:
            kind = mimetypes.guess_type(entry.value)[0] or "application/octet-stream"
            head += f'; filename="{_part(entry.value)}"\r\nContent-Type: {kind}'
            content = stub(entry.value) if entry.value else b""
        body += f"{head}\r\n\r\n".encode("utf-8", "replace") + content + b"\r\n"
    body += f"--{boundary}--\r\n".encode("ascii")
    return f"multipart/form-data; boundary={boundary}", bytes(body)


def _form(text: str) -> str:
    if text.isascii() and text.isalnum():  # nearly every name, and most values
        return text
    return quote_plus(text, safe="*", errors="replace").replace("~", "%7E")


def _crlf(text: str) -> str:
    return re.sub(r"\r\n?|\n", "\r\n", text)


def _part(text: str) -> str:
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


class Tab:
    """The page of an episode that is open, without a browser."""

    def __init__(self, site: Site, case: FormCase) -> None:
        """Begin an episode; nothing is loaded yet."""
        self.site, self.episode = site, site.open(case.view)
        self.base = self.path = site.address(self.episode, case.view)
        self.html = b""

    def load(self, path: str, kind: str = "", body: bytes | None = None) -> None:
        """Ask for a page, or send a form there, and follow redirects."""
        response = self.site.handle("GET" if body is None else "POST", path, kind, body or b"")
        for _ in range(_REDIRECTS):
            if response.status != 303:
                break
            path = response.headers["location"]
            response = self.site.handle("GET", path)
        self.path, self.html = path, response.body

    def send(self, how: FormOwner, entries: Sequence[FormEntry]) -> bool:
        """Send a form of this page; whether its address is one of the site."""
        try:
            parts = urlsplit(urljoin(f"http://site{self.path}", how.action.strip()))
        except ValueError:
            return False
        if (parts.scheme, parts.netloc) != ("http", "site"):
            return False
        if how.method == "get":
            self.load(parts.path)
        else:
            self.load(self.site.receiver(parts.path, self.path), *encode(entries, how.enctype))
        return True


# -- one page while a user is at it ----------------------------------------------------------------

ENTERED = (TYPED | PICKED) - {"textarea", "range", "color"}
"""Kinds of which Enter sends a form without a button only where it has no other."""


class NotSentError(Exception):
    """Pressing Enter does not send a form; the message says why."""


class Visit:
    """The state of one page. Every operation gives an `Attempt`; none raises."""

    def __init__(self, model: PageModel) -> None:
        self.model = model
        self.now = list(model.controls)
        """The controls with what they hold, by their place."""
        self.edited: set[int] = set()
        self.last: Control | None = None
        """The control that was used last: it has the focus."""

    # -- what is on the page -----------------------------------------------------------------------

    def enabled(self, control: Control) -> bool:
        """Whether a control is not disabled; only such controls are checked and sent."""
        if control.disabled:
            return False
        return not control.conditions or all(self.shows(place) for place in control.conditions)

    def usable(self, control: Control) -> bool:
        """Whether a control is shown and not disabled."""
        return self.enabled(control) and not control.hidden

    def shows(self, place: int) -> bool:
        """Whether the conditional part at this place of the page is shown."""
        return self._shown(place, frozenset())

    def _shown(self, place: int, above: frozenset[int]) -> bool:
        if place in above:  # parts that show one another are never shown
            return False
        condition = self.model.conditions[place]
        return any(
            value in condition.values
            for control in self.now
            if control.name == condition.name and not control.disabled
            if all(self._shown(outer, above | {place}) for outer in control.conditions)
            for value in control.sent
        )

    # -- operations --------------------------------------------------------------------------------

    def apply(
        self, operation: does.Enter | does.Choose | does.Tick | does.Put | does.Touch | does.Push
    ) -> Attempt:
        """Do to a control what an operation asks for."""
        place = operation.control.index
        control = self.now[place]
        if not self.usable(control):
            return _hidden(control)
        self.last = control
        match operation:
            case does.Enter(_, text, clear):
                self.edited.add(place)
                entered = typed(control.kind, text, self.model.language)
                before = "" if clear or control.kind in PICKED else control.value
                result = held(control.kind, before + entered.value, control.attributes)
                self.now[place] = replace(control, value=result.value)
                if entered.refused or result.refused:
                    return Attempt("refused", f"{control.called} takes no such {control.kind}")
            case does.Choose(_, option, on) if control.kind == "multiselect":
                there = {*control.chosen, option} if on else {*control.chosen} - {option}
                self.now[place] = replace(control, chosen=tuple(sorted(there)))
            case does.Choose(_, option):
                self.now[place] = replace(control, chosen=(option,))
            case does.Tick(_, on):
                for one in self._group(control) if control.kind == "radio" else ():
                    self.now[one.index] = replace(one, checked=False)
                self.now[place] = replace(
                    control, checked=not control.checked if on is None else on
                )
            case does.Put(_, name):
                several = control.files if "multiple" in control.attributes else ()
                self.now[place] = replace(
                    control, files=(*(one for one in several if one != name), name)
                )
            case does.Push() if control.does == "reset" and control.form is not None:
                for one in self._of(control.form):
                    self.now[one.index] = self.model.controls[one.index]
                    self.edited.discard(one.index)
        return OK

    def _of(self, form: int | None) -> list[Control]:
        return [control for control in self.now if control.form == form]

    def _group(self, radio: Control) -> list[Control]:
        """The radio buttons of which one can be checked."""
        alike = (
            one for one in self._of(radio.form) if one.kind == "radio" and one.name == radio.name
        )
        return list(alike) if radio.name else [radio]

    # -- sending -----------------------------------------------------------------------------------

    def form_in_use(self) -> int | None:
        """The form that a user who names no button sends: that of the control that was used last,
        else the first with a button; None where the page has none."""
        if self.last is not None and self.last.form is not None:
            return self.last.form
        forms = range(len(self.model.forms))
        return next(
            (form for form in forms if self.model.submits(form)), 0 if self.model.forms else None
        )

    def default_button(self, form: int) -> Control | None:
        """The button that sends a form when Enter is pressed.

        Raises:
            NotSentError: Enter sends nothing: the button is disabled, or the form has several texts
                and no button.
        """
        buttons = self.model.submits(form)
        if buttons and not self.enabled(buttons[0]):
            raise NotSentError(_hidden(buttons[0]).reason)
        if not buttons and sum(control.kind in ENTERED for control in self._of(form)) > 1:
            raise NotSentError("the form has no button that sends it")
        return buttons[0] if buttons else None

    def problem(self, form: int = 0, button: Control | None = None) -> str:
        """Why a browser would not send the form: the first control that breaks a constraint; ""
        where none does."""
        if not self.model.submission(form, button).validates:
            return ""
        for control in self._of(form):
            if control.kind in {"button", "hidden"} or control.barred or not self.enabled(control):
                continue
            if why := self._invalid(control):
                return f"{control.called}: {why}"
        return ""

    def _invalid(self, control: Control) -> str:
        required = "required" in control.attributes
        if control.kind == "radio":
            group = self._group(control)
            required = bool(control.name) and any("required" in one.attributes for one in group)
            return "missing" if required and not any(one.checked for one in group) else ""
        if required and self._missing(control):
            return "missing"
        if not control.is_typed:
            return ""
        return invalid(
            control.kind, control.value, control.attributes, edited=control.index in self.edited
        )

    def _missing(self, control: Control) -> bool:
        """Whether a control is empty. An option without a value is a choice, unless it is the
        list's placeholder."""
        if control.kind == "select":
            return not control.chosen or (control.chosen == (0,) and control.placeholder)
        if control.kind == "multiselect":
            return not control.chosen
        return not any(control.sent) and not control.checked

    def entries(self, form: int = 0, button: Control | None = None) -> list[FormEntry]:
        """What a browser would send: the entry list of a form, with its button."""
        entries: list[FormEntry] = []
        for control in self._of(form):
            if not self.enabled(control) or (control.kind == "button" and control is not button):
                continue
            if control.does == "image":
                prefix = f"{control.name}." if control.name else ""
                entries += [FormEntry(f"{prefix}x", "0"), FormEntry(f"{prefix}y", "0")]
            if not control.name or control.does == "image":
                continue
            if control.kind == "file":
                entries += [
                    FormEntry(control.name, value, is_file=True) for value in control.files or ("",)
                ]
            else:
                entries += [FormEntry(*one) for one in control.entries]
        return entries


def _hidden(control: Control) -> Attempt:
    return Attempt("refused", f"{control.called} is not shown now")


# -- direct ----------------------------------------------------------------------------------------


class DirectExecutor:
    """See `executor.Executor`. Holds nothing between plans; one may be used by several threads."""

    name = "direct"
    at_once = 1

    def __init__(self, site: Site | None = None, seconds: float = SECONDS) -> None:
        self.site = site if site is not None else Site()
        self.seconds = seconds

    def run(self, case: FormCase, plans: Sequence[Plan]) -> list[Execution | Failure]:
        """See `Executor.run`."""
        return [self._carried_out(case, plan)[0] for plan in plans]

    def close(self) -> None:
        """See `Executor.close`; there is nothing to give back."""

    def visits(self, case: FormCase, plan: Plan) -> list[tuple[bytes, Visit]]:
        """The pages that a plan came to, as they were served, each with what its controls held when
        it was left."""
        return self._carried_out(case, plan)[1]

    def _carried_out(
        self, case: FormCase, plan: Plan
    ) -> tuple[Execution, list[tuple[bytes, Visit]]]:
        session = _Session(self.site, case)
        attempts: list[Attempt] = []
        until, cut = time.monotonic() + self.seconds, False
        try:
            session.load(session.base)
            actions = plan.carried_out()
            for place in range(len(actions)):
                if cut := place >= STEPS or time.monotonic() > until:
                    break
                attempts.append(session.act(actions[place:], case))
            receipts = self.site.receipts(session.episode)
        finally:
            self.site.close(session.episode)
        return Execution(tuple(attempts), receipts, session.visit.model.text, cut), session.visits


class _Session(Tab):
    """A user at the site: what the controls of the open page hold, and of those before it."""

    def __init__(self, site: Site, case: FormCase) -> None:
        super().__init__(site, case)
        self.visits: list[tuple[bytes, Visit]] = []

    def load(self, path: str, kind: str = "", body: bytes | None = None) -> None:
        """See `Tab.load`."""
        super().load(path, kind, body)
        self.visit = Visit(parse_page(self.html))
        self.named: Control | None = None
        self.visits.append((self.html, self.visit))

    def act(self, actions: Sequence[Action], case: FormCase) -> Attempt:
        """Carry out the first of the actions that are left."""
        model = self.visit.model
        near = form_ahead(actions, model, self.named)
        found = resolve(actions[0], model, case.view.form.path, case.files, near)
        self.named = getattr(found, "control", self.named)
        match found:
            case does.Send(button):
                return self._send(button)
            case does.Return():
                return self._return()
            case does.Go(rest):
                self.load(self.base + rest)
                return OK
            case Attempt():
                return found
            case _:
                return self.visit.apply(found)

    def _send(self, button: Control | None) -> Attempt:
        """Send a form, unless a browser would not."""
        visit = self.visit
        if button is not None and not visit.usable(button):
            return visit.apply(does.Touch(button))
        form = button.form if button is not None else visit.form_in_use()
        if form is None:
            return Attempt("not found", "there is no form on this page")
        try:
            button = button or visit.default_button(form)
        except NotSentError as error:
            return Attempt("refused", f"not sent, {error}")
        if why := visit.problem(form, button):
            return Attempt("refused", f"not sent, {why}")
        sent = self.send(visit.model.submission(form, button), visit.entries(form, button))
        return OK if sent else Attempt("refused", "not sent, its address is not one of this site")

    def _return(self) -> Attempt:
        """Enter sends the form from most controls, and breaks the line in a text of several."""
        last = self.visit.last
        if last is None or last.kind in {"select", "multiselect", "file", "color"}:
            return OK
        if last.kind == "button":
            return self.visit.apply(does.Push(last))
        if last.kind == "textarea":
            return self.visit.apply(does.Enter(last, "\n", clear=False))
        if last.form is None:
            return OK
        try:
            self.visit.default_button(last.form)
        except NotSentError:
            return OK
        return self._send(None)
