"""Logged rows into series, under our names."""

import math
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from plumbline.checks.diagnosis.history import Kind, Series
from plumbline.config.overrides import read_package_yaml
from plumbline.errors import DataError, RecipeError
from plumbline.records import FloatArray, Row, Rows, Values

TABLE = read_package_yaml(Path(__file__).with_name("names.yaml"))


FAR = 1e15
"""No run has so many steps."""
Line = TypeVar("Line")


class _Ours(NamedTuple):
    name: str
    rank: int
    """Of two names for one of ours the lower is read."""
    times: float | Literal["ln"]
    """What theirs is multiplied by; ln takes its logarithm instead."""
    plus: float


_SCALED = [ours if isinstance(ours, list) else (ours, 1, 0) for ours in TABLE["series"].values()]
_ENTRIES = [
    (re.compile(re.escape(theirs).replace(r"\*", "[^/]+")), _Ours(name, rank, times, plus))
    for rank, (theirs, (name, times, plus)) in enumerate(zip(TABLE["series"], _SCALED, strict=True))
]
_MAPPED, _STEPS = list[str](), tuple(TABLE["steps"])
_PARTS = tuple(
    (prefix, re.compile(one)) for prefix, patterns in TABLE["parts"].items() for one in patterns
)
_MARKS = {
    mark: re.compile("|".join(f"(?:{one})" for one in TABLE["marks"][mark]))
    for mark in TABLE["marks"]
}


def _join_words(name: str) -> str:
    """A name as it is where a program allows letters and underscores alone."""
    return re.sub(r"[^a-z0-9]+", "_", name).strip("_")


_JOINED = {
    _join_words(theirs): ours
    for theirs, (_, ours) in reversed(list(zip(TABLE["series"], _ENTRIES, strict=True)))
}


@cache
def _spellings(name: str) -> tuple[str, ...]:
    """A name and its plainer spellings: `train/` off its front, in small letters, with slashes for
    dots."""
    name = re.sub(r"\s*/\s*", "/", name.strip())
    # `Training Loss`, `Grad. Norm` and `LR` are for people.
    plain = re.sub(r"\s+", "_", name.lower().replace(". ", " "))
    slashed = re.sub(r"(?<=[a-z])\.(?=[a-z])", "/", plain)
    spellings = (name, plain, slashed)
    # `train_mean_nll` is a name of its own.
    return tuple(
        dict.fromkeys(
            spelled for one in spellings for spelled in (one, re.sub(r"^train[/_]", "", one))
        )
    )


def map_columns(pairs: Iterable[str]) -> None:
    """Read columns as a user says, until this is called again.

    Args:
        pairs: `reward=Belohnung`, the name of a series (see `history`) or `step` first.

    Raises:
        RecipeError: there is no such series, or no column is named.
    """
    del _ENTRIES[: len(_MAPPED)]
    TABLE["steps"][:] = _STEPS
    _MAPPED.clear()
    known = {"step", *(ours.name for _, ours in _ENTRIES)}
    for pair in pairs:
        name, _, column = pair.partition("=")
        if not column or name not in known:
            raise RecipeError(
                f"--map {pair} says of no column what it is",
                f"write --map reward=COLUMN; in its place: {', '.join(sorted(known))}",
            )
        _MAPPED.append(column)
        pattern = re.compile(re.escape(column), re.IGNORECASE)
        _ENTRIES.insert(0, (pattern, _Ours(name, -1, 1, 0)))
        TABLE["steps"][:0] = [column.lower()] * (name == "step")
    _find_ours.cache_clear()


def list_missing(columns: Iterable[str]) -> list[str]:
    """Which of the columns that a user named are not among these."""
    there = {spelled for column in columns for spelled in _spellings(column)}
    return [column for column in _MAPPED if not there & {*_spellings(column)}]


