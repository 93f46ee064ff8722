"""A real model: sampling against transformers' `generate` and a vLLM server, a whole GRPO step
against TRL's.

    plumbline get smollm2-135m
    python benchmarks/real.py                        # sampling, with LoRA and without, 4 x 8 and 16 x 8 answers
    python benchmarks/real.py --server http://localhost:8000   # and an OpenAI server of the same model (no LoRA)
    python benchmarks/real.py --llama http://localhost:8200    # and llama.cpp's server (-np 32 or more)
    python benchmarks/real.py --trl --pairs 3        # and TRL's whole step in the same dtype (a minute or two a pair)
    python benchmarks/real.py --gap                  # only how far sampler and scorer are apart
    python benchmarks/real.py --device cuda --trl
    python benchmarks/models.py qwen3-8b models/random-8b     # random weights of that shape, 16 GB
    python benchmarks/real.py --device cuda --trl --model models/random-8b --prompts 1 --copies 16 --sentences 32 \\
        --answer 512 --adapters lora

Weights, adapters, prompts, dtype and sampling distribution are the same, the two sides take turns
in one run, and every answer runs to its limit. First greedy tokens are compared: where the two
part, the two tokens must be as good as equally likely, because 16 bits decide ties by rounding.
Beside the times stands how far a step of ours is from what this machine needs at least: to read the
weights once at the bandwidth measured here, and to multiply them by all rows at the rate of a large
product. A peer's row is printed as soon as it is there; a peer that fails says why, and the next
goes on.
"""

import argparse
import json
import os
import tempfile
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from torch.nn import functional

from pairing import HEADER, compare
from plumbline.api import sample_trajectories
from plumbline.policies import open_policy
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.records import Sampling

RANK = {"rank": 16, "alpha": 32}
GREEDY = 32
TIE = {"bfloat16": 0.25, "float32": 1e-3}
"""Nats by which two tokens may differ that rounding confuses."""
WORDS = "the product came late and the box was broken, but the seller answered quickly. "
LABELS = (
    "peer",
    "answers",
    "adapters",
    *HEADER,
    "tokens/s, ours / theirs",
    "a step: readings, products",
    "greedy alike",
)

