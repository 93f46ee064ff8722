"""What is said to a vLLM server over HTTP: token ids in, token ids and log-probabilities out; faults as two errors.

The interfaces are those of vLLM 0.32 (`/v1/completions`, and with VLLM_SERVER_DEV_MODE=1 the calls that change
weights). A fault of the server, after which asking again may help, is `Lost`; what it refuses is an `EngineError`.
"""

import asyncio
import json
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plumbline.errors import EngineError
from plumbline.imports import missing
from plumbline.records import Sampling

NEUTRAL = {"min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
"""Said each time: for what is left out a server takes the defaults of the model's generation_config.json."""
WHOLE = 1_000_000
"""Tokens of a piece of a stream: an answer comes in two, its first token and all others, as soon as it has ended."""


class Lost(EngineError):  # noqa: N818 - it says what happened
    """The server went away, hung or broke while it was asked; `hung` where nothing came at all."""

    def __init__(self, cause: str, fix: str = "", *, hung: bool = False) -> None:
        super().__init__(cause, fix)
        self.hung = hung


def http() -> Any:
    """The module httpx.

    Raises:
        EngineError: it is not installed.
    """
    try:
        import httpx
    except ModuleNotFoundError as error:
        raise missing("an engine over HTTP", error, EngineError) from error
    return httpx


def law(sampling: Sampling) -> dict[str, Any]:
    """A law in the words of the server, nothing left to its defaults."""
    return {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        **NEUTRAL,
    }


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer, whole when it is handed out."""

    tokens: list[int]
    """The token that ended it included."""
    logprobs: list[float]
    stopped: bool

    def and_then(self, piece: Mapping[str, Any]) -> "Choice":
        """The answer with one more piece of the stream."""
        new = piece["logprobs"]["token_logprobs"] if piece["token_ids"] else []
        return Choice(
            self.tokens + list(piece["token_ids"]), self.logprobs + new, stopped=piece["finish_reason"] == "stop"
        )


@dataclass(slots=True)
class Part:
    """Copies of one prompt that are asked for in one request."""

    prompt: Sequence[int]
    sampling: Sampling
    copies: list[int]
    """What the caller calls each, in the order of their keys; a copy leaves the list when it has ended."""


class Client:
    """Calls to one server; a thread of its own keeps many answers in flight. Close it."""

    def __init__(self, address: str, timeout: float) -> None:
        """Take the server's address; what takes longer than `timeout` seconds without a byte counts as hung."""
        self.address, self.timeout = address.rstrip("/"), timeout
        # A proxy of the environment is for the world outside, not for this machine.
        own = any(f"//{host}" in self.address for host in ("127.0.0.1", "localhost", "[::1]"))
        self._how: dict[str, Any] = {"base_url": self.address, "trust_env": not own}
        self._http = http().Client(**self._how, timeout=http().Timeout(timeout, connect=min(10.0, timeout)))
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True).start()

    def close(self) -> None:
        """Let go of all connections."""
        self._http.close()
        self._loop.call_soon_threadsafe(self._loop.stop)

    def call(self, path: str, body: Any = None, **query: Any) -> Any:
        """Ask for a path, by POST where there is a body; the answer's JSON, or None where it is empty.

        Raises:
            Lost: the server is not there, hangs, or says that it is broken.
            EngineError: it refuses.
        """
        httpx = http()
        try:
            if body is None:
                answer = self._http.get(path, params=query)
            else:
                answer = self._http.post(path, json=body, params=query)
        except httpx.TransportError as error:
            raise self._lost(error) from error
        self._check(path, answer.status_code, answer.text)
        return answer.json() if answer.content[:1] in {b"{", b"["} else None

    def healthy(self) -> bool:
        """Whether it says that it is well, within two seconds."""
        httpx = http()
        try:
            return bool(self._http.get("/health", timeout=2.0).status_code == 200)
        except httpx.TransportError:
            return False

    def _lost(self, error: Exception) -> Lost:
        hung = isinstance(error, http().ReadTimeout)
        what = f"said nothing for {self.timeout:g} seconds" if hung else f"is not there ({type(error).__name__})"
        return Lost(f"the server at {self.address} {what}", "look into its log", hung=hung)

    def _check(self, path: str, status: int, text: str) -> None:
        if status >= 500 or status in {404, 408, 429}:  # 404: an adapter that a restarted server does not know
            raise Lost(f"{self.address}{path} answered {status}: {text[:300]}", "look into the server's log")
        if status >= 400:
            raise EngineError(f"{self.address}{path} refused with {status}: {text[:300]}", "see docs/vllm.md")

    def complete(
        self, parts: Sequence[Part], model: str, stops: Sequence[int], in_flight: int
    ) -> Iterator[tuple[int, Choice]]:
        """Ask for all copies that are left of all parts, and yield each copy and its answer when it has ended.

        Args:
            parts: their `copies` get fewer; what is left in them when this raises has not ended.
            model: what the server calls the weights.
            stops: token ids that end an answer.
            in_flight: answers that are asked for at once.

        Raises:
            Lost: the server broke, or nothing came for `timeout` seconds; what had ended was yielded.
            EngineError: it refused.
        """
        found: queue.SimpleQueue[tuple[int, Choice] | None] = queue.SimpleQueue()
        httpx = http()

        async def ask_all() -> None:
            limit = asyncio.Semaphore(max(1, in_flight // max(len(part.copies) for part in parts)))
            try:
                async with httpx.AsyncClient(
                    **self._how, timeout=None, limits=httpx.Limits(max_connections=None)
                ) as client:
                    asked = [
                        self._ask(client, part, completion_body(part, model, stops), limit, found) for part in parts
                    ]
                    broken = [one for one in await asyncio.gather(*asked, return_exceptions=True) if one is not None]
                    if broken:
                        raise next((one for one in broken if not isinstance(one, Lost)), broken[0])
            finally:
                found.put(None)

        asking = asyncio.run_coroutine_threadsafe(ask_all(), self._loop)
        try:
            while (ended := found.get(timeout=self.timeout)) is not None:
                yield ended
            asking.result()
        except queue.Empty:
            cause = f"none of the answers asked of {self.address} ended within {self.timeout:g} seconds"
            raise Lost(cause, "raise engine.timeout, or look into the server's log", hung=True) from None
        finally:
            asking.cancel()

    async def _ask(
        self, client: Any, part: Part, body: Mapping[str, Any], limit: asyncio.Semaphore, found: Any
    ) -> None:
        """One request; every copy that ends goes to `found`.

        Raises:
            Lost: it ended before all copies had.
        """
        copies = list(part.copies)
        begun = [Choice([], [], stopped=False) for _ in copies]
        try:
            async with limit, client.stream("POST", "/v1/completions", json=body) as answer:
                if answer.status_code >= 400:
                    self._check("/v1/completions", answer.status_code, (await answer.aread()).decode())
                async for line in answer.aiter_lines():
                    if not line.startswith("data: {"):
                        continue
                    said = json.loads(line[6:])
                    if "error" in said:
                        raise Lost(f"{self.address} broke off: {said['error']}", "look into the server's log")
                    for piece in said["choices"]:
                        index = piece["index"]
                        begun[index] = begun[index].and_then(piece)
                        if piece["finish_reason"] is not None:
                            part.copies.remove(copies[index])
                            found.put((copies[index], begun[index]))
        except http().TransportError as error:
            raise self._lost(error) from error
        if part.copies:
            raise Lost(f"{self.address} ended a stream before its answers had ended", "look into its log")

    def score(self, sequences: Sequence[Sequence[int]], model: str) -> list[list[float]]:
        """Log-probabilities of every token but the first of each sequence, at temperature 1 and without filters.

        Raises:
            Lost, EngineError: see `call`.
        """
        body = {"model": model, "prompt": [list(one) for one in sequences], "prompt_logprobs": 0}
        said = self.call("/v1/completions", body | law(Sampling(max_tokens=1)))
        rows = [one["prompt_logprobs"] for one in sorted(said["choices"], key=lambda one: int(one["index"]))]
        return [
            [float(each[str(token)]["logprob"]) for token, each in zip(tokens[1:], row[1:], strict=True)]
            for tokens, row in zip(sequences, rows, strict=True)
        ]


def completion_body(part: Part, model: str, stops: Sequence[int]) -> dict[str, Any]:
    """What is posted to /v1/completions for the copies of a part; see `Client.complete`."""
    return {
        "model": model,
        "prompt": list(part.prompt),
        "n": len(part.copies),
        **law(part.sampling),
        "logprobs": 0,
        "return_token_ids": True,
        "stop_token_ids": list(stops),
        "ignore_eos": True,  # ours are all said, and no others end an answer
        "stream": True,
        "stream_interval": WHOLE,
    }
