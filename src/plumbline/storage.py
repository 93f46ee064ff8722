"""Files that are whole or absent: atomic writes, and JSON lines that name their file and line when malformed.

A write goes to a temporary file beside the target, is flushed to the disk, and is renamed over it: a reader, a
crash or a full disk never sees half of it. Standard library only.
"""

import errno
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from plumbline.errors import DataError, StorageError


def dumps(value: object) -> str:
    """JSON on one line, keys in insertion order, Portuguese readable, and no NaN (which is not JSON)."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))


@contextmanager
def clear_os_errors(path: Path) -> Iterator[None]:
    """Turn an OSError inside the block into a StorageError that names the path and what to do.

    A write that safetensors could not finish is one too: it comes as an error of that library, known here by its name,
    because this file does not import it.
    """
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__name__ != "SafetensorError":
            raise
        free = _free_megabytes(path)
        # By what the error says: what was half written is gone by now, so there may be space again.
        full = "No space left" in str(error) or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        mend = "free some space and start the same command again with --resume" if full else ""
        detail = f" ({free:.0f} MB free on that disk)" if free is not None else ""
        why = getattr(error, "strerror", None) or error
        raise StorageError(f"cannot write {path}: {why}{detail}", mend) from error


def _free_megabytes(path: Path) -> float | None:
    for folder in (path, *path.parents):
        if folder.exists():
            try:
                return shutil.disk_usage(folder).free / 1e6
            except OSError:
                return None
    return None


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries (a rename, a new file) to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically.

    Raises:
        StorageError: the disk is full or the folder cannot be written; the old file, if any, is untouched.
    """
    with clear_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_text(path: Path, content: str) -> None:
    """Write a text file atomically, as UTF-8."""
    write_bytes(path, content.encode())


def write_json(path: Path, value: object) -> None:
    """Write a JSON file atomically, indented for people."""
    write_text(path, json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        DataError: the file is missing or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not JSON: {error}") from error


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as JSON lines, atomically."""
    write_text(path, "".join(dumps(row) + "\n" for row in rows))


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, row) of a JSON-lines file; blank lines are skipped.

    Raises:
        DataError: the file is missing, or a line is not a JSON object (the message has file and line).
    """
    try:
        file = path.open(encoding="utf-8", newline="\n")
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    with file:
        yield from parse_jsonl(file, str(path))


def parse_jsonl(lines: TextIO, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, row) of open JSON lines; `name` is what an error calls them.

    Raises:
        DataError: a line is not UTF-8, not JSON, or not an object.
    """
    number = 0
    try:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(
                    f"{name}:{number}: not JSON ({error.msg} at column {error.colno}): {line.strip()[:80]!r}",
                    "mend or remove that line",
                ) from error
            if not isinstance(row, dict):
                raise DataError(f"{name}:{number}: a JSON object is expected, not {type(row).__name__}")
            yield number, row
    except UnicodeDecodeError as error:
        raise DataError(f"{name}:{number + 1}: not UTF-8 ({error.reason})", "save the file as UTF-8") from error


class JsonLines:
    """An append-only JSON-lines file that can be cut back to a known length after a crash.

    Example:
        rows = JsonLines(path)
        rows.append({"step": 1})
        mark = rows.size()          # remembered in a checkpoint
        rows.truncate(mark)         # on resume: what came after the checkpoint is redone
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, row: Mapping[str, Any]) -> None:
        """Append one row.

        Raises:
            StorageError: the disk is full; the rows are those that were there before.
        """
        line = (dumps(row) + "\n").encode()
        with clear_os_errors(self.path), self.path.open("ab", buffering=0) as file:
            before = file.tell()
            if file.write(line) != len(line):
                file.truncate(before)  # the next row would be written onto half of this one
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def size(self) -> int:
        """Length in bytes; 0 where there is no file yet."""
        return self.path.stat().st_size if self.path.exists() else 0

    def truncate(self, size: int) -> None:
        """Cut the file back to `size` bytes."""
        if self.size() > size:
            os.truncate(self.path, size)

    def cut_torn(self) -> None:
        """Cut off a last line without an end, as a crash of the machine may leave it: the next row would join it."""
        if self.path.exists():
            self.truncate(self.path.read_bytes().rfind(b"\n") + 1)

    def rows(self) -> list[dict[str, Any]]:
        """All whole rows; a last line cut short by a crash is left out."""
        if not self.path.exists():
            return []
        text = self.path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1].decode()
        return [row for _, row in parse_jsonl(io.StringIO(whole), str(self.path))]
