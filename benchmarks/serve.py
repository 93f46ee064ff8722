"""Load tests of the server over HTTP: many clients against one at a time, against vLLM's server,
and a soak.

    plumbline get smollm2-135m
    python benchmarks/serve.py                                                     # 1 and 32 clients, one at a time
    PLUMBLINE_VLLM_PYTHON=~/vllm/bin/python python benchmarks/serve.py --vllm      # and the vLLM server, in turns
    python benchmarks/serve.py --soak 10000        # small requests to a tiny model, and the memory at every tenth

Each server is a process of its own, and clients stream. In a pair every server is given the same
chats, one after another, and which begins alternates. Ours is started without ends of an answer,
and vLLM is told to ignore them, so that all answers have the same number of tokens. A request that
does not bring all of its tokens is lost.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import httpx

from plumbline.engines import processes, vllm

SENTENCE = "the product came late and the box was broken, but the seller answered quickly. "
WORDS = [
    "o produto chegou atrasado e com defeito",
    "ótima compra, nota 10",
    "não recomendo, 12 dias de atraso",
]
CONTEXT = 1024
TINY = {"hidden": 32, "layers": 2, "heads": 2, "vocabulary": 300, "context": 256}


@dataclass(frozen=True)
class Side:
    """A server, and what a request to it says beside the rest."""

    name: str
    server: processes.ChildProcess
    address: str
    extra: dict[str, object]


@dataclass(frozen=True)
class Load:
    """What one load found."""

    seconds: float
    tokens: int
    lost: int
    latency: list[float]
    first: list[float]

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="models/smollm2-135m")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument(
        "--requests", type=int, default=64, help="of all clients together, in one load"
    )
    parser.add_argument("--alone", type=int, default=4, help="requests of a load with one client")
    parser.add_argument("--answer", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--vllm", action="store_true")
    parser.add_argument("--soak", type=int, default=0, metavar="REQUESTS")
    parser.add_argument("--endless", metavar="MODEL", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, default=64, help=argparse.SUPPRESS)
    parser.add_argument("--host", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.endless:
        serve(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        if options.soak:
            soak(Path(folder), options.soak)
        else:
            compare(Path(folder), options)


def serve(options: argparse.Namespace) -> None:
    """Be the server: requests that wait are drawn together, and answers run to their limit."""
    from plumbline.policies import open_policy
    from plumbline.policies.autoregressive.options import AutoregressiveModel
    from plumbline.records import Sampling
    from plumbline.serve.batched import BatchedBackend
    from plumbline.serve.limits import RequestLimits
    from plumbline.serve.server import ServerOptions
    from plumbline.serve.server import serve as run

    section = AutoregressiveModel(
        name=options.endless, dtype=options.dtype, device="cpu", rows_at_once=options.rows
    )
    policy = open_policy(section, options.endless, 0)
    policy.chat.stop_ids = (-1,)  # type: ignore[attr-defined]
    served = BatchedBackend("m", policy, Sampling(), at_once=options.rows)
    serving = ServerOptions(
        host=options.host, port=options.port, limits=RequestLimits(requests=256, seconds=600.0)
    )
    run(lambda: [served], serving, print)


def started(
    name: str, python: str | None, module: str, arguments: Sequence[str], folder: Path
) -> Side:
    """A server that answers."""
    is_vllm = module == vllm.MODULE
    extra = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_NO_USAGE_STATS": "1"} if is_vllm else {}
    port = processes.free_port()
    command = [
        vllm.find_interpreter(python) if is_vllm else sys.executable,
        "-m",
        module,
        *arguments,
    ]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    side = Side(
        name,
        processes.start_process(command, extra, folder / f"{name}.log"),
        f"http://127.0.0.1:{port}",
        {"ignore_eos": True} if is_vllm else {},
    )
    while side.server.status is None:
        try:
            if httpx.get(f"{side.address}/v1/models").status_code == 200:
                return side
        except httpx.TransportError:
            time.sleep(0.25)
    raise SystemExit(f"{name} ended: {side.server.read_output()}")


def ours(name: str, options: argparse.Namespace, folder: Path, rows: int = 64) -> Side:
    """Our server of the model; `rows` 1 answers one at a time."""
    arguments = ["--endless", options.model, "--dtype", options.dtype]
    return started(
        name, sys.executable, "benchmarks.serve", [*arguments, "--rows", str(rows)], folder
    )


def chats(first: int, count: int) -> list[str]:
    return [f"Review {number}: " + 4 * SENTENCE for number in range(first, first + count)]


async def load(side: Side, texts: Sequence[str], clients: int, answer: int) -> Load:
    """Ask for an answer to each text, so many at a time; each client asks again when its answer has
    ended."""
    todo, latency, first = list(texts), [], []
    tokens = lost = 0
    began = time.perf_counter()

    async def client(http: httpx.AsyncClient) -> None:
        nonlocal tokens, lost
        while todo:
            at, text = time.perf_counter(), todo.pop()
            try:
                begun, got = await ask(http, side, text, answer)
            except (httpx.HTTPError, KeyError, ValueError) as error:
                print(f"lost: {error!r}", file=sys.stderr)
                lost += 1
                continue
            tokens += got
            lost += got != answer
            latency.append(time.perf_counter() - at)
            first.append(begun - at)

    async with httpx.AsyncClient(base_url=side.address, timeout=600) as http:
        await asyncio.gather(*(client(http) for _ in range(clients)))
    return Load(time.perf_counter() - began, tokens, lost, latency, first)


async def ask(http: httpx.AsyncClient, side: Side, text: str, answer: int) -> tuple[float, int]:
    """When the first text came, and how many tokens there were."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": answer,
        "temperature": 1.0,
        "top_p": 1.0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **side.extra,
    }
    begun, tokens = 0.0, 0
    async with http.stream("POST", "/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            said = json.loads(line.removeprefix("data: "))
            if not begun and any(choice["delta"].get("content") for choice in said["choices"]):
                begun = time.perf_counter()
            if said.get("usage"):
                tokens = said["usage"]["completion_tokens"]
    return begun or time.perf_counter(), tokens


def compare(folder: Path, options: argparse.Namespace) -> None:
    """Loads of every side in turns, as a Markdown table, and ratios of pairs."""
    sides = [ours("batches", options, folder), ours("one at a time", options, folder, rows=1)]
    if options.vllm:
        given = [
            "--model",
            os.path.realpath(options.model),
            "--served-model-name",
            "m",
            "--dtype",
            options.dtype,
        ]
        limits = ["--max-model-len", str(CONTEXT), "--enforce-eager"]
        sides.append(started("vLLM", None, vllm.MODULE, [*given, *limits], folder))
    found: dict[tuple[str, int], list[Load]] = {}
    try:
        for side in sides:  # warm-up: code and pages of every shape
            asyncio.run(load(side, chats(0, 8), 8, 8))
        for pair in range(options.pairs):
            for side in sides if pair % 2 == 0 else reversed(sides):
                for clients, count in ((1, options.alone), (options.clients, options.requests)):
                    texts = chats(1000 * (pair + 1), count)
                    one = asyncio.run(load(side, texts, clients, options.answer))
                    found.setdefault((side.name, clients), []).append(one)
                    print(
                        f"pair {pair + 1}: {side.name}, {clients} clients: {one.rate:.0f} tokens/s",
                        flush=True,
                    )
    finally:
        for side in sides:
            processes.stop_process(side.server)
    print(
        f"\n{options.model}, {options.dtype}, answers of {options.answer} tokens, n = "
        f"{options.pairs} loads each\n"
    )
    print("| server | clients | tokens/s, median (least to greatest) | latency p50 / p95 / p99 | "
        "to "
        "the first text "
          "p50 / p95 / p99 | lost |")  # fmt: skip
    print("|---|---|---|---|---|---|")
    for (name, clients), loads in found.items():
        print(row(name, clients, loads))
    base = found["batches", options.clients]
    for name in [side.name for side in sides[1:]]:
        ratios = [
            other.rate / one.rate
            for one, other in zip(base, found[name, options.clients], strict=True)
        ]
        print(
            f"\n{name} / batches, tokens/s with {options.clients} clients: median "
            f"{statistics.median(ratios):.2f}"
            f" ({min(ratios):.2f} to {max(ratios):.2f}), n = {len(ratios)} pairs"
        )
    if lost := sum(one.lost for loads in found.values() for one in loads):
        raise SystemExit(f"{lost} answers were lost")


def row(name: str, clients: int, loads: Sequence[Load]) -> str:
    """A row of the table."""
    rates = [one.rate for one in loads]

    def three(of: Callable[[Load], list[float]]) -> str:
        values = sorted(value for one in loads for value in of(one))
        places = [
            values[min(len(values) - 1, int(len(values) * share))] for share in (0.5, 0.95, 0.99)
        ]
        return " / ".join(f"{value:.2f}" for value in places) + f" s (n = {len(values)})"

    middle = f"{statistics.median(rates):.0f} ({min(rates):.0f} to {max(rates):.0f})"
    times = f"{three(lambda one: one.latency)} | {three(lambda one: one.first)}"
    return f"| {name} | {clients} | {middle} | {times} | {sum(one.lost for one in loads)} |"


def soak(folder: Path, requests: int) -> None:
    """Small requests to a tiny model, and the server's resident memory at every tenth of them."""
    from plumbline.policies.pretrained.tiny import make_tiny
    from plumbline.recipe import TinySection

    make_tiny(folder / "tiny", TinySection(**TINY), WORDS * 10, seed=0)
    options = argparse.Namespace(model=str(folder / "tiny"), dtype="float32")
    side, lost = ours("tiny", options, folder), 0
    print("| requests | resident memory | requests/s |\n|---|---|---|", flush=True)
    try:
        for part in range(10):
            one = asyncio.run(
                load(side, [WORDS[number % 3] for number in range(requests // 10)], 16, 4)
            )
            lost += one.lost
            status = Path(f"/proc/{side.server.process.pid}/status").read_text()
            memory = next(
                int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")
            )
            rate, done = len(one.latency) / one.seconds, (part + 1) * (requests // 10)
            print(f"| {done} | {memory / 1024:.1f} MiB | {rate:.0f} |", flush=True)
    finally:
        processes.stop_process(side.server)
    if lost:
        raise SystemExit(f"{lost} answers were lost")


if __name__ == "__main__":
    main()
