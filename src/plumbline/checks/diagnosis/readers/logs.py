"""The history of another trainer's log, with what lies beside it: the configuration, and stored completions.

Completions are JSON lines, Parquet (TRL), or tables of W&B.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.checks.diagnosis.facts import as_logged
from plumbline.checks.diagnosis.history import History, Sample, Series
from plumbline.checks.diagnosis.readers.rows import (
    AT,
    FAR,
    IS_REWARD,
    TABLE,
    as_number,
    collect_series,
    columns_of,
    is_of_total,
    kind_of,
    our_settings,
    trainer_of,
    with_steps,
)
from plumbline.config.imports import check_installed
from plumbline.config.overrides import read_yaml
from plumbline.errors import DataError, RecipeError
from plumbline.storage import SMALL, clear_read_errors, open_regular, parse_json, read_json, read_text


def read_log(
    origin: str,
    path: Path | str,
    rows: Sequence[Mapping[str, Any]],
    *,
    folder: Path | None,
    config: Mapping[str, Any],
    step: str | None = None,
    finished: bool | None = None,
    skipped: int = 0,
    name: str = "",
) -> History:
    """The history of the one stage of a log.

    Args:
        origin: see `History`.
        path: where it lies; an address of W&B is a text.
        rows: in the order in which they were written.
        folder: where completions may lie beside it; None looks for none.
        config: the trainer's own.
        step: their key of the step; None to look for it.
        finished: see `History`.
        skipped: see `History`.
        name: the run's, where a record holds several.

    Raises:
        DataError: it has no rows, or none of its names is that of a reward or a loss.
    """
    if not rows:
        raise DataError(f"{path} has no logged step", "look at it again after the first step of training")
    # transformers logs the whole run's mean loss at the end, under the name of a step's.
    steps = [row for row in rows if "train_runtime" not in row and "train/train_runtime" not in row]
    series = collect_series(with_steps(steps) if step is None else steps, step=step or AT, printed=True)
    if "epoch" in series and np.array_equal(series["epoch"].values, np.floor(series["epoch"].values)):
        del series["epoch"]  # a counter of whole epochs does not say how much of one was seen
    columns = columns_of(steps)
    kind = kind_of(series, columns)
    if kind is None:
        raise _unknown(f"{path} ({origin})", rows)
    settings = our_settings(config)
    # The last row may say how many steps there will be.
    planned = [as_number(rows[-1].get(column)) for column in TABLE["planned"]]
    planned += [as_number(value.partition("/")[2]) for value in rows[-1].values() if is_of_total(value)]
    if total := [int(number) for number in planned if number is not None and 0 < number < FAR]:
        settings["steps"] = total[0]
    if kind == "sft":  # rewards of pairs are no rewards of samples
        series = {ours: values for ours, values in series.items() if not IS_REWARD.fullmatch(ours)}
        settings = {key.replace("rl.optimiser.", "sft.optimiser."): value for key, value in settings.items()}
    parts = [ours.removeprefix("part/") for ours in series if ours.startswith("part/")]
    trainer = "trl" if origin == "trl" else trainer_of(columns)
    samples, evaluated = apart([] if folder is None else _read_beside(folder, parts), series)
    return History(
        origin=origin,
        name=name
        or ("preference" if any(ours.startswith("preference/") for ours in series) and kind == "sft" else kind),
        kind=kind,
        series=series,
        settings=settings,
        samples=samples,
        evaluated=evaluated,
        finished=finished,
        skipped=skipped,
        options=TABLE["trainers"][trainer]["keys"],
        logs=TABLE["trainers"][trainer]["log"],
    )


def _unknown(what: str, rows: Sequence[Mapping[str, Any]]) -> DataError:
    seen = list(dict.fromkeys(key for row in rows for key in row))
    shown = ", ".join(seen[:30]) + (f" and {len(seen) - 30} more" if len(seen) > 30 else "")
    named = {theirs: ours for theirs, ours in TABLE["series"].items() if isinstance(ours, str)}
    known = [theirs for theirs, ours in named.items() if ours in {"reward", "loss", "eval/loss"}]
    return DataError(
        f"{what} has neither a reward nor a loss under a name that is known; its columns are: {shown}",
        f"rename one of them to one of: {', '.join(known[:12])} (all names: diagnosis/readers/names.yaml)",
    )


# -- the configuration beside a log ------------------------------------------------------------------------------------

_CONFIGS = (
    "config.yaml",
    "files/config.yaml",
    "config.json",
    "args.json",
    "args.yaml",
    "training_args.json",
    "training_args.yaml",
    "hparams.yaml",
    ".hydra/config.yaml",
    "configs/rl.toml",
    "configs/trainer.toml",
    "configs/orchestrator.toml",
    "adapter_config.json",
)
"""Where trainers write their configuration, and peft that of an adapter; what stands first counts."""
_CARD = re.compile(r"^- (\w+): (\S+)[ \t]*$", re.MULTILINE)
_CARD_YAML = re.compile(r"^```yaml\n(.{1,20000}?)\n```", re.MULTILINE | re.DOTALL)


def config_beside(folder: Path) -> dict[str, Any]:
    """The trainer's configuration in a folder; empty where there is none, or only that of a model.

    Raises:
        DataError: it cannot be read.
    """
    config: dict[str, Any] = {}
    for file in [folder / name for name in _CONFIGS if (folder / name).is_file()]:
        try:
            text = read_text(file, limit=SMALL)
            with clear_read_errors(file):
                values = _parsed(text, file)
        except (DataError, RecipeError, ValueError) as error:
            raise DataError(getattr(error, "cause", f"{file}: {error}"), "correct it, or move it away") from error
        # A trainer's may hold the model's, too: W&B's of transformers, and ms-swift's.
        if isinstance(values, dict) and (
            "learning_rate" in values or not {"architectures", "model_type"} & set(values)
        ):
            config = values | config
    card = folder / "README.md"
    if card.is_file() and any((folder / name).is_file() for name in ("adapter_config.json", "trainer_state.json")):
        config = _card(read_text(card, limit=SMALL), card) | config
    return config


def _parsed(text: str, file: Path) -> Any:
    if file.suffix == ".toml":
        return tomllib.loads(text)
    values = parse_json(text) if file.suffix == ".json" else read_yaml(text, str(file), strict=False)
    if file.name != "adapter_config.json":
        return values
    return {"lora_r": values["r"]} if isinstance(values, dict) and "r" in values else {}


def _card(text: str, file: Path) -> dict[str, Any]:
    """The hyperparameters that transformers lists in a model's card, and the configuration that Axolotl puts there."""
    found: dict[str, Any] = {}
    for block in _CARD_YAML.findall(text):
        with suppress(RecipeError):
            values = read_yaml(block, str(file), strict=False)
            found |= values if isinstance(values, dict) and "learning_rate" in values else {}
    listed = text.partition("hyperparameters were used during training:")[2].partition("\n#")[0]
    return found | {
        key: number if (number := as_number(one)) is not None else one for key, one in _CARD.findall(listed)
    }


