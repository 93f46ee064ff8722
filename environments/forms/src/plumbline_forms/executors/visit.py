"""One page while a user is at it: what its controls hold, and what every operation does to them."""

from plumbline_forms.constraints import PICKED, invalid
from plumbline_forms.executors.executor import OK, Attempt
from plumbline_forms.executors.operations import Choose, Enter, Push, Put, Tick, Touch
from plumbline_forms.executors.page import Control, PageModel, direction_of
from plumbline_forms.executors.request import Entry
from plumbline_forms.executors.typing import held, typed

ENTERED = frozenset(
    {"text", "search", "tel", "url", "email", "password", "number"}
    | {"date", "month", "week", "time", "datetime-local"}
)
"""Kinds of which Enter sends a form without a button only where it has no other."""


class NotSentError(Exception):
    """Pressing Enter does not send a form; the message says why."""


class Visit:
    """The state of one page. Every operation gives an `Attempt`; none raises."""

    def __init__(self, model: PageModel) -> None:
        self.model = model
        self.texts: dict[int, str] = {}
        self.ticked = {control.index for control in model.controls if control.checked}
        self.chosen: dict[int, tuple[int, ...]] = {}
        self.attached: dict[int, tuple[str, ...]] = {}
        self.edited: set[int] = set()
        self.last: Control | None = None
        """The control that was used last: it has the focus."""

    # -- what is on the page ------------------------------------------------------------------------------------

    def text(self, control: Control) -> str:
        """What a typed control holds."""
        return self.texts.get(control.index, control.value)

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
            for control in self.model.controls
            if control.name == condition.name and not control.disabled
            if all(self._shown(outer, above | {place}) for outer in control.conditions)
            for value in self._values(control)
        )

    def _values(self, control: Control) -> tuple[str, ...]:
        """What a control contributes to the form."""
        if control.kind in {"checkbox", "radio"}:
            return (control.value,) if control.index in self.ticked else ()
        if control.kind in {"select", "multiselect"}:
            chosen = self.chosen.get(control.index, control.chosen)
            return tuple(control.choices[place].value for place in chosen if not control.choices[place].disabled)
        if control.kind == "file":
            return self.attached.get(control.index, ())
        return (self.text(control),)

    # -- operations ---------------------------------------------------------------------------------------------

    def enter(self, operation: Enter) -> Attempt:
        """Type a text into a control."""
        control = operation.control
        if not self.usable(control):
            return _hidden(control)
        self.edited.add(control.index)
        self.last = control
        entered = typed(control.kind, operation.text, self.model.language)
        before = "" if operation.clear or control.kind in PICKED else self.text(control)
        result = held(control.kind, before + entered.value, control.attributes)
        self.texts[control.index] = result.value
        if entered.refused or result.refused:
            return Attempt("refused", f"{control.called} takes no such {control.kind}")
        return OK

    def choose(self, operation: Choose) -> Attempt:
        """Choose an option of a list."""
        control, place = operation.control, operation.place
        if not self.usable(control):
            return _hidden(control)
        there = self.chosen.get(control.index, control.chosen)
        if control.kind == "select":
            self.chosen[control.index] = (place,)
        else:
            self.chosen[control.index] = tuple(sorted({*there, place} if operation.on else {*there} - {place}))
        self.last = control
        return OK

    def tick(self, operation: Tick) -> Attempt:
        """Tick a box or a radio button, or take the tick away."""
        control = operation.control
        if not self.usable(control):
            return _hidden(control)
        on = control.index not in self.ticked if operation.on is None else operation.on
        if control.kind == "radio":
            self.ticked -= {one.index for one in self._group(control)}
        if on:
            self.ticked.add(control.index)
        else:
            self.ticked.discard(control.index)
        self.last = control
        return OK

    def put(self, operation: Put) -> Attempt:
        """Attach a file."""
        control, name = operation.control, operation.file
        if not self.usable(control):
            return _hidden(control)
        there = self.attached.get(control.index, ())
        several = "multiple" in control.attributes
        self.attached[control.index] = (*(one for one in there if one != name), name) if several else (name,)
        self.last = control
        return OK

    def touch(self, operation: Touch) -> Attempt:
        """Give a control the focus."""
        if not self.usable(operation.control):
            return _hidden(operation.control)
        self.last = operation.control
        return OK

    def push(self, operation: Push) -> Attempt:
        """Click a button that sends nothing."""
        button = operation.control
        if not self.usable(button):
            return _hidden(button)
        if button.does == "reset" and button.form is not None:
            for control in self._of(button.form):
                for state in (self.texts, self.chosen, self.attached):
                    state.pop(control.index, None)
                (self.ticked.add if control.checked else self.ticked.discard)(control.index)
                self.edited.discard(control.index)
        self.last = button
        return OK

    def _of(self, form: int | None) -> list[Control]:
        return [control for control in self.model.controls if control.form == form]

    def _group(self, radio: Control) -> list[Control]:
        """The radio buttons of which one can be checked."""
        alike = (one for one in self._of(radio.form) if one.kind == "radio" and one.name == radio.name)
        return list(alike) if radio.name else [radio]

    # -- sending ------------------------------------------------------------------------------------------------

    def form_in_use(self) -> int | None:
        """The form that a user who names no button sends: that of the control that was used last, else the first with
        a button; None where the page has none."""
        if self.last is not None and self.last.form is not None:
            return self.last.form
        forms = range(len(self.model.forms))
        return next((form for form in forms if self.model.submits(form)), 0 if self.model.forms else None)

    def default_button(self, form: int) -> Control | None:
        """The button that sends a form when Enter is pressed.

        Raises:
            NotSentError: Enter sends nothing: the button is disabled, or the form has several texts and no button.
        """
        buttons = self.model.submits(form)
        if buttons and not self.enabled(buttons[0]):
            raise NotSentError(_hidden(buttons[0]).reason)
        if not buttons and sum(control.kind in ENTERED for control in self._of(form)) > 1:
            raise NotSentError("the form has no button that sends it")
        return buttons[0] if buttons else None

    def problem(self, form: int = 0, button: Control | None = None) -> str:
        """Why a browser would not send the form: the first control that breaks a constraint; "" where none does."""
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
            return "missing" if required and not any(one.index in self.ticked for one in group) else ""
        if required and self._missing(control):
            return "missing"
        if not control.is_typed:
            return ""
        return invalid(control.kind, self.text(control), control.attributes, edited=control.index in self.edited)

    def _missing(self, control: Control) -> bool:
        """Whether a control is empty. An option without a value is a choice, unless it is the list's placeholder."""
        if control.kind == "select":
            chosen = self.chosen.get(control.index, control.chosen)
            return not chosen or (chosen == (0,) and control.placeholder)
        if control.kind == "multiselect":
            return not self.chosen.get(control.index, control.chosen)
        if control.kind in {"range", "color"}:
            return False
        return not any(self._values(control)) and control.index not in self.ticked

    def entries(self, form: int = 0, button: Control | None = None) -> list[Entry]:
        """What a browser would send: the entry list of a form, with its button."""
        entries: list[Entry] = []
        for control in self._of(form):
            if not self.enabled(control) or (control.kind == "button" and control is not button):
                continue
            if control.does == "image":
                prefix = f"{control.name}." if control.name else ""
                entries += [Entry(f"{prefix}x", "0"), Entry(f"{prefix}y", "0")]
                continue
            if not control.name:
                continue
            values = self._values(control)
            if control.kind == "file":
                entries += [Entry(control.name, value, is_file=True) for value in values or ("",)]
            elif control.kind == "hidden" and control.name.lower() == "_charset_":
                entries.append(Entry(control.name, "UTF-8"))
            elif control.kind == "button":
                entries.append(Entry(control.name, control.value))
            else:
                entries += [Entry(control.name, value) for value in values]
            if direction := control.direction:
                direction = direction_of(self.text(control)) if direction == "auto" else direction
                entries.append(Entry(control.attributes["dirname"], direction))
        return entries


def _hidden(control: Control) -> Attempt:
    return Attempt("refused", f"{control.called} is not shown now")
