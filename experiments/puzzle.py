"""Whether a better gradient solves more: RL of 4x4 Sudoku by each objective, at equal cost.

    python -m experiments.puzzle run                     # all arms; a row to puzzle.jsonl as one ends; resumes
    python -m experiments.puzzle run --minutes 60 --seeds 0 --arms exact tokens-only espo
    taskset -c 0 python -m experiments.puzzle run --seeds 0 2 4 --rows even.jsonl    # one core each; join the files
    python -m experiments.puzzle table                   # as in docs/research/four-families.md
    python -m experiments.puzzle figure docs/puzzle.svg

A prompt is a grid with 6 to 10 holes and one solution; the answer is all 16 cells. The 288 grids
are 12 classes up to the names of digits: 8 for training, 4 for testing. (Under all symmetries there
are two, of 4 and 8 of these; each is on both sides.) A model begins with answers whose holes are
filled one after the other, in a random order, by what the cells before allow, and of which none is
right: it has seen no solution, and knows no order. All seeds of a family begin with the same model,
as those who train a published one do. `sft` alone is shown solutions, and draws nothing while it
learns: it has no line in the figure.

RL raises what is drawn; the most likely answer, with the surest place first, is another policy.
So an arm is judged by the share that is solved when answers are drawn, and the greedy one beside.
"""

import argparse
import itertools
import math
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

import plumbline
from experiments.findings.show import CURVES, STYLES, change, standing
from experiments.spg import Spg
from experiments.surrogates import OnePass
from plumbline.algorithms import ALGORITHMS
from plumbline.algorithms.algorithm import Algorithm
from plumbline.algorithms.grpo import Grpo
from plumbline.algorithms.objective import Batch, Loss
from plumbline.evaluation.statistics import paired_difference
from plumbline.records import Evaluation
from plumbline.reports.charts import Line, line_chart
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.record import RunRecord
from plumbline.storage import read_jsonl, write_jsonl, write_text

ROWS = Path(__file__).parent / "puzzle.jsonl"
FOLDER = Path("runs/puzzle")
PROCESSOR = next(
    iter(re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())), "unknown"
)
DIGITS, CELLS = "1234", 16
HOLES = (6, 7, 8, 9, 10)
MODES = ("sampled", "greedy")
PART, BLOCK = "train/reward/solved", 5
TRAIN, PARTIAL, EACH = 2000, 8000, 3
"""Puzzles of RL, puzzles of the start, and puzzles of each grid that is held out."""


# -- puzzles ---------------------------------------------------------------------------------------


@cache
def list_grids() -> list[str]:
    """All grids, row by row."""
    rows = ["".join(row) for row in itertools.permutations(DIGITS)]
    halves = [a + b for a in rows for b in rows if not {*a[:2]} & {*b[:2]}]
    grids = [top + bottom for top in halves for bottom in halves]
    return [grid for grid in grids if all(len({*grid[at::4]}) == 4 for at in range(4))]


@cache
def number_grids() -> np.ndarray:
    """The same as digits [288, 16]."""
    return np.array([[*map(int, grid)] for grid in list_grids()])


def count_solutions(puzzle: str) -> int:
    """Grids that have the given cells."""
    cells = np.array([*map(int, puzzle)])
    return int(((number_grids() == cells) | (cells == 0)).all(1).sum())


def allowed(puzzle: str, at: int) -> str:
    """Digits that no filled cell of the same row, column or box holds."""
    row, column = divmod(at, 4)
    box = row // 2 * 8 + column // 2 * 2
    held = puzzle[4 * row : 4 * row + 4] + puzzle[column::4]
    held += puzzle[box : box + 2] + puzzle[box + 4 : box + 6]
    return "".join(digit for digit in DIGITS if digit not in held)


def class_of(grid: str) -> str:
    """The grid of its class whose first row is 1234."""
    return grid.translate(str.maketrans(grid[:4], DIGITS))


def split_grids() -> tuple[list[str], list[str]]:
    """Grids of training and held-out ones: every third class."""
    held_out = sorted({*map(class_of, list_grids())})[2::3]
    parts: tuple[list[str], list[str]] = ([], [])
    for grid in list_grids():
        parts[class_of(grid) in held_out].append(grid)
    return parts


def make_puzzle(grid: str, holes: int, draw: random.Random) -> str:
    """The grid with 0 in its holes, of which it is the one solution."""
    while True:
        empty = draw.sample(range(CELLS), holes)
        puzzle = "".join("0" if at in empty else cell for at, cell in enumerate(grid))
        if count_solutions(puzzle) == 1:
            return puzzle


