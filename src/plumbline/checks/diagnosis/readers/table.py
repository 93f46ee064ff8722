"""Plain tables of metrics: CSV, JSON lines or JSON, as people, trainers and W&B's exports write
them."""

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.readers.completions import (
    MODES,
    column_rows,
    holds_completions,
    is_completions,
)
from plumbline.checks.diagnosis.readers.logs import config_beside, read_log
from plumbline.checks.diagnosis.readers.rows import (
    AT,
    NOTHING,
    TABLE,
    add_steps,
    as_number,
    count_repeats,
    find_series_name,
    prefix_eval,
    refuse_many,
    split_at_restarts,
    take_only,
)
from plumbline.errors import DataError
from plumbline.records import Row, Rows, Values, group_by_key
from plumbline.storage import BOM, clear_read_errors, read_json, read_text

SUFFIXES = frozenset({".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".txt", ".log"})
_NAMES, _RUN, _SPLIT, _TAG = (TABLE["tables"][of] for of in ("files", "run", "split", "tag"))
"""What trainers call the file of their metrics in a folder; columns that say which run a row is of
(any other column of texts may), whether it is of training or of held-out data, and the metric of a
long table."""


_TENSORBOARD = ("wall time", "step", "value")
"""Columns of its downloads, whose JSON has no names."""


def find(path: Path) -> Path | None:
    """A file of a table's kind; in a folder the one of a usual name, or the only one.

    Raises:
        DataError: there are several; it lists them.
    """
    if path.is_file():
        suffix = path.suffix.lower()
        known = suffix in SUFFIXES and (suffix not in {".txt", ".log"} or _is_table(path))
        return path if known and not holds_completions(path) else None
    with clear_read_errors(path):
        files = sorted(
            one for one in path.iterdir() if one.suffix.lower() in SUFFIXES - {".txt", ".log"}
        )
    usual = [file for name in _NAMES for file in files if file.stem.lower() == name]
    if usual:
        return usual[0]
    # A model's folder is full of JSON that is no table.
    tables = [file for file in files if file.suffix.lower() != ".json"]
    return take_only([file for file in tables if not is_completions(file)], path, "tables")


def _is_table(path: Path) -> bool:
    """Whether a text is JSON, or has a line with names of columns, one of which is known."""
    text = read_text(path).lstrip()
    return text.startswith(("{", "[{")) or bool(_skip_to_header(text))


_BLANKS = re.compile(r"(?<=\S) {2,}(?=\S)")


def _skip_to_header(text: str) -> str:
    """A table from the line of its names on, which may stand below what a program said first; empty
    for none.

    What was copied from a terminal has blanks between its columns.
    """
    for number, (line, below) in enumerate(pairwise([*text.split("\n", 101)[:101], ""])):
        blanks = not re.search(r"[,;\t|]", line)
        head, first = ((_BLANKS.sub("\t", one) if blanks else one) for one in (line, below))
        names = head.split(_find_delimiter(head))
        numbers = any(as_number(name) is not None for name in names)
        fits = not first.strip() or len(first.split(_find_delimiter(head))) == len(names)
        if (
            fits
            and not numbers
            and any(find_series_name(_strip_run_name(name)) is not None for name in names)
        ):
            rest = text.split("\n", number)[-1]
            return _BLANKS.sub("\t", rest) if blanks else rest
    return ""


def _find_delimiter(header: str) -> str:
    return max(",;\t|", key=header.count)


def read(path: Path) -> list[History]:
    """See `Reader.read`."""
    suffix = path.suffix.lower()
    if suffix == ".json":
        rows, skipped = _find_rows(read_json(path), path), 0
    elif suffix in {".csv", ".tsv"} or (
        suffix in {".txt", ".log"} and not read_text(path).lstrip().startswith("{")
    ):
        rows, skipped = _parse_separated(path)
    else:
        rows, skipped = read_lines(path)
    return _read_rows(rows, skipped, path)


def read_cells(lines: Sequence[Sequence[str]], path: Path, name: str) -> list[History]:
    """The runs of a table of cells whose first line has the names; of one run under a name."""
    rows, skipped = _parse_cells(lines, "", path)
    return [replace(one, name=name or one.name) for one in _read_rows(rows, skipped, path)]


def _read_rows(rows: Rows, skipped: int, path: Path) -> list[History]:
    runs = _split_runs(_mark_evaluations(_pivot_rows(_name_by_tag(rows, path))))
    refuse_many(len(runs), path)
    several = len(runs) > 1
    if several:
        known = {
            name: of
            for name, of in runs.items()
            if any(find_series_name(key) is not None for row in of for key in row)
        }
        runs = known or runs
    # What lies beside a table of several runs may be of any of them.
    config = {} if several else config_beside(path.parent)
    folder = None if several else path.parent
    return [
        read_log(
            "table",
            path,
            _drop_gaps(of),
            folder=folder,
            config=config,
            skipped=skipped,
            name=name,
        )
        for name, of in runs.items()
    ]


def read_lines(path: Path) -> tuple[list[Values], int]:
    """The objects of JSON lines, and how many lines are none (a last one may be half written).

    Raises:
        DataError: it cannot be read, or no line is an object.
    """
    rows, skipped = [], 0
    for line in read_text(path).split("\n"):
        if not line.strip():
            continue
        try:
            row = json.loads(line.removeprefix(BOM))
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(_flatten_row(row))
        else:
            skipped += 1
    if skipped and not rows:
        raise DataError(
            f"{path}: none of its {skipped} lines is a JSON object",
            "give JSON lines, CSV or a JSON list",
        )
    return rows, skipped


def _flatten_row(row: Row, levels: int = 4) -> Values:
    """A row whose metrics lie some levels deeper (verl's {"step": 1, "data": {...}}), as one."""
    flat: Values = {}
    for key, value in row.items():
        if isinstance(value, dict) and "_type" not in value and levels:
            within = key if key not in {"data", "metrics", "logs"} else ""
            held = _flatten_row(value, levels - 1)
            flat |= {f"{within}/{name}" if within else str(name): one for name, one in held.items()}
        else:  # what is not finite, as some writers of JSON put it
            flat[key] = math.nan if isinstance(value, str) and value.lower() == "nan" else value
    return flat


def _find_rows(value: Any, path: Path) -> list[Values]:
    """A list of rows, bare or under some key, or columns with a list each, or {index: value} as
    pandas has it."""
    if isinstance(value, dict):
        lists = [
            one
            for one in value.values()
            if isinstance(one, list) and one and isinstance(one[0], dict)
        ]
        if len(lists) == 1:
            return _find_rows(lists[0], path)
        if (rows := column_rows(value)) is not None:
            return rows
        if any(
            find_series_name(key) in {"reward", "loss", "eval/reward", "eval/loss"}
            for key in value
            if _is_logged(value[key])
        ):
            return [_flatten_row(value)]  # the last value of each metric, as W&B's summary has it
        columns = {
            key: list(one.values()) if isinstance(one, dict) else one
            for key, one in value.items()
            if isinstance(one, list | dict)
        }
        if columns:
            longest = max(len(column) for column in columns.values())
            return [
                {key: one[at] for key, one in columns.items() if at < len(one)}
                for at in range(longest)
            ]
    if isinstance(value, list) and all(isinstance(row, list) and len(row) == 3 for row in value):
        return [dict(zip(_TENSORBOARD, row, strict=True)) for row in value]
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise DataError(
            f"{path} holds no list of objects",
            "give a list of {metric: value}, one for each logged step",
        )
    return [_flatten_row(row) for row in value]


def _parse_separated(path: Path) -> tuple[list[Values], int]:
    """The rows of a CSV; how many lines are none, and how many cells of metrics no numbers: nobody
    reads either."""
    text = read_text(path).lstrip("\n")
    text = _skip_to_header(text) or text
    mark = _find_delimiter(text.partition("\n")[0])
    try:
        lines = [
            line for line in csv.reader(io.StringIO(text, newline=""), delimiter=mark) if any(line)
        ]
    except csv.Error as error:
        raise DataError(
            f"{path} cannot be read as CSV ({error})", "give a table with a line of names"
        ) from error
    lines = [
        line
        for line in lines
        if not all(re.fullmatch(r"\s*+(?::?-{2,}+:?)?\s*", cell) for cell in line)
    ]
    if not lines:
        raise DataError(f"{path} is empty", "look at it again after the first step of training")
    return _parse_cells(lines, mark, path)


def _parse_cells(lines: Sequence[Sequence[str]], mark: str, path: Path) -> tuple[list[Values], int]:
    header = [name.strip() for name in lines[0]]
    rows: list[Values] = []
    skipped, full = 0, True
    for line in lines[1:]:
        cells = [cell.strip() for cell in line]
        row = {
            name: _parse_decimal(cell, mark)
            for name, cell in zip(header, cells, strict=False)
            if cell.lower() not in NOTHING
        }
        known = [name for name in row if find_series_name(_strip_run_name(name)) is not None]
        bad = [name for name in known if as_number(row[name]) is None]
        if len(cells) != len(header) or (bad and len(bad) == len(known)):
            skipped += 1
            continue
        full &= len(row) == len(header)
        skipped += len(bad)
        rows.append(row)
    if skipped and not rows:
        raise DataError(
            f"{path}: none of its {skipped} lines fits its first",
            "give numbers under a line of names",
        )
    # Where no cell is empty, nan may say that there is nothing, as pandas writes it on demand: see
    # `_drop_gaps`.
    if full:
        for one in rows:
            one.update((name, math.nan) for name, cell in one.items() if cell.lower() == "nan")
    return rows, skipped


def _parse_decimal(cell: str, mark: str) -> str:
    """A cell; a table with semicolons may have decimal commas."""
    return cell.strip().replace(",", ".") if mark == ";" and cell.count(",") == 1 else cell.strip()


def _strip_run_name(column: str) -> str:
    """The name behind `run-name - `, as W&B's page exports it."""
    return column.rpartition(" - ")[2]


def _split_runs(rows: Rows) -> Mapping[str, Rows]:
    """The rows of each run, by its name: of a column that names runs, or of the names before W&B's
    columns.

    W&B's page exports `run-name - train/reward` for each run, with bounds (`__MIN`, `__MAX`) that
    are left out. The only run of a table has no name.
    """
    given = dict.fromkeys(key for row in rows for key in row)
    if len(of := _split_by_columns(rows, given)) > 1:
        return of
    names = {key: "" for key in given if not key.endswith(("__MIN", "__MAX"))}
    runs = dict.fromkeys(key.rpartition(" - ")[0] for key in names if " - " in key)
    if (
        len(runs) < 2
        and all(_strip_run_name(key) == key for key in given)
        and len(names) == len(given)
    ):
        return _split_restarts(rows)
    if len(runs) < 2:
        return {
            "": [{_strip_run_name(key): row[key] for key in row if key in names} for row in rows]
        }
    of, shared = {}, [key for key in names if " - " not in key]
    columns = group_by_key((key.rpartition(" - ")[0], key) for key in names)
    for run in runs:
        own = columns[run]
        of[run] = [
            {_strip_run_name(key): row[key] for key in (*shared, *own) if key in row}
            for row in rows
            if any(row.get(key) is not None for key in own)
        ]
    return of


def _split_by_columns(rows: Rows, given: Mapping[str, None]) -> Mapping[str, Rows]:
    """The rows of each run where columns that name runs tell rows of one step apart."""
    named = [key for wanted in _RUN for key in given if key.lower() == wanted]
    named += (texts := [key for key in given if key not in named and _names_things(key, rows)])
    stepped, counted = add_steps(rows)
    of: dict[tuple[str, ...], Rows] = {(): stepped if counted else [{**row, AT: 0} for row in rows]}
    clashes = count_repeats(of[()]) if named else 0
    for column in named if clashes else []:
        finer: dict[tuple[str, ...], list[Row]] = {}
        for names, held in of.items():
            for row in held:
                value = _as_text(row.get(column))
                name = f"{column} {value}" if as_number(value) is not None else value
                finer.setdefault((*names, name), []).append(
                    {key: row[key] for key in row if key != column}
                )
        left = sum(map(count_repeats, finer.values()))
        if (
            left < clashes
            and not (left and column in texts)
            and len(of) < len(finer) <= len(rows) / 2
        ):
            of, clashes = {**finer}, left
    return {", ".join(filter(None, names)): _drop_steps(held) for names, held in of.items()}


def _drop_steps(rows: Rows) -> list[Row]:
    return [{key: value for key, value in row.items() if key != AT} for row in rows]


def _as_text(value: Any) -> str:
    return str(value) if isinstance(value, str | int | float) else ""


_RANKS = re.compile(r"(?:local_)?(?:rank|gpu|device|worker|host|node|process)(?:_id|name)?")


def _names_things(column: str, rows: Rows) -> bool:
    """Whether a column holds a text in each row, and is not the number or the name of a machine."""
    return not _RANKS.fullmatch(column.lower()) and all(
        isinstance(row.get(column), str) and as_number(row[column]) is None for row in rows
    )


def _split_restarts(rows: Rows) -> Mapping[str, Rows]:
    """The rows of each run where the steps begin again."""
    stepped, _ = add_steps(rows)
    if not count_repeats(stepped):
        return {"": rows}
    runs = split_at_restarts(stepped, lambda row: row[AT])
    return {
        f"run {number}" if len(runs) > 1 else "": _drop_steps(run)
        for number, run in enumerate(runs, 1)
    }


def _mark_evaluations(rows: Rows) -> Rows:
    """Rows of evaluations under names of their own, where a column says which they are."""
    for column in [
        key for key in dict.fromkeys(key for row in rows for key in row) if key.lower() in _SPLIT
    ]:
        modes = [MODES.get(_as_text(row.get(column)).lower()) for row in rows]
        if set(modes) == {"train", "eval"}:
            return [
                prefix_eval(row) if of == "eval" else row
                for of, row in zip(
                    modes,
                    [{k: v for k, v in row.items() if k != column} for row in rows],
                    strict=True,
                )
            ]
    return rows


def _name_by_tag(rows: Rows, path: Path) -> Rows:
    """Rows of one metric whose name stands in the file's (TensorBoard's download:
    `run-a-tag-train_reward.csv`)."""
    tag = path.stem.rpartition("tag-")[2]
    if (
        find_series_name(tag) is None
        or not rows
        or {key.lower() for key in rows[0]} != {*_TENSORBOARD}
    ):
        return rows
    return [{tag if key.lower() == "value" else key: row[key] for key in row} for row in rows]


def _pivot_rows(rows: Rows) -> Rows:
    """Rows of a long table (`step, tag, value`), the metrics of a step in one row; others as they
    are."""
    lower = {key.lower(): key for row in rows[:1] for key in row}
    tag = next((lower[one] for one in _TAG if one in lower), None)
    if tag is None or "value" not in lower or "step" not in lower:
        return rows
    if not any(find_series_name(str(row.get(tag))) for row in rows):
        return rows
    made: dict[tuple[Any, ...], Values] = {}
    kept = {"step", *_RUN, *_SPLIT}
    for row in rows:
        rest = {key: row[key] for key in row if key.lower() in kept and key != tag}
        made.setdefault(tuple(rest.items()), rest)[str(row.get(tag))] = row.get(lower["value"])
    return list(made.values())


def _drop_gaps(rows: Rows) -> list[Row]:
    """Rows without the NaN that say "not logged here", as pandas fills them in; those that were
    logged stay.

    A metric was logged in a row if one that is usually logged with it was, or if nothing else was.
    One of evaluations that fewer than half of the rows have, up to its last number, was not.
    """
    empty = {
        key
        for row in rows
        for key, value in row.items()
        if isinstance(value, float) and value != value
    }
    if not empty:
        return list(rows)
    known = {key for row in rows for key in row if find_series_name(key) not in {None, "epoch"}}
    at = {
        key: {number for number, row in enumerate(rows) if _is_logged(row.get(key))}
        for key in known
    }
    evaluated = [
        key for key in known if (find_series_name(key) or "").startswith("eval/") and at[key]
    ]
    rare = {key for key in evaluated if 2 * len(at[key]) < max(at[key]) + 1}

    @cache
    def is_usual(key: str, other: str) -> bool:
        """Whether another one is there in nine of ten rows that have this one."""
        return len(at[key] & at[other]) >= 0.9 * len(at[key])

    def is_gap(key: str, number: int) -> bool:
        value = rows[number][key]
        if key not in known or not isinstance(value, float) or value == value:
            return False
        if key in rare:
            return True
        present = [other for other in known if number in at[other]]
        return bool(present) and not any(is_usual(key, other) for other in present)

    return [
        {key: value for key, value in row.items() if not is_gap(key, number)}
        for number, row in enumerate(rows)
    ]


def _is_logged(value: Any) -> bool:
    """Whether it is a number, or a text that should be one."""
    number = as_number(value)
    return isinstance(value, str) if number is None else number == number
