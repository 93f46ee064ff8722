"""A server that speaks vLLM's HTTP for a tiny model, and breaks where it is told to (see `Faults`).

What it does as vLLM 0.32 does (tried with the real one): token ids in and out, streams whose pieces
are an answer's first token and its rest, log-probabilities after temperature and filters, those of
a prompt without them, greedy copies refused, unknown models refused with 404, adapters by name,
weights by file, by transfer and by version.
"""

import base64
import copy
import json
import pickle
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

import torch

from plumbline.policies.sampling_distribution import draw
from plumbline.records import Sampling


@dataclass
class Faults:
    """What goes wrong; each is counted down from what is given, so that it happens once."""

    hangs: int | None = None
    """Nothing more is said after so many answers."""
    cuts: int | None = None
    """A stream is cut off after so many answers."""
    stale: bool = False
    """Weights are said to be loaded, and are not."""
    locked: bool = False
    """It was started without the calls that change weights."""
    shifts: int = 0
    """What is added to every token of `/tokenize`."""


@dataclass
class State:
    folder: Path
    dtype: torch.dtype
    faults: Faults
    base: str = "base"
    version: str = "default"
    adapters: dict[str, Any] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    """n of each request."""
    told: list[str] = field(default_factory=list)
    """Paths of the requests that change something."""
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(3))
    lock: Any = field(default_factory=threading.Lock)

    def load(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=self.dtype).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)


class Handler(BaseHTTPRequestHandler):
    state: State

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def say(self, body: Any, status: int = 200) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def refuse(self, status: int, message: str) -> None:
        self.say({"error": {"message": message, "code": status}}, status)

    def do_GET(self) -> None:
        state = self.state
        if self.path == "/health":
            self.say(None)
        elif self.path == "/v1/models":
            root = str(state.folder)
            data = [{"id": state.base, "root": root, "parent": None, "max_model_len": 200}]
            self.say(
                {
                    "data": data
                    + [{"id": name, "root": root, "parent": state.base} for name in state.adapters]
                }
            )
        elif self.path == "/weight_info" and not state.faults.locked:
            self.say({"weight_version": state.version})
        else:
            self.refuse(404, "Not Found")

    def do_POST(self) -> None:
        state = self.state
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/completions":
            return self.complete(body)
        if self.path == "/v1/chat/completions":
            return self.chat(body)
        if self.path == "/tokenize":
            ids = state.tokenizer(body["prompt"], add_special_tokens=False)["input_ids"]
            return self.say({"tokens": [token + state.faults.shifts for token in ids]})
        self.path = self.path.partition("?")[0]
        state.told.append(self.path)
        if self.path == "/update_weight_version":
            state.version = body["new_version"]
        elif self.path == "/collective_rpc" and body["method"] == "reload_weights":
            if not state.faults.stale:
                state.load(body["kwargs"]["weights_path"])
        elif self.path == "/v1/load_lora_adapter":
            from peft import PeftModel

            if body["lora_name"] in state.adapters:
                return self.refuse(400, "already loaded")
            if not (Path(body["lora_path"]) / "STABLE").is_file():
                return self.refuse(400, "half an adapter")
            whole = PeftModel.from_pretrained(
                copy.deepcopy(state.model), body["lora_path"]
            ).merge_and_unload()
            state.adapters[body["lora_name"]] = state.model if state.faults.stale else whole
        elif self.path == "/v1/unload_lora_adapter":
            if state.adapters.pop(body["lora_name"], None) is None:
                return self.refuse(404, "no such adapter")
        elif self.path == "/update_weights":
            info = body["update_info"]
            found = pickle.loads(base64.b64decode(info["ipc_handles_pickled"]))
            if not state.faults.stale:
                state.model.load_state_dict(
                    dict(zip(info["names"], found, strict=True)), strict=False
                )
        elif self.path not in {
            "/reset_prefix_cache",
            "/init_weight_transfer_engine",
            "/start_weight_update",
            "/finish_weight_update",
        }:
            return self.refuse(404, "Not Found")
        return self.say({"success": True})

    def complete(self, body: dict[str, Any]) -> None:
        state = self.state
        model = state.adapters.get(
            body["model"], state.model if body["model"] == state.base else None
        )
        if model is None:
            return self.refuse(404, f"The model `{body['model']}` does not exist")
        if body["temperature"] == 0 and body.get("n", 1) > 1:
            return self.refuse(400, "n must be 1 when using greedy sampling")
        if body.get("prompt_logprobs") is not None:
            with state.lock:
                rows = [score(model, prompt) for prompt in body["prompt"]]
            return self.say(
                {"choices": [{"index": i, "prompt_logprobs": row} for i, row in enumerate(rows)]}
            )
        state.asked.append(body["n"])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        sampling = Sampling(
            **{key: body[key] for key in ("temperature", "top_k", "top_p", "max_tokens")}
        )
        for index in range(body["n"]):
            if self.goes_wrong():
                return None
            with state.lock:
                tokens, logprobs = sample(
                    model, body["prompt"], sampling, body["stop_token_ids"], state.generator
                )
            reason = "stop" if tokens[-1] in body["stop_token_ids"] else "length"
            cut = 1 if len(tokens) > 1 else 0
            if cut:
                self.piece(index, tokens[:1], logprobs[:1], None)
            self.piece(index, tokens[cut:], logprobs[cut:], reason)
        self.wfile.write(b"data: [DONE]\n\n")
        return None

    def piece(
        self, index: int, tokens: list[int], logprobs: list[float], reason: str | None
    ) -> None:
        choice = {
            "index": index,
            "text": "",
            "token_ids": tokens,
            "logprobs": {"token_logprobs": logprobs},
            "finish_reason": reason,
        }
        self.wfile.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
        self.wfile.flush()

    def goes_wrong(self) -> bool:
        """Whether the stream ends here."""
        faults = self.state.faults
        for name in ("hangs", "cuts"):
            left = getattr(faults, name)
            if left is None:
                continue
            if left > 0:
                setattr(faults, name, left - 1)
                continue
            setattr(faults, name, None if name == "cuts" else left)
            if name == "hangs":
                time.sleep(60)
            return True
        return False

    def chat(self, body: dict[str, Any]) -> None:
        """As any OpenAI-compatible endpoint: what it wants is checked, and it echoes an "a" for
        each word."""
        if self.headers.get("Authorization") not in {None, "Bearer secret"}:
            return self.refuse(401, "wrong key")
        if body["model"] != "echo":
            return self.refuse(404, f"no model {body['model']}")
        words = body["messages"][-1]["content"].split()
        text = "a" * min(len(words), body["max_tokens"])
        reason = "length" if len(words) > body["max_tokens"] else "stop"
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": reason,
        }
        return self.say({"choices": [choice], "usage": {"completion_tokens": len(text)}})