Draw = Callable[[list[list[int]], int, int, bool], list[list[int]]]
"""(prompts, copies, tokens of an answer, greedily) to answers, those of a prompt side by side."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="models/smollm2-135m")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="bfloat16", choices=sorted(TIE))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompts", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--copies", type=int, default=8, help="answers to each prompt")
    parser.add_argument(
        "--sentences", type=int, default=4, help="of a prompt; each is about 25 tokens"
    )
    parser.add_argument("--answer", type=int, default=100)
    parser.add_argument("--adapters", nargs="+", default=["lora", "none"], choices=["lora", "none"])
    parser.add_argument("--skip-generate", action="store_true")
    parser.add_argument("--server", help="of the same model: its address, /v1/completions is asked")
    parser.add_argument(
        "--llama", help="llama.cpp's server of a GGUF of it: its weights may be rounded otherwise"
    )
    parser.add_argument("--trl", action="store_true", help="TRL's whole step")
    parser.add_argument(
        "--gap", action="store_true", help="only the gap between sampler and scorer"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.device = torch.device(options.device)
    where = (
        torch.cuda.get_device_name()
        if options.device.type == "cuda"
        else f"CPU, {options.threads} threads"
    )
    print(f"torch {torch.__version__}, {where}, {options.dtype}, {Path(options.model).name}")
    if not options.gap:
        limits = machine(options.device, getattr(torch, options.dtype))
        print(f"reading {limits[0] / 1e9:.1f} GB/s, large products {limits[1] / 1e9:.0f} GFLOP/s\n")
        print("| " + " | ".join(LABELS) + " |\n|" + "---|" * len(LABELS), flush=True)
    for adapters in options.adapters:
        with tempfile.TemporaryDirectory() as folder:
            policy, model = both(options, RANK if adapters == "lora" else None, Path(folder))
            if options.gap:
                print(f"adapters {adapters}: {gap(policy, options)}", flush=True)
                continue
            peers = (
                {} if options.skip_generate else {"generate": generate_of(model, options.device)}
            )
            if options.server and adapters == "none":
                peers["server"] = server_at(options.server)
            if options.llama and adapters == "none":
                peers["llama.cpp"] = llama_at(options.llama)
            for count in options.prompts:
                for name, draw in peers.items():
                    tried(
                        name,
                        row,
                        name,
                        draw,
                        (policy, model),
                        chats(count, options),
                        options,
                        limits,
                    )
            if options.trl and adapters == "lora":
                del policy, model, peers
                tried("TRL", whole_step, options, Path(folder))


def tried(name: str, work: Callable[..., str], *arguments: object) -> None:
    """Print a row, or why there is none."""
    try:
        print(work(*arguments), flush=True)
    except Exception as error:  # noqa: BLE001 - whatever a peer raises, the others are still measured
        print(
            f"| {name} | failed: {type(error).__name__}: {str(error).strip()[:300]} |", flush=True
        )


def chats(count: int, options) -> list[list[dict[str, str]]]:
    """Prompts of so many sentences."""
    return [
        [{"role": "user", "content": f"Review number {n}: {WORDS * options.sentences}"}]
        for n in range(count)
    ]


def both(options, lora, folder):
    """Our policy and transformers' model with the same weights; adapters are moved, so that they do
    something."""
    from transformers import AutoModelForCausalLM

    section = AutoregressiveModel(
        name=options.model, device=str(options.device), dtype=options.dtype, lora=lora
    )
    policy = open_policy(section, options.model)
    assert policy.engine["decoder"] == "lean", policy.engine
    if policy.engine["left_out"]:
        print(f"<!-- ours goes without {policy.engine['left_out']} -->")
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=getattr(torch, options.dtype))
    if lora:
        import peft

        generator = torch.Generator().manual_seed(0)
        for name, weight in policy.trainable().items():
            if "lora_B" in name:
                weight.data.copy_(torch.randn(weight.shape, generator=generator) * 1e-3)
        policy.save(folder / "adapter", {})
        model = peft.PeftModel.from_pretrained(model, folder / "adapter")
    policy.chat.stop_ids = (-1,)  # answers run to their limit
    return policy, model.to(options.device).eval()


def generate_of(model, device) -> Draw:
    """transformers' `generate`."""

    def draw(prompts, copies, length, greedily):
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(each)) + each for each in prompts], device=device)
        mask = torch.tensor(
            [[0] * (longest - len(each)) + [1] * len(each) for each in prompts], device=device
        )
        sampling = (
            {"do_sample": False}
            if greedily
            else {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        )
        rows = {
            "input_ids": ids.repeat_interleave(copies, 0),
            "attention_mask": mask.repeat_interleave(copies, 0),
        }
        with torch.no_grad():
            found = model.generate(
                **rows,
                max_new_tokens=length,
                min_new_tokens=length,
                eos_token_id=None,
                pad_token_id=0,
                **sampling,
            )
        return found[:, longest:].tolist()

    return draw


def asked_at(address: str, path: str, body: dict | None = None) -> dict:
    """What a server answers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        address.rstrip("/") + path, data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def llama_at(address: str) -> Draw:
    """llama.cpp's own server, asked for all answers at once, each by itself; it needs a slot for
    each."""

    def draw(prompts, copies, length, greedily):
        sampling = {"temperature": 0.0 if greedily else 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
        sampling |= {
            "n_predict": length,
            "ignore_eos": True,
            "return_tokens": True,
            "cache_prompt": True,
        }
        bodies = [{"prompt": prompt, **sampling} for prompt in prompts for _ in range(copies)]
        with ThreadPoolExecutor(len(bodies)) as pool:
            return [
                found["tokens"]
                for found in pool.map(partial(asked_at, address, "/completion"), bodies)
            ]

    return draw


def server_at(address: str) -> Draw:
    """A server with OpenAI's `/v1/completions`, asked for all answers in one request."""
    asked = partial(asked_at, address)

    def draw(prompts, copies, length, greedily):
        body = {
            "model": asked("/v1/models")["data"][0]["id"],
            "prompt": prompts,
            "n": copies,
            "max_tokens": length,
            "ignore_eos": True,
            "temperature": 0.0 if greedily else 1.0,
            "return_token_ids": True,
        }
        choices = sorted(
            asked("/v1/completions", body)["choices"], key=lambda choice: choice["index"]
        )
        answers = [choice["token_ids"] for choice in choices]
        assert [len(each) for each in answers] == [length] * (len(prompts) * copies), (
            "answers of other lengths"
        )
        return answers

    return draw


def row(name: str, draw: Draw, sides, asked, options, limits) -> str:
    """A table's row of one peer."""
    policy, model = sides
    prompts = [policy.chat.prompt(chat) for chat in asked]
    tie = float("inf") if name == "llama.cpp" else TIE[options.dtype]
    alike = same_greedily(
        policy, model, asked, prompts, draw(prompts, 1, GREEDY, True), options, tie
    )
    sampling = Sampling(max_tokens=options.answer)
    ratio = compare(
        lambda: sample_trajectories(policy, asked, options.copies, sampling, seed=0),
        lambda: draw(prompts, options.copies, options.answer, False),
        options.device,
        options.pairs,
        warmups=1 if options.device.type == "cuda" else 0,
    )
    rows = len(asked) * options.copies
    steps = options.answer * -(-rows // policy.rows_at_once)
    weights = list(policy.model.parameters())
    reading = sum(weight.numel() * weight.element_size() for weight in weights) / limits[0]
    products = (
        2 * rows * options.answer / steps * sum(weight.numel() for weight in weights) / limits[1]
    )
    step, tokens = ratio.ours_seconds / steps, rows * options.answer
    cells = [
        f"{tokens / ratio.ours_seconds:.0f} / {tokens / ratio.theirs_seconds:.0f}",
        f"{step * 1e3:.1f} ms: {step / reading:.1f}, {step / products:.1f} times",
        alike,
    ]
    adapters = "none" if policy.adapter is None else "LoRA 16, all linear"
    shape = f"{len(asked)} x {options.copies} x {options.answer}"
    return ratio.row(name, shape, adapters) + " " + " | ".join(cells) + " |"


def same_greedily(policy, model, asked, prompts, theirs, options, tie) -> str:
    """How many greedy tokens are alike up to the first that differs, which may be a tie."""
    ours = sample_trajectories(policy, asked, 1, Sampling(temperature=0, max_tokens=GREEDY), seed=0)
    alike = 0
    for prompt, (mine,), yours in zip(prompts, ours, theirs, strict=True):
        tokens = mine.tokens.tolist()
        parting = next(
            (at for at, pair in enumerate(zip(tokens, yours, strict=True)) if len(set(pair)) == 2),
            None,
        )
        alike += GREEDY if parting is None else parting
        if parting is not None:
            with torch.no_grad():
                ids = torch.tensor([prompt + tokens[:parting]], device=options.device)
                logits = model(ids).logits[0, -1].float()
            apart = float((logits[tokens[parting]] - logits[yours[parting]]).abs())
            assert apart < tie, f"greedy tokens differ at place {parting} by {apart:.2f} nats"
    every = GREEDY * len(prompts)
    return f"{alike} of {every}" + (", then ties" if alike < every else "")


def gap(policy, options) -> str:
    """How far recorded log-probabilities are from scored ones, before anything is learnt."""
    asked = chats(options.prompts[0], options)
    drawn = sample_trajectories(
        policy, asked, options.copies, Sampling(max_tokens=options.answer), seed=0
    )
    answers = [answer for group in drawn for answer in group]
    with torch.no_grad():
        terms = [
            policy.score([answers[at] for at in part]) for part in policy.batches(answers, 2048)
        ]
    apart = torch.cat([each.logprobs - each.recorded for each in terms]).abs()
    return f"{len(apart)} tokens, mean {apart.mean():.2g} nats, largest {apart.max():.2g}"


def machine(device: torch.device, dtype: torch.dtype) -> tuple[float, float]:
    """Bytes a second that are read from memory, and operations a second of a large product; the
    best of several."""
    count, (rows, inputs, outputs) = (
        (2**25, (1024, 576, 1536)) if device.type == "cpu" else (2**28, (8192,) * 3)
    )
    large = torch.ones(count, dtype=torch.int64, device=device)
    hidden, weight = (
        torch.randn(size, inputs, device=device).to(dtype) for size in (rows, outputs)
    )

    def best(work) -> float:
        seconds = []
        for _ in range(7):
            began = time.perf_counter()
            work()
            if device.type == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
        return min(seconds)

    return 8 * count / best(large.sum), 2 * rows * inputs * outputs / best(
        lambda: functional.linear(hidden, weight)
    )


def whole_step(options, folder: Path) -> str:
    """Sampling, rewards, loss, backward pass, clipping and AdamW, by both, from the same weights
    with new adapters."""
    import peft

    from rl_step import our_step, their_step, their_trainer

    asked = chats(min(options.prompts), options)
    lora = peft.LoraConfig(
        r=RANK["rank"], lora_alpha=RANK["alpha"], target_modules="all-linear", task_type="CAUSAL_LM"
    )
    place = (options.model, options.device, asked, options.answer, options.copies)
    ours, _ = our_step(*place, dtype=options.dtype, lora=RANK)
    trainer = their_trainer(*place, folder, getattr(torch, options.dtype), lora)
    warmups = 1 if options.device.type == "cuda" else 0
    ratio = compare(
        ours,
        lambda: their_step(trainer, asked, options.copies),
        options.device,
        options.pairs,
        warmups,
    )
    shape = f"{len(asked)} x {options.copies} x {options.answer}"
    return ratio.row("TRL, a whole step", shape, "LoRA 16, all linear") + " - | - | - |"


if __name__ == "__main__":
    main()
