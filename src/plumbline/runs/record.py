"""A run as it is read: the one reader of recipe, records, evaluations and outcome.

A `RunFolder` has the files, each read as it is now; `run.Run`, which writes them, is one. A
`RunRecord` is the run that they make, each read once: what reports, checks, decisions and listings
look at. What a row of each record file must be, which a report takes for granted, is checked when
it is read.
"""

import fcntl
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from plumbline.config.overrides import as_mapping, read_yaml
from plumbline.errors import DataError, PlumblineError, RecipeError, RunError
from plumbline.recipe import Recipe, load_recipe
from plumbline.records import Evaluation, Row, Rows, Values, group_by_key
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


def make_checker(name: str) -> Callable[[Row], None]:
    """What raises ValueError for a row that the file `name` cannot hold, and says which key is
    wrong."""
    kind = KINDS[name]

    def check(row: Row) -> None:
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

    def rows(self, stage: str) -> list[Values]:
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

    def evaluations(self) -> dict[EvaluationKey, Evaluation]:
        """Every evaluation, in the order of the file names.

        Raises:
            DataError: the folder cannot be read, or a file in it is no evaluation.
        """
        return {key: read_evaluation(path) for key, path in self.evaluation_files().items()}

    def result(self) -> Values | None:
        """The outcome, or None while the run is not finished."""
        found = self._outcome()
        return None if found.get("status") == STOPPED else found or None

    def read_stop(self) -> Values | None:
        """Which check or watch rule stopped the run, where and why; None where none did, or it has
        gone on since."""
        found = self._outcome()
        return found if found.get("status") == STOPPED else None

    def _outcome(self) -> Values:
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


class _Listed(NamedTuple):
    """What a listing says of a run, as far as it can be read."""

    values: Mapping[str, Any]
    identity: str
    result: Mapping[str, Any] | None
    rows: Rows
    events: Rows
    keys: Sequence[EvaluationKey]
    damage: str


