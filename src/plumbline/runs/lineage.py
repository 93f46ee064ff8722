"""The runs of some folders, and what they have to do with one another: which model each began from,
which run it is to be compared with, what differs between their recipes, and what of a recipe may
change while its run is stopped.

A run is the run of one recipe, so most keys may not. Two kinds may, because errors advise them and
nothing that was computed before becomes false: keys that say how a run is executed or when it gives
up, and the learning rate of a stage that still trains. The recipe in the run's folder is then the
one in force, and an event says from which step on, and what stood there before.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from plumbline.errors import DataError, PlumblineError, RunError
from plumbline.recipe import Recipe, differences, value_differences
from plumbline.recipe.sections import NO_RESULT
from plumbline.records import group_by_key
from plumbline.runs import output_guard
from plumbline.runs.metadata import ModelMetadata
from plumbline.runs.record import RunRecord
from plumbline.storage import clear_read_errors, dumps, file_begins_with, shorten

UNSAID = ("name", *NO_RESULT)
"""Keys that are no difference between what was done."""
LONGEST = 47
"""Characters of a value that are said."""
LAST = datetime.max.replace(tzinfo=UTC)
DEEPEST = 3
"""Levels of folders below the one that is asked for: runs of sweeps, of groups of sweeps."""
ELSEWHERE = {
    "trainer_state.json": "a checkpoint of transformers or TRL",
    "config.json": "a model directory",
    "adapter_config.json": "an adapter's directory",
    "manifest.json": "a task's records",
}
"""What a folder is that has such a file."""
HOW = (
    "sft.tokens_per_microbatch",
    "rl.tokens_per_microbatch",
    "rl.max_gap",
    "rl.patience",
    "evaluation.untrained",
    "engine.address",
    "engine.python",
    "engine.arguments",
    "engine.publish",
    "engine.timeout",
)
"""Keys that say how a run is executed, when it is stopped, or what is evaluated besides; results
are the same but for rounding. A family names those of its model section (`ModelSection.how`)."""
RATES = {
    "base": "model.tiny.learning_rate",
    "sft": "sft.optimiser.learning_rate",
    "rl": "rl.optimiser.learning_rate",
}
"""The key of each stage's learning rate."""


class KeyChange(NamedTuple):
    """A key of a recipe with its value before and after."""

    key: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.key}: {self.old} -> {self.new}"

    @property
    def is_free(self) -> bool:
        """Whether no result depends on it."""
        return self.key.partition(".")[0] in NO_RESULT

    @property
    def is_question(self) -> bool:
        """Whether it is of the questions and branches, dozens of keys that nothing in a run depends
        on."""
        return self.key.partition(".")[0] == "decide"

    def stage(self, present: str | None) -> str | None:
        """The stage that it acts on: a rate's own, else the one that the run stands in."""
        return next((stage for stage, key in RATES.items() if key == self.key), present)


# -- which runs there are --------------------------------------------------------------------------


def list_runs(folders: Sequence[Path]) -> tuple[list[RunRecord], dict[str, str]]:
    """The runs in some folders, which may be runs themselves, and what lies beside them: its place,
    and what it is.

    Raises:
        RunError: a folder is not there, or there is no run in any of them.
    """
    runs: dict[Path, RunRecord] = {}
    others: dict[str, str] = {}
    for folder in folders:
        if not folder.is_dir():
            raise RunError(
                f"{folder} is {'a file' if folder.exists() else 'not there'}",
                "train one (plumbline run RECIPE), or give runs or folders that hold runs",
            )
        for name, place, what in _walk(
            folder, folder.name if _is_run(folder) else "", DEEPEST, set()
        ):
            if what is None:
                runs.setdefault(place.resolve(), RunRecord(place, name or place.resolve().name))
            else:
                others[str(place)] = what
    if not runs:
        found = "; ".join(f"{place}: {what}" for place, what in list(others.items())[:3])
        raise RunError(
            f"there is no run in {', '.join(map(str, folders))}{f' ({found})' if found else ''}",
            "give a run, or a folder that holds runs: `plumbline run RECIPE` makes one",
        )
    # runs of several folders may have one name
    twice = len({run.name for run in runs.values()}) < len(runs)
    return [
        RunRecord(run.folder, str(run.folder)) if twice else run for run in runs.values()
    ], others


def _walk(
    folder: Path, name: str, depth: int, seen: set[Path]
) -> Iterator[tuple[str, Path, str | None]]:
    """Yield the name and place of each run (with None) and of each folder without one (with what
    that is).

    A folder that was `seen` is passed over: a link may lead back to where we are.
    """
    if (resolved := folder.resolve()) in seen:
        return
    seen.add(resolved)
    if _is_run(folder):
        yield name, folder, None
        return
    try:
        with clear_read_errors(folder):
            inside = sorted(path for path in folder.iterdir() if path.name != output_guard.MARK)
            folders = [path for path in inside if path.is_dir() and not path.name.startswith(".")]
    except DataError as error:
        yield name, folder, error.cause
        return
    below = []
    if depth and not any((folder / file).is_file() for file in ELSEWHERE):
        below = [
            one
            for path in folders
            for one in _walk(path, f"{name}/{path.name}".strip("/"), depth - 1, seen)
        ]
    if any(what is None for *_, what in below) or (not name and below):
        yield from below
    else:
        yield name, folder, _describe_folder(folder, inside)


