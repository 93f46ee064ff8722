"""What a model is told: how to write actions, what is asked of it, and what the page shows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from plumbline.records import Message
from plumbline.tasks.tables import read_table
from plumbline_miniwob.actions import Act
from plumbline_miniwob.writing import write_step

_WORDS: Mapping[str, str] = read_table(Path(__file__).with_name("prompts.yaml"))
MOST_FAILED = 5
"""Actions that came to nothing which are told of."""


def messages(utterance: str, text: str, *, plan: str, full: bool, turns: int) -> list[Message]:
    """The chat of an example, without its answer."""
    asked: Message = {
        "role": "user",
        "content": f"{utterance}\n\n{_WORDS['page']}\n{text or _WORDS['empty']}",
    }
    told = f"{_WORDS[plan]}\n{_WORDS['turns' if turns > 1 else 'whole']}"
    return [{"role": "system", "content": told}, asked] if full else [asked]


def again(
    text: str,
    acts: Sequence[Act] = (),
    attempts: Sequence[tuple[str, str]] = (),
    *,
    empty: bool = False,
) -> str:
    """What the page shows after an answer, and which of its actions came to nothing."""
    wrong = [
        f"- {write_step(act)}: {reason or status}"
        for act, (status, reason) in zip(acts, attempts, strict=False)
        if status != "ok"
    ]
    lines = [_WORDS["nothing"]] if empty else []
    lines += [_WORDS["failed"], *wrong[:MOST_FAILED]] if wrong else []
    return "\n".join([*lines, _WORDS["now"], text or _WORDS["empty"]])
