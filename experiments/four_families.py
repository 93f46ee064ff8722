"""One backbone, four families: SmolLM2-135M under equal budgets of processor-seconds, and a flow
over a long run.

    plumbline get smollm2-135m
    python -m experiments.four_families run extraction --seeds 0 1 2        # all arms; goes on where it was stopped
    python -m experiments.four_families run extraction --only masked masked-just --seconds 900 --n 150
    python -m experiments.four_families run forms --seeds 0
    python -m experiments.four_families long --seeds 0 1 2                  # one tiny flow, 2,000 steps of GRPO
    python -m experiments.four_families tables                              # into experiments/four-families/tables/

The arms are data: four_families.yaml says what they set over four-families/. An arm begins with its
family's SFT model of the same seed, which is trained first where it is not there. What is finished
is not done again; a run that was killed goes on from its last checkpoint. Arms are evaluated on the
same examples, with floor and ceiling beside.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import yaml

from experiments.four_families_tables import write_tables
from plumbline.api import sample_trajectories
from plumbline.errors import PlumblineError
from plumbline.evaluation.evaluate import Conditions, evaluate_policy, evaluate_references
from plumbline.policies import open_policy
from plumbline.policies.options import model_section
from plumbline.recipe import Recipe, load_recipe
from plumbline.records import Example, Trajectory
from plumbline.runs.evaluations import REFERENCE, EvaluationKey, read_evaluation, write_evaluation
from plumbline.runs.observers import LiveView
from plumbline.runs.record import RunRecord
from plumbline.seeds import derive
from plumbline.storage import read_object, write_json
from plumbline.tasks import open_task
from plumbline.training.pipeline import run_recipe

HERE = Path(__file__).parent
RECIPES = HERE / "four-families"
COUNTED = 16
"""Prompts on which the forward passes of an answer are counted."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line says of every arm."""

    runs: Path
    n: int
    over: tuple[str, ...]
    """Keys that are set for starts and arms alike, `a.b=value`."""
    seconds: float | None = None
    rl_seconds: float | None = None
    model: str | None = None

    def but(self, part: str) -> list[str]:
        """The keys that are set, less those of a stage that a run does not have."""
        return [one for one in self.over if not one.startswith(part)]

    def say(self, what: str) -> None:
        """A line of progress, on the terminal and in the folder's log."""
        line = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {what}"
        print(line, file=sys.stderr, flush=True)
        self.runs.mkdir(parents=True, exist_ok=True)
        with (self.runs / "progress.log").open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def main(words: Sequence[str] | None = None) -> None:
    known = declared()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser(
        "run", help="train and evaluate the arms of a task, or go on with them"
    )
    run.add_argument("task", choices=list(known["tasks"]))
    run.add_argument("--only", nargs="+", metavar="ARM", help=f"of {', '.join(known['arms'])}")
    run.add_argument(
        "--seconds",
        type=float,
        help="processor-seconds of SFT and, unless --rl-seconds says, of GRPO",
    )
    run.add_argument("--rl-seconds", type=float)
    run.add_argument(
        "--n", type=int, default=300, help="examples of each split that arms are evaluated on"
    )
    run.add_argument("--model", help="another backbone than the recipes'")
    long = commands.add_parser("long", help="one tiny flow for many steps of GRPO")
    for one in (run, long):
        one.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
        one.add_argument(
            "--set", nargs="*", default=[], metavar="KEY=VALUE", help="of every recipe"
        )
    tables = commands.add_parser("tables", help="write the tables from what the runs recorded")
    tables.add_argument(
        "--out", type=Path, default=HERE / "four-families" / "tables", help="a folder"
    )
    for one in (run, long, tables):
        one.add_argument("--runs", type=Path, default=Path("runs/four-families"))
    given = parser.parse_args(words)
    if given.command == "tables":
        if not (made := write_tables(given.runs, known, given.out)):
            sys.exit(
                f"no finished run in {given.runs}\n  fix: give the folder of the runs with --runs, "
                "or run some first"
            )
        print(*made, sep="\n")
        return
    if given.command == "long":
        sys.exit(run_long(known["long"], given.seeds, Plan(given.runs, 0, tuple(given.set))))
    if strange := [name for name in given.only or [] if name not in known["arms"]]:
        sys.exit(f"no arm {', '.join(strange)}; there are {', '.join(known['arms'])}")
    plan = Plan(
        given.runs,
        given.n,
        tuple(given.set),
        given.seconds,
        given.rl_seconds or given.seconds,
        given.model,
    )
    failed = False
    for seed in given.seeds:
        for name in given.only or known["arms"]:
            try:
                run_arm(known, given.task, name, seed, plan)
            except PlumblineError as error:  # the others go on
                failed = True
                plan.say(f"{given.task} {name} seed {seed}: {error}")
    sys.exit(int(failed))


