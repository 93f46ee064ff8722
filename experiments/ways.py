"""Which way makes a small model better: arms at equal processor-seconds from a published model, and
their controls.

    plumbline get smollm2-135m; plumbline get qwen2.5-coder-0.5b
    python experiments/ways.py run strict-json sft grpo --seed 0   # a row to ways.jsonl as an arm ends; resumes
    python experiments/ways.py run strict-json all --seed 0 1 2 --start 300 --seconds 600    # after a little SFT
    python experiments/ways.py table strict-json --start 300 --seconds 600                   # as in docs/which-way.md
    python experiments/ways.py run strict-json nothing --model qwen2.5-coder-0.5b           # without gold answers
    python experiments/ways.py table strict-json --model qwen2.5-coder-0.5b
    python experiments/ways.py figure docs/which-way.svg --start 300 --seconds 600
    python experiments/ways.py figure docs/from-nothing.svg --model qwen2.5-coder-0.5b smollm2-135m
    python experiments/ways.py reach strict-json --model qwen2.5-coder-0.5b    # what its answers offer to learn from
    python experiments/ways.py parses strict-json                  # what "it parses" accepts and the verifier does not

The arms are the recipes strict-json-*, with another task where it is asked for. All are trained for
as many processor-seconds, whatever steps their recipe says, and asked the same held-out prompts,
greedily and sampled; arms of one seed begin with the same prompts in the same order. With `--start`
they begin from what so many processor-seconds of SFT made, which is run first, and go through the
prompts in another order than it did.
"""

import argparse
import os
import re
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np

from plumbline.config.imports import trust
from plumbline.evaluation.comparison import judged_pairs
from plumbline.evaluation.statistics import holm, paired_difference, rate_interval
from plumbline.recipe import load_recipe
from plumbline.records import Evaluation, clusters_of
from plumbline.reports.charts import Scale, spread_labels, ticks
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.observers import LiveView
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run
from plumbline.storage import read_jsonl, write_jsonl
from plumbline.tasks import open_task
from plumbline.training.pilot import PROMPTS, PilotFigures, judge_right, measure_answers
from plumbline.training.pipeline import run_recipe
from plumbline.training.stage_evaluations import evaluation_modes

