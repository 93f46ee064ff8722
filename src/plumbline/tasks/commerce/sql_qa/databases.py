"""The small shops on which a query must be right: the same tables as the records', other rows on each."""

from pathlib import Path

from plumbline.seeds import derive
from plumbline.tasks.commerce.database.build import build_database

ORDERS = 800
"""Of each shop: few enough for a query to take half a millisecond, enough for all large states and categories."""


def databases(folder: Path, count: int) -> tuple[Path, ...]:
    """The first `count` shops, built in `folder` where they are not there yet; they depend on nothing else.

    Each is written beside its place and renamed, to the same rows whoever builds it, so two processes may do it at
    once.

    Raises:
        StorageError: the disk is full or the folder cannot be written.
    """
    paths = tuple(folder / f"shop-{number}.db" for number in range(1, count + 1))
    for number, path in enumerate(paths, 1):
        if not path.is_file():
            build_database(path, orders=ORDERS, seed=derive("sql_qa", "shop", number))
    return paths
