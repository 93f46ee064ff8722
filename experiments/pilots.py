"""What a pilot can foretell: a grid of small runs, and what was measured before each.

    plumbline get smollm2-135m; plumbline get qwen2.5-coder-0.5b; pip install 'plumbline-rl[reasoning-gym]'
    python -m experiments.pilots next --minutes 110    # the next runs of the list; a row each in pilots.jsonl; resumes
    python -m experiments.pilots list                  # what is done and what is not
    taskset -c 0 python -m experiments.pilots next --model smollm2-135m --rows small.jsonl    # one core each
    python -m experiments.pilots measure   # the cells of ways.jsonl that begin with a published model
    python -m experiments.pilots fit       # coefficients from all runs, written to checks/gain.yaml
    python -m experiments.pilots judge     # how well they foretell: leaving a task out
    python -m experiments.pilots judge --lines 24    # those of the first 24 lines, on the runs of later lines
    python -m experiments.pilots table     # what each way changed, a cell a row (docs/which-way.md)

A cell is a task, a model and the processor-seconds of SFT that it has had; each way begins there. The
figures of a cell are of 512 answers to training prompts; a run's row has the greedy reward on held-out
prompts before and after. Runs stand in a random order that was drawn before the first began; the form of the
predictor was chosen on the first 24 lines. Rows of ways.jsonl whose cell was measured are fitted, too:
other budgets of the same ways.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.optimize import least_squares
from scipy.stats import rankdata, spearmanr

from experiments import ways
from plumbline.checks import gain
from plumbline.checks.gain import LEAST_GAIN, Coefficients, Foretold, GainTable, Offer, foretell_way
from plumbline.evaluation.statistics import holm
from plumbline.storage import read_jsonl, write_jsonl, write_text

ROWS = Path(__file__).parent / "pilots.jsonl"
SECONDS = 360.0
"""Processor-seconds of a run's training: three minutes of two cores."""
TESTED = 128
"""Held-out prompts, answered greedily."""
SET = ["evaluation.sampled=false", f"evaluation.final_limit={TESTED}"]
SMALL, LARGE = ways.MODELS


@dataclass(frozen=True, slots=True)
class Cell:
    """Where ways begin."""

    task: str
    model: str
    start: int = 0


GOLD = ("sft", "expert-iteration", "grpo")
GOLDEN = {"sft", "self-distillation"}
"""Ways that learn from gold answers."""
PLAN: dict[Cell, tuple[str, ...]] = {
    Cell("strict-json", SMALL): GOLD,
    Cell("strict-json", SMALL, 100): (*GOLD, "dynamic", "dpo"),
    Cell("strict-json", SMALL, 300): (*GOLD, "dpo", "self-distillation", "unverified", "control"),
    Cell("strict-json", SMALL, 600): (*GOLD, "control"),
    Cell("strict-json", LARGE): (*GOLD, "dynamic", "dpo", "control"),
    Cell("short-answers", SMALL, 300): (*GOLD, "self-distillation"),
    Cell("short-answers", LARGE): (*GOLD, "dynamic", "unverified"),
    Cell("extraction-three", SMALL): GOLD[1:],
    Cell("extraction-three", SMALL, 300): (*GOLD, "control"),
    Cell("extraction-three", LARGE): (*GOLD, "dpo", "control"),
    Cell("shop-sql-short", SMALL, 600): GOLD,
    Cell("shop-sql-short", LARGE): (*GOLD, "control"),
    Cell("letter_counting", LARGE): (*GOLD, "dynamic"),
    Cell("chain_sum", LARGE): (*GOLD, "unverified"),
    Cell("tickets", SMALL): GOLD,
    Cell("tickets", LARGE): (*GOLD, "control"),
}


