"""From a working folder to its address: every state whole, or not at all.

    parts that are not there yet  ->  run.json  ->  manifests of new checkpoints  ->  what nobody needs, removed

A kill between any two of these leaves what was published before, or more of it, and objects that the next publication
takes up or removes. What a manifest named at the publication before this one is kept, for those who are reading it.
"""

import hashlib
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from plumbline.errors import DataError, RunError
from plumbline.runs.remote.address import NOTE
from plumbline.runs.remote.fetch import AT_ONCE, checkpoint_keys, hash_of, read_manifest
from plumbline.runs.remote.lock import Lock
from plumbline.runs.remote.manifest import CHECKPOINTS, MODELS, OBJECTS, PART, RUN, Manifest, Part, key_of
from plumbline.runs.remote.store import Store
from plumbline.storage import clear_os_errors, read_object, write_json

LINKS = ".remote"
"""The folder in a working folder that holds the files of a state until they are published."""
Signature = tuple[int, int, int]
"""A file's inode, size and time: where all are as before, so is its content."""
Chosen = Callable[[Path], Iterable[Path]]
"""Which files of a folder are of the run, beside its checkpoints."""


class Changed(Exception):  # noqa: N818 - no error: the state is taken anew
    """A file was cut back while it was read."""


@dataclass(frozen=True, slots=True)
class State:
    """The files of a run at one moment, held by links, so that what is removed meanwhile is still there."""

    links: Path
    files: Mapping[str, Signature]

    def let_go(self) -> None:
        """Remove the links."""
        shutil.rmtree(self.links, ignore_errors=True)


