"""What is said to a vLLM server over HTTP: token ids in, token ids and log-probabilities out;
faults as two errors.

The interfaces are those of vLLM 0.32 (`/v1/completions`, and with VLLM_SERVER_DEV_MODE=1 the calls
that change weights). A fault of the server, after which asking again may help, is
`ServerLostError`; what it refuses is an `EngineError`.
"""

import asyncio
import json
import queue
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.config.imports import import_needed
from plumbline.config.overrides import read_package_yaml
from plumbline.errors import EngineError
from plumbline.records import Request, Sampling

# what is said to a server, and what it says: see the file
SERVER = read_package_yaml(Path(__file__).with_name("vllm.yaml"))
NEUTRAL = SERVER["neutral"]
# ask again; 404: an adapter that a server does not know which was started again
AGAIN = {404, 408, 429}
# A prompt, and its copies under one sampling distribution, which are asked for in one request; a
# copy leaves when it has ended.
Part = tuple[list[int], list[Request]]
# A request with its prompt, the answer's tokens (what ended it included), their log-probabilities,
# and whether one of the stop tokens ended it.
Answer = tuple[Request, list[int], list[int], list[float], bool]


class ServerLostError(EngineError):
    """The server went away, hung or broke while it was asked."""


def open_http(
    address: str, socket: Path | None, timeout: Any, at_once: int | None = None, loop: bool = False
) -> Any:
    """An httpx client of a server, past any proxy: by its address, or by its Unix socket.

    Args:
        address: of the server; behind a socket it is only what the server is called.
        socket: the server's, where it listens on no port.
        timeout: in seconds, or as httpx.Timeout.
        at_once: connections; None is httpx's own limit.
        loop: whether the client is an asynchronous one.

    Raises:
        EngineError: httpx is not installed.
    """
    httpx = import_needed("httpx", "an engine over HTTP", EngineError)
    limits = httpx.Limits() if at_once is None else httpx.Limits(max_connections=at_once)
    how: dict[str, Any] = {"limits": limits}
    client, transport = httpx.Client, httpx.HTTPTransport
    if loop:
        client, transport = httpx.AsyncClient, httpx.AsyncHTTPTransport
    if socket is not None:
        how = {"transport": transport(uds=str(socket), **how)}
    return client(base_url=address.rstrip("/"), trust_env=False, timeout=timeout, **how)


def is_healthy(address: str, socket: Path | None = None) -> bool:
    """Whether a server says that it is well, within ten seconds.

    Raises:
        EngineError: httpx is not installed.
    """
    httpx = import_needed("httpx", "an engine over HTTP", EngineError)
    try:
        with open_http(address, socket, 10.0) as client:
            return bool(client.get("/health").is_success)
    except httpx.TransportError:
        return False


async def read_choices(
    client: Any, body: Mapping[str, Any]
) -> AsyncGenerator[dict[str, Any], None]:
    """What a server says of the answers to one request, piece by piece.

    Raises:
        ServerLostError: the server broke, or ended before every answer had.
        EngineError: it refuses.
    """
    httpx = import_needed("httpx", "an engine over HTTP", EngineError)
    missing, last = body["n"], ""
    try:
        async with client.stream("POST", "/v1/completions", json=body) as answer:
            if answer.is_error:
                await answer.aread()
                _check(answer)
            async for line in answer.aiter_lines():
                last = line or last
                said = json.loads(line[6:]) if line.startswith("data: {") else {}
                for choice in said.get("choices", ()):
                    missing -= choice["finish_reason"] is not None
                    yield choice
    except httpx.TransportError as error:
        last = type(error).__name__
    if missing:
        raise ServerLostError(
            f"{str(client.base_url).rstrip('/')} broke off before its answers had ended "
            f"({last[:300]})"
        )


def check_address(address: str, key: str) -> None:
    """Refuse an address of a server that is none, or that holds more than where the server is.

    Args:
        address: as the user gave it; it is not printed where it may hold a password.
        key: where it was given.

    Raises:
        EngineError: says what is wrong; httpx is not installed.
    """
    httpx = import_needed("httpx", "an engine over HTTP", EngineError)
    try:
        url = httpx.URL(address)
    except (httpx.InvalidURL, UnicodeError) as error:
        raise EngineError(
            f"the address in {key} is none: {error}", "write it as http://host:port"
        ) from error
    if url.userinfo or url.query or url.fragment:
        raise EngineError(
            f"the address in {key} holds more than where the server {url.host} is: a password, or "
            "what follows ? or #",
            "write it as http://host:port; a key for an evaluation comes from OPENAI_API_KEY",
        )
    if url.scheme not in {"http", "https"} or not url.host or (url.port or 0) > 65535:
        raise EngineError(
            f"{address} in {key} is no address of a server", "write it as http://host:port"
        )


