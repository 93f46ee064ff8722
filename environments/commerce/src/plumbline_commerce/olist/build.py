"""From a folder of Olist's CSV files to `commerce.db`. Nothing in that folder is written."""

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from plumbline.config.overrides import as_mapping
from plumbline.storage import clear_read_errors, sha256_of
from plumbline.tasks import Progress
from plumbline_commerce.database.schema import TABLES, Row, write_database
from plumbline_commerce.olist.enriched import enriched_rows
from plumbline_commerce.olist.files import FILES, SHOWN, LeftOut, OlistFiles

LOG = "malformed.log"
"""Beside the database: each malformed row with its file and line. There only where there are
some."""


def import_olist(path: Path, olist: Path, progress: Progress) -> dict[str, Any]:
    """Write the database of the nine CSV files.

    Args:
        path: the SQLite file.
        olist: the folder with the files.
        progress: told what is being read, how much of it is done, and of how much.

    Returns:
        What is worth keeping: the rows of each table, what was left out, and what the files were
            (`sources`).

    Raises:
        DataError: files are missing or have other columns, or over 1 % of the rows of one are
            malformed.
        StorageError: the disk is full or the folder cannot be written.
    """
    left_out = LeftOut(path.with_name(LOG))
    files = OlistFiles(olist, left_out, progress)
    before = sources(olist)

    def rows(name: str, connection: sqlite3.Connection) -> Iterable[Row]:
        if name != "orders_enriched":
            return files.rows(name)
        return enriched_rows(connection, progress)

    try:
        write_database(path, rows)
    finally:
        left_out.write()
    return {
        "rows": _counts(path),
        "malformed": {"rows": dict(left_out.counts), "first": left_out.reasons[:SHOWN]},
        "sources": before,
    }


def _counts(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as connection:
        return {
            name: connection.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0]  # noqa: S608
            for name in TABLES
        }


def describe_import(imported: Mapping[str, Any] | None, folder: Path) -> str:
    """What a user should know of an import, from line 2 on: how many rows were left out, and the
    first of them."""
    if imported is None or not (counts := imported["malformed"]["rows"]):
        return ""
    files = ", ".join(f"{name} {count}" for name, count in counts.items())
    first = "".join(f"\n  {reason}" for reason in imported["malformed"]["first"])
    return (
        f"\nmalformed rows were left out ({files}); all of them are in {folder / LOG}, the first "
        f"are{first}"
    )


def sources(olist: Path) -> dict[str, dict[str, Any]]:
    """Size in bytes, time of the last change in nanoseconds, and SHA-256 of each file that records
    are made of."""
    found = {}
    for name, file in _files(olist).items():
        with clear_read_errors(file):
            stat = file.stat()
            found[name] = {
                "size": stat.st_size,
                "modified": stat.st_mtime_ns,
                "sha256": sha256_of(file),
            }
    return found


def find_changed_files(olist: Path, then: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Which files are others than those of which records were made.

    One of the same size and time is taken for the same; one of another time is read. One that is
    not there any more has not changed: the records do not need it.
    """
    return [
        name
        for name, file in _files(olist).items()
        if name not in then or (file.is_file() and not _same(file, as_mapping(then[name])))
    ]


def _same(file: Path, then: Mapping[str, Any]) -> bool:
    stat = file.stat()
    if stat.st_size != then.get("size"):
        return False
    return bool(stat.st_mtime_ns == then.get("modified") or sha256_of(file) == then.get("sha256"))


def _files(olist: Path) -> dict[str, Path]:
    return {name: olist / name for name in FILES.values()}
