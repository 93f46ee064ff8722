"""Stored completions of other trainers: JSON lines, or the Parquet files that TRL writes with `log_completions`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.diagnosis.history import Sample
from plumbline.errors import DataError
from plumbline.imports import check_installed
from plumbline.storage import clear_read_errors, read_jsonl

TEXT, PROMPT, REWARD, STEP = (
    ("completion", "completions", "response", "output", "text"),
    ("id", "prompt", "prompts", "input", "question"),
    ("reward", "rewards", "score"),
    ("step", "global_step"),
)
"""What trainers call the columns, the likeliest first."""


def read_completions(path: Path, parts: Sequence[str] = ()) -> list[Sample]:
    """The completions of a file or a folder of files; none where there is nothing.

    Args:
        path: where they are.
        parts: columns that are parts of the reward. Where there is no column of the reward, it is their sum.

    Raises:
        DataError: a file has no completions, or cannot be read.
        ModelError: they are in Parquet, and pyarrow is not installed.
    """
    files = [path] if path.is_file() else sorted([*path.glob("*.parquet"), *path.glob("*.jsonl")])
    samples: list[Sample] = []
    for file in files:
        rows = _parquet(file) if file.suffix == ".parquet" else (row for _, row in read_jsonl(file))
        for number, row in enumerate(rows, 1):
            text = _first(row, TEXT)
            if text is None:
                raise DataError(f"{file}: row {number} has no completion", f"call the column one of {', '.join(TEXT)}")
            samples.append(_sample(row, text, parts))
    return samples


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
    values = {name: float(row[name]) for name in parts if isinstance(row.get(name), int | float)}
    reward = _first(row, REWARD)
    total = float(reward) if isinstance(reward, int | float) else sum(values.values()) if values else None
    step = _first(row, STEP)
    return Sample(
        int(step) if isinstance(step, int | float) else 0,
        _plain(_first(row, PROMPT)),
        _plain(text),
        total,
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
