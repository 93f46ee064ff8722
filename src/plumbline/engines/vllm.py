"""vLLM as a sampler: it draws with the learner's weights, which it is handed version by version.

What is drawn comes from the server's own random numbers: the law is the recipe's (temperature, top-k, top-p, as
`token_law`), but a run is not the same to the bit when it is repeated. Each answer keeps the log-probabilities that
the server computed for it; `train/sampler_scorer_gap` is how far the learner's own are from them.
"""

import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.engines import vllm_server as servers
from plumbline.engines.vllm_client import Choice, Client, Lost, Part, http
from plumbline.engines.vllm_publication import Publication, trajectory_of
from plumbline.errors import DataError, EngineError
from plumbline.recipe import Recipe
from plumbline.recipe.running import EngineSection
from plumbline.records import Message, Request, Sampling, Trajectory
from plumbline.runs.run import Listener, Run
from plumbline.seeds import derive

if TYPE_CHECKING:
    from plumbline.policies.policy import Learner

RESTARTS = 5
"""How often a run starts its own server again."""
BARREN = 3
"""Attempts in a row without any answer, after which the run gives up."""


def untimed(version: int, seconds: float) -> None:
    """Do nothing with how long a publication took."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an engine works, and who is told."""

    folder: Path
    """For its log and the weights that it is handed."""
    seed: int
    """Of the server's random numbers."""
    listener: Listener
    timed: Callable[[int, float], None] = untimed
    """Hears how many seconds a version took to publish."""


def check_engine(section: EngineSection, family: str, *, ask: bool = True) -> None:
    """Refuse what can be known of a recipe's engine before anything is trained.

    Args:
        section: the recipe's.
        family: of its model.
        ask: whether a server at an address must answer now.

    Raises:
        EngineError: a family that vLLM has not; httpx is not installed, the interpreter has no vLLM, or nothing answers
            at the address.
    """
    if family != VllmSampler.family:
        raise EngineError(f"vLLM has no model of the family {family}", "leave out engine")
    http()
    if section.address is None:
        servers.check(section.python, servers.MODULE)
        return
    if not ask:
        return
    with closing(Client(section.address, section.timeout)) as client:
        if not client.healthy():
            raise EngineError(
                f"no vLLM server is well at {section.address}",
                "start it first, or leave out engine.address, and the run starts its own",
            )


def open_engine(recipe: Recipe, policy: Any, model: str, run: Run) -> "VllmSampler":
    """The engine of a run, with the policy's present weights as version 0.

    Raises:
        EngineError: see `VllmSampler`.
    """
    assert recipe.engine is not None
    place = Place(
        folder=run.folder / "engine",
        seed=derive(recipe.seed, "engine", model),
        listener=run,
        timed=lambda version, seconds: run.timings("engine", version, {"time/publish": seconds}),
    )
    return VllmSampler(recipe.engine, policy, place)


