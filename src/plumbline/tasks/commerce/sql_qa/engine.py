"""Runs one SELECT of unknown origin on one SQLite file: read-only, and within limits of time, steps, rows and memory.

Nothing here trusts what stands in front of it. The file is opened `mode=ro&immutable=1`; SQLite asks an authorizer
about every table, column and function while it compiles, and everything that is not on a list is refused; a handler
counts the steps of its machine and looks at the clock; SQLite's own limits bound the length of values and the size of
expressions. What is left to stop is a single step that takes long, which is why values are short: the worst known
(`instr` of one long text in another) takes milliseconds at 10,000 bytes.

No query knows the hour or the machine's time zone, or a verdict would depend on them. SQLite's functions of dates read
the clock for 'now', for 'subsec' in its place and for no argument at all. Those of no argument are replaced; of a query
whose text could make such a word, all of them are.
"""

import re
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

from plumbline.errors import DataError
from plumbline.storage import open_regular
from plumbline.tasks.commerce.database.schema import TABLES

Value = int | float | str | bytes | None
Row = tuple[Value, ...]
COLUMNS = {
    table: frozenset(line.split()[0] for line in text.splitlines() if line.strip()) for table, text in TABLES.items()
}
"""The columns of each table; the PRIMARY of a composite key is no column that SQLite knows, so it does no harm."""
_FUNCTIONS = """
abs avg ceil ceiling char coalesce count cume_dist date datetime dense_rank first_value floor glob group_concat
ifnull iif instr julianday lag last_value lead length like likelihood likely lower ltrim max min mod nth_value ntile
nullif percent_rank pow power rank replace round row_number rtrim sign sqrt strftime substr substring sum time
total trim typeof unicode unixepoch unlikely upper
"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
"""What a query may call: pure functions whose cost is bounded by the length of their arguments, which that of printf is
not: its width and precision are numbers, and `printf('%.*c', 2147483647, 'x')` is one step."""
DATES = {"date": 0, "datetime": 0, "julianday": 0, "strftime": 1, "time": 0, "unixepoch": 0}
"""The functions of dates, and the place of the argument that says when."""
_CLOCK, _ZONE = frozenset({"now", "subsec", "subsecond"}), frozenset({"localtime", "utc"})
_MAY_MAKE = re.compile(r"now|subsec|localtime|utc|\|\||x'|\b(char|replace|substr(ing)?|group_concat)\b", re.IGNORECASE)
"""What a text holds that says such a word, or puts one together."""
HEAP = 128 * 2**20
"""Bytes that SQLite may take in this process, over all connections; so one query runs at a time. Only this ends the
compilation of common table expressions that each mention the one before twice, of which SQLite makes a copy a
mention."""
STRIDE = 200
"""Steps of SQLite's machine between two looks at the clock."""
CONNECTIONS = 64
"""Kept open by a thread."""
BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
"""Errors of the file, which are no query's fault."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one query may take."""

    steps: int = 30_000_000
    """Of SQLite's machine, over half a second; counted, so that a verdict is the same on every machine."""
    seconds: float = 1.0
    """Of a processor, where steps are slow."""
    rows: int = 2000
    value: int = 10_000
    """Bytes of one value."""
    result: int = 1_000_000
    """Bytes of all texts of a result."""


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Result:
    """What a query returned."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no result."""

    cause: Literal["syntax", "gate", "forbidden", "error", "time", "rows", "memory"]
    detail: str


def run(database: Path, sql: str, limits: Limits = LIMITS) -> Result | Refusal:
    """Run a query on a database that nobody writes to.

    Raises:
        DataError: the file is not there, no database, or lacks a table; never for what the query says.
    """
    if not hasattr(_OF_THREAD, "readers"):
        _OF_THREAD.readers = {}
    kept: dict[tuple[Path, Limits, bool], _Reader] = _OF_THREAD.readers
    key = (database, limits, _MAY_MAKE.search(sql) is not None)
    with _ONE_AT_A_TIME:
        if key not in kept:
            while len(kept) >= CONNECTIONS:
                kept.pop(next(iter(kept))).connection.close()
            kept[key] = _Reader(*key)
        return kept[key].run(sql)


def check(database: Path) -> None:
    """Open a database as `run` does, and close it.

    Raises:
        DataError: see `run`.
    """
    _Reader(database, LIMITS, suspicious=False).connection.close()


_ONE_AT_A_TIME = threading.Lock()
_OF_THREAD = threading.local()
"""Of each thread its readers by file, limits and suspicion, in the order in which they were opened."""


