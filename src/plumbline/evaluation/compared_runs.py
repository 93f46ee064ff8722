"""The runs of some folders beside one another: what each came to, and whether it differs from the
one before it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from plumbline.errors import DataError, IncomparableError, PlumblineError
from plumbline.evaluation.comparison import (
    Pairing,
    adjust_pairings,
    pair_evaluations,
    pairing_to_dict,
    read_references,
)
from plumbline.evaluation.statistics import Interval
from plumbline.evaluation.summary import floor_and_ceiling, reward_interval
from plumbline.records import Evaluation
from plumbline.runs.evaluations import EvaluationKey, read_evaluation
from plumbline.runs.lineage import (
    KeyChange,
    Origin,
    find_origins,
    find_predecessors,
    group_versions,
    list_changes,
    list_runs,
    order_runs,
)
from plumbline.runs.record import EvaluationSummary, RunRecord, read_recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """One evaluation of a run's last stage."""

    asked: str
    """Task, split and mode, as a pairing has them."""
    task: str
    """What the recipe calls it in a run of several; else what it is called by itself."""
    split: str
    mode: str
    stage: str
    rubric: str
    reward: Interval
    floor: float | None = None
    """The best baseline's mean on the same examples."""
    ceiling: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """A run (or a single evaluation) of the table."""

    name: str
    listed: RunRecord | None = None
    """None for a single evaluation."""
    origin: Origin | None = None
    depth: int = 0
    against: str = ""
    """The run that it is compared with; empty for none."""
    changes: Sequence[KeyChange] = ()
    """What its recipe has otherwise than that run's."""
    results: tuple[StageResult, ...] = ()
    problems: tuple[str, ...] = ()
    """Results that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """Runs in order, their comparisons, and what else lies in their folders."""

    members: tuple[ComparedRun, ...]
    pairings: tuple[Pairing, ...]
    lineage: bool = False
    """Whether they are the runs of folders; else they are runs and evaluations that were named one
    by one."""
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def tests(self) -> int:
        """How many p-values were adjusted together."""
        return sum(one.paired is not None for one in self.pairings)


@dataclass(frozen=True, slots=True)
class EvaluationFilter:
    """Which evaluations are wanted; None is all of them."""

    split: str | None = None
    mode: str | None = "greedy"

    def __contains__(self, key: EvaluationKey) -> bool:
        return self.split in {None, key.split} and self.mode in {None, key.mode}


GREEDY = EvaluationFilter()


# -- a folder of runs ------------------------------------------------------------------------------


def read_lineage(folders: Sequence[Path], asked: EvaluationFilter = GREEDY) -> Lineage:
    """The runs of some folders in the order of their lineage, each against its predecessor.

    Args:
        folders: runs, or folders that hold runs.
        asked: which of their evaluations.

    Raises:
        RunError: a folder is not there, or none holds a run.
    """
    runs, others = list_runs(folders)
    begun = find_origins(runs)
    before = find_predecessors(runs, begun)
    by_name = {run.name: run for run in runs}
    members: list[ComparedRun] = []
    pairings: list[Pairing] = []
    for run, depth in order_runs(runs, begun):
        results, problems = _results(run, asked)
        earlier = by_name.get(before.get(run.name, ""))
        members.append(
            ComparedRun(
                name=run.name,
                listed=run,
                origin=begun[run.name] if run.values else None,
                depth=depth,
                against=earlier.name if earlier else "",
                changes=list_changes(earlier, run)
                if earlier and earlier.name != begun[run.name].run
                else (),
                results=results,
                problems=problems,
            )
        )
        pairings += _pairings(run, earlier, begun[run.name], asked)
    names = [[run.name for run in version] for version in group_versions(runs, begun)]
    beside = tuple(
        _beside_seeds(one, _seed_spread(one, names, members)) for one in adjust_pairings(pairings)
    )
    return Lineage(members=tuple(members), pairings=beside, lineage=True, others=others)


def _seed_spread(
    one: Pairing, same: Sequence[Sequence[str]], members: Sequence[ComparedRun]
) -> float:
    """How far apart the seeds of one recipe are, the run's or its predecessor's, in what the
    pairing asks."""
    spread = 0.0
    for version in same:
        if one.run in version or one.against in version:
            results = [
                result for member in members if member.name in version for result in member.results
            ]
            asked = [result for result in results if result.asked == one.asked]
            means = [result.reward.mean for result in asked if result.rubric == asked[0].rubric]
            spread = max([spread, *([max(means) - min(means)] if means else [])])
    return spread


def _beside_seeds(one: Pairing, spread: float) -> Pairing:
    """The pairing with a remark where the two models differ by no more than seeds alone made."""
    if one.paired is None or one.direction == "same" or abs(one.paired.difference.mean) > spread:
        return one
    remarks = [one.remark, f"but seeds of one recipe are up to {spread:.3f} apart"]
    return replace(one, remark="; ".join(filter(None, remarks)))


def _results(
    run: RunRecord, asked: EvaluationFilter
) -> tuple[tuple[StageResult, ...], tuple[str, ...]]:
    found, problems = [], []
    for key in run.finals:
        if key in asked:
            try:
                found.append(
                    _result_of_outcome(run, key)
                    if str(key) in run.summaries
                    else _result(run.read_evaluation(key), key, run)
                )
            except PlumblineError as error:
                problems.append(error.cause)
    return tuple(found), tuple(problems)


def _result_of_outcome(run: RunRecord, key: EvaluationKey) -> StageResult:
    """A result as the run's own outcome says it, which is quick."""
    try:
        said = EvaluationSummary.model_validate(run.summaries[str(key)])
    except ValidationError as error:
        path = run.folder / "result.json"
        raise DataError(
            f"{path} does not say what {key} came to", "evaluate the run's model again"
        ) from error
    reward = Interval(said.reward.mean, said.reward.low, said.reward.high, said.reward.n)
    asked = _key_to_dict(key, said.task)
    return StageResult(
        **asked, rubric=said.rubric, reward=reward, floor=said.floor, ceiling=said.ceiling
    )


