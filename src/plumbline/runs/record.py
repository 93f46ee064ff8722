"""A run's folder as it is read: the one reader of recipe, records, evaluations and outcome.

A `RunFolder` reads what is asked for, and raises where that cannot be read; `run.Run`, which
writes, is one. A `RunRecord` is what a run is as a whole, as far as it can be read: how far it
came, and what ended it. What a row of each record file must be, which a report takes for granted,
is checked when it is read.
"""

import fcntl
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from plumbline.config.overrides import as_mapping, read_yaml
from plumbline.errors import PlumblineError, RecipeError, RunError
from plumbline.recipe import Recipe, load_recipe
from plumbline.records import Evaluation
from plumbline.runs import output_guard
from plumbline.runs.evaluations import REFERENCE, EvaluationKey, read_evaluation
from plumbline.runs.metadata import METADATA
from plumbline.storage import SMALL, JsonLines, clear_read_errors, read_object, read_text

STAGES = ("base", "sft", "rl")
"""In the order of training."""
DIFFICULTY = "difficulty.jsonl"
"""What the model that RL begins with earns on each training prompt, where `rl.filter` asks for
it."""
STOPPED = "stopped"
"""The status in the result of a run that a check or a watch rule stopped."""
Status = Literal["finished", "running", "stopped", "never started", "damaged"]
Found = TypeVar("Found")


# -- rows ------------------------------------------------------------------------------------------

Share = Annotated[float, Field(ge=0, le=1)]
Step = Annotated[int, Field(ge=0, le=10**15)]
MOST_SECONDS = 1e10
"""Of a step: 300 years."""


class _Row(BaseModel):
    """Further keys are as they may be."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class _Numbers(_Row):
    """A step of a stage, and numbers; null was not computed."""

    __pydantic_extra__: dict[str, float | bool | None] = Field(init=False)
    stage: str
    step: Step

    @model_validator(mode="after")
    def _seconds(self) -> Self:
        """Seconds are summed, and shown as hours."""
        for name, value in self.__pydantic_extra__.items():
            if name.startswith("time/") and value is not None and not 0 <= value <= MOST_SECONDS:
                raise ValueError(f"{name} is {value:.3g}, which are no seconds of a step")
        return self


class _Sample(_Row):
    """A rollout of training."""

    step: Step
    reward: Share | None
    parts: dict[str, Share | None]
    id: str
    text: str
    turns: list[str] = []
    asked: list[str] = []
    how: str = ""


class _Event(_Row):
    """Something that the user should know."""

    kind: str
    message: str


class _Mean(_Row):
    """A mean with its interval."""

    mean: Share
    low: Share
    high: Share
    n: Annotated[int, Field(ge=1, le=10**15)]


class EvaluationSummary(_Row):
    """What a run's outcome says of one evaluation, as far as others go by it."""

    task: str
    rubric: str
    reward: _Mean
    floor: Share | None = None
    ceiling: Share | None = None


KINDS: Mapping[str, type[_Row]] = {
    "metrics": _Numbers,
    "timings": _Numbers,
    "samples": _Sample,
    "events": _Event,
}
"""By the name of the file."""


def make_checker(name: str) -> Callable[[Mapping[str, Any]], None]:
    """What raises ValueError for a row that the file `name` cannot hold, and says which key is
    wrong."""
    kind = KINDS[name]

    def check(row: Mapping[str, Any]) -> None:
        try:
            kind.model_validate(row)
        except ValidationError as error:
            first = error.errors()[0]
            # of a union
            where = ".".join(str(part) for part in first["loc"] if part not in {"float", "bool"})
            raise ValueError(f"{where}: {first['msg']}") from error

    return check


# -- a folder --------------------------------------------------------------------------------------


def is_blank(folder: Path) -> bool:
    """Whether nothing was trained or evaluated in a run's folder; oracle and baselines cost
    nothing."""
    began = any(
        (folder / name).exists()
        for name in ("models", "checkpoints", "metrics.jsonl", DIFFICULTY, "result.json")
    )
    evaluated = [
        path for path in folder.glob("evaluations/*") if not path.name.startswith(f"{REFERENCE}.")
    ]
    return not began and not evaluated


