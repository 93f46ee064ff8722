"""The rows of what a recipe names: JSON lines, CSV, Parquet, or a data set of the Hugging Face hub or of a folder."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from plumbline.config.imports import check_reach, needed
from plumbline.errors import DataError
from plumbline.runs.hub import check_hub, is_cached
from plumbline.storage import clear_read_errors, one_line, open_regular, read_jsonl

HUB = "hf://"


@dataclass(frozen=True, slots=True)
class Foreign:
    """A value of a column that JSON has no form for, and so no record."""

    kind: str


def read_rows(name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number from 1, row); of a file of JSON lines the number is the line's.

    Args:
        name: a path, whose ending `.csv` or `.parquet` says that it holds no JSON lines; `hf://OWNER/NAME[/CONFIG]`, or
            `hf://FOLDER` of `save_to_disk`, with `:SPLIT` after it (else train). All cells of CSV are texts. In the
            others dates, times and decimals become texts, and what JSON has no form for is `Foreign`.

    Raises:
        DataError: it is not there, or cannot be read.
        ModelError: `datasets` is not installed; Parquet and `hf://` need it.
    """
    if name.startswith(HUB):
        return enumerate(_loaded(name, *_place(name)), 1)
    if name.endswith(".parquet"):
        return enumerate(_loaded(name, "parquet", None, "train", data_files=name, streaming=True), 1)
    return enumerate(_csv(Path(name)), 1) if name.endswith(".csv") else read_jsonl(Path(name))


_BROKEN = (OSError, ValueError, KeyError, TypeError, ArithmeticError, NotImplementedError, ImportError)
"""What a library raises for a file: one that is broken, a date of the year 0, a kind of column it cannot read."""


def _place(name: str) -> tuple[str, str | None, str]:
    """The data set, its configuration and the split."""
    where, _, split = name.removeprefix(HUB).partition(":")
    if Path(where).is_dir():
        return where, None, split or "train"
    owner, _, rest = where.partition("/")
    named, _, config = rest.partition("/")
    return f"{owner}/{named}".strip("/"), config or None, split or "train"


def _loaded(name: str, path: str, config: str | None, split: str, **more: Any) -> Iterator[dict[str, Any]]:
    if name.startswith(HUB) and not Path(path).is_dir():
        needed("huggingface_hub", f"task.options: {name}")
        if not (cached := is_cached(path, data=True)):
            check_reach(name, "rows")
        check_hub(name, cached=cached)
    elif "://" in name.removeprefix(HUB):
        check_reach(name, "rows")
    datasets = needed("datasets", f"task.options: {name}")
    try:
        if more or not Path(path).is_dir():
            found: Any = datasets.load_dataset(path, config, split=split, **more)
        else:
            found = datasets.load_from_disk(path)
            found = found[split] if isinstance(found, dict) else found
        if isinstance(found, datasets.Dataset):
            found = found.to_iterable_dataset()
        if getattr(found, "features", None):
            found = found.decode(False)  # an image is what the file has
        for row in found:
            yield {str(name): _as_json(value) for name, value in dict(row).items()}
    except (*_BROKEN, datasets.exceptions.DatasetsError) as error:
        raise DataError(
            f"{name} cannot be read as a data set: {type(error).__name__}: {one_line(error)}",
            "write hf://OWNER/NAME/CONFIG:SPLIT, hf://FOLDER:SPLIT for what save_to_disk wrote, or a path to a file",
        ) from error


def _as_json(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value, allow_nan=False, default=_text))
    except RecursionError:
        return Foreign("nested too deeply")
    except ValueError:
        return Foreign("a number that is not finite")
    except TypeError as error:
        return Foreign(one_line(error))


def _text(value: Any) -> Any:
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal | timedelta):
        return str(value)
    if hasattr(value, "tolist"):  # an array
        return value.tolist()
    raise TypeError(type(value).__name__)


def _csv(path: Path) -> Iterator[dict[str, Any]]:
    with open_regular(path) as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as text:
        rows = csv.DictReader(text, strict=True)
        try:
            with clear_read_errors(path):
                for row in rows:
                    if None in row or None in row.values():
                        raise DataError(f"{path}:{rows.line_num} has more or fewer cells than the header", "correct it")
                    yield row
        except csv.Error as error:
            raise DataError(f"{path}:{rows.line_num} is no CSV: {error}", "quote cells that hold commas") from error