class VllmSampler:
    """An `Engine` over a vLLM server, which it starts, or which runs at an address."""

    family = "autoregressive"

    def __init__(self, section: EngineSection, policy: Any, place: Place) -> None:
        """Start or find the server, and hand it the policy's weights as version 0.

        Raises:
            EngineError: the policy is of another family; the server cannot be started, is not there, or serves another
                model; httpx is not installed.
        """
        check_engine(section, policy.family, ask=False)  # it is waited for
        self.section, self.policy, self.place = section, policy, place
        self.context: int = policy.context
        how = _how(section, policy)
        self.weights = Publication(how, _dtype(section, policy, how), place.folder, own=not section.address)
        self.server: servers.Server | None = None
        self._starts = 0
        try:
            if section.address is None:
                from plumbline.policies.pretrained.merged import write_full

                if self.weights.how != "lora":
                    write_full(policy, self.weights.served, self.weights.dtype)
                self._start()
            self.client = self._client()
            self._wait()
            self.take(policy, 0)
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        section, how = self.section, self.weights.how
        extra = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1"}
        base, further = str(self.weights.served.resolve()), list[str]()
        if how == "lora":
            config = self.policy.adapter.peft_config["default"]
            base = str(config.base_model_name_or_path)
            base = str(Path(base).resolve()) if Path(base).exists() else base
            rank = next((size for size in (8, 16, 32, 64, 128, 256, 320, 512) if size >= config.r), config.r)
            further += ["--enable-lora", "--max-lora-rank", str(rank), "--max-loras", "2"]
            extra["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
        if how == "transfer":
            further += ["--weight-transfer-config", '{"backend": "ipc"}']
            extra["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
        if self.policy.engine["device"] == "cpu":
            further.append("--enforce-eager")
            extra |= {"VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_KVCACHE_SPACE": "2"}
        plain = {
            "model": base,
            "served-model-name": "plumbline",
            "dtype": str(self.weights.dtype).removeprefix("torch."),
            "logprobs-mode": "processed_logprobs",
            "generation-config": "vllm",
            "max-model-len": str(self.policy.context),
            "gpu-memory-utilization": "0.4",  # the learner needs the rest
            "seed": str(derive(self.place.seed, self._starts) % 2**31),
        }
        self._starts += 1
        arguments = [word for key, value in plain.items() for word in (f"--{key}", value)]
        log = self.place.folder / "server.log"
        python = section.python
        self.server = servers.start(python, servers.MODULE, [*arguments, *further, *section.arguments], extra, log)

    def _client(self) -> Client:
        address = self.section.address if self.server is None else self.server.address
        assert address is not None
        return Client(address, self.section.timeout)

    def _wait(self) -> None:
        """Wait until the server is well, and see what it serves."""
        servers.wait_until(self.server, self.client.healthy, self.section.timeout, self._waiting)
        self.context = self.weights.know(self.client, self.policy)

    def _waiting(self, done: int, total: int) -> None:
        self.place.listener.working("waiting for the vLLM server", done, total)

    def close(self) -> None:
        """See `Engine.close`: end an own server, and remove the weights that it was handed; its log stays."""
        if hasattr(self, "client"):
            self.client.close()
        if self.server is not None:
            servers.stop(self.server)
        for folder in (self.weights.served, *self.place.folder.glob("lora-*")):
            shutil.rmtree(folder, ignore_errors=True)

    def _recover(self, lost: Lost) -> None:
        """Have a server again after a fault, with the weights that it had: an own one is started, another waited for.

        Raises:
            Lost, EngineError: it does not come back, or its weights cannot be handed over.
        """
        say, server = self.place.listener.event, self.server
        if server is not None and (lost.hung or not self._well(server)):
            why = servers.ended(server) if server.process.poll() is not None else lost
            servers.stop(server)
            if self._starts > RESTARTS:
                raise EngineError(f"the vLLM server broke {self._starts} times: {why.cause}", why.fix) from lost
            say("engine", f"{why.cause}; it is started again, and what had not ended is asked again")
            self._start()
            self.client.close()
            self.client = self._client()
        else:
            say("engine", f"{lost.cause}; what had not ended is asked again")
        self._wait()

    def _well(self, server: servers.Server) -> bool:
        """Whether it says so; one whose engine has died takes a moment to end."""
        time.sleep(0.5)
        return server.process.poll() is None and self.client.healthy()

    # -- weights -----------------------------------------------------------------------------------------------------

    @property
    def figures(self) -> Mapping[str, float]:
        """What the last publication was found to be, for the metrics of the steps that it draws."""
        return self.weights.figures

    def take(self, learner: "Learner", version: int) -> None:
        """See `Engine.take`."""
        self.policy = learner
        if version != self.weights.version:
            self._again(lambda: self._hand_over(version))

    def _hand_over(self, version: int) -> None:
        self.place.timed(version, self.weights.hand_over(self.client, self.policy, version))

    def _again(self, act: Callable[[], None]) -> None:
        """Do something with the server, and after a fault again."""
        for _ in range(BARREN):
            try:
                return act()
            except Lost as lost:
                self._recover(lost)
        return act()

    def _see_version(self) -> None:
        """Hand the weights over once more where the server has others: it was started again, or somebody else's."""
        if not self.weights.is_there(self.client):
            version = self.weights.version
            self.place.listener.event("engine", f"the server no longer has version {version}: it is handed over again")
            self.weights.know(self.client, self.policy)
            self._hand_over(version)

    # -- sampling ----------------------------------------------------------------------------------------------------

    @property
    def engine(self) -> Mapping[str, str]:
        """See `Sampler.engine`."""
        return {
            "engine": "vllm",
            "server": "given" if self.server is None else "own",
            "publish": self.weights.how,
            "dtype": str(self.weights.dtype).removeprefix("torch."),
            "model": self.weights.base,
        }

    def prompt_length(self, messages: Sequence[Message]) -> int:
        """See `Sampler.prompt_length`."""
        return int(self.policy.prompt_length(messages))

    def exact(self, sampling: Sampling) -> bool:  # noqa: ARG002 - every law is scored exactly
        """See `Sampler.exact`."""
        return True

    def sample(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Trajectory]]:
        """See `Sampler.sample`, but for where random numbers come from. After a fault only what had not ended is asked.

        Raises:
            EngineError: the server is lost for good, refuses, or has other weights and cannot be given these.
        """
        parts = self._parts(requests)
        stops = self.policy.chat.stop_ids
        barren = 0
        while left := [part for part in parts if part.copies]:
            try:
                self._see_version()
                for index, choice in self.client.complete(left, self.weights.name, stops, self.section.in_flight):
                    barren = 0
                    yield requests[index], self._answer(requests[index], choice)
            except Lost as lost:
                barren += 1
                if barren > BARREN:
                    raise EngineError(f"{lost.cause} ({barren} times in a row)", lost.fix) from lost
                self._recover(lost)

    def _parts(self, requests: Sequence[Request]) -> list[Part]:
        """Requests with equal prompts and laws together, at most `in_flight` copies in a part."""
        if len({request.key for request in requests}) < len(requests):
            raise ValueError("two requests have one key")
        groups: dict[Any, Part] = {}
        for index, request in enumerate(requests):
            ids = self.policy.chat.prompt(request.messages)
            if len(ids) + request.sampling.max_tokens > self.context:
                raise DataError(
                    f"a prompt of {len(ids)} tokens and an answer of up to {request.sampling.max_tokens} exceed the "
                    f"server's context of {self.context}",
                    "lower sampling.max_tokens, shorten the prompts, or raise --max-model-len in engine.arguments",
                )
            groups.setdefault((tuple(ids), request.sampling), Part(ids, request.sampling, [])).copies.append(index)
        return [
            Part(part.prompt, part.sampling, part.copies[start : start + most])
            for part in groups.values()
            for most in [1 if part.sampling.greedy else self.section.in_flight]  # greedy copies are refused
            for start in range(0, len(part.copies), most)
        ]

    def _answer(self, request: Request, choice: Choice) -> Trajectory:
        if request.sampling.greedy:
            choice = Choice(choice.tokens, [0.0] * len(choice.tokens), stopped=choice.stopped)
        prompt, text = self.policy.chat.prompt(request.messages), self.policy.chat.text(choice.tokens)
        return trajectory_of(prompt, choice, request.sampling, text, self.weights.version)


def _how(section: EngineSection, policy: Any) -> str:
    """How weights are handed over, where the recipe leaves it open as well."""
    if section.publish == "auto":
        return "lora" if policy.adapter is not None and policy.engine["device"].startswith("cuda") else "full"
    if section.publish == "lora" and policy.adapter is None:
        raise EngineError("engine.publish: lora needs an adapter, and every weight is trained", "set it to full")
    return section.publish


def _dtype(section: EngineSection, policy: Any, how: str) -> Any:
    """The torch dtype of the server's weights: as `--dtype` among its arguments says.

    By default the learner's; but float32 where adapters are merged, because 16 bits would round away what RL learns.
    """
    import torch

    found = re.search(r"--dtype[= ](\w+)", " ".join(section.arguments))
    merged = how != "lora" and policy.adapter is not None
    name = found[1] if found else "float32" if merged else str(policy.engine["dtype"])
    if name not in {"float32", "bfloat16", "float16"}:
        raise EngineError(f"--dtype {name} does not say what weights are rounded to", "give bfloat16 or float32")
    return getattr(torch, name)
