"""Replayed episodes on disk: a folder for an evaluation, with its pictures and an index that is written last.

    replays/rl.test.greedy/
      index.json           which episodes, what each got wrong, and its pictures' captions
      00-00.jpg ...        episode, picture

A folder without an index is not whole, and reads as nothing.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from plumbline.errors import DataError
from plumbline.records import Frame, Mistake
from plumbline.storage import SMALL, one_line, read_bytes, read_object, write_bytes, write_json

INDEX = "index.json"


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
        rows.append({**plain, "mistakes": [asdict(one) for one in replay.mistakes], "frames": frames})
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
                mistakes=tuple(Mistake(**{key: _text(value) for key, value in one.items()}) for one in row["mistakes"]),
                # Only the name: an index from elsewhere cannot show other files.
                frames=tuple(
                    Frame(
                        caption=_text(one["caption"]), image=read_bytes(folder / Path(one["image"]).name, limit=SMALL)
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
