"""The runs of a folder: what each is, how far it came, and what ended it.

Whatever lies there has its line: a run that is finished, stopped, going on, not begun or damaged, and a folder that is
no run, with what it is instead. Nothing raises but a folder that is asked for and is not there. Records that are large
(metrics, samples) are not read.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from plumbline.config.overrides import as_mapping, read_yaml
from plumbline.errors import DataError, PlumblineError, RecipeError, RunError
from plumbline.recipe import Recipe, load
from plumbline.runs import claims
from plumbline.runs.evaluations import REFERENCE, EvaluationKey
from plumbline.runs.rows import checker
from plumbline.runs.run import STAGES, in_use, is_blank
from plumbline.storage import SMALL, JsonLines, begins_with, clear_read_errors, read_object, read_text

Status = Literal["finished", "running", "stopped", "never started", "damaged"]
DEEPEST = 3
"""Levels of folders below the one that is asked for: runs of sweeps, of groups of sweeps."""
ELSEWHERE = {
    "trainer_state.json": "a checkpoint of transformers or TRL",
    "config.json": "a model directory",
    "adapter_config.json": "an adapter's directory",
    "manifest.json": "a task's records",
}
"""What a folder is that has such a file."""
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One run, as far as it can be read."""

    name: str
    """Its folder, from the one that was asked for."""
    folder: Path
    status: Status
    why: str = ""
    """What stopped it, or what is damaged."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """Resolved, as plain values; empty where it cannot be read."""
    identity: str = ""
    """Of the recipe; empty for one that another version wrote."""
    started: datetime | None = None
    """When it began: the event, or else the time of its oldest file."""
    seconds: float = 0.0
    """Of recorded training."""
    steps: Mapping[str, int] = field(default_factory=dict)
    """The last recorded step of each stage."""
    finals: tuple[EvaluationKey, ...] = ()
    """The evaluations after its last stage that has any."""
    starts: tuple[EvaluationKey, ...] = ()
    """The evaluations of the model from elsewhere that it began from."""
    summaries: Mapping[str, Any] = field(default_factory=dict)
    """What `result.json` says of the evaluations, by key."""

    def section(self, name: str) -> Mapping[str, Any]:
        """A section of the recipe; empty where it has none."""
        return as_mapping(self.recipe.get(name))

    def evaluation(self, key: EvaluationKey) -> Path:
        """Where an evaluation is."""
        return self.folder / "evaluations" / f"{key}.json"

    @property
    def planned(self) -> dict[str, int | None]:
        """The stages that its recipe trains, in order, with their steps; None where these depend on the data."""
        return _planned(self.recipe)

    @property
    def control(self) -> bool:
        """Whether something is wrong on purpose."""
        return any(self.section("controls").values()) or bool(self.section("rl").get("shuffle_advantages"))


def list_runs(folders: Sequence[Path]) -> tuple[list[Listed], dict[str, str]]:
    """The runs in some folders, which may be runs themselves, and what lies beside them: its place, and what it is.

    Raises:
        RunError: a folder is not there, or there is no run in any of them.
    """
    runs: dict[Path, Listed] = {}
    others: dict[str, str] = {}
    for folder in folders:
        if not folder.is_dir():
            raise RunError(
                f"{folder} is {'a file' if folder.exists() else 'not there'}", "give runs, or folders that hold runs"
            )
        for name, place, what in _walk(folder, folder.name if _is_run(folder) else "", DEEPEST, set()):
            if what is None:
                runs.setdefault(place.resolve(), read_listed(place, name or place.resolve().name))
            else:
                others[str(place)] = what
    if not runs:
        found = "; ".join(f"{place}: {what}" for place, what in list(others.items())[:3])
        raise RunError(
            f"there is no run in {', '.join(map(str, folders))}{f' ({found})' if found else ''}",
            "give a run, or a folder that holds runs: `plumbline run RECIPE` makes one",
        )
    return _named_apart(list(runs.values())), others


def _walk(folder: Path, name: str, depth: int, seen: set[Path]) -> Iterator[tuple[str, Path, str | None]]:
    """Yield the name and place of each run (with None) and of each folder without one (with what that is).

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
            inside = sorted(path for path in folder.iterdir() if path.name != claims.MARK)
            folders = [path for path in inside if path.is_dir() and not path.name.startswith(".")]
    except DataError as error:
        yield name, folder, error.cause
        return
    below = []
    if depth and not any((folder / file).is_file() for file in ELSEWHERE):
        below = [one for path in folders for one in _walk(path, f"{name}/{path.name}".strip("/"), depth - 1, seen)]
    if any(what is None for *_, what in below) or (not name and below):
        yield from below
    else:
        yield name, folder, _what(folder, inside)


def _is_run(folder: Path) -> bool:
    """Whether a folder is a run, or was one: its mark, its recipe, or records that no other folder has together."""
    try:
        mark = folder / claims.MARK
        marked = mark.is_file() and begins_with(mark, "run\n")
        return marked or (folder / "recipe.yaml").is_file()
    except (OSError, DataError):
        return False


def _what(folder: Path, inside: Sequence[Path]) -> str:
    """What a folder without a run is."""
    if not inside:
        return "empty"
    known = next((what for file, what in ELSEWHERE.items() if (folder / file).is_file()), None)
    return f"no run: {known}" if known else f"no run (it holds {', '.join(path.name for path in inside[:3])})"


def _named_apart(runs: list[Listed]) -> list[Listed]:
    """Runs of several folders may have one name; then all are called by their places."""
    twice = len({run.name for run in runs}) < len(runs)
    return [replace(run, name=str(run.folder)) for run in runs] if twice else runs