def runs() -> list[tuple[Cell, str]]:
    """All runs, in the order in which they are made."""
    listed = [(cell, way) for cell, those in PLAN.items() for way in those]
    return [listed[index] for index in np.random.default_rng(0).permutation(len(listed))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    following = commands.add_parser("next", help="make the next runs")
    following.add_argument("--minutes", type=float, default=0, help="begin none after so many")
    commands.add_parser("list", help="what is done and what is not")
    commands.add_parser("table", help="what each way changed")
    for name, what in (
        ("measure", "measure where the runs of ways.jsonl began"),
        ("fit", "write the coefficients"),
        ("judge", "say how well they foretell"),
    ):
        commands.add_parser(name, help=what).add_argument("--ways", type=Path, default=ways.ROWS)
    commands.choices["judge"].add_argument(
        "--lines", type=int, help="fit to the first so many rows"
    )
    for command in commands.choices.values():
        command.add_argument("--rows", type=Path, default=ROWS)
        command.add_argument("--model", choices=ways.MODELS, nargs="+", default=ways.MODELS)
    options = parser.parse_args()
    if options.command == "measure":
        for cell in dict.fromkeys(Cell(*key_of(row)[:3]) for row in read(options.ways)):
            if not cell.start and cell.model in options.model:
                measure_cell(cell, options.rows)
        return
    if options.command == "fit":
        write_table(fit(split_points(read(options.rows), read(options.ways))[0]))
        return
    if options.command == "judge":
        early, late = split_points(read(options.rows), read(options.ways), options.lines)
        if not late:
            print(show_judgement("leaving a task out", leave_task_out(early)))
        else:
            table = fit(early)
            found = [(point, foretold_of(point, table)) for point in late]
            print(show_judgement("runs of later lines", found))
        return
    if options.command == "table":
        print(table_of(read(options.rows)))
        return
    done = {key_of(row) for row in read(options.rows)}
    planned = [each for each in runs() if each[0].model in options.model]
    left = [(cell, way) for cell, way in planned if (*astuple(cell), way) not in done]
    if options.command == "list":
        print(f"{len(planned) - len(left)} of {len(planned)} runs are made; next:")
        print(
            "\n".join(
                f"  {cell.task} {cell.model} after {cell.start} s: {way}" for cell, way in left
            )
        )
        return
    began = time.monotonic()
    for number, (cell, way) in enumerate(left):
        if number and time.monotonic() - began > 60 * options.minutes:
            break
        make_run(cell, way, options.rows)


def make_run(cell: Cell, way: str, rows: Path) -> None:
    """Measure a cell, if it was not, and train it by a way."""
    measure_cell(cell, rows)
    ways.run_arm(arguments_of(cell, rows), way, 0)


def measure_cell(cell: Cell, rows: Path) -> None:
    """Write the figures of a cell, if they are not there; its SFT is done first."""
    if any(key_of(row) == (*astuple(cell), "pilot") for row in read(rows)):
        return
    given = arguments_of(cell, rows)
    place = ways.train_start(given, 0) if cell.start else cell.model
    figures = asdict(ways.pilot(cell.task, str(place)))
    row = {"arm": "pilot", **asdict(cell), "seed": 0}
    write_jsonl(rows, [*read(rows), row | {"figures": figures}])


def arguments_of(cell: Cell, rows: Path) -> argparse.Namespace:
    """What an arm of ways.py is asked for."""
    return argparse.Namespace(
        task=cell.task,
        model=cell.model,
        seconds=SECONDS,
        start=cell.start,
        overrides=SET,
        rows=rows,
    )


@dataclass(frozen=True, slots=True)
class Point:
    """A run, and what was known before it."""

    cell: Cell
    way: str
    offer: Offer
    answers: float
    """That it learnt from."""
    gain: float
    """Of the greedy held-out reward."""
    right: float
    right_prompts: float


RATES = {"sft": 5e-4, "expert-iteration": 5e-4, "grpo": 2e-4, "dynamic": 2e-4, "dpo": 2e-4}
"""Ways that are foretold, and the learning rates of their recipes."""
OWN = [way for way in RATES if way != "sft"]
PRIOR = np.array([1.0, 1.0])
"""Of the weights of answers and spread: the share grows with the gradient steps, and at first with
the spread."""
LOOSE, TIGHT, ERROR = 1.0, 0.5, 0.1
"""Standard deviations: of a weight about its prior, of a way's intercept about that of all, and of
a gain."""


def split_points(
    rows: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]], lines: int | None = None
) -> tuple[list[Point], list[Point]]:
    """What is fitted: the first `lines` of the rows (None: all), and `others` whose cell they measure;
    and the runs of later rows."""
    early = rows[:lines]
    cells, first = (
        {Cell(*key_of(row)[:3]): row["figures"] for row in those if row["arm"] == "pilot"}
        for those in (rows, early)
    )
    return (
        [*points_of(early, first), *points_of(others, first)],
        points_of(rows[len(early) :], cells),
    )


