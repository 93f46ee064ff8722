"""Logged rows into series, under our names."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from plumbline.diagnosis.history import Series

_TABLE = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text(encoding="utf-8"))


@cache
def our_name(name: str) -> str | None:
    """Our name of a metric; None where it is none that a check reads."""
    plain = re.sub(r"^train[/_]", "", name)
    if plain in _TABLE["series"]:
        return str(_TABLE["series"][plain])
    for prefix, patterns in _TABLE["parts"].items():
        for pattern in patterns:
            if found := re.fullmatch(pattern, plain):
                return f"{prefix}{found[1]}"
    return None


def our_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What of a trainer's configuration is known here, by our keys; what is not a plain value is left out."""
    plain = (str, int, float, bool, type(None))
    return {
        ours: config[name]
        for name, ours in _TABLE["settings"].items()
        if name in config and type(config[name]) in plain
    }


def collect_series(
    rows: Iterable[Mapping[str, Any]], name: Callable[[str], str | None] = our_name, step: str = "step"
) -> dict[str, Series]:
    """The numbers of rows by our names.

    Args:
        rows: each with its step; the later of two rows of one step and name counts (a resumed run logs steps again).
        name: our name of theirs; None leaves a key out.
        step: their key of the step.
    """
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        at = row.get(step)
        if isinstance(at, bool) or not isinstance(at, int | float) or at != at:
            continue
        for key, value in row.items():
            if key == step or isinstance(value, bool) or (ours := name(key)) is None:
                continue
            if (number := _number(value)) is not None:
                found[ours][int(at)] = number
    series = {}
    for key, values in found.items():
        steps = sorted(values)
        series[key] = Series(np.array(steps, dtype=np.int64), np.array([values[at] for at in steps], dtype=np.float64))
    return series


def _number(value: Any) -> float | None:
    """A number as it was logged: W&B and some JSON writers put what is not finite as a text."""
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str) and value.strip().lower().lstrip("+-") in {"nan", "inf", "infinity"}:
        return float(value)
    return None
