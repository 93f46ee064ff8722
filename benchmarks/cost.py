"""What a step of RL costs: measured on a grid, fitted, held to points that were left out, and
extrapolated.

    python benchmarks/cost.py measure [--device cuda] [--out POINTS.jsonl]   # 3 minutes on two cores
    python benchmarks/cost.py fit                                               # as in docs/research/benchmarks.md
    python benchmarks/cost.py extrapolate

A step of g devices, each with a share of the answers, takes

    rollouts   S (a W / reading + b L) + c 2 N U / (g products)
    update     d 4 N U / (g products) + e L
    verdicts   A / (g rate)
    gradients  G (g - 1) / link, through one process; 2 G (g - 1) / g / link in a ring (Patarasuk and Yuan 2009)
    weights    G (g - 1) / link, through one process; G / link, passed on

with S decoding steps (the longest answer), A answers, U tokens of answers and of each prompt once,
N weights in L layers, W their bytes, G bytes of those that are trained; a, b, c, d and e are fitted
by non-negative least squares on relative errors. With LoRA the base has no weight gradient, which
leaves 4 of the 6 operations a weight and token.
"""

import argparse
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np

POINTS = Path(__file__).with_name("cost_points.jsonl")
GRID = [(p, g, a) for p in (2, 4, 8) for g in (4, 8) for a in (32, 64)]
HELD_OUT = {(4, 4, 64), (2, 8, 32), (8, 8, 64)}
"""The last one is larger than everything that is fitted on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured step."""

    device: str
    prompts: int
    copies: int
    answer: int
    """Tokens of each answer: none ends early."""
    prompt: float
    """Tokens of a prompt, on average."""
    rollouts: float
    update: float
    """Seconds, of one step after one that is not timed."""
    products: float
    """The machine's operations a second in a large product, and bytes a second of reading."""
    reading: float
    weights: int
    layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is trained: a model of so many weights in so many layers, with adapters of so many
    weights or none."""

    name: str
    weights: float
    layers: int
    adapters: float | None
    answers: int = 2048
    """Of a step, however many devices share them."""
    length: int = 512
    prompt: int = 256
    copies: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device's rates, and how far behind them our code is."""

    products: float
    reading: float
    link: float
    """Bytes a second to devices in other nodes."""
    verdicts: float
    """A second, by the processors that come with one device."""
    drawing: tuple[float, float, float]
    """a, b, c."""
    learning: tuple[float, float]
    """d, e."""


H100 = Device(
    products=780e12,  # measured, bfloat16 (benchmarks/real.py --device cuda)
    reading=3.0e12,  # measured there
    link=50e9,  # 400 Gb/s a device, as such nodes are sold
    # 16 cores, 150 a core: the slowest of commerce's rewards (docs/research/commerce.md)
    verdicts=16 * 150.0,
    # b: 7.0 ms a step of 30 layers, measured there; a and c are assumed
    drawing=(1.5, 2.3e-4, 2.0),
    learning=(
        2.5,
        1.7e-2,
        # d is assumed: 40 % of the products; e is fitted to cost_points.jsonl, where launches are
        # all
    ),
)
JOBS = (
    Job(name="135M, LoRA", weights=134.5e6, layers=30, adapters=4.9e6),
    Job(name="8B, LoRA", weights=8.2e9, layers=36, adapters=43.6e6),
    Job(name="8B, all weights", weights=8.2e9, layers=36, adapters=None),
)
DEVICES = (1, 8, 64, 512)


def measure(options: argparse.Namespace) -> None:
    """Time a step at every point of the grid, after one of the first that is not timed."""
    import torch

    from plumbline.policies import open_policy
    from plumbline.policies.autoregressive.options import AutoregressiveModel
    from plumbline.records import Sampling
    from real import chats, machine
    from rl_step import stepping

    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    section = AutoregressiveModel(
        name=options.model, device=options.device, dtype="bfloat16", lora={"rank": 16, "alpha": 32}
    )
    policy = open_policy(section, options.model)
    policy.chat.stop_ids = (-1,)
    reading, products = machine(device, torch.bfloat16)
    base = [weight for name, weight in policy.model.named_parameters() if "lora" not in name]
    rows = []
    for done, (prompts, copies, answer) in enumerate(GRID):
        asked = chats(prompts, options)
        step = stepping(policy, asked, Sampling(max_tokens=answer), copies)
        if not done:
            step()
        rollouts, update = step()
        point = Point(
            device=torch.cuda.get_device_name()
            if device.type == "cuda"
            else f"CPU, {options.threads} threads",
            prompts=prompts,
            copies=copies,
            answer=answer,
            prompt=float(np.mean([policy.prompt_length(chat) for chat in asked])),
            rollouts=rollouts,
            update=update,
            products=products,
            reading=reading,
            weights=sum(weight.numel() for weight in base),
            layers=policy.model.config.num_hidden_layers,
        )
        rows.append(asdict(point))
        print(
            f"{done + 1}/{len(GRID)}  {prompts} x {copies} x {answer}: {point.rollouts:.2f} s, "
            f"{point.update:.2f} s"
        )
    before = (
        [json.loads(line) for line in options.out.read_text().splitlines()]
        if options.out.exists()
        else []
    )
    kept = [row for row in before if row["device"] != rows[0]["device"]]
    options.out.write_text("".join(json.dumps(row) + "\n" for row in kept + rows))


