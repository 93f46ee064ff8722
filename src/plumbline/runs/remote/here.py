"""A run's records or a model at an address, in a cache of this machine.

What is fetched is kept by its content (`objects/SHA256`) and verified as it comes; a run is a folder of links to it,
one for each state in which it was published. A model of a run lies in such a folder, too, beside the recipe and the
records that it was trained on, as it would in the run's own.
"""

import functools
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from plumbline.errors import DataError, ModelError, RunError
from plumbline.runs.remote.address import NOTE, cache, checked, is_address, join, name_of
from plumbline.runs.remote.fetch import DamagedError, checkpoint_keys, download, read_manifest
from plumbline.runs.remote.manifest import MODELS, RUN, Files, Manifest
from plumbline.runs.remote.nearest import instead
from plumbline.runs.remote.store import Store
from plumbline.storage import clear_os_errors, write_json

LIGHT = ("plumbline.json", "config.json")
"""Of a model, what commands read that do not open it."""
OLD = 3600.0
"""Seconds after which an earlier state of a run is removed from the cache."""
ATTEMPTS = 3
"""At a run that is being written: what one manifest names may be replaced before it is read."""
WRITTEN_HERE: dict[str, Path] = {}
"""Addresses of runs that this process writes, with the folder in which each works: nothing of them is fetched."""


def local_run(place: str | Path) -> Path:
    """The folder of a run: a path as it is, an address as what was last published there (records, not weights).

    An address inside a run (an evaluation's file) gives that file.

    Raises:
        RunError: there is no run at the address.
        DataError: a file there is damaged.
        StorageError: the store does not answer.
    """
    if not is_address(place):
        return Path(place)
    address = checked(str(place))
    run, inside = _run_of(address)
    if run is None:
        raise RunError(f"there is no run at {address}", "check the address: `plumbline runs` lists those below one")
    folder = _fetched(run, _is_record)
    if inside and not (folder / inside).exists():
        raise RunError(f"there is no {inside} in the run at {run}", "check the address")
    return folder / inside


def local_runs(places: Sequence[str | Path]) -> list[Path]:
    """The same for several; an address may also be of a folder that holds runs, up to two levels below it.

    Raises:
        RunError: there is no run at an address.
    """
    found: list[Path] = []
    for place in places:
        if not is_address(place) or _run_of(checked(str(place)))[0] is not None:
            found.append(local_run(place))
            continue
        store = Store(str(place))
        runs = [key.removesuffix(f"/{RUN}") for key in sorted(store.sizes()) if key.endswith(f"/{RUN}")]
        if not runs:
            raise RunError(f"there is no run at {store.address}, nor below it", "check the address")
        found += [local_run(join(store.address, run)) for run in runs if run.count("/") < 2]
    return found


@functools.cache
def local_model(source: str) -> str:
    """Where a model is on this machine: at an address it is fetched once, all else is as it is given.

    Raises:
        ModelError: there is no model at the address; says what is there instead.
        DataError: a file there is damaged.
        StorageError: the store does not answer, or this disk is full.
    """
    if not is_address(source):
        return source
    address = checked(source)
    for run, folder in WRITTEN_HERE.items():
        if address.startswith(f"{run}/"):
            return str(folder / address.removeprefix(f"{run}/"))
    run_address, inside = _run_of(address)
    if run_address is None:
        return str(_plain_model(address))
    manifest = read_manifest(Store(run_address), RUN)
    if manifest is None or not any(path.startswith(f"{inside}/") for path in manifest.files):
        raise ModelError(f"there is no model at {address}", _instead(run_address, inside, manifest))

    def wanted(path: str) -> bool:
        return _is_record(path) or path.startswith((f"{inside}/", "data/"))

    return str(_fetched(run_address, wanted) / inside)


def _instead(address: str, inside: str, manifest: Manifest | None) -> str:
    """What a run at an address has in place of the model that was asked for."""
    files = manifest.files if manifest is not None else {}
    models = sorted({path.split("/")[1] for path in files if path.startswith(f"{MODELS}/")})
    return instead(models, {stage: list(steps) for stage, steps in checkpoint_keys(Store(address)).items()}, inside)


