"""Runs and models at addresses: `scheme://...`, whatever fsspec knows (s3, gs, abfs, file, memory).

    s3://bucket/runs/x/
      run.json                      the manifest: every file of the run, with its size and sha256
      metrics.jsonl.3fa94c02d1e8    a record, named with the beginning of its sha256
      checkpoints/, models/         under their own names, for other tools

The manifest is written after all that it names, in one write, so a reader finds a whole state of
the run or the one before it. Every file is verified as it comes. All else in the package works on
folders of this machine: a run at an address is fetched into the cache to be read, and
`plumbline.runs.remote_sync` writes it. Imported without fsspec, which is asked for where a store is
opened.
"""

import errno
import functools
import hashlib
import itertools
import json
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from plumbline.config.imports import check_reach, missing_module_error
from plumbline.errors import (
    DataError,
    ModelError,
    PlumblineError,
    RecipeError,
    RunError,
    StorageError,
    make_visible,
)
from plumbline.records import group_by_key
from plumbline.storage import (
    LARGEST_JSON,
    check_regular,
    clear_os_errors,
    find_object,
    one_line,
    parse_json,
    read_object,
    sha256_of,
    write_json,
)

RUN, CHECKPOINTS, MODELS = "run.json", "checkpoints", "models"
VERSION = 2
"""Of the manifest."""
NOTE = ".remote.json"
"""In a folder that stands for an address: which one it is, and what was last known of it."""
LIGHT = ("plumbline.json", "config.json")
"""Of a model, what commands read that do not open it."""
WRITTEN_HERE: dict[str, Path] = {}
"""Addresses of runs that this process writes, with the folder in which each works: nothing of them
is fetched."""
OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "memory"})
"""Stores without folders, in which a written object is there whole or not at all."""
AT_ONCE = 4
"""Files that are moved side by side."""
MARKS = ("size", "ETag", "etag", "md5Hash", "mtime", "created")
"""What stores say of a file that changes with it."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.+", re.DOTALL)
_SHA256 = re.compile("[0-9a-f]{64}")
CHECKPOINT = re.compile(rf"{CHECKPOINTS}/([^/]+)/step-0*(\d{{1,18}})(?![^/])")
"""The folder of a checkpoint at the beginning of a path, its stage and its step."""


class ManifestEntry(NamedTuple):
    """A file in a manifest."""

    size: int
    sha256: str


Files = dict[str, ManifestEntry]
"""A manifest: entries by the file's path below the run, with / between folders."""


class DamagedError(DataError):
    """A file at an address that is not there, or is not what was written."""


# -- addresses -------------------------------------------------------------------------------------


def is_address(place: object) -> bool:
    """Whether something is `scheme://...`; everything else is a path."""
    return isinstance(place, str) and _ADDRESS.fullmatch(place) is not None


def parse_address(address: str) -> str:
    """An address as it is kept in records: without a slash at its end.

    Raises:
        RecipeError: it holds a password, which would stand in every record, is no folder's, or
            leads through another file, whose reader may run code of its own (an archive, an index
            of references).
    """
    scheme, _, rest = address.rstrip("/").partition("://")
    if "@" in rest.partition("/")[0]:
        raise RecipeError(
            f"the address {scheme}://...@{rest.partition('@')[2]} holds a user or a password, "
            "which would stand in "
            "every record of the run",
            "leave them out, and give them by the environment or fsspec's configuration "
            "(docs/cluster.md)",
        )
    if "::" in address:
        raise RecipeError(
            f"{address} leads through another file", "fetch that file, and give a folder of it"
        )
    if not rest or ".." in rest.split("/") or address != make_visible(address):
        raise RecipeError(
            f"{address} is no address of a folder", "write it as scheme://place/folder"
        )
    return f"{scheme}://{rest}"


def require_local(place: str, what: str) -> Path:
    """A folder of this machine, for what cannot be written to an address.

    Raises:
        RecipeError: it is an address.
    """
    if is_address(place):
        raise RecipeError(
            f"{what} cannot be written to the address {place}",
            "give a folder of this machine with --out",
        )
    return Path(place)


