"""Olist's files as Kaggle ships them, each checked against the table that it fills.

What a column holds is what `database/schema.py` declares of it: its type, whether it may be empty,
which row of another table it names. An empty field is NULL.

Rows of CSV files: read with the lines that they stand on, and what is wrong with those that are
left out.
"""

import csv
import io
import math
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

from plumbline.errors import DataError
from plumbline.storage import clear_read_errors, open_regular, write_text
from plumbline.tasks import Progress
from plumbline_commerce.database.catalogue import BY_NAME
from plumbline_commerce.database.schema import TABLES, Row, statements

MOST_LEFT_OUT = 0.01
"""Of a file's rows; where more are malformed, the file is not what it should be."""
SHOWN = 3
"""Malformed rows that a message names."""
_EVERY = 10_000
"""Rows between two calls of the progress."""


class LeftOut:
    """The malformed rows of all files: how many of each, and for each its file, its line and what
    is wrong with it."""

    def __init__(self, log: Path) -> None:
        """Nothing is left out yet; `log` is where `write` will say what was."""
        self.log = log
        self.counts: Counter[str] = Counter()
        self.reasons: list[str] = []

    def add(self, file: str, line: int, reason: str, rows: int = 1) -> None:
        """Remember a row of a file, or several that no longer can be told apart."""
        self.counts[file] += rows
        self.reasons.append(f"{file}:{line}: {reason}")

    def check(self, file: str, kept: int) -> None:
        """Refuse a file of which too much is malformed, or nothing is left.

        Raises:
            DataError: with the first of its malformed rows.
        """
        bad = self.counts[file]
        if bad <= MOST_LEFT_OUT * (bad + kept) and kept:
            return
        first = "; ".join(
            [reason for reason in self.reasons if reason.startswith(f"{file}:")][:SHOWN]
        )
        raise DataError(
            f"{file}: {bad} of {bad + kept} rows are malformed, over {MOST_LEFT_OUT:.0%}: {first}"
            if bad
            else f"{file} has no rows",
            f"all of them stand in {self.log}; give the files as they were downloaded"
            if bad
            else "give the file as it was downloaded",
        )

    def write(self) -> None:
        """Write the log, a malformed row a line; where there are none, there is none."""
        self.log.unlink(missing_ok=True)
        if self.reasons:
            write_text(self.log, "".join(f"{reason}\n" for reason in self.reasons))


def header_of(path: Path) -> list[str]:
    """The names on the first line of a CSV file; none where it is empty.

    Raises:
        DataError: the file cannot be read.
    """
    with open_regular(path) as file, clear_read_errors(path):
        return next(csv.reader([file.readline(1 << 16).decode("utf-8-sig", errors="replace")]), [])


