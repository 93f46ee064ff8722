"""A run at an address: it works in a folder of this machine, and what it leaves there is put at the
address.

    files that changed  ->  run.json, the manifest  ->  what neither it nor the manifest before it names, removed

A thread puts: training tells it of every checkpoint, evaluation and end of a stage
and goes on; while it is busy, those that come are one. A kill between any two writes leaves the
state before. What the store refuses is tried again, then said in an event, and at the next
checkpoint tried again; at the end of the run it is an error.
"""

import hashlib
import itertools
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from plumbline.errors import PlumblineError, RunError, StorageError
from plumbline.runs import output_guard, remote
from plumbline.runs.metadata import METADATA
from plumbline.runs.record import in_use, is_blank
from plumbline.runs.remote import (
    NOTE,
    WRITTEN_HERE,
    Files,
    ManifestEntry,
    Store,
    folder_for,
    join_address,
    parse_manifest,
    storage_key,
)
from plumbline.runs.run import RUN as KIND
from plumbline.runs.run import Observer, Run
from plumbline.storage import clear_os_errors, find_object, folder_beside, one_line, write_json

NOT_PUBLISHED = frozenset({".lock", NOTE, remote.CHECKPOINTS, remote.MODELS, "wandb", "engine"})
"""Of a run's folder: what is of this machine alone. W&B keeps names of the user and the machine, an
engine its log and the weights that it serves."""
EMPTY = remote.manifest_bytes({})
ATTEMPTS = 5
"""At a folder whose files are removed while they are read."""
Signature = tuple[int, int, int]
"""A file's inode, size and time: where all are as before, so is its content."""


