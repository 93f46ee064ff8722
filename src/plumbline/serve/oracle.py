"""A planner that knows every answer, by the gold plans of a task's examples: the ceiling of what stands around one."""

from collections.abc import AsyncGenerator, Mapping, Sequence

from plumbline.errors import DataError
from plumbline.records import Example, Message
from plumbline.serve.agent_prompt import given_of
from plumbline.serve.served import Asked, Piece
from plumbline.tasks.task import gold_of


class OraclePlanner:
    """See `Served`: answers a prompt of the forms task with the gold plan of the example that asks for these values."""

    family, context = "oracle", 1 << 20

    def __init__(self, examples: Sequence[Example], name: str = "oracle") -> None:
        self.name = name
        self._gold: Mapping[str, str] = {given_of(_user(one.messages))[0]: gold_of(one) for one in examples}

    def prompt_length(self, messages: Sequence[Message]) -> int:
        """See `Served`: words, because it has no tokens."""
        return sum(len(one["content"].split()) for one in messages)

    async def answer(self, asked: Asked) -> AsyncGenerator[Piece, None]:
        """See `Served`.

        Raises:
            DataError: none of its examples asks for these values.
        """
        gold = self._gold.get(given_of(_user(asked.request.messages))[0])
        if gold is None:
            raise DataError("the oracle knows no example with these values", "ask it for one of its own examples")
        yield Piece(text=gold, finish="stop", facts={"model": self.name})

    async def close(self) -> None:
        """See `Served`; there is nothing to end."""


def _user(messages: Sequence[Message]) -> str:
    """The first request of a chat."""
    return next((one["content"] for one in messages if one["role"] == "user"), "")