def read_rows(
    path: Path,
    columns: int,
    read: Callable[[Sequence[str]], Row],
    left_out: LeftOut,
    progress: Progress,
) -> Iterator[Row]:
    """Yield what `read` makes of each row after the header; what it refuses is left out.

    Args:
        path: a CSV file in UTF-8, with or without a byte order mark.
        columns: how many fields a row has.
        read: raises ValueError, which says what is wrong with a row.
        left_out: told of malformed rows. One that cannot be taken apart counts as many as it has
            lines: a lost quote swallows those after it.
        progress: told of kilobytes.

    Raises:
        DataError: the file cannot be read, has no rows, or over 1 % of them are malformed.
    """
    what, size, kept = f"reading {path.name} (KB)", path.stat().st_size // 1000, 0
    with open_regular(path) as file, clear_read_errors(path):
        # A byte that is no UTF-8 becomes half a surrogate, which no text holds: it spoils its row
        # and no other.
        reader = csv.reader(
            io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline=""), strict=True
        )
        while True:
            before, apart = reader.line_num, False
            try:
                if (fields := next(reader, None)) is None:
                    break
                if not before or not fields:
                    continue  # the header, a blank line
                apart = len(fields) == columns
                row = read(_whole(fields, columns))
            except (csv.Error, ValueError) as error:
                left_out.add(
                    path.name, before + 1, str(error), 1 if apart else reader.line_num - before
                )
                continue
            kept += 1
            if kept % _EVERY == 0:
                progress(what, file.tell() // 1000, size)
            yield row
    progress(what, size, size)
    left_out.check(path.name, kept)


def _whole(fields: list[str], columns: int) -> list[str]:
    """The fields of a row, if they are so many texts."""
    if len(fields) != columns:
        raise ValueError(f"{len(fields)} fields instead of {columns}")
    joined = "".join(fields)
    if "\0" in joined:
        raise ValueError("holds a NUL")
    if not joined.isascii():
        try:
            joined.encode()
        except UnicodeEncodeError:
            raise ValueError("is not UTF-8; save the file as UTF-8") from None
    return fields


TRANSLATION = "product_category_name_translation"
FILES = {name: f"olist_{name}_dataset.csv" for name in TABLES if name != "orders_enriched"}
FILES[TRANSLATION] = f"{TRANSLATION}.csv"
"""The file of each table."""
ADDRESS = "https://www.kaggle.com/datasets/olistbr/brazilian-ecommerce"
_INTEGER = re.compile(r"([0-9]{1,15})(?:\.0+)?")
_REAL = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,40})?(?:[eE][-+]?[0-9]{1,2})?")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}")
_ZIP = re.compile(r"([0-9]{1,5})(?:\.0+)?")


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """A column of a table."""

    name: str
    read: Callable[[str], str | int | float]
    """Raises ValueError, which says what is expected."""
    required: bool
    names: str | None
    """The table of which it names a row by its key."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """What the rows of a table must be."""

    columns: tuple[TypedColumn, ...]
    keys: tuple[tuple[int, ...], ...]
    """Places of the columns that no two rows may have alike; those of the primary key come
    first."""


@cache
def table(name: str) -> TableSchema:
    """A table as the schema declares it."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in statements("TABLE"):
            connection.execute(statement)
        # A category without a translation gets one (`OlistFiles.rows`), so no product names one
        # that is not there.
        named = {
            row[3]: row[2]
            for row in connection.execute(f"PRAGMA foreign_key_list({name})")
            if row[2] != TRANSLATION
        }
        columns, places = [], {}
        for place, column, kind, not_null, _, key in connection.execute(
            f"PRAGMA table_info({name})"
        ):
            places[column] = place
            columns.append(
                TypedColumn(column, _reader(column, kind), bool(not_null or key), named.get(column))
            )
        unique = [row[1] for row in connection.execute(f"PRAGMA index_list({name})") if row[2]]
        keys = [
            tuple(places[row[2]] for row in connection.execute(f"PRAGMA index_info({index})"))
            for index in sorted(unique)
        ]
    return TableSchema(tuple(columns), tuple(keys))


def _reader(column: str, kind: str) -> Callable[[str], str | int | float]:
    if column.endswith("_zip_code_prefix"):
        return _zip
    if column.endswith(("_date", "_timestamp", "_at")):
        return _moment
    if column == "review_score":
        return _score
    if kind == "INTEGER":
        return _integer
    if kind == "REAL":
        return _degrees if column.endswith(("_lat", "_lng")) else amount
    return _text


def _text(text: str) -> str:
    return text.replace("\r\n", "\n") if "\r" in text else text


def _zip(text: str) -> str:
    """Five digits, also where somebody's program took them for a number and cut the zeros in
    front."""
    if not (found := _ZIP.fullmatch(text)):
        raise ValueError("not a prefix of five digits")
    return found[1].zfill(5)


def _moment(text: str) -> str:
    try:
        datetime.fromisoformat(text if _MOMENT.fullmatch(text) else "")
    except ValueError:
        raise ValueError("not a date such as 2017-10-02 10:56:33") from None
    return text


def _integer(text: str) -> int:
    if not (found := _INTEGER.fullmatch(text)):
        raise ValueError("not a whole number from 0")
    return int(found[1])


def _score(text: str) -> int:
    if text not in {"1", "2", "3", "4", "5"}:
        raise ValueError("not a score from 1 to 5")
    return int(text)


