"""The four jobs before and after, as the runs of commerce-smollm2 left them: the tables of docs/commerce-smollm2.md.

plumbline run commerce-smollm2 --set seed=1 --out runs/commerce-smollm2-1      # and so on
python experiments/commerce_mixture.py runs/commerce-smollm2 runs/commerce-smollm2-1 runs/commerce-smollm2-control
"""

import argparse
from pathlib import Path

import numpy as np

from plumbline.errors import IncomparableError
from plumbline.evaluation.comparison import compare
from plumbline.evaluation.evaluate import ORACLE
from plumbline.evaluation.statistics import Interval, mean_interval
from plumbline.records import Evaluation
from plumbline.runs.evaluations import REFERENCE, EvaluationKey
from plumbline.runs.run import Run

SPLIT = "test"


def shown(value: Interval, *, sign: bool = False) -> str:
    """A mean with its interval."""
    form = "+.3f" if sign else ".3f"
    return f"{value.mean:{form}} [{value.low:{form}}, {value.high:{form}}]"


def change(before: Evaluation | None, after: Evaluation | None) -> str:
    """The paired difference."""
    if before is None or after is None:
        return "-"
    try:
        return shown(compare(before, after).difference, sign=True)
    except IncomparableError:
        return "not comparable"


def rows(folder: Path) -> list[list[str]]:
    """A row a job and mode: what each stage earned, and what the last one changed."""
    run = Run.read(folder)
    found = run.evaluations()
    modes = sorted({key.mode for key in found if key.stage != REFERENCE and key.step is None})
    table = []
    for job in run.recipe.each_task:
        references = [(k.mode, e) for k, e in found.items() if (k.stage, k.task, k.split) == (REFERENCE, job, SPLIT)]
        beside = {name: one.mean_reward for name, one in references}
        ceiling = beside.pop(ORACLE)
        for mode in modes:
            stages = {stage: found.get(EvaluationKey(stage, SPLIT, mode, task=job)) for stage in ("base", "sft", "rl")}
            start = stages["sft"] or stages["base"]
            last = stages["rl"]
            means = [shown(mean_interval(e.rewards())) if e is not None else "-" for e in stages.values()]
            best = "-"
            if last is not None and last.rows and last.rows[0].drawn:
                best = shown(mean_interval(np.array([max(row.drawn) for row in last.rows if row.drawn])))
            floor = f"{max(beside.values()):.3f}"
            ends = [change(start, last), best, f"{ceiling:.3f}"]
            table.append([run.folder.name, job, mode, floor, *means, *ends])
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    print("| run | job | asked | floor | base | after SFT | after RL | RL's change | best of those drawn | ceiling |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for folder in parser.parse_args().runs:
        for row in rows(folder):
            print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
