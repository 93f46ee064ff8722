"""Charts as inline SVG: over steps, of rows with dots, and of shares. Places are computed here;
templates draw.

Letters in shapes: n points. A value that was not computed is NaN in here; it makes a gap, never a
0. Colours are classes (`c1`, `muted`), so that one style sheet decides them for light and dark.
   Lines are labelled at their right
end, not in a legend, and every layer says in a tooltip what it is and how it ended.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from plumbline.evaluation.statistics import Interval
from plumbline.records import BoolArray, FloatArray, IntArray
from plumbline.reports.format_numbers import format_interval, format_metric, is_finite
from plumbline.reports.templating import format_coordinate, render_template


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear map from values to coordinates."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The coordinate; what lies outside is held at the edge."""
        held = min(max(value, self.low), self.high)
        return self.start + (held - self.low) / (self.high - self.low) * (self.end - self.start)


def axis_range(values: Iterable[float]) -> tuple[float, float]:
    """The range of an axis: that of the finite values with some air; never empty."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # a constant: on a scale from 0
        return (0.0, 1.0) if high == 0 else (min(0.0, 1.25 * low), max(0.0, 1.25 * high))
    air = 0.06 * (high - low)
    if 0 <= low < 0.5 * high:
        # a quantity that cannot be negative is shown from 0 unless that would flatten it
        return 0.0, high + air
    return low - air, high + air


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most `most` round numbers (1, 2 or 5 times a power of ten) inside the range."""
    span = high - low
    if not math.isfinite(span) or span <= 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(span / most))
    for factor in (1, 2, 5, 10, 20, 50):
        step = factor * power
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [index * step for index in range(first, last + 1)]
    return [low]


def tick_labels(values: Sequence[float]) -> list[str]:
    """Labels with the same number of decimals: 0.0, 0.5, 1.0; thousands as 12,000; very small and
    very large ones with one exponent: 0.5e-6, 1.0e-6."""
    largest = max(map(abs, values), default=0.0)
    step = min((abs(b - a) for a, b in pairwise(values)), default=largest) or 1.0
    is_plain = not largest or 1e-3 <= largest < 1e6
    exponent = 0 if is_plain else math.floor(math.log10(largest) + 1e-9)
    decimals = max(0, exponent - math.floor(math.log10(step) + 1e-9))
    if len(values) == 1 and is_plain:
        decimals = min(decimals + 1, 4)
    labels = (f"{value / 10.0**exponent:,.{decimals}f}" for value in values)
    if not is_plain:
        labels = (
            f"{label}e{exponent}" if value else "0"
            for label, value in zip(labels, values, strict=True)
        )
    return [label.replace("-", "\u2212") for label in labels]


