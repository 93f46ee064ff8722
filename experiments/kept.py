"""What each answer of a run earned, kept, so that tables can be of seeds that were trained on
several machines.

    plumbline run miniwob-smollm2 --set seed=1 --out runs/miniwob-smollm2-seed1
    python -m experiments.kept record runs/miniwob-smollm2-seed1
    python -m experiments.kept tables                              # kept_rewards/miniwob-pages.md, forms-seeds.md

A run's folder is named after its arm and seed (`ARM-seedN`; seed 0 may go without), and its recipe
is the arm's but for the seed, how its weights are held and what changes no result. A table has the
seeds of an arm together, each alone, and each page or form, with what baselines and the oracle earn
on the same examples.
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
from plumbline.recipe import load_recipe
from plumbline.records import Evaluation
from plumbline.reports.table_formats import Column, Row, Table
from plumbline.runs.evaluations import REFERENCE, EvaluationKey
from plumbline.runs.lineage import changes_beside_seed
from plumbline.runs.record import RunRecord
from plumbline.storage import dumps, read_jsonl, write_text

HERE = Path(__file__).parent
REWARDS = HERE / "kept_rewards"
STAGES = {"base": "untrained", "sft": "SFT", "rl": "GRPO"}
Values = Mapping[str, float]
"""By example: a reward, or whether it is right."""


@dataclass(frozen=True, slots=True)
class Arm:
    """How an arm's stages are called apart from the first's, and what it sets over the first's
    recipe."""

    told: str = ""
    over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A document of tables, of one task.

    Fields: its file in kept_rewards/, its title, the page of docs/research/ that describes it, the
    part of the score that says that an answer is right, what that is called, what a stratum is, and
    the arms, which are the first one's recipe with what they set over it; all start from the
    first's SFT.
    """

    file: str
    title: str
    told_in: str
    part: str
    right: str
    stratum: str
    arms: Mapping[str, Arm]


SHUFFLED = Arm(", shuffled advantages", ("controls.shuffle_advantages=true",))
PAGES = {
    "miniwob": Page(
        "miniwob-pages.md",
        "MiniWoB++ by seed and by page",
        "miniwob.md",
        *("success", "success", "page"),
        {
            "miniwob-smollm2": Arm(),
            "miniwob-smollm2-long": Arm(
                ", 260 steps of 16 x 8", ("rl.steps=260", "rl.prompts_per_step=16")
            ),
            "miniwob-smollm2-control": SHUFFLED,
        },
    ),
    "forms": Page(
        "forms-seeds.md",
        "Forms never seen, by seed and by form",
        "forms-results.md",
        *("exact", "exact form", "form"),
        {
            "forms-smollm2": Arm(),
            "forms-smollm2-attempts": Arm(", two attempts", ("task.options.attempts=2",)),
            "forms-smollm2-control": SHUFFLED,
        },
    ),
}


@dataclass(frozen=True, slots=True)
class Earned:
    """What one evaluation's answers earned.

    Fields: the run's folder without its seed, the seed, how the model's weights were held, the
    stage, the split, greedy or the reference's name, the rubric's identity; by stratum the reward
    of each example, by its number in the split, and the numbers of those that are right.
    """

    arm: str
    seed: int
    dtype: str
    stage: str
    split: str
    mode: str
    rubric: str
    rewards: Mapping[str, Mapping[str, float]]
    right: Mapping[str, Sequence[str]]

    def earned(self) -> Values:
        """Every example's reward."""
        return {
            f"{name} {number}": reward
            for name, each in self.rewards.items()
            for number, reward in each.items()
        }

    def successes(self, stratum: str | None = None) -> Values:
        """1 for every example that is right, else 0; of one stratum or of all."""
        names = self.rewards if stratum is None else [stratum]
        return {
            f"{name} {number}": float(number in self.right.get(name, ()))
            for name in names
            for number in self.rewards.get(name, {})
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="keep what the answers of runs earned")
    record.add_argument("runs", type=Path, nargs="+")
    tables = commands.add_parser("tables", help="write the pages of tables, of what is kept")
    tables.add_argument("--out", type=Path, default=REWARDS, help="a folder")
    given = parser.parse_args()
    try:
        for folder in given.runs if given.command == "record" else ():
            run = RunRecord.read(folder)
            path = REWARDS / f"{run.recipe.each_task[''].name}.jsonl"
            kept = with_run(read_kept(path) if path.is_file() else [], run)
            write_text(path, "".join(dumps(asdict(one)) + "\n" for one in kept))
            print(path)
        for path in sorted(REWARDS.glob("*.jsonl")) if given.command == "tables" else ():
            page = PAGES[path.stem]
            write_text(given.out / page.file, written(page, read_kept(path)))
            print(given.out / page.file)
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
            raise DataError(
                f"{path}:{number}: {error}", "take the row out, and record its run again"
            ) from error
    return kept