def fill(puzzle: str, draw: random.Random, *, sure_first: bool = False) -> str:
    """Hole after hole, at random by what the cells before allow (any digit where that is none).

    Args:
        puzzle: with 0 in its holes.
        draw: of the order and of the digits.
        sure_first: whether the next hole is one of those that the fewest digits are allowed in.
    """
    while "0" in puzzle:
        holes = [at for at, cell in enumerate(puzzle) if cell == "0"]
        if sure_first:
            fewest = min(len(allowed(puzzle, at)) for at in holes)
            holes = [at for at in holes if len(allowed(puzzle, at)) == fewest]
        at = draw.choice(holes)
        puzzle = puzzle[:at] + draw.choice(allowed(puzzle, at) or DIGITS) + puzzle[at + 1 :]
    return puzzle


def make_row(grid: str, draw: random.Random) -> dict[str, str]:
    """A puzzle and its solution."""
    return {"prompt": make_puzzle(grid, draw.choice(HOLES), draw), "solution": grid, "grid": grid}


def make_rows(seed: int = 0) -> dict[str, list[dict[str, str]]]:
    """Rows of RL (train), of the start (partial), whose answers are all wrong, and held-out ones
    (test)."""
    draw = random.Random(seed)
    train, test = split_grids()
    rows = {"train": [make_row(draw.choice(train), draw) for _ in range(TRAIN)], "partial": []}
    rows["test"] = [
        make_row(grid, draw) for _ in range(EACH) for grid in draw.sample(test, len(test))
    ]
    while len(rows["partial"]) < PARTIAL:
        row = make_row(draw.choice(train), draw)
        answer = fill(row["prompt"], draw)
        if answer != row["solution"]:
            rows["partial"].append(row | {"solution": answer})
    return rows


def score(completion: str, prompt: str, solution: str) -> dict[str, float]:
    """The share of holes that are right, and whether all 16 cells are."""
    answer = completion.strip()
    holes = [at for at, cell in enumerate(prompt) if cell == "0"]
    right = sum(answer[at : at + 1] == solution[at] for at in holes)
    return {"cells": right / len(holes), "solved": float(answer == solution)}


def measure_baselines(rows: Sequence[dict[str, str]], seed: int = 0) -> dict[str, float]:
    """The share of puzzles that is solved by those who know the rules, and by one who does not."""
    draw = random.Random(seed)
    puzzles = [row["prompt"] for row in rows]
    answers = {
        "random legal": [fill(puzzle, draw) for puzzle in puzzles],
        "the surest hole first": [fill(puzzle, draw, sure_first=True) for puzzle in puzzles],
        "most frequent digit": [
            puzzle.replace("0", max(DIGITS, key=puzzle.count)) for puzzle in puzzles
        ],
    }
    golds = [row["solution"] for row in rows]
    return {
        name: float(np.mean([each == gold for each, gold in zip(those, golds, strict=True)]))
        for name, those in answers.items()
    }


# -- objectives that the package has not -----------------------------------------------------------


class PartGrpo(Grpo):
    """GRPO whose terms of one kind alone have a gradient.

    The choice of places is made by the denoiser's confidence, so its terms train the denoiser, too:
    frozen, it would leave nothing to learn.
    """

    name: Literal["part"] = "part"
    part: Literal["tokens", "order"] = "tokens"

    def loss(self, batch: Batch) -> Loss:
        """See `Algorithm.loss`."""
        kinds = list[bool]()
        for target in batch.targets:
            for step in target.trajectory.transitions:
                kinds += [True] * len(step.tokens) + [False] * (step.selection is not None)
        wanted = torch.tensor(kinds) == (self.part == "tokens")
        logprobs = batch.terms.logprobs
        terms = replace(batch.terms, logprobs=torch.where(wanted, logprobs, logprobs.detach()))
        return super().loss(replace(batch, terms=terms))


class OnePassGrpo(OnePass):
    """The answer as if it had been written in one step, as the forms log scored it."""

    likelihood: ClassVar[str] = "one_pass"
    name: Literal["one_pass"] = "one_pass"


OWN: dict[str, type[Algorithm]] = {"part": PartGrpo, "one_pass": OnePassGrpo, "spg": Spg}


# -- arms ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arm:
    """How an arm is trained."""

    family: str = "masked"
    algorithm: str | None = "grpo"
    """As a recipe writes it; None is SFT."""
    control: bool = False
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)