def _result(evaluation: Evaluation, key: EvaluationKey, run: RunRecord | None) -> StageResult:
    """An evaluation's result, with the floor and the ceiling where it is a run's that has them."""
    beside = read_references(run, key.task, evaluation) if run else {}
    around = floor_and_ceiling(evaluation, beside) if beside else {}
    return StageResult(
        **_key_to_dict(key, evaluation.task),
        rubric=evaluation.rubric,
        reward=reward_interval(evaluation),
        floor=around.get("floor"),
        ceiling=around.get("ceiling"),
    )


def _key_to_dict(key: EvaluationKey, task: str) -> dict[str, Any]:
    named = {"split": key.split, "mode": key.mode, "stage": key.stage}
    return {"asked": key.asked, "task": key.task or task, **named}


def _pairings(
    run: RunRecord,
    earlier: RunRecord | None,
    origin: Origin,
    asked: EvaluationFilter,
) -> list[Pairing]:
    """A run against its predecessor; where that is the model that it began from, or has no result,
    against its start.

    A run evaluates what it begins from under its own conditions, so that is comparable in any case.
    """
    mine = {key.asked: key for key in run.finals if key in asked}
    if run.starts and (earlier is None or earlier.name == origin.run or not earlier.finals):
        other, name, keys = run, f"its start, {origin}", run.starts
    elif earlier is not None:
        other, name, keys = earlier, earlier.name, earlier.finals
    else:
        return []
    theirs = {key.asked: key for key in keys if key in asked}
    found = []
    for what, key in mine.items():
        try:
            if what not in theirs:
                raise IncomparableError(
                    f"{name} {'was not evaluated on it' if keys else 'has no result'}"
                )
            before = other.read_evaluation(theirs[what])
            after = run.read_evaluation(key)
        except PlumblineError as error:
            found.append(Pairing(run=run.name, against=name, asked=what, error=error))
        else:
            remark = _stage_remark(key, theirs[what], name) if other is not run else ""
            found.append(pair_evaluations(run.name, name, what, before, after, remark))
    return found


def _stage_remark(key: EvaluationKey, other: EvaluationKey, name: str) -> str:
    """The remark on evaluations after different stages; `name` is the run of the other one."""
    return "" if key.stage == other.stage else f"after {key.stage}, and {name} after {other.stage}"


# -- plain values ----------------------------------------------------------------------------------


def history_to_dict(found: Lineage) -> dict[str, Any]:
    """A history as JSON values."""
    return {
        "tests": found.tests,
        "runs": [_member_to_dict(member, found.pairings) for member in found.members],
        "others": dict(found.others),
    }


def _member_to_dict(member: ComparedRun, pairings: Sequence[Pairing]) -> dict[str, Any]:
    run, origin = member.listed, member.origin
    assert run is not None
    return {
        "name": run.name,
        "folder": str(run.folder),
        "status": run.status,
        "why": run.why,
        "recipe": {
            "name": run.values.get("name"),
            "identity": run.identity or None,
            "seed": run.values.get("seed"),
        },
        "began_from": None if origin is None else asdict(origin),
        "started": None if run.started is None else run.started.isoformat(timespec="seconds"),
        "training_seconds": run.seconds,
        "steps": {
            stage: {"done": run.steps.get(stage, 0), "of": run.planned.get(stage)}
            for stage in dict.fromkeys([*run.planned, *run.steps])
        },
        "control": run.control,
        "against": member.against or None,
        "changes": [{"key": key, "before": old, "after": new} for key, old, new in member.changes],
        "results": [asdict(result) for result in member.results],
        "comparisons": [
            {"asked": one.asked} | pairing_to_dict(one)
            for one in pairings
            if one.run == member.name
        ],
        "problems": list(member.problems),
    }


