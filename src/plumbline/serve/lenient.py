"""JSON from a model that cannot be held to it: read leniently, checked against the schema, and drawn again if need be.

Numbers as Brazilians write them come out as JSON numbers, because the reader knows them. How an answer was read, and
how often it was tried, stands in its facts.
"""

import asyncio
import contextlib
import json
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from plumbline.config.imports import needed
from plumbline.errors import PlumblineError, RecipeError
from plumbline.policies.policy import Sampler
from plumbline.records import Message, Request, Sampling
from plumbline.serve.served import Asked, Piece, Served
from plumbline.tasks.text.lenient_json import Reading, Schema, read_json

RETRIES = 2
"""Further tries after an answer in which no valid JSON was found."""
WARM = 1.0
"""The temperature of a further try where the first one was greedy, which would say the same again."""
Judge = Callable[[str], tuple[Reading, bool]]
"""From a text to what was read, and whether that is valid."""


class LenientServed(Served):
    """A sampler as a `Served`: it writes text, and gives JSON where it is asked for."""

    retries = RETRIES

    def __init__(self, name: str, sampler: Sampler, sampling: Sampling) -> None:
        """Take what draws, and the law where a client says nothing of it."""
        self.name, self.family, self.context = name, sampler.family, sampler.context
        self.sampler, self.sampling = sampler, sampling

    def prompt_length(self, messages: Sequence[Message]) -> int:
        """See `Served.prompt_length`."""
        return self.sampler.prompt_length(messages)

    @abstractmethod
    def write(self, asked: Asked) -> AsyncGenerator[Piece, None]:
        """Pieces of one answer, as `Served.answer` gives them; no schema is asked for."""

    def answer(self, asked: Asked) -> AsyncGenerator[Piece, None]:
        """See `Served.answer`."""
        return self.write(asked) if asked.schema is None else self._json(asked, asked.schema)

    async def _json(self, asked: Asked, schema: Mapping[str, Any]) -> AsyncGenerator[Piece, None]:
        """JSON as one piece. What is still not valid after the last try is given as it was drawn, and its facts say so.

        Raises:
            RecipeError: the schema is none; or log-probabilities are wanted of an answer that may be written anew.
        """
        if asked.logprobs:
            raise RecipeError(
                f"{self.name} reads JSON from what was drawn, which has no log-probabilities of its own",
                "leave out logprobs or response_format",
            )
        judge = await asyncio.to_thread(judge_of, schema)
        tokens: tuple[int, ...] = ()
        for attempt in range(self.retries + 1):
            found: list[Piece] = []
            async with contextlib.aclosing(self.write(again(asked, attempt))) as pieces:
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
        yield replace(last, text=text, tokens=tokens, logprobs=(), facts={**last.facts, "json": said})


def again(asked: Asked, attempt: int) -> Asked:
    """What is asked in a try: text, with numbers of the try's own from the second on, and never greedily."""
    if attempt == 0:
        return replace(asked, schema=None)
    said, key, law = asked.said, (*asked.request.key, "again", attempt), asked.request.sampling
    if said is None:
        law = replace(law, temperature=law.temperature or WARM)
    else:
        said = {**said, "temperature": said.get("temperature") or WARM}
    return replace(asked, schema=None, said=said, request=Request(key, asked.request.messages, law))


def judge_of(schema: Mapping[str, Any]) -> Judge:
    """What reads a text by a schema; {} takes any object.

    Raises:
        RecipeError: see `validator_of`.
    """
    validator, expected = validator_of(schema)

    def judge(text: str) -> tuple[Reading, bool]:
        reading = read_json(text, expected)
        try:
            valid = reading.complete and reading.value is not None and validator.is_valid(reading.value)
        except ValueError:  # a pattern that takes too long
            valid = False
        return reading, valid

    return judge


def validator_of(schema: Mapping[str, Any]) -> tuple[Any, Schema]:
    """What says whether a value is right by a schema, and what a lenient reader expects; {} takes any object.

    Nothing that a schema refers to is fetched, and its patterns are matched with a bound on their work.

    Raises:
        RecipeError: it is no schema, or refers to another one elsewhere.
    """
    jsonschema_rs = needed("jsonschema_rs", "JSON by a schema", RecipeError)
    wanted = dict(schema) or {"type": "object"}
    try:
        return jsonschema_rs.validator_for(wanted, offline=True), Schema.from_json(wanted)
    except (PlumblineError, ValueError) as error:
        said = str(error).split("\n", 1)[0][:300]
        raise RecipeError(f"response_format.json_schema.schema is no JSON Schema: {said}", "correct it") from error