ROWS = Path(__file__).parent / "ways.jsonl"
WAYS = {
    "sft": "SFT on gold answers",
    "rft": "rejection sampling, best of 8",
    "expert-iteration": "expert iteration",
    "grpo": "GRPO",
    "dynamic": "GRPO, dynamic sampling",
    "dpo": "DPO, best against worst of 8",
    "self-distillation": "self-distillation, told the gold answer",
    "distillation": "on-policy distillation from what SFT made",
    "unverified": "control: SFT on own answers, unchecked",
    "control": "control: GRPO, shuffled advantages",
}
RECIPES = {"grpo": "strict-json", "dynamic": "strict-json"}
"""Of arms whose recipe is not called by their name."""
NOTHING = ("expert-iteration", "grpo", "dynamic", "dpo", "unverified", "control")
"""The arms that need no gold answer, and their controls."""
MODELS = ("smollm2-135m", "qwen2.5-coder-0.5b")
SHOP = (
    "task.name=commerce",
    "task.options={{job: {0}, orders: 8000, {0}: 1600, instructions: {1}}}",
    "sampling.max_tokens={2}",
    "rl.prompts_per_step=8",
)
FOLDER = Path("runs/ways")
TICKETS = FOLDER / "data" / "tickets"
"""The rows and the reward function of docs/your-task.md."""
THREE = "sentiment, complaint_category, would_recommend"
TEAM = "Answer with the name of the team alone: shipping, billing, returns or account."
TICKET = (
    f"train: {TICKETS}/tickets.jsonl, test: 0.25, prompt: ticket, gold: team, system: '{TEAM}', "
    f"score: '{TICKETS}/my_task.py:score', weights: {{right: 4, brief: 1}}"
)
ASK = "size: 2000, test: 0.2, system: Answer with the answer alone."
GYM = {"letter_counting": "", "chain_sum": ", config: {max_terms: 2, max_digits: 2}"}
TASKS = {
    "strict-json": (),
    "short-answers": ("task.name=short-answers", "sampling.max_tokens=16"),
    **{
        f"shop-{name}-{length}": tuple(each.format(job, length, tokens) for each in SHOP)
        for name, job, tokens in (("sql", "sql_qa", 144), ("extraction", "extraction", 120))
        for length in ("short", "full")
    },
    "extraction-three": (
        "task.name=commerce",
        f"task.options={{job: extraction, orders: 8000, extraction: 1600, keys: [{THREE}]}}",
        "sampling.max_tokens=64",
    ),
    **{
        name: (
            "task.name=reasoning_gym",
            f"task.options={{dataset: {name}, {ASK}{config}}}",
            "sampling.max_tokens=32",
        )
        for name, config in GYM.items()
    },
    "tickets": (
        "task.name=jsonl",
        f"task.options={{{TICKET}}}",
        "sampling.max_tokens=16",
    ),
}
"""Tasks, and what all their arms set over the recipes of strict-json."""
RIGHT = {
    **dict.fromkeys(("strict-json", "short-answers"), "strict"),
    **dict.fromkeys(("shop-sql-short", "shop-sql-full"), "result"),
    **dict.fromkeys(("shop-extraction-short", "shop-extraction-full", "extraction-three"), "exact"),
    "tickets": "right",
}
"""The part or the reading of the reward that is 1 where an answer is right; elsewhere the whole
reward is nearly 1."""
SMALLER = ("rl.prompts_per_step=16", "rl.optimiser.learning_rate=2e-4", "rl.minibatch=4")
"""What arms set whose recipe has 256 answers a step: with 128, in four updates, minutes have enough
steps."""
ONE_ROUND = ("rl.prompts_per_step=96", "rl.steps=1")
"""What rejection sampling sets: of ten minutes of one slow core half is drawing."""
COLOURS = (
    "#0b5cad",
    "#b3450b",
    "#0a6b5e",
    "#7a3fa3",
    "#c2185b",
    "#5d7a00",
    "#00838f",
    "#8d6e63",
    "#555555",
)
SPLIT, READING = "test", "strict"
_FLAGS = Path("/proc/cpuinfo").read_text()
NATIVE = next((name for name in ("amx_bf16", "avx512_bf16") if name in _FLAGS), None)
"""How the processor multiplies bfloat16, which emulated takes ten times as long as float32: with AMX
a second is worth two to three of those without."""
CORES = len(os.sched_getaffinity(0))
"""That this process may use: `taskset -c 0` makes a queue of one core."""
SECONDS = 1200.0
"""Processor-seconds that an arm's stage may take: ten minutes of two cores."""
TEACHER = 1200.0
"""Processor-seconds of the SFT that made the teacher of on-policy distillation, which must be
there."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="train and evaluate arms, or go on with them")
    run.add_argument("task", choices=TASKS)
    run.add_argument("arms", nargs="+", choices=["all", "nothing", *WAYS])
    run.add_argument("--model", choices=MODELS, default=MODELS[0])
    run.add_argument("--seed", type=int, nargs="+", default=[0])
    run.add_argument("--seconds", type=float, default=SECONDS, help="processor-seconds of training")
    run.add_argument(
        "--start", type=float, default=0, help="processor-seconds of SFT that the arms begin from"
    )
    run.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        help="KEY=VALUE of the recipe, for trials",
    )
    run.add_argument("--rows", type=Path, default=ROWS, help="where rows are added")
    reach = commands.add_parser("reach", help="what a model's own answers offer to learn from")
    reach.add_argument("task", choices=TASKS)
    reach.add_argument("--model", default=MODELS[0], help="a name, or a directory")
    reach.add_argument("--prompts", type=int, default=PROMPTS, help="of 8 answers each")
    for name in ("table", "figure", "parses"):
        show = commands.add_parser(name)
        show.add_argument("target", help="an SVG file" if name == "figure" else "a task")
        show.add_argument("--task", choices=TASKS, default="strict-json", help="of a figure")
        show.add_argument("--model", nargs="+", choices=MODELS, default=MODELS[:1])
        show.add_argument("--set", dest="overrides", action="append", default=[], help="as of run")
        show.add_argument("--rows", type=Path, default=ROWS)
        show.add_argument(
            "--seconds", type=float, default=SECONDS, help="the budget of the arms that are shown"
        )
        show.add_argument(
            "--start", type=float, default=0, help="and the seconds of SFT that they began from"
        )
    options = parser.parse_args()
    if options.command == "run":
        for seed in options.seed:
            groups = {"all": WAYS, "nothing": NOTHING}
            for name in groups.get(options.arms[0], options.arms):
                run_arm(options, name, seed)
        return
    if options.command == "reach":
        print(show_pilot(pilot(options.task, options.model, options.prompts)))
        return
    wanted = {"set": options.overrides, "budget": options.seconds, "start": options.start}
    rows = [
        row
        for _, row in read_jsonl(options.rows)
        if wanted.items() <= row.items() and row["model"] in options.model
    ]
    if options.command == "table":
        print(table([row for row in rows if row["task"] == options.target]))
    elif options.command == "parses":
        print(parses(options.target))
    else:
        Path(options.target).write_text(
            figure([row for row in rows if row["task"] == options.task])
        )


def run_arm(options: argparse.Namespace, name: str, seed: int) -> Path:
    """Train an arm, or resume it, and add its row; its folder."""
    if options.task == "tickets":
        write_tickets()
    trial = "".join(f"-{each.partition('=')[2]}" for each in options.overrides)
    if options.model != MODELS[0]:
        trial = f"-{options.model}{trial}"
    begun = f"-after{options.start:g}" if options.start else ""
    name_of_run = f"{options.task}-{name}-{options.seconds:g}-seed{seed}{begun}{trial}"
    folder = FOLDER / name_of_run.replace(" ", "-")
    way = RECIPES.get(name, f"strict-json-{name}")
    stage = "sft" if name == "sft" else "rl"
    overrides = [
        f"seed={seed}",
        f"{stage}.seconds={options.seconds}",
        f"{stage}.steps=100000",
        f"{stage}.optimiser.warmup=0",
        f"model.name=models/{options.model}",
        f"model.threads={CORES}",
    ]
    if not NATIVE:
        overrides.append("model.dtype=float32")
    if options.start:
        overrides += [f"model.name={train_start(options, seed)}", f"seed={seed + 100}"]
    if name == "distillation":
        overrides.append(
            f"rl.teacher.model={FOLDER / f'{options.task}-sft-{TEACHER:g}-seed{seed}' / 'models' / 'sft'}"
        )
    overrides += (
        SMALLER
        if name in {"grpo", "dynamic", "dpo", "control"}
        else ONE_ROUND
        if name == "rft"
        else ()
    )
    if name == "dynamic":
        overrides.append("rl.resample=2")
    overrides += [each for each in TASKS[options.task] if stage == "rl" or each[:3] != "rl."]
    overrides += [
        f"name={options.task}-{name}",
        f'description="{WAYS[name]}, on {options.task}."',
    ]
    recipe = load_recipe(way, [*overrides, *options.overrides])
    print(f"arm {folder.name}", file=sys.stderr, flush=True)
    if not (folder / "result.json").is_file():
        share_start(recipe, folder)
        run_recipe(
            recipe, folder, resume=(folder / "recipe.yaml").is_file(), observers=[LiveView()]
        )
    row = {
        "task": options.task,
        "model": options.model,
        "arm": name,
        "seed": seed,
        "budget": options.seconds,
        "start": options.start,
    }
    row["set"] = options.overrides
    seen = [each for _, each in read_jsonl(options.rows)] if options.rows.is_file() else []
    if not any({key: each.get(key) for key in row} == row for each in seen):
        write_jsonl(
            options.rows, [*seen, row | figures(RunRecord.read(folder), stage, options.task)]
        )
    return folder


def train_start(options: argparse.Namespace, seed: int) -> Path:
    """The model that `options.start` processor-seconds of SFT make, which is trained if it is not
    there."""
    kept = [each for each in options.overrides if each.startswith("evaluation.")]
    given = {"start": 0, "seconds": options.start, "overrides": kept}
    first = argparse.Namespace(**vars(options) | given)
    return run_arm(first, "sft", seed) / "models" / "sft"


def share_start(recipe: Any, folder: Path) -> None:
    """Take the evaluations of the published model, which no arm changes, from an earlier arm."""
    if (folder / "recipe.yaml").is_file():
        return
    with Run.start(recipe, folder, resume=False):
        for mode in evaluation_modes(recipe):
            name = f"{EvaluationKey('base', SPLIT, mode)}.json"
            for other in sorted(FOLDER.glob(f"*/evaluations/{name}")):
                other_recipe = RunRecord.read(other.parents[1]).recipe
                if other_recipe.model.name == recipe.model.name and all(
                    getattr(other_recipe, key) == getattr(recipe, key)
                    for key in ("seed", "task", "sampling", "evaluation")
                ):
                    (folder / "evaluations").mkdir(exist_ok=True)
                    (folder / "evaluations" / name).write_bytes(other.read_bytes())
                    break


def figures(run: Any, stage: str, task: str) -> dict[str, Any]:
    """What a finished arm came to: greedy and sampled, before and after, its cost, and its
    course."""
    evaluations = run.evaluations()
    timings = [row for _, row in read_jsonl(run.folder / "timings.jsonl") if row["stage"] == stage]
    cost = [
        sum(
            value for key, value in row.items() if key in ("cpu/step", "cpu/rollouts", "cpu/update")
        )
        for row in timings
    ]
    rows = run.rows(stage)
    course = [
        [round(float(spent), 1), round(row["train/reward"], 4)]
        for spent, row in zip(
            np.cumsum(cost), [row for row in rows if row["step"] > 0], strict=True
        )
        if row.get("train/reward") is not None
    ]
    found: dict[str, Any] = {
        "seconds": round(sum(cost)),
        "steps": len(cost),
        "dtype": run.recipe.model.dtype,
        "processor": NATIVE,
        "course": course,
        "baselines": {
            key.mode: round(each.mean_reward, 4)
            for key, each in evaluations.items()
            if key.stage == "reference"
        },
    }
    right = RIGHT.get(task)
    for mode in evaluation_modes(run.recipe):
        before, after = (evaluations[EvaluationKey(name, SPLIT, mode)] for name in ("base", stage))
        found[mode] = compared(before, after, right)
    return found


def compared(before: Evaluation, after: Evaluation, right: str | None) -> dict[str, Any]:
    """The share that is all right and the mean reward, before and after, paired; the wording is the
    unit, or each example, where all are of one wording."""
    pairs = judged_pairs(before, after)
    rows = [row for row, _ in pairs]
    clusters = clusters_of(rows) or [row.id for row in rows]
    found: dict[str, Any] = {
        "n": len(pairs),
        "wordings": len(set(clusters)),
        "tokens": round(float(np.mean([row.tokens for _, row in pairs])), 1),
    }
    for name, value in (
        ("strict", lambda row: judge_right(row, right)),
        ("reward", lambda row: row.reward),
        ("parses", lambda row: row.readings.get("parses", np.nan)),
        *((part, partial(part_of, part)) for part in pairs[0][0].parts if part != right),
    ):
        first, last = ([value(pair[side]) for pair in pairs] for side in (0, 1))
        there = ~np.isnan([first, last]).any(0)  # a task without this reading, an array's keys
        if not there.any():
            continue
        first, last = np.array(first)[there], np.array(last)[there]
        change = paired_difference(first, last, [*compress(clusters, there)])
        found[name] = {
            "before": round(float(np.mean(first)), 4),
            "after": round(float(np.mean(last)), 4),
            "change": [
                round(each, 4)
                for each in (change.difference.mean, change.difference.low, change.difference.high)
            ],
            "p": change.p_value,
        }
    return found


def part_of(name: str, row: Any) -> float:
    """What an answer earned of a part, before its weight; NaN where it has none."""
    value = row.parts.get(name)
    return np.nan if value is None else float(value)


def table(rows: list[dict[str, Any]]) -> str:
    """The ways and the controls, with a change for each seed; Holm's correction is over the largest
    p of each."""
    of = {name: those for name in WAYS if (those := [row for row in rows if row["arm"] == name])}
    largest = holm([max(row["greedy"]["strict"]["p"] for row in those) for those in of.values()])
    lines = [
        (
            "| way | seconds | strict, greedy | change in each seed | p (Holm) | strict, sampled | "
            "reward, greedy |"
        ),
        "|---|--:|--:|---|--:|--:|--:|",
    ]
    for (name, those), p in zip(of.items(), largest, strict=True):

        def mean(mode: str, what: str, those: list[dict[str, Any]] = those) -> float:
            return float(np.mean([row[mode][what]["after"] for row in those]))

        changes = ", ".join(
            "{:+.3f} [{:+.3f}, {:+.3f}]".format(*row["greedy"]["strict"]["change"]) for row in those
        )
        seconds = np.mean([row["seconds"] for row in those])
        lines.append(
            f"| {WAYS[name]} | {seconds:,.0f} | {mean('greedy', 'strict'):.3f} | {changes} | "
            f"{p:.4f} "
            f"| {mean('sampled', 'strict'):.3f} | {mean('greedy', 'reward'):.3f} |"
        )
    return "\n".join(lines)


def parses(task: str) -> str:
    """Of a task's runs, the answers that parse as any JSON, and how many of these the strict
    verifier refuses."""
    lines = ["| evaluation | parses | of these not as asked |", "|---|--:|--:|"]
    for folder in sorted(FOLDER.glob(f"{task}-*")):
        for key, evaluation in RunRecord.read(folder).evaluations().items():
            if key.stage == "reference" or not (
                valid := [row for row in evaluation.rows if row.readings["parses"]]
            ):
                continue
            wrong = rate_interval([not row.readings[READING] for row in valid])
            lines.append(
                f"| {folder.name} {key} | {len(valid)} of {len(evaluation.rows)} "
                f"| {wrong.mean:.3f} [{wrong.low:.3f}, {wrong.high:.3f}] |"
            )
    return "\n".join(lines)


def write_tickets() -> None:
    """Make the rows and the reward function as a reader of docs/your-task.md does."""
    trust()  # code that a recipe names
    if (TICKETS / "tickets.jsonl").is_file():
        return
    TICKETS.mkdir(parents=True, exist_ok=True)
    page = (Path(__file__).parents[1] / "docs" / "your-task.md").read_text(encoding="utf-8")
    for name in ("make_rows.py", "my_task.py"):
        (code,) = re.findall(rf"```python\n# {name}\n(.*?)```", page, re.DOTALL)
        (TICKETS / name).write_text(code, encoding="utf-8")
    subprocess.run([sys.executable, "make_rows.py"], cwd=TICKETS, check=True)


def pilot(name: str, model: str, prompts: int = PROMPTS) -> PilotFigures:
    """What a model's own answers to a task's first training prompts offer to learn from.

    Args:
        name: of a task here.
        model: a name in `MODELS`, or a directory.
        prompts: of 8 answers each.
    """
    import torch

    from plumbline.policies import open_policy

    if name == "tickets":
        write_tickets()
    place = f"models/{model}" if model in MODELS else model
    settings = [f"model.name={place}", f"model.threads={CORES}", *TASKS[name]]
    recipe = load_recipe("strict-json", settings + ([] if NATIVE else ["model.dtype=float32"]))
    torch.set_num_threads(CORES)
    policy = open_policy(recipe.model, place)
    task = open_task(recipe.task.name, recipe.task.options, FOLDER / "data" / name)
    return measure_answers(policy, task, recipe, prompts=prompts, right=RIGHT.get(name))


def show_pilot(found: PilotFigures) -> str:
    """The figures as a table, and what a step's gradient has of signal, by its answers."""
    count = round(found.right_prompts * found.prompts)
    near = rate_interval([True] * count + [False] * (found.prompts - count))
    rows = {name: value for name, value in asdict(found).items() if name != "parts"}
    rows |= {f"spread of {name}": value for name, value in found.parts.items()}
    rows["right_prompts"] = f"{near.mean:.3f} [{near.low:.3f}, {near.high:.3f}]"
    rows |= {f"signal / noise of {size}": found.signal_at(size) for size in (64, 256, 1024)}
    return "\n".join(
        f"| {name.replace('_', ' ')} | {value if isinstance(value, str | None) else f'{value:.4g}'} |"
        for name, value in rows.items()
    )


