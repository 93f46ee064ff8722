"""Charts over steps: lines with gaps, faint raw points, bands, points with intervals, and level lines.

Lines are labelled at their right end, not in a legend. Every layer says in a tooltip what it is and how it ended.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from plumbline.evaluation.statistics import Interval
from plumbline.reports import numbers, svg
from plumbline.reports.scales import Values, domain, evenly, scattered, smooth, smoothing_window, spread, thin

UNIT = (0.0, 1.0)
DOTS, LINE = 260, 200
"""Most points of a layer of dots and of a line: what is drawn beyond cannot be told apart."""
INTERVALS = 80
SHORT = 12
"""A series of fewer values is drawn as it is, not smoothed."""
DODGE = 9.0
"""How far evaluations of the same step stand apart, so that their intervals can be told apart."""


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A line over steps; `band` is the half-width [n] of an interval around it."""

    steps: Values
    values: Values
    style: str = "c1"
    label: str = ""
    band: Values | None = None
    most: int = LINE


@dataclass(frozen=True, slots=True, eq=False)
class Dots:
    """Raw values, faint, behind everything."""

    steps: Values
    values: Values
    style: str = "c1"
    most: int = DOTS


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


Layer = Line | Dots | Points | Level


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
    parts: list[str] = field(default_factory=list)
    labels: list[tuple[float, str, str]] = field(default_factory=list)
    """(y, text, style) of each layer's end."""


def line_chart(
    layers: Sequence[Layer],
    *,
    label: str,
    size: Size = NORMAL,
    y_range: tuple[float, float] | None = None,
    x_title: str = "step",
) -> str:
    """A chart over steps.

    Args:
        layers: from back to front.
        label: what the figure shows, for those who do not see it.
        size: of the view box.
        y_range: a fixed range of the y axis; by default that of the values.
        x_title: under the x axis.
    """
    xs = [float(step) for layer in layers if not isinstance(layer, Level) for step in layer.steps]
    if not any(math.isfinite(value) for layer in layers for value in _values(layer)) or not xs:
        empty = svg.text(size.width / 2, size.height / 2, "no values recorded", class_="tick", text_anchor="middle")
        return svg.drawing(size.width, size.height, f"{label}: no values recorded", empty)
    y = domain((value for layer in layers for value in _values(layer)), y_range)
    x = (min(xs), max(xs)) if max(xs) > min(xs) else (min(xs) - 1, max(xs) + 1)
    several = [layer for layer in layers if isinstance(layer, Points)]
    inset = 5.0 + DODGE * len(several) / 2 if several else 0.0
    frame = svg.Frame.fit(size.width, size.height, x, y, right=size.right, inset=inset)
    drawn = _Drawn([frame.axes(x_title)])
    for layer in layers:
        if isinstance(layer, Points):
            shift = DODGE * (several.index(layer) - (len(several) - 1) / 2)
            _draw_points(layer, frame, drawn, shift, crowded=len(layer.steps) * 24 > frame.right - frame.left)
        else:
            _draw(layer, frame, drawn, label)
    drawn.parts.append(_end_labels(frame, drawn.labels))
    return svg.drawing(size.width, size.height, label, *drawn.parts)


def _values(layer: Layer) -> list[float]:
    if isinstance(layer, Level):
        return [layer.value]
    if isinstance(layer, Points):
        return [bound for i in layer.intervals for bound in (i.mean, i.low, i.high)]
    return [float(value) for value in layer.values]


def _draw(layer: Line | Dots | Level, frame: svg.Frame, drawn: _Drawn, label: str) -> None:
    if isinstance(layer, Level):
        if math.isfinite(layer.value):
            y = frame.y(layer.value)
            drawn.parts.append(svg.line(frame.left, y, frame.right, y, f"level {layer.style}"))
            drawn.labels.append((y, layer.label, layer.style))
    elif isinstance(layer, Dots):
        kept = scattered(layer.values, layer.most)
        data = svg.dots([frame.x(step) for step in layer.steps[kept]], layer.values[kept], frame.y)
        drawn.parts.append(svg.element("path", d=data, class_=f"raw {layer.style}") if data else "")
    else:
        _draw_line(layer, frame, drawn, label)


