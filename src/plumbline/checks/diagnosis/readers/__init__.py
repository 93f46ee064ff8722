"""Records of runs, whoever made them, read into histories. A new kind is a file here and a line in
`READERS`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.readers import completions as stored
from plumbline.checks.diagnosis.readers import (
    console,
    notebook,
    own,
    table,
    tensorboard,
    trainer_state,
    wandb,
)
from plumbline.checks.diagnosis.readers.logs import add_completions
from plumbline.checks.diagnosis.readers.rows import MOST_RUNS, TABLE, SeveralRunsError, take_only
from plumbline.errors import DataError
from plumbline.storage import open_regular


@dataclass(frozen=True, slots=True)
class Reader:
    """A kind of record."""

    what: str
    """For people."""
    find: Callable[[Path], Path | None]
    """The record that a path stands for: itself, or one in its folder; None where it has none of
    this kind."""
    read: Callable[[Path], list[History]]
    """What `find` found, a history a stage.

    Raises:
        DataError: it is damaged.
    """


READERS: Mapping[str, Reader] = {
    "plumbline": Reader(
        "a run directory of Plumbline (recipe.yaml and metrics.jsonl)", own.find, own.read
    ),
    "trl": Reader(
        "trainer_state.json of TRL or transformers", trainer_state.find, trainer_state.read
    ),
    "wandb": Reader("an offline run of W&B (run-*.wandb)", wandb.find, wandb.read),
    "tensorboard": Reader("event files of TensorBoard", tensorboard.find, tensorboard.read),
    "console": Reader("what a trainer printed (.log, .out, .txt)", console.find, console.read),
    "notebook": Reader("the outputs of a notebook (.ipynb)", notebook.find, notebook.read),
    "table": Reader(
        "a table of metrics as CSV, JSON lines or JSON (W&B's exports, too)", table.find, table.read
    ),
    "completions": Reader(
        "completions alone (prompt, completion, reward, step)", stored.find, stored.read
    ),
}
WHOLE = ("plumbline", "trl")
"""Kinds whose record is the folder's own, whatever else lies in it."""


def read_histories(path: Path | str, completions: Path | None = None) -> list[History]:
    """The stages of a run, with completions that lie elsewhere where a path to them is given.

    Args:
        path: a file or a folder, or an address of W&B as a text.
        completions: a file or a folder.

    Raises:
        DataError: there is nothing, it is damaged, or no kind of record that is known.
    """
    page = isinstance(path, str) and wandb.is_page(path)
    histories = wandb.read_page(str(path)) if page else _read(Path(path))
    if completions is None:
        return histories
    if not completions.exists():
        raise DataError(f"there is no {completions}", "check --completions")
    last = histories[-1]
    found = stored.read_completions(completions, last.names("reward/"))
    if not found.samples and not found.remarks:
        raise DataError(
            f"{completions} holds no completions", "give JSON lines, or a folder with *.jsonl in it"
        )
    return [*histories[:-1], add_completions(last, found)]


def read_runs(
    path: Path | str, completions: Path | None = None
) -> dict[str, list[History] | DataError]:
    """The stages of each run of a folder by its place there, or why it cannot be read; of a single
    run under no name.

    Args:
        path: see `read_histories`.
        completions: of a single run.

    Raises:
        DataError: as `read_histories`; there are several runs, and completions of one.
    """
    try:
        return {"": read_histories(path, completions)}
    except SeveralRunsError as several:
        if completions is not None or len(several.found) > MOST_RUNS:
            raise
        return {str(one.relative_to(path)): _try_read(one) for one in several.found}


def _try_read(path: Path) -> list[History] | DataError:
    try:
        return _read(path)
    except DataError as error:
        return error


def _read(path: Path) -> list[History]:
    if not path.exists():
        raise DataError(f"there is no {path}", "give a run's folder or the file of its records")
    if not path.is_dir():
        if path.suffix in {".gz", ".zip", ".xz", ".zst", ".bz2"}:
            raise DataError(f"{path} is packed", f"unpack it first, such as by gunzip -k {path}")
        open_regular(path).close()  # a pipe or a device is no record, and would be waited for
        if not path.is_file():
            raise DataError(
                f"{path} cannot be read: it is a pipe, and a record is read several times",
                "write what comes through it to a file such as train.log, and check that",
            )
    below = sorted(path.iterdir())[:200] if path.is_dir() else []
    for name, reader in READERS.items():
        try:
            found = reader.find(path)
        except SeveralRunsError as several:
            if further := _find_further(below, several.found):
                raise SeveralRunsError([*several.found, *further], path, "records") from None
            raise
        if found is None:
            continue
        if name not in WHOLE and (further := _find_further(below, [found])):
            raise SeveralRunsError([found, *further], path, "records")
        return reader.read(found)
    if run := take_only(
        [one for one in below if one.is_dir() and _holds_run(one)], path, "folders with a run"
    ):
        return _read(run)
    known = "; ".join(reader.what for reader in READERS.values())
    early = (
        "of TRL or transformers there is none before the first checkpoint (save_steps): till then "
        "give what it printed "
        "(train.log), or add CheckCallback; "
    )
    names = {path.suffix.lower(), path.name, *(one.name for one in below)}
    advice = next(
        (how for name, how in TABLE["foreign"].items() if name in names),
        f"{early if path.is_dir() else ''}known are: {known}; or an address of W&B",
    )
    raise DataError(f"{path} holds no record of a run that is known", advice)


def _find_further(below: Sequence[Path], found: Sequence[Path]) -> list[Path]:
    """Folders that are runs of their own, beside what was found."""
    return [
        one
        for one in below
        if one.is_dir()
        and not any(each.is_relative_to(one) for each in found)
        and any(READERS[name].find(one) is not None for name in WHOLE)
    ]


def _holds_run(folder: Path) -> bool:
    try:
        return any(reader.find(folder) is not None for reader in READERS.values())
    except DataError:  # it holds several
        return True
