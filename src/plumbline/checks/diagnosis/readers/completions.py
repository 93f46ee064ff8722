"""Completions of training that were stored by whomever, in the layouts that people write.

JSON lines, JSON, CSV, Parquet (TRL) and tables of W&B: an answer a row, or a prompt a row with a
list of its answers. The parts of a reward are columns, or stand in a table within the row. Prompts
and answers are texts or messages.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from plumbline.checks.diagnosis.facts import has_logged_means, samples_by_step
from plumbline.checks.diagnosis.history import History, Sample, Series
from plumbline.checks.diagnosis.readers.rows import FAR, NOTHING, TABLE, as_number, find_series_name
from plumbline.config.imports import check_installed
from plumbline.errors import DataError, ModelError
from plumbline.records import Row
from plumbline.storage import clear_read_errors, open_regular, read_json, read_text

_NAMES = TABLE["completions"]
TEXT, PROMPT, REWARD, STEP, GOLD, KIND = (
    _NAMES[of] for of in ("text", "prompt", "reward", "step", "gold", "kind")
)
"""What people call the columns, in small letters, the likeliest first: of prompts the texts before
their ids."""
MODES: Mapping[str, str] = _NAMES["modes"]
_PARTS = re.compile(_NAMES["parts"])
"""Columns that hold a table of the reward's parts; one of `metrics` holds other figures, too."""
_PART = re.compile(_NAMES["part"])
_READ = frozenset({*TEXT, *PROMPT, *REWARD, *STEP, *GOLD, *KIND, *_NAMES["chat"], "metrics"})
LONGEST = 4000
"""Characters of a gold answer that are kept."""
_ORDER = re.compile(
    r"(^|_)(id|idx|index|step|epoch|seed|rank|time|timestamp)s?$|advantage|Unnamed|^$"
)
"""Columns of numbers that order rows, and the advantage, which follows from the reward."""
_PLACES: Sequence[str] = _NAMES["places"]
_PATTERNS = ("*.parquet", "*.jsonl", "*.table.json", "*.csv", "step_*/*.jsonl")


class Completions(NamedTuple):
    """Stored completions by step, and what of them could not be read, a line each."""

    samples: Sequence[Sample] = ()
    remarks: tuple[str, ...] = ()


def find(path: Path) -> Path | None:
    """A file of completions, or a folder that has nothing else: no log of its training."""
    if path.is_file():
        return path if path.suffix == ".parquet" or holds_completions(path) else None
    return path if _completion_files(path) else None


def read(path: Path) -> list[History]:
    """See `Reader.read`: what completions alone tell, with the means of their rewards as the
    log."""
    files = _completion_files(path) if path.is_dir() else [path]
    samples, remarks = _read(files, (), strict=True)
    if not any(one.reward is not None for one in samples):
        cause = remarks[0] if remarks else f"{path} holds no rewards of completions"
        raise DataError(cause, "or give the trainer's log, or what it printed")
    trained, evaluated = split_by_mode(samples, {})
    trl = files[0].name.startswith("completions_")
    words = TABLE["trainers"]["trl" if trl else ""]
    log = (
        "trainer_state.json, which comes with the first checkpoint (save_steps)" if trl else "a log"
    )
    alone = (
        f"there is no log beside these completions: {log}, or what the trainer printed, tells more"
    )
    return [
        History(
            origin="completions",
            name="rl",
            kind="rl",
            series=mean_series(trained),
            samples=trained,
            evaluated=evaluated,
            options=words["keys"],
            remarks=(alone, *remarks),
        )
    ]


@np.errstate(invalid="ignore")  # of infinite rewards
def mean_series(samples: Sequence[Sample]) -> dict[str, Series]:
    """The means of rewards and parts by step, and of the deviations within groups."""
    found: dict[str, dict[int, list[float]]] = {}
    groups: dict[tuple[int, str], list[float]] = {}
    for one in samples:
        for name, value in (
            ("reward", one.reward),
            *((f"reward/{part}", number) for part, number in one.parts.items()),
        ):
            if value is not None:
                found.setdefault(name, {}).setdefault(one.step, []).append(value)
        if one.prompt and one.reward is not None:
            groups.setdefault((one.step, one.prompt), []).append(one.reward)
    for (step, _), rewards in groups.items():
        if len(rewards) > 1:
            found.setdefault("reward_std", {}).setdefault(step, []).append(
                float(np.std(rewards, ddof=1))
            )
    return {name: Series.of_means(by_step) for name, by_step in found.items()}


