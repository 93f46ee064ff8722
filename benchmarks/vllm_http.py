"""Our vLLM sampler against vLLM's own offline `LLM.generate`: same model, same prompts, same
sampling distribution, in turns.

    plumbline get smollm2-135m
    PLUMBLINE_VLLM_PYTHON=~/vllm/bin/python python benchmarks/vllm_http.py                     # 16 prompts x 8 answers
    PLUMBLINE_VLLM_PYTHON=~/vllm/bin/python python benchmarks/vllm_http.py --publications 5    # and weights handed over
    python benchmarks/vllm_http.py --rounding                    # how much of an RL step 16 bits keep; needs no vLLM

The two sides are processes of the same interpreter with the same arguments; while one draws, the
other waits, and which begins alternates. Every answer runs to its limit, so both write the same
number of tokens. Ours goes over HTTP and brings token ids and log-probabilities back into records;
theirs returns ids and log-probabilities in the process. With --rounding an adapter is trained as RL
would train it (Adam, one step after another, at a learning rate), and it is measured what of the
update is left when the merged weights are rounded.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

from plumbline.engines.vllm import EngineContext, VllmSampler
from plumbline.policies import open_policy
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.policies.pretrained import adapters as weights
from plumbline.policies.pretrained.weight_sync_check import measure_sync
from plumbline.recipe.execution import EngineSection
from plumbline.records import Request, Sampling
from plumbline.runs.run import Observer

SENTENCE = "the product came late and the box was broken, but the seller answered quickly. "
OFFLINE = """
import json, sys, time
from vllm import LLM, SamplingParams
given = json.loads(sys.stdin.readline())
llm = LLM(**given["llm"])
sampling = SamplingParams(**given["sampling"])
prompts = [{"prompt_token_ids": ids} for ids in given["prompts"]]
print("ready", flush=True)
for line in sys.stdin:
    began = time.perf_counter()
    found = llm.generate(prompts, sampling, use_tqdm=False)
    seconds = time.perf_counter() - began
    tokens = sum(len(one.token_ids) for each in found for one in each.outputs)
    print("done", json.dumps([seconds, tokens]), flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="models/smollm2-135m")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--copies", type=int, default=8)
    parser.add_argument("--answer", type=int, default=100)
    parser.add_argument(
        "--eager", action="store_true", help="both without recorded graphs, as on a CPU"
    )
    parser.add_argument(
        "--publications", type=int, default=0, help="steps of an update that are handed over"
    )
    parser.add_argument(
        "--rates", type=float, nargs="+", default=[1e-5, 7e-5], help="learning rates of --rounding"
    )
    parser.add_argument(
        "--rounding", action="store_true", help="only how much of an update rounding leaves"
    )
    options = parser.parse_args()
    if options.rounding:
        print_rounding(options)
        return
    section = AutoregressiveModel(name=options.model, dtype=options.dtype, device=options.device)
    policy = open_policy(section, options.model, 0)
    policy.context = 1024
    options.eager |= options.device == "cpu"
    eager = ["--enforce-eager"] if options.eager else []
    engine = EngineSection(name="vllm", arguments=["--dtype", options.dtype, *eager])
    with tempfile.TemporaryDirectory() as folder:
        sampler = VllmSampler(engine, policy, EngineContext(Path(folder), 0, Observer()))
        try:
            throughput(sampler, policy, options)
        finally:
            sampler.close()
    if options.publications:
        publications(options)


def asked(options: argparse.Namespace, number: int) -> list[Request]:
    sampling = Sampling(max_tokens=options.answer)
    return [
        Request(
            (number, prompt, copy),
            [{"role": "user", "content": f"Review {prompt}: " + 4 * SENTENCE}],
            sampling,
        )
        for prompt in range(options.prompts)
        for copy in range(options.copies)
    ]