@cache
def _find_ours(name: str) -> _Ours | None:
    spellings = _spellings(name)
    for plain in spellings:
        for pattern, ours in _ENTRIES:
            if pattern.fullmatch(plain):
                return ours
        for prefix, pattern in _PARTS:
            if found := pattern.fullmatch(plain):
                return _Ours(f"{prefix}{found[1]}", len(_ENTRIES), 1, 0)
    return next(
        (_JOINED[joined] for one in spellings if (joined := _join_words(one)) in _JOINED), None
    )


def find_trainer(columns: Iterable[str]) -> str:
    """Whose columns these are: a name in `trainers` of names.yaml, empty for any other's."""
    spelled = [one for column in columns for one in _spellings(column)]
    found = [
        one
        for one, of in TABLE["trainers"].items()
        if one and any(map(re.compile(of["columns"]).fullmatch, spelled))
    ]
    return found[0] if len(found) == 1 else ""


def has_mark(name: str, mark: str) -> bool:
    """Whether a column is one that decides for a kind of training, whether a check reads it or
    not."""
    return any(_MARKS[mark].fullmatch(one) for one in _spellings(name))


def find_series_name(name: str) -> str | None:
    """Our name of a metric; None where it is none that a check reads."""
    ours = _find_ours(name)
    return None if ours is None else ours.name


def map_settings(config: Mapping[str, Any]) -> Values:
    """What of a trainer's configuration is known here, by our keys; what is not a plain value is
    left out.

    Args:
        config: as the trainer has it, or as W&B writes it: {key: {"value": ...}}.
    """
    flat = dict(
        _flatten(
            {key: one["value"] if _is_wandb_value(one) else one for key, one in config.items()}
        )
    )
    plain = (str, int, float, bool, type(None))
    found: Values = {}
    for name, ours in TABLE["settings"].items():
        if name in flat and type(flat[name]) in plain and flat[name] is not None:
            found.setdefault(ours, flat[name])
    # PyYAML reads the 1e-05 that W&B writes as a text.
    found = {
        key: as_number(one) if as_number(one) is not None and isinstance(one, str) else one
        for key, one in found.items()
    }
    # transformers says -1 for "by epochs"
    if not isinstance(found.get("steps"), int) or not 0 < found["steps"] < FAR:
        found.pop("steps", None)
    kinds = [str(flat[name]).lower() for name in TABLE["adapters"] if name in flat]
    rank = found.pop("model.lora.rank", None) or None
    if any("lora" in kind or kind == "true" for kind in kinds) or (rank is not None and not kinds):
        found["model.lora.rank"] = "unknown" if rank is None else rank
    return found


def _is_wandb_value(value: Any) -> bool:
    return isinstance(value, dict) and "value" in value and set(value) <= {"value", "desc"}


