"""A trained model that earns no more than a control that knows nothing."""

from collections.abc import Iterator

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import Final, History
from plumbline.evaluation.statistics import Interval, mean_interval
from plumbline.runs.evaluations import REFERENCE

ENOUGH = 20
HALF = 0.5
"""Of what the control earns, under which it is warned of: a control may know much of a form and a weak model little."""


def look(history: History) -> Iterator[Finding]:
    """Greedy answers of the last stage, paired with the best control on the same examples.

    A task that it does better on some split was learnt, and what it does on others is a note.
    """
    if history.name == "base" or (history.kind == "sft" and any(key.startswith("rl.") for key in history.settings)):
        return  # it is not the last
    beside = [(one, *found) for one in history.finals if (found := _beside(one, history)) is not None]
    learnt = {final.task for final, _, gap in beside if gap.low > 0}
    for final, best, gap in beside:
        if gap.low > 0:
            continue
        where, mine = f"{final.task} {final.split}".strip(), final.evaluation.mean_reward
        less = gap.high < 0 and mine < HALF * (mine - gap.mean) and final.task not in learnt
        yield Finding(
            check="no-better",
            level="warning" if less else "note",
            what=f"on {where} the model earns {'less than' if gap.high < 0 else 'no more than'} the control {best}, "
            f"which does not know the answer: {gap:+.3f}, n = {gap.n}",
            evidence={"difference": gap.mean, "low": gap.low, "high": gap.high, "control": best},
            causes=("the model has not learnt the task", "the weights that were evaluated are not the trained ones"),
            fix="read its answers; if they are no answers at all, begin with SFT or a larger model",
        )


def _beside(final: Final, history: History) -> tuple[str, Interval] | None:
    """The control that is the best on an evaluation's examples, and how far the model is above it."""
    if (final.stage, final.mode) != (history.name, "greedy"):
        return None
    mine = {row.id: row.reward for row in final.evaluation.rows}
    above = {}
    for one in history.finals:
        if (one.stage, one.task, one.split) == (REFERENCE, final.task, final.split) and one.mode != "oracle":
            gaps = [mine[row.id] - row.reward for row in one.evaluation.rows if row.id in mine]
            if len(gaps) >= ENOUGH:
                above[one.mode] = gaps
    if not above:
        return None
    best = min(above, key=lambda name: sum(above[name]) / len(above[name]))
    return best, mean_interval(above[best])


CHECK = Check(
    name="no-better",
    asks="whether the model earns more than controls that know nothing",
    needs=("finals",),
    look=look,
    kinds=("rl", "sft"),
    live=False,
)