def _is_run(folder: Path) -> bool:
    """Whether a folder is a run, or was one: its mark, its recipe, or records that no other folder
    has together."""
    try:
        mark = folder / output_guard.MARK
        marked = mark.is_file() and file_begins_with(mark, "run\n")
        return marked or (folder / "recipe.yaml").is_file()
    except (OSError, DataError):
        return False


def _describe_folder(folder: Path, inside: Sequence[Path]) -> str:
    """What a folder without a run is."""
    if not inside:
        return "empty"
    known = next((what for file, what in ELSEWHERE.items() if (folder / file).is_file()), None)
    return (
        f"no run: {known}"
        if known
        else f"no run (it holds {', '.join(path.name for path in inside[:3])})"
    )


# -- what each began from --------------------------------------------------------------------------


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


def find_origins(runs: Sequence[RunRecord]) -> dict[str, Origin]:
    """What each run began from, by its name.

    A model that lies in a listed run is found by its path, which may be relative to any folder
    above the run; one that was moved by its metadata, which names recipe and stage; one whose files
    are gone by the names in its path.
    """
    places = {run.folder.resolve(): run for run in runs}
    return {run.name: _start_model(run, places) for run in runs}


def _start_model(run: RunRecord, places: Mapping[Path, RunRecord]) -> Origin:
    model = run.section("model").get("name")
    if not isinstance(model, str):
        return Origin("")
    path = Path(model).expanduser()
    above = [Path(), *run.folder.resolve().parents] if not path.is_absolute() else [Path()]
    tried = [(one / path).resolve() for one in above]
    for place in tried:
        if place.parent.name == "models" and (parent := places.get(place.parent.parent)):
            return Origin(model, parent.name, place.name)
    others = [one for one in places.values() if one is not run]
    for place in tried:
        with suppress(PlumblineError):
            if metadata := ModelMetadata.read(place):
                same = [
                    one
                    for one in others
                    if metadata.recipe == f"{one.values.get('name')} {one.identity}"
                ]
                if len(same) == 1:
                    return Origin(model, same[0].name, metadata.stage)
    if len(path.parts) > 2 and path.parts[-2] == "models":
        alike = [one for one in others if one.folder.name == path.parts[-3]]
        if len(alike) == 1:
            return Origin(model, alike[0].name, path.name)
    return Origin(model)


def order_runs(
    runs: Sequence[RunRecord], begun: Mapping[str, Origin]
) -> list[tuple[RunRecord, int]]:
    """The runs by the time at which they began, each below the one whose model it began from, with
    how deep it is."""
    ordered: dict[str, tuple[RunRecord, int]] = {}

    def place(run: RunRecord, depth: int) -> None:
        if run.name not in ordered:  # it would be where runs began from one another in a circle
            ordered[run.name] = run, depth
            for one in below.get(run.name, ()):
                place(one, depth + 1)

    below = group_by_key((begun[run.name].run, run) for run in _by_time(runs))
    for run in (*below.get("", ()), *_by_time(runs)):
        place(run, 0)
    return list(ordered.values())


def _by_time(runs: Sequence[RunRecord]) -> list[RunRecord]:
    return sorted(runs, key=lambda run: (run.started or LAST, run.name))


def group_versions(runs: Sequence[RunRecord], begun: Mapping[str, Origin]) -> list[list[RunRecord]]:
    """The runs whose recipes differ in the seed at most, together, in the order of time."""
    found: dict[str, list[RunRecord]] = {}
    for run in _by_time(runs):
        if run.values:
            content = {
                key: value for key, value in run.values.items() if key not in {*UNSAID, "seed"}
            }
            found.setdefault(
                _kind(run, begun[run.name]) + json.dumps(content, sort_keys=True), []
            ).append(run)
    return list(found.values())


def find_predecessors(runs: Sequence[RunRecord], begun: Mapping[str, Origin]) -> dict[str, str]:
    """The run that each is to be compared with, by name; nothing for the first of its kind.

    Runs of one recipe with several seeds are one version (`group_versions`). A version follows the
    one before it in time that began from the same model with the same tasks, that was evaluated
    where any was, and that is no negative control. Its runs are compared with the run of the same
    seed there, or with the last; those of the first version with the run whose model they began
    from. Where there is none, its seeds are compared with its first.
    """
    found: dict[str, str] = {}
    past: dict[str, list[list[RunRecord]]] = {}
    for version in group_versions(runs, begun):
        kind = _kind(version[0], begun[version[0].name])
        earlier = past.setdefault(kind, [])
        evaluated = [
            with_results
            for other in earlier
            if (with_results := [run for run in other if run.finals])
        ]
        last = (evaluated or earlier or [[]])[-1]
        for run in version:
            same = [one for one in last if one.values.get("seed") == run.values.get("seed")]
            if last:
                found[run.name] = (same or last)[-1].name
            elif parent := begun[run.name].run:
                found[run.name] = parent
            elif run is not version[0]:
                found[run.name] = version[0].name
        if not version[0].control:
            earlier.append(version)
    return found


