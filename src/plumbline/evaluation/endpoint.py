"""Any OpenAI-compatible endpoint as a sampler for evaluations: messages in, text out, no log-probabilities."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import numpy as np

from plumbline.errors import EngineError
from plumbline.imports import needed
from plumbline.records import Message, Request, Sampling, Trajectory

KEY = "OPENAI_API_KEY"
"""The environment variable that holds a key, where the endpoint wants one."""
TRIES = 4
AT_ONCE = 32


class Endpoint:
    """A `Sampler` that asks `/v1/chat/completions`; the endpoint applies the chat template, and says what is too long.

    What is drawn does not depend on the requests' keys: no seed is sent, because not every server takes one.
    """

    family = "endpoint"
    context = 2**31
    """Not known; the endpoint refuses what does not fit."""

    def __init__(self, address: str, model: str, timeout: float = 600.0) -> None:
        """Take the address, with or without /v1, and the model's name there; `timeout` seconds for an answer.

        Raises:
            EngineError: httpx is not installed.
        """
        base = address.rstrip("/").removesuffix("/v1")
        key = os.environ.get(KEY)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.model, self.address = model, base
        self._httpx = needed("httpx", "an engine over HTTP", EngineError)
        limits = self._httpx.Timeout(timeout, connect=10.0)
        self._http = self._httpx.Client(base_url=base, headers=headers, timeout=limits)

    @property
    def engine(self) -> Mapping[str, str]:
        """See `Sampler.engine`."""
        return {"engine": "endpoint", "model": self.model}

    def prompt_length(self, messages: Sequence[Message]) -> int:  # noqa: ARG002 - its tokenizer is not known
        """See `Sampler.prompt_length`: 0, for tokens are not known here."""
        return 0

    def exact(self, sampling: Sampling) -> bool:  # noqa: ARG002 - whatever the law
        """See `Sampler.exact`: nothing is scored."""
        return False

    def sample(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Trajectory]]:
        """See `Sampler.sample`.

        Raises:
            EngineError: the endpoint is not there, or refuses.
        """
        with ThreadPoolExecutor(AT_ONCE) as pool:
            asked = {pool.submit(self._ask, request): request for request in requests}
            try:
                for one in as_completed(asked):
                    yield asked[one], one.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, request: Request) -> Trajectory:
        law = request.sampling
        body: dict[str, Any] = {"model": self.model, "messages": [dict(message) for message in request.messages]}
        body |= {"temperature": law.temperature, "max_tokens": law.max_tokens}
        if law.top_p < 1:
            body["top_p"] = law.top_p
        if law.top_k:
            body["top_k"] = law.top_k
        said = self._post(body)
        try:
            choice, tokens = said["choices"][0], int(said["usage"]["completion_tokens"])
            text, finish = choice["message"]["content"] or "", choice["finish_reason"]
        except (KeyError, IndexError, TypeError) as error:
            raise EngineError(
                f"{self.address} gives no chat completion: {str(said)[:300]}", "check --engine"
            ) from error
        return Trajectory(
            prompt=np.zeros(0, dtype=np.int64),
            steps=(),
            text=text,
            sampling=law,
            finish="length" if finish == "length" else "stop",
            answer=np.full(tokens, -1, dtype=np.int64),  # so many, and which is not known
        )

    def _post(self, body: Mapping[str, Any]) -> Any:
        for attempt in range(TRIES):
            try:
                answer = self._http.post("/v1/chat/completions", json=body)
            except self._httpx.TransportError as error:
                why = f"{self.address} is not there, or hangs ({type(error).__name__})"
            else:
                if answer.status_code < 400:
                    return answer.json()
                why = f"{self.address} refused with {answer.status_code}: {answer.text[:300]}"
                if answer.status_code < 500 and answer.status_code != 429:
                    break
            if attempt + 1 < TRIES:
                time.sleep(0.5 * 2**attempt)
        raise EngineError(why, f"check the address, the model's name and, where it wants a key, {KEY}")