ARMS = {
    "exact": Arm(),
    "tokens-only": Arm(algorithm="{name: part, part: tokens}"),
    "order-only": Arm(algorithm="{name: part, part: order}", seeds=(0, 1, 2)),
    "espo": Arm(algorithm="espo"),
    "gdpo": Arm(algorithm="{name: gdpo, mask_samples: 2}"),
    "spg": Arm(algorithm="spg"),
    "sft": Arm(algorithm=None),
    "shuffled": Arm(control=True, seeds=(0, 1, 2)),
    **{
        f"{family}-{name}": Arm(family, algorithm, seeds=(0, 1, 2))
        for family in ("slots", "flow")
        for name, algorithm in (("exact", "grpo"), ("one-pass", "one_pass"))
    },
}
SHOWN = ("exact", "tokens-only", "espo", "shuffled")
"""In the figure."""
FAMILIES = {
    "masked": ("model.attention=prefix",),
    "slots": ("model.family=slots", "sampling.max_tokens=20", "sampling.steps=5"),
    "flow": (
        "model.family=flow",
        "model.attention=prefix",
        "sampling={max_tokens: 17, steps: 8, kernel: conditional}",
    ),
}
"""What the recipes of a family set over puzzle.yaml; slots have 4 places."""


def train(name: str, settings: Sequence[str]) -> RunRecord:
    """The finished run of this name: as it is there, or gone on with, or from the beginning."""
    folder = FOLDER / name
    if (folder / "result.json").is_file():
        return RunRecord.read(folder)
    recipe, resume = Path(__file__).with_suffix(".yaml"), (folder / "recipe.yaml").is_file()
    overrides = [f"name={name}", *settings]
    return plumbline.run(recipe, overrides=overrides, out=folder, resume=resume, trust_code=True)


def train_start(family: str) -> RunRecord:
    """The model that arms begin with, made on wrong answers alone."""
    data = FOLDER / "data"
    if not (data / "test.jsonl").is_file():
        data.mkdir(parents=True, exist_ok=True)
        for split, rows in make_rows().items():
            write_jsonl(data / f"{split}.jsonl", rows)
    return train(f"start-{family}", [*FAMILIES[family], "sft=null", "rl=null"])


def train_arm(name: str, seed: int, seconds: float, settings: Sequence[str]) -> dict[str, Any]:
    """An arm from its start, trained or gone on with; its row."""
    arm = ARMS[name]
    start = train_start(arm.family)
    stage, other = ("rl", "sft") if arm.algorithm else ("sft", "rl")
    tried = "".join(f"-{setting.rpartition('.')[2]}" for setting in settings).replace("=", "-")
    run = train(
        f"{name}-{seconds:g}-seed{seed}{tried}",
        [
            f"seed={seed}",
            *FAMILIES[arm.family],
            f"model.name={start.model('base')}",
            "evaluation.untrained=false",
            f"{other}=null",
            f"{stage}.seconds={seconds}",
            *([f"rl.algorithm={arm.algorithm}"] if arm.algorithm else []),
            *(["controls.shuffle_advantages=true"] if arm.control else []),
            *settings,
        ],
    )
    spent = {row["step"]: sum_seconds(row) for row in run.timings[stage]}
    found = {
        mode: compare(
            start.read_evaluation(EvaluationKey("base", "test", mode)),
            run.read_evaluation(EvaluationKey(stage, "test", mode)),
        )
        for mode in MODES
    }
    command = f"python -m experiments.puzzle run --arms {name} --seeds {seed} --seconds {seconds:g}"
    return {
        "arm": name,
        "seed": seed,
        "budget": seconds,
        "set": [*settings],
        "command": f"{command} --set {' '.join(settings)}" if settings else command,
        "processor": PROCESSOR,
        "seconds": round(sum(spent.values()), 1),
        "steps": len(spent),
        "start seconds": round(sum(map(sum_seconds, start.timings["base"])), 1),
        **found,
        "course": trace(run, spent),
        "baselines": measure_baselines(rows_of("test")),
    }


def rows_of(split: str) -> list[dict[str, Any]]:
    """Rows as they were written."""
    return [row for _, row in read_jsonl(FOLDER / "data" / f"{split}.jsonl")]


def sum_seconds(row: dict[str, Any]) -> float:
    """Processor-seconds of a step: drawing, judging and updating."""
    return float(sum(row.get(f"cpu/{part}", 0.0) for part in ("step", "rollouts", "update")))


def solved_of(evaluation: Evaluation) -> list[float]:
    """Of each puzzle whether it is solved."""
    return [float(row.parts["solved"] or 0) for row in evaluation.rows]


def compare(before: Evaluation, after: Evaluation) -> dict[str, Any]:
    """Shares that are solved, and the paired change; the grid is the unit."""
    found = paired_difference(solved_of(before), solved_of(after), before.clusters())
    cells = [[float(row.parts["cells"] or 0) for row in one.rows] for one in (before, after)]
    change_of = found.difference
    return {
        "n": change_of.n,
        "solved": [round(found.before, 4), round(found.after, 4)],
        "change": [round(each, 4) for each in (change_of.mean, change_of.low, change_of.high)],
        "cells": [round(float(np.mean(values)), 4) for values in cells],
    }


