"""What the stage changed, against what its evaluation can tell from noise."""

from collections.abc import Iterator

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.rules.unchanged import pairs
from plumbline.errors import IncomparableError
from plumbline.evaluation.comparison import compare
from plumbline.evaluation.statistics import direction

FEW = 50
"""Examples: under them a difference of a tenth is rarely more than noise (a team read 25 as a regression)."""


def look(history: History) -> Iterator[Finding]:
    """Each greedy evaluation of this stage against the one before it on the same examples."""
    for after, before in pairs(history):
        where = f"{after.task} {after.split}".strip()
        try:
            compared = compare(before.evaluation, after.evaluation)
        except IncomparableError as error:
            yield Finding(
                check="gain",
                level="warning",
                what=f"{before.stage} and {history.name} cannot be compared on {where}: {error}",
                causes=("the metric or the examples changed between the stages",),
                fix="evaluate both again under one version",
            )
            continue
        change, way = compared.difference, direction(compared.difference, compared.p_value)
        numbers = {"difference": change.mean, "low": change.low, "high": change.high, "n": change.n}
        evidence = {**numbers, "p": compared.p_value}
        if way == "fall":
            yield Finding(
                check="gain",
                level="warning",
                what=f"after {history.name} the greedy reward on {where} is lower: {change.mean:+.3f} "
                f"[{change.low:+.3f}, {change.high:+.3f}], n = {change.n}",
                evidence=evidence,
                causes=("too high a rate for the signal there is", "what is paid in training is not what is evaluated"),
                fix="compare the parts; lower the learning rate or take more answers a step",
            )
        elif way == "same":
            seen = (change.high - change.low) / 2
            yield Finding(
                check="gain",
                level="note",
                what=f"on {where} {history.name} changed nothing that can be told from noise: {change.mean:+.3f} "
                f"[{change.low:+.3f}, {change.high:+.3f}], n = {change.n}, p = {compared.p_value:.2g}"
                + (f"; differences under {seen:.2f} are invisible to so few examples" if change.n < FEW else ""),
                evidence=evidence,
                fix=f"to see a difference of half its size take {4 * change.n} examples" if change.n < FEW else "",
            )


CHECK = Check(
    name="gain",
    asks="what the stage changed on held-out examples, and whether they are enough to tell",
    needs=("finals",),
    look=look,
    kinds=("rl", "sft"),
    live=False,
)