def whole_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Ticks of an axis that counts steps: whole numbers only."""
    return [tick for tick in ticks(low, high, most) if abs(tick - round(tick)) < 1e-6] or [
        round(low)
    ]


def numbers_of(values: Iterable[float | None]) -> FloatArray:
    """Values [n] with NaN where there is none."""
    return np.array(
        [math.nan if value is None else float(value) for value in values], dtype=np.float64
    )


def smooth(values: FloatArray, window: int) -> tuple[FloatArray, FloatArray]:
    """The mean [n] of the `window` values around each, and its 95 % half-width [n] (normal, values
    independent).

    Gaps are left out of the means and stay gaps; near the ends the window is what there is of it.
    """
    finite = np.isfinite(values)
    filled, half = np.where(finite, values, 0.0), window // 2
    sums = [
        np.convolve(one, np.ones(2 * half + 1))[half : half + len(values)]
        for one in (finite.astype(np.float64), filled, filled**2)
    ]
    with np.errstate(invalid="ignore", divide="ignore"):
        count, mean = sums[0], sums[1] / sums[0]
        variance = np.maximum(sums[2] / count - mean**2, 0.0) * count / (count - 1)
        width = 1.96 * np.sqrt(variance / count)
    return np.where(finite, mean, np.nan), np.where(finite & (count > 2), width, np.nan)


def smoothing_window(n: int) -> int:
    """How many steps a smoothed point stands for: about a fifteenth of the run, odd, at least 5."""
    return max(5, n // 15 | 1)


def thin_points(values: FloatArray, most: int) -> IntArray:
    """Indices of at most `most` points to draw: the least and the greatest of each stretch, so that
    spikes stay.

    A gap that is as long as a stretch stays a gap, because its first missing point is kept.
    """
    n = len(values)
    if n <= most:
        return np.arange(n, dtype=np.int64)
    kept = {0, n - 1}
    edges = np.linspace(0, n, max(1, most // 2) + 1).astype(int)
    for start, end in pairwise(edges):
        part = values[start:end]
        finite = np.flatnonzero(np.isfinite(part))
        if not len(finite):
            kept.add(int(start))
            continue
        kept |= {
            int(start + finite[part[finite].argmin()]),
            int(start + finite[part[finite].argmax()]),
        }
    return np.array(sorted(kept), dtype=np.int64)


def sample_points(values: FloatArray, most: int) -> IntArray:
    """Indices of at most `most` finite points, evenly spread so that they look like all of them,
    and the extremes."""
    finite = np.flatnonzero(np.isfinite(values))
    if len(finite) <= most:
        return finite
    kept = {int(finite[index]) for index in even_indices(len(finite), most - 2)}
    kept |= {int(finite[values[finite].argmin()]), int(finite[values[finite].argmax()])}
    return np.array(sorted(kept), dtype=np.int64)


def even_indices(n: int, most: int) -> list[int]:
    """At most `most` indices of n, evenly spread, the first and the last among them."""
    if n <= most:
        return list(range(n))
    return sorted({round(index) for index in np.linspace(0, n - 1, most)})


def spread_labels(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move labels apart until neighbours are `gap` apart, staying between low and high where they
    fit."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = list(places)
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + gap)
    if order and moved[order[-1]] > high:
        moved[order[-1]] = high
        for after, before in pairwise(order[::-1]):
            moved[before] = min(moved[before], moved[after] - gap)
    return [max(place, low) if len(places) * gap <= high - low else place for place in moved]


# -- charts over steps -----------------------------------------------------------------------------

UNIT = (0.0, 1.0)
LINE = 200
"""Most points of a line: what is drawn beyond cannot be told apart."""
INTERVALS = 80
SHORT = 12
"""A series of fewer values is drawn as it is, not smoothed."""
DODGE = 9.0
"""How far evaluations of the same step stand apart, so that their intervals can be told apart."""
CHARACTER = 6.4
"""Rough width of a character of an axis label; labels are placed with it, never cut."""


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A line over steps, or without `joined` faint dots; `band` is the half-width [n] of an
    interval around it."""

    steps: FloatArray
    values: FloatArray
    style: str = "c1"
    label: str = ""
    band: FloatArray | None = None
    most: int = LINE
    joined: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Evaluations: a mark with its interval at each step, joined by a thin line."""

    steps: Sequence[float]
    intervals: Sequence[Interval]
    style: str = "c2"
    label: str = ""
    shape: str = "circle"


@dataclass(frozen=True, slots=True)
class Level:
    """A horizontal line with a name: the floor, the ceiling."""

    value: float
    label: str
    style: str = "muted"


Layer = Line | Points | Level


@dataclass(frozen=True, slots=True)
class Size:
    """Width, height and the space for labels at the right, in units of the view box."""

    width: int = 420
    height: int = 210
    right: int = 14


SMALL = Size(300, 160, 12)
NORMAL = Size()
WIDE = Size(960, 340, 150)
NARROW = Size(420, 320, 106)


@dataclass(slots=True)
class _Drawn:
    """A layer in coordinates."""

    style: str
    look: str = ""
    """Of the path: `line`, `thin`, `raw`."""
    path: str = ""
    tip: str = ""
    level: float | None = None
    bands: list[str] = field(default_factory=list)
    marks: list[tuple[float, float, tuple[float, float] | None, str, str]] = field(
        default_factory=list
    )
    """x, y, the ends of the interval, shape and tooltip of each."""
    name: tuple[float, str, str] | None = None
    """y, text and style of the label at the right end."""


def line_chart(
    layers: Sequence[Layer],
    *,
    label: str,
    size: Size = NORMAL,
    y_range: tuple[float, float] | None = None,
) -> str:
    """A chart over steps.

    Args:
        layers: from back to front.
        label: what the figure shows, for those who do not see it.
        size: of the view box.
        y_range: a fixed range of the y axis; by default that of the values.
    """
    xs = [float(step) for layer in layers if not isinstance(layer, Level) for step in layer.steps]
    values = [value for layer in layers for value in _values(layer)]
    if not any(map(math.isfinite, values)) or not xs:
        return render_template("empty_chart.svg", size=size, label=label)
    several = [layer for layer in layers if isinstance(layer, Points)]
    inset = 5.0 + DODGE * len(several) / 2 if several else 0.0  # keeps marks off the edges
    low, high = y_range or axis_range(values)
    at = ticks(low, high, max(3, min(6, int(size.height / 40))))
    names = tick_labels(at)
    left = max(36.0, 10 + CHARACTER * max(map(len, names)))
    right, bottom = float(size.width - size.right), size.height - 34.0
    first, last = (min(xs), max(xs)) if max(xs) > min(xs) else (min(xs) - 1, max(xs) + 1)
    x, y = Scale(first, last, left + inset, right - inset), Scale(low, high, bottom, 10.0)
    steps = whole_ticks(first, last, max(2, min(8, int((right - left) / 54))))
    drawn = []
    for layer in layers:
        if isinstance(layer, Points):
            shift = DODGE * (several.index(layer) - (len(several) - 1) / 2)
            drawn.append(_points(layer, x, y, shift, crowded=len(layer.steps) * 24 > right - left))
        else:
            drawn.append(_place_layer(layer, x, y, label))
    ends = [one.name for one in drawn if one.name is not None]
    places = spread_labels([end for end, _, _ in ends], 15, 12.0, bottom)
    return render_template(
        "line_chart.svg",
        size=size,
        label=label,
        left=left,
        right=right,
        bottom=bottom,
        y_ticks=[(y(value), name) for value, name in zip(at, names, strict=True)],
        x_ticks=[(x(value), name) for value, name in zip(steps, tick_labels(steps), strict=True)],
        layers=drawn,
        names=[(place, *end[1:]) for place, end in zip(places, ends, strict=True)],
    )


def wide_chart(layers: Sequence[Layer], label: str) -> tuple[str, str]:
    """A chart of rewards as wide as the page, and the same one for narrow screens."""
    wide, narrow = (
        line_chart(layers, label=label, size=size, y_range=UNIT) for size in (WIDE, NARROW)
    )
    return wide, narrow


def _values(layer: Layer) -> list[float]:
    if isinstance(layer, Level):
        return [layer.value]
    if isinstance(layer, Points):
        return [bound for i in layer.intervals for bound in (i.mean, i.low, i.high)]
    return [float(value) for value in layer.values]


def _place_layer(layer: Line | Level, x: Scale, y: Scale, label: str) -> _Drawn:
    drawn = _Drawn(layer.style)
    if isinstance(layer, Level):
        if math.isfinite(layer.value):
            drawn.level = y(layer.value)
            drawn.name = (drawn.level, layer.label, layer.style)
        return drawn
    kept = (thin_points if layer.joined else sample_points)(layer.values, layer.most)
    xs, values = [x(step) for step in layer.steps[kept]], layer.values[kept]
    if not layer.joined:  # moves without a line, drawn by the round caps of the stroke
        drawn.look, drawn.path = "raw", "".join(f"M{place}h0" for place in _places(xs, values, y))
        return drawn
    if layer.band is not None:
        width = layer.band[kept]
        known = np.isfinite(values) & np.isfinite(width)
        drawn.bands = [
            _band(
                [xs[index] for index in stretch],
                (values - width)[stretch],
                (values + width)[stretch],
                y,
            )
            for stretch in _stretches(known)
            if len(stretch) > 1
        ]
    finite = np.flatnonzero(np.isfinite(layer.values))
    if len(finite):
        last = float(layer.values[finite[-1]])
        drawn.tip = (
            f"{layer.label or label}: {format_metric(last)} at step {layer.steps[finite[-1]]:g}"
        )
        drawn.look, drawn.path = "line", _path(xs, values, y)
        drawn.name = (y(last), layer.label, layer.style) if layer.label else None
    return drawn


def _points(layer: Points, x: Scale, y: Scale, shift: float, *, crowded: bool) -> _Drawn:
    """Marks with bars; where they would touch, a line with a band and the marks as small dots."""
    drawn = _Drawn(layer.style)
    kept = [
        i
        for i in even_indices(len(layer.steps), INTERVALS)
        if math.isfinite(layer.intervals[i].mean)
    ]
    if not kept:
        return drawn
    intervals = [layer.intervals[i] for i in kept]
    xs = [x(layer.steps[i]) + (0.0 if crowded else shift) for i in kept]
    means = np.array([interval.mean for interval in intervals])
    if len(kept) > 1:
        drawn.look, drawn.path = "line" if crowded else "thin", _path(xs, means, y)
        if crowded:
            drawn.bands.append(
                _band(xs, [i.low for i in intervals], [i.high for i in intervals], y)
            )
    for at, index, one in zip(xs, kept, intervals, strict=True):
        has_bar = not crowded and is_finite(one.low) and is_finite(one.high)
        ends = (y(one.low), y(one.high)) if has_bar else None
        tip = f"step {layer.steps[index]:g}, {layer.label}: {format_interval(one)}, n = {one.n}"
        drawn.marks.append((at, y(one.mean), ends, "small" if crowded else layer.shape, tip))
    drawn.name = (y(float(means[-1])), layer.label, layer.style)
    return drawn


def _stretches(known: BoolArray) -> list[IntArray]:
    """The indices of each stretch without a gap."""
    parts = np.split(np.arange(len(known)), np.flatnonzero(np.diff(known.astype(int))) + 1)
    return [part for part in parts if len(part) and known[part[0]]]


def _places(xs: Sequence[float], ys: Iterable[float], y: Scale) -> list[str]:
    return [
        f"{format_coordinate(x)},{format_coordinate(y(float(value)))}"
        for x, value in zip(xs, ys, strict=True)
    ]


def _path(xs: Sequence[float], ys: FloatArray, y: Scale) -> str:
    """Path data through the points; a gap breaks the line, and a lone point is a dot of the line's
    width."""
    stretches = [_places([xs[i] for i in one], ys[one], y) for one in _stretches(~np.isnan(ys))]
    return "".join(f"M{'L'.join(one)}{'h0' if len(one) == 1 else ''}" for one in stretches)


def _band(
    xs: Sequence[float],
    low: Sequence[float] | FloatArray,
    high: Sequence[float] | FloatArray,
    y: Scale,
) -> str:
    """Path data of the area between the bounds."""
    return f"M{'L'.join([*_places(xs, high, y), *_places(xs, low, y)[::-1]])}Z"


def smoothed_lines(
    steps: FloatArray,
    values: FloatArray,
    style: str = "c1",
    label: str = "",
    *,
    band: bool = False,
    most: int = LINE,
) -> tuple[Layer, ...]:
    """Faint raw points and the line of their moving mean; the points of a short series are joined
    as they are."""
    if np.isfinite(values).sum() < SHORT:
        return Line(steps, values, style, joined=False), Line(steps, values, style, label)
    mean, width = smooth(values, smoothing_window(len(values)))
    dots = Line(steps, values, style, most=most, joined=False)
    return dots, Line(steps, mean, style, label, width if band else None, most)


# -- charts of rows --------------------------------------------------------------------------------

WIDTH = 420
ROW = 30


@dataclass(frozen=True, slots=True)
class Mark:
    """A dot with its interval; `name` is what its tooltip calls it."""

    interval: Interval
    name: str
    style: str = "c1"
    shape: str = "circle"


def dot_chart(
    rows: Sequence[tuple[str, Sequence[Mark], str]],
    *,
    label: str,
    references: Sequence[tuple[str, Interval]] = (),
    x_title: str = "reward",
    x_range: tuple[float, float] = UNIT,
) -> str:
    """Rows from top to bottom over one axis; values outside of it are held at its edge. Where a
    name is long, all names stand above their marks.

    Args:
        rows: name, marks, and what stands at the right of each.
        label: what the figure shows, for those who do not see it; the rows are said after it.
        references: vertical lines with their intervals as bands; each has its name in a line of its
            own at the top, so that names never meet.
        x_title: under the axis.
        x_range: its ends.
    """
    references = [(name, interval) for name, interval in references if is_finite(interval.mean)]
    longest = max((len(name) for name, _, _ in rows), default=4)
    above = longest > 22
    count, top = max(len(rows), 1), 8.0 + 16 * len(references)
    left = 18 if above else 18 + 6.6 * longest
    # as high as the curve that may stand beside it, where that is no stretch
    height = 46 if above else min(max((NARROW.height - 36 - top) / count, ROW), 1.6 * ROW)
    right = WIDTH - 18 - 6.8 * max((len(note) for _, _, note in rows), default=0)
    bottom = top + height * count
    at = ticks(*x_range, 6)
    return render_template(
        "dot_chart.svg",
        rows=rows,
        label=label,
        references=references,
        x_title=x_title,
        top=top,
        bottom=bottom,
        x=Scale(*x_range, left, right),
        ticks=list(zip(at, tick_labels(at), strict=True)),
        width=WIDTH,
        height=round(bottom + 36),
        row_height=height,
        above=above,
    )
