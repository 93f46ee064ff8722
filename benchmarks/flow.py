"""Discrete-flow sampling: ours and the official FS-DFM solver, from a checkout of it.

    git clone https://github.com/apple/ml-fs-dfm peers/ml-fs-dfm
    pip install --no-deps --target peers/fsdfm-needs einops omegaconf torchdiffeq      # what its code imports
    PYTHONPATH=peers/fsdfm-needs python benchmarks/flow.py --fsdfm peers/ml-fs-dfm

The same random weights (theirs, converted), prompts, canvas, number of steps and sampling
distribution (temperature 1) in one process. First, the two networks' distributions at the canvas
are checked to agree. Theirs edits a canvas behind a frozen prompt (`sample_masked` of the solver
with cumulative scalars, which is what FS-DFM is evaluated with); ours does the same with the
marginal kernel, records every choice with its log-probability, and runs the head at the canvas
only.
"""

import argparse
import importlib
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

from models import prompts, save_model
from pairing import HEADER, compare
from plumbline.api import sample_trajectories
from plumbline.policies import open_policy
from plumbline.policies.flow.convert import convert
from plumbline.policies.flow.options import FlowModel, FlowSampling

SIZES = {
    "hidden_size": 256,
    "cond_dim": 64,
    "n_blocks": 4,
    "n_heads": 4,
    "dropout": 0.0,
    "mlp_ratio": 4,
}
POINTS = [(64, 64, 8, 4, 32_768), (64, 64, 8, 4, 151_936)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fsdfm", type=Path, required=True, help="a checkout of ml-fs-dfm")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if not (options.fsdfm / "flow_matching" / "solver" / "discrete_solver_fsdfm.py").is_file():
        raise SystemExit(f"{options.fsdfm} is no checkout of ml-fs-dfm")
    sys.path.insert(0, str(options.fsdfm))
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    print(f"torch {torch.__version__}, {options.threads} threads, {device}\n")
    print("| prompt | canvas | steps | prompts | vocabulary | " + " | ".join(HEADER) + " |")
    print("|" + "---|" * (5 + len(HEADER)))
    for point in POINTS:
        with tempfile.TemporaryDirectory() as folder:
            print(measure(Path(folder), device, point, options.pairs).row(*point), flush=True)


def measure(folder: Path, device: torch.device, point: tuple[int, int, int, int, int], pairs: int):
    length, canvas, steps, batch, vocabulary = point
    network = importlib.import_module("fs_dfm.model.transformer").Transformer
    solver_module = importlib.import_module("flow_matching.solver.discrete_solver_fsdfm")
    path_module = importlib.import_module("flow_matching.path")
    scheduler = importlib.import_module("flow_matching.path.scheduler").PolynomialConvexScheduler(
        n=1.0
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = network(vocabulary, False, SIZES, dt_conditioned=True).eval()
        for weight in theirs.parameters():
            torch.nn.init.normal_(weight, std=0.05)
    tokenizer = str(
        save_model(
            folder / "tokenizer", hidden=32, layers=1, heads=1, kv_heads=1, vocabulary=vocabulary
        )
    )
    torch.save({"student_model": theirs.state_dict()}, folder / "checkpoint.pth")
    convert(
        folder / "checkpoint.pth",
        folder / "ours",
        tokenizer,
        heads=SIZES["n_heads"],
        context=length + canvas,
    )
    # as theirs
    section = FlowModel(
        name=str(folder / "ours"), canvas=canvas, device=str(device), dtype="float32"
    )
    policy = open_policy(section, str(folder / "ours"))
    theirs.to(device)
    chats = prompts(batch, length, vocabulary)
    ids = torch.tensor([policy.chat.prompt(chat) for chat in chats], device=device)
    check_distributions(policy, theirs, ids, canvas, steps)

    def probabilities(x, t, dt, **_):
        return theirs(x, t, dt).float().softmax(-1)

    solver = solver_module.MixtureDiscreteEleurSolverWithCumulativeScalar(
        model=probabilities,
        path=path_module.MixtureDiscreteProbPath(scheduler=scheduler),
        vocabulary_size=vocabulary,
    )
    editable = torch.zeros((batch, length + canvas), dtype=torch.bool, device=device)
    editable[:, length:] = True

    def official():
        noise = torch.randint(0, vocabulary, (batch, canvas), device=device)
        grid = torch.linspace(0, 1, steps + 1)
        return solver.sample_masked(
            torch.cat([ids, noise], 1), None, edit_mask=editable, time_grid=grid
        )

    sampling = FlowSampling(max_tokens=canvas, steps=steps, kernel="marginal")
    return compare(
        lambda: sample_trajectories(policy, chats, 1, sampling, seed=0),
        official,
        device,
        pairs,
        warmups=1,
    )


@torch.no_grad()
def check_distributions(policy, theirs, ids, canvas: int, steps: int) -> None:
    """Both networks give the same sampling distribution at every place of the canvas, or nothing is
    measured."""
    noise = torch.randint(
        0, policy.network.config.vocabulary, (len(ids), canvas), device=ids.device
    )
    times, widths = (
        torch.full((len(ids),), value, device=ids.device) for value in (0.5, 1 / steps)
    )
    wanted = theirs(torch.cat([ids, noise], 1), times, widths)[:, -canvas:].log_softmax(-1)
    hidden = policy.network.hidden_states(policy.network.encode(ids.tolist()), noise, times, widths)
    got = policy.network.head(hidden).log_softmax(-1)
    gap = float((got - wanted).abs().max())
    if gap > 1e-3:
        raise SystemExit(f"the two networks differ by {gap} nats: there is nothing to compare")


if __name__ == "__main__":
    main()