def figure(rows: list[dict[str, Any]]) -> str:
    """The course of the reward of sampled answers over processor-seconds, an arm a line, the mean
    of its seeds."""
    models = [name for name in MODELS if any(row["model"] == name for row in rows)]
    courses = {
        (name, model): [
            row["course"]
            for row in rows
            if (row["arm"], row["model"]) == (name, model) and row["course"]
        ]
        for model in models
        for name in WAYS
    }
    lines: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = {}
    for arm, those in courses.items():
        if those:
            at = np.linspace(
                max(each[0][0] for each in those), min(each[-1][0] for each in those), 40
            )
            lines[arm] = (
                at,
                np.mean([np.interp(at, *np.transpose(each)) for each in those], axis=0),
            )
    last, highest = (max(float(values[side].max()) for values in lines.values()) for side in (0, 1))
    across, up = Scale(0, last, 50, 560), Scale(0, highest, 300, 20)
    parts = [
        (
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 350" '
            'font-family="sans-serif" '
            'font-size="12">'
        ),
        '<rect width="760" height="350" fill="#fff"/>',
        '<text x="305" y="342" text-anchor="middle">processor-seconds of training</text>',
        '<text x="50" y="12">reward of sampled answers</text>',
    ]
    for value in ticks(0, last):
        parts.append(f'<text x="{across(value):.0f}" y="318" text-anchor="middle">{value:g}</text>')
    for value in ticks(0, highest):
        parts.append(f'<path d="M50 {up(value):.1f}H560" stroke="#ddd"/>')
        parts.append(f'<text x="44" y="{up(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    labels = spread_labels([up(float(values[-1])) for _, values in lines.values()], 16, 20, 300)
    for index, (((name, model), (at, values)), y) in enumerate(
        zip(lines.items(), labels, strict=True)
    ):
        label = name if len(models) == 1 else f"{name}, {model.rpartition('-')[2].upper()}"
        points = " ".join(
            f"{across(float(x)):.1f},{up(float(v)):.1f}" for x, v in zip(at, values, strict=True)
        )
        dash = ' stroke-dasharray="5 4"' if WAYS[name].startswith("control") else ""
        look = f'stroke="{COLOURS[index % len(COLOURS)]}"{dash}'
        parts.append(f'<polyline points="{points}" fill="none" stroke-width="2" {look}/>')
        parts.append(
            f'<path d="M568 {y:.1f}h22" stroke-width="2" {look}/><text x="596" '
            f'y="{y + 4:.1f}">{label}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    main()