class RunRecord(RunFolder):
    """One run, each of its records read once, when it is first asked for.

    What cannot be read raises a DataError, but for what a listing says: there the run is damaged,
    and that part is empty.

    Args:
        folder: of the run.
        name: of a listed run: its folder, from the one that was asked for.
        recipe: where it is known already.
    """

    def __init__(self, folder: Path, name: str = "", recipe: Recipe | None = None) -> None:
        super().__init__(folder)
        self.name = name
        if recipe is not None:
            self.recipe = recipe

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The record of a finished or running run.

        Raises:
            RunError: it is no run directory.
            RecipeError: its recipe is none of this version.
        """
        return cls(folder, recipe=load_recipe(recipe_file(folder), written=True))

    @cached_property
    def recipe(self) -> Recipe:
        """What the run does, resolved."""
        return load_recipe(recipe_file(self.folder), written=True)

    @cached_property
    def metrics(self) -> dict[str, list[Values]]:
        """The metrics rows of each stage that has any, in the order of training."""
        return _by_stage(self.files["metrics"].rows())

    @cached_property
    def timings(self) -> dict[str, list[Values]]:
        """Where the seconds went, in the same way."""
        return _by_stage(self.files["timings"].rows())

    @cached_property
    def samples(self) -> list[Values]:
        """The rollouts of training."""
        return self.files["samples"].rows()

    @cached_property
    def events(self) -> list[Values]:
        """What the user should know."""
        return self.files["events"].rows()

    @cached_property
    def environment(self) -> Values:
        """Versions and machine; empty before they are recorded."""
        path = self.folder / "environment.json"
        return read_object(path) if path.exists() else {}

    @cached_property
    def evaluation_paths(self) -> dict[EvaluationKey, Path]:
        """Which evaluations there are, and where."""
        return self.evaluation_files()

    @cached_property
    def _evaluations(self) -> dict[EvaluationKey, Evaluation]:
        return {}

    def rows(self, stage: str) -> list[Values]:
        """The metrics rows of a stage."""
        return self.metrics.get(stage, [])

    def read_evaluation(self, key: EvaluationKey) -> Evaluation:
        """One of the evaluations."""
        if key not in self._evaluations:
            path = self.evaluation_paths.get(key, self.evaluation_file(key))
            self._evaluations[key] = read_evaluation(path)
        return self._evaluations[key]

    def evaluations(self) -> dict[EvaluationKey, Evaluation]:
        """All of them."""
        return {key: self.read_evaluation(key) for key in self.evaluation_paths}

    # -- as a listing has it -----------------------------------------------------------------------

    @cached_property
    def _listed(self) -> _Listed:
        wrong: list[str] = []

        def attempt(read: Callable[[], Found]) -> Found | None:
            try:
                return read()
            except PlumblineError as error:
                wrong.append(error.cause)
                return None

        values, identity = attempt(lambda: read_recipe(self.folder)) or ({}, "")
        result = attempt(self.result)
        by_stage = attempt(lambda: self.timings or self.metrics) or {}
        events = attempt(lambda: self.events) or []
        keys = attempt(lambda: self.evaluation_paths) or ()
        rows = [row for rows in by_stage.values() for row in rows]
        return _Listed(
            *(values, identity, result, rows, events),
            keys=[key for key in keys if key.step is None and key.stage != REFERENCE],
            damage=wrong[0] if wrong else "",
        )

    @property
    def values(self) -> Mapping[str, Any]:
        """The recipe as plain values, resolved; empty where it cannot be read."""
        return self._listed.values

    @property
    def identity(self) -> str:
        """Of the recipe; empty for one that another version wrote."""
        return self._listed.identity

    @cached_property
    def status(self) -> Status:
        """How far it came."""
        if self._listed.damage:
            return "damaged"
        if self._listed.result is not None:
            return "finished"
        if in_use(self.folder):
            return "running"
        return "never started" if is_blank(self.folder) else "stopped"

    @property
    def why(self) -> str:
        """What stopped it, or what is damaged."""
        if self.status in {"finished", "running"}:
            return ""
        turns = {"started", "resumed", "stopped"}
        last = next((row for row in reversed(self._listed.events) if row["kind"] in turns), None)
        stopped = last["message"] if last is not None and last["kind"] == "stopped" else ""
        killed = "killed, or its machine went down" if self.status == "stopped" else ""
        return self._listed.damage or stopped or killed

    @cached_property
    def started(self) -> datetime | None:
        """When it began: the event, or else the time of its oldest file."""
        return _start_time(self.folder, self._listed.events)

    @property
    def seconds(self) -> float:
        """Of recorded training."""
        return float(
            sum(
                value
                for row in self._listed.rows
                for key, value in row.items()
                if key.startswith("time/") and value is not None
            )
        )

    @property
    def steps(self) -> dict[str, int]:
        """The last recorded step of each stage."""
        found: dict[str, int] = {}
        for row in self._listed.rows:
            found[row["stage"]] = max(found.get(row["stage"], 0), row["step"])
        return found

    @cached_property
    def finals(self) -> tuple[EvaluationKey, ...]:
        """The evaluations after its last stage that was trained here and has any."""
        trained = list(self.planned) or (["base"] if self.values else STAGES)
        for stage in reversed(trained):
            if found := tuple(key for key in self._listed.keys if key.stage == stage):
                return found
        return ()

    @property
    def starts(self) -> tuple[EvaluationKey, ...]:
        """The evaluations of the model from elsewhere that it began from."""
        elsewhere = self.section("model").get("name") is not None
        if not elsewhere or not self.finals or self.finals[0].stage == "base":
            return ()
        return tuple(key for key in self._listed.keys if key.stage == "base")

    @property
    def summaries(self) -> Mapping[str, Any]:
        """What `result.json` says of the evaluations, by key."""
        return as_mapping((self._listed.result or {}).get("evaluations"))

    def section(self, name: str) -> Mapping[str, Any]:
        """A section of the recipe; empty where it has none."""
        return as_mapping(self.values.get(name))

    @property
    def planned(self) -> dict[str, int | None]:
        """The stages that its recipe trains, in order, with their steps; None where these depend on
        the data or on a budget of seconds."""
        if not self.values:
            return {}
        sections = {stage: self.values.get(stage) for stage in ("sft", "rl")}
        if self.section("model").get("name") is None:
            sections = {"base": as_mapping(self.section("model").get("tiny")), **sections}
        planned = {
            stage: as_mapping(section)
            for stage, section in sections.items()
            if section or stage == "base"
        }
        return {
            stage: steps
            if isinstance(steps := one.get("steps"), int) and not one.get("seconds")
            else None
            for stage, one in planned.items()
        }

    @property
    def control(self) -> bool:
        """Whether something is wrong on purpose."""
        return any(self.section("controls").values())


def _by_stage(rows: Iterable[Values]) -> dict[str, list[Values]]:
    found = group_by_key((row["stage"], row) for row in rows)
    return {stage: found[stage] for stage in order_stages(found)}


def order_stages(stages: Iterable[str]) -> list[str]:
    """Stages in the order of training; others after them, by name."""
    there = set(stages)
    return [*(stage for stage in STAGES if stage in there), *sorted(there - set(STAGES))]


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


def read_plain_recipe(folder: Path) -> Values:
    """The values in a run's recipe as they stand, whichever version wrote it; quick.

    Raises:
        DataError: they are none.
    """
    path = folder / "recipe.yaml"
    try:
        values = read_yaml(read_text(path, limit=SMALL), str(path), strict=False)
    except RecipeError as error:
        raise DataError(error.cause, error.fix) from error
    if not isinstance(values, dict):
        raise DataError(f"{path} holds no recipe", "give the folder of a run")
    return values


def read_recipe(folder: Path) -> tuple[Mapping[str, Any], str]:
    """A run's recipe as plain values, and its identity; of one that another version wrote, the
    values as they stand.

    Raises:
        RunError: the folder has none.
        RecipeError: it is none.
    """
    try:
        recipe = load_recipe(recipe_file(folder), written=True)
    except RecipeError:
        with suppress(DataError):
            values = read_plain_recipe(folder)
            model = values.get("model")
            if isinstance(model, dict) and isinstance(model.get("name", ""), str | None):
                return _to_json_value(values), ""
        raise
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


def _start_time(folder: Path, events: Rows) -> datetime | None:
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