def with_run(kept: Sequence[Earned], run: RunRecord) -> list[Earned]:
    """What is kept, with a run's evaluations in the place of what was kept of the same arm and
    seed.

    Baselines and the oracle do not depend on a run's seed and are kept once.

    Raises:
        DataError: the run is not finished, of no arm that there are tables of, or of another recipe
            than its arm.
    """
    if run.result() is None:
        raise DataError(
            f"{run.folder} is not finished", "go on with it: plumbline run ... --resume"
        )
    arm, seed, task = (
        re.sub(r"-seed\d+$", "", run.folder.name),
        run.recipe.seed,
        run.recipe.each_task[""].name,
    )
    if task not in PAGES or arm not in PAGES[task].arms:
        arms = [name for page in PAGES.values() for name in page.arms]
        raise DataError(
            f"{run.folder} is of no arm that there are tables of ({', '.join(arms)})",
            "name its folder ARM-seedN",
        )
    refuse_another_recipe(run, arm, PAGES[task])
    found = [
        earned(arm, seed, run.recipe.model.dtype, key, one, PAGES[task].part)
        for key, one in sorted(run.evaluations().items())
        if key.step is None and key.split != "val"
    ]
    mine = [one for one in found if one.stage != REFERENCE]
    others = [one for one in kept if one.stage != REFERENCE and (one.arm, one.seed) != (arm, seed)]
    references = {(one.split, one.mode): one for one in (*kept, *found) if one.stage == REFERENCE}
    runs = sorted([*others, *mine], key=lambda one: (one.arm, one.seed, one.stage, one.split))
    return [*references.values(), *runs]


def refuse_another_recipe(run: RunRecord, arm: str, page: Page) -> None:
    """Look whether a run's recipe is its arm's; a stage that it goes without may be another run's.

    Raises:
        DataError: something differs that changes results.
    """
    model = run.recipe.model
    absent = [f"{stage}=null" for stage in ("sft", "rl") if getattr(run.recipe, stage) is None]
    here = (*absent, f"model.name={model.name}", f"model.dtype={model.dtype}")
    if changes := changes_beside_seed(
        load_recipe(next(iter(page.arms)), (*page.arms[arm].over, *here)), run.recipe
    ):
        raise DataError(
            f"{run.folder} is another recipe than {arm} ({'; '.join(map(str, changes[:4]))})",
            "name its folder after its own arm, or run it again with the arm's recipe",
        )


def earned(
    arm: str, seed: int, dtype: str, key: EvaluationKey, evaluation: Evaluation, part: str
) -> Earned:
    rewards: dict[str, dict[str, float]] = {}
    right: dict[str, list[str]] = {}
    for row in evaluation.rows:
        number = row.id.rpartition("-")[2]
        rewards.setdefault(row.stratum, {})[number] = round(row.reward, 4)
        if row.parts[part]:
            right.setdefault(row.stratum, []).append(number)
    whose = ("", 0, "") if key.stage == REFERENCE else (arm, seed, dtype)
    return Earned(*whose, key.stage, key.split, key.mode, evaluation.rubric, rewards, right)


def written(page: Page, kept: Sequence[Earned]) -> str:
    """The page of what is kept.

    Raises:
        DataError: it is of several rubrics.
    """
    if len(rubrics := {one.rubric for one in kept}) > 1:
        raise DataError(
            f"the runs are of several rubrics: {', '.join(sorted(rubrics))}", "record runs of one"
        )
    text = f"""# {page.title}

Written by `python -m experiments.kept tables`: greedy answers of the model of
[{page.told_in}](../../docs/research/{page.told_in}), and what the baselines and the oracle earn on the same examples.
Intervals are of 95 %: over {page.stratum}s, whose examples are alike, and with several seeds over these as well. A
change is that from the same seed's SFT, example by example.
"""
    for split in dict.fromkeys(one.split for one in kept if one.stage == "sft"):
        there = [
            one
            for one in kept
            if one.split == split and (one.stage == REFERENCE or one.mode == "greedy")
        ]
        tables = (
            overall(page, split, there),
            by_seed(page, split, there),
            by_stratum(page, split, there),
        )
        text += f"\n## {split}\n\n" + "\n".join(one.to_markdown() for one in tables)
    return text


