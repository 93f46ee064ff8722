"""One packed pass for a whole trajectory of slots against one pass for every round: same weights,
same terms.

    OMP_NUM_THREADS=1 python benchmarks/slots.py [--pairs 5]

Both score a group of trajectories of one prompt behind one copy of it. Before anything is timed
their log-probabilities are checked to be equal. Prints a Markdown table.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch import Tensor

from benchmarks.pairing import HEADER, compare
from plumbline.api import sample_trajectories
from plumbline.policies.pretrained.tiny import make_tiny
from plumbline.policies.slots.options import SlotModel, SlotSampling
from plumbline.policies.slots.packing import Grid, pack
from plumbline.policies.slots.policy import SlotPolicy, log_probs, read_distributions
from plumbline.recipe import TinySection
from plumbline.records import Trajectory

SLOT, CANVAS, PROMPT, COPIES = 4, 64, 128, 4
ROUNDS = (2, 4, 8, 16)


def by_rounds(
    model: Any, trajectories: Sequence[Trajectory], grid: Grid, mask_id: int, sampling: SlotSampling
) -> list[Tensor]:
    """Log-probabilities of each trajectory's terms by a forward pass for every round.

    The packed pass gives the same numbers with one pass for all rounds; a test compares the two.

    Args:
        model: a causal transformers model.
        trajectories: of one prompt, or with equal prompts side by side; each pass holds one round
            of all of them.
        grid: how their canvases are cut.
        mask_id: the mask token.
        sampling: the sampling distribution that they carry.
    """
    parts: list[list[Tensor]] = [[] for _ in trajectories]
    for number in range(max(len(trajectory.transitions) for trajectory in trajectories)):
        rows = [
            row
            for row, trajectory in enumerate(trajectories)
            if number < len(trajectory.transitions)
        ]
        single = [
            replace(trajectories[row], transitions=(trajectories[row].transitions[number],))
            for row in rows
        ]
        packed = pack(single, grid, mask_id, model.device)
        terms = log_probs(packed, read_distributions(model, mask_id, packed), sampling)
        for row, part in zip(rows, terms.split([len(one.logprobs) for one in single]), strict=True):
            parts[row].append(part)
    return [torch.cat(each) for each in parts]


def open_model(folder: Path) -> SlotPolicy:
    """A random Qwen3 whose answers do not end before the canvas does."""
    sizes = TinySection(hidden=192, layers=4, heads=4, vocabulary=1024, context=512)
    make_tiny(folder, sizes, ["uma frase qualquer"], seed=0, family="slots")
    section = SlotModel(name=str(folder), slot=SLOT)
    return SlotPolicy.open(section, str(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as folder:
        policy = open_model(Path(folder) / "model")
    chat = [{"role": "user", "content": "a" * PROMPT}]
    weights = list(policy.trainable().values())
    print("| " + " | ".join(["what", "T", *HEADER, "largest difference"]) + " |")
    print("|" + "---|" * (len(HEADER) + 3))
    for rounds in ROUNDS:
        sampling = SlotSampling(max_tokens=CANVAS, steps=rounds, selector="plackett_luce")
        (group,) = sample_trajectories(policy, [chat], COPIES, sampling, seed=0)
        grid = Grid.of(sampling, SLOT)

        def packed(group=group):
            return policy.score(group).logprobs

        def apart(group=group, grid=grid, sampling=sampling):
            return torch.cat(by_rounds(policy.model, group, grid, policy.mask_id, sampling))

        def trained(score):
            def work():
                torch.autograd.grad(score().sum(), weights)

            return work

        with torch.no_grad():
            gap = float((packed() - apart()).abs().max())
            assert gap < 1e-4, f"the two do not compute the same: {gap} nats apart"
            forward = compare(packed, apart, policy.device, pairs)
        both = compare(trained(packed), trained(apart), policy.device, pairs)
        for what, ratio in (("score", forward), ("score and gradient", both)):
            print(ratio.row(what, rounds) + f" {gap:.1e} |", flush=True)


if __name__ == "__main__":
    main()