def read_beside(folder: Path, parts: Sequence[str]) -> Completions:
    """The completions in a run's folder; none where there are none. A file that cannot be read is a
    remark."""
    return _read(_files_beside(folder), parts, strict=False)


def _completion_files(folder: Path) -> list[Path]:
    return _files_beside(folder) or [file for file in _files(folder) if is_completions(file)]


def _files_beside(folder: Path) -> list[Path]:
    for place in _PLACES:
        found = _files(folder / place)
        if place == _PLACES[-1]:
            found = [file for file in found if is_completions(file)]
        if found:
            return found
    return []


def is_completions(file: Path) -> bool:
    """Whether a file's name says that it holds completions, or is a step's (verl) and its first row
    is one."""
    named = file.name.startswith(("completions", "samples", "rollouts", "generations"))
    return named or (file.stem.isdecimal() and file.suffix == ".jsonl" and holds_completions(file))


def holds_completions(file: Path) -> bool:
    """Whether the first row of a file holds a prompt and an answer, with what it earned."""
    try:
        row = next(iter(_read_rows(file)), {})
    except (DataError, ModelError):
        return False
    lower = _lower_keys(row)
    paid = {*REWARD, "advantage", "advantages"} & lower.keys()
    return (
        bool(paid)
        and isinstance(_first_value(lower, TEXT), str | list)
        and _first_value(lower, PROMPT) is not None
    )


def read_completions(path: Path, parts: Sequence[str] = ()) -> Completions:
    """The completions of a file or a folder of files; none where there is nothing.

    Args:
        path: where they are.
        parts: columns that are parts of the reward. Where there is no column of the reward, it is
            their sum.

    Raises:
        DataError: a file has no completions, or cannot be read.
    """
    return _read(_files(path) if path.is_dir() else [path], parts, strict=True)


def _files(path: Path) -> list[Path]:
    return (
        [path]
        if path.is_file()
        else sorted(file for pattern in _PATTERNS for file in path.glob(pattern))
    )


def _read(files: Sequence[Path], parts: Sequence[str], *, strict: bool) -> Completions:
    samples: list[Sample] = []
    columns: dict[str, bool] = {}
    remarks: dict[str, None] = {}
    for file in files:
        try:
            samples += _read_samples(file, parts, _step_of(file) if len(files) > 1 else 0, columns)
        except ModelError as error:
            remarks[
                f"{error.cause}: {error.fix}, or for a tool: uv tool install . --with pyarrow"
            ] = None
        except DataError as error:
            if strict:
                raise
            remarks[f"{error.cause}: its completions were not read; {error.fix}"] = None
    if samples and (lacking := _missing_columns(samples, parts)):
        shown = ", ".join([*columns][:20])
        remarks[
            (
                f"the completions have no {' and no '.join(lacking)} under a name that is known: "
                f"{shown}"
            )
        ] = None
    elif samples and (unread := [name for name, other in columns.items() if other]):
        remarks[f"columns of the completions that are not read: {', '.join(unread[:10])}"] = None
    return Completions(sorted(samples, key=lambda sample: sample.step), tuple(remarks))


def _is_unread(name: str, value: Any) -> bool:
    """Whether a column holds texts or a table under a name that nobody knows."""
    lower = name.strip().lower()
    known = lower in {*_READ, *TABLE["tables"]["split"]} or _PARTS.fullmatch(lower)
    order = _ORDER.search(lower)
    return isinstance(value, str | list | dict) and bool(value) and not known and not order


def _step_of(file: Path) -> int:
    """The step that the names of files count: `completions_00010.parquet`,
    `step_10/rollouts.jsonl`."""
    found = re.findall(
        r"\d{1,12}", f"{file.parent.name} {file.stem}" if "step" in file.parent.name else file.stem
    )
    return int(found[-1]) if found else 0


def _read_samples(
    file: Path, parts: Sequence[str], step: int, columns: dict[str, bool]
) -> list[Sample]:
    """The completions of a file; `columns` gets their names, and whether nobody reads them."""
    samples = []
    for number, row in enumerate(_split_answers(_read_rows(file)), 1):
        for name, value in row.items():
            columns[name] = columns.get(name, False) or _is_unread(name, value)
        if (sample := _parse_sample(row, parts, file.stem, step)) is None:
            raise DataError(
                f"{file}: row {number} has no completion",
                f"call the column one of {', '.join(TEXT)}",
            )
        samples.append(sample)
    return samples


