"""Completions that the rubric of a job of the commerce task judges in a second, on one core.

    python benchmarks/rubric.py [completions of each kind] [extraction or insights]

Each completion is scored on every part, as in training; those of extraction are read leniently and strictly. Times are
process time of one core, the median of seven rounds with the least and the greatest.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from plumbline.records import Example
from plumbline.seeds import generator
from plumbline.tasks import open_task
from plumbline.tasks.commerce.extraction.sloppy import sloppily
from plumbline.tasks.commerce.options import Sloppiness
from plumbline.tasks.task import Task, gold_of

CARELESS = Sloppiness(abridged=0.3, decimal_comma=0.6, unclosed=0.2, fenced=0.4, chatty=0.4)
ROUNDS = 7


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    job = sys.argv[2] if len(sys.argv) > 2 else "extraction"
    with tempfile.TemporaryDirectory() as folder:
        orders = 4 * count if job == "extraction" else 20_000
        options = {"job": job, "orders": orders, job: count + count // 4}
        task = open_task("commerce", options, Path(folder) / "records")
        examples = list(task.examples("train"))
    kinds = _extractions(task, examples) if job == "extraction" else _texts(task, examples)
    print(f"{len(examples)} completions of each kind\n")
    print("| completions | a second [least, most] | us each |\n|---|---|---|")
    for kind, completions in kinds.items():
        rates = sorted(_rate(task.judge, list(zip(examples, completions, strict=True))) for _ in range(ROUNDS))
        middle = statistics.median(rates)
        print(f"| {kind} | {middle:,.0f} [{rates[0]:,.0f}, {rates[-1]:,.0f}] | {1e6 / middle:.0f} |")


def _texts(task: Task, examples: list[Example]) -> dict[str, list[str]]:
    return {"gold answers": [gold_of(example) for example in examples]} | {
        name: task.controls[name](examples) for name in sorted(task.controls)
    }


def _extractions(task: Task, examples: list[Example]) -> dict[str, list[str]]:
    rng = generator(0, "benchmark")
    return {
        "valid JSON": [example.gold for example in examples],
        "valid JSON, wrong values": task.controls["shuffled-gold"](examples),
        "carelessly written": [sloppily(example.gold, CARELESS, rng) for example in examples],
        "cut short": [example.gold[: len(example.gold) * 2 // 3] for example in examples],
        "no JSON at all": [example.messages[-1]["content"] for example in examples],
    }


def _rate(judge: Callable[[Example, str], object], work: list[tuple[Example, str]]) -> float:
    start = time.process_time()
    for example, completion in work:
        judge(example, completion)
    return len(work) / (time.process_time() - start)


if __name__ == "__main__":
    main()