def _degrees(text: str) -> float:
    if not _REAL.fullmatch(text) or not math.isfinite(number := float(text)):
        raise ValueError("not a number")
    return number


def amount(text: str) -> float:
    """A number from 0.

    Raises:
        ValueError: the text is none.
    """
    if (number := _degrees(text)) < 0:
        raise ValueError("below 0")
    return number


class OlistFiles:
    """The nine files of a folder, read a table at a time in the order of the schema."""

    def __init__(self, folder: Path, left_out: LeftOut, progress: Progress) -> None:
        """Look at every file before any is read.

        Raises:
            DataError: there is no such folder; files are missing, empty or have other columns: all
                of them are named.
        """
        self.folder, self.left_out, self._progress = folder, left_out, progress
        self._seen: dict[tuple[str, int], set[object]] = {}
        self._products: list[Row] = []
        check_files(folder)

    def rows(self, name: str) -> Iterator[Row]:
        """The rows of a table, as `schema.TABLES` has its columns.

        Raises:
            DataError: see `read_rows`.
        """
        if name == "products":
            return iter(self._products)
        if name == TRANSLATION:
            return self._translation()
        return self._read(name)

    def _translation(self) -> Iterator[Row]:
        """The translations, and one for each category that has none but occurs: the name that the
        synthetic shop has for it, else its Portuguese name."""
        yield from self._read(TRANSLATION)
        self._products = list(self._read("products"))
        there = self._seen[TRANSLATION, 0]
        for name in sorted({str(row[1]) for row in self._products if row[1] is not None} - there):
            yield name, BY_NAME[name].english if name in BY_NAME else name

    def _read(self, name: str) -> Iterator[Row]:
        wanted = table(name)
        seen: list[set[object]] = [
            self._seen.setdefault((name, place), set()) for place in range(len(wanted.keys))
        ]

        def read(fields: Sequence[str]) -> Row:
            row = self._typed(wanted.columns, fields)
            marks = [
                tuple(row[place] for place in key) if len(key) > 1 else row[key[0]]
                for key in wanted.keys
            ]
            for key, mark, earlier in zip(wanted.keys, marks, seen, strict=True):
                if mark in earlier:
                    raise ValueError(
                        f"{', '.join(wanted.columns[place].name for place in key)} of an earlier "
                        "row, too"
                    )
            for mark, earlier in zip(marks, seen, strict=True):
                earlier.add(mark)
            return row

        return read_rows(
            self.folder / FILES[name], len(wanted.columns), read, self.left_out, self._progress
        )

    def _typed(self, columns: Sequence[TypedColumn], fields: Sequence[str]) -> Row:
        values: list[str | int | float | None] = []
        for column, field in zip(columns, fields, strict=True):
            if not field or field.isspace():
                if column.required:
                    raise ValueError(f"{column.name} is empty")
                values.append(None)
                continue
            try:
                value = column.read(field)
            except ValueError as error:
                raise ValueError(f"{column.name} is {field[:40]!r}, {error}") from None
            if column.names is not None and value not in self._seen[column.names, 0]:
                raise ValueError(f"{column.name} {field[:40]!r} is none of {FILES[column.names]}")
            values.append(value)
        return tuple(values)


def check_files(folder: Path) -> None:
    """See `OlistFiles`."""
    if not folder.is_dir():
        raise DataError(
            f"there is no folder {folder}", f"give the one with the CSV files of {ADDRESS}"
        )
    wrong = []
    for name, file in FILES.items():
        columns = [column.name for column in table(name).columns]
        if not (folder / file).is_file():
            wrong.append(f"{file} is missing")
        elif not (header := header_of(folder / file)):
            wrong.append(f"{file} is empty")
        elif header != columns:
            wrong.append(
                f"{file} begins with {','.join(header)[:200]!r}, not {','.join(columns)!r}"
            )
    if wrong:
        raise DataError(
            f"{folder}: {'; '.join(wrong)}",
            f"give the nine CSV files of {ADDRESS} as they are there",
        )
