"""The four jobs before and after, as the runs of commerce-smollm2 left them: the tables of
docs/research/commerce.md.

plumbline run commerce-smollm2 --set seed=1 --out runs/commerce-smollm2-1      # and so on
python experiments/commerce_mixture.py runs/commerce-smollm2 runs/commerce-smollm2-1
runs/commerce-smollm2-control \\
    --seeds runs/commerce-smollm2 runs/commerce-smollm2-1
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import IncomparableError
from plumbline.evaluation.comparison import compare
from plumbline.evaluation.evaluate import ORACLE
from plumbline.evaluation.statistics import Interval, mean_interval, pooled_interval
from plumbline.records import Evaluation
from plumbline.runs.evaluations import REFERENCE, EvaluationKey
from plumbline.runs.record import RunRecord

SPLIT = "test"
MODES = ("greedy", "sampled")


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
    run = RunRecord.read(folder)
    found = run.evaluations()
    modes = sorted({key.mode for key in found if key.stage != REFERENCE and key.step is None})
    table = []
    for job in run.recipe.each_task:
        references = [
            (k.mode, e)
            for k, e in found.items()
            if (k.stage, k.task, k.split) == (REFERENCE, job, SPLIT)
        ]
        beside = {name: one.mean_reward for name, one in references}
        ceiling = beside.pop(ORACLE)
        for mode in modes:
            stages = {
                stage: found.get(EvaluationKey(stage, SPLIT, mode, task=job))
                for stage in ("base", "sft", "rl")
            }
            start = stages["sft"] or stages["base"]
            last = stages["rl"]
            means = [
                shown(mean_interval(e.rewards())) if e is not None else "-" for e in stages.values()
            ]
            best = "-"
            if last is not None and last.rows and last.rows[0].drawn:
                best = shown(
                    mean_interval(np.array([max(row.drawn) for row in last.rows if row.drawn]))
                )
            floor = f"{max(beside.values()):.3f}"
            ends = [change(start, last), best, f"{ceiling:.3f}"]
            table.append([run.folder.name, job, mode, floor, *means, *ends])
    return table


def changes(run: RunRecord, mode: str) -> dict[str, NDArray[np.float64]]:
    """What RL changed at each example [n] of each job's test split, against the model that it began
    with."""
    found = run.evaluations()
    start = "sft" if run.recipe.sft is not None else "base"
    stages = {
        job: [found.get(EvaluationKey(stage, SPLIT, mode, task=job)) for stage in (start, "rl")]
        for job in run.recipe.each_task
    }
    pairs = {
        job: (before, after)
        for job, (before, after) in stages.items()
        if before is not None and after is not None
    }
    return {job: after.rewards() - before.rewards() for job, (before, after) in pairs.items()}


def over_all(run: RunRecord) -> list[str]:
    """A row: what RL changed over all jobs' examples, and what its steps say."""
    steps = run.rows("rl")

    def mean(name: str, part: slice = slice(None)) -> str:
        values = [row[name] for row in steps[part] if row.get(name) is not None]
        return f"{np.mean(values):.4f}" if values else "-"

    moved = [
        shown(mean_interval(np.concatenate(list(changes(run, mode).values()))), sign=True)
        for mode in MODES
    ]
    ends = [mean("train/reward", slice(0, 10)), mean("train/reward", slice(-10, None))]
    return [
        run.folder.name,
        *moved,
        *ends,
        mean("train/grad_snr"),
        mean("train/sampler_scorer_gap"),
    ]


def over_seeds(runs: list[RunRecord]) -> list[list[str]]:
    """A row a job, and one for all of them: the mean over runs that differ in their seed, over
    examples and seeds."""
    each = {mode: [changes(run, mode) for run in runs] for mode in MODES}
    rows = []
    for job in [*runs[0].recipe.each_task, "all"]:
        row = [job]
        for mode in MODES:
            values = np.stack(
                [
                    np.concatenate(list(one.values())) if job == "all" else one[job]
                    for one in each[mode]
                ]
            )
            row += [shown(pooled_interval([values.mean(0)], [values.mean(1).tolist()]), sign=True)]
            row += [", ".join(f"{value:+.3f}" for value in values.mean(1))]
        rows.append(row)
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument(
        "--seeds", nargs="+", type=Path, default=[], help="runs to take the mean of"
    )
    options = parser.parse_args()
    print(
        "| run | job | asked | floor | base | after SFT | after RL | RL's change | best of those "
        "drawn | ceiling |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for folder in options.runs:
        for row in rows(folder):
            print(f"| {' | '.join(row)} |")
    print(
        "\n| run | all jobs, greedy | sampled | reward, first ten steps | last ten | signal, noise "
        "= 1 | gap |"
    )
    print("|---|---|---|---|---|---|---|")
    for folder in options.runs:
        print(f"| {' | '.join(over_all(RunRecord.read(folder)))} |")
    if options.seeds:
        print(
            f"\n| job | greedy, mean of {len(options.seeds)} seeds | each | sampled | each "
            "|\n|---|---|---|---|---|"
        )
        for row in over_seeds([RunRecord.read(folder) for folder in options.seeds]):
            print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
