"""MiniWoB++ by seed and by page: success after SFT and after GRPO, with what controls and the oracle earn there.

    plumbline run miniwob-smollm2 --set seed=1 --out runs/miniwob-smollm2-seed1
    python -m experiments.miniwob_pages record runs/miniwob-smollm2-seed1
    python -m experiments.miniwob_pages tables --out docs/miniwob-pages.md

`record` keeps what each episode of a run earned in `miniwob_pages.jsonl`, so that the tables can be of seeds that were
trained on several machines. Success is what the suite's users count, a raw reward above 0.
"""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from experiments.four_families_tables import matched, over_seeds, share
from plumbline.errors import DataError, PlumblineError
from plumbline.evaluation.evaluate import ORACLE
from plumbline.evaluation.statistics import Interval
from plumbline.records import Evaluation
from plumbline.reports.tables import Column, Row, Table
from plumbline.runs.evaluations import REFERENCE, EvaluationKey
from plumbline.runs.run import Run
from plumbline.storage import dumps, read_jsonl, write_text

KEPT = Path(__file__).with_suffix(".jsonl")
ARMS = {
    "miniwob-smollm2": "",
    "miniwob-smollm2-long": ", 260 steps of 16 x 8",
    "miniwob-smollm2-control": ", shuffled advantages",
}
"""Arms of the tables, and how they are told apart; all start from the SFT of the first."""
STAGES = {"base": "untrained", "sft": "SFT", "rl": "GRPO"}
Episodes = Mapping[str, float]
"""By id: a reward, or 1 where it is above 0."""


@dataclass(frozen=True, slots=True)
class Earned:
    """What one evaluation's episodes earned.

    Fields: the run's folder without its seed, the seed, how the model's weights were held, the stage, the split, greedy
    or the reference's name, the rubric's identity, and the reward of each page's episodes by their number in the split.
    """

    arm: str
    seed: int
    dtype: str
    stage: str
    split: str
    mode: str
    rubric: str
    rewards: Mapping[str, Mapping[str, float]]

    def episodes(self, page: str | None = None) -> Episodes:
        """The rewards, of one page or of all."""
        pages = self.rewards if page is None else {page: self.rewards.get(page, {})}
        return {f"{name} {number}": reward for name, each in pages.items() for number, reward in each.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="keep what the episodes of runs earned")
    record.add_argument("runs", type=Path, nargs="+")
    tables = commands.add_parser("tables", help="the page of tables, of what is kept")
    tables.add_argument("--out", type=Path, help="a Markdown file; left out: the terminal")
    given = parser.parse_args()
    try:
        kept = read_kept(KEPT) if KEPT.is_file() else []
        if given.command == "record":
            for folder in given.runs:
                kept = with_run(kept, Run.read(folder))
            write_text(KEPT, "".join(dumps(asdict(one)) + "\n" for one in kept))
        elif given.out is None:
            print(written(kept))
        else:
            write_text(given.out, written(kept))
    except PlumblineError as error:
        sys.exit(f"error: {error}")


def read_kept(path: Path) -> list[Earned]:
    """What is kept.

    Raises:
        DataError: a row is none of ours.
    """
    kept = []
    for number, row in read_jsonl(path):
        try:
            kept.append(Earned(**row))
        except TypeError as error:
            raise DataError(f"{path}:{number}: {error}", "take the row out, and record its run again") from error
    return kept


def with_run(kept: Sequence[Earned], run: Run) -> list[Earned]:
    """What is kept, with a run's evaluations in the place of what was kept of the same arm and seed.

    Controls and the oracle do not depend on a run's seed and are kept once.

    Raises:
        DataError: the run is not finished.
    """
    if run.result() is None:
        raise DataError(f"{run.folder} is not finished", "go on with it: plumbline run ... --resume")
    arm, seed = re.sub(r"-seed\d+$", "", run.folder.name), run.recipe.seed
    found = [
        earned(arm, seed, run.recipe.model.dtype, key, one)
        for key, one in sorted(run.evaluations().items())
        if key.step is None and key.split != "val"
    ]
    mine = [one for one in found if one.stage != REFERENCE]
    others = [one for one in kept if one.stage != REFERENCE and (one.arm, one.seed) != (arm, seed)]
    references = {(one.split, one.mode): one for one in (*kept, *found) if one.stage == REFERENCE}
    runs = sorted([*others, *mine], key=lambda one: (one.arm, one.seed, one.stage, one.split))
    return [*references.values(), *runs]


def earned(arm: str, seed: int, dtype: str, key: EvaluationKey, evaluation: Evaluation) -> Earned:
    rewards: dict[str, dict[str, float]] = {}
    for row in evaluation.rows:
        if bool(row.parts["success"]) != (row.reward > 0):
            raise DataError(f"{row.id} earned {row.reward}, and its success is {row.parts['success']}")
        rewards.setdefault(row.stratum, {})[row.id.rpartition("-")[2]] = round(row.reward, 4)
    whose = ("", 0, "") if key.stage == REFERENCE else (arm, seed, dtype)
    return Earned(*whose, key.stage, key.split, key.mode, evaluation.rubric, rewards)