def join_address(address: str, *parts: str) -> str:
    """An address below an address, or a path below a path."""
    return "/".join([address.rstrip("/"), *parts])


def folder_for(place: str) -> Path:
    """The folder in which a run works: a path itself, of an address `runs/.remote/NAME-HASH` of the
    working directory.

    It is relative, so that a run names its files alike on every machine.

    Raises:
        RecipeError: the address may not be used (see `parse_address`).
    """
    if not is_address(place):
        return Path(place)
    address = parse_address(place)
    return Path(
        "runs", ".remote", f"{_name_of(address)}-{hashlib.sha256(address.encode()).hexdigest()[:8]}"
    )


def _name_of(address: str) -> str:
    return re.sub(r"[^\w.-]", "-", address.rpartition("/")[2]) or "run"


def cache_folder() -> Path:
    """Where fetched files are kept: PLUMBLINE_CACHE, else `plumbline` in the user's cache. It may
    be removed."""
    given = os.environ.get("PLUMBLINE_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(given or f"{home}/plumbline").expanduser()


def portable_path(path: str) -> str:
    """The address of what lies in a folder of ours that stands for one; any other path as it is.

    What a record says of a model must hold on another machine, too. A note counts in the cache and
    in `runs/.remote` of the working directory alone: elsewhere anybody may have left it.
    """
    place = Path(path)
    if is_address(path) or not place.exists():
        return path
    place = place.resolve()
    for home in (cache_folder().resolve(), Path("runs", ".remote").resolve()):
        above = [folder for folder in (place, *place.parents) if home in folder.parents]
        for folder in reversed(above):  # the outermost is the one that we made
            if (folder / NOTE).is_file():
                try:
                    return join_address(
                        str(read_object(folder / NOTE)["address"]), *place.relative_to(folder).parts
                    )
                except (PlumblineError, KeyError):
                    return path
    return path


def is_known(address: str) -> bool:
    """Whether this machine has fetched from an address before, or from one above it."""
    # deeper ones are not ours
    notes = (note for depth in ("*/*", "*/*/*") for note in cache_folder().glob(f"{depth}/{NOTE}"))
    return any(f"{address}/".startswith(f"{read_object(note).get('address')}/") for note in notes)


def check_named(place: str, what: str) -> None:
    """Refuse an address that a file names, unless this machine has fetched from it before.

    Raises:
        UntrustedCodeError: see `check_reach`.
    """
    if is_address(place) and not is_known(place):
        check_reach(place, what)


# -- a store ---------------------------------------------------------------------------------------


class Store:
    """What is stored under an address; keys are paths below it.

    Credentials are fsspec's matter (its configuration, the environment, a cloud's own files): none
    pass through here.

    Raises:
        RecipeError: no such scheme, or no address that may be used.
        ModelError: fsspec, or what it needs for the scheme, is not installed.
    """

    def __init__(self, address: str) -> None:
        self.address = parse_address(address)
        try:
            from fsspec.core import url_to_fs

            self.fs, root = url_to_fs(self.address)
        except ImportError as error:
            module = error.name or getattr(error.__cause__, "name", None) or "fsspec"
            raise missing_module_error(
                f"the address {self.address}", module.partition(".")[0]
            ) from error
        except Exception as error:  # each file system has its own
            raise RecipeError(
                f"{self.address} cannot be used: {one_line(error) or type(error).__name__}",
                "give a scheme that fsspec knows (s3, gs, abfs, file), or a path without ://",
            ) from error
        self.root = str(root).rstrip("/")
        self.atomic = self.address.partition("://")[0] in OBJECT_STORES

    def read(self, key: str) -> bytes | None:
        """The bytes at a key; None where there is nothing."""
        with suppress(FileNotFoundError), self._clear(f"read {key}"):
            return bytes(self.fs.cat_file(self._readable_path(key, LARGEST_JSON)))
        return None

    def get(self, key: str, path: Path, size: int) -> None:
        """Write what is at a key into a file; `size` is what it has.

        Raises:
            DamagedError: it has more (only where a look costs nothing: in a folder of this
                machine).
            FileNotFoundError: there is nothing.
            OSError: this machine's disk is full.
            StorageError: the store does not answer.
        """
        with self._clear(f"read {key}"):
            self.fs.get_file(self._readable_path(key, size), str(path))

    def write(self, key: str, content: bytes | Path) -> None:
        """Write bytes or a file in place of what is there: the new content is there whole, or the
        old still is.

        Raises:
            FileNotFoundError: there is no such file, or no such place (a bucket).
            StorageError: the store does not answer, or refuses.
        """
        at = self._key_path(key)
        beside = at if self.atomic else f"{at}.{secrets.token_hex(4)}.tmp"
        with self._clear(f"write {key}"):
            if not self.atomic:
                self.fs.makedirs(at.rpartition("/")[0], exist_ok=True)
            try:
                if isinstance(content, Path):
                    self.fs.put_file(str(content), beside)
                else:
                    self.fs.pipe_file(beside, content)
                if beside != at:
                    self.fs.mv(beside, at)
            except BaseException:
                if beside != at and self.fs.exists(beside):
                    self.fs.rm_file(beside)
                raise

    def list_objects(self) -> dict[str, dict[str, Any]]:
        """The keys, with what the store says of each (`size`, a mark such as `ETag`)."""
        with suppress(FileNotFoundError), self._clear("list what is"):
            self.fs.invalidate_cache()
            below = len(self.root) + 1
            return {
                name[below:]: said
                for name, said in self.fs.find(self.root, detail=True).items()
                if name[below:]
            }
        return {}

    def sizes(self) -> dict[str, int]:
        """The keys, with their sizes in bytes."""
        return {key: int(said["size"] or 0) for key, said in self.list_objects().items()}

    def remove(self, keys: Iterable[str]) -> None:
        """Remove what is at keys; what is gone already is well."""
        for key in keys:
            with suppress(FileNotFoundError), self._clear(f"remove {key}"):
                self.fs.rm_file(self._key_path(key))

    def _key_path(self, key: str) -> str:
        return f"{self.root}/{key}"

    def _readable_path(self, key: str, most: int) -> str:
        """Where a key is read; in a folder of this machine a pipe would be waited for, and a device
        has no end."""
        if getattr(self.fs, "local_file", False):
            status = Path(self._key_path(key)).stat()
            check_regular(Path(self._key_path(key)), status.st_mode, StorageError)
            if status.st_size > most:
                raise DamagedError(
                    f"{key} at {self.address} is damaged: it has {status.st_size} bytes, and at "
                    f"most {most} are read",
                    "see docs/cluster.md on what to do",
                )
        return self._key_path(key)

    @contextmanager
    def _clear(self, what: str) -> Iterator[None]:
        """Turn what a store raises into a StorageError, but for a missing file and a full disk."""
        try:
            yield
        except Exception as error:
            full = getattr(error, "errno", None) in {errno.ENOSPC, errno.EDQUOT}
            if isinstance(error, FileNotFoundError | PlumblineError) or full:
                raise
            raise StorageError(
                f"cannot {what} at {self.address}: {one_line(error) or type(error).__name__}",
                "check the address, the network, and what the store is told about you "
                "(docs/cluster.md)",
            ) from error


# -- a run in a store ------------------------------------------------------------------------------


def storage_key(path: str, sha256: str) -> str:
    """Where a file of a run is stored. What is written once has its own name; each state of a
    record has another."""
    return (
        path if path.startswith(f"{MODELS}/") or CHECKPOINT.match(path) else f"{path}.{sha256[:12]}"
    )


def manifest_bytes(files: Files) -> bytes:
    """A manifest as it is stored."""
    return json.dumps({"version": VERSION, "files": dict(sorted(files.items()))}, indent=0).encode()


def parse_manifest(content: bytes, name: str) -> Files:
    """The manifest in bytes; `name` is what an error calls it.

    Raises:
        DataError: it is damaged, of another version, or names files outside of its folder.
    """
    try:
        values = parse_json(content)
        version = values["version"]
        files = (
            {path: ManifestEntry(*entry) for path, entry in values["files"].items()}
            if version == VERSION
            else {}
        )
        whole = all(
            type(size) is int and _SHA256.fullmatch(sha256) for size, sha256 in files.values()
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        version, files, whole = VERSION, {}, False
    if version == 1:
        raise DataError(
            f"{name} is of a former layout, which this Plumbline does not read",
            "put the run again: remove what is at the address, and --resume where the run's "
            "working folder still is",
        )
    if version != VERSION:
        raise DataError(
            f"{name} is of version {version}, and this Plumbline reads {VERSION}",
            "use a newer Plumbline",
        )
    if not whole:
        raise DataError(
            f"{name} is damaged: it is no list of files", "see docs/cluster.md on what to do"
        )
    for path in files:
        if not _is_inside(path):
            raise DataError(
                f"{name} names {path!r}, which is outside of its folder, or a file of Plumbline's "
                "own",
                "do not use this run",
            )
    return files


def _is_inside(path: str) -> bool:
    """Whether a path that others name is one below a folder, plainly written, and no file that we
    keep there."""
    # some file systems know no other difference
    parts = [part.rstrip(". ") for part in path.casefold().split("/")]
    ours = NOTE in parts or parts == [RUN] or any(part.endswith(".tmp") for part in parts)
    return "" not in parts and "\\" not in path and path == make_visible(path) and not ours


def read_manifest(store: Store) -> Files:
    """The manifest of the run in a store; empty where there is no run.

    Raises:
        DataError: see `parse_manifest`.
        StorageError: the store does not answer.
    """
    content = store.read(RUN)
    return {} if content is None else parse_manifest(content, join_address(store.address, RUN))


def fetch_files(store: Store, files: Files, folder: Path) -> None:
    """Bring files of a manifest into a folder; each is there whole, or not at all, and one that is
    there stays.

    Raises:
        DamagedError: names a file that is not what was written.
        StorageError: the store does not answer, or this machine's disk is full.
    """

    def bring(path: str) -> None:
        place, (size, sha256) = folder / path, files[path]
        key, what = storage_key(path, sha256), ""
        with clear_os_errors(place):
            if place.is_file() and place.stat().st_size == size and sha256_of(place) == sha256:
                return
            place.parent.mkdir(parents=True, exist_ok=True)
            beside = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
            try:
                store.get(key, beside, size)
                if (came := beside.stat().st_size) != size:
                    what = f"{key} has {came} bytes, and {size} were written"
                elif sha256_of(beside) != sha256:
                    what = f"{key} hashes to something else than what was written"
                else:
                    beside.replace(place)
            except FileNotFoundError:
                what = f"{key} is not there"
            finally:
                beside.unlink(missing_ok=True)
        if what:
            raise DamagedError(
                f"{path} at {store.address} is damaged: {what}", _damage_remedy(store, files, path)
            )

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(bring, files))


def _damage_remedy(store: Store, files: Files, path: str) -> str:
    """What to do about a damaged file; a checkpoint can be given up for the one before it."""
    if (found := CHECKPOINT.match(path)) is None:
        return (
            "restore that object from the store's older versions; or, where the run's working "
            "folder still is, remove "
            "the object and --resume there, which writes it again (docs/cluster.md)"
        )
    stage, step = found[1], int(found[2])
    before = max((one for one in _contents(files)[1].get(stage, ()) if one < step), default=None)
    where = "begins the stage again" if before is None else f"resumes from step {before}"
    return f"remove {join_address(store.address, found[0])}, and the same command with --resume {where}"


# -- what is read from there -----------------------------------------------------------------------


def local_run(place: str | Path) -> Path:
    """The folder of a run: a path as it is, an address as what was last published there (records,
    not weights).

    An address inside a run (an evaluation's file) gives that file.

    Raises:
        RunError: there is no run at the address.
        DataError: a file there is damaged.
        StorageError: the store does not answer.
    """
    if not is_address(place):
        return Path(place)
    run, inside = _run_of(parse_address(str(place)))
    if run is None:
        raise RunError(
            f"there is no run at {place}",
            "check the address: `plumbline runs` lists those below one",
        )
    found = _fetch_run_files(run, _is_record) / inside
    if not found.exists():
        raise RunError(f"there is no {inside} in the run at {run.address}", "check the address")
    return found


def local_runs(places: Sequence[str | Path]) -> list[Path]:
    """The same for several; an address may also be of a folder that holds runs, up to two levels
    below it.

    Raises:
        RunError: there is no run at an address.
    """
    found: list[Path] = []
    for place in places:
        if not is_address(place) or _run_of(parse_address(str(place)))[0] is not None:
            found.append(local_run(place))
            continue
        store = Store(str(place))
        runs = [
            key.removesuffix(f"/{RUN}") for key in sorted(store.sizes()) if key.endswith(f"/{RUN}")
        ]
        if not runs:
            raise RunError(f"there is no run at {store.address}, nor below it", "check the address")
        found += [local_run(join_address(store.address, run)) for run in runs if run.count("/") < 2]
    return found


@functools.cache
def local_model(source: str) -> str:
    """Where a model is on this machine: at an address it is fetched once, all else is as it is
    given.

    Raises:
        ModelError: there is no model at the address; says what is there instead.
        DataError: a file there is damaged.
        StorageError: the store does not answer, or this disk is full.
    """
    if not is_address(source):
        return source
    address = parse_address(source)
    for written, folder in WRITTEN_HERE.items():
        if address.startswith(f"{written}/"):
            return str(folder / address.removeprefix(f"{written}/"))
    run, inside = _run_of(address)
    if run is None:
        return str(_plain_model(address))
    files = read_manifest(run)
    if not inside.startswith(f"{MODELS}/") or not any(
        path.startswith(f"{inside}/") for path in files
    ):
        raise ModelError(f"there is no model at {address}", _list_alternatives(files, inside))
    wanted = (f"{inside}/", "data/")
    return str(
        _fetch_run_files(run, lambda path: _is_record(path) or path.startswith(wanted)) / inside
    )


def _run_of(address: str) -> tuple[Store | None, str]:
    """The run that an address is of, or lies in, and the path inside of it; None where there is
    none."""
    scheme, _, rest = address.partition("://")
    parts = rest.split("/")
    for depth in range(len(parts), max(0, len(parts) - 4), -1):
        store = Store(f"{scheme}://{'/'.join(parts[:depth])}")
        if read_manifest(store):
            return store, "/".join(parts[depth:])
    return None, ""


def _is_record(path: str) -> bool:
    """Whether reports, checks and comparisons read a file of a run."""
    top, _, rest = path.partition("/")
    return top not in {MODELS, "data", CHECKPOINTS} or (
        top == MODELS and rest.rpartition("/")[2] in LIGHT
    )


def _fetch_run_files(run: Store, wanted: Callable[[str], bool]) -> Path:
    """The folder in the cache that stands for a run, with at least the wanted files as they are
    now."""
    place = cache_folder() / "runs" / _hash(run.address) / _name_of(run.address)
    note, before = place / NOTE, Files()
    known = find_object(note).get("files")
    while True:
        manifest = read_manifest(run)
        try:
            fetch_files(
                run, {path: entry for path, entry in manifest.items() if wanted(path)}, place
            )
            break
        except DamagedError:  # it may be that the run went on meanwhile
            if manifest == before:
                raise
            before = manifest
    with clear_os_errors(place):
        for path in known if isinstance(known, list) else ():
            inside = isinstance(path, str) and _is_inside(path) and path not in manifest
            # through no link
            if inside and (place / path).parent.resolve().is_relative_to(place.resolve()):
                (place / path).unlink(missing_ok=True)
    write_json(note, {"address": run.address, "files": sorted(manifest)})
    return place


def _plain_model(address: str) -> Path:
    """A model that no run of ours published: a directory with a config.json or an adapter, or a
    GGUF file.

    There is no hash that it could be verified by, so it is known by the sizes and marks that the
    store gives its files.
    """
    parent, _, name = address.rpartition("/")
    gguf = address.lower().endswith(".gguf")
    store = Store(parent if gguf else address)
    there = {
        key: said
        for key, said in store.list_objects().items()
        if (key == name if gguf else "/" not in key)
    }
    there = {key: said for key, said in there.items() if _is_inside(key)}
    if not {name if gguf else "config.json", "adapter_config.json"} & set(there):
        holds = f"it holds {', '.join(sorted(there)[:3])}" if there else "nothing is there"
        raise ModelError(f"there is no model at {address}", f"check the address: {holds}")
    marks = [[key, *(str(there[key].get(name, "")) for name in MARKS)] for key in sorted(there)]
    place = cache_folder() / "models" / _hash(address, *itertools.chain(*marks)) / name
    folder = place.parent if gguf else place
    for key, said in there.items():
        if not (folder / key).is_file():
            with clear_os_errors(folder / key):
                folder.mkdir(parents=True, exist_ok=True)
                beside = folder / f".{key}.tmp"
                try:
                    store.get(key, beside, int(said["size"] or 0))
                except FileNotFoundError as error:
                    raise ModelError(
                        f"{key} at {address} has gone while it was read", "try again"
                    ) from error
                if beside.stat().st_size != said["size"]:
                    raise DataError(
                        f"{key} at {address} came with another size than it has there", "try again"
                    )
                beside.replace(folder / key)
    write_json(folder / NOTE, {"address": store.address})
    return place


def _hash(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]


# -- what is there in place of a model that is not -------------------------------------------------


def _contents(paths: Collection[str]) -> tuple[list[str], dict[str, list[int]]]:
    """The models of finished stages among the files of a run, and the steps of the checkpoints by
    stage."""
    models = sorted({path.split("/")[1] for path in paths if path.startswith(f"{MODELS}/")})
    found = {(match[1], int(match[2])) for match in map(CHECKPOINT.match, paths) if match}
    return models, group_by_key(sorted(found))


def _list_alternatives(paths: Collection[str], asked: str) -> str:
    """What of models and checkpoints is there, in words; of the checkpoint that is asked for the
    nearest two first."""
    models, steps = _contents(paths)
    said = [
        f"{stage} has checkpoints: step {', step '.join(map(str, of))}"
        for stage, of in steps.items()
    ]
    wanted = CHECKPOINT.match(asked)
    if wanted and (there := steps.get(wanted[1])):
        near = sorted(sorted(there, key=lambda step: (abs(step - int(wanted[2])), step))[:2])
        said = [
            (
                f"the nearest to step {int(wanted[2])} of {wanted[1]}: step "
                f"{', step '.join(map(str, near))}"
            )
        ]
    said.append(f"models of finished stages: {', '.join(models) or 'none'}")
    return (
        f"{'; '.join(said)}. A checkpoint is no model: --resume of its run continues from the last "
        "one to a model"
    )


def list_alternatives(path: Path) -> str | None:
    """The same for a path in a run's folder; None where it is in none, or names no checkpoint and
    no model."""
    run = next((one for one in path.parents if (one / "recipe.yaml").is_file()), None)
    inside = "" if run is None else path.relative_to(run).as_posix()
    if run is None or not inside.startswith((CHECKPOINTS, MODELS)):
        return None
    there = [*run.glob(f"{CHECKPOINTS}/*/step-*/state.json"), *run.glob(f"{MODELS}/*/{LIGHT[0]}")]
    return _list_alternatives([found.relative_to(run).as_posix() for found in there], inside)
