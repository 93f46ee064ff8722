"""One page while a user is at it: what its controls hold, and what every action does to them."""

from collections.abc import Callable
from typing import Any

from plumbline.tasks.forms.constraints import is_email, is_url, matches, range_problem, utf16_length
from plumbline.tasks.forms.executors.executor import Attempt, Limits
from plumbline.tasks.forms.executors.locate import BOXES, OPTION, RADIOS, Target, find, folded, loose
from plumbline.tasks.forms.executors.page import Control, PageModel
from plumbline.tasks.forms.executors.request import Entry
from plumbline.tasks.forms.executors.typing import typed
from plumbline.tasks.forms.plans.actions import Attach, Check, Click, Select, Type, Uncheck

OK = Attempt("ok")
_TYPED = frozenset({"text", "email", "tel", "url", "number", "date", "time", "password", "textarea", "search"})
_CHOSEN = frozenset({"select", "multiselect", RADIOS, BOXES})
_TICKED = frozenset({"checkbox", OPTION, RADIOS, BOXES})
_CLICKED = frozenset({"checkbox", OPTION, "button"})
_YES = frozenset({"yes", "true", "on", "sim", "1"})
_PATTERNED = frozenset({"text", "email", "tel", "url", "password", "search"})


class Visit:
    """The state of one page. Every action gives an `Attempt`; none raises."""

    def __init__(self, model: PageModel, files: frozenset[str], limits: Limits) -> None:
        self.model, self.files, self.limits = model, files, limits
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
        return not control.conditions or all(self._shown(place, frozenset()) for place in control.conditions)

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

    # -- actions ------------------------------------------------------------------------------------------------

    def type(self, action: Type) -> Attempt:
        """Type a text into a control."""
        target = self._target(action.label, _TYPED)
        if isinstance(target, Attempt):
            return target
        control = target.members[0]
        if target.kind not in _TYPED:
            return Attempt("refused", f"{target.label!r} is a {target.kind}: nothing can be typed into it")
        if len(action.text) > self.limits.value:
            return Attempt("refused", f"a text of {len(action.text)} characters is too long")
        if "readonly" in control.attributes:
            return Attempt("refused", f"{target.label!r} cannot be changed")
        before = "" if action.clear or control.kind in {"date", "time"} else self.text(control)
        result = typed(control.kind, before + action.text, self.model.language, control.limit("maxlength"))
        self.texts[control.index] = result.value
        self.edited.add(control.index)
        self.last = control
        return Attempt("refused", f"{target.label!r} takes no such {control.kind}") if result.refused else OK

    def append(self, control: Control, text: str) -> Attempt:
        """Type a text after what a control holds."""
        result = typed(control.kind, self.text(control) + text, self.model.language, control.limit("maxlength"))
        self.texts[control.index] = result.value
        self.edited.add(control.index)
        return OK

    def select(self, action: Select) -> Attempt:
        """Choose an option of a list or a group."""
        target = self._target(action.label, _CHOSEN)
        return target if isinstance(target, Attempt) else self._choose(target, action.option)

    def _choose(self, target: Target, option: str, *, on: bool = True) -> Attempt:
        control = target.members[0]
        if target.kind in {RADIOS, BOXES}:
            member = _best(option, target.members, lambda one: (one.label, one.value))
            if member is None:
                return Attempt("not found", f"{target.label!r} has no option {option[:60]!r}")
            return self._tick(member, on=on)
        if target.kind not in {"select", "multiselect"}:
            return Attempt("refused", f"{target.label!r} is a {target.kind}: it has no options")
        choice = _best(option, control.choices, lambda one: (one.text, one.value))
        if choice is None:
            return Attempt("not found", f"{target.label!r} has no option {option[:60]!r}")
        if choice.disabled:
            return Attempt("refused", f"the option {option[:60]!r} cannot be chosen")
        place = control.choices.index(choice)
        there = self.chosen.get(control.index, control.chosen)
        if target.kind == "select":
            if not on:
                return Attempt("refused", f"a choice of {target.label!r} cannot be taken back")
            self.chosen[control.index] = (place,)
        else:
            self.chosen[control.index] = tuple(sorted({*there, place} if on else {*there} - {place}))
        self.last = control
        return OK

    def tick(self, action: Check | Uncheck) -> Attempt:
        """Tick a box, or take its tick away."""
        on = isinstance(action, Check)
        target = self._target(action.label, _TICKED if not action.option else _TICKED | _CHOSEN)
        if isinstance(target, Attempt):
            return target
        if target.kind in {"checkbox", OPTION}:
            if action.option and folded(action.option) not in _YES | {folded(target.label)}:
                return Attempt("not found", f"{target.label!r} has no option {action.option[:60]!r}")
            return self._tick(target.members[0], on=on)
        if not action.option:
            return Attempt("refused", f"{target.label!r} is a {target.kind}: which option is not said")
        return self._choose(target, action.option, on=on)

    def _tick(self, control: Control, *, on: bool) -> Attempt:
        if not self.usable(control):
            return Attempt("refused", f"{control.label!r} is not shown now")
        if control.kind == "radio":
            if not on:
                return Attempt("refused", "a radio button cannot be taken back")
            self.ticked -= {
                one.index for one in self.model.controls if one.kind == "radio" and one.name == control.name
            }
        if on:
            self.ticked.add(control.index)
        else:
            self.ticked.discard(control.index)
        self.last = control
        return OK

    def attach(self, action: Attach) -> Attempt:
        """Attach one of the files that there are."""
        target = self._target(action.label, frozenset({"file"}))
        if isinstance(target, Attempt):
            return target
        control = target.members[0]
        if target.kind != "file":
            return Attempt("refused", f"{target.label!r} is a {target.kind}: nothing can be attached to it")
        name = action.file.replace("\\", "/").rpartition("/")[2]
        if name not in self.files:
            return Attempt("not found", f"there is no file {action.file[:60]!r}")
        there = self.attached.get(control.index, ())
        several = "multiple" in control.attributes
        self.attached[control.index] = (*(one for one in there if one != name), name) if several else (name,)
        self.last = control
        return OK

    def click(self, action: Click) -> Attempt | Control:
        """Click on something; for a button, the button, whose effect is beyond the page."""
        target = self._target(action.label, _CLICKED)
        if isinstance(target, Attempt):
            return target
        control = target.members[0]
        if target.kind == "button":
            return control
        if target.kind in {"checkbox", OPTION}:
            return self._tick(control, on=control.kind == "radio" or control.index not in self.ticked)
        self.last = control
        return OK

    def _target(self, label: str, kinds: frozenset[str]) -> Target | Attempt:
        found = find(self.model, label, kinds)
        if isinstance(found, str):
            return Attempt("not found", found)
        if not any(self.usable(member) for member in found.members):
            return Attempt("refused", f"{found.label!r} is not shown now")
        return found

    # -- sending ------------------------------------------------------------------------------------------------

    def problem(self) -> str:
        """Why a browser would not send the form: the first control that breaks a constraint; "" where none does."""
        for control in self.model.controls:
            if control.kind in {"button", "hidden"} or not self.usable(control):
                continue
            if why := self._invalid(control):
                return f"{control.group or control.label or control.name!r}: {why}"
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
        values = self._values(control)
        if not any(values):
            return "missing" if required else ""
        if not control.is_typed or "readonly" in control.attributes:
            return ""
        text, attributes = values[0], control.attributes
        if (control.kind == "email" and not is_email(text)) or (control.kind == "url" and not is_url(text)):
            return f"not a valid {control.kind}"
        if control.kind in _PATTERNED and "pattern" in attributes and not matches(attributes["pattern"], text):
            return "not in the format that is asked for"
        if control.index in self.edited and utf16_length(text) < (control.limit("minlength") or 0):
            return "too short"
        found = range_problem(control.kind, text, attributes.get("min"), attributes.get("max"), attributes.get("step"))
        return f"out of range ({found})" if found else ""

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


def _best(wanted: str, there: tuple[Any, ...], names: Callable[[Any], tuple[str, str]]) -> Any:
    """The option that is meant: by its text, then by its value, then without punctuation; None where none is.

    Only the options of one control or group are looked at, so the first match is the one on the page's top.
    """
    for fold, which in ((folded, 0), (folded, 1), (loose, 0)):
        key = fold(wanted)
        for one in there:
            if fold(names(one)[which]) == key and (key or not wanted):
                return one
    return None
