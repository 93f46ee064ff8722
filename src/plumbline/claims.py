"""Which folders and files are ours to write: what we did not make is never touched.

A folder is ours where it is empty or not there yet, or where `.plumbline` in it says that we made it, and what for.
Commands ask before they do anything (`check`), and leave the mark when they begin to write (`claim`).
"""

from collections.abc import Callable
from pathlib import Path

from plumbline.errors import StorageError
from plumbline.storage import clear_os_errors, write_text

MARK = ".plumbline"
Recognise = Callable[[Path], bool]


def check(folder: Path, kind: str, earlier: Recognise = lambda _: False) -> None:
    """Refuse a folder that holds anything but what we made there for the same purpose.

    Args:
        folder: where something is to be written.
        kind: what for: "run", "sweep", "records", "model", "tables".
        earlier: recognises what versions without the mark made.

    Raises:
        StorageError: it is a file, cannot be looked into, or holds something else. Nothing was touched.
    """
    with clear_os_errors(folder):
        _check_parents(folder)
        if not folder.exists():
            return
        if not folder.is_dir():
            raise StorageError(f"{folder} is a file", "give a folder")
        first = next((path.name for path in sorted(folder.iterdir()) if path.name != MARK), None)
        mark = folder / MARK
        there = mark.read_text(encoding="utf-8", errors="replace").strip() if mark.is_file() else None
    if there == kind or first is None or (there is None and earlier(folder)):
        return
    what = f"is a folder of Plumbline's for another purpose ({there})" if there else f"holds other files ({first})"
    raise StorageError(f"{folder} {what}; nothing in it was touched", f"give an empty or a new folder for the {kind}")


def _check_parents(path: Path) -> None:
    """Refuse a path below a file, before anything is computed that would be written there."""
    nearest = next((parent for parent in path.parents if parent.exists()), None)
    if nearest is not None and not nearest.is_dir():
        raise StorageError(f"{nearest} is a file, so nothing can be written to {path}", "give a place in a folder")


def claim(folder: Path, kind: str, earlier: Recognise = lambda _: False) -> None:
    """`check`, then make the folder and leave the mark."""
    check(folder, kind, earlier)
    if not (folder / MARK).is_file():
        write_text(folder / MARK, f"{kind}\n")


def check_file(path: Path, kind: str, ours: Recognise) -> None:
    """Refuse to replace a file that `ours` does not recognise.

    Raises:
        StorageError: there is a folder or another file. It was not touched.
    """
    with clear_os_errors(path):
        _check_parents(path)
        if path.is_dir():
            raise StorageError(f"{path} is a folder", f"give a file for the {kind}")
        if not path.exists():
            return
        if not path.is_file():  # a pipe or a device would be replaced by the rename that ends a write
            raise StorageError(f"{path} is no ordinary file", f"give a file for the {kind}")
        if path.stat().st_size == 0:
            return
    if not ours(path):
        raise StorageError(
            f"{path} is there already and is no {kind} of Plumbline's; it was not touched", "give another file"
        )
