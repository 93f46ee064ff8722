"""An autoregressive model behind a vLLM server of its own: asked by tokens, answered as they
come."""

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from plumbline.engines.vllm import EngineContext, VllmSampler
from plumbline.engines.vllm_client import completion, open_http, read_choices
from plumbline.policies.policy import Policy
from plumbline.recipe.execution import EngineSection
from plumbline.records import Sampling
from plumbline.runs.run import Listener
from plumbline.serve.backend import AnswerChunk, AnswerRequest, Backend, Chunks

AT_ONCE = 256
"""Connections to the server."""
UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""What a decoder gives for bytes that are no whole character yet."""


class Spelling:
    """The text of an answer, token by token: nothing is taken back, and no character is cut.

    Some tokenizers write a token otherwise at the beginning than behind another. So each is decoded
    behind those before it, a few of them: from the last two places at which whole characters had
    come.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        """Take what gives the text of tokens."""
        self._decode = decode
        self._tokens: list[int] = []
        self._begin = self._known = 0

    def add(self, tokens: Sequence[int], *, last: bool = False) -> str:
        """Take more tokens, and give the text that is certain now; of the last ones all of it."""
        self._tokens += tokens
        before = self._decode(self._tokens[self._begin : self._known])
        text = self._decode(self._tokens[self._begin :])
        if not last and (len(text) <= len(before) or text.endswith(UNFINISHED)):
            return ""
        self._begin, self._known = self._known, len(self._tokens)
        return text[len(before) :]


class VllmBackend(Backend):
    """A vLLM server that is started for it; close it.

    What is drawn comes from the server's own random numbers: a client's seed is not used, and the
    facts say so.
    """

    def __init__(self, name: str, policy: Policy, sampling: Sampling, listener: Listener) -> None:
        """Start the server with the policy's weights.

        Raises:
            EngineError: the policy is of another family, vLLM is not installed, or its server does
                not start.
        """
        # stays after a failure: the error names the log in it
        self._folder = Path(mkdtemp(prefix="plumbline-serve-"))
        self.engine = VllmSampler(
            EngineSection(name="vllm"), policy, EngineContext(self._folder, 0, listener)
        )
        super().__init__(name, self.engine, sampling)
        self.chat: Any = self.engine.policy.chat
        self._client: Any = None

    async def write(self, asked: AnswerRequest) -> Chunks:
        """See `Backend.write`.

        Raises:
            EngineError: the server is gone, or refuses.
        """
        sampling = self.sampling_of(asked)
        prompt = await asyncio.to_thread(self.chat.prompt, asked.request.messages)
        self.engine.policy.check_length(len(prompt), sampling.max_tokens, self.context)
        said = {
            "model": self.engine.weights.name,
            "stop_token_ids": list(self.chat.stop_ids),
            "stream_interval": 1,
        }
        body = completion(prompt, sampling) | said
        if self._client is None:  # which belongs to the loop that serves
            timeout = (10.0, *[self.engine.section.timeout] * 3)
            address, socket = self.engine.client.address, self.engine.socket
            self._client = open_http(address, socket, timeout, AT_ONCE, loop=True)
        spelling = Spelling(self.chat.text)
        async with contextlib.aclosing(read_choices(self._client, body)) as coming:
            async for choice in coming:
                yield self._piece(choice, spelling, spell=asked.logprobs)

    def _piece(self, choice: Mapping[str, Any], spelling: Spelling, *, spell: bool) -> AnswerChunk:
        tokens, finish = tuple(choice["token_ids"] or ()), choice["finish_reason"]
        facts = {"model": self.name, "family": self.family, "engine": "vllm", "seed": False}
        return AnswerChunk(
            text=spelling.add(tokens, last=finish is not None),
            tokens=tokens,
            logprobs=tuple(choice["logprobs"]["token_logprobs"]) if tokens else (),
            spelled=tuple(self.chat.tokenizer.decode([token]) for token in tokens) if spell else (),
            finish=None if finish is None else "stop" if finish == "stop" else "length",
            facts={} if finish is None else facts,
        )

    async def close(self) -> None:
        """See `Backend.close`: the server ends."""
        if self._client is not None:
            await self._client.aclose()
        await asyncio.to_thread(self.engine.close)
        shutil.rmtree(self._folder, ignore_errors=True)
