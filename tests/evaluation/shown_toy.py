"""The toy task with figures of its own, a further split, and episodes that can be shown again by a
fake camera."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plumbline.errors import DataError, RecipeError
from plumbline.records import Example, Figure, Frame, Headline, Mistake, Outcome, Score
from tests.toy import ToyTask

HEADLINE = Headline(
    figures=(
        Figure(key="letter_accuracy", title="Letters", part="letters"),
        Figure(key="text_rate", title="Any text", part="any", rate=True),
    ),
    stratum="parity",
    breakdown="kind",
    prefix="kind-",
    limits={"blank": 0.05, "constant": 0.1},
    note="a toy",
)


class ShownToy(ToyTask):
    """See the module; `camera` may be broken."""

    splits = ("train", "val", "test", "strange")
    headline = HEADLINE

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        outcome, score = super().judge(example, completion)
        parts = {**score.parts, "kind-short": score.parts["letters"]}
        return outcome, Score(total=score.total, parts=parts, rubric=score.rubric)

    def mistakes(self, example: Example, completion: str) -> Sequence[Mistake]:
        if self.options.get("camera") == "no facts":
            raise DataError("the episode is gone")
        return [Mistake(what="text", expected="aaaa", received=completion)]

    def replay(self, example: Example, completion: str) -> Sequence[Frame]:
        if self.options.get("camera") == "missing":
            raise RecipeError("there is no camera", "buy one")
        return [
            Frame(caption="<b>before</b>", image=f"first of {example.id}".encode()),
            Frame(caption="after", image=b"\xff\xd8second"),
        ]


def open_shown(options: dict[str, Any], folder: Path, progress: object) -> ShownToy:
    return ShownToy(options)
