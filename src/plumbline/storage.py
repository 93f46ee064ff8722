"""Files that are whole or absent: atomic writes, and readers that name what is wrong with a file.

A write goes to a temporary file beside the target, is flushed to the disk, and is renamed over it:
a reader, a crash or a full disk never sees half of it. Whatever stands in a file that is read
(other bytes than UTF-8, JSON of a hundred thousand levels, a folder in its place) is an error with
the file, the line, the cause and the remedy: `clear_read_errors` is the boundary. No read waits or
fills the memory: `open_regular` opens ordinary files only, and what is read at once has a limit.
Standard library only.
"""

import codecs
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from plumbline.errors import DataError, PlumblineError, StorageError

BOM = "\ufeff"
"""The byte order mark, which some editors put before UTF-8; it says nothing."""
_HALF = re.compile("[\ud800-\udfff]")
"""Half of a pair of surrogates, which no encoding can write."""
_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_OWN_INPUT = re.compile(r"/dev/stdin|/dev/fd/\d+|/proc/self/fd/\d+")
"""What this process was given open: standard input, and the shell's `<(...)`."""
LARGEST = 2**30
"""Bytes of a file that is read at once: a log, a table."""
LARGEST_JSON = 2**28
"""Bytes of a JSON file: an evaluation with all its answers."""
SMALL = 2**24
"""Bytes of a file that people write: a recipe, a configuration, a licence."""
LONGEST_LINE = 2**26
"""Bytes of one line of a file that is read line by line, which may be of any size."""
_LONGEST_INTEGER = 300
"""Digits: with more, an integer is beyond every float, and sums, dates and divisions overflow."""


def dumps(value: object) -> str:
    """JSON on one line, keys in insertion order, Portuguese readable, and no NaN (which is not
    JSON)."""
    return _encodable(
        json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))
    )


def _encodable(text: str) -> str:
    """JSON text whose lone surrogates (a model may write them as escapes) are escapes again."""
    return _HALF.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


