"""vLLM as a sampler: it draws with the learner's weights, which it is handed version by version.

What is drawn comes from the server's own random numbers: the sampling distribution is the recipe's
(temperature, top-k, top-p, as `sampling_distribution`), but a run is not the same to the bit when
it is repeated. Each answer keeps the log-probabilities that the server computed for it;
`train/sampler_scorer_gap` is how far the learner's own are from them. Weights are believed to be
there once a probe says so: vLLM's own checksums are, on a CPU, those of nothing, before and after.

Whoever reaches a server can change its weights, and with `transfer` run code in it: vLLM unpickles
what it is sent, and a key guards its paths under /v1 only. So one of a run's own listens on a Unix
socket in a folder of this user, on no port.
"""

import base64
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Any

from plumbline.config.imports import check_consent, check_reach, import_needed
from plumbline.engines import processes
from plumbline.engines.vllm_client import (
    SERVER,
    Client,
    Part,
    ServerLostError,
    check_address,
    is_healthy,
)
from plumbline.errors import EngineError
from plumbline.policies.policy import Policy
from plumbline.policies.pretrained.weight_sync_check import (
    TEXT,
    NumberPair,
    WeightSyncCheck,
    check_tokenizer,
    encode_probe,
)
from plumbline.recipe import Recipe
from plumbline.recipe.execution import EngineSection
from plumbline.records import Draws, Message, Request, Sampling
from plumbline.runs.run import Listener, Run
from plumbline.seeds import derive
from plumbline.storage import clear_os_errors

IN_FLIGHT = 256  # answers that are asked for at once
RESTARTS = 5  # so often a run starts its own server again
BARREN = 3  # after so many attempts in a row without any answer the run gives up
GIVEN = "its log, start it with VLLM_SERVER_DEV_MODE=1 (see docs/cluster.md)"
# what the names of versions begin with, and the folders of weights for a server
PREFIX = "plumbline-"
MODULE = "vllm.entrypoints.openai.api_server"
PINNED = "0.32"  # its interfaces are used; they changed at 0.28 and again after 0.31
PYTHON = "PLUMBLINE_VLLM_PYTHON"  # names an interpreter with vLLM, where no recipe does


@dataclass(frozen=True, slots=True)
class EngineContext:
    """Where an engine works, and who is told."""

    folder: Path  # for its log and the weights that it is handed
    seed: int  # of the server's random numbers
    listener: Listener
    # hears how many seconds a version took to publish
    timed: Callable[[int, float], None] = lambda *_: None


def check_engine(section: EngineSection, family: str, *, ask: bool = True) -> None:
    """Refuse what can be known of a recipe's engine before anything is trained.

    Args:
        section: the recipe's.
        family: of its model.
        ask: whether a server at an address must answer now.

    Raises:
        EngineError: a family that vLLM has not; httpx is not installed, the interpreter has no
            vLLM, or nothing answers at the address.
    """
    if family != VllmSampler.family:
        raise EngineError(f"vLLM has no model of the family {family}", "leave out engine")
    import_needed("httpx", "an engine over HTTP", EngineError)
    if section.address is None:
        if section.python is not None:
            check_consent(f"python={section.python}", "engine.python", "python", section.python)
        if section.arguments:  # some of them name modules
            check_consent(
                "arguments=", "engine.arguments", "arguments", " ".join(section.arguments)
            )
        find_interpreter(section.python)
        return
    check_address(section.address, "engine.address")
    if ask:
        check_reach(section.address, "engine.address")
    if ask and not is_healthy(section.address):
        raise EngineError(
            f"no vLLM server is well at {section.address}",
            "start it first, or leave out engine.address, and the run starts its own",
        )


