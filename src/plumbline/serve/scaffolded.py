"""JSON from a masked-diffusion model on a scaffold of the schema's fixed tokens, where the schema allows for one.

Such an answer is valid by construction and needs one try. What a scaffold cannot hold to (`{}` for any object, a
pattern, a document longer than the canvas) is left to the model underneath, which reads leniently.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Protocol, cast

from plumbline.errors import RecipeError
from plumbline.policies.masked.options import MaskedSampling
from plumbline.policies.policy import Sampler
from plumbline.records import Message, Request, Sampling
from plumbline.serve.served import Asked, Piece, Served, law_of

SAID = {"way": "scaffold", "valid": True, "how": "strict", "retries": 0}
"""What the facts of an answer say of its JSON; its other way is `lenient`."""


class Holds(Protocol):
    """A policy that can hold tokens on its canvas."""

    def scaffold(self, law: MaskedSampling) -> object | None:
        """See `MaskedPolicy.scaffold`."""
        ...


def with_scaffolds(served: Served, policy: Sampler, sampling: Sampling) -> Served:
    """A model that uses scaffolds where its policy can; any other as it is."""
    if not isinstance(sampling, MaskedSampling):
        return served
    return ScaffoldedServed(served, cast(Holds, policy), sampling)


class ScaffoldedServed:
    """A `Served` over one that reads leniently; both over one masked policy."""

    def __init__(self, served: Served, policy: Holds, sampling: MaskedSampling) -> None:
        """Take the model underneath, its policy, and the law where a client says nothing of it."""
        self.served, self.policy, self.sampling = served, policy, sampling
        self.name, self.family, self.context = served.name, served.family, served.context

    def prompt_length(self, messages: Sequence[Message]) -> int:
        """See `Served.prompt_length`."""
        return self.served.prompt_length(messages)

    @property
    def waiting(self) -> int:
        """See `book.Queues`."""
        return int(getattr(self.served, "waiting", 0))

    async def close(self) -> None:
        """See `Served.close`."""
        await self.served.close()

    async def answer(self, asked: Asked) -> AsyncGenerator[Piece, None]:
        """See `Served.answer`."""
        held = await asyncio.to_thread(scaffolded, asked, self.policy, self.sampling) if asked.schema else None
        pieces = cast(AsyncGenerator[Piece, None], self.served.answer(held or asked))
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                if held is not None and piece.finish is not None:
                    yield replace(piece, facts={**piece.facts, "json": SAID})
                else:
                    yield piece


def scaffolded(asked: Asked, policy: Holds, own: MaskedSampling) -> Asked | None:
    """What is asked, as text on a scaffold of its schema; None where the schema, the canvas or the law has none.

    Raises:
        RecipeError: the client said something that the family's law has not (see `law_of`).
    """
    law = law_of(own, asked)
    if law.selector == "low_confidence" and not law.greedy:
        return None
    try:
        law = replace(law, scaffold=json.dumps(asked.schema, ensure_ascii=False), blocks=1)
        policy.scaffold(law)
    except (ValueError, RecipeError):  # each says what it is that cannot be held to
        return None
    return replace(asked, schema=None, said=None, request=Request(asked.request.key, asked.request.messages, law))
