"""Any OpenAI-compatible endpoint as a sampler for evaluations: messages in, text out, and
log-probabilities where they are asked for.

What it answers is somebody else's: nothing is followed, allocated or printed because an answer says
so.
"""

import asyncio
import json
import os
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import as_completed
from typing import Any

import numpy as np

from plumbline.config.imports import import_needed
from plumbline.engines.vllm_client import check_address
from plumbline.errors import EngineError
from plumbline.records import Draws, Message, Request, Sampling, Trajectory, Transition

KEY = "OPENAI_API_KEY"
"""The environment variable that holds a key, where the endpoint wants one."""
TRIES = 4
AT_ONCE = 32
TOO_LONG = re.compile(
    r"context.{0,20}(length|size|window|limit)|exceed.{0,20}context|(prompt|input|request).{0,40}too (long|large)"
    r"|max_\w*tokens\W{0,3}(is too|must be)|longer than the|at most \d+ .{0,12}tokens",
    re.IGNORECASE,
)
"""What endpoints say where a prompt and an answer of so many tokens are more than the model
takes."""
ROUNDING = 1e-3
"""Nats that a log-probability may be above 0 by."""
LONGEST = 2**24
"""Bytes of an answer, and tokens that it may say that it has."""


class Endpoint:
    """A `Sampler` that asks `/v1/chat/completions`; the endpoint applies the chat template, and
    says what is too long.

    What is drawn does not depend on the requests' keys: no seed is sent, because not every server
    takes one.
    """

    family = "endpoint"
    context = 2**31
    """Not known; the endpoint refuses what does not fit."""

    def __init__(
        self, address: str, model: str, timeout: float = 600.0, *, logprobs: bool = False
    ) -> None:
        """Take where an endpoint is.

        Args:
            address: with or without /v1.
            model: its name there.
            timeout: seconds for a whole answer.
            logprobs: whether answers that are drawn come with log-probabilities [nats], as their
                one transition, whose token ids are -1.

        Raises:
            EngineError: httpx is not installed; the address, or the key in `KEY`, cannot be used.
        """
        check_address(address, "--engine")
        self._httpx = import_needed("httpx", "an engine over HTTP", EngineError)
        self._key = os.environ.get(KEY, "").strip()
        if not (self._key.isascii() and self._key.isprintable()):
            raise EngineError(f"the key in {KEY} has characters that no key has", "copy it again")
        self.address = address.rstrip("/").removesuffix("/v1")
        self.model, self.timeout, self.logprobs = model, timeout, logprobs

    @property
    def engine(self) -> Mapping[str, str]:
        """See `Sampler.engine`."""
        return {"engine": "endpoint", "model": self.model}

    def prompt_length(self, messages: Sequence[Message]) -> int:  # noqa: ARG002 - its tokenizer is not known
        """See `Sampler.prompt_length`: 0, for tokens are not known here."""
        return 0

    def exact(self, sampling: Sampling) -> bool:  # noqa: ARG002 - whatever it is
        """See `Sampler.exact`: nothing is scored."""
        return False

    def sample(self, requests: Sequence[Request]) -> Draws:
        """See `Sampler.sample`.

        Raises:
            EngineError: the endpoint is not there, refuses, or answers what is no chat completion.
        """
        client, gate, loop = self._client(), asyncio.Semaphore(AT_ONCE), asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="endpoint", daemon=True)
        thread.start()
        asked = {
            asyncio.run_coroutine_threadsafe(self._ask(client, gate, one), loop): one
            for one in requests
        }
        try:
            for answer in as_completed(asked):
                yield asked[answer], answer.result()
        finally:
            asyncio.run_coroutine_threadsafe(_end(client), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def names(self) -> list[str]:
        """What the endpoint calls its models.

        Raises:
            EngineError: it is not there, refuses, or says nothing of the kind.
        """

        async def ask() -> bytes:
            async with self._client() as client:
                return await self._request(client, "/v1/models")

        said = asyncio.run(ask())
        try:
            return [str(one["id"]) for one in json.loads(said.decode())["data"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._error(f"answered what is no list of models: {said!r:.300}") from error

    def _client(self) -> Any:
        headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self._key}"} if self._key else {}
        limits = self._httpx.Timeout(self.timeout, connect=10.0)
        try:
            return self._httpx.AsyncClient(headers=headers, timeout=limits, follow_redirects=False)
        except (ValueError, ImportError, OSError, self._httpx.InvalidURL) as error:
            raise EngineError(
                f"the proxy or the certificates that the environment names cannot be used: {error}",
                "correct HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR",
            ) from error

    async def _ask(self, client: Any, gate: asyncio.Semaphore, request: Request) -> Trajectory:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [dict(message) for message in request.messages],
        }
        body |= {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens}
        if sampling.top_p < 1:
            body["top_p"] = sampling.top_p
        if sampling.top_k:
            body["top_k"] = sampling.top_k
        if self.logprobs and not sampling.greedy:
            body["logprobs"] = True
        async with gate:
            try:
                async with asyncio.timeout(self.timeout):
                    said = await self._request(client, "/v1/chat/completions", body)
            except TimeoutError as error:
                raise self._error(
                    f"gave no whole answer within {self.timeout:g} seconds"
                ) from error
        return self._read(said, sampling)

    async def _request(
        self, client: Any, path: str, body: Mapping[str, Any] | None = None
    ) -> bytes:
        """The body of its answer: to one of ours by POST, without one by GET."""
        for attempt in range(TRIES):
            try:
                status, said, to = await self._answer(client, path, body)
            except (self._httpx.RequestError, UnicodeError, OSError) as error:
                why = f"is not there, or breaks off ({type(error).__name__})"
            else:
                if 200 <= status < 300:
                    return said
                if status < 400:
                    raise self._error(
                        f"answered {status}, a redirect to {to}, which is not followed"
                    )
                told = said[:1000].decode(errors="replace")
                why = f"refused with {status}: {told}"
                if body and status in {400, 413, 422} and TOO_LONG.search(told):
                    raise self._error(
                        why,
                        f"lower --max-tokens (an answer may have {body['max_tokens']}), shorten "
                        "the prompts, or give the endpoint a longer context",
                    )
                if status < 500 and status != 429:
                    break
            if attempt + 1 < TRIES:
                await asyncio.sleep(0.5 * 2**attempt)
        raise self._error(why)

    async def _answer(
        self, client: Any, path: str, body: Mapping[str, Any] | None
    ) -> tuple[int, bytes, str]:
        """The status of an answer, its body, and where it redirects to."""
        found, method = bytearray(), "GET" if body is None else "POST"
        content = None if body is None else json.dumps(body)
        async with client.stream(method, self.address + path, content=content) as answer:
            async for chunk in answer.aiter_bytes():
                found += chunk
                if len(found) > LONGEST:
                    raise self._error(f"gave an answer of more than {LONGEST >> 20} MiB")
            return answer.status_code, bytes(found), answer.headers.get("location", "nowhere")

    def _read(self, said: bytes, sampling: Sampling) -> Trajectory:
        """What a chat completion says that was drawn."""
        try:
            found = json.loads(said.decode())
            (choice,), usage = found["choices"], found["usage"]
            tokens, read = usage["completion_tokens"], usage.get("prompt_tokens", 0)
            text, finish = choice["message"]["content"], choice.get("finish_reason")
            content = (choice.get("logprobs") or {}).get("content") or () if self.logprobs else ()
            logprobs = np.array([each["logprob"] for each in content], dtype=np.float32)
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ) as error:
            why = f"{type(error).__name__}: {error}"
            shown = said[:1000].decode(errors="replace")
            raise self._error(
                f"answered what is no chat completion of one choice ({why}): {shown}"
            ) from error
        if not isinstance(text, str | None) or any(
            "\ud800" <= one <= "\udfff" for one in text or ""
        ):
            raise self._error(f"answered with a content that is no text: {text!r:.300}")
        if not isinstance(finish, str | None):
            raise self._error(f"answered with a finish_reason that is no text: {finish!r:.300}")
        if choice.get("index", 0) != 0:
            raise self._error(
                f"answered with choice {choice['index']!r:.300}, and the only one is 0"
            )
        for what, count in (("an answer", tokens), ("a prompt", read)):
            if type(count) is not int or not 0 <= count <= LONGEST:
                raise self._error(f"says that {what} has {count!r:.300} tokens (usage)")
        if logprobs.ndim != 1 or not (np.isfinite(logprobs) & (logprobs < ROUNDING)).all():
            raise self._error("answered with log-probabilities that are no numbers")
        places, unknown = np.arange(len(logprobs)), np.full(len(logprobs), -1)
        drawn = Transition(positions=places, tokens=unknown, logprobs=logprobs)
        # so many tokens, and which is not known; one number in memory
        return Trajectory(
            prompt=np.broadcast_to(np.int64(-1), read),
            transitions=(drawn,) if len(logprobs) else (),
            text=text or "",
            sampling=sampling,
            finish="length" if finish == "length" else "stop",
            answer=np.broadcast_to(np.int64(-1), tokens),
        )

    def _error(self, what: str, fix: str = "") -> EngineError:
        """An error about this endpoint, without its key and with nothing in it that a terminal
        would obey."""
        known = what.replace(self._key, f"<{KEY}>") if self._key else what
        seen = "".join(one if one.isprintable() else f"<{ord(one):02x}>" for one in known[:400])
        fix = fix or f"check the address, the model's name and, where it wants a key, {KEY}"
        return EngineError(f"{self.address} {seen}", fix)


async def _end(client: Any) -> None:
    """Cancel every other task of this loop, and close the client when they have ended."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.aclose()
