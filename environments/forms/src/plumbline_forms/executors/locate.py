"""Which control a label means: as a user would look for it, and never by a guess between two.

In this order: the label as it is written, the label without punctuation and accents, the control's own name, and at
last all words of what was asked for among the words of exactly one label.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from plumbline_forms.executors.page import Control, PageModel
from plumbline_forms.plans.labels import folded, loose

_WORDS = re.compile(r"[^\W_]+")
RADIOS, BOXES, OPTION = "radio group", "box group", "option"
"""Kinds of targets beside the kinds of controls: groups, and one option of a group by its own text."""


@dataclass(frozen=True, slots=True)
class Target:
    """Something that a label may mean: a control, a group, or one option of a group."""

    kind: str
    label: str
    members: tuple[Control, ...]


@dataclass(frozen=True, slots=True)
class _Index:
    targets: tuple[Target, ...]
    stages: tuple[Mapping[str, tuple[Target, ...]], ...]


def find(model: PageModel, label: str, kinds: frozenset[str], near: int | None = None) -> Target | str:
    """The target of these kinds that a label means; where only one of another kind is called so, that one.

    Args:
        model: of the page.
        label: what is looked for.
        kinds: of targets that fit.
        near: the form that is preferred where several forms have such a target; None prefers the first form.

    Returns:
        The target, or why there is none.
    """
    index = _index(model)
    other: Target | None = None
    for stage, key in zip(index.stages, (folded(label), loose(label), loose(label)), strict=True):
        found = stage.get(key, ()) if key else ()
        fitting = _nearest([target for target in found if target.kind in kinds], near)
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            return f"several controls are called {label[:60]!r}"
        other = other or (found[0] if len(found) == 1 else None)
    if other is None:
        close = _by_words(index, label, kinds)
        if close is not None:
            return close
    return other or f"nothing is called {label[:60]!r}"


def _nearest(targets: list[Target], near: int | None) -> list[Target]:
    """Of several targets those that can be changed, and of these the ones in the preferred form."""
    for keep in (lambda one: not (one.disabled or one.hidden or one.barred), lambda one: one.form == (near or 0)):
        if len(targets) > 1:
            targets = [target for target in targets if any(map(keep, target.members))] or targets
    return targets


def namesakes(model: PageModel, label: str) -> tuple[Target, ...]:
    """The targets with exactly this label or name."""
    stages, key = _index(model).stages, loose(label)
    return stages[1].get(key) or stages[2].get(key, ()) if key else ()


def find_button(model: PageModel, label: str, near: int | None = None, *, whole: bool = False) -> Control | str:
    """The button with a name; what a user reads on it goes before its other names, and part of a name comes last.

    Args:
        model: of the page.
        label: what is looked for.
        near: the form that is preferred.
        whole: whether a part of a name is not enough.

    Returns:
        The button, or why there is none.
    """
    buttons = [one for one in model.controls if one.kind == "button"]
    words = set(_WORDS.findall(folded(label)))
    found: list[Control] = []
    stages: tuple[Callable[[Control], bool], ...] = (
        lambda one: folded(one.label) == folded(label),
        lambda one: loose(one.label) == loose(label),
        lambda one: loose(label) in map(loose, one.aliases),
        lambda one: not whole and words <= set(_WORDS.findall(folded(one.label))),
    )
    for fits in stages:
        if found := [one for one in buttons if loose(label) and fits(one)]:
            break
    targets = _nearest([Target("button", one.label, (one,)) for one in found], near)
    alike = {(one.form, one.does, one.name, one.value) for target in targets for one in target.members}
    if len(alike) == 1:
        return targets[0].members[0]
    return f"{'several buttons are' if targets else 'no button is'} called {label[:60]!r}"


def _by_words(index: _Index, label: str, kinds: frozenset[str]) -> Target | None:
    wanted = set(_WORDS.findall(folded(label)))
    if not wanted or len(folded(label)) < 4:
        return None
    close = [
        target
        for target in index.targets
        if target.kind in kinds and wanted <= set(_WORDS.findall(folded(target.label)))
    ]
    return close[0] if len(close) == 1 else None


@lru_cache(maxsize=512)
def _index(model: PageModel) -> _Index:
    targets = tuple(_targets(model))
    exact: dict[str, list[Target]] = {}
    rough: dict[str, list[Target]] = {}
    names: dict[str, list[Target]] = {}
    for target in targets:
        first = target.members[0]
        if target.kind == OPTION or (first.group if target.kind in {RADIOS, BOXES} else first.label):
            exact.setdefault(folded(target.label), []).append(target)
            rough.setdefault(loose(target.label), []).append(target)
        if target.kind not in {OPTION, "button"}:
            names.setdefault(loose(first.name), []).append(target)
    stages = tuple({key: tuple(found) for key, found in stage.items()} for stage in (exact, rough, names))
    return _Index(targets, stages)


def _targets(model: PageModel) -> list[Target]:
    targets: list[Target] = []
    groups: dict[tuple[str, int | None, str], list[Control]] = {}
    for control in model.controls:
        if control.kind == "hidden":
            continue
        if control.kind in {"radio", "checkbox"}:
            groups.setdefault((control.kind, control.form, control.name), []).append(control)
        else:
            targets.append(Target(control.kind, control.label or control.name, (control,)))
    for (kind, _, name), members in groups.items():
        if kind == "checkbox" and len(members) == 1 and not members[0].group:
            targets.append(Target("checkbox", members[0].label or name, (members[0],)))
            continue
        group = RADIOS if kind == "radio" else BOXES
        targets.append(Target(group, members[0].group or name, tuple(members)))
        targets += [Target(OPTION, member.label or member.value, (member,)) for member in members]
    return targets