# -- named -----------------------------------------------------------------------------------------
#
# Runs and evaluations that are named one by one, each against the first: `plumbline compare`.


def compare_paths(first: Path, *others: Path) -> Lineage:
    """Runs or evaluations' files, each against the first, in everything that both were asked.

    Raises:
        DataError: one is neither a run nor an evaluation; of two, they have no split and mode in
            common.
        IncomparableError: of none a comparison can be made: another rubric, or other examples.
    """
    paths = (first, *others)
    names = [path.name for path in paths]
    if len(set(names)) < len(names) or any(path.is_file() for path in paths):
        names = [str(path) for path in paths]
    sources = list(map(_read_source, paths, names))
    start = sources[0]
    members = tuple(
        ComparedRun(
            name=one.name,
            listed=one.run,
            against="" if one is start else start.name,
            changes=list_changes(start.run, one.run) if start.run and one.run else (),
            results=tuple(_result(found, key, one.run) for key, found in one.evaluations.values()),
        )
        for one in sources
    )
    pairings = [pair for one in sources[1:] for pair in _pair_shared(start, one)]
    if pairings and all(one.paired is None for one in pairings):
        raise next(one.error for one in pairings if one.error is not None)
    return Lineage(members=members, pairings=adjust_pairings(pairings))


Evaluations = Mapping[str, tuple[EvaluationKey, Evaluation]]


class _Source(NamedTuple):
    """What is compared: a run, or an evaluation's file (run None)."""

    path: Path
    name: str
    run: RunRecord | None
    evaluations: Evaluations
    """The file's, or those of the run's last stage, by task, split and mode."""


def _read_source(path: Path, name: str) -> _Source:
    """Raises DataError where it is neither an evaluation nor a run with evaluations."""
    if path.is_file():
        one = read_evaluation(path)
        mode = "sampled" if one.sampling.get("temperature") else "greedy"
        return _Source(path, name, None, {"": (EvaluationKey(one.source, one.split, mode), one)})
    read_recipe(path)  # raises where it is none
    run = RunRecord(path, name)
    if not run.evaluation_paths or not run.finals:
        raise DataError(
            f"{path} has no evaluation of a finished stage yet", "let the run finish one"
        )
    found = {key.asked: (key, run.read_evaluation(key)) for key in run.finals}
    return _Source(path, name, run, found)


def _pair_shared(first: _Source, second: _Source) -> list[Pairing]:
    before, after = first.evaluations, second.evaluations
    name, label = first.name, second.name
    if "" in before or "" in after:
        before, after = _pair_with_single(before, after), _pair_with_single(after, before)
    shared = [asked for asked in before if asked in after]
    if not shared:
        error = DataError(
            f"{first.path} and {second.path} have no split and mode in common",
            "evaluate both on the same split",
        )
        return [Pairing(run=label, against=name, asked="", error=error)]
    pairs = []
    for asked in shared:
        (one, earlier), (its, later) = before[asked], after[asked]
        remark = _stage_remark(its, one, name) if asked else ""
        pairs.append(pair_evaluations(label, name, asked or "evaluation", earlier, later, remark))
    return pairs


def _pair_with_single(found: Evaluations, other: Evaluations) -> Evaluations:
    """A run beside a single evaluation: the run's evaluation of that split and mode."""
    if "" in found:
        return found
    wanted, one = other[""]
    meant = [
        (key, each)
        for key, each in found.values()
        if (each.task, each.split, key.mode) == (one.task, one.split, wanted.mode)
    ]
    if len(meant) > 1:  # tasks of one kind with other options: that which has the same examples
        ids = {row.id for row in one.rows}
        meant = [pair for pair in meant if ids == {row.id for row in pair[1].rows}]
    return {"": meant[0]} if meant else {}


def comparisons_to_dict(found: Lineage) -> dict[str, Any]:
    """What `compare_paths` found as JSON values: for two the comparisons by what was asked, and the
    recipes' differences; for more the same by run.
    """
    each = {
        member.name: {
            one.asked: pairing_to_dict(one) for one in found.pairings if one.run == member.name
        }
        for member in found.members[1:]
    }
    recipes = {
        member.name: [list(change) for change in member.changes] for member in found.members[1:]
    }
    if len(each) == 1:
        (only,) = each
        return {"comparisons": each[only], "recipe": recipes[only]}
    return {"first": found.members[0].name, "comparisons": each, "recipe": recipes}
