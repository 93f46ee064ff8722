"""Evaluations on disk: one JSON file each, with every row, so that any two can be compared later,
pair by pair.

Replayed episodes of an evaluation lie in a folder of their own, with their pictures and an index
that is written last:

    replays/rl.test.greedy/
      index.json           which episodes, what each got wrong, and its pictures' captions
      00-00.jpg ...        episode, picture

A folder without an index is not whole, and reads as nothing.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from plumbline.errors import DataError
from plumbline.records import (
    Evaluation,
    Figure,
    Frame,
    Headline,
    Judged,
    Mistake,
    Unjudged,
    Values,
)
from plumbline.storage import (
    SMALL,
    JsonLines,
    dumps,
    one_line,
    read_bytes,
    read_object,
    write_bytes,
    write_json,
)

INDEX = "index.json"
"""Of the replays of an evaluation."""
REFERENCE = "reference"
"""The stage of the oracle's and the baselines' evaluations; their mode is their name."""


@dataclass(frozen=True, slots=True, order=True)
class EvaluationKey:
    """Which evaluation of a run: `rl@000040.val.greedy` inside training, `rl.test.sampled` after a
    stage; in a run of several tasks `rl.TASK.test.sampled`.

    Fields: the stage (base, sft, rl, reference), the split, the mode (greedy, sampled, or a
    reference's name), the step for one inside training (None for the one after the stage), and the
    task's name in a run of several.
    """

    stage: str
    split: str
    mode: str
    step: int | None = None
    task: str = ""

    def __str__(self) -> str:
        step = "" if self.step is None else f"@{self.step:06d}"
        return ".".join(
            [f"{self.stage}{step}", *([self.task] if self.task else []), self.split, self.mode]
        )

    @property
    def asked(self) -> str:
        """What was asked, of whatever model: task, split and mode."""
        return f"{self.task} {self.split} {self.mode}".strip()

    @classmethod
    def parse(cls, text: str) -> Self:
        """The key that `str` wrote.

        Raises:
            DataError: it is none.
        """
        found = re.fullmatch(
            r"([^.@]+)(?:@(\d{1,18}))?(?:\.([^.]+))?\.([^.]+)\.([^.]+)", text, re.ASCII
        )
        if found is None:
            raise DataError(
                f"{text} does not name an evaluation",
                "names look like rl.val.greedy or rl@000040.val.greedy",
            )
        stage, step, task, split, mode = found.groups()
        return cls(stage, split, mode, None if step is None else int(step), task or "")


def to_json(evaluation: Evaluation) -> Values:
    """Plain values, rows included; what only some rows have (several turns) stands in those
    alone."""
    values = asdict(evaluation)
    for row in values["rows"]:
        _shorten_row(row)
    return values


def _shorten_row(row: Values) -> None:
    for name in ("turns", "asked", "cut"):
        if not row[name]:
            del row[name]


def write_evaluation(path: Path, evaluation: Evaluation) -> None:
    """Write an evaluation atomically."""
    write_json(path, to_json(evaluation))


class PartialEvaluation:
    """An evaluation that is not finished: its rows so far, a line each, beside the place of the
    whole.

    The first line says under what they were made; what was begun under anything else is begun
    again.
    """

    def __init__(self, path: Path, under: Mapping[str, Any]) -> None:
        """Take up what lies there, or begin.

        Args:
            path: of the whole evaluation, a JSON file.
            under: what else its rows depend on, as plain values.
        """
        self._file = JsonLines(partial_file(path))
        self._file.cut_torn()
        if [dumps(row) for row in self._file.rows()[:1]] != [dumps(under)]:
            self._file.truncate(0)
            self._file.append(under)

    def rows(self) -> list[Judged | Unjudged]:
        """Those that are there, in the order in which they were added.

        Raises:
            DataError: a line is no row of an evaluation.
        """
        found: list[Judged | Unjudged] = []
        for number, values in enumerate(self._file.rows()[1:], start=2):
            try:
                row = _read_unjudged(values) if "failure" in values else _read_judged(values)
            except (TypeError, KeyError, ValueError) as error:
                raise DataError(
                    f"{self._file.path}:{number}: {one_line(error)}", "delete the file"
                ) from error
            found.append(row)
        return found

    def add(self, rows: Sequence[Judged | Unjudged]) -> None:
        """Keep those that follow."""
        for row in rows:
            values = asdict(row)
            if isinstance(row, Judged):
                _shorten_row(values)
            self._file.append(values)

    def remove(self) -> None:
        """The whole is written."""
        self._file.path.unlink(missing_ok=True)


def partial_file(path: Path) -> Path:
    """Where the rows of an evaluation lie until it is whole, and is written to `path`."""
    return path.with_suffix(".part.jsonl")


def read_evaluation(path: Path) -> Evaluation:
    """Read an evaluation back.

    Raises:
        DataError: the file is missing or is no evaluation, a reward lies outside [0, 1], or an id
            comes twice.
    """
    values = read_object(path)
    try:
        return _evaluation(values)
    except (TypeError, KeyError, ValueError) as error:
        lacks = "it lacks " if isinstance(error, KeyError) else ""
        raise DataError(
            f"{path} is not an evaluation of Plumbline: {lacks}{one_line(error)}",
            "give the JSON file of one",
        ) from error


def _evaluation(values: Values) -> Evaluation:
    """Raises TypeError, KeyError or ValueError where the values are those of no evaluation."""
    rows = tuple(map(_read_judged, _objects(values["rows"], "rows")))
    unjudged = tuple(map(_read_unjudged, _objects(values["unjudged"], "unjudged")))
    counts = Counter([row.id for row in rows] + [row.id for row in unjudged])
    if not counts:
        raise ValueError("it has no answers")
    if (most := counts.most_common(1)[0])[1] > 1:
        raise ValueError(f"it has {most[1]} answers to {most[0]}")
    _check_texts(
        {key: values[key] for key in ("source", "task", "split", "rubric")}, "the evaluation"
    )
    if not isinstance(values["sampling"], dict) or type(values["seed"]) is not int:
        raise TypeError("sampling is an object, and seed a whole number")
    if not isinstance(values["form"], list) or not all(
        isinstance(name, str) for name in values["form"]
    ):
        raise TypeError("form is a list of names")
    headline = _headline(values.get("headline"))
    return Evaluation(
        **{
            **values,
            "rows": rows,
            "unjudged": unjudged,
            "form": tuple(values["form"]),
            "headline": headline,
        }
    )


def _objects(values: Any, name: str) -> list[Values]:
    if not isinstance(values, list) or not all(isinstance(one, dict) for one in values):
        raise TypeError(f"{name} is a list of objects")
    return values


def _read_unjudged(values: Values) -> Unjudged:
    row = Unjudged(**values)
    _check_texts(asdict(row), "unjudged")
    return row


def _read_judged(values: Values) -> Judged:
    row = Judged(**{**values, **{name: tuple(values.get(name, ())) for name in ("turns", "asked")}})
    _check_judged(row)
    return row


def _check_judged(row: Judged) -> None:
    _check_texts(
        {key: getattr(row, key) for key in ("id", "stratum", "completion", "how", "cluster")},
        "a row",
    )
    said = enumerate((*row.turns, *row.asked))
    _check_texts({f"turn {number}": text for number, text in said}, f"the turns of {row.id}")
    if row.turns and (len(row.turns) != len(row.asked) + 1 or row.turns[-1] != row.completion):
        raise ValueError(
            f"the turns of {row.id} do not go with what was asked, or with its completion"
        )
    if not isinstance(row.parts, dict) or not isinstance(row.readings, dict):
        raise TypeError(f"parts and readings of {row.id} are objects")
    shares = {
        "reward": row.reward,
        **row.readings,
        **{k: v for k, v in row.parts.items() if v is not None},
    }
    for name, value in shares.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise ValueError(f"{name} of {row.id} is {str(value)[:40]}, and lies between 0 and 1")
    if (
        row.truncated not in {None, True, False}
        or type(row.cut) is not bool
        or not (row.tokens is None or type(row.tokens) is int)
    ):
        raise TypeError(
            f"truncated (and cut) of {row.id} is true, false or null, and tokens a whole number or "
            "null"
        )


def _check_texts(values: Mapping[str, Any], where: str) -> None:
    for name, value in values.items():
        if not isinstance(value, str):
            raise TypeError(f"{name} of {where} is no text")


def is_evaluation(path: Path) -> bool:
    """Whether a file is an evaluation of ours."""
    try:
        read_evaluation(path)
    except DataError:
        return False
    return True


def _headline(values: Values | None) -> Headline | None:
    if values is None:
        return None
    if not isinstance(values, dict):
        raise TypeError("headline is an object or null")
    figures = tuple(
        Figure(**figure) for figure in _objects(values["figures"], "figures of headline")
    )
    return Headline(**{**values, "figures": figures})


# -- replays ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One episode again: what its answer got wrong, and pictures of it."""

    id: str
    stratum: str
    reward: float
    mistakes: tuple[Mistake, ...] = ()
    frames: tuple[Frame, ...] = ()
    problem: str = ""
    """Why there are no pictures; empty where there are."""


def write_replays(folder: Path, replays: Sequence[Replay]) -> None:
    """Write an evaluation's replays, the index last.

    Raises:
        StorageError: the disk refuses.
    """
    rows = []
    for number, replay in enumerate(replays):
        frames = []
        for place, frame in enumerate(replay.frames):
            name = f"{number:02d}-{place:02d}.jpg"
            write_bytes(folder / name, frame.image)
            frames.append({"caption": frame.caption, "image": name})
        plain = {key: getattr(replay, key) for key in ("id", "stratum", "reward", "problem")}
        rows.append(
            {**plain, "mistakes": [asdict(one) for one in replay.mistakes], "frames": frames}
        )
    write_json(folder / INDEX, {"replays": rows})


def read_replays(folder: Path) -> tuple[Replay, ...]:
    """Read them back; none where there is no index.

    Raises:
        DataError: the index is malformed, or a picture is missing.
    """
    if not (folder / INDEX).is_file():
        return ()
    values = read_object(folder / INDEX)
    try:
        return tuple(
            Replay(
                **{key: _text(row[key]) for key in ("id", "stratum", "problem")},
                reward=float(row["reward"]),
                mistakes=tuple(
                    Mistake(**{key: _text(value) for key, value in one.items()})
                    for one in row["mistakes"]
                ),
                # Only the name: an index from elsewhere cannot show other files.
                frames=tuple(
                    Frame(
                        caption=_text(one["caption"]),
                        image=read_bytes(folder / Path(one["image"]).name, limit=SMALL),
                    )
                    for one in row["frames"]
                ),
            )
            for row in values["replays"]
        )
    except (TypeError, KeyError, ValueError, AttributeError, OSError) as error:
        raise DataError(
            f"{folder} does not hold replays: {one_line(error)}", "delete it, and evaluate again"
        ) from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
