"""Completions that a job's rubric judges in a second, on one core.

    python benchmarks/rubric.py [completions of each kind] [extraction, sql_qa, insights or push]

Each completion is scored on every part, as in training: an extraction is read leniently and
strictly, a query is read, run on three databases and compared with gold results that were computed
before. No query is the same text twice. Times are process time of one core, the median of seven
rounds with the least and the greatest.
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
from plumbline.tasks.task import Task, gold_of
from plumbline_commerce.extraction.baselines import write_sloppily
from plumbline_commerce.options import Sloppiness

CARELESS = Sloppiness(abridged=0.3, decimal_comma=0.6, unclosed=0.2, fenced=0.4, chatty=0.4)
ROUNDS = 7


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    job = sys.argv[2] if len(sys.argv) > 2 else "extraction"
    with tempfile.TemporaryDirectory() as folder:
        orders = 20_000 if job in {"insights", "push"} else 4 * max(count, 500)
        options = {"job": job, "orders": orders, job: count + count // 4}
        task = open_task("commerce", options, Path(folder) / "records")
        examples = list(task.examples("train"))
        kinds = {"extraction": _extractions, "sql_qa": _queries}.get(job, _texts)(task, examples)
        print(f"{len(examples)} completions of each kind\n")
        print("| completions | a second [least, most] | us each |\n|---|---|---|")
        for example in examples:
            task.judge(example, example.gold)
        for kind, completions in kinds.items():
            rates = sorted(
                _rate(
                    task.judge,
                    [(example, text.replace("ROUND", str(number))) for example, text in work],
                )
                for number in range(ROUNDS)
                for work in [list(zip(examples, completions, strict=True))]
            )
            middle = statistics.median(rates)
            print(
                f"| {kind} | {middle:,.0f} [{rates[0]:,.0f}, {rates[-1]:,.0f}] | "
                f"{1e6 / middle:.0f} |"
            )


def _extractions(task: Task, examples: list[Example]) -> dict[str, list[str]]:
    rng = generator(0, "benchmark")
    return {
        "valid JSON": [example.gold for example in examples],
        "valid JSON, wrong values": task.baselines["shuffled-gold"](examples),
        "carelessly written": [write_sloppily(example.gold, CARELESS, rng) for example in examples],
        "cut short": [example.gold[: len(example.gold) * 2 // 3] for example in examples],
        "no JSON at all": [example.messages[-1]["content"] for example in examples],
    }


def _texts(task: Task, examples: list[Example]) -> dict[str, list[str]]:
    """The gold answers, and every baseline."""
    golds = [gold_of(example) for example in examples]
    return {
        "gold": golds,
        "cut short": [gold[: len(gold) * 2 // 3] for gold in golds],
        "four times too long": [4 * gold for gold in golds],
        **{name: baseline(examples) for name, baseline in sorted(task.baselines.items())},
    }


def _queries(task: Task, examples: list[Example]) -> dict[str, list[str]]:
    kinds = {
        "the gold query": [example.gold for example in examples],
        "another question's query": task.baselines["shuffled-gold"](examples),
        "all columns of its tables": task.baselines["select-everything"](examples),
        "a column that is not there": [
            example.gold.replace("order", "ordem") for example in examples
        ],
        "cut short": [example.gold[: len(example.gold) // 2] for example in examples],
    }
    kinds = {
        kind: [text.replace("SELECT", "SELECT /* ROUND */", 1) for text in texts]
        for kind, texts in kinds.items()
    }
    return {**kinds, "no query at all": [example.messages[-1]["content"] for example in examples]}


def _rate(judge: Callable[[Example, str], object], work: list[tuple[Example, str]]) -> float:
    start = time.process_time()
    for example, completion in work:
        judge(example, completion)
    return len(work) / (time.process_time() - start)


if __name__ == "__main__":
    main()
