"""Sampling: our decoder and transformers' `generate`, same weights, prompts, lengths and sampling
distribution.

    python benchmarks/rollout.py                  # a small model on a CPU
    python benchmarks/rollout.py --device cuda    # 0.5B, random, bfloat16

First the two are checked to give the same tokens greedily. No completion ends early (the stop token
is out of reach), so both draw the same number of tokens. On a GPU the time is also given as a
multiple of what reading the weights once for each token takes at 4.8 TB/s, which no decoder that
keeps them in memory can beat.
"""

import argparse
import os
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

from models import HALF_BILLION, SMALL, prompts, save_model
from pairing import HEADER, compare
from plumbline.api import sample_trajectories
from plumbline.policies import open_policy
from plumbline.recipe import ModelSection
from plumbline.records import Sampling

CPU_POINTS = [(64, 64, 8, 4096), (256, 64, 8, 4096), (512, 64, 8, 32768), (512, 128, 16, 4096)]
GPU_POINTS = [(512, 256, 16, 151_936), (128, 512, 8, 151_936)]
BANDWIDTH = 4.8e12
"""Bytes a second of an H200's memory, from its data sheet."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    print(f"torch {torch.__version__}, {options.threads} threads, {device}\n")
    print("| prompt | answer | copies | vocabulary | " + " | ".join(HEADER) + " |")
    print("|" + "---|" * (4 + len(HEADER)))
    for length, answer, copies, vocabulary in CPU_POINTS if device.type == "cpu" else GPU_POINTS:
        shape = {**SMALL, "vocabulary": vocabulary} if device.type == "cpu" else HALF_BILLION
        with tempfile.TemporaryDirectory() as folder:
            source = str(save_model(Path(folder) / "model", **shape))
            measure(source, device, length, answer, copies, vocabulary, options.pairs)


def measure(
    source: str,
    device: torch.device,
    length: int,
    answer: int,
    copies: int,
    vocabulary: int,
    pairs: int,
) -> None:
    policy = open_policy(ModelSection(name=source, device=str(device)), source)
    assert policy.engine["decoder"] == "lean", policy.engine
    policy.chat.stop_ids = (-1,)
    (chat,) = prompts(1, length, vocabulary)
    ids = torch.tensor([policy.chat.prompt(chat)], device=device)
    assert ids.shape[1] == length
    sampling = Sampling(max_tokens=answer)
    peer = policy.model

    def ours() -> object:
        return sample_trajectories(policy, [chat], copies, sampling, seed=0)

    def theirs() -> object:
        with torch.no_grad():
            return peer.generate(
                ids.repeat(copies, 1),
                attention_mask=torch.ones_like(ids).repeat(copies, 1),
                max_new_tokens=answer,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                eos_token_id=None,
                pad_token_id=0,
            )

    greedy = sample_trajectories(policy, [chat], 1, Sampling(temperature=0, max_tokens=32), seed=0)[
        0
    ][0].tokens.tolist()
    wanted = peer.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=32,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    assert greedy == wanted[0, length:].tolist() or device.type == "cuda", "greedy answers differ"
    ratio = compare(ours, theirs, device, pairs)
    print(ratio.row(length, answer, copies, vocabulary), flush=True)
    if device.type == "cuda":
        weights = sum(p.numel() * p.element_size() for p in peer.parameters())
        per_step = ratio.ours_seconds / answer
        readings = per_step / (weights / BANDWIDTH)
        print(
            f"  a step takes {per_step * 1e3:.2f} ms, {readings:.1f} times the reading of the "
            "weights"
        )
        same = sum(a == b for a, b in zip(greedy, wanted[0, length:].tolist(), strict=True))
        print(f"  greedy in bfloat16: {same} of 32 tokens as generate's")


if __name__ == "__main__":
    main()