@contextmanager
def clear_os_errors(path: Path) -> Iterator[None]:
    """Turn an OSError inside the block into a StorageError that names the path and what to do.

    A write that safetensors could not finish is one too: it comes as an error of that library,
    known here by its name, because this file does not import it.
    """
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__name__ != "SafetensorError":
            raise
        full = "No space left" in str(error) or getattr(error, "errno", None) in {
            errno.ENOSPC,
            errno.EDQUOT,
        }
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
    """Turn whatever a file can do to its reader inside the block into an error of a kind that names
    it.

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
            f"{name} cannot be read: {error.strerror or error}",
            "check what is there, and who may read it",
        ) from error
    except UnicodeDecodeError as error:
        raise kind(f"{name}: not UTF-8 ({error.reason})", "save the file as UTF-8") from error
    except json.JSONDecodeError as error:
        what = f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise kind(f"{name} is not JSON ({what})", "correct the file, or write it again") from error
    except RecursionError as error:
        raise kind(f"{name} is nested too deeply", "give values of fewer levels") from error
    # an integer of 5,000 digits, a path with a NUL, a date of the year 0
    except (ValueError, OverflowError) as error:
        raise kind(
            f"{name} holds what cannot be read: {one_line(error)}", "correct that value"
        ) from error


def one_line(error: object) -> str:
    """What an error or another foreign value says, on one line of at most 300 characters."""
    return " ".join(str(error).split())[:300]


def shorten(text: str, most: int, mark: str = "...", *, words: bool = False) -> str:
    """A text, or its first `most` characters, or whole words of these, and a mark."""
    start = text[:most]
    whole = start.rpartition(" ")[0] if words else ""
    return text if text == start else f"{whole} {mark}" if whole else f"{start}{mark}"


def open_regular(path: Path, kind: type[PlumblineError] = DataError) -> BufferedReader:
    """Open an ordinary file for reading, without waiting for anything.

    What this process was given open (`/dev/stdin`, `/dev/fd/63` of `<(...)`) may be a pipe.

    Args:
        path: of the file; a link to one will do.
        kind: the error.

    Raises:
        kind: it is missing, may not be read, or is a folder, a pipe, a device or a socket.
    """
    with clear_read_errors(path, kind):
        if is_own_input(path):
            return path.open("rb")
        check_regular(path, path.stat().st_mode, kind)
        file = os.fdopen(
            os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), "rb"
        )
        try:
            # it may have been replaced in between
            check_regular(path, os.fstat(file.fileno()).st_mode, kind)
        except BaseException:
            file.close()
            raise
        return file


def is_own_input(path: Path) -> bool:
    """Whether this process was given it open, so that it can be read once."""
    return _OWN_INPUT.fullmatch(str(path)) is not None


_NO_FILES: Mapping[Callable[[int], bool], str] = {
    stat.S_ISDIR: "Is a directory",
    stat.S_ISFIFO: "it is a named pipe",
    stat.S_ISCHR: "it is a device",
    stat.S_ISBLK: "it is a device",
    stat.S_ISSOCK: "it is a socket",
}


def check_regular(path: Path, mode: int, kind: type[PlumblineError]) -> None:
    """Refuse what is no ordinary file, by what its status says.

    Raises:
        kind: it is a folder, a pipe, a device or a socket.
    """
    if not stat.S_ISREG(mode):
        what = next(
            (words for is_one, words in _NO_FILES.items() if is_one(mode)), "it is no ordinary file"
        )
        raise kind(f"{path} cannot be read: {what}", "give an ordinary file in its place")


def read_bytes(path: Path, kind: type[PlumblineError] = DataError, limit: int = LARGEST) -> bytes:
    """Read an ordinary file.

    Args:
        path: of the file.
        kind: the error.
        limit: bytes that it may have.

    Raises:
        kind: see `open_regular`; or it is larger.
    """
    with open_regular(path, kind) as file, clear_read_errors(path, kind):
        large = os.fstat(file.fileno()).st_size > limit
        content = b"" if large else file.read(limit + 1)
    if large or len(content) > limit:
        raise kind(
            f"{path} is too large: it has more than {limit >> 20:,} MiB, which is the most that is "
            "read of such a file",
            "look at what it is, and give a smaller one",
        )
    return content


def sha256_of(path: Path) -> str:
    """The hash of an ordinary file, in hex digits.

    Raises:
        DataError: see `open_regular`.
    """
    with open_regular(path) as file, clear_read_errors(path):
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_begins_with(path: Path, head: str) -> bool:
    """Whether a file's first bytes, blanks before them aside, are these.

    Raises:
        DataError: see `open_regular`.
    """
    with open_regular(path) as file, clear_read_errors(path):
        return file.read(len(head.encode()) + 20).lstrip().startswith(head.encode())


def read_text(path: Path, kind: type[PlumblineError] = DataError, limit: int = LARGEST) -> str:
    """Read a text file, with or without a byte order mark; line breaks come as "\\n".

    Args:
        path: of the file.
        kind: the error.
        limit: bytes that it may have.

    Raises:
        kind: the file is missing, cannot be read, is too large, or is not UTF-8.
    """
    content = read_bytes(path, kind, limit)
    with clear_read_errors(path, kind):
        return decode_text(content).replace("\r\n", "\n").replace("\r", "\n")


def decode_text(content: bytes, errors: str = "strict") -> str:
    """Bytes as text without a byte order mark: UTF-8, or UTF-16 where that mark says so (what
    PowerShell redirects)."""
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and b"\0" in content[:99]
    return content.decode("utf-16" if wide else "utf-8", errors).removeprefix(BOM)


def read_lines(path: Path, kind: type[PlumblineError] = DataError) -> Iterator[bytes]:
    """Yield the lines of a file of any size, each with its end.

    Raises:
        kind: see `open_regular`; or a line is longer than `LONGEST_LINE`.
    """
    with open_regular(path, kind) as file:
        number = 0
        while True:
            with clear_read_errors(path, kind):
                line = file.readline(LONGEST_LINE + 1)
            if not line:
                return
            number += 1
            if len(line) > LONGEST_LINE:
                raise kind(
                    f"{path}:{number} is too long: it has more than {LONGEST_LINE >> 20} MiB in "
                    "one line",
                    "look at what it is, and give a file of shorter lines",
                )
            yield line


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
        StorageError: the disk is full or the folder cannot be written; the old file, if any, is
            untouched.
    """
    with clear_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            with beside.open("xb") as file:  # whose permissions the umask decides
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


