"""Which model does which job: a table for whoever serves them, made from evaluations, with what
each choice rests on.

version: 1
routes:
  extraction:
    model: runs/small/models/rl
    decided: true
    reason: ...
    candidates: ...   # every model with its figure, the best first
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from plumbline.errors import RunError
from plumbline.evaluation.comparison import compare
from plumbline.evaluation.statistics import Interval
from plumbline.evaluation.summary import reward_interval
from plumbline.records import Evaluation
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.record import STAGES, RunRecord
from plumbline.runs.remote import portable_path
from plumbline.storage import file_begins_with, write_text

VERSION = 1
HEAD = "# Written by `plumbline route`: which model does which job.\n"


@dataclass(frozen=True, slots=True)
class RouteCandidate:
    """A model that could do a job."""

    model: str
    mean: float
    low: float
    high: float
    n: int
    """Examples that it was evaluated on."""
    behind: tuple[float, float, float] | None
    """Its mean less the best one's on the same examples, with the ends of the interval; null of the
    best."""

    @property
    def figure(self) -> Interval:
        """The mean reward with its 95 % interval."""
        return Interval(self.mean, self.low, self.high, self.n)


@dataclass(frozen=True, slots=True)
class Route:
    """Who does a job."""

    model: str
    decided: bool = False
    """False where another model may be as good: the difference is inside the noise, or nothing was
    compared."""
    reason: str = ""
    candidates: tuple[RouteCandidate, ...] = ()


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """A model for each job."""

    version: int
    routes: Mapping[str, Route]


def choose_routes(folders: Sequence[Path]) -> RoutingTable:
    """The best model for each job that the runs were evaluated on after their last stage (greedily,
    last final split).

    Where others may be as good as the best, the one that was given first is taken: give the cheaper
    model first.

    Raises:
        RunError: a folder is no run, or has no model evaluated.
        IncomparableError: a job was evaluated on other examples or under another rubric.
        DataError: a record cannot be read.
    """
    jobs: dict[str, dict[str, Evaluation]] = {}
    for folder in folders:
        for job, (model, evaluation) in _evaluations_by_job(folder).items():
            jobs.setdefault(job, {})[model] = evaluation
    return RoutingTable(VERSION, {job: _choose_model(found) for job, found in jobs.items()})


def _evaluations_by_job(folder: Path) -> dict[str, tuple[str, Evaluation]]:
    """The model of a run's last evaluated stage, and its evaluation, by job."""
    if not folder.is_dir():
        raise RunError(f"{folder} is no folder", "give the folder of a run")
    run = RunRecord.read(folder)
    final = run.recipe.evaluation.final
    found = [
        key
        for key in run.evaluation_paths
        if (key.step, key.mode) == (None, "greedy")
        and key.split in final[-1:]
        and key.stage in STAGES
    ]
    if not found:
        raise RunError(
            f"{folder} has no model that was evaluated after a stage", "let the run finish a stage"
        )
    stage = max((key.stage for key in found), key=STAGES.index)
    return {
        _job_name(key, one, run): (portable_path(str(_evaluated_model(run, stage))), one)
        for key in found
        if key.stage == stage and (one := run.read_evaluation(key))
    }


def _job_name(key: EvaluationKey, evaluation: Evaluation, run: RunRecord) -> str:
    """A task's name in its run; of a run of one task, the job among its options, or the task
    itself."""
    task = run.recipe.each_task[key.task]
    return key.task or str(task.options.get("job", evaluation.task))


def _evaluated_model(run: RunRecord, stage: str) -> Path | str:
    """The model that a stage's evaluation is of: the recipe's own where no stage has trained
    yet."""
    name = run.recipe.model.name
    return name if stage == "base" and name is not None else run.model(stage)


def _choose_model(found: Mapping[str, Evaluation]) -> Route:
    models = list(found)
    best = max(models, key=lambda model: found[model].mean_reward)
    candidates = {
        model: _compare_candidate(model, found[model], None if model == best else found[best])
        for model in models
    }
    as_good = [
        one for one in models if (behind := candidates[one].behind) is None or behind[2] >= 0
    ]
    chosen = as_good[0]
    if len(models) == 1:
        reason = "the only model that was evaluated on it"
    elif len(as_good) == 1:
        reason = "better than all others on the same examples"
    else:
        rivals = ", ".join(model for model in as_good if model != chosen)
        reason = (
            f"not decided: the difference to {rivals} is inside the noise; the model that was "
            "given first is taken"
        )
    ordered = sorted(candidates.values(), key=lambda one: -one.mean)
    return Route(
        chosen, decided=len(as_good) == 1 < len(models), reason=reason, candidates=tuple(ordered)
    )


def _compare_candidate(
    model: str, evaluation: Evaluation, best: Evaluation | None
) -> RouteCandidate:
    mean = reward_interval(evaluation)
    behind = None
    if best is not None:
        behind = compare(best, evaluation).difference
    less = None if behind is None else (behind.mean, behind.low, behind.high)
    return RouteCandidate(model, mean.mean, mean.low, mean.high, mean.n, less)


def write_routes(path: Path, table: RoutingTable) -> None:
    """Write a table, over one of ours if there is one.

    Raises:
        RunError: the file is there, and is no routing table of ours.
        StorageError: it cannot be written.
    """
    if path.exists() and not (path.is_file() and file_begins_with(path, HEAD)):
        raise RunError(
            f"{path} is there already, and `plumbline route` did not write it", "give another --out"
        )
    write_text(
        path,
        HEAD
        + yaml.safe_dump(routes_to_json(table), sort_keys=False, allow_unicode=True, width=110),
    )


def routes_to_json(table: RoutingTable) -> dict[str, Any]:
    """Plain values, as they are written."""
    values = asdict(table)
    for one in values["routes"].values():
        found = [
            {**each, "behind": each["behind"] and list(each["behind"])}
            for each in one["candidates"]
        ]
        one["candidates"] = found
    return values