class Client:
    """Calls to one server, past any proxy; a thread of its own keeps many answers in flight. Close
    it."""

    def __init__(self, address: str, timeout: float, socket: Path | None = None) -> None:
        """Take where the server is (see `open_http`); what takes longer than `timeout` seconds
        without a byte is hung.

        Raises:
            EngineError: httpx is not installed.
        """
        self.address, self.timeout, self.socket = address.rstrip("/"), timeout, socket
        self._httpx = import_needed("httpx", "an engine over HTTP", EngineError)
        self._http = open_http(
            address, socket, self._httpx.Timeout(timeout, connect=min(10.0, timeout))
        )
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True).start()

    def close(self) -> None:
        """Let go of all connections."""
        self._http.close()
        # what is cancelled ends first
        self._loop.call_soon_threadsafe(self._loop.call_later, 1.0, self._loop.stop)

    def call(self, path: str, body: Any = None) -> Any:
        """Ask for a path, by POST where there is a body; the answer's JSON, or None where it is
        something else.

        Raises:
            ServerLostError: the server is not there, hangs, or says that it is broken.
            EngineError: it refuses.
        """
        try:
            answer = self._http.request("GET" if body is None else "POST", path, json=body)
        except self._httpx.TransportError as error:
            raise ServerLostError(
                f"{self.address}{path} is not there, or hangs ({type(error).__name__})"
            ) from error
        _check(answer)
        try:
            return answer.json() if answer.content[:1] in {b"{", b"["} else None
        except ValueError as error:
            raise ServerLostError(f"{self.address}{path} answered what is no JSON") from error

    def score(self, sequences: Sequence[Sequence[int]], model: str) -> list[float]:
        """Log-probabilities of every token but the first of each sequence, at temperature 1 and
        without filters.

        Raises:
            ServerLostError, EngineError: see `call`.
        """
        body = {
            "model": model,
            "prompt": sequences,
            "prompt_logprobs": 0,
            "max_tokens": 1,
            "temperature": 1.0,
        }
        said = sorted(
            self.call("/v1/completions", body | NEUTRAL)["choices"],
            key=lambda one: int(one["index"]),
        )
        return [
            float(each[str(token)]["logprob"])
            for tokens, one in zip(sequences, said, strict=True)
            for token, each in zip(tokens[1:], one["prompt_logprobs"][1:], strict=True)
        ]

    def complete(
        self, parts: Sequence[Part], said: Mapping[str, Any], in_flight: int
    ) -> Iterator[Answer]:
        """Ask for all copies that are left of all parts, and yield each answer when it has ended.

        Args:
            parts: their copies get fewer; what is left in them when this raises has not ended.
            said: with each request, which model answers, and what ends an answer.
            in_flight: answers that are asked for at once.

        Raises:
            ServerLostError: the server broke, or nothing came for `timeout` seconds; what had ended
                was yielded.
            EngineError: it refused.
        """
        found: queue.SimpleQueue[tuple[list[Request], Answer] | None] = queue.SimpleQueue()

        async def ask_all() -> None:
            at_once = max(1, in_flight // max(len(copies) for _, copies in parts))
            async with open_http(self.address, self.socket, None, at_once, loop=True) as client:
                asked = [self._ask(client, *part, said, found) for part in parts]
                # one leaves the others to end
                for fault in await asyncio.gather(*asked, return_exceptions=True):
                    if fault is not None:
                        raise fault

        asking = asyncio.run_coroutine_threadsafe(ask_all(), self._loop)
        asking.add_done_callback(lambda _: found.put(None))
        try:
            while (ended := found.get(timeout=self.timeout)) is not None:
                copies, answer = ended
                # here, so that what ends after a fault is asked again and not lost
                copies.remove(answer[0])
                yield answer
            asking.result()
        except queue.Empty:
            raise ServerLostError(
                f"none of the answers asked of {self.address} ended within {self.timeout:g} seconds"
            ) from None
        finally:
            asking.cancel()

    async def _ask(
        self, client: Any, prompt: list[int], left: list[Request], said: Any, found: Any
    ) -> None:
        """One request for the copies that are left of a prompt; every one that ends goes to
        `found`.

        Raises:
            ServerLostError, EngineError: see `read_choices`.
        """
        copies, sampling = list(left), left[0].sampling
        begun: list[tuple[list[int], list[float]]] = [([], []) for _ in copies]
        async for piece in read_choices(
            client, {**completion(prompt, sampling), **said, "n": len(copies)}
        ):
            tokens, logprobs = begun[piece["index"]]
            if new := piece["token_ids"]:
                tokens += new
                logprobs += (
                    [0.0] * len(new) if sampling.greedy else piece["logprobs"]["token_logprobs"]
                )
            if piece["finish_reason"] is not None:
                stopped = piece["finish_reason"] == "stop"
                found.put((left, (copies[piece["index"]], prompt, tokens, logprobs, stopped)))


def completion(prompt: list[int], sampling: Sampling) -> dict[str, Any]:
    """What is posted to /v1/completions for one answer to a prompt, but for the model and what ends
    the answer."""
    words = {
        name: getattr(sampling, name) for name in ("temperature", "top_k", "top_p", "max_tokens")
    }
    return {**NEUTRAL, **SERVER["streamed"], **words, "prompt": prompt, "n": 1}


def _check(answer: Any) -> None:
    """Raise what an HTTP status means."""
    if answer.is_error:
        cause = f"{answer.url} answered {answer.status_code}: {answer.text[:300]}"
        if answer.status_code >= 500 or answer.status_code in AGAIN:
            raise ServerLostError(cause)
        raise EngineError(cause, "see docs/cluster.md")
