"""Where the time goes of a step of SFT, of a decoding step and of an update, here and in another
version.

    plumbline get smollm2-135m
    python benchmarks/where.py                              # the table, in a minute
    git worktree add ../before COMMIT
    python benchmarks/where.py --against ../before --pairs 5    # seconds of each, in turn, in processes of their own

The shapes are those of `commerce-demo`: SFT on 16 sequences of 128 tokens of which 40 are learnt,
rollouts of 8 prompts with 8 answers of 40 tokens, and an update on them; bfloat16, LoRA of rank 16
on all linear layers.

The table is of one core with its share of the work, by torch's profiler: products are those of the
model's own weights, adapters those with a side of a few ranks, the head those with a side of the
vocabulary. "Waiting" is what the cores of the whole step were idle. The limits are the products
alone at the rate of a large one, and the weights read once.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from plumbline.policies import open_policy
from plumbline.policies.autoregressive.decoders.lean import LeanDecoder
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.policies.memory import keep_pages, read_peak
from plumbline.policies.policy import Demonstration
from plumbline.recipe import parse_recipe
from plumbline.records import Example, Sampling
from plumbline.rollouts.collect import collect
from plumbline.training import sft
from plumbline.training.microbatches import Microbatches
from plumbline.training.optimiser import Optimiser
from plumbline.training.rl import weigh_rollouts
from plumbline.training.update import update_policy
from real import chats, machine
from rl_step import RATE, AnyText

RANK, SEQUENCES, LENGTH, LEARNT = 16, 16, 128, 40
PROMPTS, COPIES, ANSWER = 8, 8, 40
KINDS = (
    "products",
    "attention",
    "adapters",
    "head",
    "norms, activations, the rest",
    "Python",
    "waiting",
)
ATTENTION = ("bmm", "softmax", "masked_fill", "index_copy", "topk")
STEPS = ("sft", "rollouts", "update")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="models/smollm2-135m")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--against", help="a checkout of another version, timed in turn with this one"
    )
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="of each step in a process, after a first; the median counts",
    )
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.against:
        if not (Path(options.against) / "src/plumbline").is_dir():
            parser.error(
                f"{options.against} is no checkout: it has no src/plumbline (git worktree add "
                "FOLDER COMMIT)"
            )
        return against(options)
    torch.set_num_threads(options.threads)
    keep_pages()
    work = Work(options)
    rows = work.rounds(options.rounds)
    if options.once:
        return print(json.dumps(rows))
    return table(work, rows)


class Work:
    """The model, and one of each step."""

    def __init__(self, options) -> None:
        self.dtype = getattr(torch, options.dtype)
        section = AutoregressiveModel(
            name=options.model, dtype=options.dtype, lora={"rank": RANK, "alpha": 32}
        )
        self.policy = policy = open_policy(section, options.model)
        policy.chat.stop_ids = (-1,)
        rates = {"learning_rate": RATE, "schedule": "constant"}
        values = {"name": "where", "model": {"name": "any", "family": "autoregressive"}}
        values["sft"] = {
            "steps": 100,
            "batch_size": SEQUENCES,
            "tokens_per_microbatch": 2048,
            "optimiser": rates,
        }
        values["rl"] = {"steps": 100, "group_size": COPIES, "optimiser": rates}
        self.recipe = parse_recipe(values)
        self.optimiser = Optimiser(policy.trainable(), self.recipe.rl.optimiser, 100)
        self.microbatches = Microbatches(self.optimiser, policy)
        numbers = np.random.default_rng(0)
        self.batch = [
            Demonstration(
                (*range(200, 230), *numbers.integers(300, 40_000, size=LENGTH - 30).tolist()),
                (False,) * (LENGTH - LEARNT) + (True,) * LEARNT,
            )
            for _ in range(SEQUENCES)
        ]
        asked = chats(PROMPTS, argparse.Namespace(sentences=3))
        self.examples = [
            Example(id=str(at), messages=chat, gold="") for at, chat in enumerate(asked)
        ]
        self.step, self.groups = 0, []

    def sft(self) -> None:
        helped = (
            {"helpers": self.microbatches.helpers}
            if "helpers" in sft._backward.__annotations__
            else {}
        )
        work = partial(sft._backward, self.policy, seed=0, **helped)
        self.microbatches.run_fitting(partial(sft.cut_microbatches, self.batch), work, 2048)
        self.optimiser.step(1)

    def rollouts(self) -> None:
        self.step += 1
        sampling = Sampling(max_tokens=ANSWER)
        self.groups = collect(
            self.policy,
            AnyText(),
            self.examples,
            copies=COPIES,
            sampling=sampling,
            key=(self.step,),
        )

    def update(self) -> None:
        groups = weigh_rollouts(self.groups, self.recipe.rl.algorithm)
        update_policy(self.policy, self.optimiser, groups, self.recipe, 1, self.microbatches)

    def rounds(self, count: int) -> dict[str, dict[str, float]]:
        """Median seconds of each step, of the wall and of the processors, and the process's
        peak."""
        found = {name: ([], []) for name in STEPS}
        for at in range(count + 1):
            for name, (walls, processors) in found.items():
                wall, processor = time.perf_counter(), clock()
                getattr(self, name)()
                if at:
                    walls.append(time.perf_counter() - wall)
                    processors.append(clock() - processor)
        rows = {
            n: {"wall": statistics.median(a), "cpu": statistics.median(b)}
            for n, (a, b) in found.items()
        }
        return {**rows, "peak": {"gb": read_peak(torch.device("cpu")) / 1e9}}


def clock() -> float:
    """Seconds of this process and of its children."""
    return time.process_time() + sum(os.times()[2:4])


def against(options) -> None:
    """Pairs of processes, one of each version; which goes first alternates."""
    folders = {"here": Path(__file__).parents[1], "there": Path(options.against).absolute()}
    arguments = [
        "--model",
        options.model,
        "--dtype",
        options.dtype,
        "--threads",
        str(options.threads),
    ]
    arguments += ["--rounds", str(options.rounds), "--once"]
    print(
        "| step | here [s] | there [s] | there / here, median (least to greatest) | pairs | peak "
        "here / there [GB] |"
    )
    print("|---|---|---|---|---|---|", flush=True)
    found = {"here": [], "there": []}
    for pair in range(options.pairs):
        for side in sorted(folders, reverse=pair % 2 == 1):
            place = {**os.environ, "PYTHONPATH": f"{folders[side]}/src"}
            told = subprocess.run(
                [sys.executable, __file__, *arguments],
                env=place,
                check=True,
                capture_output=True,
                text=True,
            )
            found[side].append(json.loads(told.stdout.splitlines()[-1]))
            print(f"<!-- {side}: {found[side][-1]} -->", flush=True)
    for name in STEPS:
        sides = {side: [one[name]["wall"] for one in rows] for side, rows in found.items()}
        ratios = [there / here for here, there in zip(sides["here"], sides["there"], strict=True)]
        medians = " | ".join(f"{statistics.median(sides[side]):.2f}" for side in ("here", "there"))
        peaks = " / ".join(
            f"{max(one['peak']['gb'] for one in found[side]):.2f}" for side in ("here", "there")
        )
        spread = f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {name} | {medians} | {spread} | {options.pairs} | {peaks} |")


def table(work: Work, rows: dict[str, dict[str, float]]) -> None:
    """Milliseconds by kind of work of a core's share, and the limits."""
    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    policy, half = work.policy, work.batch[: SEQUENCES // cores]
    decoder = LeanDecoder(
        policy.model, **({"lay_out": True} if LeanDecoder.__init__.__kwdefaults__ else {})
    )
    prompts = [policy.chat.prompt(each.messages) for each in work.examples[: PROMPTS // cores]]
    decoder.begin(prompts, COPIES, ANSWER)
    tokens = torch.full((len(prompts) * COPIES,), 300)
    answers = [r.turns[0] for group in work.groups[: PROMPTS // cores] for r in group.rollouts]

    def learn(loss) -> None:
        loss().backward()
        work.optimiser.clear()

    def update() -> None:
        for part in policy.batches(answers, 2048 // cores):
            policy.score([answers[at] for at in part]).logprobs.sum().backward()
        work.optimiser.clear()

    shares = {
        "sft": partial(learn, lambda: policy.supervised_loss(half, [None] * len(half))),
        "rollouts": lambda: decoder.step(tokens),
        "update": update,
    }
    dims = policy.model.config
    linear = sum(
        w.numel()
        for n, w in policy.model.named_parameters()
        if w.ndim == 2 and "lora" not in n and "embed" not in n
    )
    head = dims.vocab_size * dims.hidden_size
    bandwidth, rate = machine(torch.device("cpu"), work.dtype)
    size = torch.finfo(work.dtype).bits // 8
    known = (
        sum(LENGTH for _ in half) - 30 * (len(half) - 1),
        len(tokens),
        sum(len(a.tokens) for a in answers) + sum(map(len, prompts)),
    )
    learnt = len(half) * LEARNT, len(tokens), sum(len(a.tokens) for a in answers)
    columns = {}
    for (name, share), passed, targets in zip(shares.items(), known, learnt, strict=True):
        columns[name] = of_a_share(share, dims, len(tokens) if name == "rollouts" else 0)
        whole, per = rows[name], 1 if name != "rollouts" else ANSWER
        columns[name]["waiting"] = max(0.0, whole["wall"] - whole["cpu"] / cores) * 1e3 / per
        times = 1 if name == "rollouts" else 2
        columns[name]["limit: products"] = (
            times * 2 * (linear * passed + head * targets) / rate * 1e3
        )
        columns[name]["limit: reading"] = times * (linear + head) * size / bandwidth * 1e3
    print("| ms of a core | SFT step | a decoding step | update |\n|---|---|---|---|")
    for kind in (*KINDS, "limit: products", "limit: reading"):
        print(f"| {kind} | " + " | ".join(f"{columns[name][kind]:.1f}" for name in STEPS) + " |")
    print(
        "\nwhole steps: "
        + ", ".join(
            f"{n} {rows[n]['wall']:.2f} s ({rows[n]['cpu']:.2f} of processors)" for n in STEPS
        )
    )
    print(f"one core: reading {bandwidth / 1e9:.1f} GB/s, large products {rate / 1e9:.0f} GFLOP/s")


def of_a_share(share, dims, rows: int) -> dict[str, float]:
    """Milliseconds of each kind, but for waiting."""
    for _ in range(2):
        share()
    walls = []
    for _ in range(5):
        began = time.perf_counter()
        share()
        walls.append(time.perf_counter() - began)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        share()
    found = dict.fromkeys(KINDS, 0.0)
    for event in seen.key_averages(group_by_input_shape=True):
        if event.key.startswith(("aten::", "mkldnn::")):
            found[kind_of(event.key, event.input_shapes, dims, rows)] += (
                event.self_cpu_time_total / 1e3
            )
    found["Python"] = max(0.0, statistics.median(walls) * 1e3 - sum(found.values()))
    return found


def kind_of(name: str, shapes, dims, rows: int) -> str:
    """The kind of work of an operation, by its name and the shapes of what it is given, but for so
    many rows."""
    sides = {
        side
        for shape in shapes
        if isinstance(shape, list)
        for side in shape
        if isinstance(side, int)
    } - {rows}
    if dims.vocab_size in sides:
        return "head"
    if any(part in name for part in ATTENTION):
        return "attention"
    if any(part in name for part in ("mm", "linear")):
        return "adapters" if sides & {RANK * times for times in (1, 2, 3, 4, 6, 9)} else "products"
    return "norms, activations, the rest"


if __name__ == "__main__":
    main()