def trace(run: RunRecord, spent: dict[int, float]) -> list[list[float]]:
    """Processor-seconds and the share of drawn answers that solve the training prompts, the mean of
    each `BLOCK` steps of RL."""
    rows = [row for row in run.metrics.get("rl", []) if PART in row]
    blocks = [rows[at : at + BLOCK] for at in range(0, len(rows) - BLOCK + 1, BLOCK)]
    course = []
    for block in blocks:
        seconds = sum(value for at, value in spent.items() if at <= block[-1]["step"])
        course.append([round(seconds, 1), round(float(np.mean([row[PART] for row in block])), 4)])
    return course


# -- table, figure and commands --------------------------------------------------------------------


def read_rows(path: Path, seconds: float, settings: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of such a budget and such settings; none where there is no file yet."""
    rows = [row for _, row in read_jsonl(path)] if path.is_file() else []
    return [row for row in rows if (row["budget"], row["set"]) == (seconds, [*settings])]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A row for each arm: means over seeds, and with Student's interval the drawn share's difference
    to the exact arm of its family, paired by seed; the start before its arms."""
    lines = [
        "| arm | seeds | steps | drawn | less the exact arm | greedy |",
        "|---|--:|--:|--:|---|--:|",
    ]
    for name, arm in ARMS.items():
        mine = [row for row in rows if row["arm"] == name]
        exact = "exact" if arm.family == "masked" else f"{arm.family}-exact"
        if not mine:
            continue
        if name == exact:
            drawn, greedy = (f"{mine[0][mode]['solved'][0]:.3f}" for mode in MODES)
            lines.append(f"| *start, {arm.family}* | | | {drawn} | | {greedy} |")
        drawn, greedy = (solved_by_seed(rows, name, mode) for mode in MODES)
        beside = solved_by_seed(rows, exact, MODES[0]) if name != exact else {}
        both = sorted(drawn.keys() & beside.keys())
        less = change(*([part[seed] for seed in both] for part in (drawn, beside)))
        cells = [name, str(len(mine)), f"{np.mean([row['steps'] for row in mine]):.0f}"]
        cells += [f"{np.mean([*drawn.values()]):.3f}", f"{less:+.3f}" if len(both) > 1 else ""]
        lines.append(f"| {' | '.join([*cells, f'{np.mean([*greedy.values()]):.3f}'])} |")
    for name, share in (rows[0]["baselines"] if rows else {}).items():
        lines.append(f"| *{name}* | | | {share:.3f} | | |")
    return "\n".join(lines)


def solved_by_seed(rows: Sequence[dict[str, Any]], name: str, mode: str) -> dict[int, float]:
    """The share that each seed of an arm solves in the end."""
    return {row["seed"]: row[mode]["solved"][1] for row in rows if row["arm"] == name}


def figure(rows: Sequence[dict[str, Any]]) -> str:
    """The mean over seeds of the share that is solved, an arm a line."""
    layers = []
    for name in SHOWN:
        mine = [row["course"] for row in rows if row["arm"] == name]
        if mine:
            courses = [np.transpose(course) for course in mine]
            first, last = max(one[0][0] for one in courses), min(one[0][-1] for one in courses)
            at = np.linspace(first, last, 21)
            mean = np.mean([np.interp(at, *course) for course in courses], axis=0)
            layers.append(Line(at, mean, STYLES[len(layers) % len(STYLES)], name))
    label = "Share of drawn answers that solve the training puzzles, over processor-seconds"
    drawing = str(line_chart(layers, label=label, size=CURVES))
    return standing(drawing.replace(">step<", ">processor-seconds of training<"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "table", "figure"))
    parser.add_argument("out", nargs="?", type=Path, help="of figure: the file")
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=[*ARMS])
    parser.add_argument("--seeds", type=int, nargs="+", help="default: those of each arm")
    parser.add_argument("--seconds", type=float, default=150.0, help="of an arm's training")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin none after so many")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="KEY=VALUE", help="of arms' recipes"
    )
    options = parser.parse_args()
    began, given = time.monotonic(), (options.seconds, options.set)
    ALGORITHMS.update(OWN)
    if options.what == "run":
        torch.set_num_threads(1)
        for seed, name in itertools.product(options.seeds or range(5), options.arms):
            done = {(row["arm"], row["seed"]) for row in read_rows(options.rows, *given)}
            wanted = seed in (options.seeds or ARMS[name].seeds) and (name, seed) not in done
            if wanted and time.monotonic() - began < 60 * options.minutes:
                row = train_arm(name, seed, *given)
                rows = (
                    [one for _, one in read_jsonl(options.rows)] if options.rows.is_file() else []
                )
                write_jsonl(options.rows, [*rows, row])
    rows = read_rows(options.rows, *given)
    if options.what == "figure":
        write_text(options.out, figure(rows))
    else:
        print(table(rows))


if __name__ == "__main__":
    main()
