"""The rows of what a recipe names: JSON lines, CSV, Parquet, or a data set of the Hugging Face hub
or of a folder."""

import codecs
import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.config.imports import check_reach, import_needed
from plumbline.errors import DataError
from plumbline.records import Values
from plumbline.runs.hub import check_hub, is_cached
from plumbline.storage import (
    BOM,
    LONGEST_LINE,
    check_halves,
    clear_read_errors,
    is_own_input,
    json_object,
    one_line,
    open_regular,
    parse_json,
    read_json,
    read_jsonl,
    read_lines,
)

HUB = "hf://"


@dataclass(frozen=True, slots=True)
class Foreign:
    """A value of a column that JSON has no form for, and so no record."""

    kind: str


def read_rows(name: str) -> Iterator[tuple[int, Values]]:
    """Yield (number from 1, row); of a file of JSON lines the number is the line's.

    Args:
        name: a path; `hf://OWNER/NAME[/CONFIG]`, or `hf://FOLDER` of `save_to_disk`, with `:SPLIT`
            after it (else train). A file's first bytes say whether it is Parquet, JSON lines or a
            JSON list; its ending `.csv` or `.tsv` that it is a table. All cells of tables are
            texts. In the others dates, times and decimals become texts, and what JSON has no form
            for is `Foreign`.

    Raises:
        DataError: it is not there, or cannot be read.
        ModelError: pyarrow is not installed, which Parquet needs, or `datasets`, which `hf://`
            needs.
    """
    if name.startswith(HUB):
        return enumerate(_load_dataset(name, *_place(name)), 1)
    path = Path(name)
    if name.endswith(".parquet") and (
        "://" in name or (set("*?[") & set(name) and not path.exists())
    ):
        return enumerate(
            _load_dataset(name, "parquet", None, "train", data_files=name, streaming=True), 1
        )
    with open_regular(path) as raw:
        head = b"" if is_own_input(path) else raw.peek(16)[:16]
    if packed := next((what for magic, what in _PACKED.items() if head.startswith(magic)), ""):
        raise DataError(
            f"{path} is {packed}", "unpack it, or save the rows as JSON lines, CSV or Parquet"
        )
    if name.endswith(".parquet") or head.startswith(b"PAR1"):
        return enumerate(_parquet(path), 1)
    text = head.removeprefix(BOM.encode()).lstrip()
    if name.endswith((".csv", ".tsv")) and not text.startswith((b"{", b"[")):
        return enumerate(_table(path), 1)
    return _json(path) if text.startswith((b"{", b"[")) else read_jsonl(path)


_PACKED = {
    b"\x1f\x8b": "compressed (gzip)",
    b"PK\x03\x04": "an archive (zip), as Excel's files are",
    b"ARROW1": "Arrow",
}
"""First bytes of files that hold rows in a form that is not read."""
_BROKEN = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    ArithmeticError,
    NotImplementedError,
    ImportError,
)
"""What a library raises for a file: one that is broken, a date of the year 0, a kind of column it
cannot read."""


def _place(name: str) -> tuple[str, str | None, str]:
    """The data set, its configuration and the split."""
    where, _, split = name.removeprefix(HUB).partition(":")
    if Path(where).is_dir():
        return where, None, split or "train"
    owner, _, rest = where.partition("/")
    named, _, config = rest.partition("/")
    return f"{owner}/{named}".strip("/"), config or None, split or "train"


def _load_dataset(
    name: str, path: str, config: str | None, split: str, **more: Any
) -> Iterator[Values]:
    if name.startswith(HUB) and not Path(path).is_dir():
        import_needed("huggingface_hub", f"task.options: {name}")
        if not (cached := is_cached(path, data=True)):
            check_reach(name, "rows")
        check_hub(name, cached=cached)
    elif "://" in name.removeprefix(HUB):
        check_reach(name, "rows")
    datasets = import_needed("datasets", f"task.options: {name}")
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
            "write hf://OWNER/NAME/CONFIG:SPLIT, hf://FOLDER:SPLIT for what save_to_disk wrote, or "
            "a path to a file",
        ) from error


def _parquet(path: Path) -> Iterator[Values]:
    import_needed("pyarrow", f"task.options: {path}")
    import pyarrow.parquet as parquet  # type: ignore[import-untyped]

    with open_regular(path) as raw:
        try:
            for batch in parquet.ParquetFile(raw).iter_batches(1024):
                kinds = {field.name: field.type for field in batch.schema}
                columns = [
                    [_as_json(_shorten_floats(cell, kinds[name])) for cell in _cells(column)]
                    for name, column in zip(kinds, batch.columns, strict=True)
                ]
                yield from (
                    dict(zip(kinds, cells, strict=True)) for cells in zip(*columns, strict=True)
                )
        except _BROKEN as error:
            raise DataError(
                f"{path} cannot be read as Parquet: {type(error).__name__}: {one_line(error)}",
                "write it again, or save the rows as JSON lines",
            ) from error


def _cells(column: Any) -> list[Any]:
    """The values of a column of Arrow's."""
    try:
        values: list[Any] = column.to_pylist()
    except _BROKEN as error:  # nanoseconds, a date beyond the year 9999
        return [Foreign(one_line(error))] * len(column)
    return values


def _shorten_floats(value: Any, kind: Any) -> Any:
    """A value whose numbers of 16 and 32 bits are written as short as such numbers can be: 0.1 for
    0.10000000149."""
    if isinstance(value, float):
        short = {"float": np.float32, "halffloat": np.float16}.get(str(kind))
        return value if short is None else float(str(short(value)))
    if isinstance(value, list) and hasattr(kind, "value_type"):
        return [_shorten_floats(one, kind.value_type) for one in value]
    if isinstance(value, dict):
        return {name: _shorten_floats(one, kind.field(name).type) for name, one in value.items()}
    return value