@lru_cache(maxsize=200_000)
def _pure(function: str, *arguments: Value) -> Value:
    """What SQLite's own function of dates says of arguments that ask for no clock.

    Raises:
        sqlite3.Error: it takes no such arguments.
    """
    if not hasattr(_OF_THREAD, "plain"):
        _OF_THREAD.plain = sqlite3.connect(":memory:")
    marks = ", ".join("?" * len(arguments))
    found: Value = _OF_THREAD.plain.execute(f"SELECT {function}({marks})", arguments).fetchone()[0]
    return found


class _Reader:
    """One thread's connection to one file, with its guards; of suspicious queries, each date is looked at."""

    def __init__(self, database: Path, limits: Limits, suspicious: bool) -> None:
        self.database, self.limits, self.suspicious = database, limits, suspicious
        self.deadline, self.steps = 0.0, 0
        self.stopped: Refusal | None = None
        if database.exists():
            open_regular(database).close()  # a pipe would be waited for
        uri = f"{database.resolve().as_uri()}?mode=ro&immutable=1"
        try:
            self.connection = sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=0)
            found = {name for (name,) in self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        except sqlite3.Error as error:
            raise DataError(
                f"{database} cannot be read as a database: {error}", "remove it to have it built"
            ) from error
        if lacking := sorted(TABLES.keys() - found):
            raise DataError(f"{database} has no table {', '.join(lacking)}", "remove it to have it built")
        self._guard()

    def _guard(self) -> None:
        connection, limits = self.connection, self.limits
        connection.execute(f"PRAGMA hard_heap_limit = {HEAP}")
        connection.execute("PRAGMA temp_store = MEMORY")  # a query writes nothing, not even what it sorts
        connection.execute("PRAGMA cache_size = -512")  # KiB of the heap, which many connections share
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
        for function, when in DATES.items():
            dated: Callable[..., Value] = partial(self._date, function, when)
            for count in (-1,) if self.suspicious else range(when + 1):  # of a fixed count go before SQLite's own
                connection.create_function(function, count, dated, deterministic=True)
        connection.set_progress_handler(self._step, STRIDE)
        connection.set_authorizer(self._authorize)

    def run(self, sql: str) -> Result | Refusal:
        self.deadline = time.thread_time() + self.limits.seconds
        self.steps, self.stopped = 0, None
        try:
            return self._fetch(self.connection.execute(sql))
        except MemoryError:
            return Refusal("memory", f"more than {HEAP >> 20} MiB")
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0)
            if code == sqlite3.SQLITE_IOERR_NOMEM:
                return Refusal("memory", f"more than {HEAP >> 20} MiB")
            if code & 0xFF in BROKEN:
                raise DataError(f"{self.database} is damaged: {error}", "remove it to have it built anew") from error
            return self.stopped or Refusal("error", str(error))
        except (sqlite3.Warning, ValueError, OverflowError) as error:  # stacked statements; a NUL, half a surrogate
            return Refusal("syntax", str(error))

    def _fetch(self, cursor: sqlite3.Cursor) -> Result | Refusal:
        try:
            if cursor.description is None:
                return Refusal("syntax", "no query")
            rows: list[Row] = []
            size = 0
            for row in cursor:
                rows.append(row)
                size += sum(len(value) for value in row if isinstance(value, str | bytes))
                if len(rows) > self.limits.rows or size > self.limits.result:
                    return Refusal("rows", f"more than {self.limits.rows} rows or {self.limits.result} bytes")
            return Result(tuple(column[0] for column in cursor.description), tuple(rows))
        finally:
            cursor.close()

    def _date(self, function: str, when: int, *arguments: Value) -> Value:
        """A date that depends on nothing but the arguments.

        Raises:
            ValueError: it would depend on the clock or the time zone.
        """
        words = [str(one, "utf-8", "replace") if isinstance(one, bytes) else one for one in arguments]
        said = [one.lower() if isinstance(one, str) else "" for one in words]
        if len(said) <= when or said[when] in _CLOCK or not _ZONE.isdisjoint(said):
            self.stopped = Refusal("forbidden", f"{function} asks for the hour or the time zone of this machine")
            raise ValueError
        return _pure(function, *arguments)

    def _step(self) -> bool:
        """Whether to stop."""
        self.steps += STRIDE
        if self.steps > self.limits.steps or time.thread_time() > self.deadline:
            self.stopped = Refusal("time", f"more than {self.limits.steps} steps or {self.limits.seconds:g} s")
        return self.stopped is not None

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        """Called while a query is compiled, for all that it would do."""
        if time.thread_time() > self.deadline:
            self.stopped = Refusal("time", f"more than {self.limits.seconds:g} s to compile")
        elif _may(action, first or "", second or ""):
            return sqlite3.SQLITE_OK
        self.stopped = self.stopped or Refusal("forbidden", f"action {action} on {first or second} {second or ''}")
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