# -- one run -------------------------------------------------------------------------------------------------------


def read_listed(folder: Path, name: str) -> Listed:
    """What a run is; what cannot be read makes it a damaged one."""
    wrong: list[str] = []

    def attempt(read: Callable[[], Found]) -> Found | None:
        try:
            return read()
        except PlumblineError as error:
            wrong.append(error.cause)
            return None

    values, identity = attempt(lambda: read_recipe(folder)) or ({}, "")
    result = attempt(lambda: _result(folder))
    rows = attempt(lambda: _rows(folder, "timings") or _rows(folder, "metrics")) or []
    events = attempt(lambda: _rows(folder, "events")) or []
    keys = attempt(lambda: final_keys(folder)) or []
    finals = _last_stage(keys, values)
    elsewhere = as_mapping(values.get("model")).get("name") is not None and finals and finals[0].stage != "base"
    steps: dict[str, int] = {}
    for row in rows:
        steps[row["stage"]] = max(steps.get(row["stage"], 0), row["step"])
    seconds = [value for row in rows for key, value in row.items() if key.startswith("time/") and value is not None]
    status, why = _status(folder, result is not None, events)
    return Listed(
        name=name,
        folder=folder,
        status="damaged" if wrong else status,
        why=wrong[0] if wrong else why,
        recipe=values,
        identity=identity,
        started=_started(folder, events),
        seconds=float(sum(seconds)),
        steps={stage: steps[stage] for stage in (*STAGES, *sorted(set(steps) - set(STAGES))) if stage in steps},
        finals=finals,
        starts=tuple(key for key in keys if key.stage == "base") if elsewhere else (),
        summaries=as_mapping((result or {}).get("evaluations")),
    )


def read_recipe(folder: Path) -> tuple[Mapping[str, Any], str]:
    """A run's recipe as plain values, and its identity; of one that another version wrote, the values as they stand.

    Raises:
        RunError: the folder has none.
        RecipeError: it is none.
    """
    path = folder / "recipe.yaml"
    if not path.is_file():
        raise RunError(f"{folder} is not a run directory (it has no recipe.yaml)", "give the folder of a run")
    try:
        recipe: Recipe = load(path, written=True)
    except RecipeError:
        values = read_yaml(read_text(path, RecipeError, SMALL), str(path))
        model = values.get("model") if isinstance(values, dict) else None
        if not isinstance(model, dict) or not isinstance(model.get("name", ""), str | None):
            raise
        return _plain(values), ""
    return _plain(recipe.model_dump(mode="json")), recipe.identity()


def _plain(value: Any) -> Any:
    """What JSON can say: YAML has dates, numbers as keys, and NaN."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    known = value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    return value if known else str(value)


def final_keys(folder: Path) -> list[EvaluationKey]:
    """The evaluations after the stages of a run, by the names of their files.

    Raises:
        DataError: the folder cannot be read, or a name is that of none.
    """
    place = folder / "evaluations"
    with clear_read_errors(place):
        try:
            names = sorted(path.stem for path in place.iterdir() if path.suffix == ".json")
        except FileNotFoundError:
            names = []
    keys = [EvaluationKey.parse(name) for name in names]
    return [key for key in keys if key.step is None and key.stage != REFERENCE]


def _planned(recipe: Mapping[str, Any]) -> dict[str, int | None]:
    model = as_mapping(recipe.get("model"))
    sections = {"base": as_mapping(model.get("tiny")), "sft": recipe.get("sft"), "rl": recipe.get("rl")}
    trained = {"base": bool(recipe) and model.get("name") is None, "sft": sections["sft"], "rl": sections["rl"]}
    counts = {stage: as_mapping(sections[stage]).get("steps") for stage in STAGES if trained[stage]}
    return {stage: steps if isinstance(steps, int) else None for stage, steps in counts.items()}


def _last_stage(keys: Sequence[EvaluationKey], recipe: Mapping[str, Any]) -> tuple[EvaluationKey, ...]:
    """The keys of the last stage that was trained here and evaluated."""
    trained = list(_planned(recipe)) or (["base"] if recipe else STAGES)
    for stage in reversed(trained):
        if found := tuple(key for key in keys if key.stage == stage):
            return found
    return ()


def _result(folder: Path) -> dict[str, Any] | None:
    path = folder / "result.json"
    return read_object(path) if path.exists() else None


def _rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return JsonLines(folder / f"{name}.jsonl", checker(name)).rows()


def _status(folder: Path, finished: bool, events: Sequence[Mapping[str, Any]]) -> tuple[Status, str]:
    said = next((row for row in reversed(events) if row["kind"] in {"started", "resumed", "stopped"}), None)
    stopped = said["message"] if said is not None and said["kind"] == "stopped" else ""
    if finished:
        return "finished", ""
    if in_use(folder):
        return "running", ""
    if is_blank(folder):
        return "never started", stopped
    return "stopped", stopped or "killed, or its machine went down"


def _started(folder: Path, events: Sequence[Mapping[str, Any]]) -> datetime | None:
    """When the run began; a folder that was copied without its times says so only by its events."""
    begun = [row for row in events if row["kind"] == "started"]
    for row in reversed(begun):
        try:
            return datetime.fromisoformat(str(row.get("time"))).astimezone(UTC)
        except (ValueError, OverflowError):  # the year 1 has no hour before its first
            continue
    times = []
    for name in (claims.MARK, "recipe.yaml"):
        try:
            times.append((folder / name).stat().st_mtime)
        except OSError:
            continue
    with suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(min(times), UTC)
    return None