# -- completions -------------------------------------------------------------------------------------------------------

TEXT, PROMPT, REWARD, STEP = (
    ("completion", "completions", "response", "output", "text", "generated_text"),
    ("id", "prompt", "prompts", "input", "question"),
    ("reward", "rewards", "score"),
    ("step", "global_step"),
)
"""What trainers call the columns, the likeliest first."""
GOLD = ("gold", "answer", "solution", "ground_truth", "target", "label", "reference", "expected")
KIND = ("kind", "task", "level", "source", "data_source", "difficulty", "category")
MODES = {"eval": "eval", "evaluation": "eval", "test": "eval", "validation": "eval", "val": "eval", "train": "train"}
"""What users of TRL call further columns, and modes and splits."""
LONGEST = 4000
"""Characters of a gold answer that are kept."""
_ORDER = re.compile(r"(^|_)(id|idx|index|step|epoch|seed|rank|time|timestamp)s?$|advantage|Unnamed|^$")
"""Columns of numbers that order rows, and the advantage, which follows from the reward."""
_PLACES = ("completions", "completions.jsonl", "completions.parquet", "samples.jsonl", "files/media/table")
"""Where they lie beside a trainer's records."""
_PATTERNS = ("*.parquet", "*.jsonl", "*.table.json")


def _read_beside(folder: Path, parts: Sequence[str]) -> list[Sample]:
    """The completions in a run's folder; none where there are none. See `read_completions` for the errors."""
    for place in _PLACES:
        if found := _files(folder / place):
            tables = place == _PLACES[-1]
            return _read([file for file in found if is_completions(file)] if tables else found, parts)
    return []


def is_completions(file: Path) -> bool:
    """Whether a file's name says that it holds completions."""
    return file.name.startswith(("completions", "samples", "rollouts", "generations"))


def read_completions(path: Path, parts: Sequence[str] = ()) -> list[Sample]:
    """The completions of a file or a folder of files, by step; none where there is nothing.

    Args:
        path: where they are.
        parts: columns that are parts of the reward. Where there is no column of the reward, it is their sum.

    Raises:
        DataError: a file has no completions, or cannot be read.
        ModelError: they are in Parquet, and pyarrow is not installed.
    """
    return _read(_files(path) if path.is_dir() else [path], parts)


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(file for pattern in _PATTERNS for file in path.glob(pattern))


