"""Runs of W&B: offline folders with `run-*.wandb`, or the `files/wandb-history.jsonl` of older
versions; and addresses.

A `.wandb` file is a log of LevelDB (github.com/google/leveldb, doc/log_format.md) with a header of
W&B's and plain CRC-32, and its records are messages of wandb_internal.proto. W&B's own reader is
part of a program that it starts; this one needs nothing of W&B's. The run at an address is read by
W&B's own client.
"""

import importlib
import os
import re
import struct
import zlib
from pathlib import Path
from typing import Any

from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.readers.logs import config_beside, read_log
from plumbline.checks.diagnosis.readers.protobuf import parse_children, parse_fields
from plumbline.checks.diagnosis.readers.rows import take_only
from plumbline.checks.diagnosis.readers.table import read_lines
from plumbline.config.imports import missing_module_error
from plumbline.errors import DataError
from plumbline.storage import parse_json, read_bytes

_BLOCK = 32768
_HEADER = struct.Struct("<IHB")
"""Of a piece of a record: CRC, length, and whether it is the whole (1), the first (2), a middle one
(3) or the last."""
_START = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)


_PAGE = re.compile(r"((?:https?://)?([^/\s?#]*))(/[^?#]*)?(?:[?#].*)?")
_NAME = re.compile(r"[\w.%:-]+")


_PUBLIC = frozenset({"wandb.ai", "www.wandb.ai"})
_API = "https://api.wandb.ai"


def is_page(path: str) -> bool:
    """Whether it is an address of W&B: at wandb.ai, at a host of that name, or at the one of
    WANDB_BASE_URL."""
    found = _PAGE.fullmatch(path)
    if found is None:
        return False
    if "://" not in path:
        return found[2].lower() in _PUBLIC and not Path(path).exists()
    return "wandb" in found[2].lower() or found[1].lower() == _base_url_server()


def _base_url_server() -> str:
    """The server of WANDB_BASE_URL, its scheme and host alone; empty without one."""
    found = _PAGE.fullmatch(os.environ.get("WANDB_BASE_URL", ""))
    return found[1].lower() if found is not None and found[2] else ""


def _choose_server(page: str) -> str:
    """Where the client asks for a page, with the user's key: W&B's own server, or that of
    WANDB_BASE_URL.

    Args:
        page: the beginning of its address, before the path.

    Raises:
        DataError: it is another server.
    """
    if page.lower().removeprefix("https://") in _PUBLIC:
        return _API
    if page.lower() == _base_url_server():
        return page
    shown = re.sub(r"//.*@", "//...@", page)
    raise DataError(
        f"{shown} is neither https://wandb.ai nor the server of WANDB_BASE_URL, and it would be "
        "sent your key of W&B",
        "where it is your own server of W&B, set WANDB_BASE_URL to that very address",
    )


def read_page(address: str) -> list[History]:
    """The run at an address, read by W&B's client.

    Raises:
        DataError: it is no run's address, or at a server that is not to have the user's key; the
            client is not installed, or it cannot read the run.
    """
    found = _PAGE.fullmatch(address)
    assert found is not None
    server = _choose_server(found[1])
    places = [place for place in (found[3] or "").split("/") if place]
    if len(places) < 4 or places[2] != "runs" or not all(map(_NAME.fullmatch, places[:4])):
        raise DataError(
            f"{address} is no address of one run of W&B",
            "open the run there, and give its address: https://wandb.ai/ENTITY/PROJECT/runs/ID",
        )
    name = "/".join((*places[:2], places[3]))
    api = "wandb.Api()" if server == _API else f"wandb.Api({{'base_url': {server!r}}})"
    export = (
        "write its history to a file where W&B's client is installed, and check that: "
        'python -c "import json, wandb; [print(json.dumps(row)) for row in '
        f"{api}.run('{name}').scan_history()]\" "
        "> history.jsonl && plumbline check history.jsonl; or export charts of the run's page as "
        "CSV"
    )
    try:
        opened = getattr(importlib.import_module("wandb"), "Api", None)
    except ImportError:
        opened = None
    if opened is None:  # a folder `wandb` of offline runs can be imported, too
        error = missing_module_error(f"the run at {address}", "wandb", DataError)
        raise DataError(
            error.cause, f"{error.fix}, wandb login, then the same command; or {export}"
        )
    try:
        run = opened({"base_url": server}).run(name)
        rows, config, state = [dict(row) for row in run.scan_history()], dict(run.config), run.state
    except Exception as error:  # the client raises what its transport raises
        raise DataError(
            f"W&B's client cannot read {address} ({type(error).__name__}: {error})",
            "check the address, and log in by `wandb login` where the project is not public; or "
            f"{export}",
        ) from error
    finished = state == "finished" if isinstance(state, str) else None
    return [read_log("wandb", address, rows, folder=None, config=config, finished=finished)]


def find(path: Path) -> Path | None:
    """The file itself, that of a run's folder, or that of the one run in a folder of runs.

    Raises:
        DataError: there are several runs; it lists them.
    """
    if path.is_file():
        return path if path.suffix == ".wandb" else None
    for pattern in ("run-*.wandb", "files/wandb-history.jsonl", "wandb-history.jsonl"):
        if found := take_only(list(path.glob(pattern)), path, "runs of W&B"):
            return found
    runs = [run for part in ("", "wandb/") for run in path.glob(f"{part}*run-*/run-*.wandb")]
    # as latest-run is
    return take_only([run for run in runs if not run.parent.is_symlink()], path, "runs of W&B")


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
            raise DataError(
                f"{path} is no file of W&B", "give a run-*.wandb as W&B wrote it, or its folder"
            )
        records, whole = _read_records(content)
        skipped = 0 if whole else 1
        for record in records:
            try:
                for number, value in parse_fields(record):
                    if not isinstance(value, bytes):
                        continue
                    if number == 2:
                        rows.append(_parse_items(value))
                    elif number == 17:
                        config |= {
                            k: v
                            for held in parse_children(value, 4)
                            for k, v in _parse_items(held).items()
                        }
                    elif number == 5:
                        config |= _parse_items(value)
            except ValueError:
                skipped += 1
    return [read_log("wandb", path, rows, folder=folder, config=config, skipped=skipped)]


def _read_records(content: bytes) -> tuple[list[bytes], bool]:
    """Records up to the first that is cut or damaged, and whether none was."""
    records: list[bytes] = []
    held: list[bytes] = []
    at = len(_START)
    while at < len(content):
        if (left := _BLOCK - at % _BLOCK) < _HEADER.size:  # zeros up to the next block
            at += left
            continue
        if at + _HEADER.size > len(content):
            return records, False
        crc, length, kind = _HEADER.unpack_from(content, at)
        at += _HEADER.size
        piece = content[at : at + length]
        at += length
        if len(piece) < length or not 1 <= kind <= 4 or zlib.crc32(bytes([kind]) + piece) != crc:
            return records, False
        if kind in {1, 2}:
            held = []
        held.append(piece)
        if kind in {1, 4}:
            records.append(b"".join(held))
            held = []
    return records, not held


def _parse_items(message: bytes) -> dict[str, Any]:
    """The items in field 1: keys (field 1, or the pieces of a path in field 2) with values as JSON (field 16)."""
    items = {}
    for item in parse_children(message, 1):
        key, path, value = (list(parse_children(item, field)) for field in (1, 2, 16))
        if value:
            try:
                items["/".join(piece.decode() for piece in path) or b"".join(key[-1:]).decode()] = (
                    parse_json(value[-1])
                )
            except RecursionError as error:
                raise ValueError("nested too deeply") from error
    return items
