"""Files that are whole or absent: atomic writes, and readers that name what is wrong with a file.

A write goes to a temporary file beside the target, is flushed to the disk, and is renamed over it: a reader, a
crash or a full disk never sees half of it. Whatever stands in a file that is read (other bytes than UTF-8, JSON of a
hundred thousand levels, a folder in its place) is an error with the file, the line, the cause and the remedy:
`clear_read_errors` is the boundary. Standard library only.
"""

import errno
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plumbline.errors import DataError, PlumblineError, StorageError

BOM = "\ufeff"
"""The byte order mark, which some editors put before UTF-8; it says nothing."""
_HALF = re.compile("[\ud800-\udfff]")
"""Half of a pair of surrogates, which no encoding can write."""
_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def dumps(value: object) -> str:
    """JSON on one line, keys in insertion order, Portuguese readable, and no NaN (which is not JSON)."""
    return _encodable(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": ")))


def _encodable(text: str) -> str:
    """JSON text whose lone surrogates (a model may write them as escapes) are escapes again."""
    return _HALF.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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
        full = "No space left" in str(error) or getattr(error, "errno", None) in {errno.ENOSPC, errno.EDQUOT}
        free = _free_megabytes(path) if full else None
        detail = f" ({free:.0f} MB free on that disk)" if free is not None else ""
        raise StorageError(
            f"cannot write {path}: {getattr(error, 'strerror', None) or error}{detail}",
            "free some space and start the same command again with --resume"
            if full
            else "give another place, or make this one writable",
        ) from error


def _free_megabytes(path: Path) -> float | None:
    for folder in (path, *path.parents):
        if folder.exists():
            try:
                return shutil.disk_usage(folder).free / 1e6
            except OSError:
                return None
    return None


@contextmanager
def clear_read_errors(name: object, kind: type[PlumblineError] = DataError) -> Iterator[None]:
    """Turn whatever a file can do to its reader inside the block into an error of a kind that names it.

    Args:
        name: what the error calls it: a path, or a path and a line.
        kind: the error.
    """
    try:
        yield
    except PlumblineError:
        raise
    except FileNotFoundError as error:
        raise kind(f"{name} does not exist", "check the path") from error
    except OSError as error:
        raise kind(
            f"{name} cannot be read: {error.strerror or error}", "check what is there, and who may read it"
        ) from error
    except UnicodeDecodeError as error:
        raise kind(f"{name}: not UTF-8 ({error.reason})", "save the file as UTF-8") from error
    except json.JSONDecodeError as error:
        what = f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise kind(f"{name} is not JSON ({what})", "correct the file, or write it anew") from error
    except RecursionError as error:
        raise kind(f"{name} is nested too deeply", "give values of fewer levels") from error
    except ValueError as error:  # an integer of 5,000 digits, a path with a NUL
        what = "an integer of thousands of digits" if "integer string" in str(error) else one_line(error)
        raise kind(f"{name} holds what cannot be read: {what}", "correct that value") from error


def one_line(error: BaseException) -> str:
    """What an error says, on one line of at most 300 characters."""
    return " ".join(str(error).split())[:300]


def read_text(path: Path, kind: type[PlumblineError] = DataError) -> str:
    """Read a text file, with or without a byte order mark.

    Raises:
        kind: the file is missing, cannot be read, or is not UTF-8.
    """
    with clear_read_errors(path, kind):
        return path.read_text(encoding="utf-8").removeprefix(BOM)


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
    write_text(path, _encodable(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2)) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        DataError: the file is missing, cannot be read, is not JSON, or holds what `clear_read_errors` names.
    """
    text = read_text(path)
    with clear_read_errors(path):
        return json.loads(text)


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds one object.

    Raises:
        DataError: see `read_json`; or it holds something else.
    """
    return _object(read_json(path), str(path))


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        what = "null" if value is None else type(value).__name__
        raise DataError(f"{name}: a JSON object is expected, not {what}", 'write it as {"key": value}')
    return value


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as JSON lines, atomically."""
    write_text(path, "".join(dumps(row) + "\n" for row in rows))


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, row) of a JSON-lines file; blank lines are skipped.

    Raises:
        DataError: the file is missing or cannot be read, or a line is not a JSON object, or holds half a character,
            which no tokenizer takes (the message has file and line).
    """
    with clear_read_errors(path):
        file = path.open("rb")
    with file:
        for number, text, row in _rows(file, str(path)):
            if _ESCAPED_HALF.search(text) and _HALF.search(json.dumps(row, ensure_ascii=False)):
                raise DataError(
                    f"{path}:{number} holds half of a pair of surrogates (\\ud800 to \\udfff), which is no character",
                    "write that character whole, or leave it out",
                )
            yield number, row


def _rows(lines: Iterable[bytes], name: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield (line number from 1, line, row); `name` is what an error calls the file."""
    for number, line in enumerate(lines, 1):
        where = f"{name}:{number}"
        with clear_read_errors(where):
            text = line.decode()
            if number == 1:
                text = text.removeprefix(BOM)
            if not text.strip():
                continue
            row = _line(text, where)
        yield number, text, row


def _line(text: str, where: str) -> dict[str, Any]:
    """The object on one line."""
    if text.startswith(BOM):
        raise DataError(
            f"{where} begins with a byte order mark",
            "remove the mark: it stands where a file that was saved with one was appended to another",
        )
    try:
        return _object(json.loads(text), where)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{where}: not JSON ({error.msg} at column {error.colno}): {text.strip()[:80]!r}",
            "correct or remove that line",
        ) from error


class JsonLines:
    """An append-only JSON-lines file that can be cut back to a known length after a crash.

    Example:
        rows = JsonLines(path)
        rows.append({"step": 1})
        mark = rows.size()          # remembered in a checkpoint
        rows.truncate(mark)         # on resume: what came after the checkpoint is redone
    """

    def __init__(self, path: Path, check: Callable[[Mapping[str, Any]], None] | None = None) -> None:
        """Nothing is opened yet.

        Args:
            path: of the file.
            check: raises ValueError for a row that is none of this file's; asked of every row that is read.
        """
        self.path, self.check = path, check

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
        """All whole rows; a last line cut short by a crash is left out.

        Raises:
            DataError: the file cannot be read, or a row is not a JSON object or not what `check` wants.
        """
        with clear_read_errors(self.path):
            try:
                text = self.path.read_bytes()
            except FileNotFoundError:
                return []
        rows = []
        for number, _, row in _rows(io.BytesIO(text[: text.rfind(b"\n") + 1]), str(self.path)):
            if self.check is not None:
                with clear_read_errors(f"{self.path}:{number}"):
                    self.check(row)
            rows.append(row)
        return rows
