"""Evaluations on disk: one JSON file each, with every row, so that any two can be compared later, pair by pair."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from plumbline.errors import DataError
from plumbline.records import Evaluation, Figure, Headline, Judged, Unjudged
from plumbline.storage import read_json, write_json

REFERENCE = "reference"
"""The stage of the oracle's and the controls' evaluations; their mode is their name."""


@dataclass(frozen=True, slots=True, order=True)
class EvaluationKey:
    """Which evaluation of a run: `rl@000040.val.greedy` inside training, `rl.test.sampled` after a stage.

    Fields: the stage (base, sft, rl, reference), the split, the mode (greedy, sampled, or a reference's name), and
    the step for one inside training (None for the one after the stage).
    """

    stage: str
    split: str
    mode: str
    step: int | None = None

    def __str__(self) -> str:
        step = "" if self.step is None else f"@{self.step:06d}"
        return f"{self.stage}{step}.{self.split}.{self.mode}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The key that `str` wrote.

        Raises:
            DataError: it is none.
        """
        try:
            stage, split, mode = text.split(".")
        except ValueError as error:
            raise DataError(f"{text} does not name an evaluation", "names look like rl.val.greedy") from error
        name, at, step = stage.partition("@")
        return cls(name, split, mode, int(step) if at else None)


def to_json(evaluation: Evaluation) -> dict[str, Any]:
    """Plain values, rows included."""
    return asdict(evaluation)


def write_evaluation(path: Path, evaluation: Evaluation) -> None:
    """Write an evaluation atomically."""
    write_json(path, to_json(evaluation))


def read_evaluation(path: Path) -> Evaluation:
    """Read an evaluation back.

    Raises:
        DataError: the file is missing or is no evaluation.
    """
    values = read_json(path)
    try:
        rows, unjudged = _rows(values["rows"])
        unjudged += tuple(Unjudged(**row) for row in values.get("unjudged", ()))
        headline = _headline(values.get("headline"))
        return Evaluation(
            **{**values, "rows": rows, "unjudged": unjudged, "form": tuple(values["form"]), "headline": headline}
        )
    except (TypeError, KeyError, ValueError) as error:
        raise DataError(f"{path} is not an evaluation of Plumbline: {error}", "give the JSON file of one") from error


def _rows(values: list[dict[str, Any]]) -> tuple[tuple[Judged, ...], tuple[Unjudged, ...]]:
    """Rows as they stand; version 0.1.0 wrote those that could not be judged among them, with a reward of 0."""
    judged, unjudged = [], []
    for row in values:
        failure = row.pop("failure", "")
        if failure:
            unjudged.append(Unjudged(**{key: row[key] for key in ("id", "stratum", "completion")}, failure=failure))
        else:
            judged.append(Judged(**row))
    return tuple(judged), tuple(unjudged)


def is_evaluation(path: Path) -> bool:
    """Whether a file is an evaluation of ours."""
    try:
        read_evaluation(path)
    except (DataError, OSError):
        return False
    return True


def _headline(values: dict[str, Any] | None) -> Headline | None:
    if values is None:
        return None
    return Headline(**{**values, "figures": tuple(Figure(**figure) for figure in values["figures"])})
