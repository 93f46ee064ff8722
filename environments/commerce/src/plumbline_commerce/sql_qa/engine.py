"""Runs one SELECT of unknown origin on one SQLite file: read-only, and within limits of time,
steps, rows and memory.

Nothing here trusts what stands in front of it. The file is opened `mode=ro&immutable=1`; SQLite
asks an authorizer about every table, column and function while it compiles, and everything that is
not on a list is refused; a handler counts the steps of its machine and looks at the clock; SQLite's
own limits bound the length of values and the size of expressions. What is left to stop is a single
step that takes long, which is why values are short: the worst known (`instr` of one long text in
another) takes milliseconds at 10,000 bytes.

The small shops on which a query must be right: the same tables as the records', other rows on each.

They are drawn as the records are, and then changed (`planting.sql`) so that few orders tell near
queries apart.
"""

import shutil
import sqlite3
import tempfile
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

from plumbline.errors import DataError
from plumbline.runs import output_guard
from plumbline.seeds import derive
from plumbline.storage import clear_os_errors, open_regular
from plumbline_commerce.database.build import build_database
from plumbline_commerce.database.schema import TABLES

Value = int | float | str | bytes | None
Row = tuple[Value, ...]
COLUMNS = {
    table: frozenset(line.split()[0] for line in text.splitlines() if line.strip())
    for table, text in TABLES.items()
}
"""The columns of each table; the PRIMARY of a composite key is no column that SQLite knows, so it
does no harm."""
_FUNCTIONS = """
abs avg ceil ceiling char coalesce count cume_dist date datetime dense_rank first_value floor glob group_concat
ifnull iif instr julianday lag last_value lead length like likelihood likely lower ltrim max min mod nth_value ntile
nullif percent_rank pow power rank replace round row_number rtrim sign sqrt strftime substr substring sum time
total trim typeof unicode unixepoch unlikely upper
"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
"""What a query may call: pure functions whose cost is bounded by the length of their arguments,
which that of printf is not: its width and precision are numbers, and
`printf('%.*c', 2147483647, 'x')` is one step."""
DATES = frozenset({"date", "datetime", "julianday", "strftime", "time", "unixepoch"})
"""Those of them that SQLite would let look at the clock and at the machine's time zone; see
`_date`."""
HEAP = 128 * 2**20
"""Bytes that SQLite may take in this process, over all connections, so one query runs at a time.
Only this ends the compilation of common table expressions that each mention the one before twice:
SQLite makes a copy for each mention."""
STRIDE = 200
"""Steps of SQLite's machine between two looks at the clock."""
CONNECTIONS = 64
"""Kept open by a thread."""
BROKEN = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
)
"""Errors of the file, which are no query's fault."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """How much one query may take."""

    steps: int = 30_000_000
    """Of SQLite's machine, over half a second; counted, so that a verdict is the same on every
    machine."""
    seconds: float = 1.0
    """Of a processor, where steps are slow."""
    rows: int = 2000
    value: int = 10_000
    """Bytes of one value."""
    result: int = 1_000_000
    """Bytes of all texts of a result."""


LIMITS = QueryLimits()


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What a query returned."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class QueryRefusal:
    """Why there is no result."""

    cause: Literal["syntax", "gate", "forbidden", "error", "time", "rows", "memory"]
    detail: str


def run(database: Path, sql: str, limits: QueryLimits = LIMITS) -> QueryResult | QueryRefusal:
    """Run a query on a database that nobody writes to.

    Raises:
        DataError: the file is not there, no database, or lacks a table; never for what the query
            says.
    """
    if not hasattr(_OF_THREAD, "readers"):
        _OF_THREAD.readers = {}
    kept: dict[tuple[Path, QueryLimits], _Reader] = _OF_THREAD.readers
    key = (database, limits)
    if key not in kept:
        while len(kept) >= CONNECTIONS:
            kept.pop(next(iter(kept))).connection.close()
        kept[key] = _Reader(database, limits)
    with _ALONE:
        return kept[key].run(sql)


_OF_THREAD = threading.local()
"""Of each thread its readers by file and limits, in the order in which they were opened."""
_ALONE = threading.Lock()
"""Held while a query runs: it may take all of `HEAP`, and no other one must be refused for it."""
_CALENDAR = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
"""Computes dates, under `_ALONE`."""


@lru_cache(maxsize=1 << 14, typed=True)
def _date(name: str, given: Row) -> Value:
    """What a function of dates gives, as a generated column: SQLite lets no column depend on the
    clock or a time zone.

    Raises:
        sqlite3.Error: it would.
    """
    table = f"{name}_{len(given)}"
    columns = ", ".join(f"a{number}" for number in range(len(given)))
    stored = columns or "a0"  # a table has at least one
    _CALENDAR.execute(
        f"CREATE TABLE IF NOT EXISTS {table} ({stored}, value AS ({name}({columns})))"
    )
    _CALENDAR.execute(f"DELETE FROM {table}")  # noqa: S608  # names of this file
    _CALENDAR.execute(
        f"INSERT INTO {table} VALUES ({', '.join('?' * len(given)) or 'NULL'})",  # noqa: S608
        given,
    )
    value: Value = _CALENDAR.execute(f"SELECT value FROM {table}").fetchone()[0]  # noqa: S608
    return value


class _Reader:
    """One thread's connection to one file, with its guards."""

    def __init__(self, database: Path, limits: QueryLimits) -> None:
        self.database, self.limits = database, limits
        self.deadline, self.steps = 0.0, 0
        self.stopped: QueryRefusal | None = None
        if database.exists():
            open_regular(database).close()  # a pipe would be waited for
        uri = f"{database.resolve().as_uri()}?mode=ro&immutable=1"
        try:
            self.connection = sqlite3.connect(
                uri, uri=True, isolation_level=None, cached_statements=0
            )
            found = {
                name
                for (name,) in self.connection.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                )
            }
        except sqlite3.Error as error:
            raise DataError(
                f"{database} cannot be read as a database: {error}", "remove it to have it built"
            ) from error
        if lacking := sorted(TABLES.keys() - found):
            raise DataError(
                f"{database} has no table {', '.join(lacking)}", "remove it to have it built"
            )
        self._guard()

    def _guard(self) -> None:
        connection, limits = self.connection, self.limits
        connection.execute(f"PRAGMA hard_heap_limit = {HEAP}")
        # a query writes nothing, not even what it sorts
        connection.execute("PRAGMA temp_store = MEMORY")
        # KiB of the heap, which many connections share
        connection.execute("PRAGMA cache_size = -512")
        for category, bound in (
            (sqlite3.SQLITE_LIMIT_LENGTH, limits.value),
            (sqlite3.SQLITE_LIMIT_SQL_LENGTH, limits.value),
            (sqlite3.SQLITE_LIMIT_COLUMN, 100),
            (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100),
            (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 20),
            (sqlite3.SQLITE_LIMIT_VDBE_OP, 50_000),
            (sqlite3.SQLITE_LIMIT_FUNCTION_ARG, 20),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
            (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200),
            (sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 0),
            (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 0),
            (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
        ):
            connection.setlimit(category, bound)
        for name in DATES:
            connection.create_function(name, -1, partial(self._date, name), deterministic=True)
        connection.set_progress_handler(self._step, STRIDE)
        connection.set_authorizer(self._authorize)

    def run(self, sql: str) -> QueryResult | QueryRefusal:
        self.deadline = time.thread_time() + self.limits.seconds
        self.steps, self.stopped = 0, None
        try:
            return self._fetch(self.connection.execute(sql))
        except MemoryError:
            return QueryRefusal("memory", f"more than {HEAP >> 20} MiB")
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0)
            if code == sqlite3.SQLITE_IOERR_NOMEM:
                return QueryRefusal("memory", f"more than {HEAP >> 20} MiB")
            if code & 0xFF in BROKEN:
                raise DataError(
                    f"{self.database} is damaged: {error}", "remove it to have it built again"
                ) from error
            return self.stopped or QueryRefusal("error", str(error))
        # stacked statements; a NUL, half a surrogate
        except (sqlite3.Warning, ValueError, OverflowError) as error:
            return QueryRefusal("syntax", str(error))

    def _fetch(self, cursor: sqlite3.Cursor) -> QueryResult | QueryRefusal:
        try:
            if cursor.description is None:
                return QueryRefusal("syntax", "no query")
            rows: list[Row] = []
            size = 0
            for row in cursor:
                rows.append(row)
                size += sum(len(value) for value in row if isinstance(value, str | bytes))
                if len(rows) > self.limits.rows or size > self.limits.result:
                    return QueryRefusal(
                        "rows", f"more than {self.limits.rows} rows or {self.limits.result} bytes"
                    )
            return QueryResult(tuple(column[0] for column in cursor.description), tuple(rows))
        finally:
            cursor.close()

    def _date(self, name: str, *given: Value) -> Value:
        self.steps += STRIDE  # a call takes as long
        try:
            return _date(name, given)
        except sqlite3.OperationalError as error:
            if "non-deterministic" in str(error):
                self.stopped = QueryRefusal(
                    "forbidden", f"{name}() with the clock or the machine's time zone"
                )
            raise

    def _step(self) -> bool:
        """Whether to stop."""
        self.steps += STRIDE
        if self.steps > self.limits.steps or time.thread_time() > self.deadline:
            self.stopped = QueryRefusal(
                "time", f"more than {self.limits.steps} steps or {self.limits.seconds:g} s"
            )
        return self.stopped is not None

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        """Called while a query is compiled, for all that it would do."""
        if time.thread_time() > self.deadline:
            self.stopped = QueryRefusal("time", f"more than {self.limits.seconds:g} s to compile")
        elif _may(action, first or "", second or ""):
            return sqlite3.SQLITE_OK
        self.stopped = self.stopped or QueryRefusal(
            "forbidden", f"action {action} on {first or second} {second or ''}"
        )
        return sqlite3.SQLITE_DENY