def _run_of(address: str) -> tuple[str | None, str]:
    """The run that an address is of, or lies in, and the path inside of it; None where there is none."""
    scheme, _, rest = address.partition("://")
    parts = rest.split("/")
    for depth in range(len(parts), max(0, len(parts) - 4), -1):
        run = f"{scheme}://{'/'.join(parts[:depth])}"
        if Store(run).read(RUN) is not None:
            return run, "/".join(parts[depth:])
    return None, ""


def _is_record(path: str) -> bool:
    """Whether reports, checks and comparisons read a file of a run."""
    top, _, rest = path.partition("/")
    return top not in {MODELS, "data", "checkpoints"} or (top == MODELS and rest.rpartition("/")[2] in LIGHT)


def _fetched(address: str, wanted: Callable[[str], bool]) -> Path:
    """The folder in the cache that stands for the run at an address, with at least the wanted files."""
    store, before = Store(address), ""
    for _ in range(ATTEMPTS):
        manifest = read_manifest(store, RUN)
        if manifest is None:
            break
        place = cache() / "runs" / _hash(address) / manifest.digest[:16] / name_of(address)
        files = {path: parts for path, parts in manifest.files.items() if wanted(path)}
        try:
            _materialise(store, files, place)
        except DamagedError:
            if manifest.digest == before:
                raise
            before = manifest.digest  # it may be that the run went on meanwhile
            continue
        write_json(place / NOTE, {"address": address})
        _forget_earlier(place.parent)
        return place
    raise RunError(f"there is no run at {address}", "check the address")


def _materialise(store: Store, files: Files, folder: Path) -> None:
    """Make a folder of links to the cache's files, which are fetched where they are not there yet."""
    kept = cache() / "objects"
    for path, parts in files.items():
        if (folder / path).exists():
            continue
        # Of one part, the file's content is the part's; of several, their hashes name it.
        name = parts[0].sha256 if len(parts) == 1 else _hash(*(part.sha256 for part in parts))
        if not (kept / name).is_file() or (kept / name).stat().st_size != sum(part.size for part in parts):
            try:
                download(store, {name: parts}, kept)
            except DamagedError as error:
                raise DamagedError(error.cause.replace(name, path, 1), error.fix) from error
        with clear_os_errors(folder):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(kept / name, folder / path)
            except FileExistsError:  # another process makes the same folder
                continue
            except OSError:  # a file system without hard links
                shutil.copyfile(kept / name, folder / path)


def _forget_earlier(newest: Path) -> None:
    """Remove earlier states of a run from the cache, but those that somebody may be reading."""
    for place in newest.parent.iterdir():
        if place != newest and place.stat().st_mtime < time.time() - OLD:
            shutil.rmtree(place, ignore_errors=True)


def _plain_model(address: str) -> Path:
    """A model that no run of ours published: a directory with a config.json or an adapter, or a GGUF file.

    There is no hash that it could be verified by, so it is known by the sizes and marks that the store gives its files.
    """
    parent, _, name = address.rpartition("/")
    gguf = address.lower().endswith(".gguf")
    store = Store(parent if gguf else address)
    sizes = {key: size for key, size in store.sizes(name if gguf else "").items() if "/" not in key}
    if not {name if gguf else "config.json", "adapter_config.json"} & set(sizes):
        holds = f"it holds {', '.join(sorted(sizes)[:3])}" if sizes else "nothing is there"
        raise ModelError(f"there is no model at {address}", f"check the address: {holds}")
    marks = {key: store.mark(key) for key in sizes}
    place = cache() / "models" / _hash(address, *(f"{key} {sizes[key]} {marks[key]}" for key in sorted(sizes))) / name
    folder = place.parent if gguf else place
    with clear_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for key in sizes:
        if not (folder / key).is_file() or (folder / key).stat().st_size != sizes[key]:
            beside = folder / f".{key}.tmp"
            with clear_os_errors(beside):
                try:
                    store.get(key, beside)
                except FileNotFoundError as error:
                    raise ModelError(f"{key} at {address} has gone while it was read", "try again") from error
                if beside.stat().st_size != sizes[key]:
                    raise DataError(f"{key} at {address} came with another size than it has there", "try again")
                beside.replace(folder / key)
    write_json(folder / NOTE, {"address": store.address})
    return place


def _hash(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]
