"""Runs and evaluations that are named one by one, each against the first: `plumbline compare`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from plumbline.errors import DataError
from plumbline.evaluation.history import Lineage, Member, result_of
from plumbline.evaluation.pairing import Pairing, adjusted, name_of, paired_with, plain_pairing
from plumbline.records import Evaluation
from plumbline.runs.evaluations import EvaluationKey, read_evaluation
from plumbline.runs.lineage import changes
from plumbline.runs.record import RunRecord, read_recipe, read_record


def compare_paths(first: Path, *others: Path) -> Lineage:
    """Runs or evaluations' files, each against the first, in everything that both were asked.

    Raises:
        DataError: one is neither a run nor an evaluation; of two, they have no split and mode in common.
        IncomparableError: of none a comparison can be made: another rubric, or other examples.
    """
    paths = (first, *others)
    names = [path.name for path in paths]
    if len(set(names)) < len(names) or any(path.is_file() for path in paths):
        names = [str(path) for path in paths]
    runs = [None if path.is_file() else _record(path, name) for path, name in zip(paths, names, strict=True)]
    found = [find_evaluations(path, run) for path, run in zip(paths, runs, strict=True)]
    members, pairings = [], []
    for at, (path, name, run) in enumerate(zip(paths, names, runs, strict=True)):
        differing = changes(runs[0], run) if at and runs[0] is not None and run is not None else ()
        results = tuple(result_of(evaluation, key) for key, evaluation in found[at].values())
        against = names[0] if at else ""
        members.append(Member(name=name, listed=run, against=against, changes=differing, results=results))
        if at:
            pairings += _shared((first, names[0], found[0]), (path, name, found[at]))
    if pairings and all(one.paired is None for one in pairings):
        raise next(one.error for one in pairings if one.error is not None)
    return Lineage(members=tuple(members), pairings=adjusted(pairings))


def _record(path: Path, name: str) -> RunRecord:
    read_recipe(path)  # raises where it is none
    return read_record(path, name)


Evaluations = Mapping[str, tuple[EvaluationKey, Evaluation]]


def find_evaluations(path: Path, run: RunRecord | None) -> Evaluations:
    """What may be compared: a file's evaluation, or the last stage's of a run, by task, split and mode.

    Raises:
        DataError: neither an evaluation nor a run with evaluations.
    """
    if run is None:
        one = read_evaluation(path)
        votes = one.sampling.get("votes")
        mode = f"vote{votes}" if votes else "sampled" if one.sampling.get("temperature") else "greedy"
        return {"": (EvaluationKey(one.source, one.split, mode), one)}
    run.final_keys()  # raises where a name is none
    if not run.finals:
        raise DataError(f"{path} has no evaluation yet", "let the run finish a stage")
    return {name_of(key): (key, read_evaluation(run.evaluation_file(key))) for key in run.finals}


def _shared(first: tuple[Path, str, Evaluations], second: tuple[Path, str, Evaluations]) -> list[Pairing]:
    (path, name, before), (other, label, after) = first, second
    if "" in before or "" in after:
        before, after = _single(before, after), _single(after, before)
    shared = [asked for asked in before if asked in after]
    if not shared:
        error = DataError(f"{path} and {other} have no split and mode in common", "evaluate both on the same split")
        return [Pairing(run=label, against=name, asked="", error=error)]
    pairs = []
    for asked in shared:
        (one, earlier), (its, later) = before[asked], after[asked]
        pairing = Pairing(run=label, against=name, asked=asked or "evaluation")
        further = asked and its.stage != one.stage
        pairing = pairing.remarked(f"after {its.stage}, and {name} after {one.stage}" if further else "")
        pairs.append(paired_with(pairing, replace(earlier, source=name), replace(later, source=label)))
    return pairs


def _single(found: Evaluations, other: Evaluations) -> Evaluations:
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


def plain_comparisons(found: Lineage) -> dict[str, Any]:
    """What `compare_paths` found as JSON values: for two the comparisons by what was asked, and the recipes'
    differences; for more the same by run.
    """
    each = {
        member.name: {one.asked: plain_pairing(one) for one in found.pairings if one.run == member.name}
        for member in found.members[1:]
    }
    recipes = {member.name: [list(change) for change in member.changes] for member in found.members[1:]}
    if len(each) == 1:
        (only,) = each
        return {"comparisons": each[only], "recipe": recipes[only]}
    return {"first": found.members[0].name, "comparisons": each, "recipe": recipes}
