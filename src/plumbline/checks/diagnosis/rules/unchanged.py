"""A stage after which every greedy answer is what it was: the weights that are evaluated are not the trained ones."""

from collections.abc import Iterator
from dataclasses import replace

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import Final, History
from plumbline.evaluation.comparison import among

SAME = 0.99
ENOUGH = 20
SOLVED = 0.9
"""Mean reward from which on equal answers are right ones."""
LONG = 20
"""Characters of the median answer: a word may well stay what it was."""


def look(history: History) -> Iterator[Finding]:
    """Each greedy evaluation of the stage against the stage before it, by text."""
    for after, before in pairs(history):
        texts = {row.id: row.completion for row in before.evaluation.rows}
        rows = [row for row in after.evaluation.rows if row.id in texts]
        if len(rows) < ENOUGH or after.evaluation.mean_reward > SOLVED:
            continue
        same = sum(row.completion == texts[row.id] for row in rows)
        lengths = sorted(len(row.completion) for row in rows)
        if same < SAME * len(rows) or lengths[len(lengths) // 2] < LONG:
            continue
        where = f"{after.task} {after.split}".strip()
        yield Finding(
            check="unchanged",
            level="warning",
            what=f"after {after.stage} {same} of {len(rows)} greedy answers on {where} are letter by letter those of "
            f"{before.stage}",
            evidence={"same": same, "n": len(rows)},
            causes=(
                "the weights before training were evaluated: an adapter that was not loaded, a wrong path",
                "a rate too low for any weight to move",
            ),
            fix="compare the weights of both models; look at the learning rate",
        )


def pairs(history: History) -> Iterator[tuple[Final, Final]]:
    """Greedy evaluations of this stage, each with that of the stage before it on the same split.

    The untrained model may have been asked fewer examples: the other is of these then.
    """
    stages = list(dict.fromkeys(one.stage for one in history.finals if one.stage != "reference"))
    if history.name not in stages or stages.index(history.name) == 0:
        return
    earlier = stages[stages.index(history.name) - 1]
    for after in history.finals:
        if after.stage == history.name and after.mode == "greedy":
            for before in history.finals:
                if (before.stage, before.task, before.split, before.mode) == (
                    earlier,
                    after.task,
                    after.split,
                    "greedy",
                ):
                    same = earlier == "base"
                    yield (
                        replace(after, evaluation=among(after.evaluation, before.evaluation)) if same else after,
                        before,
                    )


CHECK = Check(
    name="unchanged",
    asks="whether the trained model answers exactly as the one before it",
    needs=("finals",),
    look=look,
    kinds=("rl", "sft"),
    live=False,
)
