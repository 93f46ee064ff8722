"""Logged rows into series, under our names, and into the history of a stage."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from plumbline.diagnosis.history import History, Kind, Sample, Series
from plumbline.errors import DataError, RecipeError
from plumbline.overrides import read_own, read_yaml
from plumbline.storage import SMALL, clear_read_errors, parse_json, read_text

_TABLE = read_own(Path(__file__).with_name("names.yaml"))


FAR = 1e15
"""No run has so many steps."""


class _Ours(NamedTuple):
    name: str
    rank: int
    """Of two names for one of ours the lower is read."""
    times: float
    plus: float


def _entries() -> Iterator[tuple[re.Pattern[str], _Ours]]:
    for rank, (theirs, ours) in enumerate(_TABLE["series"].items()):
        name, times, plus = ours if isinstance(ours, list) else (ours, 1, 0)
        yield re.compile(re.escape(theirs).replace(r"\*", "[^/]+")), _Ours(name, rank, times, plus)


_ENTRIES = tuple(_entries())
_PARTS = tuple((prefix, re.compile(one)) for prefix, patterns in _TABLE["parts"].items() for one in patterns)


@cache
def _ours(name: str) -> _Ours | None:
    # `train_mean_nll` is a name of its own; `Training Loss`, `Grad. Norm` and `LR` are for people.
    plainer = re.sub(r"\s+", "_", name.strip().lower().replace(". ", " "))
    for plain in (name, re.sub(r"^train[/_]", "", name), plainer):
        for pattern, ours in _ENTRIES:
            if pattern.fullmatch(plain):
                return ours
        for prefix, pattern in _PARTS:
            if found := pattern.fullmatch(plain):
                return _Ours(f"{prefix}{found[1]}", len(_ENTRIES), 1, 0)
    return None


def our_name(name: str) -> str | None:
    """Our name of a metric; None where it is none that a check reads."""
    ours = _ours(name)
    return None if ours is None else ours.name


def our_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What of a trainer's configuration is known here, by our keys; what is not a plain value is left out.

    Args:
        config: as the trainer has it, or as W&B writes it: {key: {"value": ...}}.
    """
    flat = dict(_flat({key: one["value"] if _wrapped(one) else one for key, one in config.items()}))
    plain = (str, int, float, bool, type(None))
    found = {
        ours: flat[name] for name, ours in _TABLE["settings"].items() if name in flat and type(flat[name]) in plain
    }
    # PyYAML reads the 1e-05 that W&B writes as a text.
    found = {
        key: as_number(one) if as_number(one) is not None and isinstance(one, str) else one
        for key, one in found.items()
    }
    if not isinstance(found.get("steps"), int) or not 0 < found["steps"] < FAR:  # transformers says -1 for "by epochs"
        found.pop("steps", None)
    return found


def _wrapped(value: Any) -> bool:
    return isinstance(value, dict) and "value" in value and set(value) <= {"value", "desc"}


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict) and prefix.count(".") < 6:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def collect_series(
    rows: Iterable[Mapping[str, Any]], name: Callable[[str], str | None] = our_name, step: str = "step"
) -> dict[str, Series]:
    """The numbers of rows by our names.

    Args:
        rows: each with its step; the later of two rows of one step and name counts (a resumed run logs steps again).
        name: our name of theirs; None leaves a key out.
        step: their key of the step.
    """
    found: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        at = as_number(row.get(step))
        if at is None or not abs(at) < FAR:
            continue
        for key, value in row.items():
            if key == step or (ours := name(key)) is None or (number := as_number(value)) is None:
                continue
            found[ours][key][int(at)] = number
    series = {}
    for ours, sources in found.items():
        key = min(sources, key=lambda one: (_rank(one), -len(sources[one])))
        steps, scale = sorted(sources[key]), _ours(key)
        values = np.array([sources[key][at] for at in steps], dtype=np.float64)
        if scale is not None and (scale.times, scale.plus) != (1, 0):
            values = values * scale.times + scale.plus
        series[ours] = Series(np.array(steps, dtype=np.int64), values)
    return series


def _rank(key: str) -> int:
    ours = _ours(key)
    return len(_ENTRIES) if ours is None else ours.rank