def declared() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(
        (HERE / "four_families.yaml").read_text(encoding="utf-8")
    )
    return values


def run_arm(known: Mapping[str, Any], task: str, name: str, seed: int, plan: Plan) -> None:
    """Train an arm, its start first, and evaluate both."""
    arm, splits = known["arms"][name], known["tasks"][task]["splits"]
    start_folder = plan.runs / f"{task}-sft-{arm['start']}-seed{seed}"
    start = train(start_recipe(task, known["starts"][arm["start"]], seed, plan), start_folder, plan)
    evaluate(start, "sft", splits, plan, start.recipe)
    run = train(
        arm_recipe(task, known, name, start, plan), plan.runs / f"{task}-{name}-seed{seed}", plan
    )
    few = replace(plan, n=min(plan.n, arm.get("few", plan.n)))
    evaluate(run, "rl", splits, few, run.recipe)
    if arm.get("sampling") == "start":
        evaluate(run, "rl", splits, plan, start.recipe, "-by-start")


def start_recipe(task: str, start: Mapping[str, Any], seed: int, plan: Plan) -> Recipe:
    """SFT alone; the evaluations after it are made here."""
    own = {**start.get("set", {}), "seed": seed, "rl": None, "evaluation.final": []}
    own |= {"model.name": plan.model} if plan.model else {}
    own |= {"sft.seconds": plan.seconds} if plan.seconds else {}
    return load_recipe(RECIPES / f"{task}{start['recipe']}.yaml", [*plan.but("rl."), *written(own)])


def arm_recipe(
    task: str, known: Mapping[str, Any], name: str, start: RunRecord, plan: Plan
) -> Recipe:
    """GRPO alone, from a start's model."""
    arm, places = known["arms"][name], start.recipe.sampling.max_tokens
    begun = known["starts"][arm["start"]]
    own = {
        **begun.get("set", {}),
        "name": f"four-families-{task}-{name}",
        "seed": start.recipe.seed,
        "sft": None,
        "evaluation.final": [],
        "model.name": str(start.model("sft")),
        **{
            key: places if value == "PLACES" else value for key, value in arm.get("set", {}).items()
        },
    }
    own |= {"rl.seconds": plan.rl_seconds} if plan.rl_seconds else {}
    return load_recipe(
        RECIPES / f"{task}{begun['recipe']}.yaml", [*plan.but("sft."), *written(own)]
    )


def written(values: Mapping[str, Any]) -> list[str]:
    return [
        f"{key}={yaml.safe_dump(value, default_flow_style=True).strip()}"
        for key, value in values.items()
    ]


def train(recipe: Recipe, folder: Path, plan: Plan) -> RunRecord:
    """A finished run of a recipe; taken as it is where it is there, gone on with where it was
    stopped.

    Raises:
        PlumblineError: the folder holds a run of another recipe, or the run fails.
    """
    if (folder / "recipe.yaml").is_file():
        run = RunRecord.read(folder)
        if run.recipe.identity() != recipe.identity():
            raise PlumblineError(
                f"{folder} holds a run of other settings (seconds, --set or --model)",
                "give another --runs",
            )
        if run.result() is not None:
            return run
    began = time.process_time()
    plan.say(
        f"{folder.name}: begins"
        if not (folder / "recipe.yaml").is_file()
        else f"{folder.name}: goes on"
    )
    run = run_recipe(
        recipe, folder, resume=(folder / "recipe.yaml").is_file(), observers=[LiveView()]
    )
    plan.say(
        f"{folder.name}: trained, {time.process_time() - began:.0f} processor-seconds with loading "
        "and saving"
    )
    return run