def in_use(folder: Path) -> bool:
    """Whether a process is writing a run."""
    try:
        descriptor = os.open(folder / ".lock", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False


class RunFolder:
    """The files of a run, each read as it is now when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def files(self) -> dict[str, JsonLines]:
        """Metrics, timings, samples and events."""
        return {
            name: JsonLines(self.folder / f"{name}.jsonl", make_checker(name)) for name in KINDS
        }

    def evaluation_file(self, key: EvaluationKey) -> Path:
        """Where an evaluation is."""
        return self.folder / "evaluations" / f"{key}.json"

    def rows(self, stage: str) -> list[dict[str, Any]]:
        """The metrics rows of a stage."""
        return [row for row in self.files["metrics"].rows() if row.get("stage") == stage]

    def replays(self, key: EvaluationKey) -> Path:
        """Where the replayed episodes of an evaluation are."""
        return self.folder / "replays" / str(key)

    def evaluation_files(self) -> dict[EvaluationKey, Path]:
        """The file of every evaluation, in the order of their names.

        Raises:
            DataError: the folder cannot be read, or a file in it has no evaluation's name.
        """
        folder = self.folder / "evaluations"
        with clear_read_errors(folder):
            try:  # not glob, to which a folder that cannot be read is an empty one
                paths = sorted(path for path in folder.iterdir() if path.suffix == ".json")
            except FileNotFoundError:
                paths = []
        return {EvaluationKey.parse(path.stem): path for path in paths}

    def final_keys(self) -> list[EvaluationKey]:
        """The evaluations after the stages, by the names of their files.

        Raises:
            DataError: the folder cannot be read, or a name is that of none.
        """
        return [
            key for key in self.evaluation_files() if key.step is None and key.stage != REFERENCE
        ]

    def evaluations(self) -> dict[EvaluationKey, Evaluation]:
        """Every evaluation, in the order of the file names.

        Raises:
            DataError: the folder cannot be read, or a file in it is no evaluation.
        """
        return {key: read_evaluation(path) for key, path in self.evaluation_files().items()}

    def result(self) -> dict[str, Any] | None:
        """The outcome, or None while the run is not finished."""
        found = self._outcome()
        return None if found.get("status") == STOPPED else found or None

    def read_stop(self) -> dict[str, Any] | None:
        """Which check or watch rule stopped the run, where and why; None where none did, or it has
        gone on since."""
        found = self._outcome()
        return found if found.get("status") == STOPPED else None

    def _outcome(self) -> dict[str, Any]:
        path = self.folder / "result.json"
        return read_object(path) if path.exists() else {}

    def model(self, stage: str) -> Path:
        """Where a stage's model is."""
        return self.folder / "models" / stage

    def is_done(self, stage: str) -> bool:
        """Whether a stage is finished: its model is renamed into place whole, metadata included."""
        return (self.model(stage) / METADATA).is_file()

    def checkpoints(self, stage: str) -> Path:
        """Where a stage's checkpoints are."""
        return self.folder / "checkpoints" / stage


def last_model(source: str) -> str:
    """The model of a run's last finished stage, where `source` is the folder of a run that has one;
    else `source`."""
    run = RunFolder(Path(source))
    done = [stage for stage in STAGES if run.model(stage).is_dir()]
    return str(run.model(done[-1])) if done and (run.folder / "recipe.yaml").is_file() else source


# -- a run as a whole ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RunRecord(RunFolder):
    """One run, as far as it can be read."""

    folder: Path
    name: str
    """Its folder, from the one that was asked for."""
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

    @property
    def planned(self) -> dict[str, int | None]:
        """The stages that its recipe trains, in order, with their steps; None where these depend on
        the data."""
        return _planned_stages(self.recipe)

    @property
    def control(self) -> bool:
        """Whether something is wrong on purpose."""
        return any(self.section("controls").values())


def read_record(folder: Path, name: str) -> RunRecord:
    """What a run is; what cannot be read makes it a damaged one."""
    wrong: list[str] = []

    def attempt(read: Callable[[], Found]) -> Found | None:
        try:
            return read()
        except PlumblineError as error:
            wrong.append(error.cause)
            return None

    values, identity = attempt(lambda: read_recipe(folder)) or ({}, "")
    run = RunFolder(folder)
    result = attempt(run.result)
    rows = attempt(lambda: run.files["timings"].rows() or run.files["metrics"].rows()) or []
    events = attempt(run.files["events"].rows) or []
    keys = attempt(run.final_keys) or []
    finals = _last_stage(keys, values)
    elsewhere = (
        as_mapping(values.get("model")).get("name") is not None
        and finals
        and finals[0].stage != "base"
    )
    steps: dict[str, int] = {}
    for row in rows:
        steps[row["stage"]] = max(steps.get(row["stage"], 0), row["step"])
    seconds = [
        value
        for row in rows
        for key, value in row.items()
        if key.startswith("time/") and value is not None
    ]
    status, why = _status(folder, result is not None, events)
    return RunRecord(
        folder=folder,
        name=name,
        status="damaged" if wrong else status,
        why=wrong[0] if wrong else why,
        recipe=values,
        identity=identity,
        started=_start_time(folder, events),
        seconds=float(sum(seconds)),
        steps={
            stage: steps[stage]
            for stage in (*STAGES, *sorted(set(steps) - set(STAGES)))
            if stage in steps
        },
        finals=finals,
        starts=tuple(key for key in keys if key.stage == "base") if elsewhere else (),
        summaries=as_mapping((result or {}).get("evaluations")),
    )


def recipe_file(folder: Path) -> Path:
    """The recipe in a run's folder.

    Raises:
        RunError: it is no run directory.
    """
    if not (folder / "recipe.yaml").is_file():
        raise RunError(
            f"{folder} is not a run directory (it has no recipe.yaml)", "give the folder of a run"
        )
    return folder / "recipe.yaml"


def read_recipe(folder: Path) -> tuple[Mapping[str, Any], str]:
    """A run's recipe as plain values, and its identity; of one that another version wrote, the
    values as they stand.

    Raises:
        RunError: the folder has none.
        RecipeError: it is none.
    """
    path = recipe_file(folder)
    try:
        recipe: Recipe = load_recipe(path, written=True)
    except RecipeError:
        values = read_yaml(read_text(path, RecipeError, SMALL), str(path))
        model = values.get("model") if isinstance(values, dict) else None
        if not isinstance(model, dict) or not isinstance(model.get("name", ""), str | None):
            raise
        return _to_json_value(values), ""
    return _to_json_value(recipe.model_dump(mode="json")), recipe.identity()


def _to_json_value(value: Any) -> Any:
    """What JSON can say: YAML has dates, numbers as keys, and NaN."""
    if isinstance(value, dict):
        return {str(key): _to_json_value(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_to_json_value(one) for one in value]
    known = (
        value is None
        or isinstance(value, str | int)
        or (isinstance(value, float) and math.isfinite(value))
    )
    return value if known else str(value)


def _planned_stages(recipe: Mapping[str, Any]) -> dict[str, int | None]:
    model = as_mapping(recipe.get("model"))
    sections = {
        "base": as_mapping(model.get("tiny")),
        "sft": recipe.get("sft"),
        "rl": recipe.get("rl"),
    }
    trained = {
        "base": bool(recipe) and model.get("name") is None,
        "sft": sections["sft"],
        "rl": sections["rl"],
    }
    counts = {stage: as_mapping(sections[stage]).get("steps") for stage in STAGES if trained[stage]}
    return {stage: steps if isinstance(steps, int) else None for stage, steps in counts.items()}


def _last_stage(
    keys: Sequence[EvaluationKey], recipe: Mapping[str, Any]
) -> tuple[EvaluationKey, ...]:
    """The keys of the last stage that was trained here and evaluated."""
    trained = list(_planned_stages(recipe)) or (["base"] if recipe else STAGES)
    for stage in reversed(trained):
        if found := tuple(key for key in keys if key.stage == stage):
            return found
    return ()


def _status(
    folder: Path, finished: bool, events: Sequence[Mapping[str, Any]]
) -> tuple[Status, str]:
    said = next(
        (row for row in reversed(events) if row["kind"] in {"started", "resumed", "stopped"}), None
    )
    stopped = said["message"] if said is not None and said["kind"] == "stopped" else ""
    if finished:
        return "finished", ""
    if in_use(folder):
        return "running", ""
    if is_blank(folder):
        return "never started", stopped
    return "stopped", stopped or "killed, or its machine went down"


def _start_time(folder: Path, events: Sequence[Mapping[str, Any]]) -> datetime | None:
    """When the run began; a folder that was copied without its times says so only by its events."""
    begun = [row for row in events if row["kind"] == "started"]
    for row in reversed(begun):
        try:
            return datetime.fromisoformat(str(row.get("time"))).astimezone(UTC)
        except (ValueError, OverflowError):  # the year 1 has no hour before its first
            continue
    times = []
    for name in (output_guard.MARK, "recipe.yaml"):
        try:
            times.append((folder / name).stat().st_mtime)
        except OSError:
            continue
    with suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(min(times), UTC)
    return None