def _draw_line(layer: Line, frame: svg.Frame, drawn: _Drawn, label: str) -> None:
    kept = thin(layer.values, layer.most)
    values, xs = layer.values[kept], [frame.x(step) for step in layer.steps[kept]]
    if layer.band is not None:
        drawn.parts.append(_band(xs, values, layer.band[kept], frame, layer.style))
    finite = np.flatnonzero(np.isfinite(layer.values))
    if not len(finite):
        return
    last = float(layer.values[finite[-1]])
    tooltip = f"{layer.label or label}: {numbers.short(last)} at step {layer.steps[finite[-1]]:g}"
    data = svg.path(xs, values, frame.y)
    drawn.parts.append(svg.element("path", svg.title(tooltip), d=data, class_=f"line {layer.style}"))
    if layer.label:
        drawn.labels.append((frame.y(last), layer.label, layer.style))


def _band(xs: Sequence[float], values: Values, width: Values, frame: svg.Frame, style: str) -> str:
    """Polygons between the bounds, one for each stretch without a gap."""
    parts = []
    known = np.isfinite(values) & np.isfinite(width)
    stretches = np.split(np.arange(len(xs)), np.flatnonzero(np.diff(known.astype(int))) + 1)
    for stretch in stretches:
        if len(stretch) < 2 or not known[stretch[0]]:
            continue
        upper = [f"{svg.coordinate(xs[i])},{svg.coordinate(frame.y(values[i] + width[i]))}" for i in stretch]
        lower = [f"{svg.coordinate(xs[i])},{svg.coordinate(frame.y(values[i] - width[i]))}" for i in stretch[::-1]]
        parts.append(svg.element("path", d=f"M{'L'.join([*upper, *lower])}Z", class_=f"band {style}"))
    return "".join(parts)


def _draw_points(layer: Points, frame: svg.Frame, drawn: _Drawn, shift: float, *, crowded: bool) -> None:
    """Marks with bars; where they would touch, a line with a band and the marks as small dots."""
    kept = [i for i in evenly(len(layer.steps), INTERVALS) if math.isfinite(layer.intervals[i].mean)]
    if not kept:
        return
    intervals = [layer.intervals[i] for i in kept]
    xs = [frame.x(layer.steps[i]) + (0.0 if crowded else shift) for i in kept]
    means = np.array([interval.mean for interval in intervals])
    if len(kept) > 1:
        drawn.parts.append(_area(xs, intervals, frame, layer.style) if crowded else "")
        style = "line" if crowded else "thin"
        drawn.parts.append(svg.element("path", d=svg.path(xs, means, frame.y), class_=f"{style} {layer.style}"))
    for x, index, interval in zip(xs, kept, intervals, strict=True):
        if not crowded and numbers.known(interval.low) and numbers.known(interval.high):
            drawn.parts.append(svg.line(x, frame.y(interval.low), x, frame.y(interval.high), f"bar {layer.style}"))
        tooltip = f"step {layer.steps[index]:g}, {layer.label}: {numbers.interval_text(interval)}, n = {interval.n}"
        shape = "small" if crowded else layer.shape
        drawn.parts.append(svg.marker(x, frame.y(interval.mean), shape, layer.style, tooltip))
    drawn.labels.append((frame.y(float(means[-1])), layer.label, layer.style))


def _area(xs: Sequence[float], intervals: Sequence[Interval], frame: svg.Frame, style: str) -> str:
    """The intervals as one band."""
    upper = [f"{svg.coordinate(x)},{svg.coordinate(frame.y(i.high))}" for x, i in zip(xs, intervals, strict=True)]
    lower = [f"{svg.coordinate(x)},{svg.coordinate(frame.y(i.low))}" for x, i in zip(xs, intervals, strict=True)]
    return svg.element("path", d=f"M{'L'.join([*upper, *lower[::-1]])}Z", class_=f"band {style}")


def _end_labels(frame: svg.Frame, labels: Sequence[tuple[float, str, str]]) -> str:
    places = spread([y for y, _, _ in labels], 15, frame.top + 2, frame.bottom)
    return "".join(
        svg.text(frame.right + 9, place + 4, name, class_=f"label {style}")
        for place, (_, name, style) in zip(places, labels, strict=True)
    )


def smoothed(
    steps: Values, values: Values, style: str = "c1", label: str = "", *, band: bool = False, most: int = LINE
) -> tuple[Layer, ...]:
    """Faint raw points and the line of their moving mean; the points of a short series are joined as they are."""
    if np.isfinite(values).sum() < SHORT:
        return Dots(steps, values, style), Line(steps, values, style, label)
    mean, width = smooth(values, smoothing_window(len(values)))
    return Dots(steps, values, style, most), Line(steps, mean, style, label, width if band else None, most)
