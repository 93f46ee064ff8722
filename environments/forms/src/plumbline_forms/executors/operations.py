"""What an action comes to on a page: which control, and what is done to it. The same for every
executor.

Finding the control that a label means needs the page and nothing else, so it is done once, here.
What depends on what a user did before (is the control shown, is the box ticked) is left to whoever
carries the operation out: `direct.py`, which keeps the state itself, or a browser, which has it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from plumbline_browser.plans import actions as plan
from plumbline_browser.plans.actions import Action
from plumbline_browser.plans.grammar import folded, loose
from plumbline_browser.plans.reader import SUBMIT_WORDS
from plumbline_forms.executors.executor import OK, VALUE, Attempt
from plumbline_forms.executors.page import Control, PageModel
from plumbline_forms.values import PICKED, TYPED

# -- which control a label means -------------------------------------------------------------------
# Which control a label means: as a user would look for it, and never by a guess between two.
#
# In this order: the label as it is written, the label without punctuation and accents, the
# control's own name, its further names, and at last all words of what was asked for among the words
# of exactly one label.

RADIOS, BOXES, OPTION = "radio group", "box group", "option"
"""Kinds of targets beside the kinds of controls: groups, and one option of a group by its own
text."""


@dataclass(frozen=True, slots=True)
class Target:
    """Something that a label may mean: a control, a group, or one option of a group."""

    kind: str
    label: str
    members: tuple[Control, ...]


def find(
    model: PageModel, label: str, kinds: frozenset[str], near: int | None = None
) -> Target | str:
    """The target of these kinds that a label means; where only one of another kind is called so,
    that one.

    Args:
        model: of the page.
        label: what is looked for.
        kinds: of targets that fit.
        near: the form that is preferred where several forms have such a target; None prefers the
            first form.

    Returns:
        The target, or why there is none.
    """
    targets, stages = _index(model)
    other: Target | None = None
    for stage, key in zip(stages, (folded(label), *[loose(label)] * 3), strict=True):
        found = stage.get(key, ()) if key else ()
        fitting = _nearest([target for target in found if target.kind in kinds], near)
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            return f"several controls are called {label[:60]!r}"
        other = other or (found[0] if len(found) == 1 else None)
    words = _words(label) if len(folded(label)) > 3 else set()
    if other is None and words:
        close = [
            target for target in targets if target.kind in kinds and words <= _words(target.label)
        ]
        other = close[0] if len(close) == 1 else None
    return other or f"nothing is called {label[:60]!r}"


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", folded(text)))


def _nearest(targets: list[Target], near: int | None) -> list[Target]:
    """Of several targets those that can be changed, and of these the ones in the preferred form."""
    for keep in (
        lambda one: not (one.disabled or one.hidden or one.barred),
        lambda one: one.form == (near or 0),
    ):
        if len(targets) > 1:
            targets = [target for target in targets if any(map(keep, target.members))] or targets
    return targets


def namesakes(model: PageModel, label: str) -> tuple[Target, ...]:
    """The targets with exactly this label or name."""
    (_, (_, rough, names, _)), key = _index(model), loose(label)
    return rough.get(key) or names.get(key, ()) if key else ()


def find_button(
    model: PageModel, label: str, near: int | None = None, *, whole: bool = False
) -> Control | str:
    """The button with a name; what a user reads on it goes before its other names, and part of a
    name comes last.

    Args:
        model: of the page.
        label: what is looked for.
        near: the form that is preferred.
        whole: whether a part of a name is not enough.

    Returns:
        The button, or why there is none.
    """
    buttons = [one for one in model.controls if one.kind == "button"]
    found: list[Control] = []
    stages: tuple[Callable[[Control], bool], ...] = (
        lambda one: folded(one.label) == folded(label),
        lambda one: loose(one.label) == loose(label),
        lambda one: loose(label) in map(loose, one.aliases),
        lambda one: not whole and _words(label) <= _words(one.label),
    )
    for fits in stages:
        if found := [one for one in buttons if loose(label) and fits(one)]:
            break
    targets = _nearest([Target("button", one.label, (one,)) for one in found], near)
    alike = {
        (one.form, one.does, one.name, one.value) for target in targets for one in target.members
    }
    if len(alike) == 1:
        return targets[0].members[0]
    return f"{'several buttons are' if targets else 'no button is'} called {label[:60]!r}"


Targets = tuple[Target, ...]


@lru_cache(maxsize=512)
def _index(model: PageModel) -> tuple[Targets, tuple[Mapping[str, Targets], ...]]:
    """The targets of a page, and what they are called: their labels, the same without punctuation,
    names, aliases."""
    targets: list[Target] = []
    groups: dict[tuple[str, int | None, str], list[Control]] = {}
    for control in model.controls:
        if control.kind in {"radio", "checkbox"}:
            groups.setdefault((control.kind, control.form, control.name), []).append(control)
        elif control.kind != "hidden":
            targets.append(Target(control.kind, control.label or control.name, (control,)))
    for (kind, _, name), members in groups.items():
        if kind == "checkbox" and len(members) == 1 and not members[0].group:
            targets.append(Target("checkbox", members[0].label or name, (members[0],)))
            continue
        targets.append(
            Target(RADIOS if kind == "radio" else BOXES, members[0].group or name, tuple(members))
        )
        targets += [Target(OPTION, member.label or member.value, (member,)) for member in members]
    stages: tuple[dict[str, Targets], ...] = ({}, {}, {}, {})
    for target in targets:
        first = target.members[0]
        called: list[tuple[int, str]] = []
        if target.kind == OPTION or (
            first.group if target.kind in {RADIOS, BOXES} else first.label
        ):
            called += [(0, folded(target.label)), (1, loose(target.label))]
        if target.kind not in {OPTION, "button"}:
            called += [(2, loose(first.name)), *((3, loose(alias)) for alias in first.aliases)]
        for stage, key in called:
            stages[stage][key] = (*stages[stage].get(key, ()), target)
    return tuple(targets), stages


# -- what is done to it ----------------------------------------------------------------------------

_TYPED = TYPED | PICKED
_CHOSEN = frozenset({"select", "multiselect", RADIOS, BOXES})
_TICKED = frozenset({"checkbox", OPTION, RADIOS, BOXES})
_CLICKED = frozenset({"checkbox", OPTION, "button"})
_YES = frozenset({"yes", "true", "on", "sim", "1"})
_IDLE_KEYS = frozenset({"tab", "escape", "esc", "shift+tab", "pagedown", "pageup", "end", "home"})
_LOCAL = frozenset({"127.0.0.1", "localhost", ""})


@dataclass(frozen=True, slots=True)
class Enter:
    """Type a text, in place of what is there or after it."""

    control: Control
    text: str
    clear: bool


@dataclass(frozen=True, slots=True)
class Choose:
    """Choose an option of a list, or (of one with several) take the choice back."""

    control: Control
    place: int
    on: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """Tick a box or a radio button, or take the tick away; `on` None: the other way than it is."""

    control: Control
    on: bool | None


@dataclass(frozen=True, slots=True)
class Put:
    """Attach a file."""

    control: Control
    file: str


@dataclass(frozen=True, slots=True)
class Touch:
    """Give a control the focus."""

    control: Control


@dataclass(frozen=True, slots=True)
class Send:
    """Send a form by a button; without one, by the default button of the form that was used
    last."""

    button: Control | None = None


@dataclass(frozen=True, slots=True)
class Push:
    """Click a button that sends nothing: one that resets its form, or leaves all to a script."""

    control: Control


@dataclass(frozen=True, slots=True)
class Return:
    """Press Enter in the control that was used last."""


@dataclass(frozen=True, slots=True)
class Go:
    """Load one of the form's own pages again: what follows the form's address, "" for its first
    page."""

    rest: str


Operation = Enter | Choose | Tick | Put | Touch | Send | Push | Return | Go


def resolve(
    action: Action, model: PageModel, path: str, files: frozenset[str], near: int | None = None
) -> Operation | Attempt:
    """What an action comes to on a page.

    Args:
        action: of a plan.
        model: of the page that is open.
        path: the form's address without the episode (`Form.path`).
        files: names of the files that there are.
        near: the form that a plan is at (`form_ahead`).

    Returns:
        The operation, or how it ended where there is none to carry out.
    """
    match action:
        case plan.Type():
            return _type(action, model, near)
        case plan.Select(label, option):
            target = _target(model, label, _CHOSEN, near)
            return target if isinstance(target, Attempt) else _choose(target, option, on=True)
        case plan.Check() | plan.Uncheck():
            return _tick(action, model, near)
        case plan.Attach():
            return _attach(action, model, files, near)
        case plan.Click(label):
            return _click(label, model, near)
        case plan.Submit(label):
            return _submit(label, model, near)
        case plan.Press(keys):
            return _press(keys)
        case plan.Navigate(url):
            return _go(url, path)
        case plan.Done():
            return OK


def form_ahead(actions: Sequence[Action], model: PageModel, last: Control | None) -> int | None:
    """The form that a plan is at, which decides between controls of the same name in several forms.

    It is that of the button that the plan names next, else of a control before that button that
    only one form has, else of the control that the plan named last.

    Args:
        actions: the rest of the plan.
        model: of the page that is open.
        last: the control that the plan named last.
    """
    if len(model.forms) < 2:
        return None
    filled: int | None = None
    for action in actions:
        match action:
            case plan.Submit(label) | plan.Click(label):
                button = find_button(model, label, whole=isinstance(action, plan.Click))
                if isinstance(button, Control):
                    return button.form
            case (
                plan.Type(label)
                | plan.Select(label)
                | plan.Check(label)
                | plan.Uncheck(label)
                | plan.Attach(label)
            ):
                forms = [target.members[0].form for target in namesakes(model, label)]
                filled = forms[0] if len(set(forms)) == 1 and filled is None else filled
        if isinstance(action, plan.Submit | plan.Press | plan.Navigate | plan.Done):
            break
    return filled if filled is not None else last.form if last is not None else None


def _target(
    model: PageModel, label: str, kinds: frozenset[str], near: int | None
) -> Target | Attempt:
    found = find(model, label, kinds, near)
    return Attempt("not found", found) if isinstance(found, str) else found


def _type(action: plan.Type, model: PageModel, near: int | None) -> Operation | Attempt:
    target = _target(model, action.label, _TYPED, near)
    if isinstance(target, Attempt):
        return target
    control = target.members[0]
    if target.kind not in _TYPED:
        return Attempt(
            "refused", f"{target.label!r} is a {target.kind}: nothing can be typed into it"
        )
    if len(action.text) > VALUE:
        return Attempt("refused", f"a text of {len(action.text)} characters is too long")
    if "readonly" in control.attributes and control.kind not in {"range", "color"}:
        return Attempt("refused", f"{target.label!r} cannot be changed")
    return Enter(control, action.text, action.clear)


def _choose(target: Target, option: str, *, on: bool) -> Operation | Attempt:
    control = target.members[0]
    if target.kind in {RADIOS, BOXES}:
        member = _best(option, target.members, lambda one: (one.label, one.value))
        if member is None:
            return Attempt("not found", f"{target.label!r} has no option {option[:60]!r}")
        return _ticked(member, on=on)
    suggests = target.kind in _TYPED and bool(control.choices) and on
    if target.kind not in {"select", "multiselect"} and not suggests:
        return Attempt("refused", f"{target.label!r} is a {target.kind}: it has no options")
    offered = tuple(sorted(control.choices, key=lambda one: one.disabled))
    choice = _best(option, offered, lambda one: (one.text, one.value))
    if choice is None:
        return Attempt("not found", f"{target.label!r} has no option {option[:60]!r}")
    if suggests and "readonly" in control.attributes:
        return Attempt("refused", f"{target.label!r} cannot be changed")
    if suggests:
        return Enter(control, choice.value, clear=True)
    if choice.disabled:
        return Attempt("refused", f"the option {option[:60]!r} cannot be chosen")
    if target.kind == "select" and not on:
        return Attempt("refused", f"a choice of {target.label!r} cannot be taken back")
    return Choose(control, control.choices.index(choice), on)


def _tick(
    action: plan.Check | plan.Uncheck, model: PageModel, near: int | None
) -> Operation | Attempt:
    on = isinstance(action, plan.Check)
    target = _target(model, action.label, _TICKED if not action.option else _TICKED | _CHOSEN, near)
    if isinstance(target, Attempt):
        return target
    if target.kind in {"checkbox", OPTION}:
        if action.option and folded(action.option) not in _YES | {folded(target.label)}:
            return Attempt("not found", f"{target.label!r} has no option {action.option[:60]!r}")
        return _ticked(target.members[0], on=on)
    if not action.option:
        return Attempt("refused", f"{target.label!r} is a {target.kind}: which option is not said")
    return _choose(target, action.option, on=on)


def _ticked(control: Control, *, on: bool) -> Operation | Attempt:
    if control.kind == "radio" and not on:
        return Attempt("refused", "a radio button cannot be taken back")
    return Tick(control, on)


def _attach(
    action: plan.Attach, model: PageModel, files: frozenset[str], near: int | None
) -> Operation | Attempt:
    target = _target(model, action.label, frozenset({"file"}), near)
    if isinstance(target, Attempt):
        return target
    if target.kind != "file":
        return Attempt(
            "refused", f"{target.label!r} is a {target.kind}: nothing can be attached to it"
        )
    name = action.file.replace("\\", "/").rpartition("/")[2]
    if name not in files:
        return Attempt("not found", f"there is no file {action.file[:60]!r}")
    return Put(target.members[0], name)


def _click(label: str, model: PageModel, near: int | None) -> Operation | Attempt:
    target = _target(model, label, _CLICKED, near)
    if isinstance(target, Attempt):
        box, button = (
            find(model, label, _CLICKED - {"button"}, near),
            find_button(model, label, near),
        )
        return target if isinstance(box, Target) or isinstance(button, str) else _pressed(button)
    control = target.members[0]
    if target.kind == "button":
        return _pressed(control)
    if target.kind in {"checkbox", OPTION}:
        return Tick(control, True if control.kind == "radio" else None)
    return Touch(control)


def _submit(label: str, model: PageModel, near: int | None) -> Operation | Attempt:
    if not any(one.kind == "button" for one in model.controls):
        return Attempt("not found", "there is no button on this page")
    button = find_button(model, label, near)
    if isinstance(button, Control):
        return _pressed(button)
    return Send() if _is_generic(folded(label)) else Attempt("not found", button)


def _pressed(button: Control) -> Operation:
    sends = button.does in {"submit", "image"} and button.form is not None
    return Send(button) if sends else Push(button)


def _is_generic(wanted: str) -> bool:
    """Whether the name of a button only says that it sends: "", "Submit", "Submit form", "the
    Enviar button"."""
    return not wanted or not SUBMIT_WORDS.isdisjoint(wanted.split())