# -- evaluations -----------------------------------------------------------------------------------


def evaluate(
    run: RunRecord, stage: str, splits: Sequence[str], plan: Plan, by: Recipe, suffix: str = ""
) -> None:
    """Evaluate a stage's model greedily and as it was trained to sample, with the references
    beside.

    Args:
        run: where evaluations go, and `measured.json` with what they cost.
        stage: whose model.
        splits: of the task.
        plan: says how many examples.
        by: the recipe whose sampling is used.
        suffix: of the modes' names, where that is not the run's own.
    """
    section = run.recipe.each_task[""]
    task = open_task(section.name, section.options, run.folder / "data")
    path = run.folder / "measured.json"
    measured = read_object(path) if path.is_file() else {}
    policy = None
    for split in splits:
        examples = spread(task.examples(split), plan.n)
        for name, one in evaluate_references(task, examples, split).items():
            write_evaluation(place(run, EvaluationKey(REFERENCE, split, name)), one)
        for mode, sampling in (("greedy", by.sampling.as_greedy()), ("sampled", by.sampling)):
            key = EvaluationKey(stage, split, mode + suffix)
            if str(key) in measured and is_of(place(run, key), examples):
                continue
            policy = policy or open_policy(model_section(run.recipe), str(run.model(stage)))
            seed = derive(run.recipe.seed, "evaluation", split, mode)
            under = Conditions(
                source=f"{run.folder.name} {stage}", split=split, sampling=sampling, seed=seed
            )
            began = time.process_time()
            found = evaluate_policy(policy, task, examples, under)
            spent = time.process_time() - began
            write_evaluation(place(run, key), found)
            few = sample_trajectories(
                policy, [one.messages for one in examples[:COUNTED]], 1, sampling, seed
            )
            measured[str(key)] = {
                "seconds": spent,
                "tokens": sum(row.tokens or 0 for row in found.rows),
                "passes": passes(few, run.recipe),
            }
            write_json(path, measured)
            n = len(found.rows)
            plan.say(
                f"{run.folder.name}: {key} {found.mean_reward:.3f}, n = {n}, {spent:.0f} "
                "processor-seconds"
            )


def place(run: RunRecord, key: EvaluationKey) -> Path:
    (run.folder / "evaluations").mkdir(exist_ok=True)
    return run.folder / "evaluations" / f"{key}.json"


def is_of(path: Path, examples: Sequence[Example]) -> bool:
    """Whether a stored evaluation is of these examples."""
    if not path.is_file():
        return False
    stored = read_evaluation(path)
    return {row.id for row in (*stored.rows, *stored.unjudged)} == {
        example.id for example in examples
    }


def spread(examples: Sequence[Example], n: int) -> list[Example]:
    """At most n of them, evenly over their order."""
    n = min(n, len(examples))
    return [examples[index * len(examples) // n] for index in range(n)]


def passes(drawn: Sequence[Sequence[Trajectory]], recipe: Recipe) -> float:
    """Forward passes that an answer takes, one after the other, on average; that of the prompt is
    none of them.

    A token each for a causal model, a step each for a canvas, and for slots a round's tokens of one
    slot.
    """
    slot = getattr(recipe.model, "slot", None)
    counts = [
        len(one.tokens)
        if recipe.model.family == "autoregressive"
        else len(one.transitions) * (slot or 1)
        for copies in drawn
        for one in copies
    ]
    return float(np.mean(counts))


# -- a long run ------------------------------------------------------------------------------------


def run_long(known: Mapping[str, Any], seeds: Sequence[int], plan: Plan) -> int:
    """One tiny flow for many steps, from a model of each seed's own; how many failed."""
    failed = 0
    for seed in seeds:
        recipe = load_recipe(known["recipe"], [*written(known["set"] | {"seed": seed}), *plan.over])
        try:
            train(recipe, plan.runs / f"long-seed{seed}", plan)
        except PlumblineError as error:
            failed += 1
            plan.say(f"long seed {seed}: {error}")
    return failed


if __name__ == "__main__":
    main()
