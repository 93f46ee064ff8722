"""Which control a label means: as a user would look for it, and never by a guess between two.

In this order: the label as it is written, the label without punctuation and accents, the control's own name, and at
last all words of what was asked for among the words of exactly one label.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from plumbline.tasks.forms.executors.page import Control, PageModel
from plumbline.tasks.forms.plans.labels import folded, loose

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


def find(model: PageModel, label: str, kinds: frozenset[str]) -> Target | str:
    """The target of these kinds that a label means; where only one of another kind is called so, that one.

    Returns:
        The target, or why there is none.
    """
    index = _index(model)
    other: Target | None = None
    for stage, key in zip(index.stages, (folded(label), loose(label), loose(label)), strict=True):
        found = stage.get(key, ()) if key else ()
        fitting = [target for target in found if target.kind in kinds]
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
        exact.setdefault(folded(target.label), []).append(target)
        rough.setdefault(loose(target.label), []).append(target)
        if target.kind not in {OPTION, "button"}:
            names.setdefault(loose(target.members[0].name), []).append(target)
    stages = tuple({key: tuple(found) for key, found in stage.items()} for stage in (exact, rough, names))
    return _Index(targets, stages)


def _targets(model: PageModel) -> list[Target]:
    targets: list[Target] = []
    groups: dict[tuple[str, str], list[Control]] = {}
    for control in model.controls:
        if control.kind == "hidden":
            continue
        if control.kind in {"radio", "checkbox"}:
            groups.setdefault((control.kind, control.name), []).append(control)
        else:
            targets.append(Target(control.kind, control.label or control.name, (control,)))
    for (kind, name), members in groups.items():
        if kind == "checkbox" and len(members) == 1 and not members[0].group:
            targets.append(Target("checkbox", members[0].label or name, (members[0],)))
            continue
        group = RADIOS if kind == "radio" else BOXES
        targets.append(Target(group, members[0].group or name, tuple(members)))
        targets += [Target(OPTION, member.label or member.value, (member,)) for member in members]
    return targets
