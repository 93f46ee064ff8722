"""Which folders and files are ours to write: what we did not make is never touched.

A folder is ours where it is empty or not there yet, or where `.plumbline` in it says that we made
it, and what for. Commands ask before they do anything (`check_folder`), and leave the mark when
they begin to write (`claim_folder`).

Nothing is written or removed behind a link that leads out of a run (`check_links`); a link that the
user names, such as `--out LINK`, is the user's choice. What takes a while to build is built by one
process at a time (`lock_folder`), beside its place, and put there whole (`build_folder`).
"""

import fcntl
import glob
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from plumbline.errors import StorageError
from plumbline.storage import clear_os_errors, read_bytes, sync_folder, write_text

MARK = ".plumbline"
RUN = "run"
"""What the mark in a run's folder says."""
UNFINISHED = ".building"
"""There while what was built is put into a folder that holds something already."""


def check_folder(folder: Path, kind: str) -> None:
    """Refuse a folder that holds anything but what we made there for the same purpose.

    Args:
        folder: where something is to be written.
        kind: what for: "run", "sweep", "records", "model", "tables".

    Raises:
        StorageError: it is a file, cannot be looked into, holds something else, or is of a run and
            lies behind a link that leads out of that. Nothing was touched.
    """
    with clear_os_errors(folder):
        _check_parents(folder)
        for parent in folder.parents:
            if kind_of(parent) == RUN:
                check_link(folder, parent)
        if not folder.exists():
            return
        if not folder.is_dir():
            raise StorageError(f"{folder} is a file", "give a folder")
        first = next((path.name for path in sorted(folder.iterdir()) if path.name != MARK), None)
        there = kind_of(folder)
    if there == kind or first is None:
        return
    what = (
        f"is a folder of Plumbline's for another purpose ({there})"
        if there
        else f"holds other files ({first})"
    )
    raise StorageError(
        f"{folder} {what}; nothing in it was touched",
        f"give an empty or a new folder for the {kind}",
    )


def kind_of(folder: Path) -> str | None:
    """What the mark in a folder says; None where there is none."""
    mark = folder / MARK
    return (
        read_bytes(mark, StorageError, 1000).decode(errors="replace").strip()
        if mark.is_file()
        else None
    )


def check_link(path: Path, folder: Path) -> None:
    """Refuse a path below a folder that a link on the way leads out of it.

    Raises:
        StorageError: names the link.
    """
    home = os.path.realpath(folder)
    place = folder
    for part in path.relative_to(folder).parts:
        place /= part
        if place.is_symlink() and not Path(os.path.realpath(place)).is_relative_to(home):
            raise StorageError(
                f"{place} is a link to {os.path.realpath(place)}, out of {folder}: nothing behind "
                "it was touched",
                "remove the link, or give another folder",
            )


def check_links(folder: Path, *names: str) -> None:
    """Refuse a folder of ours in which a link leads out of it, before anything is written or
    removed there.

    Args:
        folder: a run's.
        names: of what we write or remove in it.

    Raises:
        StorageError: names the link.
    """
    with clear_os_errors(folder):
        for name in names:
            check_link(folder / name, folder)
            for root, folders, files in os.walk(folder / name):  # which does not follow links
                for one in (*folders, *files):
                    check_link(Path(root) / one, folder)


@contextmanager
def lock_folder(folder: Path, wait: Callable[[], None]) -> Iterator[None]:
    """Let one process at a time build a folder; the kernel frees the lock of one that dies.

    Args:
        folder: what is built. The lock is a file beside it, which goes again.
        wait: called once where another process builds it.

    Raises:
        StorageError: nothing can be written beside the folder.
    """
    place = Path(os.path.realpath(folder))
    path = place.with_name(f".{place.name}.lock")
    with clear_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _lock(path, wait)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _lock(path: Path, wait: Callable[[], None]) -> int:
    """An open file that is locked and is the one at the path: its owner removes it, others may wait
    for it."""
    told = False
    while True:
        descriptor = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666
        )
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not told:
                    wait()
                told = True
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError:  # a file system without locks
                return descriptor
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextmanager
def build_folder(folder: Path, kind: str, *, last: str) -> Iterator[Path]:
    """A folder beside `folder` to build in, whose files are put into `folder` when all of them are
    there.

    Only who has the lock (`lock_folder`) may build. What a killed process left beside is removed
    first.

    Args:
        folder: where the files go; what else is in it stays.
        kind: see `check_folder`.
        last: the file that says that the others are whole.

    Raises:
        StorageError: see `check_folder`; or the disk is full.
    """
    check_folder(folder, kind)
    place = Path(os.path.realpath(folder))
    beside = place.with_name(f".{place.name}{UNFINISHED}-{secrets.token_hex(4)}")
    with clear_os_errors(beside):
        for left in place.parent.glob(f".{glob.escape(place.name)}{UNFINISHED}-*"):
            if not left.is_symlink() and (
                kind_of(left) == kind
                # a kill came before the folder had its mark
                or all(path.name.startswith(f".{MARK}.") for path in left.iterdir())
            ):
                shutil.rmtree(left, ignore_errors=True)
        beside.mkdir(parents=True)
    try:
        write_text(beside / MARK, f"{kind}\n")
        yield beside
        with clear_os_errors(folder):
            if not place.exists() or not any(place.iterdir()):
                beside.rename(place)
            else:
                _move(beside, place, last)
            sync_folder(place.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _move(beside: Path, place: Path, last: str) -> None:
    """Move what was built into a folder that holds something of ours; a kill in between leaves
    UNFINISHED there."""
    (place / UNFINISHED).touch()
    (place / last).unlink(missing_ok=True)
    sync_folder(place)
    for root, _, files in os.walk(beside):
        there = place / Path(root).relative_to(beside)
        check_link(there, place)
        there.mkdir(exist_ok=True)
        for name in files:
            if name != last or Path(root) != beside:
                (Path(root) / name).replace(there / name)
    (beside / last).replace(place / last)
    sync_folder(place)
    (place / UNFINISHED).unlink()


def _check_parents(path: Path) -> None:
    """Refuse a path below a file, before anything is computed that would be written there."""
    nearest = next((parent for parent in path.parents if parent.exists()), None)
    if nearest is not None and not nearest.is_dir():
        raise StorageError(
            f"{nearest} is a file, so nothing can be written to {path}", "give a place in a folder"
        )


def claim_folder(folder: Path, kind: str) -> None:
    """`check_folder`, then make the folder and leave the mark."""
    check_folder(folder, kind)
    if not (folder / MARK).is_file():
        write_text(folder / MARK, f"{kind}\n")


def check_file(path: Path, kind: str, ours: Callable[[Path], bool]) -> None:
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
        # a pipe or a device would be replaced by the rename that ends a write
        if not path.is_file():
            raise StorageError(f"{path} is no ordinary file", f"give a file for the {kind}")
        if path.stat().st_size == 0:
            return
    if not ours(path):
        raise StorageError(
            f"{path} is there already and is no {kind} of Plumbline's; it was not touched",
            "give another file",
        )