@dataclass
class Publisher:
    """What publishes the states of one working folder; only one thread may do so at a time."""

    folder: Path
    store: Store
    lock: Lock
    chosen: Chosen
    parts: dict[str, tuple[Signature, tuple[Part, ...]]] = field(default_factory=dict)
    """Of each file as it was last read."""
    stored: set[Part] = field(default_factory=set)
    """Parts that are known to be at the address."""
    others: set[str] = field(default_factory=set)
    """Keys of objects at the address, of which some may be half written."""
    manifests: dict[str, bytes] = field(default_factory=dict)
    """Manifests at the address by key."""
    named: set[str] = field(default_factory=set)
    """Keys that the last publication named, and one since that was not completed."""

    def begin(self) -> None:
        """Learn what is at the address already.

        Raises:
            StorageError: the store does not answer.
        """
        sizes = self.store.sizes()
        keys = [RUN] if RUN in sizes else []
        keys += [key for steps in checkpoint_keys(self.store).values() for key in steps.values()]
        for key in keys:
            try:
                manifest = read_manifest(self.store, key)
            except DataError:
                self.manifests[key] = b""  # it is written anew, or removed
                continue
            if manifest is None:
                continue
            self.manifests[key] = manifest.to_bytes()
            self.named |= manifest.keys
            self.stored |= {
                part for parts in manifest.files.values() for part in parts if sizes.get(part.key) == part.size
            }
        self.others = {key for key in sizes if key.startswith((f"{OBJECTS}/", f"{MODELS}/"))}

    def state(self) -> State:
        """The files as they are now.

        Raises:
            StorageError: the disk is full.
        """
        links, files = self.folder / LINKS / uuid.uuid4().hex[:8], dict[str, Signature]()
        with clear_os_errors(links):
            for path in [*self.chosen(self.folder), *(self.folder / CHECKPOINTS).glob("*/step-*/*")]:
                name = path.relative_to(self.folder).as_posix()
                try:
                    found = path.stat()
                    if not stat.S_ISREG(found.st_mode):
                        continue
                    signature = (found.st_ino, found.st_size, found.st_mtime_ns)
                    if self.parts.get(name, (None,))[0] != signature:
                        (links / name).parent.mkdir(parents=True, exist_ok=True)
                        _link(path, links / name)
                except FileNotFoundError:
                    continue  # removed since it was listed
                files[name] = signature
        return State(links, files)

    def publish(self, state: State) -> None:
        """Publish a state.

        Raises:
            Changed: one of its files was cut back; nothing was published.
            RunError: another process has taken the run over.
            StorageError: the store does not answer, or cannot be written.
        """
        if not self.lock.held():
            raise RunError(
                f"another process has taken over {self.store.address}",
                f"let that one go on; what this one did is in {self.folder}, and was not published since",
            )
        with ThreadPoolExecutor(AT_ONCE) as each, ThreadPoolExecutor(AT_ONCE) as pool:
            uploaded = each.map(lambda name: self._uploaded(name, state, pool), state.files)
            files = dict(zip(state.files, uploaded, strict=True))
        checkpoints: dict[str, dict[str, tuple[Part, ...]]] = {}
        for name in [*files]:
            top, *middle = name.split("/")
            if top == CHECKPOINTS and len(middle) == 3:
                checkpoints.setdefault(f"{CHECKPOINTS}/{middle[0]}/{middle[1]}.json", {})[name] = files.pop(name)
        run = Manifest(files)
        wanted = {RUN: run, **{key: Manifest(found) for key, found in checkpoints.items()}}
        if self.manifests.get(RUN) != run.to_bytes():
            note = read_note(self.folder)
            write_note(self.folder, {**note, "seen": [*note.get("seen", [])[-1:], run.digest]})
        for key, manifest in wanted.items():
            if self.manifests.get(key) != manifest.to_bytes():
                self.store.write(key, manifest.to_bytes())
                self.named |= manifest.keys
                self.manifests[key] = manifest.to_bytes()
        self._remove(set().union(*(manifest.keys for manifest in wanted.values())), set(wanted))

    def _uploaded(self, name: str, state: State, pool: ThreadPoolExecutor) -> tuple[Part, ...]:
        """The parts of a file, each of which is then at the address."""
        signature, known = state.files[name], self.parts.get(name)
        if known is not None and known[0] == signature and set(known[1]) <= self.stored:
            return known[1]
        place = state.links / name
        if not place.exists():
            place = self.folder / name  # as it was read before, but not all of it is at the address
        size = signature[1]
        try:
            if key_of(name, "") == name:
                parts: tuple[Part, ...] = (self._model_file(name, place, size),)
            else:
                starts = range(0, size, PART)
                parts = tuple(pool.map(lambda start: self._part(name, place, start, min(PART, size - start)), starts))
        except FileNotFoundError as error:
            raise Changed(name) from error
        self.parts[name] = signature, parts
        return parts

    def _model_file(self, name: str, place: Path, size: int) -> Part:
        part = Part(name, size, hash_of(place))
        if part not in self.stored:
            self.store.put(place, name)
            self._now_there(part)
        return part

    def _part(self, name: str, place: Path, start: int, size: int) -> Part:
        with place.open("rb") as file:
            file.seek(start)
            content = file.read(size)
        if len(content) != size:
            raise Changed(name)
        sha256 = hashlib.sha256(content).hexdigest()
        part = Part(key_of(name, sha256), size, sha256)
        if part not in self.stored:
            self.store.write(part.key, content)
            self._now_there(part)
        return part

    def _now_there(self, part: Part) -> None:
        self.stored.add(part)
        self.others.add(part.key)

    def _remove(self, needed: set[str], manifests: set[str]) -> None:
        """Remove checkpoints that are no more, and objects that neither this publication nor the last one named."""
        for key in set(self.manifests) - manifests:
            self.store.remove([key])
            del self.manifests[key]
        unused = self.others - needed - self.named
        self.store.remove(sorted(unused))
        self.others -= unused
        self.stored = {part for part in self.stored if part.key not in unused}
        self.named = needed


def _link(path: Path, place: Path) -> None:
    try:
        os.link(path, place)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links
        shutil.copy2(path, place)


def read_note(folder: Path) -> dict[str, list[str]]:
    """What a working folder last knew of its address; empty where it stands for none."""
    path = folder / NOTE
    return read_object(path) if path.is_file() else {}


def write_note(folder: Path, values: Mapping[str, object]) -> None:
    """Keep what is known of the address."""
    write_json(folder / NOTE, dict(values))
