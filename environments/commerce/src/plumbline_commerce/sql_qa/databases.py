"""The small shops on which a query must be right: the same tables as the records', other rows on each.

They are drawn as the records are, and then changed (`planting.sql`) so that few orders tell near queries apart.
"""

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from plumbline.runs import claims
from plumbline.seeds import derive
from plumbline.storage import clear_os_errors
from plumbline_commerce.database.build import build_database
from plumbline_commerce.sql_qa.engine import check

ORDERS = 2000
"""Of each shop: few enough for a query to take half a millisecond, enough to tell near queries apart."""
BESIDE = ".shop-"
"""How the name of a folder begins in which a shop is built."""
PLANTING = Path(__file__).with_name("planting.sql")


def databases(folder: Path, count: int) -> tuple[Path, ...]:
    """The first `count` shops, built in `folder` where they are not there yet; they depend on nothing else.

    Each is written beside its place and renamed; two processes build one after the other.

    Raises:
        StorageError: the disk is full or the folder cannot be written.
    """
    paths = _paths(folder, count)
    if all(path.is_file() for path in paths):
        return paths
    with claims.locked(folder, lambda: None):
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
            check(path)


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