def _missing_columns(samples: Sequence[Sample], parts: Sequence[str]) -> list[str]:
    there = {
        "prompt": any(one.prompt for one in samples),
        "reward": any(one.reward is not None for one in samples),
        "step": any(one.step for one in samples),
        f"part of the reward ({', '.join(parts[:5])})": not parts
        or any(one.parts for one in samples),
    }
    return [what for what, known in there.items() if not known]


# -- rows of files ---------------------------------------------------------------------------------


def _read_rows(file: Path) -> Iterable[Row]:
    suffix = file.suffix.lower()
    if suffix == ".parquet":
        return _read_parquet(file)
    if suffix in {".csv", ".tsv"}:
        return _read_separated(file)
    if suffix != ".json":
        return _read_json_lines(file)
    value = read_json(file)
    rows = value if isinstance(value, list) else column_rows(value)
    lists = (
        [one for one in value.values() if isinstance(one, list)]
        if isinstance(value, dict) and not rows
        else []
    )
    rows = rows or (lists[0] if len(lists) == 1 else [])
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise DataError(
            f"{file} is no table of completions", "give a list of objects, or JSON lines"
        )
    return rows


def column_rows(table: Any) -> list[dict[str, Any]] | None:
    """The rows of {"columns": [name], "data": [[value]]}, as W&B and pandas write it; None for what
    is none."""
    names, rows = (
        (table.get("columns"), table.get("data")) if isinstance(table, dict) else (None, None)
    )
    if (
        not isinstance(names, list)
        or not isinstance(rows, list)
        or not all(isinstance(row, list) for row in rows)
    ):
        return None
    return [dict(zip(map(str, names), row, strict=False)) for row in rows]


def _read_json_lines(file: Path) -> Iterator[Row]:
    """The rows of JSON lines, without a last one that is half written."""
    lines = [line for line in read_text(file).split("\n") if line.strip()]
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines) > 1:
                return
            raise DataError(
                f"{file}:{number} is not JSON", "correct or remove that line"
            ) from error
        if not isinstance(row, dict):
            raise DataError(f"{file}:{number} is no JSON object", "write one completion a line")
        yield row


def _read_separated(file: Path) -> Iterator[Row]:
    """The rows of a CSV, whose cells are numbers where they look so, and nothing where they are
    empty: but an empty answer is one, and a mark like U+0085 within an answer ends no row."""
    text = read_text(file)
    mark = max(",;\t", key=text.partition("\n")[0].count)
    texts = {*TEXT, *PROMPT, *GOLD}
    try:
        for row in csv.DictReader(io.StringIO(text, newline=""), delimiter=mark):
            yield {
                name: cell
                if name.lower() in texts or (number := as_number(cell)) is None
                else number
                for name, cell in row.items()
                if name
                and isinstance(cell, str)
                and (name.strip().lower() in TEXT or cell.strip().lower() not in NOTHING)
            }
    except csv.Error as error:
        raise DataError(f"{file} cannot be read as CSV ({error})", "give JSON lines") from error


def _read_parquet(file: Path) -> Iterator[Row]:
    check_installed(
        f"{file.parent.name}/{file.name if file.name[:12] != 'completions_' else '*.parquet'}",
        ("pyarrow",),
    )
    import pyarrow.parquet as parquet  # type: ignore[import-untyped]

    with open_regular(file) as raw, clear_read_errors(file):
        try:
            opened = parquet.ParquetFile(raw)
        except (ValueError, OSError) as error:
            raise DataError(
                f"{file} is no Parquet file ({error})", "it may be half written; move it away"
            ) from error
        for batch in opened.iter_batches(4096):
            yield from batch.to_pylist()


# -- answers of rows -------------------------------------------------------------------------------


