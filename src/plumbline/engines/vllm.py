"""vLLM as a sampler: it draws with the learner's weights, which it is handed version by version.

What is drawn comes from the server's own random numbers: the law is the recipe's (temperature, top-k, top-p, as
`token_law`), but a run is not the same to the bit when it is repeated. Each answer keeps the log-probabilities that
the server computed for it; `train/sampler_scorer_gap` is how far the learner's own are from them.
"""

import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plumbline.config.imports import check_consent, needed
from plumbline.engines import processes
from plumbline.engines import vllm_server as servers
from plumbline.engines.vllm_client import Client, Lost, Part, check_address, healthy
from plumbline.engines.vllm_publication import PREFIX, Publication
from plumbline.errors import EngineError
from plumbline.policies.policy import Learner
from plumbline.recipe import Recipe
from plumbline.recipe.running import EngineSection
from plumbline.records import Message, Request, Sampling, Trajectory
from plumbline.runs.run import Listener, Run
from plumbline.seeds import derive

IN_FLIGHT = 256  # answers that are asked for at once
RESTARTS = 5  # so often a run starts its own server again
BARREN = 3  # after so many attempts in a row without any answer the run gives up
GIVEN = "its log, start it with VLLM_SERVER_DEV_MODE=1 (see docs/vllm.md)"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an engine works, and who is told."""

    folder: Path  # for its log and the weights that it is handed
    seed: int  # of the server's random numbers
    listener: Listener
    timed: Callable[[int, float], None] = lambda *_: None  # hears how many seconds a version took to publish


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
    needed("httpx", "an engine over HTTP", EngineError)
    if section.address is None:
        if section.python is not None:
            check_consent(f"python={section.python}", "engine.python", "python", section.python)
        if section.arguments:  # some of them name modules
            check_consent("arguments=", "engine.arguments", "arguments", " ".join(section.arguments))
        servers.check(section.python)
        return
    check_address(section.address, "engine.address")
    if ask and not healthy(section.address):
        raise EngineError(
            f"no vLLM server is well at {section.address}",
            "start it first, or leave out engine.address, and the run starts its own",
        )


def check_publication(section: EngineSection, policy: Any) -> tuple[str, Any]:
    """How a policy's weights are handed over, and the torch dtype of the server's (see `_how`).

    Raises:
        EngineError: they cannot be handed over like this.
    """
    how, dtype = _how(section, policy)
    if how != "lora":
        from plumbline.policies.pretrained.adapters import check_mergeable

        check_mergeable(policy)
    return how, dtype


def open_engine(recipe: Recipe, policy: Any, model: str, run: Run) -> "VllmSampler":
    """The engine of a run, with the policy's present weights as version 0.

    Raises:
        EngineError: see `VllmSampler`.
    """

    def timed(version: int, seconds: float) -> None:
        run.timings("engine", version, {"time/publish": seconds})

    assert recipe.engine is not None
    place = Place(run.folder / "engine", derive(recipe.seed, "engine", model), run, timed)
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
        self.section, self.policy, self.place, self.log = section, policy, place, place.folder / "server.log"
        self._advice = f"see {GIVEN if section.address else self.log}, or raise engine.timeout"
        self.context: int = policy.context
        self.weights = Publication(*check_publication(section, policy), place.folder)
        self.socket = servers.socket() if section.address is None else None
        self.client = Client(section.address or "http://localhost", section.timeout, self.socket)
        self.server: processes.Kept | None = None
        self.figures: Mapping[str, float] = {}  # what the last publication was found to be
        self.version, self._starts, self._barren = 0, 0, 0
        try:
            self.take(policy, 0)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """See `Engine.close`: end an own server, and remove the weights that it was handed; its log stays."""
        self.client.close()
        if self.server is not None:
            processes.stop(self.server)
        for folder in self.place.folder.glob(f"{PREFIX}*"):
            shutil.rmtree(folder, ignore_errors=True)
        if self.socket is not None:
            shutil.rmtree(self.socket.parent, ignore_errors=True)

    # -- the server --------------------------------------------------------------------------------------------------

    def _start(self) -> processes.Kept:
        """Start an own server, with the policy's present weights where it reads whole ones."""
        from plumbline.policies.pretrained.adapters import write_full

        assert self.socket is not None
        how, served = self.weights.how, self.weights.served
        self.socket.unlink(missing_ok=True)  # of a server that was killed
        if how != "lora":
            write_full(self.policy, served, self.weights.dtype)
        seed = derive(self.place.seed, self._starts) % 2**31
        words, said = servers.command(how, self.policy, str(served), self.engine["dtype"], self.socket, seed)
        self._starts += 1
        return processes.start([servers.check(self.section.python), *words, *self.section.arguments], said, self.log)

    def _prepare(self) -> None:
        """Have a server that is well, that can be the learner's, and that has the weights of this version."""
        if starting := self.server is None and self.section.address is None:
            self.server = self._start()
        began, limit = time.monotonic(), self.section.timeout
        while not healthy(self.client.address, self.socket):
            gone = time.monotonic() - began
            if self.server is not None and not starting:
                raise Lost(f"the vLLM server at {self.client.address} is no longer well")
            if self.server is not None and (why := servers.ended(self.server)):
                raise why
            if gone > limit:
                raise EngineError(f"{self.client.address} was not ready within {limit:g} seconds", self._advice)
            self.place.listener.working("waiting for the vLLM server", int(gone), int(limit))
            time.sleep(0.25)
        there, self.context = self.weights.are_there(self.client, self.policy), self.weights.context
        if not there:
            if self.weights.token:
                self.place.listener.event(
                    "engine", f"the server no longer has version {self.version}: it gets it again"
                )
            seconds, self.figures = self.weights.hand_over(self.client, self.policy, self.version)
            self.place.timed(self.version, seconds)

    @contextmanager
    def _again(self) -> Iterator[None]:
        """An attempt at something: what loses the server ends the block, and the next attempt finds one again.

        Raises:
            EngineError: it was lost too often.
        """
        try:
            yield
            self._barren = 0
        except Lost as lost:
            self._barren += 1
            why, then = EngineError(lost.cause), "it is waited for"
            if self.server is not None:
                time.sleep(0.5)  # one whose engine has died takes a moment to end
                why, then = servers.ended(self.server) or why, "it is started again"
                processes.stop(self.server)
                self.server = None
            if self._barren > BARREN or self._starts > RESTARTS:
                times = f"{self._barren} times in a row" if self._barren > BARREN else f"started {self._starts} times"
                raise EngineError(f"{why.cause} ({times})", self._advice) from lost
            self.place.listener.event("engine", f"{why.cause}; {then}, and what had not ended is asked again")

    # -- what an engine does -----------------------------------------------------------------------------------------

    def take(self, learner: Learner, version: int) -> None:
        """See `Engine.take`."""
        if version != self.version:
            self.weights.token = ""  # those that it has are others
        self.policy, self.version = learner, version
        while not self.weights.token:
            with self._again():
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

    def exact(self, sampling: Sampling) -> bool:  # noqa: ARG002 - every law is scored exactly
        """See `Sampler.exact`."""
        return True

    def sample(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Trajectory]]:
        """See `Sampler.sample`, but for where random numbers come from. After a fault only what had not ended is asked.

        Raises:
            EngineError: the server is lost for good, refuses, or has other weights and cannot be given these.
        """
        parts = self._parts(requests)
        while left := [part for part in parts if part[1]]:
            with self._again():
                self._prepare()
                said = {"model": self.weights.name, "stop_token_ids": list(self.policy.chat.stop_ids)}
                answers = self.client.complete(left, said, IN_FLIGHT)
                for request, prompt, tokens, logprobs, stopped in answers:
                    self._barren = 0
                    trajectory = self.policy.trajectory(prompt, tokens, logprobs, request.sampling, stopped=stopped)
                    yield request, replace(trajectory, version=self.version)

    def _parts(self, requests: Sequence[Request]) -> list[Part]:
        """Requests with equal prompts and laws together, at most `IN_FLIGHT` copies in a part; greedy ones alone."""
        from plumbline.policies.chunks import copies

        def encode(request: Request) -> list[int]:
            ids: list[int] = self.policy.chat.prompt(request.messages)
            self.policy.check_length(len(ids), request.sampling.max_tokens, self.context)
            return ids

        return [
            (prompt, part)
            for law, groups in copies(requests, Sampling, encode, IN_FLIGHT)
            for prompt, group in groups
            for part in ([[one] for one in group] if law.greedy else [group])  # greedy copies are refused
        ]


def _how(section: EngineSection, policy: Any) -> tuple[str, Any]:
    """How weights are handed over, where the recipe leaves it open as well, and the torch dtype of the server's.

    That is as `--dtype` among its arguments says; by default the learner's; but float32 where adapters are merged,
    because 16 bits would round away what RL learns.
    """
    import torch

    how, adapted = section.publish, policy.adapter is not None
    if how == "auto":
        how = "lora" if adapted and policy.device.type == "cuda" else "full"
    if how == "lora" and not adapted:
        raise EngineError("engine.publish: lora needs an adapter, and every weight is trained", "set it to full")
    found = re.search(r"--dtype[= ](\w+)", " ".join(section.arguments))
    name = found[1] if found else "float32" if adapted and how != "lora" else str(policy.engine["dtype"])
    if name not in {"float32", "bfloat16", "float16"}:
        raise EngineError(f"--dtype {name} does not say what weights are rounded to", "give bfloat16 or float32")
    return how, getattr(torch, name)
