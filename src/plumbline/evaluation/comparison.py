"""Two evaluations of the same examples, pair by pair: those of two files or two runs, or of one run over time."""

from pathlib import Path
from typing import Any

from plumbline.errors import DataError, IncomparableError
from plumbline.evaluation.statistics import Paired, paired
from plumbline.evaluation.summary import part_means
from plumbline.recipe import differences
from plumbline.records import Evaluation
from plumbline.runs.evaluations import read_evaluation
from plumbline.runs.run import STAGES, Run


def compare(before: Evaluation, after: Evaluation) -> Paired:
    """The paired difference of two evaluations of the same examples under the same rubric, where both were judged.

    Raises:
        IncomparableError: they differ in task, rubric, or examples, or no example was judged in both.
    """
    check_same(before, after)
    first, second = ({row.id: row.reward for row in evaluation.rows} for evaluation in (before, after))
    both = [key for key in first if key in second]
    if not both:
        raise IncomparableError("no example was judged in both evaluations", "look at why they could not be judged")
    return paired([first[key] for key in both], [second[key] for key in both])


def check_same(before: Evaluation, after: Evaluation, *, rubric: bool = True) -> None:
    """See that two evaluations are of the same examples and, unless that is what is asked about, under one rubric.

    Raises:
        IncomparableError: they differ in task, rubric, or examples.
    """
    for name in ("task", "rubric") if rubric else ("task",):
        one, other = getattr(before, name), getattr(after, name)
        if one != other:
            raise IncomparableError(
                f"{before.source} was scored under {name} {one} and {after.source} under {other}",
                "evaluate both again under one version; `plumbline score` judges stored completions anew",
            )
    one, other = ({row.id for row in each.rows} | {row.id for row in each.unjudged} for each in (before, after))
    if one != other:
        raise IncomparableError(
            f"the two evaluations share {len(one & other)} examples of {len(one)} and {len(other)}",
            "evaluate both on the same split and limit of the same data",
        )


def fall(before: Evaluation, after: Evaluation) -> str | None:
    """What to say where `after` earned less on the same examples, its whole interval below 0; None where it did not.

    Raises:
        IncomparableError: they differ in task, rubric, or examples.
    """
    change = compare(before, after).difference
    if not change.high < 0:
        return None
    message = f"{change:+.3f} on the same {change.n} examples"
    first, second = part_means(before.rows), part_means(after.rows)
    changes = {name: second[name].mean - part.mean for name, part in first.items() if name in second}
    if changes and changes[worst := min(changes, key=changes.__getitem__)] < 0:
        message += f", most of all in {worst} ({changes[worst]:+.3f})"
    return message


def find_evaluations(path: Path) -> dict[str, Evaluation]:
    """What `plumbline compare` may compare: a file's evaluation, or the last stage's of a run, by task, split and mode.

    Raises:
        DataError: neither a file nor a run with evaluations.
    """
    if path.is_file():
        return {"": read_evaluation(path)}
    finals = {key: evaluation for key, evaluation in Run.read(path).evaluations().items() if key.step is None}
    for stage in reversed(STAGES):
        found = {f"{key.task} {key.split} {key.mode}".strip(): finals[key] for key in finals if key.stage == stage}
        if found:
            return found
    raise DataError(f"{path} has no evaluation yet", "let the run finish a stage")


def compare_paths(first: Path, second: Path) -> tuple[dict[str, Paired], list[tuple[str, Any, Any]]]:
    """Every comparison that two files or runs allow, and what differs between their recipes where both are runs.

    Raises:
        DataError: one is neither a run nor an evaluation, or they have no split and mode in common.
        IncomparableError: another rubric, or other examples.
    """
    before, after = find_evaluations(first), find_evaluations(second)
    if "" in before or "" in after:
        before, after = _single(before, after), _single(after, before)
    shared = [name for name in before if name in after]
    if not shared:
        raise DataError(f"{first} and {second} have no split and mode in common", "evaluate both on the same split")
    changes: list[tuple[str, Any, Any]] = []
    if first.is_dir() and second.is_dir():
        changes = list(differences(Run.read(first).recipe, Run.read(second).recipe))
    return {name or "evaluation": compare(before[name], after[name]) for name in shared}, changes


def _single(found: dict[str, Evaluation], other: dict[str, Evaluation]) -> dict[str, Evaluation]:
    """A run beside a single evaluation: the run's evaluation of that split and mode."""
    if "" in found:
        return found
    one = other[""]
    votes = one.sampling.get("votes")
    mode = f"vote{votes}" if votes else "sampled" if one.sampling.get("temperature") else "greedy"
    name = f"{one.split} {mode}"
    meant = [
        each for key, each in found.items() if key.endswith(name) and (each.task, each.split) == (one.task, one.split)
    ]
    if len(meant) > 1:  # tasks of one kind with other options: that which has the same examples
        ids = {row.id for row in one.rows}
        meant = [each for each in meant if ids == {row.id for row in each.rows}]
    return {"": meant[0]} if meant else {}