def _split_answers(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows of one answer: a list of answers is as many rows, and so is each other list of that
    length (ms-swift)."""
    for row in rows:
        texts = _first_value(_lower_keys(row), TEXT)
        if (
            not isinstance(texts, list)
            or not texts
            or not all(isinstance(one, str | list) for one in texts)
        ):
            yield row
            continue
        for at in range(len(texts)):
            yield {name: _pick_answer(value, at, len(texts)) for name, value in row.items()}


def _pick_answer(value: Any, at: int, count: int) -> Any:
    """What of a column belongs to one of so many answers."""
    if isinstance(value, dict):
        return {
            name: one if isinstance(one, dict) else _pick_answer(one, at, count)
            for name, one in value.items()
        }
    if (
        not isinstance(value, list)
        or len(value) != count
        or (isinstance(value[0], dict) and "content" in value[0])
    ):
        return value  # messages are of one prompt
    return value[at]


def _parse_sample(row: Row, parts: Sequence[str], file: str, step: int) -> Sample | None:
    lower = _lower_keys(row)
    text, prompt = _first_value(lower, TEXT), _first_value(lower, PROMPT)
    if (
        text is None
        and isinstance(chat := _first_value(lower, _NAMES["chat"]), list)
        and len(chat) > 1
    ):
        text, prompt = chat[-1:], chat[:-1]
    if text is None:
        return None
    values, others, total = _read_figures(row, parts)
    reward = next(
        (number for name in REWARD if (number := _read_figure(lower.get(name))) is not None), total
    )
    # TRL's, whose log is not there
    if reward is None and not values and any("advantage" in name for name in lower):
        values, others = others, {}
    known = [value for value in values.values() if not np.isnan(value)]
    counted = as_number(_first_value(lower, STEP))
    return Sample(
        step if counted is None or not abs(counted) < FAR else int(counted),
        _to_text(prompt),
        _to_text(text),
        reward if reward is not None else sum(known) if known else None,
        None,
        values,
        _to_text(_first_value(lower, GOLD))[:LONGEST],
        next(
            (
                MODES[word]
                for name in TABLE["tables"]["split"]
                if (word := str(lower.get(name)).lower()) in MODES
            ),
            "eval" if "eval" in re.split(r"[\W_]+", file) else "",
        ),
        _to_text(_first_value(lower, KIND))[:80],
        others,
    )


def _read_figures(
    row: Row, parts: Sequence[str]
) -> tuple[dict[str, float], dict[str, float], float | None]:
    """The parts of the reward in a row, other numbers that are none, and the reward that stands
    among its parts."""
    values: dict[str, float] = {}
    others: dict[str, float] = {}
    total = None
    for name, value in row.items():
        if isinstance(value, dict):
            paid = _PARTS.fullmatch(name.lower()) is not None
            for inner, one in value.items() if paid or name.lower() == "metrics" else ():
                if (number := _read_figure(one)) is None:
                    continue
                if paid and inner not in parts and str(inner).lower() in _NAMES["total"]:
                    total = number
                elif paid or inner in parts:
                    values[str(inner)] = number
                else:
                    others[str(inner)] = number
        elif name in parts or (find_series_name(name) or "").startswith("reward/"):
            part = name if name in parts else (find_series_name(name) or "").removeprefix("reward/")
            if (number := _read_figure(value)) is not None:
                values[part] = number
        elif (of_part := _PART.fullmatch(name)) and (number := _read_figure(value)) is not None:
            values[of_part[1]] = number
        elif _is_other(name, value):
            others[name] = float(value)
    return values, others, total


def _read_figure(value: Any) -> float | None:
    return float(value) if isinstance(value, bool) else as_number(value)


def _is_other(name: str, value: Any) -> bool:
    """Whether a column is a number of the answer, or true or false, beside the reward and what
    orders the rows."""
    number = isinstance(value, bool) or (isinstance(value, int | float) and abs(value) < FAR)
    return number and not _ORDER.search(name) and name.lower() not in {*REWARD, *GOLD, *KIND}


def split_by_mode(
    samples: Sequence[Sample], series: Mapping[str, Series]
) -> tuple[list[Sample], list[Sample]]:
    """The completions of training, and those of evaluations inside it.

    Where no column says it: TRL writes one file a step, and an evaluation at that step overwrites
    it. The means of the parts are then not those that training logged at that step.
    """
    evaluated = set(series["eval/reward"].steps.tolist()) if "eval/reward" in series else set[int]()
    by_step = samples_by_step(one for one in samples if evaluated and not one.mode)
    same = {step: has_logged_means(stored, step, series) for step, stored in by_step.items()}
    comparable = True in same.values() or by_step.keys() <= evaluated
    other = {step for step in evaluated if comparable and same.get(step) is False}
    known = [
        replace(one, mode="eval") if one.step in other and not one.mode else one for one in samples
    ]
    return [one for one in known if one.mode != "eval"], [
        one for one in known if one.mode == "eval"
    ]


def _lower_keys(row: Row) -> dict[str, Any]:
    return {str(name).strip().lower(): value for name, value in row.items()}


def _first_value(row: Row, names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _to_text(value: Any, levels: int = 5) -> str:
    """A text, or the messages of a chat, or the pieces of one, one after another; what is nested
    deeper is left out."""
    if isinstance(value, dict):
        value = next((value[name] for name in ("content", "value", "text") if name in value), "")
    if isinstance(value, dict | list):
        held = value if isinstance(value, list) else [value]
        return "\n".join(_to_text(one, levels - 1) for one in held) if levels else ""
    return "" if value is None else str(value)
