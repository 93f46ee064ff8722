"""Stored completions of other trainers: JSON lines, Parquet (TRL), or tables of W&B."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.checks.diagnosis.history import Sample
from plumbline.checks.diagnosis.readers.rows import as_number
from plumbline.config.imports import check_installed
from plumbline.errors import DataError
from plumbline.storage import clear_read_errors, read_json, read_text

TEXT, PROMPT, REWARD, STEP = (
    ("completion", "completions", "response", "output", "text", "generated_text"),
    ("id", "prompt", "prompts", "input", "question"),
    ("reward", "rewards", "score"),
    ("step", "global_step"),
)
"""What trainers call the columns, the likeliest first."""
_PLACES = ("completions", "completions.jsonl", "completions.parquet", "samples.jsonl", "files/media/table")
"""Where they lie beside a trainer's records."""
_PATTERNS = ("*.parquet", "*.jsonl", "*.table.json")


def read_beside(folder: Path, parts: Sequence[str]) -> list[Sample]:
    """The completions in a run's folder; none where there are none. See `read_completions` for the errors."""
    for place in _PLACES:
        if found := _files(folder / place):
            tables = place == _PLACES[-1]
            return _read([file for file in found if is_completions(file)] if tables else found, parts)
    return []


def is_completions(file: Path) -> bool:
    """Whether a file's name says that it holds completions."""
    return file.name.startswith(("completions", "samples", "rollouts", "generations"))


def read_completions(path: Path, parts: Sequence[str] = ()) -> list[Sample]:
    """The completions of a file or a folder of files, by step; none where there is nothing.

    Args:
        path: where they are.
        parts: columns that are parts of the reward. Where there is no column of the reward, it is their sum.

    Raises:
        DataError: a file has no completions, or cannot be read.
        ModelError: they are in Parquet, and pyarrow is not installed.
    """
    return _read(_files(path) if path.is_dir() else [path], parts)


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(file for pattern in _PATTERNS for file in path.glob(pattern))


def _read(files: Sequence[Path], parts: Sequence[str]) -> list[Sample]:
    samples: list[Sample] = []
    for file in files:
        number = 0
        for number, row in enumerate(_rows(file), 1):
            text = _first(row, TEXT)
            if text is None:
                raise DataError(f"{file}: row {number} has no completion", f"call the column one of {', '.join(TEXT)}")
            samples.append(_sample(row, text, parts))
    return sorted(samples, key=lambda sample: sample.step)


def _rows(file: Path) -> Iterable[Mapping[str, Any]]:
    if file.suffix == ".parquet":
        return _parquet(file)
    if file.suffix != ".json":
        return _lines(file)
    rows = column_rows(read_json(file))
    if rows is None:
        raise DataError(f"{file} is no table of W&B", "give one with columns and data, or JSON lines")
    return rows


def column_rows(table: Any) -> list[dict[str, Any]] | None:
    """The rows of {"columns": [name], "data": [[value]]}, as W&B and pandas write it; None for what is none."""
    names, rows = (table.get("columns"), table.get("data")) if isinstance(table, dict) else (None, None)
    if not isinstance(names, list) or not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        return None
    return [dict(zip(map(str, names), row, strict=False)) for row in rows]


def _lines(file: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of JSON lines, without a last one that is half written; a line of columns (ms-swift) is many rows."""
    lines = [line for line in read_text(file).split("\n") if line.strip()]
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines) > 1:
                return
            raise DataError(f"{file}:{number} is not JSON", "correct or remove that line") from error
        if not isinstance(row, dict):
            raise DataError(f"{file}:{number} is no JSON object", "write one completion a line")
        columns = {key: value for key, value in row.items() if isinstance(value, list)}
        texts = _first(columns, TEXT)
        if texts is not None and all(isinstance(one, str | list) for one in texts) and "step" in columns:
            yield from (dict(zip(columns, values, strict=False)) for values in zip(*columns.values(), strict=False))
        else:
            yield row


def _parquet(file: Path) -> Iterator[Mapping[str, Any]]:
    check_installed("completions in Parquet files", ("pyarrow",))
    import pyarrow.parquet as parquet  # type: ignore[import-untyped]

    with clear_read_errors(file):
        try:
            opened = parquet.ParquetFile(file)
        except (ValueError, OSError) as error:
            raise DataError(f"{file} is no Parquet file ({error})", "it may be half written; move it away") from error
        for batch in opened.iter_batches(4096):
            yield from batch.to_pylist()


def _sample(row: Mapping[str, Any], text: Any, parts: Sequence[str]) -> Sample:
    values = {name: value for name in parts if (value := as_number(row.get(name))) is not None}
    reward, step = as_number(_first(row, REWARD)), as_number(_first(row, STEP))
    return Sample(
        0 if step is None or not abs(step) < 1e15 else int(step),
        _plain(_first(row, PROMPT)),
        _plain(text),
        reward if reward is not None else sum(values.values()) if values else None,
        None,
        values,
    )


def _first(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _plain(value: Any) -> str:
    """A text, or the messages of a chat one after another."""
    if isinstance(value, list):
        return "\n".join(str(one.get("content", "")) if isinstance(one, dict) else str(one) for one in value)
    return "" if value is None else str(value)