def points_of(rows: Sequence[dict[str, Any]], cells: Mapping[Cell, dict[str, Any]]) -> list[Point]:
    """Runs of ways that are foretold, of measured cells, by the recipes' own settings."""
    points = []
    for row in rows:
        cell = Cell(*key_of(row)[:3])
        if row["arm"] not in RATES or cell not in cells or row.get("set", None) not in ([], SET):
            continue
        seen = cells[cell]
        offer = Offer(
            **{name: seen[name] for name in ("reward", "spread", "draw_seconds", "update_seconds")},
            gold=True,
        )
        change = row["greedy"]["reward"]["change"][0]
        answers = row["steps"] * (
            16 if row["arm"] == "sft" else 64 if cell.task.startswith("shop") else 128
        )
        points.append(
            Point(cell, row["arm"], offer, answers, change, seen["right"], seen["right_prompts"])
        )
    return points


def fit(points: Sequence[Point]) -> GainTable:
    """Coefficients of the ways by least squares on gains, with priors and weights of 0 at least; the
    errors are those of leaving a task out."""
    return with_errors(solve(points), [error_of(*one) for one in leave_task_out(points)])


def with_errors(table: GainTable, errors: Sequence[float]) -> GainTable:
    """A table whose intervals hold four fifths of these errors."""
    low, high = np.quantile(errors, [0.1, 0.9])
    return replace(table, low=round(float(low), 3), high=round(float(high), 3))


def error_of(point: Point, found: Foretold) -> float:
    """In units of `gain.error_scale`."""
    scale = gain.error_scale(found.gain, point.offer.room)
    return (point.gain - found.gain) / scale


def solve(points: Sequence[Point]) -> GainTable:
    """The coefficients alone."""

    def table(values: np.ndarray) -> GainTable:
        at, weights, own, own_weights, *each = np.split(values, [1, 2, 3, 5, *range(6, 9)])
        found = {"sft": Coefficients(float(at[0]), float(weights[0]), 0.0, True, RATES["sft"])}
        for way, offset in zip(OWN, each, strict=True):
            answers, spread = own_weights.tolist()
            found[way] = Coefficients(float(own[0] + offset[0]), answers, spread, False, RATES[way])
        return GainTable(len(points), 0.0, 0.0, found)

    def residuals(values: np.ndarray) -> np.ndarray:
        tried = table(values)
        wrong = [(foretold_of(point, tried).gain - point.gain) / ERROR for point in points]
        loose = [(values[1] - PRIOR[0]) / LOOSE, *((values[3:5] - PRIOR) / LOOSE)]
        return np.array([*wrong, *loose, *(values[5:] / TIGHT)])

    start = np.array([-1.0, *PRIOR[:1], -1.0, *PRIOR, *([0.0] * len(OWN))])
    lowest = np.where(np.isin(np.arange(len(start)), [1, 3, 4]), 0.0, -np.inf)
    return table(least_squares(residuals, start, bounds=(lowest, np.inf)).x)


def foretold_of(point: Point, table: GainTable) -> Foretold:
    """What a table foretells of a run."""
    return foretell_way(point.way, point.offer, point.answers, table)


def leave_task_out(points: Sequence[Point]) -> list[tuple[Point, Foretold]]:
    """Each run as it is foretold by what the other tasks' runs say, their errors included."""
    tasks = dict.fromkeys(point.cell.task for point in points)
    tables = {task: solve([one for one in points if one.cell.task != task]) for task in tasks}
    found = [(point, foretold_of(point, tables[point.cell.task])) for point in points]
    for task, table in tables.items():
        errors = [error_of(*one) for one in found if one[0].cell.task != task]
        tables[task] = with_errors(table, errors)
    return [(point, foretold_of(point, tables[point.cell.task])) for point in points]


