"""What stands below the cells of a notebook (.ipynb): tables of metrics, or what a trainer printed.
Nothing is run."""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.readers import console, table
from plumbline.checks.diagnosis.readers.rows import find_series_name
from plumbline.errors import DataError
from plumbline.storage import read_json

_TAG = re.compile(r"<[^<>]{0,1000}>")


def find(path: Path) -> Path | None:
    """The file itself."""
    return path if path.suffix == ".ipynb" and path.is_file() else None


def read(path: Path) -> list[History]:
    """See `Reader.read`: each table is a run; without one, the runs that a trainer printed."""
    outputs = list(_list_outputs(read_json(path)))
    tables = [
        lines
        for kind, text in outputs
        if kind == "html"
        for lines in [_parse_cells(text)]
        if _is_logged(lines)
    ]
    if tables:
        return [
            one
            for number, lines in enumerate(tables, 1)
            for one in table.read_cells(
                lines, path, name=f"table {number}" if len(tables) > 1 else ""
            )
        ]
    printed = "\n".join(text for kind, text in outputs if kind == "plain")
    if not (found := console.parse_lines(printed)):
        raise DataError(
            f"no output in {path} is a log that is known",
            "save the notebook after its training, or the log",
        )
    return console.read_lines(found, path, config={}, folder=None)


def _list_outputs(notebook: Any) -> Iterator[tuple[str, str]]:
    """The outputs of all cells, HTML or plain."""
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    for cell in cells if isinstance(cells, list) else []:
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        for output in outputs if isinstance(outputs, list) else []:
            if isinstance(output, dict):
                data = output.get("data")
                held = data if isinstance(data, dict) else {"text/plain": output.get("text")}
                kind = "text/html" if "text/html" in held else "text/plain"
                text = held.get(kind)
                yield (
                    kind.partition("/")[2],
                    "".join(map(str, text)) if isinstance(text, list) else str(text or ""),
                )


def _parse_cells(text: str) -> list[list[str]]:
    """The cells of the rows of HTML."""
    return [
        [
            html.unescape(_TAG.sub("", cell.partition(">")[2])).strip()
            for cell in re.split(r"<t[hd]\b", row)[1:]
        ]
        for row in re.split(r"<tr\b", text)[1:]
    ]


def _is_logged(lines: list[list[str]]) -> bool:
    names = {find_series_name(name) for name in lines[0]} if len(lines) > 1 else set()
    return bool(names & {"loss", "reward", "eval/loss", "eval/reward"})
