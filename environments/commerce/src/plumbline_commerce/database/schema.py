"""The tables (`schema.sql`): nine named as in Olist (misspelt columns included), and
`orders_enriched`.

Every table has the primary key that Olist's rows allow; `geolocation` has none there either.
Foreign keys are declared, so `PRAGMA foreign_key_check` finds any row that points nowhere.

Writes a shop's tables to one SQLite file, wherever the rows are from.
"""

import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Literal

from plumbline.errors import StorageError
from plumbline.storage import clear_os_errors, read_text, sync_folder

Row = tuple[str | int | float | None, ...]
"""Of any table."""
_STATEMENTS = re.findall(
    r"^CREATE (\w+) (\w+) ([^;]+);$",
    read_text(Path(__file__).with_name("schema.sql")),
    re.MULTILINE,
)
TABLES = {
    name: columns[1:].removesuffix("\n)") for kind, name, columns in _STATEMENTS if kind == "TABLE"
}
"""The columns of each table, in an order in which every reference points back."""


def statements(kind: Literal["TABLE", "INDEX"]) -> list[str]:
    """The statements that create every table, or every index, which is made when the rows are
    in."""
    return [f"CREATE {made} {name} {what}" for made, name, what in _STATEMENTS if made == kind]


Rows = Callable[[str, sqlite3.Connection], Iterable[Row]]
"""The rows of a table by its name, asked for in the order of `schema.TABLES`; the tables before it
are filled."""
PARTIAL = "partial.db"
"""The file until it is whole, in a folder of its own beside its place."""


def write_database(path: Path, rows: Rows) -> None:
    """Write the file beside its target and rename it over it.

    Raises:
        StorageError: the disk is full or the folder cannot be written; an old file is untouched.
    """
    with clear_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.")
        partial = Path(folder) / PARTIAL
        try:
            _fill(partial, rows)
            partial.replace(path)
        except sqlite3.Error as error:
            raise StorageError(
                f"cannot write {path}: {error}", "free some space and start again"
            ) from error
        finally:
            for rest in Path(folder).iterdir():
                rest.unlink()
            Path(folder).rmdir()
        sync_folder(path.parent)


def _fill(path: Path, rows: Rows) -> None:
    """Create the tables, their rows and indices, and the planner's statistics."""
    with closing(sqlite3.connect(path)) as connection:
        # Nobody reads the file before it is renamed, so a journal would protect nothing.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        for statement in statements("TABLE"):
            connection.execute(statement)
        for name in TABLES:
            marks = ", ".join(
                "?" * len(connection.execute(f"PRAGMA table_info({name})").fetchall())
            )
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows(name, connection))  # noqa: S608 - ours
        for statement in statements("INDEX"):
            connection.execute(statement)
        connection.execute("ANALYZE")
        connection.commit()
