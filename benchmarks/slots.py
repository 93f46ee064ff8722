"""One packed pass for a whole trajectory of slots against one pass for every round: same weights,
same terms.

    OMP_NUM_THREADS=1 python benchmarks/slots.py [--pairs 5]

Both score a group of trajectories of one prompt behind one copy of it. Before anything is timed
their log-probabilities are checked to be equal. Prints a Markdown table.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from benchmarks.pairing import HEADER, compare
from plumbline.api import sample_trajectories
from plumbline.policies.pretrained.tiny import make_tiny
from plumbline.policies.slots.options import SlotModel, SlotSampling
from plumbline.policies.slots.packing import Grid
from plumbline.policies.slots.policy import SlotPolicy
from plumbline.recipe import TinySection
from tests.policies.slots.oracle import by_rounds

SLOT, CANVAS, PROMPT, COPIES = 4, 64, 128, 4
ROUNDS = (2, 4, 8, 16)


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
