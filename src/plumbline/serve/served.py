"""What the server asks of a model, and what a model gives it: pieces of one answer, as soon as they are there.

Whoever answers is a `Served`: a model in this process (`batched`), a vLLM server, a router over several, or an agent's
planner around one. The routes know nothing else.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from plumbline.errors import RecipeError
from plumbline.records import Finish, Message, Request, Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One answer that a client wants; its `n` answers are as many of these, with keys of their own."""

    request: Request
    """Chat, law and key: the random numbers come from the client's seed and the number of the answer."""
    said: Mapping[str, Any] | None = None
    """What of the law the client said, by the names of its fields; the rest is the model's own (`law_of`). None: the
    request's law as a whole."""
    schema: Mapping[str, Any] | None = None
    """The JSON schema that the answer has to follow, {} for any object; None for free text."""
    name: str = ""
    """The schema's name, as the client calls it."""
    logprobs: bool = False
    """Whether the tokens are wanted one by one, spelled and with their log-probabilities."""
    canvas: bool = False
    """Whether the canvas is wanted after each step of denoising."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What the client says of the request beside it, its job among others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What there is of an answer more than before. Its text never takes anything back."""

    text: str = ""
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    """Of the tokens, under the law that drew them; empty where the family has none of single tokens."""
    spelled: tuple[str, ...] = ()
    """The tokens as texts; empty where nobody asked for them, or their tokenizer is not known."""
    canvas: str | None = None
    """The whole answer at this step of denoising, with hidden places shown; None for families that write on."""
    finish: Finish | None = None
    """Of the last piece, which has it: the model ended the answer, or the limit did."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Of the last piece: which model answered, how the answer was read or made valid, how often it was tried."""


class Served(ABC):
    """A model that answers requests of many clients at once."""

    name: str
    family: str
    context: int
    """The longest prompt plus answer, in tokens."""

    @property
    def waiting(self) -> int | None:
        """How many answers have not been begun, of those who count them."""
        return None

    @abstractmethod
    def prompt_length(self, messages: Sequence[Message]) -> int:
        """Tokens of a chat up to where the answer begins."""

    @abstractmethod
    def answer(self, asked: Asked) -> AsyncGenerator[Piece, None]:
        """Pieces of one answer; closing the iterator before its end stops the work on it.

        Raises:
            DataError: the chat does not fit into the context, or the template refuses it.
            RecipeError: the law, or a schema, is not one that this model can follow.
        """

    async def close(self) -> None:  # noqa: B027 - by default nothing was started
        """End what was started for it; what is being answered ends with an error."""


Law = TypeVar("Law", bound=Sampling)


def law_of(own: Law, asked: Asked) -> Law:
    """The law of an answer: as the client said, and for the rest as the model's own run decoded.

    Raises:
        RecipeError: the client said something that the family's law has not, or not like this.
    """
    law = asked.request.sampling
    if asked.said is None and isinstance(law, type(own)):
        return law
    shared = ("temperature", "top_k", "top_p", "max_tokens")
    said = {name: getattr(law, name) for name in shared} if asked.said is None else asked.said
    if foreign := sorted(set(said) - {one.name for one in fields(own)}):
        raise RecipeError(f"this model's law has no {' and no '.join(foreign)}", "leave it out, or ask another model")
    try:
        return replace(own, **said)
    except ValueError as error:
        raise RecipeError(f"this model cannot be sampled like this: {error}", "ask for something else") from error