def check_publication(section: EngineSection, policy: Any) -> tuple[str, Any]:
    """How a policy's weights are handed over, and the torch dtype of the server's.

    That is as `--dtype` among its arguments says; by default the learner's; but float32 where
    adapters are merged, because 16 bits would round away what RL learns.

    Raises:
        EngineError: they cannot be handed over like this.
    """
    import torch

    how, adapted = section.publish, policy.adapter is not None
    if how == "auto":
        how = "lora" if adapted and policy.device.type == "cuda" else "full"
    if how == "lora" and not adapted:
        raise EngineError(
            "engine.publish: lora needs an adapter, and every weight is trained", "set it to full"
        )
    name = "float32" if adapted and how != "lora" else str(policy.engine["dtype"])
    if found := re.search(r"--dtype[= ](\w+)", " ".join(section.arguments)):
        name = found[1]
    if name not in {"float32", "bfloat16", "float16"}:
        raise EngineError(
            f"--dtype {name} does not say what weights are rounded to", "give bfloat16 or float32"
        )
    if how != "lora":
        from plumbline.policies.pretrained.adapters import check_mergeable

        check_mergeable(policy)
    return how, getattr(torch, name)


def open_engine(recipe: Recipe, policy: Any, model: str, run: Run) -> "VllmSampler":
    """The engine of a run, with the policy's present weights as version 0.

    Raises:
        EngineError: see `VllmSampler`.
    """
    assert recipe.engine is not None
    place = EngineContext(
        run.folder / "engine",
        derive(recipe.seed, "engine", model),
        run,
        lambda version, seconds: run.timings("engine", version, {"time/publish": seconds}),
    )
    return VllmSampler(recipe.engine, policy, place)


