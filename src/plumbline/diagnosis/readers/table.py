"""Plain tables of metrics: CSV, JSON lines or JSON, as people, trainers and W&B's exports write them."""

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.diagnosis.history import History
from plumbline.diagnosis.readers.completions import column_rows, is_completions, read_beside
from plumbline.diagnosis.readers.rows import Log, as_number, config_beside, only_one, our_name
from plumbline.errors import DataError
from plumbline.storage import BOM, clear_read_errors, read_json, read_text

SUFFIXES = frozenset({".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".txt", ".log"})
_NAMES = (
    "metrics",
    "history",
    "trainer_log",
    "logging",
    "log_history",
    "log",
    "train_log",
    "training_log",
    "wandb_history",
)
"""What trainers call the file of their metrics, in a folder."""
_NONE = frozenset({"", "none", "null", "na", "n/a", "-", "no log"})
"""Cells that say that there is nothing. "nan" is not among them: it may be what was logged."""


def find(path: Path) -> Path | None:
    """A file of a table's kind; in a folder the one of a usual name, or the only one.

    Raises:
        DataError: there are several; it lists them.
    """
    if path.is_file():
        suffix = path.suffix.lower()
        return path if suffix in SUFFIXES and (suffix not in {".txt", ".log"} or _is_table(path)) else None
    with clear_read_errors(path):
        files = sorted(one for one in path.iterdir() if one.suffix.lower() in SUFFIXES - {".txt", ".log"})
    usual = [file for name in _NAMES for file in files if file.stem.lower() == name]
    if usual:
        return usual[0]
    # A model's folder is full of JSON that is no table.
    tables = [file for file in files if file.suffix.lower() != ".json"]
    return only_one([file for file in tables if not is_completions(file)], path, "tables")


def _is_table(path: Path) -> bool:
    """Whether a text is JSON, or begins with names of columns, one of which is known."""
    text = read_text(path).lstrip()
    first = text.partition("\n")[0]
    return text.startswith(("{", "[{")) or any(our_name(_metric(name)) for name in re.split(r"[,;\t|]", first))


def read(path: Path) -> list[History]:
    """See `Reader.read`."""
    suffix = path.suffix.lower()
    if suffix == ".json":
        rows, skipped = _objects(read_json(path), path), 0
    elif suffix in {".csv", ".tsv"} or (suffix in {".txt", ".log"} and not read_text(path).lstrip().startswith("{")):
        rows, skipped = _separated(path)
    else:
        rows, skipped = read_lines(path)
    rows = _without_gaps(_of_one_run(rows, path))
    log = Log(origin="table", path=path, rows=rows, config=config_beside(path.parent), skipped=skipped)
    return [log.history(lambda parts: read_beside(path.parent, parts))]


def read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The objects of JSON lines, and how many lines are none (a last one may be half written).

    Raises:
        DataError: it cannot be read, or no line is an object.
    """
    rows, skipped = [], 0
    for line in read_text(path).split("\n"):
        if not line.strip():
            continue
        try:
            row = json.loads(line.removeprefix(BOM))
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(_flat(row))
        else:
            skipped += 1
    if skipped and not rows:
        raise DataError(f"{path}: none of its {skipped} lines is a JSON object", "give JSON lines, CSV or a JSON list")
    return rows, skipped


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose metrics lie a level deeper (verl's {"step": 1, "data": {...}}), as one."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict) and "_type" not in value:
            within = key if key not in {"data", "metrics", "logs"} else ""
            flat |= {f"{within}/{name}" if within else str(name): one for name, one in value.items()}
        else:
            flat[key] = value
    return flat


def _objects(value: Any, path: Path) -> list[dict[str, Any]]:
    """A list of rows, bare or under some key, or columns with a list each, or {index: value} as pandas has it."""
    if isinstance(value, dict):
        lists = [one for one in value.values() if isinstance(one, list) and one and isinstance(one[0], dict)]
        if len(lists) == 1:
            return _objects(lists[0], path)
        if (rows := column_rows(value)) is not None:
            return rows
        columns = {
            key: list(one.values()) if isinstance(one, dict) else one
            for key, one in value.items()
            if isinstance(one, list | dict)
        }
        if columns:
            longest = max(len(column) for column in columns.values())
            return [{key: one[at] for key, one in columns.items() if at < len(one)} for at in range(longest)]
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise DataError(f"{path} holds no list of objects", "give a list of {metric: value}, one for each logged step")
    return [_flat(row) for row in value]


def _separated(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The rows of a CSV; how many lines are none, and how many cells of metrics no numbers: nobody reads either."""
    text = read_text(path).lstrip("\n")
    mark = max(",;\t|", key=text.partition("\n")[0].count)
    try:
        lines = [line for line in csv.reader(io.StringIO(text, newline=""), delimiter=mark) if any(line)]
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as CSV ({error})", "give a table with a line of names") from error
    if not lines:
        raise DataError(f"{path} is empty", "look at it again after the first step of training")
    header = [name.strip() for name in lines[0]]
    rows: list[dict[str, Any]] = []
    skipped, full = 0, True
    for line in lines[1:]:
        cells = [cell.strip() for cell in line]
        row = {
            name: _decimal(cell, mark) for name, cell in zip(header, cells, strict=False) if cell.lower() not in _NONE
        }
        known = [name for name in row if our_name(_metric(name)) is not None]
        bad = [name for name in known if as_number(row[name]) is None]
        if len(cells) != len(header) or (bad and len(bad) == len(known)):
            skipped += 1
            continue
        full &= len(row) == len(header)
        skipped += len(bad)
        rows.append(row)
    if skipped and not rows:
        raise DataError(f"{path}: none of its {skipped} lines fits its first, the names", "give a table with names")
    # Where no cell is empty, nan may say that there is nothing, as pandas writes it on demand: see `_without_gaps`.
    if full:
        rows = [{name: _bare(value) for name, value in row.items()} for row in rows]
    return rows, skipped


def _bare(cell: str) -> str | float:
    return math.nan if cell.lower() == "nan" else cell


def _decimal(cell: str, mark: str) -> str:
    """A cell; a table with semicolons may have decimal commas."""
    return cell.strip().replace(",", ".") if mark == ";" and cell.count(",") == 1 else cell.strip()


def _metric(column: str) -> str:
    """The name behind `run-name - `, as W&B's page exports it."""
    return column.rpartition(" - ")[2]


def _of_one_run(rows: Sequence[Mapping[str, Any]], path: Path) -> list[dict[str, Any]]:
    """Rows without the run's name before each column, nor the bounds that W&B's page exports beside it.

    Raises:
        DataError: the columns are of several runs.
    """
    runs = {key.rpartition(" - ")[0] for row in rows for key in row if " - " in key}
    if len(runs) > 1:
        raise DataError(
            f"{path} holds several runs: {', '.join(sorted(runs)[:20])}", "export one, or leave out the others' columns"
        )
    return [{_metric(key): value for key, value in row.items() if not key.endswith(("__MIN", "__MAX"))} for row in rows]


def _without_gaps(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows without the NaN that say "not logged here", as pandas fills them in; those that were logged stay.

    A metric was logged in a row if one that is usually logged with it was, or if nothing else was.
    """
    known = {key for row in rows for key in row if our_name(key) not in {None, "epoch"}}
    bare = {key for row in rows for key in known if isinstance(row.get(key), float) and row[key] != row[key]}
    if not bare:
        return [dict(row) for row in rows]
    there = {key: {at for at, row in enumerate(rows) if _logged(row.get(key))} for key in known}
    kept = []
    for at, row in enumerate(rows):
        present = {key for key in known if at in there[key]}
        gaps = {
            key
            for key in bare
            if isinstance(row.get(key), float) and row[key] != row[key] and present and not _with(key, present, there)
        }
        kept.append({key: value for key, value in row.items() if key not in gaps})
    return kept


def _with(key: str, present: Iterable[str], there: Mapping[str, set[int]]) -> bool:
    """Whether one of the metrics that are there is there in nine of ten rows that have this one."""
    return any(len(there[key] & there[other]) >= 0.9 * len(there[key]) for other in present)


def _logged(value: Any) -> bool:
    """Whether it is a number, or a text that should be one."""
    number = as_number(value)
    return isinstance(value, str) if number is None else number == number
