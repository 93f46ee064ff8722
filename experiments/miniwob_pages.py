"""MiniWoB++ by page: success before training, after SFT and after GRPO, with what the best control earns there.

    plumbline run miniwob-smollm2
    python -m experiments.miniwob_pages runs/miniwob-smollm2 --out docs/miniwob-pages.md

Success is what the suite's users count, a raw reward above 0. Of several runs, each with a seed of its own, the
episodes are taken together.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from plumbline.errors import PlumblineError
from plumbline.evaluation.evaluate import ORACLE
from plumbline.evaluation.statistics import mean_interval, rate_interval
from plumbline.records import Evaluation, Judged
from plumbline.reports.tables import Column, Row, Table
from plumbline.runs.evaluations import REFERENCE, EvaluationKey
from plumbline.runs.run import Run
from plumbline.storage import write_text

STAGES = {"base": "untrained", "sft": "SFT", "rl": "GRPO"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, help="a Markdown file; left out: the terminal")
    given = parser.parse_args()
    try:
        found = [Run.read(folder).evaluations() for folder in given.runs]
    except PlumblineError as error:
        sys.exit(f"error: {error}")
    text = written(found, " ".join(map(str, given.runs)))
    if given.out is None:
        print(text)
    else:
        write_text(given.out, text)


def written(found: Sequence[Mapping[EvaluationKey, Evaluation]], runs: str) -> str:
    """The page about some runs, given by their evaluations and their names."""
    text = f"""# MiniWoB++ by page

Written by `python -m experiments.miniwob_pages {runs}`: greedy answers of the model, of which
[miniwob.md](miniwob.md) tells, and what the controls and the oracle earn on the same episodes.
"""
    for split in dict.fromkeys(key.split for one in found for key in one if key.stage == "sft"):
        stages = {name: gathered(found, EvaluationKey(stage, split, "greedy")) for stage, name in STAGES.items()}
        there = {name: rows for name, rows in stages.items() if rows}
        modes = sorted(key.mode for key in found[0] if (key.stage, key.split) == (REFERENCE, split))
        beside = {mode: gathered(found[:1], EvaluationKey(REFERENCE, split, mode)) for mode in modes}
        controls = {mode: rows for mode, rows in beside.items() if mode != ORACLE}
        tables = overall(split, there | beside), by_page(split, there, controls)
        text += f"\n## {split}\n\n" + "\n".join(one.to_markdown() for one in tables)
    return text


def gathered(found: Sequence[Mapping[EvaluationKey, Evaluation]], key: EvaluationKey) -> list[Judged]:
    return [row for one in found if key in one for row in one[key].rows]


def overall(split: str, each: Mapping[str, Sequence[Judged]]) -> Table:
    """A row for each stage, control and the oracle, over all pages."""
    columns = (
        Column("source", "all pages"),
        Column("n", "n", "count"),
        Column("success", "success", "interval"),
        Column("reward", "reward", "interval"),
    )
    rows = [
        Row((name, len(rows), rate_interval([*map(success, rows)]), mean_interval([row.reward for row in rows])))
        for name, rows in each.items()
    ]
    return Table(f"all-{split}", f"Success and reward on {split} [95 % interval]", columns, tuple(rows))


def by_page(split: str, stages: Mapping[str, Sequence[Judged]], controls: Mapping[str, Sequence[Judged]]) -> Table:
    """A row for each page, the best first."""
    last = [*stages.values()][-1]
    pages = sorted({row.stratum for row in last}, key=lambda page: (-share(last, page), page))
    columns = [Column("page", "page"), Column("n", "n", "count"), Column("control", "best control")]
    columns += [Column(stage, stage, "number", 2) for stage in stages]
    rows = []
    for page in pages:
        best = max(controls, key=lambda name: share(controls[name], page))
        floor = share(controls[best], page)
        told = f"{floor:.2f} {best}" if floor else "0"
        count = sum(row.stratum == page for row in last)
        rows.append(Row((page, count, told, *(share(each, page) for each in stages.values()))))
    return Table(f"pages-{split}", f"Success on {split} by page", tuple(columns), tuple(rows))


def share(rows: Sequence[Judged], page: str) -> float:
    """Of a page's episodes that succeed; 0 without any."""
    found = [success(row) for row in rows if row.stratum == page]
    return sum(found) / len(found) if found else 0.0


def success(row: Judged) -> bool:
    return bool(row.parts.get("success"))


if __name__ == "__main__":
    main()