class Publisher:
    """What puts one working folder at its address; only one thread may do so at a time."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder, self.store = folder, store
        self.there = remote.read_manifest(store)
        self.sent: dict[str, tuple[Signature, ManifestEntry]] = {}

    def put(self) -> None:
        """Put the folder as it is now.

        Raises:
            RunError: another process has put its run there.
            StorageError: the store does not answer, or cannot be written.
        """
        with clear_os_errors(Path(self.store.root)):
            for _ in range(ATTEMPTS):
                try:
                    return self._put()
                except FileNotFoundError as error:
                    if not str(error.filename or "").startswith(str(self.folder)):
                        raise  # a bucket that is not there
            raise StorageError(
                f"the files in {self.folder} change while they are read", "use --resume"
            )

    def _put(self) -> None:
        if self._present() is None:
            self.store.write(remote.RUN, EMPTY)  # which says whose place this is
        paths = [path.relative_to(self.folder).as_posix() for path in published_files(self.folder)]
        sizes = self.store.sizes()
        with ThreadPoolExecutor(remote.AT_ONCE) as pool:
            files = dict(
                zip(paths, pool.map(lambda path: self._send(path, sizes), paths), strict=True)
            )
        now, content = self._present() or EMPTY, remote.manifest_bytes(files)
        if now != content:
            _note_manifests(self.folder, self.store, now, content)
            self.store.write(remote.RUN, content)
        before = parse_manifest(now, remote.RUN)  # somebody may still be reading it
        needed = {
            storage_key(path, entry.sha256)
            for one in (files, before)
            for path, entry in one.items()
        }
        self.store.remove(sorted(sizes.keys() - needed - {remote.RUN}))

    def _present(self) -> bytes | None:
        """The manifest at the address, which must be one that this folder wrote, or went on
        from."""
        content = self.store.read(remote.RUN)
        if (
            content is not None
            and _digest(content) not in _noted_manifests(self.folder)
            and parse_manifest(content, remote.RUN)
        ):
            raise RunError(
                f"another process has put its run at {self.store.address}",
                f"let that one continue; what this one did is in {self.folder}, and was not "
                "published since",
            )
        return content

    def _send(self, path: str, sizes: Mapping[str, int]) -> ManifestEntry:
        """Send a file of the folder, unless it is there already."""
        place = self.folder / path
        found = place.stat()
        signature = (found.st_ino, found.st_size, found.st_mtime_ns)
        if path in self.sent:
            before, entry = self.sent[path]
            if before == signature and sizes.get(storage_key(path, entry.sha256)) == entry.size:
                return entry
        content: Path | bytes = place
        if storage_key(path, "") == path:
            with place.open("rb") as file:
                entry = ManifestEntry(
                    found.st_size, hashlib.file_digest(file, "sha256").hexdigest()
                )
        else:  # it may grow meanwhile
            content = place.read_bytes()
            entry = ManifestEntry(len(content), _digest(content))
        key = storage_key(path, entry.sha256)
        if self.there.get(path) != entry or sizes.get(key) != entry.size:
            self.store.write(key, content)
        self.sent[path] = signature, entry
        return entry


class RemoteSync(Observer):
    """The observer of a run that has it published; the end is put by `finish`, after the run's own
    last words."""

    def __init__(self, publisher: Publisher, notes: Iterable[str]) -> None:
        self.publisher, self.notes, self.failures = publisher, deque(notes), 0
        self._pool = ThreadPoolExecutor(1, "plumbline-publish")
        self._last: Future[None] | None = None

    def on_checkpoint(self, run: Run) -> None:
        """See `Observer.on_checkpoint`: let the thread put the folder, and say what it could
        not."""
        while self.notes:
            run.event("remote", self.notes.popleft())
        if not is_blank(run.folder):
            if self._last is not None:
                self._last.cancel()  # one that still waits would put the same
            self._last = self._pool.submit(self._put)

    def finish(self) -> None:
        """Put what the folder holds now, and end the thread.

        Raises:
            RunError: another process has put its run there.
            StorageError: the store does not answer.
        """
        self._pool.shutdown(cancel_futures=True)
        if not is_blank(self.publisher.folder):
            self.publisher.put()

    def _put(self) -> None:
        try:
            self.publisher.put()
        except Exception as error:  # noqa: BLE001 - whatever fails here, the run goes on; at its end it is an error
            self.failures += 1
            cause = (
                error.cause
                if isinstance(error, PlumblineError)
                else f"{type(error).__name__}: {one_line(error)}"
            )
            said = f"not published yet: {cause}; it is tried again at the next checkpoint"
            self.notes.append(
                said + (f" ({self.failures} failures so far)" if self.failures > 1 else "")
            )


@contextmanager
def open_remote_run(
    address: str, *, resume: bool, tell: Callable[[str], None]
) -> Iterator[tuple[Path, RemoteSync]]:
    """The folder in which the run at an address works, and the observer that publishes it.

    Where the run goes on that was written by another machine, it is fetched first: recipe, records,
    models and checkpoints, each verified. What is in the folder and is not what the address went on
    from is set aside.

    Args:
        address: of the run.
        resume: go on with what is there.
        tell: is told what takes a while.

    Raises:
        RunError: there is a run and `resume` is False; a process of this machine is writing it.
        DataError: a file of it is damaged.
        StorageError: something else is there; the store does not answer. After the run: not all
            could be published.
    """
    store, folder, notes = Store(address), folder_for(address), list[str]()
    tell(f"the run at {store.address} works in {folder}")
    if in_use(folder):
        raise RunError(
            f"another process is writing {folder}, for {store.address}", "wait for it, or use --out"
        )
    content = store.read(remote.RUN)
    manifest = (
        {} if content is None else parse_manifest(content, join_address(store.address, remote.RUN))
    )
    if manifest and not resume:
        raise RunError(
            f"{store.address} already holds a run",
            "add --resume to continue it, or --out to write somewhere else",
        )
    if content is None and not (folder / NOTE).is_file() and (others := sorted(store.sizes())):
        raise StorageError(
            f"{store.address} holds other files ({others[0].partition('/')[0]}); nothing there was "
            "touched",
            "give an address where nothing is yet",
        )
    if manifest and _digest(content or b"") not in _noted_manifests(folder):
        tell(f"fetching the run at {store.address}")
        notes = _fetch_run(store, manifest, folder)
    output_guard.claim_folder(folder, KIND)
    _note_manifests(folder, store, content or EMPTY)
    where = f"{folder} (for {store.address})"
    WRITTEN_HERE[store.address] = folder
    try:
        sync = RemoteSync(Publisher(folder, store), notes)
        try:
            yield folder, sync
        except BaseException:
            try:
                sync.finish()
            # what stopped the run is what is said; this stands before it
            except PlumblineError as error:
                print(f"not all of {where} was published: {error}", file=sys.stderr)  # noqa: T201
            raise
        try:
            sync.finish()
        except StorageError as error:
            raise StorageError(
                f"the run is finished in {where}, and not all of it could be published: "
                f"{error.cause}",
                "the same command with --resume publishes it when the store answers; nothing is "
                "trained again",
            ) from error
    finally:
        WRITTEN_HERE.pop(store.address, None)


def published_files(folder: Path) -> Iterator[Path]:
    """The files of a run that are published; checkpoints first, so that no record is older than
    they are."""
    for pattern in ("begin.json", "step-*/*"):
        yield from sorted(folder.glob(f"{remote.CHECKPOINTS}/*/{pattern}"))
    for place in sorted(folder.iterdir()):
        if place.name not in NOT_PUBLISHED:
            yield from _finished_files(place)
    for path in sorted(folder.glob(f"{remote.MODELS}/*/{METADATA}")):
        if not path.parent.name.startswith("."):
            yield from _finished_files(path.parent)


def _finished_files(place: Path) -> Iterator[Path]:
    """A file or those in a folder, but for what is being written, and locks on what is being
    built."""
    for path in [place] if place.is_file() else sorted(place.rglob("*")):
        names = (place.name, *path.relative_to(place).parts)
        passing = (
            name.endswith(".tmp")
            or name == NOTE
            or (
                name.startswith(".") and (name.endswith(".lock") or output_guard.UNFINISHED in name)
            )
            for name in names
        )
        if path.is_file() and not any(passing):
            yield path


def _fetch_run(store: Store, manifest: Files, folder: Path) -> list[str]:
    """Fetch a run in its folder's place; returns what there is to say about it."""
    sizes, notes = store.sizes(), []
    removed = {
        found[0]
        for path, entry in manifest.items()
        if (found := remote.CHECKPOINT.match(path))
        and not any(key.startswith(f"{found[0]}/") for key in sizes)
    }
    files = {
        path: entry for path, entry in manifest.items() if path.rpartition("/")[0] not in removed
    }
    if removed:
        notes.append(
            f"checkpoints that were removed at {store.address} were left out: "
            f"{', '.join(sorted(removed))}"
        )
    with clear_os_errors(folder), folder_beside(folder) as beside:
        remote.fetch_files(store, files, beside)
        if folder.exists() and any(path.name != NOTE for path in folder.iterdir()):
            aside = next(
                place
                for number in itertools.count(1)
                if not (place := folder.with_name(f"{folder.name}.aside-{number}")).exists()
            )
            folder.rename(aside)
            notes.append(f"{folder} was not what {store.address} resumed from: it is now {aside}")
        shutil.rmtree(folder, ignore_errors=True)
        beside.rename(folder)
    return notes


def _note_manifests(folder: Path, store: Store, *manifests: bytes) -> None:
    """Keep which manifests at the address this folder writes, or goes on from."""
    write_json(
        folder / NOTE,
        {"address": store.address, "seen": [_digest(content) for content in manifests]},
    )


def _noted_manifests(folder: Path) -> list[str]:
    """Those manifests by their sha256."""
    return list(find_object(folder / NOTE).get("seen", []))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
