"""Masked-diffusion sampling: ours and the public dllm library's sampler, from a checkout of it.

    git clone https://github.com/ZHZisZZ/dllm peers/dllm
    python benchmarks/diffusion.py --dllm peers/dllm                  # a small model on a CPU
    python benchmarks/diffusion.py --dllm peers/dllm --device cuda    # 0.6B, random, bfloat16

Same random weights (a Llama made bidirectional by an explicit mask), prompts, canvas, number of
steps, selector (low confidence) and temperature, in one process. dllm is measured as released, and
with its float64 Gumbel noise replaced by float32 noise. First, greedy canvases are checked to be
equal token for token. Random weights hardly ever end early, so both fill the whole canvas. dllm is
a peer: its package is read from the checkout without its __init__ files (which import training
libraries), and Plumbline never depends on it.
"""

import argparse
import importlib
import os
import sys
import tempfile
import types
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

from models import SMALL, prompts, save_model
from pairing import HEADER, compare
from plumbline.api import sample_trajectories
from plumbline.policies import open_policy
from plumbline.policies.masked.options import MaskedModel, MaskedSampling

CPU_POINTS = [(64, 64, 32, 2, 32_768), (64, 64, 32, 2, 151_936)]
GPU_POINTS = [(256, 256, 128, 8, 151_936)]
BIG = {"hidden": 1024, "layers": 28, "heads": 16, "kv_heads": 8, "kind": "qwen3"}
TEMPERATURE = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--dllm", type=Path, required=True, help="a checkout of the dllm repository"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    peer = load_dllm(options.dllm)
    print(f"torch {torch.__version__}, {options.threads} threads, {device}\n")
    print(
        "| prompt | canvas | steps | prompts | vocabulary | dllm's noise | "
        + " | ".join(HEADER)
        + " |"
    )
    print("|" + "---|" * (6 + len(HEADER)))
    for length, canvas, steps, batch, vocabulary in (
        CPU_POINTS if device.type == "cpu" else GPU_POINTS
    ):
        shape = {**(SMALL if device.type == "cpu" else BIG), "vocabulary": vocabulary}
        with tempfile.TemporaryDirectory() as folder:
            source = str(save_model(Path(folder) / "model", **shape, masks=True))
            measure(peer, source, device, (length, canvas, steps, batch, vocabulary), options.pairs)


def load_dllm(checkout: Path) -> types.ModuleType:
    """The sampler's module; packages are entered as plain namespaces."""
    if not (checkout / "dllm" / "core" / "samplers" / "mdlm.py").is_file():
        raise SystemExit(
            f"{checkout} is no checkout of dllm (it has no dllm/core/samplers/mdlm.py)"
        )
    for name in ("dllm", "dllm.core", "dllm.core.samplers"):
        package = types.ModuleType(name)
        package.__path__ = [str(checkout / name.replace(".", "/"))]
        sys.modules[name] = package
    return importlib.import_module("dllm.core.samplers.mdlm")


class Bidirectional:
    """The same weights behind the call that dllm's sampler makes."""

    def __init__(self, model) -> None:
        self.model, self.device = model, model.device

    def __call__(self, ids, attention_mask):
        allowed = attention_mask.bool()[:, None, None, :].expand(-1, 1, ids.shape[1], -1)
        mask = torch.zeros(allowed.shape, dtype=self.model.dtype, device=ids.device)
        return self.model(
            ids,
            attention_mask=mask.masked_fill(~allowed, torch.finfo(mask.dtype).min),
            use_cache=False,
        )


def float32_noise(logits, temperature):
    """dllm's Gumbel noise in float32: the same draw at half the memory and a fraction of the
    time."""
    if temperature == 0:
        return logits
    noise = torch.rand_like(logits, dtype=torch.float32).clamp_min(1e-20)
    return logits.float() / temperature - (-noise.log()).log()


def measure(
    peer, source: str, device: torch.device, point: tuple[int, int, int, int, int], pairs: int
) -> None:
    length, canvas, steps, batch, vocabulary = point
    section = MaskedModel(name=source, device=str(device), canvas=canvas)
    policy = open_policy(section, source)
    policy.chat.stop_ids = (-1,)
    chats = prompts(batch, length, vocabulary)
    ids = [policy.chat.prompt(chat) for chat in chats]
    sampling = MaskedSampling(
        temperature=TEMPERATURE, max_tokens=canvas, steps=steps, selector="low_confidence"
    )
    tokenizer = types.SimpleNamespace(
        mask_token_id=policy.chat.tokenizer.mask_token_id,
        bos_token_id=None,
        eos_token_id=vocabulary - 1,
    )
    sampler = peer.MDLMSampler(model=Bidirectional(policy.model), tokenizer=tokenizer)
    settings = {
        "steps": steps,
        "max_new_tokens": canvas,
        "block_size": canvas,
        "remasking": "low_confidence",
    }

    def theirs(temperature: float = TEMPERATURE) -> torch.Tensor:
        return sampler.sample(ids, temperature=temperature, return_dict=False, **settings)

    greedy = sample_trajectories(
        policy, chats, 1, MaskedSampling(temperature=0, max_tokens=canvas, steps=steps), seed=0
    )
    wanted = theirs(0.0)[:, length:].tolist()
    for (trajectory,), row in zip(greedy, wanted, strict=True):
        assert trajectory.answer.tolist() == row or device.type == "cuda", "greedy canvases differ"
    released = peer.add_gumbel_noise
    for name, noise in (("float64, as released", released), ("float32", float32_noise)):
        peer.add_gumbel_noise = noise
        ratio = compare(
            lambda: sample_trajectories(policy, chats, 1, sampling, seed=0),
            theirs,
            device,
            pairs,
            warmups=1,
        )
        print(ratio.row(length, canvas, steps, batch, vocabulary, name), flush=True)
    peer.add_gumbel_noise = released


if __name__ == "__main__":
    main()
