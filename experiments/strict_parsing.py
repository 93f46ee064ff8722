"""The commerce log's first finding: a strict parser scores right answers as nothing.

    python experiments/strict_parsing.py [answers of each kind]

Every answer holds the ten gold values. Only the way it is written differs.
"""

import sys
import tempfile
from pathlib import Path

from plumbline.evaluation.evaluate import evaluate_completions
from plumbline.evaluation.statistics import mean_interval
from plumbline.seeds import generator
from plumbline.tasks import open_task
from plumbline_commerce.extraction.baselines import write_sloppily
from plumbline_commerce.options import Sloppiness

WAYS = {
    "valid JSON": Sloppiness(),
    "decimal commas (`4,5`)": Sloppiness(decimal_comma=1.0),
    "in a Markdown fence, after a sentence": Sloppiness(fenced=1.0, chatty=1.0),
    "never closed": Sloppiness(unclosed=1.0),
}


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    with tempfile.TemporaryDirectory() as folder:
        task = open_task("commerce", {}, Path(folder) / "records")
        examples = list(task.examples("train"))[:count]
    print(f"n = {len(examples)} of each\n")
    print("| written as | strict reward | lenient reward | of which reads as |\n|---|---|---|---|")
    for name, sloppiness in WAYS.items():
        rng = generator(0, name)
        completions = [write_sloppily(example.gold, sloppiness, rng) for example in examples]
        evaluation = evaluate_completions(task, examples, completions, source=name, split="train")
        cells = []
        for reading in ("strict", "lenient"):
            mean = mean_interval([row.readings[reading] for row in evaluation.rows])
            cells.append(f"{mean.mean:.3f} [{mean.low:.3f}, {mean.high:.3f}]")
        hows = ", ".join(sorted({f"`{row.how}`" for row in evaluation.rows}))
        print(f"| {name} | {cells[0]} | {cells[1]} | {hows} |")


if __name__ == "__main__":
    main()
