"""Offline run folders of W&B: `run-*.wandb`, or the `files/wandb-history.jsonl` of older versions.

A `.wandb` file is a log of LevelDB (github.com/google/leveldb, doc/log_format.md) with a header of W&B's and plain
CRC-32, and its records are messages of wandb_internal.proto. W&B's own reader is part of a program that it starts; this
one needs nothing of W&B's.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plumbline.diagnosis.history import History
from plumbline.diagnosis.readers.completions import read_beside
from plumbline.diagnosis.readers.protobuf import children, fields
from plumbline.diagnosis.readers.rows import Log, config_beside, only_one
from plumbline.diagnosis.readers.table import read_lines
from plumbline.errors import DataError
from plumbline.storage import read_bytes

_BLOCK = 32768
_HEADER = struct.Struct("<IHB")
"""Of a piece of a record: CRC, length, and whether it is the whole (1), the first (2), a middle one (3) or the last."""
_START = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)


def find(path: Path) -> Path | None:
    """The file itself, that of a run's folder, or that of the one run in a folder of runs.

    Raises:
        DataError: there are several runs; it lists them.
    """
    if path.is_file():
        return path if path.suffix == ".wandb" else None
    for pattern in ("run-*.wandb", "files/wandb-history.jsonl", "wandb-history.jsonl"):
        if found := only_one(list(path.glob(pattern)), path, "runs of W&B"):
            return found
    runs = [run for part in ("", "wandb/") for run in path.glob(f"{part}*run-*/run-*.wandb") if not _is_link(run)]
    return only_one(runs, path, "runs of W&B")


def read(path: Path) -> list[History]:
    """See `Reader.read`. A file that is half written, or damaged, is read as far as it goes."""
    folder = path.parent.parent if path.parent.name == "files" else path.parent
    rows: list[dict[str, Any]] = []
    config = config_beside(folder)
    if path.suffix == ".jsonl":
        rows, skipped = read_lines(path)
    else:
        content = read_bytes(path)
        if not content.startswith(_START):
            raise DataError(f"{path} is no file of W&B", "give a run-*.wandb as W&B wrote it, or its folder")
        records, whole = _records(content)
        skipped = 0 if whole else 1
        for record in records:
            try:
                for number, value in fields(record):
                    if not isinstance(value, bytes):
                        continue
                    if number == 2:
                        rows.append(_items(value, 1))
                    elif number == 17:
                        config |= {k: v for held in children(value, 4) for k, v in _items(held, 1).items()}
                    elif number == 5:
                        config |= _items(value, 1)
            except ValueError:
                skipped += 1
    log = Log(origin="wandb", path=path, rows=rows, config=config, skipped=skipped)
    return [log.history(lambda parts: read_beside(folder, parts))]


def _records(content: bytes) -> tuple[list[bytes], bool]:
    """Records up to the first that is cut or damaged, and whether none was."""
    records: list[bytes] = []
    held: list[bytes] = []
    for piece, kind in _pieces(content):
        if kind == 0:
            return records, False
        held = [piece] if kind in {1, 2} else [*held, piece]
        if kind in {1, 4}:
            records.append(b"".join(held))
            held = []
    return records, not held


def _pieces(content: bytes) -> Iterator[tuple[bytes, int]]:
    """Pieces with their kinds; kind 0 for one that is cut, or whose CRC is wrong, and then no more."""
    at = len(_START)
    while at < len(content):
        if _BLOCK - at % _BLOCK < _HEADER.size:  # zeros up to the next block
            at += _BLOCK - at % _BLOCK
            continue
        if at + _HEADER.size > len(content):
            yield b"", 0
            return
        crc, length, kind = _HEADER.unpack_from(content, at)
        at += _HEADER.size
        piece = content[at : at + length]
        at += length
        if len(piece) < length or not 1 <= kind <= 4 or zlib.crc32(bytes([kind]) + piece) != crc:
            yield b"", 0
            return
        yield piece, kind


def _items(message: bytes, number: int) -> dict[str, Any]:
    """Keys (field 1, or the pieces of a path in field 2) with values as JSON (field 16)."""
    found = {}
    for item in children(message, number):
        key, nested, value = b"", [], None
        for one, part in fields(item):
            if isinstance(part, bytes):
                if one == 1:
                    key = part
                elif one == 2:
                    nested.append(part)
                elif one == 16:
                    value = part
        if value is not None:
            try:
                found["/".join(one.decode() for one in nested) or key.decode()] = json.loads(value)
            except RecursionError as error:
                raise ValueError("nested too deeply") from error
    return found


def _is_link(run: Path) -> bool:
    """`latest-run` is a link to one of the others."""
    return run.parent.is_symlink()
