"""The figures of the documentation: what the oracle, the baselines and padded plans earn, split by
split, form by form.

python -m benchmarks.forms_figures            # the tables of docs/research/forms.md
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from plumbline.tasks import open_task
from plumbline.tasks.task import Task, gold_of

ORACLE = "oracle"
_JUNK = "Type 'junk' into the 'Nothing' field"
PADDED: Mapping[str, Callable[[str], str]] = {
    "1 failing action first": lambda gold: f"{_JUNK}\n{gold}",
    "5 submissions of nothing first": lambda gold: "Click the Submit button\n" * 5 + gold,
    "150 failing actions first": lambda gold: f"{_JUNK}\n" * 150 + gold,
    "150 failing actions after it": lambda gold: gold + f"\n{_JUNK}" * 150,
    "150 lines that are no step first": lambda gold: "Step 1: Frobnicate it\n" * 150 + gold,
    "150 keys first": lambda gold: "Press 'Tab'\n" * 150 + gold,
}
"""The right plan with something around it that is of no use."""


def rewards_of(task: Task, source: str, split: str) -> dict[str, list[float]]:
    """The rewards of the oracle or a baseline on a split, by form."""
    examples = task.examples(split)
    answers = list(map(gold_of, examples)) if source == ORACLE else task.baselines[source](examples)
    found: dict[str, list[float]] = defaultdict(list)
    for example, answer in zip(examples, answers, strict=True):
        found[example.stratum].append(task.judge(example, answer)[1].total)
    return found


def baselines_table(options: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Mean reward of the oracle and every baseline on every split, and the highest mean on any one
    form.

    Args:
        options: of the task.

    Returns:
        A row for each source: its name, its mean by split, and `worst`, its highest mean on any one
            form, all splits
        together.
    """
    task = open_task("forms", options or {}, Path())
    rows = []
    for source in (ORACLE, *task.baselines):
        by_form: dict[str, list[float]] = defaultdict(list)
        means: dict[str, float] = {}
        for split in task.splits:
            found = rewards_of(task, source, split)
            means[split] = fmean([reward for rewards in found.values() for reward in rewards])
            for form, rewards in found.items():
                by_form[form] += rewards
        rows.append({"source": source, **means, "worst": max(map(fmean, by_form.values()))})
    return rows


def padded_table(
    split: str = "test", options: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Mean and least reward of the right plan with each of `PADDED` around it.

    Args:
        split: whose examples.
        options: of the task.
    """
    task = open_task("forms", options or {}, Path())
    examples = task.examples(split)
    rows = []
    for name, pad in PADDED.items():
        rewards = [task.judge(example, pad(gold_of(example)))[1].total for example in examples]
        rows.append({"source": name, split: fmean(rewards), "least": min(rewards)})
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table as Markdown."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in rows:
        cells = [
            f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    for title, options in (("received", {}), ("seed-v6", {"rubric": "seed-v6"})):
        sys.stdout.write(f"{title}\n\n{markdown(baselines_table(options))}\n\n")
    sys.stdout.write(f"padded\n\n{markdown(padded_table())}\n")
