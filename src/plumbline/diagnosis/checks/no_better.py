"""A trained model that earns no more than a control that knows nothing."""

from collections.abc import Iterator

from plumbline.diagnosis.check import Check
from plumbline.diagnosis.finding import Finding
from plumbline.diagnosis.history import History
from plumbline.evaluation.statistics import mean_interval
from plumbline.runs.evaluations import REFERENCE

ENOUGH = 20
HALF = 0.5
"""Of what the control earns, under which it is warned of: a control may know much of a form and a weak model little."""


def look(history: History) -> Iterator[Finding]:
    """Greedy answers of the last stage, paired with the best control on the same examples."""
    if history.name == "base" or (history.kind == "sft" and any(key.startswith("rl.") for key in history.settings)):
        return  # it is not the last
    for final in history.finals:
        if (final.stage, final.mode) != (history.name, "greedy"):
            continue
        mine = {row.id: row.reward for row in final.evaluation.rows}
        controls = {
            one.mode: {row.id: row.reward for row in one.evaluation.rows}
            for one in history.finals
            if (one.stage, one.task, one.split) == (REFERENCE, final.task, final.split) and one.mode != "oracle"
        }
        above = {
            name: [mine[key] - theirs[key] for key in mine if key in theirs]
            for name, theirs in controls.items()
            if len(mine.keys() & theirs.keys()) >= ENOUGH
        }
        if not above:
            continue
        best = min(above, key=lambda name: sum(above[name]) / len(above[name]))
        gap = mean_interval(above[best])
        if gap.low > 0:
            continue
        where = f"{final.task} {final.split}".strip()
        less = gap.high < 0 and final.evaluation.mean_reward < HALF * (final.evaluation.mean_reward - gap.mean)
        yield Finding(
            check="no-better",
            level="warning" if less else "note",
            what=f"on {where} the model earns {'less than' if gap.high < 0 else 'no more than'} the control {best}, "
            f"which does not know the answer: {gap:+.3f}, n = {gap.n}",
            evidence={"difference": gap.mean, "low": gap.low, "high": gap.high, "control": best},
            causes=("the model has not learnt the task", "the weights that were evaluated are not the trained ones"),
            fix="read its answers; if they are no answers at all, begin with SFT or a larger model",
        )


CHECK = Check(
    name="no-better",
    asks="whether the model earns more than controls that know nothing",
    needs=("finals",),
    look=look,
    kinds=("rl", "sft"),
)