def throughput(sampler: VllmSampler, policy: object, options: argparse.Namespace) -> None:
    """Tokens a second of both, in turns, and how far what ours recorded is from the learner's
    own."""
    chat = policy.chat  # type: ignore[attr-defined]
    chat.stop_ids = ()  # every answer runs to its limit
    prompts = [chat.prompt(request.messages) for request in asked(options, 0)[:: options.copies]]
    given = {
        "llm": {
            "model": os.path.realpath(options.model),
            "dtype": options.dtype,
            "max_model_len": 1024,
            "enforce_eager": options.eager,
            "gpu_memory_utilization": 0.4,
            "logprobs_mode": "processed_logprobs",
        },
        "sampling": {
            "n": options.copies,
            "max_tokens": options.answer,
            "ignore_eos": True,
            "logprobs": 0,
        },
        "prompts": prompts,
    }
    extra = {
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    command = [os.environ["PLUMBLINE_VLLM_PYTHON"], "-c", OFFLINE]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **extra}
    ) as theirs:

        def said(word: str) -> str:
            assert theirs.stdout is not None
            while line := theirs.stdout.readline():
                if line.startswith(word):
                    return line.removeprefix(word)
            raise SystemExit("vLLM's own process ended")

        def tell(line: str) -> None:
            assert theirs.stdin is not None
            theirs.stdin.write(line + "\n")
            theirs.stdin.flush()

        def they() -> float:
            tell("go")
            seconds, tokens = json.loads(said("done"))
            assert tokens == options.prompts * options.copies * options.answer
            return float(tokens / seconds)

        def we(number: int) -> float:
            requests = asked(options, number)
            began = time.perf_counter()
            got = [trajectory for _, trajectory in sampler.sample(requests)]
            seconds = time.perf_counter() - began
            assert (
                sum(one.num_tokens for one in got)
                == options.prompts * options.copies * options.answer
            )
            last.append(got)
            return options.prompts * options.copies * options.answer / seconds

        last: list[list[object]] = []
        tell(json.dumps(given))
        said("ready")
        we(0), they()
        pairs = []
        for number in range(1, options.pairs + 1):
            if number % 2:
                ours, other = we(number), they()
            else:
                other, ours = they(), we(number)
            pairs.append((ours, other))
            print(
                f"pair {number}: ours {ours:.0f} tokens/s, LLM.generate {other:.0f}, share "
                f"{ours / other:.3f}",
                flush=True,
            )
        tell("")
        theirs.terminate()
    shares = [ours / other for ours, other in pairs]
    print(
        f"{options.prompts} x {options.copies} x {options.answer} tokens, {options.dtype}: median "
        "share "
        f"{statistics.median(shares):.3f} ({min(shares):.3f} to {max(shares):.3f}), n = "
        f"{len(shares)} pairs; "
        f"ours {statistics.median(one for one, _ in pairs):.0f}, theirs "
        f"{statistics.median(o for _, o in pairs):.0f}"
    )
    some = last[-1][:32]
    with torch.no_grad():
        terms = policy.score(some)  # type: ignore[attr-defined]
    gaps = (terms.logprobs - terms.recorded).abs()
    error = float(gaps.std() / len(gaps) ** 0.5)
    print(
        f"gap to the scorer: mean {float(gaps.mean()):.4f} +- {1.96 * error:.4f} nats, n = "
        f"{len(gaps)} tokens"
    )


def adapted(options: argparse.Namespace, dtype: str) -> object:
    section = AutoregressiveModel(
        name=options.model, dtype=dtype, device=options.device, lora={"rank": 16, "alpha": 32}
    )
    return open_policy(section, options.model, 0)


def trained(policy: object, rate: float, steps: int):  # type: ignore[no-untyped-def]
    """Train an adapter as RL would, with answers of its own and advantages by turns; yields after
    each step."""
    optimiser = torch.optim.AdamW(policy.trainable().values(), lr=rate)  # type: ignore[attr-defined]
    for step in range(steps):
        requests = [
            Request(
                (step, copy),
                [{"role": "user", "content": f"Review {step}: {SENTENCE}"}],
                Sampling(max_tokens=24),
            )
            for copy in range(8)
        ]
        drawn = [trajectory for _, trajectory in policy.sample(requests)]  # type: ignore[attr-defined]
        terms = policy.score(drawn)  # type: ignore[attr-defined]
        signs = torch.tensor([1.0 if index % 2 else -1.0 for index in range(len(drawn))])[
            terms.owner
        ]
        (-(terms.logprobs * signs).sum() / 192).backward()
        torch.nn.utils.clip_grad_norm_(policy.trainable().values(), 1.0)  # type: ignore[attr-defined]
        optimiser.step()
        optimiser.zero_grad()
        yield step + 1


def print_rounding(options: argparse.Namespace) -> None:
    """What of an adapter's update is left when merged weights are rounded to 16 bits, after 1, 4
    and 16 steps."""
    print(
        "| base weights | learning rate | steps | arrives merged in bfloat16 | elements that "
        "change | as LoRA file |"
    )
    print("|---|---|---|---|---|---|")
    for dtype in ("bfloat16", "float32"):
        for rate in options.rates:
            policy = adapted(options, dtype)
            first = weights.round_weights(policy, torch.bfloat16)[1]
            with tempfile.TemporaryDirectory() as folder:
                before = weights.write_adapter(policy, Path(folder) / "first", torch.bfloat16)
                for step in trained(policy, rate, 16):
                    if step in {1, 4, 16}:
                        found = measure_sync(
                            first, weights.round_weights(policy, torch.bfloat16)[1]
                        )
                        now = weights.write_adapter(
                            policy, Path(folder) / str(step), torch.bfloat16
                        )
                        other = measure_sync(before, now)
                        assert found is not None
                        assert other is not None
                        row = (
                            f"| {dtype} | {rate:g} | {step} | {found.share:.1%} (noise "
                            f"{found.noise:.1f}) "
                        )
                        print(f"{row}| {found.elements:.1%} | {other.share:.1%} |", flush=True)


def publications(options: argparse.Namespace) -> None:
    """Seconds of handing over, and what the probe finds, with a server of float32 under an
    adapter."""
    policy = adapted(options, options.dtype)
    policy.context = 1024  # type: ignore[attr-defined]
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        place = EngineContext(Path(folder), 0, Observer(), lambda _, spent: seconds.append(spent))
        sampler = VllmSampler(EngineSection(name="vllm"), policy, place)
        try:
            for version in trained(policy, 7e-5, options.publications):
                sampler.take(policy, version)  # type: ignore[arg-type]
                print(
                    version,
                    {name: round(value, 5) for name, value in sampler.figures.items()},
                    flush=True,
                )
        finally:
            sampler.close()
    own = ", ".join(f"{one:.2f}" for one in seconds[1:])
    print(
        f"publication: median {statistics.median(seconds[1:]):.2f} s, n = {len(seconds) - 1} "
        f"({own})"
    )


if __name__ == "__main__":
    main()