def _may(action: int, first: str, second: str) -> bool:
    """Whether a query may do something with a table and a column, or a function."""
    if action == sqlite3.SQLITE_FUNCTION:
        return second.lower() in FUNCTIONS
    if action != sqlite3.SQLITE_READ:
        return action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE)
    if first in COLUMNS:
        return not second or second in COLUMNS[first]
    # No column is named where rows are only counted, of tables that the query itself makes as well.
    return not second and not first.lower().startswith(("sqlite_", "pragma_"))


ORDERS = 2000
"""Of each shop: few enough for a query to take half a millisecond, enough to tell near queries
apart."""
BESIDE = ".shop-"
"""How the name of a folder begins in which a shop is built."""
PLANTING = Path(__file__).with_name("planting.sql")


def databases(folder: Path, count: int) -> tuple[Path, ...]:
    """The first `count` shops, built in `folder` where they are not there yet; they depend on
    nothing else.

    Each is written beside its place and renamed; two processes build one after the other.

    Raises:
        StorageError: the disk is full or the folder cannot be written.
    """
    paths = _paths(folder, count)
    if all(path.is_file() for path in paths):
        return paths
    with output_guard.lock_folder(folder, lambda: None):
        for left in folder.glob(f"{BESIDE}*"):  # of a process that was killed
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
        for number, path in enumerate(paths, 1):
            if not path.is_file():
                build_shop(path, number)
    return paths


def check_databases(folder: Path, count: int) -> None:
    """Check those of the first `count` shops that are there.

    Raises:
        DataError: one is no database, or lacks a table.
    """
    for path in _paths(folder, count):
        if path.is_file():
            _Reader(path, LIMITS).connection.close()


def _paths(folder: Path, count: int) -> tuple[Path, ...]:
    return tuple(folder / f"shop-{number}.db" for number in range(1, count + 1))


def build_shop(path: Path, number: int) -> None:
    """Write the shop of that number.

    Raises:
        StorageError: the disk is full or the folder cannot be written.
    """

    def dice(key: str, what: str, sides: int) -> int:
        return derive("sql_qa", number, key, what) % sides

    with clear_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=BESIDE, dir=path.parent) as apart:
            drawn = Path(apart) / path.name
            build_database(drawn, orders=ORDERS, seed=derive("sql_qa", "shop", number))
            with closing(sqlite3.connect(drawn, isolation_level=None)) as shop:
                shop.execute("PRAGMA journal_mode = OFF")
                shop.create_function("dice", 3, dice, deterministic=True)
                shop.executescript(f"BEGIN; {PLANTING.read_text(encoding='utf-8')} COMMIT;")
            drawn.replace(path)