def show_judgement(name: str, found: Sequence[tuple[Point, Foretold]]) -> str:
    """Rank correlation with its 95 % interval by Fisher's z, AUC for a gain of `LEAST_GAIN`, and how
    many intervals hold, beside what needs no predictor."""
    gains = [point.gain for point, _ in found]
    lines = [f"{name}: n = {len(found)}, {sum(one >= LEAST_GAIN for one in gains)} gain"]
    held = np.mean([one.low <= point.gain <= one.high for point, one in found])
    scores: dict[str, Callable[[Point, Foretold], float]] = {
        "foretold": lambda _, one: one.gain,
        "pass@1": lambda point, _: point.right,
        "pass@8 - pass@1": lambda point, _: point.right_prompts - point.right,
    }
    for what, score in scores.items():
        values = [score(*one) for one in found]
        rank = float(spearmanr(values, gains).statistic)
        half = 1.96 / max(len(found) - 3, 1) ** 0.5
        low, high = np.tanh([np.arctanh(rank) - half, np.arctanh(rank) + half])
        area = area_under_curve(values, gains)
        lines.append(f"| {what} | {rank:.2f} [{low:.2f}, {high:.2f}] | {area:.2f} |")
    lines.append(f"intervals that hold: {held:.2f}")
    return "\n".join(lines)


def table_of(rows: Sequence[dict[str, Any]]) -> str:
    """The greedy held-out reward of each cell, and its change by each way with half the width of its
    95 % interval; a star: p below .05 after Holm's correction over all changes. SFT that made a start
    is none of them."""
    made = [row for row in rows if row.get("budget") == SECONDS]
    corrected = holm([row["greedy"]["reward"]["p"] for row in made])
    shown: dict[Cell, dict[str, str]] = {}
    for row, p in zip(made, corrected, strict=True):
        reward = row["greedy"]["reward"]
        change, low, high = reward["change"]
        cells = shown.setdefault(Cell(*key_of(row)[:3]), {"before": f"{reward['before']:.2f}"})
        cells[row["arm"]] = f"{change:+.2f} ±{(high - low) / 2:.2f}{'*' * (p < 0.05)}"
    names = [way for way in ways.WAYS if any(way in cells for cells in shown.values())]
    lines = [
        f"| task, model, SFT | before | {' | '.join(names)} |",
        "|---|" + "--:|" * (len(names) + 1),
    ]
    for cell in sorted(shown, key=lambda one: (ways.MODELS.index(one.model), one.task, one.start)):
        values = [shown[cell].get(name, "") for name in ("before", *names)]
        size = cell.model.rpartition("-")[2].upper()
        lines.append(f"| {cell.task}, {size}, {cell.start} s | {' | '.join(values)} |")
    return "\n".join(lines)


def area_under_curve(values: Sequence[float], gains: Sequence[float]) -> float:
    """How often a run that gains has the larger value of two; a tie is a half."""
    useful = np.array(gains) >= LEAST_GAIN
    ranks = rankdata(values)
    positive, negative = useful.sum(), (~useful).sum()
    return float(
        (ranks[useful].sum() - positive * (positive + 1) / 2) / max(positive * negative, 1)
    )


def write_table(table: GainTable) -> None:
    """As the package has it."""
    values = asdict(table)
    for one in values["ways"].values():
        one |= {name: round(one[name], 3) for name in ("at", "answers", "spread")}
    text = yaml.safe_dump(values, sort_keys=False)
    write_text(Path(gain.__file__).with_suffix(".yaml"), text)


def read(rows: Path) -> list[dict[str, Any]]:
    """What was written of cells and runs; none where there is no file yet."""
    return [row for _, row in read_jsonl(rows)] if rows.is_file() else []


def key_of(row: dict[str, Any]) -> tuple[str, str, int, str]:
    """Which cell, and which way or its pilot."""
    return row["task"], row["model"], int(row["start"]), row["arm"]


if __name__ == "__main__":
    main()
