"""Tables and the figure of four_families.py, from what its runs recorded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.findings.show import standing
from plumbline.evaluation.evaluate import ORACLE
from plumbline.evaluation.statistics import Clusters, Interval, pooled_interval, t_interval
from plumbline.records import Evaluation, Judged
from plumbline.reports.charts import WIDE, Points, line_chart
from plumbline.reports.table_formats import Column, Row, Table
from plumbline.runs.evaluations import REFERENCE, EvaluationKey
from plumbline.runs.record import RunRecord
from plumbline.storage import read_object, write_text

BLOCK = 100
"""Steps of a long run that make a row."""
RIGHT: Mapping[str, tuple[str, Callable[[Judged], float]]] = {
    "json": ("valid JSON", lambda row: float(row.how == "strict")),
    "exact": ("exact form", lambda row: float(row.parts.get("exact") or 0.0)),
}
"""What a task counts beside its reward, and of which row it is true."""
INTRODUCTION = """Written by `python -m experiments.four_families tables` from the runs' records. What is asked, by
which sampling distribution and under which budget: [four-families.md](../../../docs/research/four-families.md).
Intervals are of 95 %: over examples, and with several seeds over these as well. An arm that is not here has not been
run."""
REWARD = ("reward", lambda row: row.reward)
MODE_TITLES = {"": "", "-by-start": ", sampled as its start"}
"""By which sampling distribution an arm was evaluated, where it has one of its own: the modes'
suffix, and how the tables say it."""
Runs = Mapping[int, RunRecord]
"""By seed."""


def write_tables(runs: Path, known: Mapping[str, Any], out: Path) -> list[Path]:
    """Write a Markdown file for each task, and one for the long run, with its figure beside it.

    Only of what there are runs: tables of another machine's runs stay. Returns what was written.
    """
    pages: dict[str, tuple[str, list[str]]] = {}
    for task, section in known["tasks"].items():
        found = {name: finished(runs, f"{task}-{name}") for name in known["arms"]}
        starts = {name: finished(runs, f"{task}-sft-{name}") for name in known["starts"]}
        there = {name: each for name, each in found.items() if each}
        begun = {name: known["arms"][name]["start"] for name in there}
        if any(starts.values()):
            splits, right = section["splits"], RIGHT[section["right"]]
            blocks = [rewards(there, starts, begun, split, right).to_markdown() for split in splits]
            pages[task] = (task, [*blocks, costs(there, starts, begun, splits[0]).to_markdown()])
    if long := finished(runs, "long"):
        write_text(out / "four-families-long.svg", standing(long_figure(long)))
        flow = {"flow": long}
        whole = rewards(flow, flow, {"flow": "flow"}, "test", RIGHT["json"])
        blocks = [
            whole.to_markdown(),
            "![Reward over the steps](four-families-long.svg)",
            long_table(long).to_markdown(),
        ]
        pages["long"] = ("a flow over a long run", blocks)
    files = {out / f"four-families-{name}.md": page for name, page in pages.items()}
    for file, (title, blocks) in files.items():
        write_text(
            file,
            "\n\n".join(
                one.rstrip() for one in (f"# Four families: {title}", INTRODUCTION, *blocks)
            )
            + "\n",
        )
    return [*files]


def finished(runs: Path, name: str) -> dict[int, RunRecord]:
    """The finished runs of an arm, by seed."""
    folders = {int(path.name.rpartition("-seed")[2]): path for path in runs.glob(f"{name}-seed*")}
    found = {
        seed: RunRecord.read(path)
        for seed, path in sorted(folders.items())
        if (path / "result.json").is_file()
    }
    return {seed: run for seed, run in found.items() if run.result() is not None}


def rewards(
    arms: Mapping[str, Runs],
    starts: Mapping[str, Runs],
    begun: Mapping[str, str],
    split: str,
    right: tuple[str, Callable[[Judged], float]],
) -> Table:
    """Before GRPO, after, and the paired change: greedily and sampled, the reward and what the task
    counts beside."""
    columns = [Column("arm", "arm"), Column("seeds", "seeds", "count"), Column("n", "n", "count")]
    asked = [(mode, *what) for mode in ("greedy", "sampled") for what in (REWARD, right)]
    for mode, title, _ in asked:
        columns += [
            Column(f"{mode}_{title}", f"{mode} {title}", "interval"),
            Column(f"{mode}_{title}_change", "change", "change"),
        ]
    rows = []
    for family, runs in starts.items():
        if runs:
            rows += [Row((f"{family}, SFT", *_cells(runs, {}, "sft", split, asked, "")))]
            rows += [
                Row((name + MODE_TITLES[suffix], *_cells(each, runs, "rl", split, asked, suffix)))
                for name, each in arms.items()
                if begun[name] == family
                for suffix in MODE_TITLES
                if by_seed(each, EvaluationKey("rl", split, "greedy" + suffix), REWARD[1])
            ]
    one = next(run for runs in starts.values() for run in runs.values())
    for name, evaluation in best_and_oracle(one, split):
        cells = [
            cell
            for _, _, value in asked[:2]
            for cell in (share({0: [*map(value, evaluation.rows)]}), None)
        ]
        rows += [Row((name, None, len(evaluation.rows), *cells, *cells), "reference")]
    return Table(f"rewards-{split}", f"Reward on {split}", tuple(columns), tuple(rows))


def _cells(
    runs: Runs, before: Runs, stage: str, split: str, asked: Sequence[Any], suffix: str
) -> list[Any]:
    """Seeds, n, and a value with its change for each of `asked`."""
    cells: list[Any] = []
    n = 0
    for mode, _, value in asked:
        mine = by_seed(runs, EvaluationKey(stage, split, mode + suffix), value)
        start = by_seed(before, EvaluationKey("sft", split, mode), value)
        comparable = (
            mine.keys() & start.keys() if suffix or _have_same_sampling(runs, before) else set()
        )
        changes = {seed: matched(mine[seed], start[seed]) for seed in sorted(comparable)}
        n = max([n, *(len(one) for one in mine.values())])
        cells += [share({seed: [*one.values()] for seed, one in mine.items()}), over_seeds(changes)]
    return [len(runs), n, *cells]


def _have_same_sampling(runs: Runs, before: Runs) -> bool:
    """Whether arms sample as their starts do; else a change would be that of the sampling
    distribution, too."""
    return all(
        seed in before and run.recipe.sampling == before[seed].recipe.sampling
        for seed, run in runs.items()
    )


def by_seed(
    runs: Runs, key: EvaluationKey, value: Callable[[Judged], float]
) -> dict[int, dict[str, float]]:
    """A value of every example, by seed."""
    found = {seed: run.evaluations().get(key) for seed, run in runs.items()}
    return {
        seed: {row.id: value(row) for row in one.rows}
        for seed, one in found.items()
        if one is not None
    }


def matched(after: Mapping[str, float], before: Mapping[str, float]) -> list[float]:
    return [after[name] - before[name] for name in after if name in before]


def over_seeds(values: Mapping[int, Sequence[float]], clusters: Clusters = None) -> Interval | None:
    """The mean over seeds and examples, with the chance of both; None where there is nothing.

    Args:
        values: of each seed, the examples' values [n].
        clusters: which examples belong together [n]; by default each is alone.
    """
    if not values or not all(map(len, values.values())):
        return None
    seeds = [float(np.mean(one)) for one in values.values()]
    # an answer could not be judged: examples are not matched
    if len({len(one) for one in values.values()}) > 1:
        return pooled_interval([np.concatenate([*map(np.asarray, values.values())])], [seeds])
    means: NDArray[np.float64] = np.mean([*values.values()], axis=0)
    return pooled_interval([means], [seeds], [clusters])


def share(values: Mapping[int, Sequence[float]], clusters: Clusters = None) -> Interval | None:
    """`summarise_seeds` of what lies between 0 and 1, and so does the interval."""
    found = over_seeds(values, clusters)
    return found and replace(found, low=max(0.0, found.low), high=min(1.0, found.high))


def best_and_oracle(run: RunRecord, split: str) -> list[tuple[str, Evaluation]]:
    """Floor and ceiling."""
    there = {
        key.mode: one
        for key, one in run.evaluations().items()
        if (key.stage, key.split) == (REFERENCE, split)
    }
    baselines = {name: one for name, one in there.items() if name != ORACLE}
    best = max(baselines, key=lambda name: baselines[name].mean_reward)
    return [(f"best baseline: {best}", baselines[best]), ("oracle", there[ORACLE])]


def costs(
    arms: Mapping[str, Runs], starts: Mapping[str, Runs], begun: Mapping[str, str], split: str
) -> Table:
    """What was spent on each start and each arm, and what a sampled answer costs."""
    columns = (
        Column("arm", "arm"),
        Column("seconds", "processor-seconds", "number", 0),
        Column("drawing", "of them drawing", "share"),
        Column("steps", "steps", "number", 0),
        Column("speed", "tokens a processor-second, sampled", "number", 0),
        Column("passes", "forward passes an answer", "number", 1),
    )
    rows = []
    for family, runs in starts.items():
        if runs:
            rows += [_cost(f"{family}, SFT", runs, "sft", split)]
            rows += [
                _cost(name, each, "rl", split)
                for name, each in arms.items()
                if begun[name] == family
            ]
    return Table("costs", "Cost, means over seeds", columns, tuple(rows))


def _cost(name: str, runs: Runs, stage: str, split: str) -> Row:
    drawn = spent(runs, stage, "cpu/rollouts") if stage == "rl" else None
    total = (
        spent(runs, stage, "cpu/step")
        if drawn is None
        else drawn + spent(runs, stage, "cpu/update")
    )
    steps = float(np.mean([len(run.rows(stage)) for run in runs.values()]))
    key = f"{stage}.{split}.sampled"
    speed = measured(runs, key, lambda one: one["tokens"] / one["seconds"])
    passes = measured(runs, key, lambda one: one["passes"])
    return Row((name, total, None if drawn is None else drawn / total, steps, speed, passes))


def spent(runs: Runs, stage: str, key: str) -> float:
    """Processor-seconds of a stage's steps, as recorded: the mean over seeds."""
    rows = {seed: run.files["timings"].rows() for seed, run in runs.items()}
    return float(
        np.mean(
            [
                sum(row.get(key, 0.0) for row in each if row["stage"] == stage)
                for each in rows.values()
            ]
        )
    )


