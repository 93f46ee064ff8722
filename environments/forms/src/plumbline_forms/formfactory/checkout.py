"""A user's checkout of the FormFactory benchmark: what must be there, what it holds, and which one
it is. Read, never written. What its files do not say about the 25 forms stands in `table.yaml`.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from plumbline.errors import DataError
from plumbline.storage import read_bytes, read_json
from plumbline.tasks.tables import read_table

# -- forms -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BenchmarkForm:
    """One form of the benchmark."""

    id: str
    """Also the name of its template."""
    url: str
    stem: str
    """Of its gold file (`data/data1`) and its documents (`data/data2`)."""
    fields: int
    """Controls that a user sees; a group counts once."""
    records: int = 50
    config: str = ""
    """Where the description is fetched of a form that a script builds; "" where the page itself
    holds the controls."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Gold keys that no label of the page equals, with the name of the field that they mean."""
    unplaced: Mapping[str, str] = field(default_factory=dict)
    """Gold keys that have no field, with the reason."""
    aliases: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By field, values that mean an option which reads otherwise: the value to the option's
    text."""

    @property
    def domain(self) -> str:
        """The first part of its address."""
        return self.url.split("/")[1]

    @property
    def name(self) -> str:
        """The second part of its address: what the form is called here."""
        return self.url.split("/")[2]

    @property
    def gold(self) -> str:
        """Where its gold records are."""
        return f"data/data1/{self.stem}.json"

    @property
    def documents(self) -> str:
        """Where its documents are."""
        return f"data/data2/{self.stem}.txt"


ROWS = tuple(
    BenchmarkForm(key, **row)
    for key, row in read_table(Path(__file__).with_name("table.yaml")).items()
)
NAMES = tuple(row.name for row in ROWS)


def row_of(name: str) -> BenchmarkForm | None:
    """The row of a form by its name or its id; None where there is none."""
    return next((row for row in ROWS if name in {row.name, row.id}), None)


# -- checkout --------------------------------------------------------------------------------------

ADDRESS = "https://github.com/formfactory-ai/formfactory"
_NAMED = 8
"""Missing files that an error names."""
_MARK = re.compile(r"^[ \t]*(\d+)([.)])[ \t]*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout in which everything is that the chosen forms need."""

    root: Path
    digest: str
    """16 hex digits over everything that decides the forms and their records; line breaks count,
    other files do not."""

    def records(self, row: BenchmarkForm) -> list[dict[str, Any]]:
        """The gold records of a form.

        Raises:
            DataError: the file is not a list of JSON objects.
        """
        path = self.root / row.gold
        found = read_json(path)
        if (
            not isinstance(found, list)
            or not found
            or not all(isinstance(record, dict) for record in found)
        ):
            raise DataError(
                f"{path} is not a list of records", f"take a fresh checkout of {ADDRESS}"
            )
        return found


def open_checkout(path: str, rows: Sequence[BenchmarkForm]) -> Checkout:
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
        wanted += [f"templates/{row.id}.html", row.gold, row.documents]
    if missing := [name for name in wanted if not (root / name).is_file()]:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        raise DataError(
            f"{root} is no complete checkout: it lacks {', '.join(missing[:_NAMED])}{more}", fix
        )
    total = hashlib.sha256()
    patterns = ("app.py", "templates/*.html", "data/data1/*.json", "data/data2/*.txt")
    for file in sorted(found for pattern in patterns for found in root.glob(pattern)):
        total.update(file.relative_to(root).as_posix().encode() + b"\0")
        total.update(hashlib.sha256(read_bytes(file)).digest())
    return Checkout(root, total.hexdigest()[:16])


def split_documents(text: str, count: int, source: str) -> tuple[str, ...]:
    """The numbered texts of a file, without their numbers.

    Texts hold numbered lists of their own, so a line that begins with a number begins a text only
    if the number is the one that is due next, with the sign after it that the first one has.

    Args:
        text: of the file.
        count: of the records; text n belongs to record n.
        source: named in errors.

    Raises:
        DataError: there are more or fewer texts than records.
    """
    starts: list[tuple[int, int]] = []
    sign = ""
    for mark in _MARK.finditer(text):
        if int(mark.group(1)) == len(starts) + 1 and mark.group(2) == (sign or mark.group(2)):
            sign = mark.group(2)
            starts.append((mark.start(), mark.end()))
    if len(starts) != count:
        raise DataError(
            f"{source} has {len(starts)} numbered texts for {count} records",
            "use a checkout whose data1 and data2 belong together, or task.options.surface: values",
        )
    ends = [begin for begin, _ in starts[1:]] + [len(text)]
    return tuple(text[begin:end].strip() for (_, begin), end in zip(starts, ends, strict=True))
