"""Files of a manifest, verified by their sha256, into a folder."""

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from plumbline.errors import DataError
from plumbline.runs.remote.address import join
from plumbline.runs.remote.manifest import CHECKPOINTS, Files, Manifest, Part, parse
from plumbline.runs.remote.store import Store
from plumbline.storage import clear_os_errors

AT_ONCE = 4
"""Parts that are moved side by side."""
_BLOCK = 1 << 20


class DamagedError(DataError):
    """A file at an address that is not there, or is not what was written."""


def read_manifest(store: Store, key: str) -> Manifest | None:
    """The manifest at a key; None where there is none.

    Raises:
        DataError: it is damaged.
    """
    content = store.read(key)
    return None if content is None else parse(content, join(store.address, key))


def checkpoint_keys(store: Store) -> dict[str, dict[int, str]]:
    """The keys of all checkpoints' manifests by stage and step, ascending."""
    found: dict[str, dict[int, str]] = {}
    for key in sorted(store.sizes(CHECKPOINTS)):
        _, stage, name = (*key.split("/"), "", "")[:3]
        step = name.removeprefix("step-").removesuffix(".json")
        if name.endswith(".json") and step.isdecimal():
            found.setdefault(stage, {})[int(step)] = key
    return found


def download(store: Store, files: Files, folder: Path) -> None:
    """Bring files into a folder; each is there whole, or not at all.

    Raises:
        DamagedError: names the first file that is not what was written.
        StorageError: the store does not answer, or the disk is full.
    """
    with ThreadPoolExecutor(AT_ONCE) as each, ThreadPoolExecutor(AT_ONCE) as pool:
        list(each.map(lambda path: _download(store, path, files[path], folder / path, pool), files))


def _download(store: Store, path: str, parts: Sequence[Part], place: Path, pool: ThreadPoolExecutor) -> None:
    with clear_os_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}.", suffix=".tmp"))
        try:
            places = [temporary / str(number) for number, _ in enumerate(parts)]
            pieces = list(pool.map(lambda part, at: _part(store, path, part, at), parts, places))
            whole = pieces[0] if pieces else temporary / "0"
            with whole.open("ab") as file:
                for piece in pieces[1:]:
                    with piece.open("rb") as more:
                        shutil.copyfileobj(more, file, _BLOCK)
                    piece.unlink()
            whole.replace(place)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _part(store: Store, path: str, part: Part, place: Path) -> Path:
    """One part as a file."""
    try:
        store.get(part.key, place)
    except FileNotFoundError as error:
        raise _damaged(store, path, f"{part.key} is not there") from error
    size = place.stat().st_size
    if size != part.size:
        raise _damaged(store, path, f"{part.key} has {size} bytes, and {part.size} were written")
    if hash_of(place) != part.sha256:
        raise _damaged(store, path, f"{part.key} hashes to something else than what was written")
    return place


def _damaged(store: Store, path: str, what: str) -> DamagedError:
    return DamagedError(
        f"{path} at {store.address} is damaged: {what}",
        "restore that object from the store's older versions; or, where the run's working folder still is, remove the "
        "object and --resume there, which writes it anew (docs/remote.md)",
    )


def hash_of(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