def _as_json(value: Any) -> Any:
    if isinstance(value, Foreign):
        return value
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


def _json(path: Path) -> Iterator[tuple[int, Values]]:
    """Rows as JSON lines; or as one JSON value over any lines: a list of them, or an object that
    holds the list."""
    value = None
    if not _is_row(next(line for line in read_lines(path) if line.strip()), path):
        with suppress(DataError):  # lines after all, of which one is no JSON
            value = read_json(path)
    if value is None:
        yield from read_jsonl(path)
        return
    if isinstance(value, dict):
        lists = _lists(value)
        if len(lists) != 1:
            raise DataError(
                f"{path} is one JSON object, with rows under "
                f"{', '.join(lists) or 'none of its keys'}",
                "write one list of rows a file; of pandas, frame.to_json(path, orient='records', "
                "lines=True)",
            )
        value = value[lists[0]]
    for number, row in enumerate(value, 1):
        where = f"{path}, row {number}"
        with clear_read_errors(where):
            check_halves(json_object(row, where), where)
        yield number, row


def _is_row(line: bytes, path: Path) -> bool:
    """Whether a file's first line is a row, and no beginning of one JSON value that holds all
    rows."""
    try:
        value = parse_json(line.decode().removeprefix(BOM))
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict) or path.suffix == ".jsonl":
        return isinstance(value, dict)
    sizes = {len(held) if isinstance(held, list | dict) else -1 for held in value.values()}
    by_columns = len(value) > 1 and len(sizes) == 1 and max(sizes) > 1
    return not _lists(value) and not by_columns


def _lists(value: Mapping[str, Any]) -> list[str]:
    """The keys of an object under which rows stand, and not a row's own messages or choices."""
    return [
        name
        for name, held in value.items()
        if isinstance(held, list)
        and held
        and all(isinstance(row, dict) for row in held)
        and not {"role", "from", "text"} & held[0].keys()
    ]


def _table(path: Path) -> Iterator[Values]:
    with open_regular(path) as raw:
        # as Excel saves "Unicode text"
        wide = raw.peek(2)[:2] in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}
        encoding = "utf-16" if wide else "cp1252" if is_western(path) else "utf-8-sig"
        with io.TextIOWrapper(raw, encoding, newline="") as text, clear_read_errors(path):
            head = text.readline(LONGEST_LINE)
            named = re.fullmatch(r"sep=(.)\s*", head)
            separator = named[1] if named else _separator(head)
            rows = csv.DictReader(
                text if named else chain([head], text), strict=True, delimiter=separator
            )
            csv.field_size_limit(LONGEST_LINE)
            try:
                names = list(rows.fieldnames or ())
                if twice := [name for name in names if names.count(name) > 1]:
                    raise DataError(
                        f"{path} has two columns {twice[0]!r}", "give each column a name of its own"
                    )
                for row in rows:
                    if None in row or None in row.values():
                        raise DataError(
                            f"{path}:{rows.line_num} has more or fewer cells than the header",
                            "correct it",
                        )
                    yield row
            except csv.Error as error:
                raise DataError(
                    f"{path}:{rows.line_num} is no table with {separator!r} between the cells: "
                    f"{error}",
                    f"quote cells that hold {separator!r}, a quote or a line break",
                ) from error


def is_western(path: Path) -> bool:
    """Whether a table is no UTF-8 and surely cp1252, as Excel saves it: its letters are those of a
    language in the west of Europe, and would be in words of none in the east. A large file is not
    looked at."""
    if is_own_input(path):
        return False
    with open_regular(path) as raw:
        data = raw.read(LARGEST + 1)
    with suppress(UnicodeDecodeError):
        data.decode()
        return False
    try:
        west, east = _letters(data.decode("cp1252"), 1), _letters(data.decode("cp1250"), 2)
    except UnicodeDecodeError:
        return False
    # letters of DOS and of a Mac
    marks_in_words = re.search(rb"[A-Za-z][\x80-\x8b\x93-\x95][A-Za-z]", data)
    only_west = west == east or not any(map(east.issubset, EASTERN))
    return (
        len(data) <= LARGEST
        and not marks_in_words
        and only_west
        and any(map(west.issubset, WESTERN))
    )


def _letters(text: str, least: int) -> set[str]:
    """The letters that are no ASCII, of words of so many letters."""
    words = re.findall(rf"[^\W\d_]{{{least},}}", text.lower())
    return {letter for word in words for letter in word if letter > "\x7f"}


LARGEST = 2**26
"""Bytes of a table whose encoding is looked for."""
WESTERN = (
    "äöüßéèàç",
    "àâæçèéêëîïôœùûüÿ",
    "áéíñóúüçàèïòªº",
    "àáâãçéêíóôõúüªº",
    "àèéìíîòóùúªº",
    "åäöæøéü",
)
EASTERN = ("áčďéěíňóřšťúůýž", "áäčďéíľňóôšťúýž", "ąćęłńóśźż", "áéíóöőúüű", "ăâîşţ", "čćđšž")
"""Letters that are no ASCII, by language; those that a language hardly has are not in the
second."""


def _separator(head: str) -> str:
    """What stands between the names of a header: a comma, unless there is none outside of
    quotes."""
    bare = re.sub(r'"[^"]*"', "", head)
    return "," if "," in bare else max(",;\t|", key=bare.count)