class VllmSampler:
    """An `Engine` over a vLLM server, which it starts, or which runs at an address."""

    family = "autoregressive"

    def __init__(self, section: EngineSection, policy: Any, place: EngineContext) -> None:
        """Start or find the server, and hand it the policy's weights as version 0.

        Raises:
            EngineError: the policy is of another family; the server cannot be started, is not
                there, or serves another model; httpx is not installed.
        """
        check_engine(section, policy.family, ask=False)  # it is waited for
        self.section, self.policy, self.place = section, policy, place
        self.log = place.folder / "server.log"
        self._advice = f"see {GIVEN if section.address else self.log}, or raise engine.timeout"
        self.context: int = policy.context
        self.weights = Publication(*check_publication(section, policy), place.folder)
        self.socket = reserve_socket() if section.address is None else None
        self.client = Client(section.address or "http://localhost", section.timeout, self.socket)
        self.server: processes.ChildProcess | None = None
        self.figures: Mapping[str, float] = {}  # what the last publication was found to be
        self.version, self._starts, self._barren = 0, 0, 0
        try:
            self.take(policy, 0)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """See `Engine.close`: end an own server, and remove the weights that it was handed; its log
        stays."""
        self.client.close()
        if self.server is not None:
            processes.stop_process(self.server)
        for folder in self.place.folder.glob(f"{PREFIX}*"):
            shutil.rmtree(folder, ignore_errors=True)
        if self.socket is not None:
            shutil.rmtree(self.socket.parent, ignore_errors=True)

    # -- the server --------------------------------------------------------------------------------

    def _start(self) -> processes.ChildProcess:
        """Start an own server, with the policy's present weights where it reads whole ones."""
        from plumbline.policies.pretrained.adapters import write_full

        assert self.socket is not None
        how, served = self.weights.how, self.weights.served
        self.socket.unlink(missing_ok=True)  # of a server that was killed
        if how != "lora":
            write_full(self.policy, served, self.weights.dtype)
        seed = derive(self.place.seed, self._starts) % 2**31
        words, said = server_command(
            how, self.policy, str(served), self.engine["dtype"], self.socket, seed
        )
        self._starts += 1
        return processes.start_process(
            [find_interpreter(self.section.python), *words, *self.section.arguments], said, self.log
        )

    def _prepare(self) -> None:
        """Have a server that is well, that can be the learner's, and that has the weights of this
        version."""
        if starting := self.server is None and self.section.address is None:
            self.server = self._start()
        began, limit = time.monotonic(), self.section.timeout
        while not is_healthy(self.client.address, self.socket):
            gone = time.monotonic() - began
            if self.server is not None and not starting:
                raise ServerLostError(f"the vLLM server at {self.client.address} is no longer well")
            if self.server is not None and (why := explain_exit(self.server)):
                raise why
            if gone > limit:
                raise EngineError(
                    f"{self.client.address} was not ready within {limit:g} seconds", self._advice
                )
            self.place.listener.working("waiting for the vLLM server", int(gone), int(limit))
            time.sleep(0.25)
        there = self.weights.has_latest(self.client, self.policy)
        self.context = self.weights.context
        if not there:
            if self.weights.token:
                self.place.listener.event(
                    "engine", f"the server no longer has version {self.version}: it gets it again"
                )
            seconds, self.figures = self.weights.hand_over(self.client, self.policy, self.version)
            self.place.timed(self.version, seconds)

    @contextmanager
    def _retry(self) -> Iterator[None]:
        """An attempt at something: what loses the server ends the block, and the next attempt finds
        one again.

        Raises:
            EngineError: it was lost too often.
        """
        try:
            yield
            self._barren = 0
        except ServerLostError as lost:
            self._barren += 1
            why, then = EngineError(lost.cause), "it is waited for"
            if self.server is not None:
                time.sleep(0.5)  # one whose engine has died takes a moment to end
                why, then = explain_exit(self.server) or why, "it is started again"
                processes.stop_process(self.server)
                self.server = None
            if self._barren > BARREN or self._starts > RESTARTS:
                times = f"started {self._starts} times"
                if self._barren > BARREN:
                    times = f"{self._barren} times in a row"
                raise EngineError(f"{why.cause} ({times})", self._advice) from lost
            self.place.listener.event(
                "engine", f"{why.cause}; {then}, and what had not ended is asked again"
            )

    # -- what an engine does -----------------------------------------------------------------------

    def take(self, learner: Policy, version: int) -> None:
        """See `Engine.take`."""
        if version != self.version:
            self.weights.token = ""  # those that it has are others
        self.policy, self.version = learner, version
        while not self.weights.token:
            with self._retry():
                self._prepare()

    @property
    def engine(self) -> Mapping[str, str]:
        """See `Sampler.engine`."""
        dtype = str(self.weights.dtype).removeprefix("torch.")
        whose = "given" if self.section.address else "own"
        how = {"publish": self.weights.how, "dtype": dtype, "model": self.weights.base}
        return {"engine": "vllm", "server": whose, **how}

    def prompt_length(self, messages: Sequence[Message]) -> int:
        """See `Sampler.prompt_length`."""
        return int(self.policy.prompt_length(messages))

    def exact(self, sampling: Sampling) -> bool:  # noqa: ARG002 - each is scored exactly
        """See `Sampler.exact`."""
        return True

    def sample(self, requests: Sequence[Request]) -> Draws:
        """See `Sampler.sample`, but for where random numbers come from. After a fault only what had
        not ended is asked.

        Raises:
            EngineError: the server is lost for good, refuses, or has other weights and cannot be
                given these.
        """
        parts = self._parts(requests)
        while left := [part for part in parts if part[1]]:
            with self._retry():
                self._prepare()
                said = {
                    "model": self.weights.name,
                    "stop_token_ids": list(self.policy.chat.stop_ids),
                }
                answers = self.client.complete(left, said, IN_FLIGHT)
                for request, prompt, tokens, logprobs, stopped in answers:
                    self._barren = 0
                    trajectory = self.policy.trajectory(
                        prompt, tokens, logprobs, request.sampling, stopped=stopped
                    )
                    yield request, replace(trajectory, version=self.version)

    def _parts(self, requests: Sequence[Request]) -> list[Part]:
        """Requests with equal prompts and sampling together, at most `IN_FLIGHT` copies in a
        part; greedy ones alone."""
        from plumbline.policies.chunks import group_copies

        def encode(request: Request) -> list[int]:
            ids: list[int] = self.policy.chat.prompt(request.messages)
            self.policy.check_length(len(ids), request.sampling.max_tokens, self.context)
            return ids

        return [
            (prompt, part)
            for sampling, groups in group_copies(requests, Sampling, encode, IN_FLIGHT)
            for prompt, group in groups
            # greedy copies are refused
            for part in ([[one] for one in group] if sampling.greedy else [group])
        ]