def written(kept: Sequence[Earned]) -> str:
    """The page of what is kept.

    Raises:
        DataError: it is of several rubrics.
    """
    if len(rubrics := {one.rubric for one in kept}) > 1:
        raise DataError(f"the runs are of several rubrics: {', '.join(sorted(rubrics))}", "record runs of one")
    text = """# MiniWoB++ by seed and by page

Written by `python -m experiments.miniwob_pages tables`: greedy answers of the model, of which [miniwob.md](miniwob.md)
tells, and what the controls and the oracle earn on the same episodes. Intervals are of 95 %: over episodes, and with
several seeds over these as well. A change is that from the same seed's SFT, episode by episode.
"""
    for split in dict.fromkeys(one.split for one in kept if one.stage == "rl"):
        there = [one for one in kept if one.split == split and (one.stage == REFERENCE or one.mode == "greedy")]
        tables = overall(split, there), by_seed(split, there), by_page(split, there)
        text += f"\n## {split}\n\n" + "\n".join(one.to_markdown() for one in tables)
    return text


def overall(split: str, kept: Sequence[Earned]) -> Table:
    """A row for each stage of an arm, each control and the oracle, over all pages."""
    columns = (
        *(Column("source", "all pages"), Column("seeds", "seeds", "count"), Column("n", "n", "count")),
        *(Column("success", "success", "interval"), Column("success_change", "change", "change")),
        *(Column("reward", "reward", "interval"), Column("reward_change", "change", "change")),
    )
    rows = []
    for arm, told in ARMS.items():
        for stage, name in STAGES.items():
            if mine := of(kept, arm, stage):
                starts = of(kept, next(iter(ARMS)), "sft") if stage == "rl" else {}
                rows.append(Row((name + told, len(mine), counted(mine), *cells(mine, starts))))
    for one in sorted(references(kept), key=lambda one: (one.mode == ORACLE, one.mode)):
        rows.append(Row((one.mode, None, len(one.episodes()), *cells({0: one}, {})), "reference"))
    return Table(f"all-{split}", f"Success and reward on {split} [95 % interval]", columns, tuple(rows))


def by_seed(split: str, kept: Sequence[Earned]) -> Table:
    """A row for each seed of an arm."""
    columns = (
        *(Column("arm", "arm"), Column("seed", "seed"), Column("dtype", "weights"), Column("n", "n", "count")),
        *(Column("before", "SFT: success", "interval"), Column("after", "GRPO: success", "interval")),
        *(Column("change", "change", "change"), Column("reward", "change of reward", "change")),
    )
    starts = of(kept, next(iter(ARMS)), "sft")
    rows = []
    for arm, told in ARMS.items():
        for seed, one in of(kept, arm, "rl").items():
            start = {seed: starts[seed]} if seed in starts else {}
            before = cells(start, {})[0] if start else None
            success, change, _, reward = cells({seed: one}, start)
            name = "GRPO" + told
            rows.append(Row((name, str(seed), one.dtype, len(one.episodes()), before, success, change, reward)))
    return Table(f"seeds-{split}", f"{split} by seed", columns, tuple(rows))


def cells(mine: Mapping[int, Earned], starts: Mapping[int, Earned]) -> list[Interval | None]:
    """Success, its change, the reward, its change: over all seeds."""
    found: list[Interval | None] = []
    for value in (successes, lambda episodes: episodes):
        after = {seed: value(one.episodes()) for seed, one in mine.items()}
        before = {seed: value(one.episodes()) for seed, one in starts.items()}
        found.append(share({seed: [*one.values()] for seed, one in after.items()}))
        found.append(over_seeds({seed: matched(one, before[seed]) for seed, one in after.items() if seed in before}))
    return found


def successes(episodes: Episodes) -> Episodes:
    return {name: float(reward > 0) for name, reward in episodes.items()}


def by_page(split: str, kept: Sequence[Earned]) -> Table:
    """A row for each page, the best first, over all seeds of the first arm."""
    stages = {name: of(kept, next(iter(ARMS)), stage) for stage, name in STAGES.items()}
    stages = {name: runs for name, runs in stages.items() if runs}
    last = [*stages.values()][-1]
    pages = sorted({page for one in last.values() for page in one.rewards})
    controls = {one.mode: {0: one} for one in references(kept) if one.mode != ORACLE}
    columns = [Column("page", "page"), Column("n", "n", "count"), Column("control", "best control")]
    columns += [Column(stage, stage, "number", 2) for stage in stages]
    rows = []
    for page in sorted(pages, key=lambda page: (-succeeds(last, page), page)):
        best = max(controls, key=lambda name: succeeds(controls[name], page))
        floor = succeeds(controls[best], page)
        told = f"{floor:.2f} {best}" if floor else "0"
        count = sum(len(one.rewards.get(page, {})) for one in last.values())
        rows.append(Row((page, count, told, *(succeeds(runs, page) for runs in stages.values()))))
    return Table(f"pages-{split}", f"Success on {split} by page", tuple(columns), tuple(rows))


def of(kept: Sequence[Earned], arm: str, stage: str) -> dict[int, Earned]:
    """An arm's evaluations of a stage, by seed."""
    return {one.seed: one for one in kept if (one.arm, one.stage) == (arm, stage)}


def references(kept: Sequence[Earned]) -> list[Earned]:
    return [one for one in kept if one.stage == REFERENCE]


def counted(runs: Mapping[int, Earned]) -> int:
    return sum(len(one.episodes()) for one in runs.values())


def succeeds(runs: Mapping[int, Earned], page: str) -> float:
    """The share of a page's episodes that succeed; 0 without any."""
    found = [reward > 0 for one in runs.values() for reward in one.episodes(page).values()]
    return sum(found) / len(found) if found else 0.0


if __name__ == "__main__":
    main()