def measured(runs: Runs, key: str, value: Callable[[Mapping[str, Any]], float]) -> float | None:
    """What an evaluation cost: the mean over the seeds that have been evaluated."""
    paths = [path for run in runs.values() if (path := run.folder / "measured.json").is_file()]
    found = [value(each[key]) for path in paths if key in (each := read_object(path))]
    return float(np.mean(found)) if found else None


# -- a long run ------------------------------------------------------------------------------------


def blocks_of(run: RunRecord, name: str) -> list[float]:
    """A metric's means over blocks of steps."""
    rows = [row for row in run.rows("rl") if row.get("train/reward") is not None]
    parts = [rows[at : at + BLOCK] for at in range(0, len(rows), BLOCK)]
    return [
        float(np.mean([row[name] for row in part if row.get(name) is not None] or [np.nan]))
        for part in parts
    ]


def evaluated(run: RunRecord) -> dict[int, Mapping[str, Any]]:
    return {row["step"]: row for row in run.rows("rl") if row.get("eval/mean_reward") is not None}


def long_table(runs: Runs) -> Table:
    """A row for each hundred steps: means over the seeds with Student's interval (of a single seed,
    none)."""
    shown = (
        ("train/reward", "reward of the block's answers"),
        ("train/entropy", "entropy, nats a term"),
        ("train/frac_reward_zero_std", "groups without signal"),
        ("train/grad_norm", "gradient norm"),
    )
    held = (
        ("eval/mean_reward", "held out, greedy"),
        ("eval/sampled_mean_reward", "held out, sampled"),
    )
    columns = (
        Column("step", "to step", "count"),
        *(Column(name, title, "interval") for name, title in (*shown, *held)),
    )
    blocks = {name: [blocks_of(run, name) for run in runs.values()] for name, _ in shown}
    evaluations = [evaluated(run) for run in runs.values()]
    rows = []
    for at in range(min(map(len, blocks["train/reward"]))):
        step = (at + 1) * BLOCK
        cells = [t_interval([each[at] for each in blocks[name]]) for name, _ in shown]
        known = [[each[step][name] for each in evaluations if step in each] for name, _ in held]
        rows.append(
            Row((step, *cells, *(t_interval(values) if values else None for values in known)))
        )
    return Table("long", "GRPO of a uniform-state flow over a long run", columns, tuple(rows))


def long_figure(runs: Runs) -> str:
    """The held-out reward over the steps, greedily and sampled."""
    found = [evaluated(run) for run in runs.values()]
    steps = sorted(set.intersection(*(set(one) for one in found)))
    layers = [
        Points(
            steps, [t_interval([one[step][name] for one in found]) for step in steps], style, label
        )
        for name, style, label in (
            ("eval/mean_reward", "c1", "greedy"),
            ("eval/sampled_mean_reward", "c2", "sampled"),
        )
    ]
    return line_chart(
        layers, label="Held-out reward over the steps of GRPO", size=WIDE, y_range=(0.0, 1.0)
    )