class Publication:
    """The weights that one server has: which, under what name, and how they got there."""

    def __init__(self, how: str, dtype: Any, folder: Path) -> None:
        """Take the recipe's `engine.publish` (not auto), the server's torch dtype, and where files
        go.

        `token` says which weights were handed over, and `name` what the server calls them; both are
        empty before.
        """
        self.how, self.dtype, self.folder = how, dtype, folder
        self.served = folder / f"{PREFIX}served"
        self.base = self.name = self.token = ""
        self.context = 0
        self._arrivals = WeightSyncCheck()

    def has_latest(self, client: Client, policy: Any) -> bool:
        """Whether a server has the weights that it was handed last: it may be another one, or have
        been started again.

        Raises:
            ServerLostError: the server broke.
            EngineError: its model cannot be the learner's: it has another tokenizer.
        """
        base, *adapters = client.call("/v1/models")["data"]
        self.base = str(base["id"])
        self.context = min(int(base.get("max_model_len") or policy.context), policy.context)
        asked = {"model": self.base, "prompt": TEXT, "add_special_tokens": False}
        check_tokenizer(policy.chat, client.call("/tokenize", asked)["tokens"])
        if self.how == "lora":
            return self.token in {one["id"] for one in adapters}
        return bool(client.call("/weight_info")["weight_version"] == self.token)

    def hand_over(
        self, client: Client, policy: Any, version: int
    ) -> tuple[float, Mapping[str, float]]:
        """Write, load and try the policy's present weights.

        Returns:
            How many seconds writing and loading took, and how much of them arrived, by the names of
            metrics.

        Raises:
            ServerLostError: the server broke.
            EngineError: too little of the update is left after rounding, or something else samples.
        """
        from plumbline.policies.pretrained.numerics import compute_float32_logprobs

        began = time.perf_counter()
        token = f"{PREFIX}{version}-{uuid.uuid4().hex[:8]}"
        name = token if self.how == "lora" else self.base
        rounding = self._arrivals.check_rounding(self._load(client, policy, token), self.dtype)
        seconds = time.perf_counter() - began
        sequences = encode_probe(policy.chat, self.context)
        exact = compute_float32_logprobs(policy.model, sequences)
        served = exact.new_tensor(client.score(sequences, name))
        moved = self._arrivals.check_probe(
            NumberPair(exact, served), rounding.get("engine/update_arrived", 1.0)
        )
        self.name, self.token = name, token
        return seconds, {**rounding, **moved}

    def _load(self, client: Client, policy: Any, token: str) -> NumberPair:
        """Write the weights and have the server load them under a token; what was rounded."""
        from plumbline.policies.pretrained import adapters

        if self.how == "lora":
            old, new = list(self.folder.glob(f"{PREFIX}*")), self.folder / token
            # at an old path its cache of prompts would stay
            weights = adapters.write_adapter(policy, new, self.dtype)
            client.call(
                "/v1/load_lora_adapter", {"lora_name": new.name, "lora_path": str(new.resolve())}
            )
            for folder in old:
                shutil.rmtree(folder, ignore_errors=True)
                # a server that was started again has never heard of it
                with suppress(ServerLostError):
                    client.call("/v1/unload_lora_adapter", {"lora_name": folder.name})
            return weights
        if self.how == "transfer":
            state, weights = adapters.round_weights(policy, self.dtype)
            update = {
                "names": list(state),
                "dtype_names": [
                    str(weight.dtype).removeprefix("torch.") for weight in state.values()
                ],
                "shapes": [list(weight.shape) for weight in state.values()],
                "ipc_handles_pickled": base64.b64encode(
                    pickle.dumps(adapters.list_ipc_handles(state))
                ).decode(),
            }
            client.call("/init_weight_transfer_engine", {"init_info": {"packed": False}})
            client.call("/start_weight_update", {})
            client.call("/update_weights", {"update_info": update})
            client.call("/finish_weight_update", {})
        else:
            weights = adapters.write_full(policy, self.served, self.dtype)
            read = {"weights_path": str(self.served.resolve())}
            client.call("/collective_rpc", {"method": "reload_weights", "kwargs": read})
        # an abandoned one may still run
        client.call("/reset_prefix_cache?reset_running_requests=true", {})
        client.call("/update_weight_version", {"new_version": token})
        return weights