def as_number(value: Any) -> float | None:
    """A number as it was logged: tables hold texts, and W&B and some JSON writers put what is not finite as one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What another trainer left: its rows, in the order in which they were written."""

    origin: str
    path: Path
    rows: Sequence[Mapping[str, Any]]
    step: str | None = None
    """Their key of the step; None to look for it."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The trainer's own."""
    finished: bool | None = None
    skipped: int = 0

    def history(self, completions: Callable[[list[str]], Sequence[Sample]]) -> History:
        """The history of its one stage.

        Args:
            completions: reads what is beside it, given the names of the parts of the reward.

        Raises:
            DataError: it has no rows, or none of its names is that of a reward or a loss.
        """
        if not self.rows:
            raise DataError(f"{self.path} has no logged step", "look at it again after the first step of training")
        # transformers logs the whole run's mean loss at the end, under the name of a step's.
        rows = [row for row in self.rows if "train_runtime" not in row and "train/train_runtime" not in row]
        series = collect_series(_stepped(rows) if self.step is None else rows, step=self.step or _AT)
        if "epoch" in series and np.array_equal(series["epoch"].values, np.floor(series["epoch"].values)):
            del series["epoch"]  # a counter of whole epochs does not say how much of one was seen
        kind = kind_of(series)
        if kind is None:
            raise _unknown(f"{self.path} ({self.origin})", self.rows)
        settings = our_settings(self.config) | self._planned()
        if kind == "sft":
            settings = {key.replace("rl.optimiser.", "sft.optimiser."): value for key, value in settings.items()}
        return History(
            origin=self.origin,
            name=kind,
            kind=kind,
            series=series,
            settings=settings,
            samples=completions([name.removeprefix("part/") for name in series if name.startswith("part/")]),
            finished=self.finished,
            skipped=self.skipped,
        )

    def _planned(self) -> dict[str, int]:
        """The steps that the last row says there will be."""
        last = self.rows[-1]
        told = [as_number(last.get(name)) for name in _TABLE["planned"]]
        told += [as_number(value.partition("/")[2]) for value in last.values() if _of_total(value)]
        steps = [int(one) for one in told if one is not None and 0 < one < FAR]
        return {"steps": steps[0]} if steps else {}


def kind_of(series: Iterable[str]) -> Kind | None:
    """The kind of a stage by the names of what was logged of it; None where that is neither a reward nor a loss."""
    names = set(series)
    if names & {"reward", "reward_std", "zero_std", "clip"} or any(name.startswith("part/") for name in names):
        return "rl"
    return "sft" if names & {"loss", "eval/loss"} else None


_AT = "\0step"
"""The step of a row, once it is known; no trainer's name."""


def _of_total(value: Any) -> bool:
    """Whether it is written as ms-swift writes a step: 5/100."""
    return isinstance(value, str) and re.fullmatch(r"\d{1,12}/\d{1,12}", value) is not None


def _stepped(rows: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Rows with their steps: of the column that counts them, the last seen where a row has none, else row numbers."""
    lower = [{key.lower(): value for key, value in row.items()} for row in rows]
    column = next(
        (name for name in _TABLE["steps"] if sum(_step(row.get(name)) is not None for row in lower) * 2 >= len(rows)),
        None,
    )
    last = 0.0
    for number, (row, names) in enumerate(zip(rows, lower, strict=True), 1):
        if column is None:
            last = number
        else:
            own = _step(names.get(column))
            own = _step(names.get("eval/global_step")) if own is None else own  # OpenRLHF's evaluations
            last = last if own is None else own
        yield {**row, _AT: last}


def _step(value: Any) -> float | None:
    number = as_number(value.partition("/")[0] if _of_total(value) else value)
    return number if number is not None and abs(number) < FAR else None


def _unknown(what: str, rows: Sequence[Mapping[str, Any]]) -> DataError:
    seen = list(dict.fromkeys(key for row in rows for key in row))
    shown = ", ".join(seen[:30]) + (f" and {len(seen) - 30} more" if len(seen) > 30 else "")
    named = {theirs: ours for theirs, ours in _TABLE["series"].items() if isinstance(ours, str)}
    known = [theirs for theirs, ours in named.items() if ours in {"reward", "loss", "eval/loss"}]
    return DataError(
        f"{what} has neither a reward nor a loss under a name that is known; its columns are: {shown}",
        f"rename one of them to one of: {', '.join(known)} (all names: diagnosis/readers/names.yaml)",
    )


def config_beside(folder: Path) -> dict[str, Any]:
    """The trainer's configuration in a folder; empty where there is none, or only that of a model.

    Raises:
        DataError: it cannot be read.
    """
    for name in ("config.yaml", "files/config.yaml", "config.json", "args.json"):
        file = folder / name
        if not file.is_file():
            continue
        try:
            text = read_text(file, limit=SMALL)
            with clear_read_errors(file):
                values = parse_json(text) if file.suffix == ".json" else read_yaml(text, str(file), strict=False)
        except (DataError, RecipeError) as error:
            raise DataError(error.cause, "correct it, or move it away") from error
        if isinstance(values, dict) and not {"architectures", "model_type"} & set(values):
            return values
    return {}


def only_one(found: Sequence[Path], folder: Path, what: str) -> Path | None:
    """The only one of some records; None for none.

    Raises:
        DataError: there are several; it lists them.
    """
    if len(found) > 1:
        names = ", ".join(str(one.relative_to(folder)) for one in sorted(found)[:20])
        raise DataError(f"{folder} holds {len(found)} {what}: {names}", "give the path of the one that you mean")
    return found[0] if found else None
