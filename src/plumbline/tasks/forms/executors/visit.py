"""One page while a user is at it: what its controls hold, and what every operation does to them."""

from plumbline.tasks.forms.constraints import PICKED, invalid
from plumbline.tasks.forms.executors.executor import OK, Attempt
from plumbline.tasks.forms.executors.operations import Choose, Enter, Put, Tick, Touch
from plumbline.tasks.forms.executors.page import Control, PageModel
from plumbline.tasks.forms.executors.request import Entry
from plumbline.tasks.forms.executors.typing import held, typed

_NEVER_FIXED = frozenset({"checkbox", "select", "multiselect", "file", "range", "color"})
"""Kinds of controls to which readonly does not apply."""


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

    def usable(self, control: Control) -> bool:
        """Whether a control is shown and not disabled; only such controls can be used, and only they are sent."""
        if control.disabled:
            return False
        return not control.conditions or all(self.shows(place) for place in control.conditions)

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
            self.ticked -= {
                one.index for one in self.model.controls if one.kind == "radio" and one.name == control.name
            }
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

    # -- sending ------------------------------------------------------------------------------------------------

    def problem(self) -> str:
        """Why a browser would not send the form: the first control that breaks a constraint; "" where none does."""
        for control in self.model.controls:
            if control.kind in {"button", "hidden"} or not self.usable(control):
                continue
            if why := self._invalid(control):
                return f"{control.called}: {why}"
        return ""

    def _invalid(self, control: Control) -> str:
        required = "required" in control.attributes
        if control.kind == "radio":
            ticked = any(
                one.index in self.ticked
                for one in self.model.controls
                if one.kind == "radio" and one.name == control.name
            )
            return "missing" if required and not ticked else ""
        if "readonly" in control.attributes and control.kind not in _NEVER_FIXED:
            return ""
        if required and self._missing(control):
            return "missing"
        if not control.is_typed:
            return ""
        return invalid(control.kind, self.text(control), control.attributes, edited=control.index in self.edited)

    def _missing(self, control: Control) -> bool:
        """Whether a control is empty. An option without a value is a choice, unless it is the list's placeholder."""
        if control.kind == "select":
            chosen = self.chosen.get(control.index, control.chosen)
            return not chosen or (chosen == (0,) and not control.choices[0].value)
        if control.kind == "multiselect":
            return not self.chosen.get(control.index, control.chosen)
        if control.kind in {"range", "color"}:
            return False
        return not any(self._values(control)) and control.index not in self.ticked

    def entries(self) -> list[Entry]:
        """What a browser would send."""
        entries: list[Entry] = []
        for control in self.model.controls:
            if control.kind == "button" or not control.name or not self.usable(control):
                continue
            values = self._values(control)
            if control.kind == "file":
                entries += [Entry(control.name, value, is_file=True) for value in values or ("",)]
            else:
                entries += [Entry(control.name, value) for value in values]
        return entries


def _hidden(control: Control) -> Attempt:
    return Attempt("refused", f"{control.called} is not shown now")
