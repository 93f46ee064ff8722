"""What runs have to do with one another: which model each began from, and which run it is to be compared with."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plumbline.errors import PlumblineError
from plumbline.recipe import value_differences
from plumbline.recipe.sections import NO_RESULT
from plumbline.runs.cards import CARD, Card
from plumbline.runs.listing import Listed
from plumbline.storage import dumps

UNSAID = ("name", *NO_RESULT)
"""Keys that are no difference between what was done."""
LONGEST = 48
"""Characters of a value that are said."""
LAST = datetime.max.replace(tzinfo=UTC)
Change = tuple[str, Any, Any]
"""A key of the recipe, its value before, and now."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a run's first stage began from."""

    model: str
    """As the recipe names it; empty for a tiny one that is made on the spot."""
    run: str = ""
    """The listed run whose model that is."""
    stage: str = ""

    def __str__(self) -> str:
        return f"{self.run} ({self.stage})" if self.run else self.model or "a tiny model"


def origins(runs: Sequence[Listed]) -> dict[str, Origin]:
    """What each run began from, by its name.

    A model that lies in a listed run is found by its path, which may be relative to any folder above the run; one that
    was moved by its card, which names recipe and stage; one whose files are gone by the names in its path.
    """
    places = {run.folder.resolve(): run for run in runs}
    return {run.name: _origin(run, runs, places) for run in runs}


def _origin(run: Listed, runs: Sequence[Listed], places: Mapping[Path, Listed]) -> Origin:
    model = run.section("model").get("name")
    if not isinstance(model, str):
        return Origin("")
    path = Path(model).expanduser()
    above = [Path(), *run.folder.resolve().parents] if not path.is_absolute() else [Path()]
    tried = [(one / path).resolve() for one in above]
    for place in tried:
        if place.parent.name == "models" and (parent := places.get(place.parent.parent)):
            return Origin(model, parent.name, place.name)
    for place in tried:
        if (place / CARD).is_file() and (found := _by_card(place, run, runs)):
            return Origin(model, *found)
    if len(path.parts) > 2 and path.parts[-2] == "models":
        alike = [one for one in runs if one.folder.name == path.parts[-3] and one is not run]
        if len(alike) == 1:
            return Origin(model, alike[0].name, path.name)
    return Origin(model)


def _by_card(model: Path, run: Listed, runs: Sequence[Listed]) -> tuple[str, str] | None:
    """The run and the stage that a model's card names, where that is one of these runs and only one."""
    try:
        card = Card.read(model)
    except PlumblineError:
        return None
    alike = (
        []
        if card is None
        else [one for one in runs if one is not run and card.recipe == f"{one.recipe.get('name')} {one.identity}"]
    )
    return (alike[0].name, card.stage) if card is not None and len(alike) == 1 else None


def in_order(runs: Sequence[Listed], begun: Mapping[str, Origin]) -> list[tuple[Listed, int]]:
    """The runs by the time at which they began, each below the one whose model it began from, with how deep it is."""
    ordered: dict[str, tuple[Listed, int]] = {}

    def place(run: Listed, depth: int) -> None:
        if run.name not in ordered:  # it would be where runs began from one another in a circle
            ordered[run.name] = run, depth
            for one in below.get(run.name, ()):
                place(one, depth + 1)

    below: dict[str, list[Listed]] = {}
    for run in _by_time(runs):
        below.setdefault(begun[run.name].run, []).append(run)
    for run in (*below.get("", ()), *_by_time(runs)):
        place(run, 0)
    return list(ordered.values())


def _by_time(runs: Sequence[Listed]) -> list[Listed]:
    return sorted(runs, key=lambda run: (run.started or LAST, run.name))


def versions(runs: Sequence[Listed], begun: Mapping[str, Origin]) -> list[list[Listed]]:
    """The runs whose recipes differ in the seed at most, together, in the order of time."""
    found: dict[str, list[Listed]] = {}
    for run in _by_time(runs):
        if run.recipe:
            content = {key: value for key, value in run.recipe.items() if key not in {*UNSAID, "seed"}}
            found.setdefault(_kind(run, begun[run.name]) + json.dumps(content, sort_keys=True), []).append(run)
    return list(found.values())


def predecessors(runs: Sequence[Listed], begun: Mapping[str, Origin]) -> dict[str, str]:
    """The run that each is to be compared with, by name; nothing for the first of its kind.

    Runs of one recipe with several seeds are one version (`versions`). A version follows the one before it in time that
    began from the same model with the same tasks, that was evaluated where any was, and that is no negative control.
    Its runs are compared with the run of the same seed there, or with the last; those of the first version with the run
    whose model they began from. Where there is none, its seeds are compared with its first.
    """
    found: dict[str, str] = {}
    past: dict[str, list[list[Listed]]] = {}
    for version in versions(runs, begun):
        kind = _kind(version[0], begun[version[0].name])
        earlier = past.setdefault(kind, [])
        evaluated = [with_results for other in earlier if (with_results := [run for run in other if run.finals])]
        last = (evaluated or earlier or [[]])[-1]
        for run in version:
            same = [one for one in last if one.recipe.get("seed") == run.recipe.get("seed")]
            if last:
                found[run.name] = (same or last)[-1].name
            elif parent := begun[run.name].run:
                found[run.name] = parent
            elif run is not version[0]:
                found[run.name] = version[0].name
        if not version[0].control:
            earlier.append(version)
    return found


def _kind(run: Listed, origin: Origin) -> str:
    """What runs have in common that can be versions of one another."""
    task, tasks = run.section("task"), run.section("tasks")
    named = {name: dict(one).get("name") for name, one in tasks.items() if isinstance(one, Mapping)}
    family = run.section("model").get("family", "autoregressive")
    model = [origin.run, origin.stage] if origin.run else origin.model
    return json.dumps([model, task.get("name"), named, family])


# -- what differs --------------------------------------------------------------------------------------------------


def changes(before: Listed, after: Listed) -> list[Change]:
    """What differs between two runs' recipes, but for their names and where they are written.

    A section that only one of them has is one change, from or to None.
    """
    found: list[Change] = []
    for key, old, new in value_differences(before.recipe, after.recipe):
        top = _missing_section(key, before.recipe, after.recipe)
        if key.partition(".")[0] in UNSAID or any(top == one for one, *_ in found):
            continue
        found.append((key, old, new) if top is None else (top, _at(before.recipe, top), _at(after.recipe, top)))
    return found


def _missing_section(key: str, *recipes: Mapping[str, Any]) -> str | None:
    """The part of a key that is a section in one recipe and nothing in the other."""
    parts = key.split(".")
    for count in range(1, len(parts) + 1):
        top = ".".join(parts[:count])
        values = [_at(recipe, top) for recipe in recipes]
        if any(value is None for value in values) and any(isinstance(value, Mapping) for value in values):
            return top
    return None


def _at(recipe: Mapping[str, Any], key: str) -> Any:
    value: Any = recipe
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def in_words(found: Sequence[Change], most: int | None = None) -> str:
    """Changes as people say them: rl.steps 50 → 100; sft left out.

    Args:
        found: the changes.
        most: say only the first so many, and how many there are more.
    """
    said = [_said(*change) for change in found[:most]]
    left = len(found) - len(said)
    return "; ".join([*said, *([f"and {left} more"] if left > 0 else [])]) or "nothing"


def _said(key: str, old: Any, new: Any) -> str:
    if isinstance(old, Mapping) or isinstance(new, Mapping):
        return f"{key} {'left out' if new is None else 'added' if old is None else 'replaced'}"
    return f"{key} {_short(old)} → {_short(new)}"


def _short(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else dumps(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