def _kind(run: RunRecord, origin: Origin) -> str:
    """What runs have in common that can be versions of one another."""
    task, tasks = run.section("task"), run.section("tasks")
    named = {name: dict(one).get("name") for name, one in tasks.items() if isinstance(one, Mapping)}
    family = run.section("model").get("family", "autoregressive")
    model = [origin.run, origin.stage] if origin.run else origin.model
    return json.dumps([model, task.get("name"), named, family])


# -- what differs ----------------------------------------------------------------------------------


def list_changes(before: RunRecord, after: RunRecord) -> list[KeyChange]:
    """What differs between two runs' recipes, but for their names and where they are written.

    A section that only one of them has is one change, from or to None.
    """
    found: list[KeyChange] = []
    for key, old, new in value_differences(before.values, after.values):
        top = _missing_section(key, before.values, after.values)
        if key.partition(".")[0] in UNSAID or any(top == one for one, *_ in found):
            continue
        change = (
            (key, old, new)
            if top is None
            else (top, _value_at(before.values, top), _value_at(after.values, top))
        )
        found.append(KeyChange(*change))
    return found


def _missing_section(key: str, *recipes: Mapping[str, Any]) -> str | None:
    """The part of a key that is a section in one recipe and nothing in the other."""
    parts = key.split(".")
    for count in range(1, len(parts) + 1):
        top = ".".join(parts[:count])
        values = [_value_at(recipe, top) for recipe in recipes]
        if any(value is None for value in values) and any(
            isinstance(value, Mapping) for value in values
        ):
            return top
    return None


def _value_at(recipe: Mapping[str, Any], key: str) -> Any:
    value: Any = recipe
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def changes_text(found: Sequence[KeyChange], most: int | None = None) -> str:
    """Changes as people say them: rl.steps 50 → 100; sft left out.

    Args:
        found: the changes.
        most: say only the first so many, and how many there are more.
    """
    said = [_change_text(*change) for change in found[:most]]
    left = len(found) - len(said)
    return "; ".join([*said, *([f"and {left} more"] if left > 0 else [])]) or "nothing"


def _change_text(key: str, old: Any, new: Any) -> str:
    if isinstance(old, Mapping) or isinstance(new, Mapping):
        return f"{key} {'left out' if new is None else 'added' if old is None else 'replaced'}"
    return f"{key} {_value_text(old)} → {_value_text(new)}"


def _value_text(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else dumps(value)
    return shorten(text, LONGEST, "…")


# -- what may change -------------------------------------------------------------------------------


def is_other_seed(one: Recipe, other: Recipe) -> bool:
    """Whether two recipes are seeds of one."""
    return not changes_beside_seed(one, other)


def changes_beside_seed(one: Recipe, other: Recipe) -> list[KeyChange]:
    """What differs besides the seed, the name and what changes no result."""
    free = {"seed", "name", *HOW, *(f"model.{key}" for key in one.model.how)}
    return [
        change
        for each in differences(one, other)
        if not (change := KeyChange(*each)).is_free and change.key not in free
    ]


def allowed_changes(
    before: Recipe, now: Recipe, finished: Collection[str], folder: object
) -> list[KeyChange]:
    """What differs between the recipe of a run and the one it is resumed with.

    Args:
        before: what stands in the run's folder.
        now: what was given.
        finished: the stages that are.
        folder: the run's, for the message.

    Raises:
        RunError: something differs that may not; says what may.
    """
    found = [KeyChange(*each) for each in differences(before, now)]
    late = [
        each
        for stage, key in RATES.items()
        if stage in finished
        for each in found
        if each.key == key
    ]
    if late:
        raise RunError(
            f"{late[0]}, but the stage that trains at this rate is finished",
            "leave the rate as it was, or use --out for a new run",
        )
    how = (*(f"model.{key}" for key in sorted(now.model.how)), *HOW)
    other = [each for each in found if each.key not in (*how, *RATES.values()) and not each.is_free]
    if other:
        raise RunError(
            f"{folder} was started with another recipe ({'; '.join(map(str, other[:4]))})",
            "resume with the recipe it was started with, or use --out for a new run; only what "
            "says how it is "
            f"executed may change ({', '.join(how)}), and the learning rate of a stage that is not "
            "finished "
            f"({', '.join(RATES.values())})",
        )
    return found