# -- a server of a run's own -----------------------------------------------------------------------


def find_interpreter(python: str | None) -> str:
    """The interpreter of a server: as given, that of PLUMBLINE_VLLM_PYTHON, or this one.

    Raises:
        EngineError: it is not there, or has no vLLM.
    """
    python = python or os.environ.get(PYTHON) or sys.executable
    root = MODULE.partition(".")[0]
    code = f"import importlib.util as i, sys; sys.exit(i.find_spec('{root}') is None)"
    try:
        # the server will not look in the working directory, too
        safe = {**os.environ, "PYTHONSAFEPATH": "1"}
        looked = subprocess.run([python, "-c", code], capture_output=True, check=False, env=safe)  # noqa: S603
    except OSError as error:
        raise EngineError(
            f"cannot start {python}: {error.strerror}", "give an interpreter in engine.python"
        ) from error
    if looked.returncode:
        raise EngineError(
            f"{python} has no {root}",
            f"install vLLM {PINNED} in an environment of its own (docs/cluster.md) and name its "
            "interpreter in "
            f"engine.python or in {PYTHON}, or give engine.address",
        )
    return python


def reserve_socket() -> Path:
    """Where a server's socket is to be, in a new folder that no other user may open.

    Raises:
        EngineError: its path is longer than that of a socket may be.
        StorageError: the folder cannot be made.
    """
    with clear_os_errors(Path(gettempdir())):
        folder = Path(mkdtemp(prefix="plumbline-vllm-"))
    if len(os.fsencode(folder)) > 90:
        folder.rmdir()
        raise EngineError(
            f"{folder.parent} is too long a path for a server's socket",
            "set TMPDIR to a shorter one",
        )
    return folder / "socket"


def server_command(
    how: str, policy: Any, served: str, dtype: str, socket: Path, seed: int
) -> tuple[list[str], dict[str, str]]:
    """What starts a server, but for its interpreter and the recipe's own arguments, and its
    environment.

    Args:
        how: weights are handed over.
        policy: whose weights it has.
        served: the folder of whole weights.
        dtype: of its weights.
        socket: that it listens on (see `socket`).
        seed: of its random numbers.
    """
    base = served
    environment = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "PYTHONSAFEPATH": "1"}
    words = (
        f"--served-model-name plumbline --dtype {dtype} --seed {seed} "
        f"--max-model-len {policy.context} --logprobs-mode processed_logprobs --generation-config "
        "vllm "
        "--gpu-memory-utilization 0.4"  # the learner needs the rest
    ).split()
    if how == "lora":
        config = policy.adapter.peft_config["default"]
        base = str(config.base_model_name_or_path)
        words += [
            "--max-lora-rank",
            str(min((one for one in SERVER["ranks"] if one >= config.r), default=config.r)),
        ]
    for key in (how, policy.device.type):
        further = SERVER["further"].get(key, {})
        words += further.get("arguments", "").split()
        environment |= further.get("environment", {})
    return ["-m", MODULE, "--model", base, "--uds", str(socket), *words], environment


def explain_exit(server: processes.ChildProcess) -> EngineError | None:
    """Why a server's process has ended, as far as its log says; None while it runs."""
    if server.status is None:
        return None
    text = server.read_output()
    errors = [f": {line.strip()[-300:]}" for line in text.splitlines() if "Error" in line]
    short = any(word in text.lower() for word in SERVER["full"])
    what = "ran out of memory" if short else f"ended with status {server.status}"
    return EngineError(
        f"the vLLM server {what}{''.join(errors[-1:])}",
        "where memory was short, set --max-model-len, --gpu-memory-utilization or "
        "--kv-cache-memory-bytes in "
        f"engine.arguments, else correct them or the model; its log is {server.log}",
    )
