"""`plumbline parse`: the lenient reading of many texts, one line of output each."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from plumbline.errors import DataError
from plumbline.storage import LARGEST_JSON, clear_read_errors, read_json, read_jsonl
from plumbline.tasks.text import lenient_json
from plumbline.tasks.text.json_schema import Schema


def parse_lines(
    file: Path | None, stdin: TextIO | None, schema: Path | None
) -> Iterator[dict[str, Any]]:
    """Read each row's text.

    Args:
        file: JSON lines of {"id", "text"}; None (or "-") takes standard input as one plain text.
        stdin: standard input; None where it is closed.
        schema: a JSON Schema file, or None.

    Yields:
        {"id", "value", "how"}: the value that was meant, or null; how it was read.

    Raises:
        DataError: a row without id and text (with file and line), or a schema that is none.
    """
    typed = None if schema is None else Schema.from_json(read_json(schema))
    for identity, text in _texts(file, stdin):
        reading = lenient_json.read_json(text, typed)
        yield {"id": identity, "value": reading.value, "how": reading.how}


def _texts(file: Path | None, stdin: TextIO | None) -> Iterator[tuple[Any, str]]:
    if file is None or str(file) == "-":
        if stdin is None:
            raise DataError(
                "there is nothing to read: standard input is closed", "give a file, or a text on it"
            )
        with clear_read_errors("standard input"):  # as UTF-8, whatever the locale says
            read = stdin.buffer.read(LARGEST_JSON + 1) if hasattr(stdin, "buffer") else stdin.read()
            text = read.decode() if isinstance(read, bytes) else read
        if len(text) > LARGEST_JSON:
            raise DataError(
                f"standard input has more than {LARGEST_JSON >> 20} MiB", "give a shorter text"
            )
        yield None, text
        return
    try:
        yield from _rows(file)
    except DataError as error:
        if not file.is_file():
            raise
        raise DataError(
            error.cause, f"{error.fix}; `plumbline parse < FILE` reads a file as one text"
        ) from error


def _rows(file: Path) -> Iterator[tuple[Any, str]]:
    for number, row in read_jsonl(file):
        if not isinstance(row.get("id"), (str, int)) or not isinstance(row.get("text"), str):
            raise DataError(
                f'{file}:{number}: a row needs "id" (text or a number) and "text" (text)',
                "correct that line",
            )
        yield row["id"], row["text"]
