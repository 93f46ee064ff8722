"""What the server asks of a model, and what a model gives it: pieces of one answer, as soon as they
are there.

Whoever answers is a `Backend`: a model in this process (`batched`), a vLLM server, or an agent's
planner around one. The routes know nothing else.

JSON from a model that cannot be held to it is read leniently, checked against the schema, and drawn
again if need be. Numbers as Brazilians write them come out as JSON numbers, because the reader
knows them. How an answer was read, and how often it was tried, stands in its facts.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from plumbline.config.imports import import_needed
from plumbline.errors import PlumblineError, RecipeError
from plumbline.policies.policy import Sampler
from plumbline.records import Finish, Message, Request, Sampling
from plumbline.tasks.text.lenient_json import Reading, Schema, read_json

WARM = 1.0
"""The temperature of a further try where the first one was greedy, which would say the same
again."""
Judge = Callable[[str], tuple[Reading, bool]]
"""From a text to what was read, and whether that is valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRequest:
    """One answer that a client wants; its `n` answers are as many of these, with keys of their
    own."""

    request: Request
    """Chat, sampling distribution and key: the random numbers come from the client's seed and the
    number of the answer."""
    said: Mapping[str, Any] | None = None
    """What of the sampling distribution the client said, by the names of its fields; the rest is
    the model's own (`sampling_of`). None: the request's sampling distribution as a whole."""
    schema: Mapping[str, Any] | None = None
    """The JSON schema that the answer has to follow, {} for any object; None for free text."""
    name: str = ""
    """The schema's name, as the client calls it."""
    logprobs: bool = False
    """Whether the tokens are wanted one by one, spelled and with their log-probabilities."""
    canvas: bool = False
    """Whether the canvas is wanted after each step of denoising."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChunk:
    """What there is of an answer more than before. Its text never takes anything back."""

    text: str = ""
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    """Of the tokens, under the sampling distribution that drew them; empty where the family has
    none of single tokens."""
    spelled: tuple[str, ...] = ()
    """The tokens as texts; empty where nobody asked for them, or their tokenizer is not known."""
    canvas: str | None = None
    """The whole answer at this step of denoising, with hidden places shown; None for families that
    write on."""
    finish: Finish | None = None
    """Of the last piece, which has it: the model ended the answer, or the limit did."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Of the last piece: which model answered, how the answer was read or made valid, how often it
    was tried."""


Chunks = AsyncGenerator[AnswerChunk, None]
"""The pieces of one answer, as they come."""


class Backend:
    """A model that answers requests of many clients at once.

    By default it draws with a sampler: a subclass says how (`write`), and JSON is read from what
    was written. One that asks others has its own `prompt_length` and `answer`.
    """

    name: str
    family: str
    context: int
    """The longest prompt plus answer, in tokens."""
    retries = 2
    """Further tries after an answer in which no valid JSON was found."""

    def __init__(self, name: str, sampler: Sampler, sampling: Sampling) -> None:
        """Take what draws, and the sampling distribution where a client says nothing of it."""
        self.name, self.family, self.context = name, sampler.family, sampler.context
        self.sampler, self.sampling = sampler, sampling

    @property
    def waiting(self) -> int | None:
        """How many answers have not been begun, of those who count them."""
        return None

    def prompt_length(self, messages: Sequence[Message]) -> int:
        """Tokens of a chat up to where the answer begins."""
        return self.sampler.prompt_length(messages)

    def answer(self, asked: AnswerRequest) -> Chunks:
        """Pieces of one answer; closing the iterator before its end stops the work on it.

        Raises:
            DataError: the chat does not fit into the context, or the template refuses it.
            RecipeError: the sampling distribution, or a schema, is not one that this model can
                follow.
        """
        return self.write(asked) if asked.schema is None else self._json(asked, asked.schema)

    def write(self, asked: AnswerRequest) -> Chunks:
        """Pieces of one answer, as `answer` gives them; no schema is asked for."""
        raise NotImplementedError

    async def close(self) -> None:
        """End what was started for it; what is being answered ends with an error."""

    def sampling_of(self, asked: AnswerRequest) -> Sampling:
        """The sampling distribution of an answer: as the client said, and for the rest as the
        model's own run decoded.

        A limit beyond the places of the model's canvas is no limit.

        Raises:
            RecipeError: the client said something that the family's sampling distribution has not,
                or not like this.
        """
        own, sampling = self.sampling, asked.request.sampling
        if asked.said is not None or not isinstance(sampling, type(own)):
            shared = ("temperature", "top_k", "top_p", "max_tokens")
            said = (
                {name: getattr(sampling, name) for name in shared}
                if asked.said is None
                else asked.said
            )
            if foreign := sorted(set(said) - {one.name for one in fields(own)}):
                advice = "leave it out, or ask another model"
                raise RecipeError(
                    f"this model's sampling has no {' and no '.join(foreign)}", advice
                )
            try:
                sampling = replace(own, **said)
            except ValueError as error:
                raise RecipeError(
                    f"this model cannot be sampled like this: {error}", "ask for something else"
                ) from error
        return replace(
            sampling,
            max_tokens=min(
                sampling.max_tokens, getattr(self.sampler, "canvas", None) or sampling.max_tokens
            ),
        )

    async def _json(self, asked: AnswerRequest, schema: Mapping[str, Any]) -> Chunks:
        """JSON as one piece. What is still not valid after the last try is given as it was drawn,
        and its facts say so.

        Raises:
            RecipeError: the schema is none; or log-probabilities are wanted of an answer that may
                be written again.
        """
        if asked.logprobs:
            raise RecipeError(
                f"{self.name} reads JSON from what was drawn, which has no log-probabilities of "
                "its own",
                "leave out logprobs or response_format",
            )
        judge = await asyncio.to_thread(make_reader, schema)
        tokens: tuple[int, ...] = ()
        for attempt in range(self.retries + 1):
            found: list[AnswerChunk] = []
            async with contextlib.aclosing(self.write(retry_request(asked, attempt))) as pieces:
                async for piece in pieces:
                    found.append(piece)
            last, text = found[-1], "".join(piece.text for piece in found)
            tokens += tuple(token for piece in found for token in piece.tokens)
            reading, valid = await asyncio.to_thread(judge, text)
            if valid:
                break
        if valid and reading.how != "strict":
            text = json.dumps(reading.value, ensure_ascii=False)
        said = {"way": "lenient", "valid": valid, "how": reading.how, "retries": attempt}
        yield replace(
            last, text=text, tokens=tokens, logprobs=(), facts={**last.facts, "json": said}
        )


def retry_request(asked: AnswerRequest, attempt: int) -> AnswerRequest:
    """What is asked in a try: text, with numbers of the try's own from the second on, and never
    greedily."""
    if attempt == 0:
        return replace(asked, schema=None)
    said, key, sampling = asked.said, (*asked.request.key, "again", attempt), asked.request.sampling
    if said is None:
        sampling = replace(sampling, temperature=sampling.temperature or WARM)
    else:
        said = {**said, "temperature": said.get("temperature") or WARM}
    return replace(
        asked, schema=None, said=said, request=Request(key, asked.request.messages, sampling)
    )


def make_reader(schema: Mapping[str, Any]) -> Judge:
    """What reads a text by a schema; {} takes any object.

    Raises:
        RecipeError: see `make_validator`.
    """
    validator, expected = make_validator(schema)

    def judge(text: str) -> tuple[Reading, bool]:
        reading = read_json(text, expected)
        try:
            valid = (
                reading.complete and reading.value is not None and validator.is_valid(reading.value)
            )
        except ValueError:  # a pattern that takes too long
            valid = False
        return reading, valid

    return judge


def make_validator(schema: Mapping[str, Any]) -> tuple[Any, Schema]:
    """What says whether a value is right by a schema, and what a lenient reader expects; {} takes
    any object.

    Nothing that a schema refers to is fetched, and its patterns are matched with a bound on their
    work.

    Raises:
        RecipeError: it is no schema, or refers to another one elsewhere.
    """
    jsonschema_rs = import_needed("jsonschema_rs", "JSON by a schema", RecipeError)
    wanted = dict(schema) or {"type": "object"}
    try:
        return jsonschema_rs.validator_for(wanted, offline=True), Schema.from_json(wanted)
    except (PlumblineError, ValueError) as error:
        said = str(error).split("\n", 1)[0][:300]
        raise RecipeError(
            f"response_format.json_schema.schema is no JSON Schema: {said}", "correct it"
        ) from error
