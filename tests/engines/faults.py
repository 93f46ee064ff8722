"""A task of two turns whose verdicts break, hang, end their process or take their time, as the text
says."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.errors import DataError
from plumbline.records import Example, Message, Outcome, Score
from tests.toy import RUBRIC, ToyTask


class TwoPartsError(Exception):
    """Of a kind that comes out of no pickle."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} and {other}")


def act(text: str) -> None:
    word, _, value = text.partition(" ")
    if word == "breaks":
        raise TwoPartsError("the page", "its server")
    if word == "dies":
        os._exit(1)
    if word == "once" and not Path(value).exists():  # ends the first process that judges it
        Path(value).touch()
        os._exit(1)
    if word == "full":  # a disk of the worker's machine
        with Path("/dev/full").open("w") as file:
            file.write(text)
    if word == "hangs":
        time.sleep(1000)
    if word == "slow":
        time.sleep(float(value))


class Talk:
    """Two answers; what they come to is how many letters both have."""

    def __init__(self, example: Example) -> None:
        self.example, self.texts = example, list[str]()

    def ask(self) -> Sequence[Message] | None:
        if len(self.texts) == 2:
            return None
        told = [
            {"role": "assistant", "content": f"{text} by {os.getpid() * 0}"} for text in self.texts
        ]
        return [*self.example.messages, *told]

    def tell(self, text: str) -> None:
        act(text)
        self.texts.append(text)

    def result(self) -> tuple[Outcome, Score]:
        share = min(1.0, len("".join(self.texts)) / 100)
        return Outcome(how=" | ".join(self.texts)), RUBRIC.score({"letters": share, "any": 1.0})


class FaultyTask(ToyTask):
    name = "faulty"

    @property
    def turns(self) -> int:
        return self.options.get("turns", 1)

    def episode(self, example: Example) -> Talk:
        return Talk(example)

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        act(completion)
        if wait := self.options.get("wait"):
            time.sleep(wait)
        return super().judge(example, completion)

    def judge_group(
        self, example: Example, completions: Sequence[str]
    ) -> list[tuple[Outcome, Score]]:
        return [self.judge(example, text) for text in completions]


def open_faulty(options: Mapping[str, Any], folder: Path, progress: object) -> FaultyTask:
    if options.get("opens_in", os.getpid()) != os.getpid():
        raise DataError("there are no records here", "copy them")
    return FaultyTask(options)


def letters(completions: list[str], **columns: object) -> list[float]:
    return [min(1.0, len(text) / 10) for text in completions]
