"""What a pilot can foretell: a grid of small runs, and what was measured before each.

    plumbline get smollm2-135m; plumbline get qwen2.5-coder-0.5b; pip install 'plumbline-rl[reasoning-gym]'
    python -m experiments.pilots next --minutes 110    # the next runs of the list; a row each in pilots.jsonl; resumes
    python -m experiments.pilots list                  # what is done and what is not
    taskset -c 0 python -m experiments.pilots next --model smollm2-135m --rows small.jsonl    # one core each

A cell is a task, a model and the processor-seconds of SFT that it has had; each way begins there. The
figures of a cell are of 512 answers to training prompts; a run's row has the greedy reward on held-out
prompts before and after. Runs stand in a random order that was drawn before the first began, and the
last third of them is not looked at while the predictor is chosen.
"""

import argparse
import time
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments import ways
from plumbline.storage import read_jsonl, write_jsonl

ROWS = Path(__file__).parent / "pilots.jsonl"
SECONDS = 360.0
"""Processor-seconds of a run's training: three minutes of two cores."""
TESTED = 128
"""Held-out prompts, answered greedily."""
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
    for command in commands.choices.values():
        command.add_argument("--rows", type=Path, default=ROWS)
        command.add_argument("--model", choices=ways.MODELS, nargs="+", default=ways.MODELS)
    options = parser.parse_args()
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
    given = argparse.Namespace(
        task=cell.task,
        model=cell.model,
        seconds=SECONDS,
        start=cell.start,
        overrides=["evaluation.sampled=false", f"evaluation.final_limit={TESTED}"],
        rows=rows,
    )
    if not any(key_of(row) == (*astuple(cell), "pilot") for row in read(rows)):
        place = ways.train_start(given, 0) if cell.start else cell.model
        figures = asdict(ways.pilot(cell.task, str(place)))
        row = {"arm": "pilot", **asdict(cell), "seed": 0}
        write_jsonl(rows, [*read(rows), row | {"figures": figures}])
    ways.run_arm(given, way, 0)


def read(rows: Path) -> list[dict[str, Any]]:
    """What was written of cells and runs; none where there is no file yet."""
    return [row for _, row in read_jsonl(rows)] if rows.is_file() else []


def key_of(row: dict[str, Any]) -> tuple[str, str, int, str]:
    """Which cell, and which way or its pilot."""
    return row["task"], row["model"], int(row["start"]), row["arm"]


if __name__ == "__main__":
    main()