def _flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict) and prefix.count(".") < 6:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def collect_series(
    rows: Iterable[Row],
    name: Callable[[str], str | None] = find_series_name,
    step: str = "step",
    printed: bool = False,
    counted: bool = True,
) -> dict[str, Series]:
    """The numbers of rows by our names.

    Args:
        rows: each with its step; the later of two rows of one step and name counts (a resumed run
            logs steps again).
        name: our name of theirs; None leaves a key out.
        step: their key of the step.
        printed: whether the numbers may have been rounded when they were written.
        counted: see `Series`.
    """
    found: dict[str, dict[str, dict[int, Any]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        at = as_number(row.get(step))
        if at is None or not abs(at) < FAR:
            continue
        place = int(at)
        for key, value in row.items():
            if key == step or (ours := name(key)) is None or as_number(value) is None:
                continue
            found[ours][key][place] = value
    columns = (
        [column.values() for sources in found.values() for column in sources.values()]
        if printed
        else []
    )
    log = _count_digits(number for column in columns for number in _number_formats(column))
    series = {}
    for ours, sources in found.items():
        scales = {key: _find_ours(key) for key in sources}
        ranks = {
            key: len(_ENTRIES) if scale is None else scale.rank for key, scale in scales.items()
        }
        key = min(sources, key=lambda name: (ranks[name], -len(sources[name])))
        steps, scale = sorted(sources[key]), scales[key]
        values = np.array([as_number(sources[key][at]) for at in steps], dtype=np.float64)
        rounding = (
            _estimate_rounding(_number_formats(sources[key].values()), values, log)
            if printed
            else 0.0
        )
        if printed and ours in _TINY and (ours == "kl" or np.abs(values).max() < 10 * rounding):
            known = [_TINY[ours].fullmatch(str(sources[key][at])) is None for at in steps]
            steps, values = [at for at, one in zip(steps, known, strict=True) if one], values[known]
            if not steps:
                continue
        if scale is None:
            pass
        elif isinstance(scale.times, str):
            values = np.log(np.maximum(values, 1e-9))
        elif (scale.times, scale.plus) != (1, 0):
            values, rounding = values * scale.times + scale.plus, rounding * abs(scale.times)
        series[ours] = Series(np.array(steps, dtype=np.int64), values, rounding, counted)
    return series


def as_number(value: Any) -> float | None:
    """A number as it was logged: tables hold texts, and W&B and some JSON writers put what is not
    finite as one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


_TINY = {"learning_rate": re.compile(r"-?0?\.0{2,6}"), "kl": re.compile(r"-?0?\.0{2,4}")}
"""A rate is far below a thousandth in a healthy run, a KL may be: where all printed decimals are 0
they are unknown. A rate is 0 all the same where its highest has five units and more.
"""
_WRITTEN = re.compile(r"[-+]?(\d*)(?:\.(\d*))?(?:[eE]([-+]?\d+))?")
_EXACT = 8
"""Significant digits from which a number counts as written in full."""


class _Written(NamedTuple):
    """How a number is written: digits behind the point, whether it has an exponent, and significant
    digits."""

    decimals: int
    exponent: bool
    significant: int
    padded: bool
    """Whether zeros stand at the end of a text, which are written for their number alone."""


def _number_formats(column: Iterable[Any]) -> list[_Written]:
    """How numbers of a column are written: some hundreds of them.

    Whole numbers without a point, and what is not finite, say nothing.
    """
    values = list(column)
    written = []
    for value in values[:: max(1, len(values) // 300)]:
        pieces = _WRITTEN.fullmatch(value if isinstance(value, str) else repr(value))
        if pieces is None or (pieces[2] is None and pieces[3] is None):
            continue
        decimals = pieces[2] or ""
        digits = (pieces[1] + decimals).lstrip("0")
        padded = isinstance(value, str) and len(decimals) > 1 and decimals.endswith("0")
        significant = len(digits if padded else digits.rstrip("0"))
        written.append(_Written(len(decimals), pieces[3] is not None, significant, padded))
    return written


def _count_digits(written: Iterable[_Written]) -> tuple[int, int]:
    """The most significant digits of numbers, and the most decimals of those without an
    exponent."""
    digits = decimals = 0
    for number in written:
        digits = max(digits, number.significant)
        if not number.exponent and number.significant:
            decimals = max(decimals, number.decimals)
    return digits, decimals


def _estimate_rounding(
    written: Sequence[_Written], values: FloatArray, log: tuple[int, int]
) -> float:
    """The most that writing changed a number of a column by.

    A fixed number of decimals shows in zeros at the end. Numbers with a fixed number of significant
    digits (`%.4g`) have a unit that grows with them: the largest counts. Beside columns that are
    written in full, one of few decimals was rounded to these (transformers' loss).

    Args:
        written: how numbers of the column are written.
        values: of the column.
        log: `_count_digits` of all columns of the log.
    """
    digits, decimals = log
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    first = math.floor(math.log10(sizes.max())) if len(sizes) else -400
    exponents = any(number.exponent for number in written)
    most = max((number.decimals for number in written), default=0)
    alike = len({(number.decimals, number.exponent) for number in written}) == 1 and most > 1
    if alike and (any(number.padded for number in written) or digits < _EXACT):
        return 0.5 * 10.0 ** ((first if exponents else 0) - most)
    if digits >= _EXACT:
        rounded = (
            max((number.significant for number in written), default=_EXACT) < _EXACT
            and 3 <= most <= 8
        )
        return 0.5 * 10.0**-most if rounded and not exponents and len(written) >= 5 else 0.0
    if digits < 3:
        return 0.0
    unit = 10.0 ** (first - digits + 1)
    return 0.5 * (unit if exponents else max(unit, 10.0**-decimals))


IS_REWARD = re.compile(r"reward(?:_std)?(?:/.+)?")
AT = "\0step"
"""The step of a row, once it is known; no trainer's name."""
NOTHING = frozenset({"", "none", "null", "na", "n/a", "-", "no log"})
"""Texts that say that there is nothing. "nan" is not among them: it may be what was logged."""


def list_columns(rows: Iterable[Row]) -> dict[str, None]:
    """Names of columns that hold something in some row, in order: neither nothing nor NaN."""
    found: dict[str, None] = {}
    for row in rows:
        for key, value in row.items():
            nothing = (
                value.strip().lower() in {*NOTHING, "nan"}
                if isinstance(value, str)
                else value != value
            )
            if key not in found and value is not None and not nothing:
                found[key] = None
    return found


def find_kind(series: Mapping[str, Series], columns: Iterable[str] = ()) -> Kind | None:
    """The kind of a stage; None where nothing says that it is training.

    Columns that only RL has decide, whether a check reads them or not; those of preference
    training, which has rewards of pairs, stand for supervised training unless groups of samples are
    there. A series of NaN decides nothing where another holds numbers.

    Args:
        series: what was read.
        columns: names of the log that hold something: see `list_columns`.
    """
    names = {name for name, one in series.items() if np.isfinite(one.values).any()} or set(series)
    columns = list(columns)
    if names & {"reward_std", "frac_reward_zero_std", "clip_fraction"}:
        return "rl"
    if any(has_mark(column, "preference") for column in columns) and not any(
        "scores" in column for column in columns
    ):
        return "sft" if names & {"loss", "eval/loss"} else None
    if names & {"reward", "logprob_gap", "mismatch_kl", "importance_ratio_mean"} or any(
        IS_REWARD.fullmatch(name) for name in names
    ):
        return "rl"
    marks = [column for column in columns if has_mark(column, "rl")]
    if names and marks and not _is_cross_entropy(series, marks):
        return "rl"
    if "kl" in names and not any(has_mark(column, "supervised") for column in columns):
        return "rl"
    return "sft" if any(name == "loss" or name.startswith("eval/loss") for name in names) else None


CLEAR = 0.3
"""The median of a loss, which that of a policy gradient does not have, whose terms cancel."""


def _is_cross_entropy(series: Mapping[str, Series], marks: Sequence[str]) -> bool:
    """Whether a loss alone has a name of RL, no reward stands beside it, and it is always far above
    0."""
    values = series["loss"].finite_values if "loss" in series else np.empty(0)
    named = all(find_series_name(column) == "loss" for column in marks)
    return named and len(values) > 0 and bool(values.min() > 0 and np.median(values) > CLEAR)


def mark_evaluation(row: Row) -> Values:
    """A row with `eval_` before each metric where it is of an evaluation: TRL has logged some of
    these without it."""
    return (
        dict(row)
        if "loss" in row or not {"eval_runtime", "eval_loss"} & set(row)
        else prefix_eval(row)
    )


def prefix_eval(row: Row) -> Values:
    """A row of an evaluation with `eval_` before each metric."""

    def named(key: str) -> str:
        known = (
            key.startswith("eval")
            or is_step(key)
            or (find_series_name(key) or "").startswith("eval/")
        )
        return key if known or key == "epoch" else f"eval_{re.sub('^train[/_]', '', key)}"

    return {named(key): one for key, one in row.items()}


def count_repeats(rows: Iterable[Row], step: str = AT, *, otherwise: bool = False) -> int:
    """How many rows say something of a step and a metric that a row before them spoke of.

    Args:
        rows: each with its step.
        step: their key of the step.
        otherwise: whether only those count that say another value.
    """
    seen: dict[tuple[Any, str], str] = {}
    count = 0
    for row in rows:
        known = {
            (row.get(step), key): str(value)
            for key, value in row.items()
            if find_series_name(key) not in {None, "epoch"} and as_number(value) is not None
        }
        count += any(
            place in seen and not (otherwise and seen[place] == value)
            for place, value in known.items()
        )
        seen.update(known)
    return count


def is_step_of_total(value: Any) -> bool:
    """Whether it is written as ms-swift writes a step: 5/100."""
    return isinstance(value, str) and re.fullmatch(r"\d{1,12}/\d{1,12}", value) is not None


def add_steps(rows: Rows) -> tuple[list[Row], bool]:
    """Rows with their steps, and whether these were logged.

    They are those of the column that counts them, the last seen where a row has none; else the rows
    are numbered, as their reader did it or here.
    """
    spelled: dict[str, list[str]] = {}
    for key in dict.fromkeys(key for row in rows for key in row):
        spelled.setdefault(key.lower(), []).insert(0, key)

    def step(row: Row, name: str) -> float | None:
        return next((_parse_step(row[key]) for key in spelled.get(name, ()) if key in row), None)

    column = next(
        (
            name
            for name in TABLE["steps"]
            if sum(step(row, name) is not None for row in rows) * 2 >= len(rows)
        ),
        None,
    )
    if column is None:
        return [{AT: number, **row} for number, row in enumerate(rows, 1)], False
    last = 0.0
    stepped: list[Row] = []
    for row in rows:
        own = step(row, column)
        own = step(row, "eval/global_step") if own is None else own  # OpenRLHF's evaluations
        last = last if own is None else own
        stepped.append({**row, AT: last})
    return stepped, True


def is_step(column: str) -> bool:
    """Whether a column counts steps."""
    return column.lower() in TABLE["steps"]


def _parse_step(value: Any) -> float | None:
    number = as_number(value.partition("/")[0] if is_step_of_total(value) else value)
    return number if number is not None and abs(number) < FAR else None


FRESH = 0.05
"""The share of a run in whose first rows no resumed one begins."""


def split_at_restarts(
    rows: Sequence[Line], place: Callable[[Line], float | None]
) -> list[list[Line]]:
    """Rows of each run, where their places begin again; of a few rows before another it is left
    out.

    A resumed run goes back, but not to its beginning: to its first row, or the first of `FRESH`.

    Args:
        rows: in the order in which they were written.
        place: the step of a row, or the like; None where it has none.
    """
    runs: list[list[Line]] = [[]]
    first: float | None = None
    last = 0.0
    for row in rows:
        if (now := place(row)) is not None:
            if first is None:
                first = now
            elif now < last and now <= max(first, FRESH * last):
                runs.append([])
                first = now
            last = now
        runs[-1].append(row)
    return [run for run in runs[:-1] if len(run) >= 5] + runs[-1:]


MOST_RUNS = 500
"""In one record: each is judged by itself."""


def refuse_many(runs: int, path: Path) -> None:
    """Refuse a record of more runs than anybody compares.

    Raises:
        DataError: it holds more than `MOST_RUNS`.
    """
    if runs > MOST_RUNS:
        raise DataError(
            f"{path} holds {runs:,} runs, and at most {MOST_RUNS} are judged at once",
            "split it; if it is one run, leave out the column that names runs, or count its steps "
            "on",
        )


class SeveralRunsError(DataError):
    """A folder holds several records, and one was asked for."""

    def __init__(self, found: Sequence[Path], folder: Path, what: str) -> None:
        self.found = sorted(found)
        names = ", ".join(str(one.relative_to(folder)) for one in self.found[:20])
        commands = "; ".join(f"plumbline check {shlex.quote(str(one))}" for one in self.found[:20])
        super().__init__(
            f"{folder} holds {len(found)} {what}: {names}", f"check one at a time: {commands}"
        )


def take_only(found: Sequence[Path], folder: Path, what: str) -> Path | None:
    """The only one of some records; None for none.

    Raises:
        SeveralRunsError: there are several; it lists them.
    """
    if len(found) > 1:
        raise SeveralRunsError(found, folder, what)
    return found[0] if found else None
