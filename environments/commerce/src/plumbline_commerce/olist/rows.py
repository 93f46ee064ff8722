"""Rows of CSV files: read with the lines that they stand on, and what is wrong with those that are left out."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from plumbline.errors import DataError
from plumbline.storage import clear_read_errors, open_regular, write_text
from plumbline.tasks import Progress
from plumbline_commerce.database.enriched import Row

MOST_LEFT_OUT = 0.01
"""Of a file's rows; where more are malformed, the file is not what it should be."""
SHOWN = 3
"""Malformed rows that a message names."""
_EVERY = 10_000
"""Rows between two calls of the progress."""


class LeftOut:
    """The malformed rows of all files: how many of each, and for each its file, its line and what is wrong with it."""

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
        first = "; ".join([reason for reason in self.reasons if reason.startswith(f"{file}:")][:SHOWN])
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
    path: Path, columns: int, read: Callable[[Sequence[str]], Row], left_out: LeftOut, progress: Progress
) -> Iterator[Row]:
    """Yield what `read` makes of each row after the header; what it refuses is left out.

    Args:
        path: a CSV file in UTF-8, with or without a byte order mark.
        columns: how many fields a row has.
        read: raises ValueError, which says what is wrong with a row.
        left_out: told of malformed rows. One that cannot be taken apart counts as many as it has lines: a lost quote
            swallows those after it.
        progress: told of kilobytes.

    Raises:
        DataError: the file cannot be read, has no rows, or over 1 % of them are malformed.
    """
    what, size, kept = f"reading {path.name} (KB)", path.stat().st_size // 1000, 0
    with open_regular(path) as file, clear_read_errors(path):
        # A byte that is no UTF-8 becomes half a surrogate, which no text holds: it spoils its row and no other.
        reader = csv.reader(io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline=""), strict=True)
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
                left_out.add(path.name, before + 1, str(error), 1 if apart else reader.line_num - before)
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
