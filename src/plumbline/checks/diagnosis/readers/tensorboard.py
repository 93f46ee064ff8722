"""TensorBoard's event files: records of events in the framing of TFRecord, with a step and scalars
each.

Formats: tensorflow.org/tutorials/load_data/tfrecord, and event.proto, summary.proto and
tensor.proto of TensorFlow.
"""

import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.readers.logs import config_beside, read_log
from plumbline.checks.diagnosis.readers.protobuf import (
    parse_children,
    parse_fields,
    to_float,
    to_signed,
)
from plumbline.checks.diagnosis.readers.rows import take_only
from plumbline.errors import DataError
from plumbline.storage import parse_json, read_bytes

_MARK = "tfevents"
_LONG = 4096
"""Bytes of a record of one number: its name and some dozens."""
_CODES = {1: ("f", 4), 2: ("d", 8)}
"""DT_FLOAT and DT_DOUBLE: struct's code, and the bytes of one."""


def find(path: Path) -> Path | None:
    """An event file, or the one folder with some in or below a folder.

    Raises:
        DataError: there are several; it lists them.
    """
    if path.is_file():
        return path if _MARK in path.name else None
    folders = sorted(
        {file.parent for depth in ("*", "*/*", "*/*/*") for file in path.glob(f"{depth}{_MARK}*")}
    )
    return path if path in folders else take_only(folders, path, "runs of TensorBoard")


def read(path: Path) -> list[History]:
    """See `Reader.read`. A run that was resumed has several files; a last record that is half
    written is left out."""
    files = (
        [path] if path.is_file() else sorted(path.glob(f"*{_MARK}*"), key=lambda file: file.name)
    )
    rows: list[dict[str, Any]] = []
    config: dict[str, Any] = {}
    skipped = 0
    for file in files:
        content = read_bytes(file)
        for record in _read_records(content, file):
            try:
                step, values = _parse_event(record)
            except (ValueError, struct.error):
                skipped += 1
                continue
            # transformers' arguments
            if isinstance(text := values.pop("args/text_summary", None), str):
                with suppress(ValueError, RecursionError):
                    config |= arguments if isinstance(arguments := parse_json(text), dict) else {}
            values = {tag: value for tag, value in values.items() if isinstance(value, float)}
            if values:
                rows.append({"step": step, **values})
    folder = path.parent if path.is_file() else path
    # transformers' output folder
    output = folder.parent.parent if folder.parent.name == "runs" else folder
    config = config_beside(output) | config_beside(folder) | config
    return [
        read_log(
            "tensorboard", path, rows, folder=folder, config=config, step="step", skipped=skipped
        )
    ]


def _read_records(content: bytes, file: Path) -> Iterator[bytes]:
    """Length (8 bytes), its CRC (4), that much, its CRC (4); what is not there whole is left out.

    A record whose CRC is wrong comes as a byte that is no message; of those too long for numbers
    (images, texts) the CRC is not looked at.
    """
    at = 0
    while at + 12 <= len(content):
        length = int.from_bytes(content[at : at + 8], "little")
        if _read_crc(content, at + 8) != _masked_crc32c(content[at : at + 8]):
            raise DataError(
                f"{file} is no event file of TensorBoard, or damaged at byte {at}",
                "copy it again, whole",
            )
        at, end = at + 12, at + 12 + length
        if end + 4 > len(content):
            return
        record = content[at:end]
        yield (
            record
            if length > _LONG or _read_crc(content, end) == _masked_crc32c(record)
            else b"\xff"
        )
        at = end + 4


def _read_crc(content: bytes, at: int) -> int:
    return int.from_bytes(content[at : at + 4], "little")


def _crc_row(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC_OF = [_crc_row(byte) for byte in range(256)]


def _masked_crc32c(content: bytes) -> int:
    """CRC-32C (RFC 3720, B.4), rotated and shifted as TFRecord does."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ _CRC_OF[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _parse_event(record: bytes) -> tuple[int, dict[str, float | str]]:
    """The step of an event (field 2), and the values of its summary (field 5, and its field 1) by
    their tags."""
    step = next(
        (
            to_signed(value)
            for number, value in parse_fields(record)
            if number == 2 and isinstance(value, int)
        ),
        0,
    )
    values: dict[str, float | str] = {}
    for summary in parse_children(record, 5):
        for value in parse_children(summary, 1):
            held = dict(parse_fields(value))
            tag = held.get(1)
            if not isinstance(tag, bytes):
                continue
            if isinstance(simple := held.get(2), int):
                values[tag.decode()] = to_float(simple, "f")
            elif (
                isinstance(tensor := held.get(8), bytes)
                and (found := _parse_scalar(tensor)) is not None
            ):
                values[tag.decode()] = found
    return step, values


def _parse_scalar(tensor: bytes) -> float | str | None:
    """The one number or text of a tensor: its type is field 1, and its content field 4, 5 (float),
    6 (double), 8."""
    held = dict(parse_fields(tensor))
    kind = held.get(1)
    if kind == 7 and isinstance(text := held.get(8), bytes):
        return text.decode()
    if kind not in _CODES:
        return None
    code, size = _CODES[kind]
    content = held.get(4) or held.get(5 if code == "f" else 6)
    if isinstance(content, int):  # one that is not packed
        return to_float(content, code)
    return (
        struct.unpack(f"<{code}", content)[0]
        if isinstance(content, bytes) and len(content) == size
        else None
    )
