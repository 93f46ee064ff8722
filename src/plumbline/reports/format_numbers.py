"""Numbers as people read them: the same digits in every table, figure and sentence; a dash where
nothing was computed.

A value that was not computed is None or NaN, and is never shown as 0.
"""

import math
from typing import TypeGuard

from plumbline.evaluation.statistics import Interval

DASH = "–"
LONGEST = 1e10
"""Seconds that are said in hours: 300 years."""


def is_finite(value: float | None) -> TypeGuard[float]:
    """Whether there is a finite value at all."""
    return value is not None and math.isfinite(value)


def format_fixed(value: float | None, digits: int = 3) -> str:
    """0.612, and never -0.000."""
    if not is_finite(value):
        return DASH
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def format_signed(value: float | None, digits: int = 3) -> str:
    """+0.319."""
    text = format_fixed(value, digits)
    return text if text == DASH or text.startswith("-") else f"+{text}"


def format_bounds(interval: Interval, *, sign: bool = False) -> str:
    """[0.280, 0.357]; those of a difference have signs."""
    digits = format_signed if sign else format_fixed
    return f"[{digits(interval.low)}, {digits(interval.high)}]"


def format_interval(interval: Interval, *, sign: bool = False) -> str:
    """0.612 [0.560, 0.664], or 0.612 where there is no interval (one seed) or it is exact; a
    difference is +0.319 [+0.220, +0.418]."""
    if not is_finite(interval.mean):
        return DASH
    mean = format_signed(interval.mean) if sign else format_fixed(interval.mean)
    return f"{mean} {format_bounds(interval, sign=sign)}" if interval.low < interval.high else mean


def format_p(p: float | None) -> str:
    """< 0.001, 0.031, 0.28: three digits where they decide."""
    if not is_finite(p):
        return DASH
    if p < 0.001:
        return "< 0.001"
    return format_fixed(p, 3 if p < 0.1 else 2)


def format_p_equation(p: float) -> str:
    """P < 0.001, p = 0.28."""
    text = format_p(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def format_percent(value: float | None) -> str:
    """12.5 %."""
    return f"{format_fixed(value * 100, 1)} %" if is_finite(value) else DASH


def format_count(value: int) -> str:
    """12,500."""
    return f"{value:,}"


def format_duration(seconds: float) -> str:
    """0.4 s, 52 s, 12 min 05 s, 3 h 20 min; what no run lasts in few digits: 1.0e+300 s."""
    if not is_finite(seconds):
        return DASH
    if abs(seconds) > LONGEST:
        return f"{format_metric(seconds)} s"
    if seconds < 10:
        return f"{format_fixed(seconds, 1)} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def format_metric(value: float) -> str:
    """A metric whose size is not known beforehand, with three digits that count: 153, 0.0412,
    5.0e-06."""
    if not is_finite(value):
        return DASH
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e6):
        return f"{value:.1e}"
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return format_fixed(value, 1 if size >= 10 else 2 if size >= 1 else 4 if size < 0.1 else 3)