def _read(files: Sequence[Path], parts: Sequence[str]) -> list[Sample]:
    samples: list[Sample] = []
    for file in files:
        number = 0
        for number, row in enumerate(_rows(file), 1):
            text = _first(row, TEXT)
            if text is None:
                raise DataError(f"{file}: row {number} has no completion", f"call the column one of {', '.join(TEXT)}")
            samples.append(_sample(row, text, parts, file.stem))
    return sorted(samples, key=lambda sample: sample.step)


def _rows(file: Path) -> Iterable[Mapping[str, Any]]:
    if file.suffix == ".parquet":
        return _parquet(file)
    if file.suffix != ".json":
        return _lines(file)
    rows = column_rows(read_json(file))
    if rows is None:
        raise DataError(f"{file} is no table of W&B", "give one with columns and data, or JSON lines")
    return rows


def column_rows(table: Any) -> list[dict[str, Any]] | None:
    """The rows of {"columns": [name], "data": [[value]]}, as W&B and pandas write it; None for what is none."""
    names, rows = (table.get("columns"), table.get("data")) if isinstance(table, dict) else (None, None)
    if not isinstance(names, list) or not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        return None
    return [dict(zip(map(str, names), row, strict=False)) for row in rows]


def _lines(file: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of JSON lines, without a last one that is half written; a line of columns (ms-swift) is many rows."""
    lines = [line for line in read_text(file).split("\n") if line.strip()]
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines) > 1:
                return
            raise DataError(f"{file}:{number} is not JSON", "correct or remove that line") from error
        if not isinstance(row, dict):
            raise DataError(f"{file}:{number} is no JSON object", "write one completion a line")
        columns = {key: value for key, value in row.items() if isinstance(value, list)}
        texts = _first(columns, TEXT)
        if texts is not None and all(isinstance(one, str | list) for one in texts) and "step" in columns:
            yield from (dict(zip(columns, values, strict=False)) for values in zip(*columns.values(), strict=False))
        else:
            yield row


def _parquet(file: Path) -> Iterator[Mapping[str, Any]]:
    check_installed("completions in Parquet files", ("pyarrow",))
    import pyarrow.parquet as parquet  # type: ignore[import-untyped]

    with open_regular(file) as raw, clear_read_errors(file):
        try:
            opened = parquet.ParquetFile(raw)
        except (ValueError, OSError) as error:
            raise DataError(f"{file} is no Parquet file ({error})", "it may be half written; move it away") from error
        for batch in opened.iter_batches(4096):
            yield from batch.to_pylist()


def _sample(row: Mapping[str, Any], text: Any, parts: Sequence[str], file: str) -> Sample:
    values = {name: value for name in parts if (value := as_number(row.get(name))) is not None}
    known = [value for value in values.values() if not np.isnan(value)]
    reward, step = as_number(_first(row, REWARD)), as_number(_first(row, STEP))
    return Sample(
        0 if step is None or not abs(step) < 1e15 else int(step),
        _plain(_first(row, PROMPT)),
        _plain(text),
        reward if reward is not None else sum(known) if known else None,
        None,
        values,
        _plain(_first(row, GOLD))[:LONGEST],
        MODES.get(str(row.get("mode")).lower(), "eval" if "eval" in re.split(r"[\W_]+", file) else ""),
        str(_first(row, KIND) or "")[:80],
        {name: float(value) for name, value in row.items() if _is_other(name, value) and name not in values},
    )


def _is_other(name: str, value: Any) -> bool:
    """Whether a column is a number of the answer, or true or false, beside the reward and what orders the rows."""
    number = isinstance(value, bool) or (isinstance(value, int | float) and abs(value) < FAR)
    return number and not _ORDER.search(name) and name not in {*REWARD, *GOLD, *KIND}


def apart(samples: Sequence[Sample], series: Mapping[str, Series]) -> tuple[list[Sample], list[Sample]]:
    """The completions of training, and those of evaluations inside it.

    Where no column says it: TRL writes one file a step, and an evaluation at that step overwrites it. The means of the
    parts are then not those that training logged at that step.
    """
    evaluated = set(series["eval/reward"].steps.tolist()) if "eval/reward" in series else set[int]()
    by_step: dict[int, list[Sample]] = {}
    for sample in samples:
        if sample.step in evaluated and not sample.mode:
            by_step.setdefault(sample.step, []).append(sample)
    other = {step for step, stored in by_step.items() if as_logged(stored, step, series) is False}
    known = [replace(one, mode="eval") if one.step in other and not one.mode else one for one in samples]
    return [one for one in known if one.mode != "eval"], [one for one in known if one.mode == "eval"]


def _first(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _plain(value: Any) -> str:
    """A text, or the messages of a chat one after another."""
    if isinstance(value, list):
        return "\n".join(str(one.get("content", "")) if isinstance(one, dict) else str(one) for one in value)
    return "" if value is None else str(value)
