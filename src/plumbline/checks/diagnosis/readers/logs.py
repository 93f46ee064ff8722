"""The history of another trainer's log, with what lies beside it: the configuration, and stored
completions."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.checks.diagnosis.facts import EQUAL, fit_part_weights
from plumbline.checks.diagnosis.history import History, Sample, Series
from plumbline.checks.diagnosis.readers.completions import (
    Completions,
    mean_series,
    read_beside,
    split_by_mode,
)
from plumbline.checks.diagnosis.readers.rows import (
    AT,
    FAR,
    IS_REWARD,
    TABLE,
    add_steps,
    as_number,
    collect_series,
    count_repeats,
    find_kind,
    find_series_name,
    find_trainer,
    is_step,
    is_step_of_total,
    list_columns,
    list_missing,
    map_settings,
)
from plumbline.checks.diagnosis.readers.training_args import read_pickled_options
from plumbline.config.overrides import read_yaml
from plumbline.errors import DataError, RecipeError
from plumbline.records import Row, Rows, Values
from plumbline.storage import SMALL, clear_read_errors, parse_json, read_text

_IS_PAIR = re.compile("(?:eval/)?preference/")
_TOLD = {"reward", "loss", "eval", "preference", "correctness"}
"""Beginnings of names of series, of which one at least says what came of a run."""
SHOWN = 8
"""Columns that are named."""


def read_log(
    origin: str,
    path: Path | str,
    rows: Rows,
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
        raise DataError(
            f"{path} has no logged step", "look at it again after the first step of training"
        )
    # transformers logs the whole run's mean loss at the end, under the name of a step's.
    steps = [row for row in rows if "train_runtime" not in row and "train/train_runtime" not in row]
    steps, counted = add_steps(steps) if step is None else (steps, True)
    series = collect_series(steps, step=step or AT, printed=True, counted=counted)
    if "epoch" in series and np.array_equal(
        series["epoch"].values, np.floor(series["epoch"].values)
    ):
        del series["epoch"]  # a counter of whole epochs does not say how much of one was seen
    columns = list_columns(steps)
    shown = ", ".join([name for name in columns if name not in {AT, ""}][:SHOWN])
    if missing := list_missing(columns):
        raise DataError(
            f"{path} ({origin}) has no column {', '.join(missing)}, which --map names",
            f"its columns: {shown}",
        )
    kind = find_kind(series, columns)
    unread = _list_unread(steps)
    if kind is None or not {name.partition("/")[0] for name in series} & _TOLD:
        raise DataError(
            f"{path} ({origin}) has neither a reward nor a loss under a name that is known: {shown}",
            "say which column is which: plumbline check --map reward=COLUMN (or loss=, step=, kl=, "
            "entropy=, grad_norm=, learning_rate=, completion_length=)",
        )
    settings = map_settings(config)
    # The last row may say how many steps there will be.
    planned = [as_number(rows[-1].get(column)) for column in TABLE["planned"]]
    planned += [
        as_number(value.partition("/")[2]) for value in rows[-1].values() if is_step_of_total(value)
    ]
    if total := [int(number) for number in planned if number is not None and 0 < number < FAR]:
        settings["steps"] = total[0]
    took = [as_number(row.get(name)) for row in rows[-2:] for name in TABLE["seconds"]]
    if known := [number for number in took if number is not None and number > 0]:
        settings["seconds"] = known[-1]
    if kind == "sft":  # rewards of pairs are no rewards of samples
        series = {ours: values for ours, values in series.items() if not IS_REWARD.fullmatch(ours)}
        settings = {
            key.replace("rl.optimiser.", "sft.optimiser."): value for key, value in settings.items()
        }
    paired = kind == "sft" and any(map(_IS_PAIR.match, series))
    if paired:  # what OpenRLHF, NeMo-RL and TRL's reward models call an accuracy is that of pairs
        of_pairs = dict.fromkeys(("correctness/acc", "correctness/accuracy"), "preference/accuracy")
        series = {of_pairs.get(ours, ours): values for ours, values in series.items()}
    parts = [ours.removeprefix("reward/") for ours in series if ours.startswith("reward/")]
    trainer = "trl" if origin == "trl" else find_trainer(columns)
    history = History(
        origin=origin,
        name=name or ("preference" if paired else kind),
        kind=kind,
        series=series,
        settings=settings,
        finished=finished,
        skipped=skipped,
        options=TABLE["trainers"][trainer]["keys"],
        logs=TABLE["trainers"][trainer]["log"],
        remarks=tuple(_find_remarks(steps, step or AT, series, kind, unread)),
    )
    return history if folder is None else add_completions(history, read_beside(folder, parts))


def _find_remarks(
    rows: Rows, step: str, series: Mapping[str, Series], kind: str, unread: str
) -> Iterator[str]:
    again, last = [list[Row]()], -FAR
    for row in rows:
        at = as_number(row.get(step)) or 0.0
        if at < last:  # a resumed run logs steps again
            again.append([])
        again[-1].append(row)
        last = at
    left_out = sum(count_repeats(held, step, otherwise=True) for held in again)
    if left_out > len(rows) / 10:
        yield (
            f"{left_out:,} rows of a step that another row had, too, were left out: of other "
            "ranks, or of other runs"
        )
    mapped = f"{unread}; --map reward=COLUMN says which one the reward is" * bool(unread)
    if set(series) <= {"loss", "epoch"}:
        yield f"supervised training is a guess: the log holds a loss alone{mapped}"
    elif kind == "rl" and not any(IS_REWARD.fullmatch(name) for name in series):
        yield f"no reward is known by its name, so nothing says whether it is learnt{mapped}"


def add_completions(history: History, stored: Completions) -> History:
    """A history with completions that were stored; what would store them is no advice any more."""
    samples, evaluated = split_by_mode(stored.samples, history.series)
    history = replace(history, series={**_series_of_parts(samples), **history.series})
    samples = _weigh_parts(samples, history)
    logs = dict(history.logs)
    if stored.samples or stored.remarks:
        logs = {need: option for need, option in logs.items() if need not in {"samples", "prompts"}}
    remarks = tuple(dict.fromkeys((*history.remarks, *stored.remarks)))
    return replace(history, samples=samples, evaluated=evaluated, logs=logs, remarks=remarks)


WHOLE = 8
"""Completions of a step, from which on their means stand for parts that nobody logged."""


def _series_of_parts(samples: Sequence[Sample]) -> dict[str, Series]:
    """The parts of the reward by step, where equally many completions are stored of nearly all
    steps: then these are all of them."""
    counts = Counter(Counter(one.step for one in samples).values()).most_common(1)
    steps = len({one.step for one in samples})
    if not counts or counts[0][0] < WHOLE or counts[0][1] < 0.9 * steps:
        return {}
    found = mean_series(samples)
    return {name: one for name, one in found.items() if name.startswith("reward/")}


def _weigh_parts(samples: list[Sample], history: History) -> list[Sample]:
    """Completions whose reward is not stored, and is the sum of their parts until the log says by
    which weights they are added."""
    weights = fit_part_weights(history) if any(one.parts for one in samples) else None

    def total(one: Sample, of: Mapping[str, float]) -> float:
        known = {name: value or 0.0 for name, value in one.parts.items() if value == value}
        return sum(of.get(name, 1.0) * value for name, value in known.items())

    if not weights or any(abs((one.reward or 0.0) - total(one, {})) > EQUAL for one in samples):
        return samples
    return [replace(one, reward=total(one, weights)) if one.parts else one for one in samples]


def _list_unread(rows: Rows) -> str:
    """Some columns that no check reads, in words; empty where there are none."""
    unread = [
        key
        for key in list_columns(rows)
        if not (key == AT or is_step(key) or find_series_name(key))
    ]
    return f"; not understood: {', '.join(unread[:SHOWN])}" * bool(unread)


# -- the configuration beside a log ----------------------------------------------------------------

_CARD = re.compile(r"^- (\w+): (\S+)[ \t]*$", re.MULTILINE)
_CARD_YAML = re.compile(r"^```yaml\n(.{1,20000}?)\n```", re.MULTILINE | re.DOTALL)


def config_beside(folder: Path) -> Values:
    """The trainer's configuration in a folder; empty where there is none, or only that of a model.

    Raises:
        DataError: it cannot be read.
    """
    config: Values = {}
    for file in [folder / name for name in TABLE["configs"] if (folder / name).is_file()]:
        try:
            with clear_read_errors(file):
                values = (
                    read_pickled_options(file)
                    if file.suffix == ".bin"
                    else _parse_config(read_text(file, limit=SMALL), file)
                )
        except (DataError, RecipeError, ValueError) as error:
            raise DataError(
                getattr(error, "cause", f"{file}: {error}"), "correct it, or move it away"
            ) from error
        # A trainer's may hold the model's, too: W&B's of transformers, and ms-swift's.
        if isinstance(values, dict) and (
            "learning_rate" in values or not {"architectures", "model_type"} & set(values)
        ):
            config = values | config
    card = folder / "README.md"
    if card.is_file() and any(
        (folder / name).is_file() for name in ("adapter_config.json", "trainer_state.json")
    ):
        config = _parse_card(read_text(card, limit=SMALL), card) | config
    return config


def _parse_config(text: str, file: Path) -> Any:
    if file.suffix == ".toml":
        return tomllib.loads(text)
    values = (
        parse_json(text) if file.suffix == ".json" else read_yaml(text, str(file), strict=False)
    )
    if file.name != "adapter_config.json":
        return values
    return {"lora_r": values["r"]} if isinstance(values, dict) and "r" in values else {}


def _parse_card(text: str, file: Path) -> Values:
    """The hyperparameters that transformers lists in a model's card, and the configuration that
    Axolotl puts there."""
    found: Values = {}
    for block in _CARD_YAML.findall(text):
        with suppress(RecipeError):
            values = read_yaml(block, str(file), strict=False)
            found |= values if isinstance(values, dict) and "learning_rate" in values else {}
    listed = text.partition("hyperparameters were used during training:")[2].partition("\n#")[0]
    return found | {
        key: number if (number := as_number(one)) is not None else one
        for key, one in _CARD.findall(listed)
    }
