"""A user's checkout of the benchmark: what must be there, what it holds, and which one it is. Read, never written."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plumbline.errors import DataError
from plumbline.storage import parse_json, read_bytes, read_text
from plumbline_forms.formfactory.table import Row

ADDRESS = "https://github.com/formfactory-ai/formfactory"
_NAMED = 8
"""Missing files that an error names."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout in which everything is that the chosen forms need."""

    root: Path
    digest: str
    """16 hex digits over everything that decides the forms and their records."""

    @property
    def app(self) -> Path:
        """The file of the Flask app."""
        return self.root / "app.py"

    def records(self, row: Row) -> list[dict[str, Any]]:
        """The gold records of a form.

        Raises:
            DataError: the file is not a list of JSON objects.
        """
        path = self.root / gold_file(row)
        try:
            found = parse_json(read_text(path))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} cannot be read: {error}", f"take a fresh checkout of {ADDRESS}") from error
        if not isinstance(found, list) or not found or not all(isinstance(record, dict) for record in found):
            raise DataError(f"{path} is not a list of records", f"take a fresh checkout of {ADDRESS}")
        return found

    def documents(self, row: Row) -> str:
        """The file with the documents of a form.

        Raises:
            DataError: it cannot be read.
        """
        path = self.root / documents_file(row)
        try:
            return read_text(path)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} cannot be read: {error}", f"take a fresh checkout of {ADDRESS}") from error


def gold_file(row: Row) -> str:
    """Where the gold records of a form are."""
    return f"data/data1/{row.stem}.json"


def documents_file(row: Row) -> str:
    """Where the documents of a form are."""
    return f"data/data2/{row.stem}.txt"


def open_checkout(path: str, rows: Sequence[Row]) -> Checkout:
    """Look at a checkout.

    Args:
        path: of its folder.
        rows: the forms that are wanted; what belongs to others need not be there.

    Raises:
        DataError: there is no such folder, or files are missing from it.
    """
    root = Path(path).expanduser().resolve()
    fix = f"git clone {ADDRESS}, and name its folder in task.options.path (--path)"
    if not root.is_dir():
        raise DataError(f"there is no folder {root}", fix)
    wanted = ["app.py"]
    for row in rows:
        wanted += [f"templates/{row.id}.html", gold_file(row), documents_file(row)]
    if missing := [name for name in wanted if not (root / name).is_file()]:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        raise DataError(f"{root} is no complete checkout: it lacks {', '.join(missing[:_NAMED])}{more}", fix)
    return Checkout(root, _digest(root))


def _digest(root: Path) -> str:
    """Over app, templates, gold and documents; names and line breaks count, other files do not."""
    total = hashlib.sha256()
    patterns = ("app.py", "templates/*.html", "data/data1/*.json", "data/data2/*.txt")
    for path in sorted(found for pattern in patterns for found in root.glob(pattern)):
        total.update(path.relative_to(root).as_posix().encode() + b"\0")
        total.update(hashlib.sha256(read_bytes(path)).digest())
    return total.hexdigest()[:16]