def overall(page: Page, split: str, kept: Sequence[Earned]) -> Table:
    """A row for each stage of an arm, each baseline and the oracle, over all strata."""
    columns = (
        *(
            Column("source", f"all {page.stratum}s"),
            Column("seeds", "seeds", "count"),
            Column("n", "n", "count"),
        ),
        *(Column("right", page.right, "interval"), Column("right_change", "change", "change")),
        *(Column("reward", "reward", "interval"), Column("reward_change", "change", "change")),
    )
    rows = []
    starts = of(kept, next(iter(page.arms)), "sft")
    for arm, its in page.arms.items():
        for stage, name in STAGES.items():
            if mine := of(kept, arm, stage):
                before = starts if stage == "rl" else {}
                rows.append(Row((name + its.told, len(mine), counted(mine), *cells(mine, before))))
    for one in sorted(references(kept), key=lambda one: (one.mode == ORACLE, one.mode)):
        rows.append(Row((one.mode, None, len(one.earned()), *cells({0: one}, {})), "reference"))
    return Table(
        f"all-{split}", f"{page.right.capitalize()} and reward on {split}", columns, tuple(rows)
    )


def by_seed(page: Page, split: str, kept: Sequence[Earned]) -> Table:
    """A row for each seed's SFT, and each seed of an arm of GRPO."""
    columns = (
        *(
            Column("arm", "stage"),
            Column("seed", "seed"),
            Column("dtype", "weights"),
            Column("n", "n", "count"),
        ),
        *(Column("right", page.right, "interval"), Column("change", "change", "change")),
        *(Column("reward", "reward", "interval"), Column("reward_change", "change", "change")),
    )
    starts = of(kept, next(iter(page.arms)), "sft")
    rows = []
    for stage, arms in (("sft", [next(iter(page.arms))]), ("rl", page.arms)):
        for arm in arms:
            for seed, one in of(kept, arm, stage).items():
                before = {seed: starts[seed]} if stage == "rl" and seed in starts else {}
                name = STAGES[stage] + page.arms[arm].told
                rows.append(
                    Row(
                        (name, str(seed), one.dtype, len(one.earned()), *cells({seed: one}, before))
                    )
                )
    return Table(f"seeds-{split}", f"{split} by seed", columns, tuple(rows))


def cells(mine: Mapping[int, Earned], starts: Mapping[int, Earned]) -> list[Interval | None]:
    """What is right, its change, the reward, its change: over all seeds, by strata (pages, forms)
    as clusters."""
    found: list[Interval | None] = []
    for value in (Earned.successes, Earned.earned):
        after = {seed: value(one) for seed, one in mine.items()}
        before = {seed: value(one) for seed, one in starts.items()}
        strata = [name.rpartition(" ")[0] for name in next(iter(after.values()))]
        found.append(share({seed: [*one.values()] for seed, one in after.items()}, strata))
        changes = {
            seed: matched(one, before[seed]) for seed, one in after.items() if seed in before
        }
        found.append(over_seeds(changes, strata))
    return found


def by_stratum(page: Page, split: str, kept: Sequence[Earned]) -> Table:
    """A row for each page or form, the best first, over all seeds of the first arm."""
    stages = {name: of(kept, next(iter(page.arms)), stage) for stage, name in STAGES.items()}
    stages = {name: runs for name, runs in stages.items() if runs}
    last = [*stages.values()][-1]
    strata = sorted({stratum for one in last.values() for stratum in one.rewards})
    baselines = {one.mode: {0: one} for one in references(kept) if one.mode != ORACLE}
    columns = [
        Column("stratum", page.stratum),
        Column("n", "n", "count"),
        Column("baseline", "best baseline"),
    ]
    columns += [Column(stage, stage, "number", 2) for stage in stages]
    rows = []
    for stratum in sorted(strata, key=lambda stratum: (-succeeds(last, stratum), stratum)):
        best = max(baselines, key=lambda name: succeeds(baselines[name], stratum))
        floor = succeeds(baselines[best], stratum)
        told = f"{floor:.2f} {best}" if floor else "0"
        count = sum(len(one.rewards.get(stratum, {})) for one in last.values())
        rows.append(
            Row((stratum, count, told, *(succeeds(runs, stratum) for runs in stages.values())))
        )
    title = f"{page.right.capitalize()} on {split} by {page.stratum}"
    return Table(f"{page.stratum}s-{split}", title, tuple(columns), tuple(rows))


def of(kept: Sequence[Earned], arm: str, stage: str) -> dict[int, Earned]:
    """An arm's evaluations of a stage, by seed."""
    return {one.seed: one for one in kept if (one.arm, one.stage) == (arm, stage)}


def references(kept: Sequence[Earned]) -> list[Earned]:
    return [one for one in kept if one.stage == REFERENCE]


def counted(runs: Mapping[int, Earned]) -> int:
    return sum(len(one.earned()) for one in runs.values())


def succeeds(runs: Mapping[int, Earned], stratum: str) -> float:
    """The share of a stratum's examples that are right; 0 without any."""
    found = [value for one in runs.values() for value in one.successes(stratum).values()]
    return sum(found) / len(found) if found else 0.0


if __name__ == "__main__":
    main()
