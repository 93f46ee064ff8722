"""Which lines of the gold plans a run's answers lack, by form and field: where an almost right plan
fails.

python -m experiments.missing_lines runs/forms-smollm2 sft.held-out-forms.greedy
"""

import sys
from collections import Counter, defaultdict
from pathlib import Path

from plumbline.runs.evaluations import EvaluationKey, read_evaluation
from plumbline.runs.record import RunRecord
from plumbline.tasks import open_task
from plumbline_browser.plans.reader import read_step


def missing(gold: str, answer: str) -> Counter[str]:
    """The gold plan's lines that the answer has not, wherever in it, without their numbers."""
    steps = (
        Counter(line.partition(": ")[2] for line in text.splitlines()) for text in (gold, answer)
    )
    return next(steps) - next(steps)


def field_of(line: str) -> str:
    """The label that a gold plan's line names; the line where it names none."""
    return getattr(read_step(line), "label", "") or line


def main(folder: str, evaluation: str) -> None:
    run = RunRecord.read(Path(folder))
    section, key = run.recipe.each_task[""], EvaluationKey.parse(evaluation)
    task = open_task(section.name, section.options, run.folder / "data")
    gold = {one.id: one.gold or "" for one in task.examples(key.split)}
    lines: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in read_evaluation(run.folder / "evaluations" / f"{key}.json").rows:
        lines[row.stratum].update(map(field_of, missing(gold[row.id], row.completion).elements()))
    for form, fields in lines.items():
        print(f"{form}: {', '.join(f'{field} {count}' for field, count in fields.most_common())}")
    print(f"in all {sum(counted.total() for counted in lines.values())}")


if __name__ == "__main__":
    main(*sys.argv[1:])
