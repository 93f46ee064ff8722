"""Two evaluations of the same examples, pair by pair."""

from dataclasses import replace

from plumbline.errors import IncomparableError
from plumbline.evaluation.statistics import Paired, direction, paired
from plumbline.evaluation.summary import part_means
from plumbline.records import Evaluation


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


def among(evaluation: Evaluation, other: Evaluation) -> Evaluation:
    """An evaluation's verdicts on the examples of another one, where it has all of them; else the whole evaluation.

    The untrained model may be asked fewer (`evaluation.untrained`), and is compared on these.
    """
    wanted, there = (_ids(each) for each in (other, evaluation))
    if not wanted < there:
        return evaluation
    rows, unjudged = evaluation.rows, evaluation.unjudged
    return replace(
        evaluation,
        rows=tuple(row for row in rows if row.id in wanted),
        unjudged=tuple(row for row in unjudged if row.id in wanted),
    )


def _ids(evaluation: Evaluation) -> set[str]:
    return {row.id for row in evaluation.rows} | {row.id for row in evaluation.unjudged}


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
    one, other = _ids(before), _ids(after)
    if one != other:
        raise IncomparableError(
            f"the two evaluations share {len(one & other)} examples of {len(one)} and {len(other)}",
            "evaluate both on the same split and limit of the same data",
        )


def fall(before: Evaluation, after: Evaluation) -> str | None:
    """What to say where `after` earned less on the same examples (see `direction`); None where it did not.

    Raises:
        IncomparableError: they differ in task, rubric, or examples.
    """
    compared = compare(before, after)
    change = compared.difference
    if direction(change, compared.p_value) != "fall":
        return None
    message = f"{change:+.3f} on the same {change.n} examples"
    first, second = part_means(before.rows), part_means(after.rows)
    changes = {name: second[name].mean - part.mean for name, part in first.items() if name in second}
    if changes and changes[worst := min(changes, key=changes.__getitem__)] < 0:
        message += f", most of all in {worst} ({changes[worst]:+.3f})"
    return message
