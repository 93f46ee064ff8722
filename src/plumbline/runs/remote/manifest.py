"""Which files there are at an address, of which parts, with the sha256 of each.

    run.json                            the run's files but for its checkpoints
    checkpoints/rl/step-000040.json     those of one checkpoint
    objects/SHA256                      a part of a file, by its content
    models/rl/model.safetensors         files of models lie under their own names, for other tools

A manifest is written after everything that it names, and in one write: who reads one finds all of it or none. A file is
cut into parts of `PART` bytes, so that of one that only grows the last part alone is written anew. Files of models are
written once and are one part each.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from plumbline.errors import DataError

RUN, CHECKPOINTS, OBJECTS, MODELS = "run.json", "checkpoints", "objects", "models"
PART = 8 << 20
"""Bytes of a part."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a file: where it is stored, how long it is [bytes], and what it must hash to."""

    key: str
    size: int
    sha256: str


Files = Mapping[str, tuple[Part, ...]]
"""Parts by the file's path below the run, with / between folders."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A list of files, and the hash of the list itself."""

    files: Files

    @property
    def digest(self) -> str:
        """The sha256 of the list: equal where all files are."""
        return hashlib.sha256(_dumped(self.files)).hexdigest()

    @property
    def keys(self) -> set[str]:
        """Everything that it needs."""
        return {part.key for parts in self.files.values() for part in parts}

    def to_bytes(self) -> bytes:
        """As JSON."""
        return b'{"version": 1, "sha256": "' + self.digest.encode() + b'",\n"files": ' + _dumped(self.files) + b"}\n"


_SHA256 = re.compile("[0-9a-f]{64}")


def parse(content: bytes, name: str) -> Manifest:
    """The manifest in bytes; `name` is what an error calls it.

    Raises:
        DataError: it is damaged, of another version, or names files outside of its folder.
    """
    try:
        values = json.loads(content)
        version, said = values["version"], values["sha256"]
        manifest = Manifest({path: tuple(Part(*part) for part in parts) for path, parts in values["files"].items()})
        whole = said == manifest.digest and all(
            isinstance(part.key, str) and type(part.size) is int and _SHA256.fullmatch(part.sha256)
            for parts in manifest.files.values()
            for part in parts
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{name} is damaged: it is no list of files", "see docs/remote.md on what to do") from error
    if version != 1:
        raise DataError(f"{name} is of version {version}, and this Plumbline reads 1", "use a newer Plumbline")
    if not whole:
        raise DataError(f"{name} is damaged: it does not hash to what it says", "see docs/remote.md on what to do")
    for path in [*manifest.files, *manifest.keys]:
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\\" in path:
            raise DataError(f"{name} names {path!r}, which is outside of its folder", "do not use this run")
    return manifest


def key_of(path: str, sha256: str) -> str:
    """Where a part of a file is stored."""
    return path if path.startswith(f"{MODELS}/") else f"{OBJECTS}/{sha256}"


def _dumped(files: Files) -> bytes:
    plain = {path: [[part.key, part.size, part.sha256] for part in parts] for path, parts in sorted(files.items())}
    return json.dumps(plain, ensure_ascii=True, indent=0).encode()