@torch.no_grad()
def sample(
    model: Any, prompt: list[int], sampling: Sampling, stops: list[int], generator: torch.Generator
) -> tuple[list[int], list[float]]:
    tokens: list[int] = []
    logprobs: list[float] = []
    while len(tokens) < sampling.max_tokens and (not tokens or tokens[-1] not in stops):
        logits = model(torch.tensor([prompt + tokens])).logits[0, -1:]
        uniform = torch.rand(1, generator=generator, dtype=torch.float64)
        token, logprob = draw(logits, uniform, sampling)
        tokens.append(int(token))
        logprobs.append(float(logprob))
    return tokens, logprobs


@torch.no_grad()
def score(model: Any, prompt: list[int]) -> list[Any]:
    rows = model(torch.tensor([prompt])).logits[0].float().log_softmax(-1)
    return [
        None,
        *(
            {str(token): {"logprob": float(row[token])}}
            for token, row in zip(prompt[1:], rows, strict=False)
        ),
    ]


class Quiet(ThreadingHTTPServer):
    """Writes nothing to standard error, which the tests read; a client that loses its request says
    so itself."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class OnSocket(ThreadingMixIn, UnixStreamServer):
    """A server that listens on a Unix socket, as with vLLM's --uds."""

    daemon_threads = True


def serve(folder: Path, dtype: str = "float32", uds: str | None = None, **faults: Any) -> Any:
    """A server on a thread of this process, on a free port or a socket; its `state` and address are
    at hand."""
    state = State(Path(folder), getattr(torch, dtype), Faults(**faults))
    state.load(state.folder)
    handler = type("Bound", (Handler,), {"state": state})
    server: Any = OnSocket(uds, handler) if uds else Quiet(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.state = state
    server.address = "" if uds else f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class Alive:
    """The process of a stand-in on a thread."""

    def poll(self) -> None:
        """It has not ended."""


def on_threads(monkeypatch: Any, **faults: Any) -> list[Any]:
    """Have the servers that are started be stand-ins on threads, the first of them with faults;
    those that were."""
    from plumbline.engines import processes, vllm

    started: list[Any] = []

    def start(command: Sequence[str], _environment: Any, log: Path) -> Any:
        names = ("--model", "--uds", "--seed", "--served-model-name")
        folder, uds, seed, name = (command[command.index(one) + 1] for one in names)
        started.append(serve(Path(folder), uds=uds, **({} if started else faults)))
        started[-1].seed, started[-1].state.base = seed, name
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        ended: Any = Alive()
        return processes.ChildProcess(ended, ended, log, 0)

    def stop(_: Any) -> None:
        started[-1].shutdown()
        started[-1].server_close()

    monkeypatch.setattr(vllm, "MODULE", __name__)
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))  # where it is looked for
    monkeypatch.setattr(processes, "start_process", start)
    monkeypatch.setattr(processes, "stop_process", stop)
    return started
