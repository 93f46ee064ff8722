"""What a router decided: a JSON line for each request, in a file that stays small, and plain counters."""

import json
import logging
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plumbline.errors import StorageError
from plumbline.runs import claims
from plumbline.storage import JsonLines, clear_os_errors, open_regular

KIND = "kind"
"""What a row says first: `decision`, or `shadow`."""
LABELS: Mapping[str, tuple[str, ...]] = {
    "answers": ("job", "model", "status"),
    "refused": (),
    "fallbacks": ("job", "model", "why"),
    "shadows": ("job", "model", "status"),
    "log_rows": ("status",),
}
"""What the words after a counter's name mean. Jobs and models are the table's, so nobody can make counters at will."""

_told = logging.getLogger("plumbline.serve")


class DecisionLog:
    """An append-only file of rows that is renamed to `.1`, `.2`, ... when it is full, and the counters.

    A disk that refuses a row fails no request: the row is counted as lost, and the first of a series is told loudly.
    """

    def __init__(self, path: Path | None = None, *, most_bytes: int = 50_000_000, kept: int = 4) -> None:
        """Open the log.

        Args:
            path: of the file; None counts and writes nothing.
            most_bytes: the file is put aside before a row would be written to one of so many bytes.
            kept: files that were put aside and are kept; with the open one the log takes (kept + 1) * most_bytes.

        Raises:
            StorageError: the place cannot be written, or holds a file that is no decision log.
        """
        self.path, self.most_bytes, self.kept = path, most_bytes, kept
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._failing = False
        if path is None:
            return
        claims.check_file(path, "decision log", _is_log)
        with clear_os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)  # rows of shadows hold answers
            path.open("ab").close()
        JsonLines(path).cut_torn()

    def count(self, *name: str) -> None:
        """Add one to a counter of `LABELS`: its name, and a word for each label."""
        assert len(LABELS[name[0]]) == len(name) - 1, name
        self._counts[name] += 1

    def counts(self) -> Mapping[tuple[str, ...], int]:
        """All counters so far, by name and labels (see `LABELS`)."""
        return dict(self._counts)

    def write(self, kind: str, row: Mapping[str, Any]) -> None:
        """Write a row with the present time, or count it as lost."""
        if self.path is None:
            return
        try:
            self._put_aside(self.path)
            JsonLines(self.path).append(
                {KIND: kind, "time": datetime.now(UTC).isoformat(timespec="milliseconds"), **row}
            )
        except StorageError as error:
            self.count("log_rows", "lost")
            if not self._failing:
                _told.error("the decision log loses rows: %s", error)
            self._failing = True
        else:
            self.count("log_rows", "written")
            self._failing = False

    def _put_aside(self, path: Path) -> None:
        if JsonLines(path).size() < self.most_bytes:
            return
        with clear_os_errors(path):
            for number in range(self.kept - 1, -1, -1):
                old = _numbered(path, number)
                if old.exists():
                    old.replace(_numbered(path, number + 1))
            if self.kept == 0:
                path.unlink()
            path.touch(mode=0o600)


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}") if number else path


def _is_log(path: Path) -> bool:
    """Whether a file begins with a row of ours."""
    with open_regular(path) as file:
        line = file.readline(100_000)
    try:
        row = json.loads(line)
    except ValueError:
        return False
    return isinstance(row, dict) and KIND in row and "time" in row