def _press(keys: str) -> Operation | Attempt:
    key = keys.strip().casefold()
    if key in {"enter", "return"}:
        return Return()
    return (
        OK if key in _IDLE_KEYS else Attempt("refused", f"the key {keys[:20]!r} does nothing here")
    )


def _go(url: str, path: str) -> Operation | Attempt:
    """Only the form's own pages; nothing else is let out."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return Attempt("refused", f"{url[:60]!r} is no address")
    rest = parts.path.rstrip("/").removeprefix(path)
    own = parts.path.startswith(path) and (not rest or rest[1:].isdecimal())
    if parts.scheme not in {"", "http"} or (parts.hostname or "") not in _LOCAL or not own:
        return Attempt("refused", f"{url[:60]!r} is not the address of this form")
    return Go(rest)


def _best(wanted: str, there: tuple[Any, ...], names: Callable[[Any], tuple[str, str]]) -> Any:
    """The option that is meant: by its text, then by its value, then without punctuation; None
    where none is.

    Only the options of one control or group are looked at, so the first match is the one on the
    page's top.
    """
    for fold, which in ((folded, 0), (folded, 1), (loose, 0)):
        key = fold(wanted)
        for one in there:
            if fold(names(one)[which]) == key and (key or not wanted):
                return one
    return None