def terms(points: list[Point]) -> tuple[np.ndarray, np.ndarray]:
    """What the fitted constants stand before: of rollouts [n, 3] (a, b, c), and of updates [n, 2]
    (d, e)."""
    rollouts, updates = [], []
    for one in points:
        learnt = one.prompts * (one.copies * one.answer + one.prompt)
        rollouts.append(
            [
                one.answer * 2 * one.weights / one.reading,
                one.answer * one.layers,
                2 * one.weights * learnt / one.products,  # prompts are read, too
            ]
        )
        updates.append([4 * one.weights * learnt / one.products, one.layers])
    return np.array(rollouts), np.array(updates)


def fitted(rows: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Constants that are not below 0, by least squares on relative errors (Lawson and Hanson
    1974)."""
    from scipy.optimize import nnls

    return nnls(rows / seconds[:, None], np.ones(len(seconds)))[0]


def fit(options: argparse.Namespace) -> None:
    """Print the constants, the error at points that were left out, how a step grows, and what
    clusters would take."""
    points = [Point(**json.loads(line)) for line in options.out.read_text().splitlines()]
    for device in dict.fromkeys(one.device for one in points):
        mine = [one for one in points if one.device == device]
        seen = [one for one in mine if (one.prompts, one.copies, one.answer) not in HELD_OUT]
        print(f"\n{device}, {len(seen)} points fitted, {len(mine) - len(seen)} left out\n")
        drawing = fitted(terms(seen)[0], np.array([one.rollouts for one in seen]))
        learning = fitted(terms(seen)[1], np.array([one.update for one in seen]))
        print(
            "| a (readings) | b (s a layer and step) | c (products) | d (products) | e (s a layer) "
            "|"
        )
        print("|---|---|---|---|---|")
        print(
            f"| {drawing[0]:.2f} | {drawing[1]:.2e} | {drawing[2]:.2f} | {learning[0]:.2f} | "
            f"{learning[1]:.2e} |\n"
        )
        print(
            "| prompts x copies x tokens | | rollouts, measured | model | error | update, measured "
            "| model | error |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for one in mine:
            place = (one.prompts, one.copies, one.answer)
            (drew,), (learnt,) = (
                terms([one])[0] @ drawing[:, None],
                terms([one])[1] @ learning[:, None],
            )
            cells = [f"{one.rollouts:.2f}", f"{drew[0]:.2f}", f"{drew[0] / one.rollouts - 1:+.0%}"]
            cells += [f"{one.update:.2f}", f"{learnt[0]:.2f}", f"{learnt[0] / one.update - 1:+.0%}"]
            kind = "left out" if place in HELD_OUT else ""
            print(f"| {' x '.join(map(str, place))} | {kind} | {' | '.join(cells)} |")


def step_of(job: Job, devices: int, device: Device, *, ring: bool) -> dict[str, float]:
    """Seconds of a step by kind, of so many devices that draw and then learn together.

    Args:
        job: what is trained.
        devices: that share its answers.
        device: one of them.
        ring: gradients are reduced, and weights passed on, from device to device; else one process
            takes and hands out all of them, as `scale.learners` and `scale.samplers` do.
    """
    (a, b, c), (d, e) = device.drawing, device.learning
    tokens = job.answers * job.length / devices
    learnt = tokens + job.answers / job.copies * job.prompt / devices
    moved, others = 2 * (job.adapters or job.weights) / device.link, devices - 1
    return {
        "rollouts": job.length * (a * 2 * job.weights / device.reading + b * job.layers)
        + c * 2 * job.weights * learnt / device.products,
        "update": d * (4 if job.adapters else 6) * job.weights * learnt / device.products
        + e * job.layers,
        "verdicts": job.answers / devices / device.verdicts,
        "gradients": 2 * moved * others / devices if ring else moved * others,
        "weights": moved * min(others, 1) if ring else moved * others,
    }


def extrapolate(_: argparse.Namespace) -> None:
    """Print what clusters would take."""
    print(
        "| job | devices | rollouts | update | verdicts | gradients, weights: one process | ring | "
        "a step | speed-up |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for job in JOBS:
        alone = sum(step_of(job, 1, H100, ring=True).values())
        for devices in DEVICES:
            ring, star = (step_of(job, devices, H100, ring=one) for one in (True, False))
            kinds = [f"{ring[kind]:.2f}" for kind in ("rollouts", "update", "verdicts")]
            moved = [f"{one['gradients'] + one['weights']:.2f}" for one in (star, ring)]
            whole = [sum(one.values()) for one in (star, ring)]
            ends = [
                " / ".join(f"{one:.1f}" for one in whole),
                " / ".join(f"{alone / one:.1f}" for one in whole),
            ]
            print(f"| {job.name} | {devices} | {' | '.join([*kinds, *moved, *ends])} |")


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["measure", "fit", "extrapolate"])
    parser.add_argument("--out", type=Path, default=POINTS)
    parser.add_argument("--model", default="models/smollm2-135m")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--sentences", type=int, default=4, help="of a prompt; each is about 25 tokens"
    )
    options = parser.parse_args()
    {"measure": measure, "fit": fit, "extrapolate": extrapolate}[options.what](options)


if __name__ == "__main__":
    main()