@contextmanager
def folder_beside(folder: Path) -> Iterator[Path]:
    """A new folder beside another, to be filled and then renamed; what is left of it goes."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp"))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def apply_umask(folder: Path) -> None:
    """Give a folder that was made for its owner alone, and the files in it, the permissions that
    new ones have.

    `tempfile` and safetensors make what only the owner may read.
    """
    probe = folder / f".{secrets.token_hex(4)}.tmp"
    with probe.open("xb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    probe.unlink()
    for path in folder.iterdir():
        if path.is_file() and not path.is_symlink():
            path.chmod(mode)
    folder.chmod(mode | (mode & 0o444) >> 2)


def write_text(path: Path, content: str) -> None:
    """Write a text file atomically, as UTF-8."""
    write_bytes(path, content.encode())


def write_json(path: Path, value: object) -> None:
    """Write a JSON file atomically, indented for people."""
    write_text(
        path, _encodable(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2)) + "\n"
    )


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        DataError: the file is missing, cannot be read, is not JSON, or holds what
            `clear_read_errors` names.
    """
    text = read_text(path, limit=LARGEST_JSON)
    with clear_read_errors(path):
        return parse_json(text)


def parse_json(text: str | bytes) -> Any:
    """JSON of others as plain values.

    Raises:
        ValueError: it is no JSON, or holds an integer that no float can be as large as.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, parse_int=_integer)


def _integer(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER:
        raise ValueError(
            f"an integer of {'thousands' if len(digits) > 999 else 'hundreds'} of digits"
        )
    return int(digits)


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds one object.

    Raises:
        DataError: see `read_json`; or it holds something else.
    """
    return json_object(read_json(path), str(path))


def find_object(path: Path) -> dict[str, Any]:
    """`read_object`, and nothing where there is no file."""
    return read_object(path) if path.is_file() else {}


def json_object(value: Any, name: str) -> dict[str, Any]:
    """A value of JSON's that must be an object; `name` is where it stands.

    Raises:
        DataError: it is something else.
    """
    if not isinstance(value, dict):
        what = "null" if value is None else type(value).__name__
        raise DataError(
            f"{name}: a JSON object is expected, not {what}", 'write it as {"key": value}'
        )
    return value


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as JSON lines, atomically."""
    write_text(path, "".join(dumps(row) + "\n" for row in rows))


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, row) of a JSON-lines file; blank lines are skipped.

    Raises:
        DataError: the file is missing or cannot be read, or a line is not a JSON object, or holds
            half a character, which no tokenizer takes (the message has file and line).
    """
    for number, text, row in _rows(read_lines(path), str(path)):
        if _ESCAPED_HALF.search(text):
            check_halves(row, f"{path}:{number}")
        yield number, row


def check_halves(row: Mapping[str, Any], where: str) -> None:
    """Refuse a row that holds half a character, which no tokenizer takes.

    Raises:
        DataError: it does.
    """
    if _HALF.search(json.dumps(row, ensure_ascii=False)):
        raise DataError(
            f"{where} holds half of a pair of surrogates (\\ud800 to \\udfff), which is no "
            "character",
            "write that character whole, or leave it out",
        )


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
            "remove the mark: it stands where a file that was saved with one was appended to "
            "another",
        )
    try:
        return json_object(parse_json(text), where)
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

    def __init__(
        self, path: Path, check: Callable[[Mapping[str, Any]], None] | None = None
    ) -> None:
        """Nothing is opened yet.

        Args:
            path: of the file.
            check: raises ValueError for a row that is none of this file's; asked of every row that
                is read.
        """
        self.path, self.check = path, check

    def append(self, row: Mapping[str, Any]) -> None:
        """Append one row.

        Raises:
            StorageError: the disk is full; the rows are those that were there before.
        """
        line = (dumps(row) + "\n").encode()
        # a pipe's reader
        waiting_for_nobody = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        with (
            clear_os_errors(self.path),
            os.fdopen(os.open(self.path, waiting_for_nobody, 0o666), "ab", buffering=0) as file,
        ):
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
        """Cut off a last line without an end, as a crash of the machine may leave it: the next row
        would join it."""
        if not self.path.exists():
            return
        whole = 0
        for line in read_lines(self.path):
            whole += len(line) if line.endswith(b"\n") else 0
        self.truncate(whole)

    def rows(self) -> list[dict[str, Any]]:
        """All whole rows; a last line cut short by a crash is left out.

        Raises:
            DataError: the file cannot be read, or a row is not a JSON object or not what `check`
                wants.
        """
        with clear_read_errors(self.path):
            try:
                self.path.lstat()
            except FileNotFoundError:
                return []
        rows = []
        whole = (line for line in read_lines(self.path) if line.endswith(b"\n"))
        for number, _, row in _rows(whole, str(self.path)):
            if self.check is not None:
                with clear_read_errors(f"{self.path}:{number}"):
                    self.check(row)
            rows.append(row)
        return rows
